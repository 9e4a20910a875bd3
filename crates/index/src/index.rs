//! The index of a chain: its face.

use crate::{
    IndexError, IndexProgress, IndexedBlock, ReceiptsOf, StoredBody,
    counters::Counters,
    entry::{BLOCK_PLACE, Kind, hash_key},
    extend::WhenFull,
    keeper::{IndexOptions, Keeper, LiveRun, open_runs},
    list::{DIR, RUN_LIST, RunList, data_name, file_of},
};
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_disk::{Disk, DiskLock};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_runs::while_missing;
use cambium_state::{Db, LeafKind};
use std::{collections::BTreeSet, ops::RangeInclusive, sync::Arc};

/// Attempts to open an index beside a process that merges it.
const OPEN_ATTEMPTS: usize = 16;

/// Sizes and counters of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexStats {
    /// The oldest block from which on all are indexed.
    pub oldest: BlockNumber,
    /// The newest indexed block; `None` if there is none.
    pub upto: Option<BlockId>,
    /// Number of blocks in files.
    pub blocks: u64,
    /// Number of runs.
    pub runs: u64,
    /// Length of the runs' files, in bytes.
    pub run_bytes: u64,
    /// Length of the data files, in bytes, up to the end of the records in runs.
    pub data_bytes: u64,
    /// Number of entries of hashes in files: of blocks and transactions. Those of blocks that were taken back count
    /// until their run is merged.
    pub hashes: u64,
    /// Number of entries of logs in files: for each block one of each address and topic. As with hashes.
    pub logs: u64,
    /// Runs whose filter is not in memory.
    pub runs_without_filter: u64,
    /// Memory of fences, filters and places of blocks, in bytes.
    pub memory_bytes: u64,
    /// Blocks that are in memory alone.
    pub recent_blocks: u64,
    /// Memory of these, in bytes, about.
    pub recent_bytes: u64,
    /// Device reads of runs so far.
    pub index_reads: u64,
    /// Device reads of block data so far.
    pub data_reads: u64,
    /// Bytes written so far, merges included.
    pub written_bytes: u64,
}

/// Block or transaction with a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundHash {
    /// The canonical block that it is of or in.
    pub block: IndexedBlock,
    /// Index of the transaction in the block; `None` if the hash is the block's own.
    pub transaction: Option<usize>,
}

/// The index of a chain's blocks, transactions and logs. Clones are handles of the same index.
#[derive(Clone)]
pub struct ChainIndex {
    pub(crate) keeper: Arc<Keeper>,
}

/// How far the index was at a moment at which all of it was canonical.
#[derive(Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) upto: Option<BlockId>,
    /// The block that comes next.
    next: BlockNumber,
    /// Whether blocks above are missing.
    pub(crate) is_behind: bool,
}

impl ChainIndex {
    /// Whether a database has an index.
    ///
    /// # Errors
    ///
    /// [`IndexError::Disk`] if the disk fails, and [`IndexError::Missing`] if there are files, and the list of them is
    /// lost.
    pub fn exists(disk: &dyn Disk) -> Result<bool, IndexError> {
        RunList::exists(disk)
    }

    /// Begins the index of a database, whose disk is `disk`, with block `first`, or the oldest one that the
    /// block log still has above that. [`ChainIndex::catch_up`] adds the blocks.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoBlocks`] for a key-value database, [`IndexError::Exists`] if there is one, and an
    /// error if another process has it.
    pub fn create(
        disk: Arc<dyn Disk>,
        db: &Db,
        first: BlockNumber,
        options: IndexOptions,
    ) -> Result<Self, IndexError> {
        if db.options().leaves == LeafKind::Entries {
            return Err(IndexError::NoBlocks);
        }
        disk.create_dir(DIR)?;
        disk.sync_dir("")?;
        let lock = RUN_LIST.lock(&*disk)?;
        let genesis = db.genesis().hash;
        if RunList::read(&*disk, genesis)?.is_some() {
            let dir = disk.display_path("");
            return Err(IndexError::Exists { dir });
        }
        let list = RunList {
            genesis,
            seed: disk.new_salt(),
            first: first.max(db.genesis().number),
            next_file: 2,
            data_file: 1,
            data_end: 0,
            runs: Vec::new(),
        };
        list.write(&*disk)?;
        let counters = Arc::<Counters>::default();
        Ok(Self::assemble(
            disk,
            options,
            list,
            Vec::new(),
            counters,
            Some(lock),
        ))
    }

