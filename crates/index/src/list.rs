//! The list of runs: which files belong to the index, and which blocks it has.
//!
//! It is written anew whenever runs come or go, under a temporary name that then replaces the old
//! one. Numbers are little-endian, `varint` is LEB128:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       "CamIdxL", line feed
//! 8       4       format: 1
//! 12      32      hash of the database's first block
//! 44      8       seed of the keys of logs
//! 52      varint  number below which no block is going to be added
//! then    varint  number that the next file gets
//! then    varint  number of the data file that the next blocks go to
//! then    varint  where in it they begin
//! then    varint  number of runs, oldest first, and of each:
//!         varint  number of its file
//!         varint  its first block
//!         varint  its last block
//!         8       its identity
//!         32      hash of its last block
//! then    8       xxh3-64 of all before
//! ```
//!
//! A run's last block may be lower than the one in its file: the blocks above left the canonical
//! chain. Between two runs blocks may be missing: they had left the block log before they were indexed.

use crate::{IndexError, entry::BLOCK_MAX};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, BlockNumber, DecodeError, Reader, put_varint};
use cambium_runs::{ListFile, ListedRun};

/// Folder of all files of the index.
pub(crate) const DIR: &str = "index";
pub(crate) const FORMAT: u32 = 1;
/// The list as a file, of a million runs at most. There are a few dozen.
pub(crate) const RUN_LIST: ListFile = ListFile {
    dir: DIR,
    name: "index/runs.list",
    temporary_name: "index/runs.list.tmp",
    lock_name: "index/LOCK",
    magic: b"CamIdxL\n",
    format: FORMAT,
    oldest_format: FORMAT,
    bytes_max: 64 << 20,
};
/// Largest number that the next file may get. No list comes near it by writing.
const NEXT_FILE_MAX: u64 = 1 << 62;
/// Endings of the files of runs and of data.
const RUN_ENDING: &str = ".run";
const DATA_ENDING: &str = ".blocks";

/// The list of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunList {
    /// Hash of the database's first block.
    pub(crate) genesis: B256,
    /// Seed of the keys of logs.
    pub(crate) seed: u64,
    /// No block below it is going to be added.
    pub(crate) first: BlockNumber,
    pub(crate) next_file: u64,
    /// The data file that the next blocks go to, and where in it.
    pub(crate) data_file: u64,
    pub(crate) data_end: u64,
    /// Oldest first.
    pub(crate) runs: Vec<ListedRun>,
}

impl RunList {
    /// The newest block that the files have.
    pub(crate) fn upto(&self) -> Option<BlockId> {
        self.runs.last().map(|run| run.last)
    }

    /// The oldest block from which on all are there.
    pub(crate) fn oldest(&self) -> BlockNumber {
        let mut oldest = match self.upto() {
            Some(upto) if upto.number + 1 >= self.first => upto.number + 1,
            _ => self.first,
        };
        for run in self.runs.iter().rev() {
            if run.last.number + 1 < oldest {
                break;
            }
            oldest = run.first;
        }
        oldest
    }

    /// Takes back the blocks above `fork`; all if there is none. Returns the runs that have no others. The
    /// next blocks go to a new data file.
    pub(crate) fn cut(&mut self, fork: Option<BlockId>) -> Vec<ListedRun> {
        let is_left = |run: &ListedRun| fork.is_some_and(|fork| run.first <= fork.number);
        let left = self.runs.partition_point(is_left);
        let removed = self.runs.split_off(left);
        let mut is_cut = !removed.is_empty();
        if let (Some(run), Some(fork)) = (self.runs.last_mut(), fork)
            && run.last.number > fork.number
        {
            run.last = fork;
            is_cut = true;
        }
        if is_cut {
            // Blocks that were missing are others now.
            let first_gone = removed.first().map_or(self.first, |run| run.first);
            let next = fork.map_or(first_gone, |fork| fork.number + 1);
            self.first = self.first.min(next);
            (self.data_file, self.data_end) = (self.next_file, 0);
            self.next_file += 1;
        }
        removed
    }

    /// Whether there is a list. Fails with [`IndexError::Missing`] if there are files without one.
    pub(crate) fn exists(disk: &dyn Disk) -> Result<bool, IndexError> {
        Ok(RUN_LIST.exists(disk, is_listed)?)
    }

    /// Reads the list of the database with that first block; `None` if there is none.
    pub(crate) fn read(disk: &dyn Disk, genesis: B256) -> Result<Option<Self>, IndexError> {
        let Some(list) = RUN_LIST.read(disk, is_listed, |reader, _| Self::take(reader))? else {
            return Ok(None);
        };
        match list.genesis == genesis {
            true => Ok(Some(list)),
            false => Err(IndexError::OtherDatabase {
                file: disk.display_path(RUN_LIST.name),
                found: list.genesis,
                genesis,
            }),
        }
    }

