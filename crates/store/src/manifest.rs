//! The manifest, which identifies a data directory, and the directory's lock.
//!
//! The manifest is written once, when the database is created, and read first whenever it is
//! opened. It shows whether the directory is a database, for this chain, in a supported format.
//! Checkpoints hold a copy, from which a repair restores it.

use crate::{StoreError, checkpoint::is_checkpoint, files::remove_if_exists};
use cambium_disk::{Disk, DiskLock, LockError};
use cambium_primitives::{DecodeError, Reader, put_varint};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const NAME: &str = "cambium.db";
const TEMPORARY_NAME: &str = "cambium.db.tmp";
const LOCK_NAME: &str = "cambium.lock";

// Manifest. Numbers are little-endian, `varint` is LEB128.
//
// OFFSET  SIZE    MEANING
// 0       8       "Cambium", line feed
// 8       4       format of the whole directory: 2
// 12      4       low half of xxh3-64 of 0 .. 12: damage is not taken for a newer format
// 16      8       salt
// 24      varint  number of properties, and of each:
//         varint  length of the name, at least 1
//                 name
//         varint  length of the value
//                 value
// then    8       xxh3-64 of all before
//
// The first 16 bytes are the same in every format there will be.
const MAGIC: &[u8; 8] = b"Cambium\n";
pub(crate) const FORMAT: u32 = 2;
const BYTES_MAX: u64 = 1 << 20;

/// Identity of a database: format, salt, and properties such as the genesis hash. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    salt: u64,
    properties: Vec<(String, Vec<u8>)>,
}

impl Manifest {
    /// Creates a database in an existing directory with this salt, which [`Disk::new_salt`] draws, and these properties (such as the
    /// genesis hash and the kind of commitment). The manifest is durable on return.
    ///
    /// # Errors
    ///
    /// [`StoreError::AlreadyADatabase`] if there is a manifest, [`StoreError::TooLarge`] if it
    /// would exceed 1 MiB, and [`StoreError::Disk`] if it can't be written.
    pub fn create(
        disk: &dyn Disk,
        salt: u64,
        properties: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<Self, StoreError> {
        if Self::exists(disk)? {
            return Err(StoreError::AlreadyADatabase {
                dir: disk.display_path(""),
            });
        }
        let manifest = Self {
            salt,
            properties: properties.into_iter().collect(),
        };
        manifest.write(disk)?;
        Ok(manifest)
    }

    /// Replaces a missing or damaged manifest by a copy that [`Manifest::encode`] made.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the copy is damaged, and [`StoreError::Disk`] if the manifest
    /// can't be written.
    pub fn restore(disk: &dyn Disk, copy: &[u8]) -> Result<Self, StoreError> {
        let manifest = Self::decode(copy).map_err(|e| {
            StoreError::corrupt("the copy of the manifest".into(), e.offset as u64, e.what)
        })?;
        manifest.write(disk)?;
        Ok(manifest)
    }

    fn write(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let bytes = self.encode();
        if bytes.len() as u64 > BYTES_MAX {
            let (bytes, max) = (bytes.len() as u64, BYTES_MAX);
            return Err(StoreError::TooLarge {
                what: "manifest",
                bytes,
                max,
            });
        }
        remove_if_exists(disk, TEMPORARY_NAME)?;
        let file = disk.create(TEMPORARY_NAME)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        disk.rename(TEMPORARY_NAME, NAME)?;
        Ok(disk.sync_dir("")?)
    }

    /// Reads the manifest.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotADatabase`] if neither a manifest nor a checkpoint exists,
    /// [`StoreError::Corrupt`] if the manifest is damaged, or missing beside a checkpoint,
    /// [`StoreError::NewerFormat`] or [`StoreError::OlderFormat`] for another format, and
    /// [`StoreError::Disk`] if it can't be read.
    pub fn open(disk: &dyn Disk) -> Result<Self, StoreError> {
        let path = disk.display_path(NAME);
        let damaged = |offset: usize, what: &str| StoreError::Corrupt {
            file: path.clone(),
            offset: offset as u64,
            what: what.to_owned(),
            advice: "`cambium db repair` restores it from the copy in a checkpoint",
        };
        if !Self::exists(disk)? {
            let names = disk.list("")?;
            return Err(match names.iter().any(|name| is_checkpoint(name)) {
                true => damaged(0, "the file is missing"),
                false => StoreError::NotADatabase {
                    dir: disk.display_path(""),
                },
            });
        }
        let file = disk.open(NAME)?;
        let len = file.len()?;
        if len > BYTES_MAX {
            return Err(damaged(0, "too long for a manifest"));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        let format = decode_format(&mut Reader::new(&bytes));
        match format.map_err(|e| damaged(e.offset, e.what))? {
            FORMAT => Self::decode(&bytes).map_err(|e| damaged(e.offset, e.what)),
            found => Err(StoreError::other_format(path, found, FORMAT)),
        }
    }

    /// Returns whether the directory holds a manifest, intact or damaged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`] if the directory can't be read.
    pub fn exists(disk: &dyn Disk) -> Result<bool, StoreError> {
        Ok(disk.exists(NAME)?)
    }

    /// Returns the value of the property `name`.
    pub fn property(&self, name: &str) -> Option<&[u8]> {
        self.properties
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| &**value)
    }

    /// Random number of this database, with which checksums are seeded. An attacker does not know it, and can't prepare
    /// bytes that pass for records.
    pub const fn salt(&self) -> u64 {
        self.salt
    }

    /// Encodes the manifest.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((xxh3_64(&bytes) as u32).to_le_bytes());
        bytes.extend(self.salt.to_le_bytes());
        put_varint(&mut bytes, self.properties.len() as u64);
        for (name, value) in &self.properties {
            for part in [name.as_bytes(), value] {
                put_varint(&mut bytes, part.len() as u64);
                bytes.extend(part);
            }
        }
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let format = decode_format(&mut reader)?;
        let Some((content, sum)) = bytes.split_last_chunk::<8>() else {
            return Err(reader.error("cut short"));
        };
        if format != FORMAT || u64::from_le_bytes(*sum) != xxh3_64(content) {
            return Err(reader.error("its checksum does not match"));
        }
        let mut reader = Reader::new(content);
        decode_format(&mut reader)?;
        let salt = reader.u64()?;
        let mut properties = Vec::new();
        for _ in 0..reader.count(2)? {
            let len = reader.count(1)?;
            let name = String::from_utf8(reader.take(len)?.to_vec())
                .map_err(|_| reader.error("a name is not UTF-8"))?;
            let len = reader.count(1)?;
            properties.push((name, reader.take(len)?.to_vec()));
        }
        reader.finish()?;
        Ok(Self { salt, properties })
    }
}

