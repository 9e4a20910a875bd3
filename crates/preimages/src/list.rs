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
use cambium_runs::ListFile;

/// Folder of all files of preimages.
pub(crate) const DIR: &str = "preimages";
pub(crate) const FORMAT: u32 = 1;
/// The list as a file, of a million runs at most. There are a few dozen.
pub(crate) const RUN_LIST: ListFile = ListFile {
    dir: DIR,
    name: "preimages/runs.list",
    temporary_name: "preimages/runs.list.tmp",
    lock_name: "preimages/LOCK",
    magic: b"CamPreL\n",
    format: FORMAT,
    oldest_format: FORMAT,
    bytes_max: 16 << 20,
};
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
        Ok(RUN_LIST.exists(disk, is_listed)?)
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
        let list = RUN_LIST.read(disk, is_listed, |reader, _| Self::take(reader))?;
        list.ok_or_else(|| PreimagesError::None {
            dir: disk.display_path(""),
        })
    }

    /// Replaces the list. It is durable on return, and so are the names of files.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), PreimagesError> {
        RUN_LIST.prepare(disk, &self.encode())?;
        Ok(RUN_LIST.publish(disk)?)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        RUN_LIST.encode(|out| {
            out.extend_from_slice(self.genesis.as_slice());
            put_varint(out, self.upto.is_some().into());
            if let Some(upto) = self.upto {
                put_varint(out, upto.number);
                out.extend_from_slice(upto.hash.as_slice());
            }
            put_varint(out, self.lost.blocks);
            put_varint(out, self.lost.upto);
            put_varint(out, self.next_file);
            put_varint(out, self.runs.len() as u64);
            for run in &self.runs {
                put_varint(out, run.file);
                out.extend_from_slice(&run.identity.to_le_bytes());
            }
        })
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
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
        Ok(Self {
            genesis,
            upto,
            lost,
            next_file,
            runs,
        })
    }
}

/// The name of the file of a run.
pub(crate) fn run_name(file: u64) -> String {
    RUN_LIST.file_name(file, ENDING)
}

/// The number of the file of a run, from its name in the folder.
pub(crate) fn file_of(name: &str) -> Option<u64> {
    ListFile::number_of(name, ENDING)
}

fn is_listed(name: &str) -> bool {
    file_of(name).is_some()
}