    /// Opens the index of a database for writing, by one process at a time.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is none, [`IndexError::OtherDatabase`] if it is that of another
    /// one, [`IndexError::Damaged`] and [`IndexError::Missing`] name a file that is not as it was
    /// written, and it is an error if another process has the index.
    pub fn open(disk: Arc<dyn Disk>, db: &Db, options: IndexOptions) -> Result<Self, IndexError> {
        Self::no_index(&*disk)?;
        let lock = RUN_LIST.lock(&*disk)?;
        let list = Self::list(&*disk, db)?;
        let counters = Arc::<Counters>::default();
        let runs = open_runs(&*disk, &list, &counters)?;
        for file in runs.iter().flat_map(|run| run.run.extents().files()) {
            let name = data_name(file);
            if !disk.exists(&name)? {
                let file = disk.display_path(&name);
                return Err(IndexError::Missing { file });
            }
        }
        remove_leftovers(&*disk, &list, &runs)?;
        Ok(Self::assemble(
            disk,
            options,
            list,
            runs,
            counters,
            Some(lock),
        ))
    }

    /// Opens the index of a database for reading alone, beside a process that may write to it. Blocks
    /// above its files are read from the block log, and kept in memory.
    ///
    /// # Errors
    ///
    /// As [`ChainIndex::open`].
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        db: &Db,
        options: IndexOptions,
    ) -> Result<Self, IndexError> {
        Self::no_index(&*disk)?;
        let counters = Arc::<Counters>::default();
        // The other process may merge a run after its list was read.
        let is_missing = |error: &IndexError| matches!(error, IndexError::Missing { .. });
        let (list, runs) = while_missing(OPEN_ATTEMPTS, is_missing, || {
            let list = Self::list(&*disk, db)?;
            let runs = open_runs(&*disk, &list, &counters)?;
            Ok((list, runs))
        })?;
        Ok(Self::assemble(disk, options, list, runs, counters, None))
    }

    fn no_index(disk: &dyn Disk) -> Result<(), IndexError> {
        match RunList::exists(disk)? {
            true => Ok(()),
            false => Err(IndexError::NoIndex {
                dir: disk.display_path(""),
            }),
        }
    }

    fn list(disk: &dyn Disk, db: &Db) -> Result<RunList, IndexError> {
        let list = RunList::read(disk, db.genesis().hash)?;
        list.ok_or_else(|| IndexError::NoIndex {
            dir: disk.display_path(""),
        })
    }

    fn assemble(
        disk: Arc<dyn Disk>,
        options: IndexOptions,
        list: RunList,
        runs: Vec<LiveRun>,
        counters: Arc<Counters>,
        lock: Option<DiskLock>,
    ) -> Self {
        let keeper = Arc::new(Keeper::new(disk, options, list, runs, counters, lock));
        keeper.place_filters();
        Self { keeper }
    }

    /// Adds the blocks up to the head, and takes back those that are not canonical any more, until
    /// `progress` returns false. Blocks that were stored without receipts get those that `receipts` makes, those
    /// that were added without and are in memory alone included. Returns whether it is at the head.
    ///
    /// Both functions may look up in this index: they find what was there before. Called from one of them, this
    /// function adds nothing and returns false.
    ///
    /// # Errors
    ///
    /// Errors of the disk and of the database, those of `receipts`, and [`IndexError::Unreadable`] if a
    /// block in the database is not one of a chain.
    pub fn catch_up(
        &self,
        db: &Db,
        receipts: Option<&mut ReceiptsOf<'_>>,
        progress: &mut dyn FnMut(&IndexProgress) -> bool,
    ) -> Result<bool, IndexError> {
        let Some(_growing) = self.keeper.grow() else {
            return Ok(false);
        };
        self.keeper.follow(db, receipts, WhenFull::Flush, progress)
    }

    /// Writes the blocks in memory to files.
    ///
    /// # Errors
    ///
    /// [`IndexError::ReadOnly`], and errors of the disk; the blocks stay in memory then.
    pub fn flush(&self) -> Result<(), IndexError> {
        match self.keeper.grow() {
            Some(_growing) => self.keeper.flush(),
            // A callback of `catch_up`, which flushes itself when there is no more room.
            None => Ok(()),
        }
    }

    /// Merges runs as long as any are due: each entry is written about as often as there are powers of four
    /// between a new run and the whole.
    ///
    /// # Errors
    ///
    /// [`IndexError::ReadOnly`], and errors of the disk; the runs stay as they are then.
    pub fn merge(&self) -> Result<(), IndexError> {
        self.keeper.merge_all()
    }

    /// The newest block that is in files. The block log must keep the blocks above it.
    pub fn durable(&self) -> Option<BlockId> {
        self.keeper.list.lock().upto()
    }

    /// Sizes and counters.
    pub fn stats(&self) -> IndexStats {
        let list = self.keeper.list.lock().clone();
        let live = self.keeper.live.read();
        let counters = &self.keeper.counters;
        let mut stats = IndexStats {
            oldest: list.oldest(),
            upto: live.upto,
            recent_blocks: live.recent.blocks().len() as u64,
            recent_bytes: live.recent.bytes() as u64,
            index_reads: counters.index_reads(),
            data_reads: counters.data_reads(),
            written_bytes: counters.written_bytes(),
            ..IndexStats::default()
        };
        for live in live.runs.iter() {
            stats.runs += 1;
            stats.blocks += live.last + 1 - live.first();
            stats.run_bytes += live.run.file_bytes();
            stats.data_bytes += live.run.extents().bytes();
            stats.hashes += live.run.entries(Kind::Hashes);
            stats.logs += live.run.entries(Kind::Logs);
            stats.runs_without_filter += u64::from(!live.run.has_filter());
            stats.memory_bytes += live.run.memory_bytes();
        }
        stats
    }

    /// Adds the newest blocks in memory, and takes back those that are not canonical any more.
    fn reach(&self, db: &Db) -> Result<Reached, IndexError> {
        let mut is_reloaded = false;
        loop {
            let head = db.head();
            let upto = self.keeper.live.read().upto;
            let reached = |is_behind| {
                let next = self.keeper.next();
                Ok(Reached {
                    upto,
                    next,
                    is_behind,
                })
            };
            if upto == Some(head) {
                return reached(false);
            }
            let next = self.keeper.next().max(db.genesis().number);
            let is_near = next.saturating_add(self.keeper.looked_up_max()) > head.number;
            let is_sound = match upto {
                Some(upto) => upto.number <= head.number && db.is_canonical(upto)?,
                None => true,
            };
            let Some(_growing) = self.keeper.grow() else {
                // Called back while blocks are added.
                return reached(true);
            };
            if is_sound && !is_near {
                // A reader may find the blocks in files by now.
                if !self.keeper.folder.is_writer()
                    && !is_reloaded
                    && self.keeper.reload_newer(db)?
                {
                    is_reloaded = true;
                    continue;
                }
                return reached(true);
            }
            let mut left = self.keeper.looked_up_max();
            let is_at_head = self.keeper.follow(db, None, WhenFull::Stop, &mut |_| {
                left -= 1;
                left > 0
            })?;
            let upto = self.keeper.live.read().upto;
            if upto.is_none() || !is_at_head && left > 0 {
                // Its first block is above the head, or there is no room for more.
                let next = self.keeper.next();
                return Ok(Reached {
                    upto,
                    next,
                    is_behind: true,
                });
            }
        }
    }

    /// The canonical block or transaction with a hash. `None` if there is none.
    ///
    /// One device read finds it, and one reads the block, if it is in files.
    ///
    /// # Errors
    ///
    /// If it is not found, [`IndexError::Behind`] if blocks below the head are not indexed yet, and
    /// [`IndexError::Incomplete`] if older ones are not indexed. Errors of the disk and of damaged files.
    pub fn find(&self, db: &Db, hash: B256) -> Result<Option<FoundHash>, IndexError> {
        self.reading(db, |reached| {
            // Blocks move from memory to runs, so both are taken at one moment.
            let (recent, runs, first_recent) = {
                let live = self.keeper.live.read();
                let recent = live.recent.find(&hash);
                let recent = recent.map(|(block, place)| (block.clone(), place));
                let first = live.recent.blocks().first().map(|block| block.id.number);
                (recent, live.runs.clone(), first)
            };
            if let Some((block, place)) = recent {
                return Ok(Some(FoundHash {
                    block: indexed(block.id, &block.body)?,
                    transaction: (place != BLOCK_PLACE).then(|| place as usize - 1),
                }));
            }
            let key = hash_key(&hash);
            // Runs whose filters pass the key have it but for one in a hundred. Each other run takes a read.
            let (mut likely, mut others): (Vec<_>, Vec<_>) =
                runs.iter().partition(|run| run.run.has_filter());
            likely.retain(|run| run.run.may_have(key));
            others.sort_by_key(|run| run.run.entries(Kind::Hashes));
            for run in likely.iter().rev().chain(others.iter().rev()) {
                if let Some(found) = self.find_in(run, key, &hash)? {
                    return Ok(Some(found));
                }
            }
            if reached.is_behind {
                return Err(reached.behind(db));
            }
            let upto = reached.upto.map_or(0, |upto| upto.number);
            match first_missing(&runs, first_recent, db.genesis().number..=upto) {
                None => Ok(None),
                Some(missing) => Err(IndexError::Incomplete {
                    missing,
                    oldest: self.keeper.list.lock().oldest(),
                }),
            }
        })
    }

    fn find_in(
        &self,
        run: &LiveRun,
        key: u64,
        hash: &B256,
    ) -> Result<Option<FoundHash>, IndexError> {
        let mut cursor = run.run.seek(Kind::Hashes, key, &(0..=u32::MAX), u64::MAX)?;
        while let Some(entry) = cursor.entry() {
            // `None` above the blocks that count.
            if let Some(extent) = run.extent(entry.block.into()) {
                let (id, body) = self.keeper.data.read(extent, entry.block.into())?;
                let block = indexed(id, &body)?;
                let transaction = entry.place.checked_sub(1).map(|index| index as usize);
                let is_it = match transaction {
                    None => block.id.hash == *hash,
                    Some(index) => {
                        let transactions = unreadable(block.id, block.body.transactions())?;
                        let transaction = transactions.get(index);
                        transaction.is_some_and(|bytes| keccak256(bytes) == *hash)
                    }
                };
                if is_it {
                    return Ok(Some(FoundHash { block, transaction }));
                }
            }
            cursor.advance()?;
        }
        Ok(None)
    }

    /// The canonical block with a number; `None` above the head. One device read, if it is in files.
    ///
    /// # Errors
    ///
    /// [`IndexError::NotIndexed`] if the block had left the block log before it was indexed,
    /// [`IndexError::Behind`] if it is not indexed yet, and errors of the disk and of damaged files.
    pub fn block(&self, db: &Db, number: BlockNumber) -> Result<Option<IndexedBlock>, IndexError> {
        self.reading(db, |reached| {
            let (recent, extent) = {
                let live = self.keeper.live.read();
                let run = live.runs.partition_point(|run| run.last < number);
                let extent = live.runs.get(run).and_then(|run| run.extent(number));
                (live.recent.block(number).cloned(), extent)
            };
            if let Some(block) = recent {
                return indexed(block.id, &block.body).map(Some);
            }
            if let Some(extent) = extent {
                let (id, body) = self.keeper.data.read(extent, number)?;
                return indexed(id, &body).map(Some);
            }
            match reached.upto {
                _ if number > db.head().number || number < db.genesis().number => Ok(None),
                Some(upto) if number <= upto.number => Err(IndexError::NotIndexed {
                    number,
                    oldest: self.keeper.list.lock().oldest(),
                }),
                _ if reached.is_behind => Err(reached.behind(db)),
                _ => Ok(None),
            }
        })
    }

    /// Calls `read` with the present runs. Repeats that if the head has moved meanwhile, or another process has
    /// replaced files.
    pub(crate) fn reading<T>(
        &self,
        db: &Db,
        mut read: impl FnMut(Reached) -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let mut attempt = 1;
        loop {
            let reached = self.reach(db);
            let before = reached.as_ref().ok().and_then(|reached| reached.upto);
            let result = reached.and_then(&mut read);
            let upto = self.keeper.live.read().upto;
            let is_same = match before {
                // Blocks that were added meanwhile change nothing below.
                Some(before) if Some(before) != upto => db.is_canonical(before)?,
                _ => true,
            };
            match result {
                Err(IndexError::Missing { .. })
                    if !self.keeper.folder.is_writer() && attempt < OPEN_ATTEMPTS =>
                {
                    if let Some(_growing) = self.keeper.grow() {
                        self.keeper.reload()?;
                    }
                }
                result if is_same || attempt >= OPEN_ATTEMPTS => return result,
                _ => {}
            }
            attempt += 1;
        }
    }
}

