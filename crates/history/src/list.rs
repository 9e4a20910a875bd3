//! The list of runs: which files belong to the history, and which blocks it has.
//!
//! It is written anew whenever runs come or go, under a temporary name that then replaces the old
//! one. Numbers are little-endian, `varint` is LEB128:
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       "CamRuns", line feed
//! 8       4       format: 4
//! 12      32      hash of the database's first block
//! 44      40      first block whose state can be read: number and hash
//! then    varint  whether there are nodes: 0 if not; else one entry of a branch out of so many has
//!                 all its children
//! then    varint  blocks that are kept; 0 for all
//! then    varint  number that the next file gets
//! then    varint  number of runs, oldest first, and of each:
//!         varint  number of its file
//!         varint  its first block
//!         varint  its last block
//!         8       its identity
//!         32      hash of its last block
//! then    varint  number of waiting runs, oldest first, and of each the same (not in format 3)
//! then    8       xxh3-64 of all before
//! ```
//!
//! A run's last block may be lower than the one in its file: the blocks above left the canonical chain. Waiting runs
//! are above all others, with blocks between that are not in any run yet. They are not read until these have been made.

use crate::{HistoryError, node::WholeNodes};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, DecodeError, Reader, put_varint};
use cambium_runs::{ListFile, ListedRun};
use std::num::NonZeroU64;

/// Folder of all files of the history.
pub(crate) const DIR: &str = "history";
pub(crate) const FORMAT: u32 = 4;
/// The format before there were waiting runs, which is read as well.
const FORMAT_WITHOUT_WAITING: u32 = 3;
/// The list as a file, of a million runs at most. There are a few dozen.
pub(crate) const RUN_LIST: ListFile = ListFile {
    dir: DIR,
    name: "history/runs.list",
    temporary_name: "history/runs.list.tmp",
    lock_name: "history/history.lock",
    magic: b"CamRuns\n",
    format: FORMAT,
    oldest_format: FORMAT_WITHOUT_WAITING,
    bytes_max: 64 << 20,
};
/// Largest number that the next file may get. No list comes near it by writing.
const NEXT_FILE_MAX: u64 = 1 << 62;
/// Ending of the files of runs.
const ENDING: &str = ".run";

/// The list of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunList {
    /// Hash of the database's first block.
    pub(crate) genesis: B256,
    /// The oldest block whose state can be read.
    pub(crate) first: BlockId,
    /// Whether there are nodes, and which of them are whole.
    pub(crate) nodes: Option<WholeNodes>,
    /// Blocks below the newest one that are kept; `None` for all.
    pub(crate) keep_blocks: Option<NonZeroU64>,
    pub(crate) next_file: u64,
    /// Oldest first. The first one begins above `first`, each other where the one before ends.
    pub(crate) runs: Vec<ListedRun>,
    /// Oldest first, all above `runs`. Each begins above the one before, and need not begin where that ends.
    pub(crate) waiting: Vec<ListedRun>,
}

impl RunList {
    /// The newest block that the files have.
    pub(crate) fn upto(&self) -> BlockId {
        self.runs.last().map_or(self.first, |run| run.last)
    }

    /// The numbers of all files that it names.
    pub(crate) fn files(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().chain(&self.waiting).map(|run| run.file)
    }

    /// Takes back the blocks above `fork`, which is a block of the history. Returns the runs that have no
    /// others.
    pub(crate) fn cut(&mut self, fork: BlockId) -> Vec<ListedRun> {
        let left = self.runs.partition_point(|run| run.first <= fork.number);
        let removed = self.runs.split_off(left);
        if let Some(run) = self.runs.last_mut()
            && run.last.number > fork.number
        {
            run.last = fork;
        }
        removed
    }

    /// Checks that it was made for the database with that first block.
    pub(crate) fn check_genesis(&self, disk: &dyn Disk, genesis: B256) -> Result<(), HistoryError> {
        match self.genesis == genesis {
            true => Ok(()),
            false => Err(HistoryError::OtherDatabase {
                file: disk.display_path(DIR),
                found: self.genesis,
                genesis,
            }),
        }
    }

    /// Whether there is a list. Fails with [`HistoryError::Missing`] if there are files without one.
    pub(crate) fn exists(disk: &dyn Disk) -> Result<bool, HistoryError> {
        Ok(RUN_LIST.exists(disk, is_listed)?)
    }

    /// Reads the list; `None` if there is none.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Self>, HistoryError> {
        Ok(RUN_LIST.read(disk, is_listed, Self::take)?)
    }

    /// Replaces the list. It is durable on return, and so are the names of runs.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), HistoryError> {
        RUN_LIST.prepare(disk, &self.encode())?;
        Ok(RUN_LIST.publish(disk)?)
    }

    fn encode(&self) -> Vec<u8> {
        RUN_LIST.encode(|out| {
            out.extend_from_slice(self.genesis.as_slice());
            out.extend_from_slice(&self.first.number.to_le_bytes());
            out.extend_from_slice(self.first.hash.as_slice());
            put_varint(out, WholeNodes::to_number(self.nodes).into());
            put_varint(out, self.keep_blocks.map_or(0, NonZeroU64::get));
            put_varint(out, self.next_file);
            for runs in [&self.runs, &self.waiting] {
                put_varint(out, runs.len() as u64);
                runs.iter().for_each(|run| run.encode_to(out));
            }
        })
    }

    fn take(reader: &mut Reader<'_>, format: u32) -> Result<Self, DecodeError> {
        let genesis = reader.b256()?;
        let first = BlockId::new(reader.u64()?, reader.b256()?);
        let one_of = u32::try_from(reader.varint()?);
        let one_of = one_of.map_err(|_| reader.error("a share of whole nodes over 32 bits"))?;
        let nodes = WholeNodes::from_number(one_of);
        let keep_blocks = NonZeroU64::new(reader.varint()?);
        let next_file = reader.varint()?;
        if next_file > NEXT_FILE_MAX {
            return Err(reader.error("the number of the next file is over 2^62"));
        }
        let runs = take_runs(reader, next_file)?;
        let waiting = match format {
            FORMAT_WITHOUT_WAITING => Vec::new(),
            _ => take_runs(reader, next_file)?,
        };
        let mut before = first.number;
        for run in &runs {
            if before.checked_add(1) != Some(run.first) {
                return Err(reader.error("the runs don't follow one another"));
            }
            before = run.last.number;
        }
        for run in &waiting {
            if run.first <= before {
                return Err(reader.error("the waiting runs are not above all others"));
            }
            before = run.last.number;
        }
        Ok(Self {
            genesis,
            first,
            nodes,
            keep_blocks,
            next_file,
            runs,
            waiting,
        })
    }
}

