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
//! A run's last block may be lower than the one in its file: the blocks above left the canonical
//! chain. Waiting runs are above all others, with blocks between that are not in any run yet: nobody reads
//! them until these have been made.

use crate::{HistoryError, node::WholeNodes};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, BlockNumber, DecodeError, Reader, put_varint};
use cambium_store::{ListFile, Listed};
use std::num::NonZeroU64;
use xxhash_rust::xxh3::xxh3_64;

/// Folder of all files of the history.
pub(crate) const DIR: &str = "history";
/// The list as a file.
pub(crate) const RUN_LIST: ListFile = ListFile {
    dir: DIR,
    name: "history/runs.list",
    temporary_name: "history/runs.list.tmp",
    lock_name: "history/history.lock",
};
const MAGIC: &[u8; 8] = b"CamRuns\n";
pub(crate) const FORMAT: u32 = 4;
/// The format before there were waiting runs, which is read as well.
const FORMAT_WITHOUT_WAITING: u32 = 3;
/// Largest size of the list, in bytes: of a million runs. There are a few dozen.
const BYTES_MAX: u64 = 64 << 20;
/// Largest number that the next file may get. No list comes near it by writing.
const NEXT_FILE_MAX: u64 = 1 << 62;
/// Ending of the files of runs.
const ENDING: &str = ".run";

/// A run in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedRun {
    pub(crate) file: u64,
    /// First block.
    pub(crate) first: BlockNumber,
    /// Last block. The entries of later ones are dead.
    pub(crate) last: BlockId,
    pub(crate) identity: u64,
}

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
        match RUN_LIST.look(disk, |name| file_of(name).is_some())? {
            Listed::Yes => Ok(true),
            Listed::No => Ok(false),
            Listed::Lost => Err(HistoryError::Missing {
                file: disk.display_path(RUN_LIST.name),
            }),
        }
    }

    /// Reads the list; `None` if there is none.
    pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Self>, HistoryError> {
        let file = match disk.open(RUN_LIST.name) {
            Err(error) if error.is_not_found() && !Self::exists(disk)? => return Ok(None),
            file => file?,
        };
        let path = disk.display_path(RUN_LIST.name);
        let len = file.len()?;
        let damaged = |offset: u64, what: &str| HistoryError::Damaged {
            file: path.clone(),
            offset,
            what: what.to_owned(),
        };
        if len > BYTES_MAX {
            return Err(damaged(0, "it is longer than 64 MiB"));
        }
        let mut bytes = vec![0; len as usize];
        file.read_at(&mut bytes, 0)?;
        let format = bytes.get(8..12).filter(|_| bytes.starts_with(MAGIC));
        let format = format.map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
        match format {
            Some(found) if found > FORMAT && sum_is_right(&bytes) => {
                return Err(HistoryError::NewerFormat {
                    file: path,
                    found,
                    supported: FORMAT,
                });
            }
            _ => {}
        }
        let list = Self::decode(&bytes);
        list.map(Some)
            .map_err(|error| damaged(error.offset as u64, error.what))
    }

    /// Replaces the list. It is durable on return, and so are the names of runs.
    pub(crate) fn write(&self, disk: &dyn Disk) -> Result<(), HistoryError> {
        RUN_LIST.prepare(disk, &self.encode())?;
        Ok(RUN_LIST.publish(disk)?)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(self.genesis.as_slice());
        out.extend_from_slice(&self.first.number.to_le_bytes());
        out.extend_from_slice(self.first.hash.as_slice());
        put_varint(&mut out, WholeNodes::to_number(self.nodes).into());
        put_varint(&mut out, self.keep_blocks.map_or(0, NonZeroU64::get));
        put_varint(&mut out, self.next_file);
        for runs in [&self.runs, &self.waiting] {
            put_varint(&mut out, runs.len() as u64);
            runs.iter().for_each(|run| run.encode_to(&mut out));
        }
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if !sum_is_right(bytes) {
            return Err(reader.error("the checksum of the list of runs does not match"));
        }
        let mut reader_of = Reader::new(&bytes[..bytes.len() - 8]);
        std::mem::swap(&mut reader, &mut reader_of);
        let (magic, format) = (reader.take(8)?, reader.u32()?);
        if magic != MAGIC || !(FORMAT_WITHOUT_WAITING..=FORMAT).contains(&format) {
            return Err(reader.error("this is no list of runs in this format"));
        }
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
        let runs = ListedRun::read_all(&mut reader, next_file)?;
        let waiting = match format {
            FORMAT_WITHOUT_WAITING => Vec::new(),
            _ => ListedRun::read_all(&mut reader, next_file)?,
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
        reader.finish()?;
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

impl ListedRun {
    fn encode_to(&self, out: &mut Vec<u8>) {
        for number in [self.file, self.first, self.last.number] {
            put_varint(out, number);
        }
        out.extend_from_slice(&self.identity.to_le_bytes());
        out.extend_from_slice(self.last.hash.as_slice());
    }

    fn read_all(reader: &mut Reader<'_>, next_file: u64) -> Result<Vec<Self>, DecodeError> {
        let count = reader.count(43)?;
        let mut runs = Vec::with_capacity(count);
        for _ in 0..count {
            let (file, first, last) = (reader.varint()?, reader.varint()?, reader.varint()?);
            let run = Self {
                file,
                first,
                identity: reader.u64()?,
                last: BlockId::new(last, reader.b256()?),
            };
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
}

/// Whether the last eight bytes are the checksum of those before.
fn sum_is_right(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<8>()
        .is_some_and(|(rest, sum)| xxh3_64(rest).to_le_bytes() == *sum)
}

/// The name of the file of a run.
pub(crate) fn run_name(file: u64) -> String {
    format!("{DIR}/{file:08}{ENDING}")
}

/// The number of a run's file, from its name in the folder.
pub(crate) fn file_of(name: &str) -> Option<u64> {
    let number = name.strip_suffix(ENDING)?;
    let is_ours = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_disk::FaultyDisk;

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
        assert!((0..bytes.len()).all(|end| RunList::decode(&bytes[..end]).is_err()));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert!(RunList::decode(&bytes).is_err(), "byte {at}");
        }
        let mut apart = list.clone();
        apart.runs[1].first = 402;
        assert!(RunList::decode(&apart.encode()).is_err());
        let mut below = list.clone();
        below.waiting[0].first = 401;
        assert!(RunList::decode(&below.encode()).is_err());
        let mut twice = list;
        twice.waiting[1].first = 600;
        assert!(RunList::decode(&twice.encode()).is_err());
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
        assert_eq!(RunList::decode(&bytes), Ok(list));
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
