//! The list of runs: which files belong to the preimages, and up to which block they are complete.
//!
//! It is written anew whenever runs come or go, under a temporary name that then replaces the old
//! one. Numbers are little-endian, `varint` is LEB128:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       "CamPreL", line feed
//! 8       4       format: 1
//! 12      32      hash of the database's first block; zeros as long as the next field is 0
//! 44      varint  1, or 0 if the preimages of the state at the first block are not all in runs yet
//! then    varint  number of the newest block whose preimages are in runs; not there after 0
//! then    32      its hash; not there after 0
//! then    varint  number of heights at which the preimages of a block were not added
//! then    varint  the highest one of them; 0 if there is none
//! then    varint  number that the next file gets
//! then    varint  number of runs, oldest first, and of each:
//!         varint  number of its file
//!         8       its identity
//! then    8       xxh3-64 of all before
//! ```

use crate::PreimagesError;
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, DecodeError, Reader, put_varint};
use cambium_store::{ListFile, Listed};
use xxhash_rust::xxh3::xxh3_64;

/// Folder of all files of preimages.
pub(crate) const DIR: &str = "preimages";
/// The list as a file.
pub(crate) const RUN_LIST: ListFile = ListFile {
    dir: DIR,
    name: "preimages/runs.list",
    temporary_name: "preimages/runs.list.tmp",
    lock_name: "preimages/LOCK",
};
const MAGIC: &[u8; 8] = b"CamPreL\n";
pub(crate) const FORMAT: u32 = 1;
/// Largest size of the list, in bytes: of a million runs. There are a few dozen.
const BYTES_MAX: u64 = 16 << 20;
/// Largest number that the next file may get. No list comes near it by writing.
const NEXT_FILE_MAX: u64 = 1 << 62;
/// Ending of the files of runs.
const ENDING: &str = ".run";

/// A run in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedRun {
    pub(crate) file: u64,
    pub(crate) identity: u64,
}

/// The heights at which the preimages of a block were not added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) blocks: u64,
    /// The highest one.
    pub(crate) upto: u64,
}

impl Lost {
    /// Counts `blocks` up to a height, but for those that are counted.
    pub(crate) fn add(&mut self, blocks: u64, upto: u64) {
        let new = upto.saturating_sub(self.upto).min(blocks);
        self.blocks = self.blocks.saturating_add(new);
        if blocks > 0 {
            self.upto = self.upto.max(upto);
        }
    }
}

/// The list of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunList {
    /// Hash of the database's first block.
    pub(crate) genesis: B256,
    /// The newest block whose preimages are in runs, with those of all its ancestors. `None` if those of the
    /// first state are not all there.
    pub(crate) upto: Option<BlockId>,
    pub(crate) lost: Lost,
    pub(crate) next_file: u64,
    /// Oldest first.
    pub(crate) runs: Vec<ListedRun>,
}

impl RunList {
    /// Whether there is a list. Fails with [`PreimagesError::Missing`] if there are files without one.
    pub(crate) fn exists(disk: &dyn Disk) -> Result<bool, PreimagesError> {
        match RUN_LIST.look(disk, |name| file_of(name).is_some())? {
            Listed::Yes => Ok(true),
            Listed::No => Ok(false),
            Listed::Lost => Err(PreimagesError::Missing {
                file: disk.display_path(RUN_LIST.name),
            }),
        }
    }