fn take_runs(reader: &mut Reader<'_>, next_file: u64) -> Result<Vec<ListedRun>, DecodeError> {
    let count = reader.count(ListedRun::BYTES_MIN)?;
    let mut runs = Vec::with_capacity(count);
    for _ in 0..count {
        let run = ListedRun::take(reader)?;
        if run.last.number < run.first {
            return Err(reader.error("a run ends before it begins"));
        }
        if run.file >= next_file {
            return Err(reader.error("a run has the number of a later file"));
        }
        runs.push(run);
    }
    Ok(runs)
}

/// The name of the file of a run.
pub(crate) fn run_name(file: u64) -> String {
    RUN_LIST.file_name(file, ENDING)
}

/// The number of a run's file, from its name in the folder.
pub(crate) fn file_of(name: &str) -> Option<u64> {
    ListFile::number_of(name, ENDING)
}

fn is_listed(name: &str) -> bool {
    file_of(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::hex;
    use cambium_disk::FaultyDisk;
    use xxhash_rust::xxh3::xxh3_64;

    fn decode(bytes: &[u8]) -> Result<RunList, DecodeError> {
        RUN_LIST.decode(bytes, RunList::take)
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
            first: BlockId::new(3, B256::repeat_byte(3)),
            nodes: Some(WholeNodes::default()),
            keep_blocks: NonZeroU64::new(500),
            next_file: 200,
            runs: vec![run(9, 4, 400), run(199, 401, 401)],
            waiting: vec![run(198, 500, 600), run(7, 601, 700), run(8, 800, 800)],
        }
    }

    #[test]
    fn a_list_survives_its_file_and_every_damage_is_found() {
        let disk = FaultyDisk::new(1);
        disk.create_dir(DIR).unwrap();
        assert_eq!(RunList::read(&disk).unwrap(), None);
        let list = sample();
        list.write(&disk).unwrap();
        list.write(&disk).unwrap();
        assert_eq!(RunList::read(&disk).unwrap(), Some(list.clone()));
        let bytes = list.encode();
        assert!((0..bytes.len()).all(|end| decode(&bytes[..end]).is_err()));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert!(decode(&bytes).is_err(), "byte {at}");
        }
        let mut apart = list.clone();
        apart.runs[1].first = 402;
        assert!(decode(&apart.encode()).is_err());
        let mut below = list.clone();
        below.waiting[0].first = 401;
        assert!(decode(&below.encode()).is_err());
        let mut twice = list;
        twice.waiting[1].first = 600;
        assert!(decode(&twice.encode()).is_err());
    }

    /// The golden files have no waiting runs: whether there are any is up to threads.
    #[test]
    fn the_format_of_waiting_runs_is_what_it_was() {
        let bytes = sample().encode();
        let golden = "43616d52756e730a04000000010101010101010101010101010101010101010101010101010101010101\
             010103000000000000000303030303030303030303030303030303030303030303030303030303030303\
             08f403c80102090490033f00000000000000909090909090909090909090909090909090909090909090\
             9090909090909090c7019103910371050000000000009191919191919191919191919191919191919191\
             91919191919191919191919103c601f403d8046a05000000000000585858585858585858585858585858\
             585858585858585858585858585858585807d904bc053100000000000000bcbcbcbcbcbcbcbcbcbcbcbc\
             bcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbc08a006a0063800000000000000202020202020202020\
             2020202020202020202020202020202020202020202020";
        assert_eq!(hex::encode(&bytes[..bytes.len() - 8]), golden);
    }

    #[test]
    fn a_list_of_the_format_without_waiting_runs_is_read() {
        let list = RunList {
            waiting: Vec::new(),
            ..sample()
        };
        let mut bytes = list.encode();
        bytes.truncate(bytes.len() - 9);
        bytes[8] = 3;
        bytes.extend_from_slice(&xxh3_64(&bytes).to_le_bytes());
        assert_eq!(decode(&bytes), Ok(list));
    }

    #[test]
    fn taking_back_leaves_the_blocks_up_to_the_fork() {
        let mut list = sample();
        assert!(list.cut(list.upto()).is_empty());
        assert_eq!(list, sample());
        let fork = BlockId::new(200, B256::repeat_byte(9));
        let removed = list.cut(fork);
        assert_eq!(removed, sample().runs[1..]);
        assert_eq!(list.upto(), fork);
        assert_eq!(list.cut(list.first).len(), 1);
        assert_eq!(list.upto(), list.first);
    }

    #[test]
    fn files_have_the_numbers_in_their_names() {
        assert_eq!(run_name(7), "history/00000007.run");
        assert_eq!(file_of("00000007.run"), Some(7));
        assert_eq!(file_of("7.run"), None);
        assert_eq!(file_of("runs.list"), None);
    }
}
