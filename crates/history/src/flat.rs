//! The flat history of a database.

use crate::{
    HistoryError,
    entry::entries_of,
    keeper::{HistoryOptions, Keeper, OpenedRuns, open_runs},
    list::{DIR, RunList, file_of},
    run::reader,
    runs::Run,
    view::HistoryView,
};
use cambium_disk::{Disk, DiskLock, LockError};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{Db, StateError, StoreError};
use cambium_store::WritePace;
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

const LOCK_NAME: &str = "history/history.lock";
/// Memory of the entries that a reader takes from the block log, at most, in bytes.
const READER_BYTES_MAX: usize = 256 << 20;
/// Attempts to find the child of the newest block while the head moves.
const PARTED_MAX: usize = 1_000;
/// Attempts to open the runs of a list beside a process that merges them.
const OPEN_ATTEMPTS: usize = 8;

/// How far a history has got.
#[derive(Clone, Copy, Debug)]
pub struct CatchUp {
    /// The newest block that it has.
    pub upto: BlockId,
    /// The head of the database.
    pub head: BlockId,
}

/// Sizes of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryStats {
    /// Number of runs in files.
    pub files: u64,
    /// Size of these files, in bytes.
    pub file_bytes: u64,
    /// Number of entries in these files.
    pub file_entries: u64,
    /// Number of runs in memory.
    pub memory_runs: u64,
    /// Memory of these runs, in bytes.
    pub recent_bytes: u64,
    /// Memory of fences and filters, in bytes.
    pub index_bytes: u64,
    /// Pages read so far, to look up single keys.
    pub pages_read: u64,
    /// Bytes of files written so far, merges included.
    pub written_bytes: u64,
}

/// What a check has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedHistory {
    /// Number of files.
    pub files: u64,
    /// Number of entries.
    pub entries: u64,
}

/// The flat history of a database. Clones are handles of the same history.
#[derive(Clone)]
pub struct FlatHistory {
    inner: Arc<Keeper>,
}

impl FlatHistory {
    /// Whether a database has a history.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Disk`] if the disk can't tell.
    pub fn exists(disk: &dyn Disk) -> Result<bool, HistoryError> {
        RunList::exists(disk)
    }

    /// Begins the history of a database, whose disk is `disk`: the oldest state that it will have
    /// is that after block `first`. [`FlatHistory::catch_up`] adds the blocks above.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Exists`] if there is one, an error if block `first` is not canonical, and if
    /// another process has the history.
    pub fn create(
        disk: Arc<dyn Disk>,
        db: &Db,
        first: BlockNumber,
        options: HistoryOptions,
    ) -> Result<Self, HistoryError> {
        let head = db.head();
        let first = db.block_id(first)?.ok_or(StateError::NoSuchBlock {
            number: first,
            head,
        })?;
        disk.create_dir(DIR)?;
        disk.sync_dir("")?;
        let lock = lock(&*disk)?;
        if let Some(list) = RunList::read(&*disk)? {
            return Err(HistoryError::Exists {
                dir: disk.display_path(""),
                first: list.first.number,
            });
        }
        let list = RunList {
            genesis: db.genesis().hash,
            first,
            next_file: 1,
            runs: Vec::new(),
        };
        list.write(&*disk)?;
        Ok(Self::assemble(
            disk,
            options,
            list,
            OpenedRuns::default(),
            Some(lock),
        ))
    }

    /// Opens the history of a database for writing. Nobody else may have it open for that.
    ///
    /// # Errors
    ///
    /// [`HistoryError::NoHistory`] if there is none, [`HistoryError::OtherDatabase`] if it is that of
    /// another one, [`HistoryError::Damaged`] and [`HistoryError::Missing`] name a file that is not
    /// as it was written, and it is an error if another process has the history.
    pub fn open(
        disk: Arc<dyn Disk>,
        db: &Db,
        options: HistoryOptions,
    ) -> Result<Self, HistoryError> {
        Self::no_history(&*disk)?;
        let lock = lock(&*disk)?;
        let list = Self::list(&*disk, db)?;
        let files = open_runs(&*disk, &list, &options)?;
        let history = Self::assemble(disk, options, list, files, Some(lock));
        history.remove_leftovers()?;
        Ok(history)
    }