impl Reached {
    /// The error of a look-up that finds nothing while blocks are missing.
    pub(crate) fn behind(self, db: &Db) -> IndexError {
        IndexError::Behind {
            upto: self.next.saturating_sub(1),
            head: db.head(),
        }
    }
}

fn indexed(id: BlockId, body: &Bytes) -> Result<IndexedBlock, IndexError> {
    let body = unreadable(id, StoredBody::decode(body))?;
    Ok(IndexedBlock { id, body })
}

/// The first block of a range that neither these runs nor the blocks in memory have. `recent` is the first of
/// these.
pub(crate) fn first_missing(
    runs: &[LiveRun],
    recent: Option<BlockNumber>,
    range: RangeInclusive<BlockNumber>,
) -> Option<BlockNumber> {
    let mut next = *range.start();
    for run in runs {
        if run.first() <= next && next <= run.last {
            next = run.last + 1;
        }
    }
    let is_missing = next <= *range.end() && recent.is_none_or(|recent| next < recent);
    is_missing.then_some(next)
}

/// Names the block that can't be read.
pub(crate) fn unreadable<T>(
    block: BlockId,
    result: Result<T, crate::StoredBodyError>,
) -> Result<T, IndexError> {
    result.map_err(|error| IndexError::Unreadable {
        block,
        why: error.to_string(),
    })
}

/// Removes files that a crash has left.
fn remove_leftovers(disk: &dyn Disk, list: &RunList, runs: &[LiveRun]) -> Result<(), IndexError> {
    let run_files: BTreeSet<u64> = list.runs.iter().map(|run| run.file).collect();
    let data = runs.iter().flat_map(|run| run.run.extents().files());
    let data: BTreeSet<u64> = data.chain([list.data_file]).collect();
    let is_leftover = |name: &str| match file_of(name) {
        Some((file, true)) => !run_files.contains(&file),
        Some((file, false)) => !data.contains(&file),
        None => false,
    };
    Ok(RUN_LIST.remove_leftovers(disk, is_leftover)?)
}
