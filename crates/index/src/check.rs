//! Reading a whole index, and comparing its entries with the blocks.

use crate::{
    ChainIndex, IndexError,
    entry::{Entry, Kind},
    keeper::LiveRun,
    recent::DigestedBlock,
};
use xxhash_rust::xxh3::xxh3_64;

/// Counts of a checked index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedIndex {
    /// Number of runs.
    pub runs: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of entries of hashes: of blocks and transactions.
    pub hashes: u64,
    /// Number of entries of logs.
    pub logs: u64,
}

/// A sum of entries that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    count: u64,
    sum: u64,
}

impl Digest {
    fn add(&mut self, entry: Entry) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&entry.key.to_le_bytes());
        bytes[8..12].copy_from_slice(&entry.block.to_le_bytes());
        bytes[12..].copy_from_slice(&entry.place.to_le_bytes());
        self.count += 1;
        self.sum = self.sum.wrapping_add(xxh3_64(&bytes));
    }
}

impl ChainIndex {
    /// Reads all files, and makes the entries of each block again, which must be those of its run. `progress` is called
    /// with the counts so far, after each few blocks.
    ///
    /// # Errors
    ///
    /// [`IndexError::Damaged`] and [`IndexError::Missing`] name the file, and [`IndexError::Unreadable`]
    /// the block. Beside a process that writes, a file may be missing because its blocks were taken back: a
    /// look-up, or opening it again, finds the files of now.
    pub fn check(
        &self,
        progress: &mut dyn FnMut(&CheckedIndex),
    ) -> Result<CheckedIndex, IndexError> {
        let (runs, seed) = {
            let live = self.keeper.live.read();
            (live.runs.clone(), live.seed)
        };
        let mut checked = CheckedIndex::default();
        for run in runs.iter() {
            self.check_run(run, seed, &mut checked, progress)?;
            checked.runs += 1;
            progress(&checked);
        }
        Ok(checked)
    }

    fn check_run(
        &self,
        run: &LiveRun,
        seed: u64,
        checked: &mut CheckedIndex,
        progress: &mut dyn FnMut(&CheckedIndex),
    ) -> Result<(), IndexError> {
        let damaged = |what: &str| IndexError::Damaged {
            file: run.run.path().to_owned(),
            offset: 0,
            what: what.to_owned(),
        };
        let filter = run.run.read_filter()?;
        let mut made = [Digest::default(); 2];
        for number in run.first()..=run.last {
            let extent = run.extent(number).ok_or(IndexError::NotIndexed {
                number,
                oldest: run.first(),
            })?;
            let (id, body) = self.keeper.data.read(extent, number)?;
            let block = DigestedBlock::new(id, body, seed);
            let block = crate::index::unreadable(id, block)?;
            for entry in block.hash_entries() {
                let key = entry.key.to_le_bytes();
                if filter.as_ref().is_some_and(|filter| !filter.may_have(&key)) {
                    return Err(damaged("its filter lacks a key"));
                }
                made[0].add(entry);
            }
            block.log_entries().for_each(|entry| made[1].add(entry));
            checked.blocks += 1;
            if checked.blocks.is_multiple_of(256) {
                progress(checked);
            }
        }
        for (kind, made) in Kind::ALL.into_iter().zip(made) {
            let mut read = Digest::default();
            let mut cursor = run.run.scan(kind)?;
            while let Some(entry) = cursor.entry() {
                if u64::from(entry.block) <= run.last {
                    read.add(entry);
                }
                cursor.advance()?;
            }
            if read != made {
                return Err(damaged("its entries are not those of its blocks"));
            }
            match kind {
                Kind::Hashes => checked.hashes += read.count,
                Kind::Logs => checked.logs += read.count,
            }
        }
        Ok(())
    }
}