    /// Replaces the list. It is durable on return, and so are the names of files.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), IndexError> {
        RUN_LIST.prepare(disk, &self.encode())?;
        Ok(RUN_LIST.publish(disk)?)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        RUN_LIST.encode(|out| {
            out.extend_from_slice(self.genesis.as_slice());
            out.extend_from_slice(&self.seed.to_le_bytes());
            let count = self.runs.len() as u64;
            for number in [
                self.first,
                self.next_file,
                self.data_file,
                self.data_end,
                count,
            ] {
                put_varint(out, number);
            }
            self.runs.iter().for_each(|run| run.encode_to(out));
        })
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (genesis, seed) = (reader.b256()?, reader.u64()?);
        let (first, next_file) = (reader.varint()?, reader.varint()?);
        let (data_file, data_end) = (reader.varint()?, reader.varint()?);
        if next_file > NEXT_FILE_MAX || data_file >= next_file || data_end > 1 << 62 {
            return Err(reader.error("the number of a file is too high"));
        }
        let count = reader.count(ListedRun::BYTES_MIN)?;
        let mut runs: Vec<ListedRun> = Vec::with_capacity(count);
        for _ in 0..count {
            let run = ListedRun::take(reader)?;
            let (first, last) = (run.first, run.last.number);
            if last < first || last > BLOCK_MAX || run.file >= next_file {
                return Err(reader.error("a run ends before it begins, or is of a later file"));
            }
            if runs
                .last()
                .is_some_and(|before| before.last.number >= first)
            {
                return Err(reader.error("the runs don't follow one another"));
            }
            runs.push(run);
        }
        Ok(Self {
            genesis,
            seed,
            first,
            next_file,
            data_file,
            data_end,
            runs,
        })
    }
}

/// The name of the file of a run.
pub(crate) fn run_name(file: u64) -> String {
    RUN_LIST.file_name(file, RUN_ENDING)
}

/// The name of a data file.
pub(crate) fn data_name(file: u64) -> String {
    RUN_LIST.file_name(file, DATA_ENDING)
}

/// The number of a file, and whether it is that of a run, from its name in the folder.
pub(crate) fn file_of(name: &str) -> Option<(u64, bool)> {
    let of_run = ListFile::number_of(name, RUN_ENDING).map(|number| (number, true));
    of_run.or_else(|| Some((ListFile::number_of(name, DATA_ENDING)?, false)))
}

fn is_listed(name: &str) -> bool {
    file_of(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_disk::FaultyDisk;

    fn decode(bytes: &[u8]) -> Result<RunList, DecodeError> {
        RUN_LIST.decode(bytes, |reader, _| RunList::take(reader))
    }

    fn sample() -> RunList {
        let run = |file, first, last| ListedRun {
            file,
            first,
            last: BlockId::new(last, B256::repeat_byte(last as u8)),
            identity: file * 7,
        };
        RunList {
            genesis: B256::repeat_byte(1),
            seed: 77,
            first: 3,
            next_file: 200,
            data_file: 150,
            data_end: 8_192,
            runs: vec![run(9, 4, 400), run(199, 501, 601), run(12, 602, 603)],
        }
    }

    #[test]
    fn a_list_survives_its_file_and_every_damage_is_found() {
        let (disk, genesis) = (FaultyDisk::new(1), B256::repeat_byte(1));
        disk.create_dir(DIR).unwrap();
        assert_eq!(RunList::read(&disk, genesis).unwrap(), None);
        let list = sample();
        list.write(&disk).unwrap();
        list.write(&disk).unwrap();
        assert_eq!(RunList::read(&disk, genesis).unwrap(), Some(list.clone()));
        let other = RunList::read(&disk, B256::ZERO);
        assert!(matches!(other, Err(IndexError::OtherDatabase { .. })));
        let bytes = list.encode();
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_err()));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert!(decode(&bytes).is_err(), "byte {at}");
        }
        let mut apart = list;
        apart.runs[1].first = 400;
        assert!(decode(&apart.encode()).is_err());
    }

    #[test]
    fn taking_back_leaves_the_blocks_up_to_the_fork_and_begins_a_data_file() {
        let mut list = sample();
        assert_eq!(list.oldest(), 501);
        assert!(list.cut(list.upto()).is_empty());
        assert_eq!(list, sample());
        let fork = BlockId::new(550, B256::repeat_byte(9));
        assert_eq!(list.cut(Some(fork)), sample().runs[2..]);
        assert_eq!(list.upto(), Some(fork));
        assert_eq!(
            (list.data_file, list.data_end, list.next_file),
            (200, 0, 201)
        );
        assert_eq!(list.cut(None).len(), 2);
        assert_eq!((list.upto(), list.oldest()), (None, 3));
    }

    #[test]
    fn files_have_the_numbers_in_their_names() {
        assert_eq!(run_name(7), "index/00000007.run");
        assert_eq!(data_name(7), "index/00000007.blocks");
        assert_eq!(file_of("00000007.run"), Some((7, true)));
        assert_eq!(file_of("00000007.blocks"), Some((7, false)));
        assert_eq!(file_of("7.run"), None);
        assert_eq!(file_of("runs.list"), None);
    }
}