fn decode_format(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    let start = reader.clone().take(12)?;
    if reader.take(8)? != MAGIC {
        return Err(reader.error("not a manifest"));
    }
    let format = reader.u32()?;
    if reader.u32()? != xxh3_64(start) as u32 {
        return Err(reader.error("bad header"));
    }
    Ok(format)
}

/// Lock on a data directory. It is released when dropped, or when the process ends.
#[derive(Debug)]
pub struct DataDirLock {
    _lock: DiskLock,
}

/// Locks an existing data directory for this process.
///
/// # Errors
///
/// [`StoreError::InUse`] if another process holds the lock, and [`StoreError::Disk`] if the lock
/// file can't be opened.
pub fn lock_data_dir(disk: &dyn Disk) -> Result<DataDirLock, StoreError> {
    match disk.lock(LOCK_NAME) {
        Ok(lock) => Ok(DataDirLock { _lock: lock }),
        Err(LockError::Held { pid, .. }) => Err(StoreError::InUse {
            dir: disk.display_path(""),
            pid,
            users: None,
        }),
        Err(LockError::Disk(e)) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::{b256, keccak256};
    use cambium_disk::{FaultyDisk, StdDisk};
    use proptest::prelude::*;

    fn properties() -> [(String, Vec<u8>); 2] {
        [
            ("commitment".into(), b"mpt".to_vec()),
            ("genesis".into(), vec![7; 32]),
        ]
    }

    fn put(disk: &FaultyDisk, bytes: &[u8]) {
        let file = disk.open(NAME).unwrap();
        file.set_len(0).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    #[test]
    fn a_manifest_survives_a_crash_as_it_was_made() {
        let disk = FaultyDisk::new(1);
        assert!(!Manifest::exists(&disk).unwrap());
        let made = Manifest::create(&disk, disk.new_salt(), properties()).unwrap();
        let read = Manifest::open(&disk.crash()).unwrap();
        assert_eq!(read, made);
        assert_eq!(read.property("commitment"), Some(&b"mpt"[..]));
        assert_eq!(read.property("chain"), None);
        let other = Manifest::create(&FaultyDisk::new(1), disk.new_salt(), properties()).unwrap();
        assert_ne!(read.salt(), other.salt());
    }

    #[test]
    fn a_crash_while_it_is_made_leaves_it_whole_or_missing() {
        for operations in 0..6 {
            for seed in cambium_seeds::seeds!(0..20) {
                let disk = FaultyDisk::new(seed);
                disk.lose_power_after(operations);
                let made = Manifest::create(&disk, disk.new_salt(), properties());
                let disk = disk.crash();
                match Manifest::open(&disk) {
                    Ok(read) => assert_eq!(read.properties, properties()),
                    Err(StoreError::NotADatabase { .. }) => {
                        assert!(made.is_err());
                        Manifest::create(&disk, disk.new_salt(), properties()).unwrap();
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_directory_is_told_apart() {
        let disk = FaultyDisk::new(2);
        let error = Manifest::open(&disk).unwrap_err().to_string();
        assert!(error.contains("there is no database in"), "{error}");
        let made = Manifest::create(&disk, disk.new_salt(), properties()).unwrap();
        let again = Manifest::create(&disk, 0, []).unwrap_err().to_string();
        assert!(
            again.contains("already holds a Cambium database"),
            "{again}"
        );

        let mut newer = made.encode();
        newer[8] = 9;
        let sum = (xxh3_64(&newer[..12]) as u32).to_le_bytes();
        newer[12..16].copy_from_slice(&sum);
        newer.truncate(20);
        put(&disk, &newer);
        assert_eq!(
            Manifest::open(&disk).unwrap_err().to_string(),
            "cambium.db was written by a newer Cambium (format 9, this one reads 2): upgrade"
        );
    }

    #[test]
    fn a_directory_of_the_first_format_is_told_from_damage() {
        let disk = FaultyDisk::new(2);
        let mut older = Manifest::create(&disk, 0, properties()).unwrap().encode();
        older[8] = 1;
        let sum = (xxh3_64(&older[..12]) as u32).to_le_bytes();
        older[12..16].copy_from_slice(&sum);
        put(&disk, &older);
        let error = Manifest::open(&disk).unwrap_err().to_string();
        assert!(error.contains("an older Cambium (format 1"), "{error}");
    }

    #[test]
    fn a_copy_takes_the_place_of_what_is_missing_or_damaged() {
        let disk = FaultyDisk::new(8);
        let made = Manifest::create(&disk, 7, properties()).unwrap();
        let copy = made.encode();
        disk.flip_bit(NAME, 20, 0);
        let error = Manifest::open(&disk).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("db repair"));
        assert_eq!(Manifest::restore(&disk, &copy).unwrap(), made);
        assert_eq!(Manifest::open(&disk.crash()).unwrap(), made);
        let disk = FaultyDisk::new(8);
        assert!(Manifest::restore(&disk, &copy[1..]).is_err());
        assert!(!Manifest::exists(&disk).unwrap());
        Manifest::restore(&disk, &copy).unwrap();
        assert_eq!(Manifest::open(&disk).unwrap(), made);
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_damage() {
        let disk = FaultyDisk::new(3);
        let mut bytes = Manifest::create(&disk, disk.new_salt(), properties())
            .unwrap()
            .encode();
        for len in 0..bytes.len() {
            put(&disk, &bytes[..len]);
            let error = Manifest::open(&disk).unwrap_err();
            assert!(
                error.to_string().starts_with("cambium.db is damaged"),
                "{error}"
            );
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            put(&disk, &bytes);
            let error = Manifest::open(&disk).unwrap_err();
            assert!(
                error.to_string().starts_with("cambium.db is damaged"),
                "{error}"
            );
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_format_is_what_it_was() {
        let bytes = Manifest {
            salt: 5,
            properties: properties().to_vec(),
        }
        .encode();
        // Existing data directories contain one. Changing this value requires a new format number.
        assert_eq!(
            keccak256(bytes),
            b256!("bd29db84e8bba24d4d68fbeb994c74d59024f407d5cc222c6c5e67e0b368ad68")
        );
    }

    #[test]
    fn a_directory_in_use_is_refused_with_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let disks: [Box<dyn Disk>; 2] = [
            Box::new(FaultyDisk::new(4)),
            Box::new(StdDisk::new(dir.path())),
        ];
        for disk in disks {
            let held = lock_data_dir(&*disk).unwrap();
            let error = lock_data_dir(&*disk).unwrap_err().to_string();
            assert!(error.contains("is open in this process already"), "{error}");
            drop(held);
            lock_data_dir(&*disk).unwrap();
        }
    }

    proptest! {
        #[test]
        fn made_up_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(Manifest::decode(&bytes).is_err());
            let mut whole = Manifest { salt: 0, properties: vec![] }.encode()[..24].to_vec();
            whole.append(&mut bytes);
            whole.extend(xxh3_64(&whole).to_le_bytes());
            if let Ok(manifest) = Manifest::decode(&whole) {
                prop_assert_eq!(manifest.encode(), whole);
            }
        }
    }
}