    /// Opens the history of a database for reading alone, beside a process that may write to it.
    /// Blocks above its files are read from the block log by [`FlatHistory::catch_up`], and kept in
    /// memory.
    ///
    /// # Errors
    ///
    /// As [`FlatHistory::open`].
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        db: &Db,
        options: HistoryOptions,
    ) -> Result<Self, HistoryError> {
        Self::no_history(&*disk)?;
        let mut attempt = 1;
        let (list, files) = loop {
            let list = Self::list(&*disk, db)?;
            match open_runs(&*disk, &list, &options) {
                // The other process has merged it meanwhile.
                Err(HistoryError::Missing { .. }) if attempt < OPEN_ATTEMPTS => attempt += 1,
                files => break (list, files?),
            }
        };
        Ok(Self::assemble(disk, options, list, files, None))
    }

    fn no_history(disk: &dyn Disk) -> Result<(), HistoryError> {
        match RunList::exists(disk)? {
            true => Ok(()),
            false => Err(HistoryError::NoHistory {
                dir: disk.display_path(""),
            }),
        }
    }

    fn list(disk: &dyn Disk, db: &Db) -> Result<RunList, HistoryError> {
        let list = RunList::read(disk)?.ok_or_else(|| HistoryError::NoHistory {
            dir: disk.display_path(""),
        })?;
        let genesis = db.genesis().hash;
        match list.genesis == genesis {
            true => Ok(list),
            false => Err(HistoryError::OtherDatabase {
                file: disk.display_path(DIR),
                found: list.genesis,
                genesis,
            }),
        }
    }

    fn assemble(
        disk: Arc<dyn Disk>,
        options: HistoryOptions,
        list: RunList,
        files: OpenedRuns,
        lock: Option<DiskLock>,
    ) -> Self {
        Self {
            inner: Arc::new(Keeper::new(disk, options, list, files, lock)),
        }
    }

    /// Removes files that a crash has left.
    fn remove_leftovers(&self) -> Result<(), HistoryError> {
        let writer = self.inner.writer.lock();
        let listed: BTreeSet<u64> = writer.list.runs.iter().map(|run| run.file).collect();
        for name in self.inner.disk.list(DIR)? {
            if file_of(&name).is_some_and(|file| !listed.contains(&file)) {
                self.inner.disk.remove(&format!("{DIR}/{name}"))?;
            }
        }
        Ok(())
    }

    /// The oldest and the newest block whose states can be read.
    pub fn blocks(&self) -> (BlockId, BlockId) {
        let runs = self.inner.runs.read();
        (runs.first, runs.upto)
    }

    /// The newest block that is in files. The block log must keep the blocks above it.
    pub fn durable(&self) -> BlockId {
        self.inner.writer.lock().list.upto()
    }

    /// The throttle of writes, which is off at first.
    pub(crate) fn pace(&self) -> &WritePace {
        &self.inner.pace
    }

    /// Sizes and counters.
    pub fn stats(&self) -> HistoryStats {
        let runs = self.inner.runs.read().clone();
        let mut stats = HistoryStats {
            memory_runs: runs.memory.len() as u64,
            recent_bytes: runs.memory_bytes() as u64,
            pages_read: self.inner.pages_read.load(Ordering::Relaxed),
            written_bytes: self.inner.written.load(Ordering::Relaxed),
            ..HistoryStats::default()
        };
        for run in &runs.files {
            if let Run::File(run) = &run.run {
                stats.files += 1;
                stats.file_bytes += run.file_bytes();
                stats.file_entries += run.entries();
                stats.index_bytes += run.memory_bytes();
            }
        }
        stats
    }

    /// The state after the canonical block at `number`. Blocks above the history's newest one are
    /// left to the database.
    ///
    /// # Errors
    ///
    /// [`HistoryError::NotKept`] below its first block, [`StateError::NoSuchBlock`] above the head,
    /// and the errors of [`FlatHistory::catch_up`].
    pub fn view_at(&self, db: &Db, number: BlockNumber) -> Result<HistoryView, HistoryError> {
        loop {
            let runs = self.inner.runs.read().clone();
            if number < runs.first.number {
                let first = runs.first.number;
                return Err(HistoryError::NotKept { number, first });
            }
            if number >= runs.upto.number {
                return Ok(db.view_at(number)?.into());
            }
            // After a move of the head its blocks may be others.
            if db.block_id(runs.upto.number)? != Some(runs.upto) {
                self.catch_up(db, &mut |_| true)?;
                continue;
            }
            let id = db.block_id(number)?.ok_or(StateError::NoSuchBlock {
                number,
                head: db.head(),
            })?;
            let base = db.view_of(runs.upto)?;
            if base.block_hash(number)? == Some(id.hash) {
                return Ok(HistoryView::new(base, runs, id));
            }
        }
    }

    /// Adds the blocks up to the head, which it reads from the block log, and takes back those that
    /// are not canonical any more. Calls `goes_on` after each block, and stops if it returns false.
    /// Returns the newest block then. If the history is open for writing, its entries go to a file
    /// whenever they fill their memory.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Gap`] if the log no longer has the next block, [`HistoryError::Abandoned`] if the
    /// chain has left the history's first block for another, and [`HistoryError::Poisoned`]
    /// after a failed write.
    pub fn catch_up(
        &self,
        db: &Db,
        goes_on: &mut dyn FnMut(&CatchUp) -> bool,
    ) -> Result<BlockId, HistoryError> {
        let mut parted = 0;
        loop {
            let head = db.head();
            let mut writer = self.inner.writer.lock();
            self.inner.check_sound()?;
            let upto = self.inner.runs.read().upto;
            if head.number < writer.list.first.number {
                // The same blocks may come back.
                return Ok(upto);
            }
            if db.block_id(upto.number)? != Some(upto) {
                self.inner.take_back(db, &mut writer)?;
                continue;
            }
            let next = match upto.number < head.number {
                true => db.committed_block(upto.number + 1),
                false => Ok(None),
            };
            let next = next.map_err(|error| match error {
                StateError::NotKept { .. } => HistoryError::Gap {
                    upto,
                    cause: error.to_string(),
                },
                error => error.into(),
            });
            let Some(next) = next? else {
                return Ok(upto);
            };
            if next.meta.parent != upto.hash {
                // The head has moved since.
                parted += 1;
                if parted == PARTED_MAX {
                    let cause = format!("block {} is not its child", next.meta.id);
                    return Err(HistoryError::Gap { upto, cause });
                }
                continue;
            }
            parted = 0;
            self.inner.append(&mut writer, &next)?;
            let is_reader = self.inner.lock.is_none();
            if is_reader && self.inner.runs.read().memory_bytes() > READER_BYTES_MAX {
                let upto = writer.list.upto();
                return Err(HistoryError::Behind { upto, head });
            }
            drop(writer);
            let upto = next.meta.id;
            if !goes_on(&CatchUp { upto, head }) {
                return Ok(upto);
            }
        }
    }

    /// Writes all entries in memory to a file.
    ///
    /// # Errors
    ///
    /// [`HistoryError::ReadOnly`] if it is open for reading alone, and an error of the disk.
    pub fn flush(&self) -> Result<(), HistoryError> {
        let mut writer = self.inner.writer.lock();
        self.inner.flush(&mut writer)
    }

    /// Merges files as long as any are due. Other threads may read and catch up meanwhile.
    ///
    /// # Errors
    ///
    /// As [`FlatHistory::flush`]; the errors of reading the files that are merged.
    pub fn merge(&self) -> Result<(), HistoryError> {
        while self.inner.merge_once()? {}
        Ok(())
    }

    /// Reads all files, and checks every page, the order of entries, and their number.
    ///
    /// # Errors
    ///
    /// The first damage that is found, by file and byte.
    pub fn check(&self) -> Result<CheckedHistory, HistoryError> {
        let runs = self.inner.runs.read().clone();
        let mut checked = CheckedHistory::default();
        for run in &runs.files {
            if let Run::File(run) = &run.run {
                reader::check(run)?;
                run.waypoints()?;
                checked.files += 1;
                checked.entries += run.entries();
            }
        }
        Ok(checked)
    }
}

