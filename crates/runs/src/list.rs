//! The list of a folder's runs: which files count. It is small, and replaced as a whole.
//!
//! Numbers are little-endian:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       name of the kind of list
//! 8       4       format
//! 12              content, which its owner decides
//! then    8       xxh3-64 of all before
//! ```

use crate::RunError;
use cambium_disk::{Disk, DiskError, DiskLock, LockError};
use cambium_primitives::{BlockId, BlockNumber, DecodeError, Reader, put_varint};
use xxhash_rust::xxh3::xxh3_64;

/// The list of a folder, and what it is called.
#[derive(Clone, Copy, Debug)]
pub struct ListFile {
    /// The folder.
    pub dir: &'static str,
    /// Name of the list, with the folder.
    pub name: &'static str,
    /// Name under which the next list is written, with the folder.
    pub temporary_name: &'static str,
    /// Name of the file whose lock the writer of the folder has, with the folder.
    pub lock_name: &'static str,
    /// First bytes of the list.
    pub magic: &'static [u8; 8],
    /// Number of the format that is written.
    pub format: u32,
    /// Number of the oldest format that is read.
    pub oldest_format: u32,
    /// Largest size of the list in bytes, a multiple of 1 MiB.
    pub bytes_max: u64,
}

/// A run of consecutive blocks in a file, as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRun {
    /// Number of the file.
    pub file: u64,
    /// First block.
    pub first: BlockNumber,
    /// Last block. The entries of later ones are dead.
    pub last: BlockId,
    /// Random number that the file has, too.
    pub identity: u64,
}

impl ListedRun {
    /// Least size of an encoded run in bytes.
    pub const BYTES_MIN: usize = 43;

    /// Appends file, first and last block as LEB128, then 8 bytes of the identity and the hash of the last block.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        for number in [self.file, self.first, self.last.number] {
            put_varint(out, number);
        }
        out.extend_from_slice(&self.identity.to_le_bytes());
        out.extend_from_slice(self.last.hash.as_slice());
    }

    /// Decodes what [`ListedRun::encode_to`] wrote.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes end before.
    pub fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (file, first, last) = (reader.varint()?, reader.varint()?, reader.varint()?);
        Ok(Self {
            file,
            first,
            identity: reader.u64()?,
            last: BlockId::new(last, reader.b256()?),
        })
    }
}

impl ListFile {
    /// Returns the name of a numbered file with this ending, with the folder.
    pub fn file_name(&self, number: u64, ending: &str) -> String {
        format!("{}/{number:08}{ending}", self.dir)
    }

    /// Returns the number in the name of a file with this ending, without the folder.
    pub fn number_of(name: &str, ending: &str) -> Option<u64> {
        let number = name.strip_suffix(ending)?;
        let is_ours = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
        number.parse().ok().filter(|_| is_ours)
    }

    /// Returns whether there is a list. `is_listed` is true for names of files that it would name.
    ///
    /// # Errors
    ///
    /// [`RunError::Missing`] if there are files without a list, and errors of the disk.
    pub fn exists(
        &self,
        disk: &dyn Disk,
        is_listed: impl Fn(&str) -> bool,
    ) -> Result<bool, RunError> {
        if disk.exists(self.name)? {
            return Ok(true);
        }
        let names = match disk.list(self.dir) {
            Err(error) if error.is_not_found() => return Ok(false),
            names => names?,
        };
        if !names.iter().any(|name| is_listed(name)) {
            return Ok(false);
        }
        // Another process may have made both meanwhile, the list first.
        match disk.exists(self.name)? {
            true => Ok(true),
            false => Err(RunError::Missing {
                file: disk.display_path(self.name),
            }),
        }
    }