    /// Whether there is a list, of more than a first state. A damaged one may be.
    pub(crate) fn has_blocks(disk: &dyn Disk) -> Result<bool, PreimagesError> {
        match Self::load(disk) {
            Ok(list) => Ok(list.upto.is_some_and(|upto| upto.hash != list.genesis)),
            Err(PreimagesError::Damaged { .. } | PreimagesError::NewerFormat { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Reads the list of the database with that first block.
    pub(crate) fn read(disk: &dyn Disk, genesis: B256) -> Result<Self, PreimagesError> {
        let list = Self::load(disk)?;
        let file = disk.display_path(RUN_LIST.name);
        match list.upto {
            None => Err(PreimagesError::Unfinished { file }),
            Some(_) if list.genesis == genesis => Ok(list),
            Some(_) => Err(PreimagesError::OtherDatabase {
                file,
                found: list.genesis,
                genesis,
            }),
        }
    }

    fn load(disk: &dyn Disk) -> Result<Self, PreimagesError> {
        let file = match disk.open(RUN_LIST.name) {
            Err(error) if error.is_not_found() && !Self::exists(disk)? => {
                let dir = disk.display_path("");
                return Err(PreimagesError::None { dir });
            }
            file => file?,
        };
        let path = disk.display_path(RUN_LIST.name);
        let damaged = |offset: u64, what: &str| PreimagesError::Damaged {
            file: path.clone(),
            offset,
            what: what.to_owned(),
        };
        let len = file.len()?;
        if len > BYTES_MAX {
            return Err(damaged(0, "it is longer than 16 MiB"));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        let format = bytes.get(8..12).filter(|_| bytes.starts_with(MAGIC));
        let format = format.map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
        match format {
            Some(found) if found > FORMAT && split_sum(&bytes).is_some() => {
                return Err(PreimagesError::NewerFormat {
                    file: path,
                    found,
                    supported: FORMAT,
                });
            }
            _ => {}
        }
        let list = Self::decode(&bytes);
        list.map_err(|error| damaged(error.offset as u64, error.what))
    }

    /// Replaces the list. It is durable on return, and so are the names of files.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), PreimagesError> {
        RUN_LIST.prepare(disk, &self.encode())?;
        Ok(RUN_LIST.publish(disk)?)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(self.genesis.as_slice());
        put_varint(&mut out, self.upto.is_some().into());
        if let Some(upto) = self.upto {
            put_varint(&mut out, upto.number);
            out.extend_from_slice(upto.hash.as_slice());
        }
        put_varint(&mut out, self.lost.blocks);
        put_varint(&mut out, self.lost.upto);
        put_varint(&mut out, self.next_file);
        put_varint(&mut out, self.runs.len() as u64);
        for run in &self.runs {
            put_varint(&mut out, run.file);
            out.extend_from_slice(&run.identity.to_le_bytes());
        }
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let Some(bytes) = split_sum(bytes) else {
            let what = "the checksum of the list of runs does not match";
            return Err(Reader::new(bytes).error(what));
        };
        let mut reader = Reader::new(bytes);
        let (magic, format) = (reader.take(8)?, reader.u32()?);
        if magic != MAGIC || format != FORMAT {
            return Err(reader.error("this is no list of runs in this format"));
        }
        let genesis = reader.b256()?;
        let upto = match reader.varint()? {
            0 => None,
            1 => Some(BlockId::new(reader.varint()?, reader.b256()?)),
            _ => return Err(reader.error("whether the first state is complete is 0 or 1")),
        };
        let lost = Lost {
            blocks: reader.varint()?,
            upto: reader.varint()?,
        };
        let next_file = reader.varint()?;
        if next_file > NEXT_FILE_MAX {
            return Err(reader.error("the number of a file is too high"));
        }
        let count = reader.count(9)?;
        let mut runs = Vec::with_capacity(count);
        for _ in 0..count {
            let (file, identity) = (reader.varint()?, reader.u64()?);
            if file >= next_file {
                return Err(reader.error("a run is of a later file"));
            }
            runs.push(ListedRun { file, identity });
        }
        reader.finish()?;
        Ok(Self {
            genesis,
            upto,
            lost,
            next_file,
            runs,
        })
    }
}

/// The bytes before the checksum, if that is right.
fn split_sum(bytes: &[u8]) -> Option<&[u8]> {
    let (rest, sum) = bytes.split_last_chunk::<8>()?;
    (xxh3_64(rest).to_le_bytes() == *sum).then_some(rest)
}

/// The name of the file of a run.
pub(crate) fn run_name(file: u64) -> String {
    format!("{DIR}/{file:08}{ENDING}")
}

/// The number of the file of a run, from its name in the folder.
pub(crate) fn file_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(ENDING)?;
    let is_ours = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_ours)
}