impl FlatHistory {
    /// Compares the values before block `number` with those that the block log says it replaced.
    /// Returns how many there are, and `None` if the log does not have the block.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Differs`] if a value is another one, and the errors of reading.
    pub fn check_block(&self, db: &Db, number: BlockNumber) -> Result<Option<u64>, HistoryError> {
        let block = match db.committed_block(number) {
            Err(StateError::NotKept { .. }) => return Ok(None),
            block => block?,
        };
        let Some(block) = block.filter(|block| block.meta.id.number > self.blocks().0.number)
        else {
            return Ok(None);
        };
        let view = self.view_at(db, number - 1)?;
        let mut expected = Vec::new();
        entries_of(&block.changes, &block.reverts, |key, value| {
            expected.push((key, value.to_vec()));
        });
        for (key, value) in &expected {
            if view.encoded(key)? != *value {
                return Err(HistoryError::Differs {
                    number,
                    path: key.to_path(),
                });
            }
        }
        Ok(Some(expected.len() as u64))
    }
}

fn lock(disk: &dyn Disk) -> Result<DiskLock, HistoryError> {
    disk.lock(LOCK_NAME).map_err(|error| match error {
        LockError::Held { pid, .. } => StateError::from(StoreError::InUse {
            dir: disk.display_path(DIR),
            pid,
        })
        .into(),
        LockError::Disk(error) => error.into(),
    })
}