    /// Reads the list; `None` if there is none. `decode` receives the content and the number of the format, and must
    /// read the content to its end.
    ///
    /// # Errors
    ///
    /// [`RunError::Missing`] if there are files without a list, [`RunError::Damaged`] and
    /// [`RunError::NewerFormat`], and errors of the disk.
    pub fn read<T>(
        &self,
        disk: &dyn Disk,
        is_listed: impl Fn(&str) -> bool,
        decode: impl FnOnce(&mut Reader<'_>, u32) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, RunError> {
        let file = match disk.open(self.name) {
            Err(error) if error.is_not_found() && !self.exists(disk, is_listed)? => {
                return Ok(None);
            }
            file => file?,
        };
        let path = disk.display_path(self.name);
        let damaged = |offset: usize, what: &str| RunError::Damaged {
            file: path.clone(),
            offset: offset as u64,
            what: what.to_owned(),
        };
        let len = file.len()?;
        if len > self.bytes_max {
            let what = format!("it is longer than {} MiB", self.bytes_max >> 20);
            return Err(damaged(0, &what));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        let format = bytes.strip_prefix(&self.magic[..]);
        let format = format.and_then(|rest| rest.first_chunk());
        match format.map(|format| u32::from_le_bytes(*format)) {
            Some(found) if found > self.format && split_sum(&bytes).is_some() => {
                return Err(RunError::NewerFormat {
                    file: path,
                    found,
                    supported: self.format,
                });
            }
            _ => {}
        }
        let list = self.decode(&bytes, decode);
        list.map(Some)
            .map_err(|error| damaged(error.offset, error.what))
    }

    /// Encodes a list, whose content `put` appends.
    pub fn encode(&self, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = self.magic.to_vec();
        out.extend_from_slice(&self.format.to_le_bytes());
        put(&mut out);
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        out
    }

    /// Decodes a list, whose content `decode` reads.
    ///
    /// # Errors
    ///
    /// Returns the error of `decode`, and one if the bytes are not those of a list, or `decode` leaves some.
    pub fn decode<T>(
        &self,
        bytes: &[u8],
        decode: impl FnOnce(&mut Reader<'_>, u32) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let Some(bytes) = split_sum(bytes) else {
            let what = "the checksum of the list of runs does not match";
            return Err(Reader::new(bytes).error(what));
        };
        let mut reader = Reader::new(bytes);
        let (magic, format) = (reader.take(8)?, reader.u32()?);
        if magic != self.magic || !(self.oldest_format..=self.format).contains(&format) {
            return Err(reader.error("this is no list of runs in this format"));
        }
        let list = decode(&mut reader, format)?;
        reader.finish()?;
        Ok(list)
    }

    /// Writes the next list under its temporary name, durably, and makes the names of the folder's files
    /// durable, which the list must not precede. The list that counts is still the one before.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails, and changes nothing then.
    pub fn prepare(&self, disk: &dyn Disk, bytes: &[u8]) -> Result<(), DiskError> {
        if disk.exists(self.temporary_name)? {
            disk.remove(self.temporary_name)?;
        }
        let file = disk.create(self.temporary_name)?;
        file.write_at(bytes, 0)?;
        file.sync()?;
        disk.sync_dir(self.dir)
    }

    /// Makes the list that was prepared the one that counts, durably.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails. After a crash either list may count then.
    pub fn publish(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk.rename(self.temporary_name, self.name)?;
        disk.sync_dir(self.dir)
    }

    /// Removes the files of the folder of whose names `is_leftover` is true: the list that counts does not need
    /// them. That list is made durable first. A process that ended just after it was renamed may have left
    /// it otherwise, and after a loss of power the list before it would name files that are gone.
    ///
    /// # Errors
    ///
    /// Returns an error if the disk fails.
    pub fn remove_leftovers(
        &self,
        disk: &dyn Disk,
        is_leftover: impl Fn(&str) -> bool,
    ) -> Result<(), DiskError> {
        disk.sync_dir(self.dir)?;
        for name in disk.list(self.dir)? {
            if is_leftover(&name) {
                disk.remove(&format!("{}/{name}", self.dir))?;
            }
        }
        Ok(())
    }

    /// Locks the folder for this process.
    ///
    /// # Errors
    ///
    /// [`RunError::InUse`] if another process holds the lock, and [`RunError::Disk`] if the lock file can't be
    /// opened.
    pub fn lock(&self, disk: &dyn Disk) -> Result<DiskLock, RunError> {
        disk.lock(self.lock_name).map_err(|error| match error {
            LockError::Held { pid, .. } => RunError::InUse {
                dir: disk.display_path(self.dir),
                pid,
            },
            LockError::Disk(error) => error.into(),
        })
    }
}

/// The bytes before the checksum, if that is right.
fn split_sum(bytes: &[u8]) -> Option<&[u8]> {
    let (rest, sum) = bytes.split_last_chunk::<8>()?;
    (xxh3_64(rest).to_le_bytes() == *sum).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_disk::FaultyDisk;

    const LIST: ListFile = ListFile {
        dir: "some",
        name: "some/list",
        temporary_name: "some/list.tmp",
        lock_name: "some/lock",
        magic: b"SomeList",
        format: 2,
        oldest_format: 1,
        bytes_max: 1 << 20,
    };

    #[test]
    fn a_list_counts_when_it_is_published_and_is_whole_after_any_loss_of_power() {
        for operations in 0..12 {
            let disk = FaultyDisk::new(operations);
            disk.create_dir(LIST.dir).unwrap();
            disk.sync_dir("").unwrap();
            LIST.prepare(&disk, b"one").unwrap();
            assert!(!disk.exists(LIST.name).unwrap());
            LIST.publish(&disk).unwrap();
            disk.lose_power_after(operations);
            let replaced = LIST
                .prepare(&disk, b"two")
                .and_then(|()| LIST.publish(&disk));
            let bytes = disk.crash().contents(LIST.name).unwrap();
            assert!(bytes == b"one" || bytes == b"two");
            assert!(replaced.is_err() || bytes == b"two");
        }
    }

    #[test]
    fn files_without_a_list_are_told_from_an_empty_folder() {
        let disk = FaultyDisk::new(1);
        let exists = || LIST.exists(&disk, |name| name.ends_with(".run"));
        let is_lost = || matches!(exists(), Err(RunError::Missing { .. }));
        assert!(!exists().unwrap());
        disk.create_dir(LIST.dir).unwrap();
        disk.create("some/lock").unwrap();
        assert!(!exists().unwrap());
        disk.create("some/1.run").unwrap();
        assert!(is_lost());
        LIST.prepare(&disk, b"1.run").unwrap();
        assert!(is_lost());
        LIST.publish(&disk).unwrap();
        assert!(exists().unwrap());
    }

    #[test]
    fn what_only_the_list_before_names_goes_when_that_can_not_count_again() {
        for seed in cambium_seeds::seeds!(0..50) {
            let disk = FaultyDisk::new(seed);
            disk.create_dir(LIST.dir).unwrap();
            disk.sync_dir("").unwrap();
            disk.create("some/1.run").unwrap();
            LIST.prepare(&disk, b"1.run").unwrap();
            LIST.publish(&disk).unwrap();
            disk.create("some/2.run").unwrap();
            LIST.prepare(&disk, b"2.run").unwrap();
            // The process is killed here, and the next one goes on.
            disk.rename(LIST.temporary_name, LIST.name).unwrap();
            LIST.remove_leftovers(&disk, |name| name == "1.run")
                .unwrap();
            let disk = disk.crash();
            let named = disk.contents(LIST.name).unwrap();
            let named = format!("some/{}", String::from_utf8(named).unwrap());
            assert!(disk.exists(&named).unwrap(), "seed {seed}: {named}");
        }
    }

    #[test]
    fn a_list_is_told_from_damage_and_from_those_of_other_versions() {
        let disk = FaultyDisk::new(1);
        disk.create_dir(LIST.dir).unwrap();
        let read = || {
            LIST.read(
                &disk,
                |_| false,
                |reader, format| Ok((reader.varint()?, format)),
            )
        };
        let put = |list: ListFile| {
            let bytes = list.encode(|out| put_varint(out, 700));
            list.prepare(&disk, &bytes).unwrap();
            list.publish(&disk).unwrap();
            bytes
        };
        assert!(matches!(read(), Ok(None)));
        let bytes = put(LIST);
        assert!(matches!(read(), Ok(Some((700, 2)))));
        for at in 0..bytes.len() {
            disk.flip_bit(LIST.name, at as u64, 3);
            assert!(matches!(read(), Err(RunError::Damaged { .. })), "byte {at}");
            disk.flip_bit(LIST.name, at as u64, 3);
        }
        put(ListFile { format: 1, ..LIST });
        assert!(matches!(read(), Ok(Some((700, 1)))));
        put(ListFile { format: 3, ..LIST });
        let newer = read();
        assert!(matches!(
            newer,
            Err(RunError::NewerFormat {
                found: 3,
                supported: 2,
                ..
            })
        ));
    }

    #[test]
    fn files_have_the_numbers_in_their_names() {
        assert_eq!(LIST.file_name(7, ".run"), "some/00000007.run");
        assert_eq!(ListFile::number_of("00000007.run", ".run"), Some(7));
        assert_eq!(
            ListFile::number_of("123456789.run", ".run"),
            Some(123_456_789)
        );
        for other in ["7.run", "0000000x.run", "runs.list", "+0000007.run"] {
            assert_eq!(ListFile::number_of(other, ".run"), None);
        }
    }
}
