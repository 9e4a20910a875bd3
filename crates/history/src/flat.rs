//! The flat history of a database: its runs, which grow with the chain and are merged.

use crate::{
    HistoryError,
    entry::entries_of,
    list::{DIR, ListedRun, RunList, file_of, run_name},
    memory_run::{MEMORY_RUN_BYTES_MAX, MemoryRun},
    merge::MergedRuns,
    run::{
        Filter,
        reader::{self, RunFile},
        writer::{RunContent, RunWriter},
    },
    runs::{LiveRun, Run, Runs},
    view::HistoryView,
};
use cambium_disk::{Disk, DiskLock, LockError};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{CommittedBlock, Db, StateError, StoreError};
use cambium_store::{Manifest, WritePace};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

const LOCK_NAME: &str = "history/history.lock";
/// Every so many blocks a run has the hash of one, by which a fork is found.
const WAYPOINT_DISTANCE: u64 = 64;
/// Runs are merged when those that are newer than one have this many times its entries together.
const MERGE_RATIO: u64 = 3;
/// Largest sum of the files that are merged, in bytes.
const MERGED_BYTES_MAX: u64 = 1 << 40;
/// Share of the memory for entries of the newest blocks.
const RECENT_DIVISOR: u64 = 2;
/// Memory of the entries that a reader takes from the block log, at most, in bytes.
const READER_BYTES_MAX: usize = 256 << 20;
/// Attempts to open the runs of a list beside a process that merges them.
const OPEN_ATTEMPTS: usize = 8;

/// Options with which a history is opened.
#[derive(Clone, Copy, Debug)]
pub struct HistoryOptions {
    /// Memory for the entries of the newest blocks and for filters, in bytes, half each. Fences take
    /// a further 0.3 % of the files.
    pub memory_bytes: u64,
    /// Bytes that are read or written at once, where runs are written, merged and checked.
    pub buffer_bytes: usize,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            buffer_bytes: 256 << 10,
        }
    }
}

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
    inner: Arc<Inner>,
}

struct Inner {
    disk: Arc<dyn Disk>,
    options: HistoryOptions,
    runs: RwLock<Arc<Runs>>,
    writer: Mutex<Writer>,
    /// Held while files are merged.
    merging: Mutex<()>,
    failure: OnceLock<String>,
    pages_read: Arc<AtomicU64>,
    written: AtomicU64,
    pace: Arc<WritePace>,
    /// `None` if it is open for reading alone. Dropped last.
    lock: Option<DiskLock>,
}

struct Writer {
    list: RunList,
    /// The blocks of the runs in memory.
    ids: Vec<BlockId>,
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
        Self::assemble(disk, options, list, Vec::new(), Some(lock))
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
        let pages_read = Arc::default();
        let files = open_runs(&*disk, &list, &options, &pages_read)?;
        let mut history = Self::assemble(disk, options, list, files, Some(lock))?;
        if let Some(inner) = Arc::get_mut(&mut history.inner) {
            inner.pages_read = pages_read;
        }
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
        let pages_read = Arc::default();
        let (list, files) = loop {
            let list = Self::list(&*disk, db)?;
            match open_runs(&*disk, &list, &options, &pages_read) {
                // The other process has merged it meanwhile.
                Err(HistoryError::Missing { .. }) if attempt < OPEN_ATTEMPTS => attempt += 1,
                files => break (list, files?),
            }
        };
        let mut history = Self::assemble(disk, options, list, files, None)?;
        if let Some(inner) = Arc::get_mut(&mut history.inner) {
            inner.pages_read = pages_read;
        }
        Ok(history)
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
        files: Vec<LiveRun>,
        lock: Option<DiskLock>,
    ) -> Result<Self, HistoryError> {
        let runs = Runs {
            first: list.first,
            upto: list.upto(),
            files,
            memory: Vec::new(),
        };
        Ok(Self {
            inner: Arc::new(Inner {
                disk,
                options,
                runs: RwLock::new(Arc::new(runs)),
                writer: Mutex::new(Writer {
                    list,
                    ids: Vec::new(),
                }),
                merging: Mutex::default(),
                failure: OnceLock::new(),
                pages_read: Arc::default(),
                written: AtomicU64::new(0),
                pace: Arc::default(),
                lock,
            }),
        })
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
    /// [`HistoryError::Gap`] if the log no longer has the next block, and [`HistoryError::Poisoned`]
    /// after a failed write.
    pub fn catch_up(
        &self,
        db: &Db,
        goes_on: &mut dyn FnMut(&CatchUp) -> bool,
    ) -> Result<BlockId, HistoryError> {
        loop {
            let head = db.head();
            let mut writer = self.inner.writer.lock();
            self.inner.check_sound()?;
            let upto = self.inner.runs.read().upto;
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
            // Otherwise the head has moved since.
            if next.meta.parent == upto.hash {
                self.inner.append(&mut writer, &next)?;
                if self.inner.lock.is_none()
                    && self.inner.runs.read().memory_bytes() > READER_BYTES_MAX
                {
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

/// Opens the runs of a list. The newest get their filters first, as far as memory allows.
fn open_runs(
    disk: &dyn Disk,
    list: &RunList,
    options: &HistoryOptions,
    pages_read: &Arc<AtomicU64>,
) -> Result<Vec<LiveRun>, HistoryError> {
    let mut filters_left = options.memory_bytes / RECENT_DIVISOR;
    let mut runs = Vec::with_capacity(list.runs.len());
    for listed in list.runs.iter().rev() {
        let run = open_run(disk, listed, options, filters_left, pages_read)?;
        filters_left = filters_left.saturating_sub(run.memory_bytes());
        runs.push(LiveRun {
            run: Run::File(run),
            last: listed.last.number,
        });
    }
    runs.reverse();
    Ok(runs)
}

fn open_run(
    disk: &dyn Disk,
    listed: &ListedRun,
    options: &HistoryOptions,
    filter_bytes_max: u64,
    pages_read: &Arc<AtomicU64>,
) -> Result<Arc<RunFile>, HistoryError> {
    let name = run_name(listed.file);
    let pages_read = pages_read.clone();
    let run = RunFile::open(
        disk,
        &name,
        listed.identity,
        filter_bytes_max,
        options.buffer_bytes,
        pages_read,
    )?;
    let blocks = run.blocks();
    match *blocks.start() == listed.first && *blocks.end() >= listed.last.number {
        true => Ok(Arc::new(run)),
        false => Err(HistoryError::Damaged {
            file: disk.display_path(&name),
            offset: 0,
            what: "it has not the blocks that the list of runs says".to_owned(),
        }),
    }
}

impl Inner {
    fn check_sound(&self) -> Result<(), HistoryError> {
        match self.failure.get() {
            None => Ok(()),
            Some(cause) => Err(HistoryError::Poisoned {
                cause: cause.clone(),
            }),
        }
    }

    /// Runs a step that changes files. After a failure there are no more.
    fn guard<T>(&self, step: impl FnOnce() -> Result<T, HistoryError>) -> Result<T, HistoryError> {
        if self.lock.is_none() {
            return Err(HistoryError::ReadOnly);
        }
        self.check_sound()?;
        step().inspect_err(|error| _ = self.failure.set(error.to_string()))
    }

    /// Memory of entries at which they go to a file, in bytes.
    fn recent_bytes_max(&self) -> usize {
        let bytes = self.options.memory_bytes / RECENT_DIVISOR;
        bytes.min(MEMORY_RUN_BYTES_MAX as u64) as usize
    }

    fn append(&self, writer: &mut Writer, block: &CommittedBlock) -> Result<(), HistoryError> {
        let id = block.meta.id;
        let run = MemoryRun::of_block(id.number, &block.changes, &block.reverts);
        let before = self.runs.read().clone();
        let mut memory = before.memory.clone();
        memory.push(Arc::new(run));
        // So each is larger than all newer ones together, and there are few.
        while let [.., older, newer] = &memory[..]
            && older.len() <= newer.len()
            && older.bytes() + newer.bytes() <= MEMORY_RUN_BYTES_MAX
        {
            let merged = MemoryRun::merged(older, newer);
            memory.truncate(memory.len() - 2);
            memory.push(Arc::new(merged));
        }
        writer.ids.push(id);
        let runs = Runs {
            first: before.first,
            upto: id,
            files: before.files.clone(),
            memory,
        };
        let is_full = runs.memory_bytes() >= self.recent_bytes_max();
        *self.runs.write() = Arc::new(runs);
        match is_full && self.lock.is_some() {
            true => self.flush(writer),
            false => Ok(()),
        }
    }

    fn flush(&self, writer: &mut Writer) -> Result<(), HistoryError> {
        let before = self.runs.read().clone();
        let (Some(oldest), Some(newest)) = (before.memory.first(), before.memory.last()) else {
            return Ok(());
        };
        let blocks = *oldest.blocks.start()..=*newest.blocks.end();
        let listed = ListedRun {
            file: writer.list.next_file,
            first: *blocks.start(),
            last: before.upto,
            identity: Manifest::new_salt(),
        };
        let recent: Vec<_> = before.all().skip(before.files.len()).collect();
        let waypoints: Vec<_> = writer.ids.iter().copied().filter(is_waypoint).collect();
        self.guard(|| {
            writer.list.next_file += 1;
            let run = self.write_run(&listed, &recent, &waypoints)?;
            let mut list = writer.list.clone();
            list.runs.push(listed);
            list.write(&*self.disk)?;
            writer.list = list;
            writer.ids.clear();
            let mut files = before.files.clone();
            files.push(run);
            *self.runs.write() = Arc::new(Runs {
                first: before.first,
                upto: before.upto,
                files,
                memory: Vec::new(),
            });
            Ok(())
        })
    }

    /// Writes the file of a run with the entries of `runs`.
    fn write_run(
        &self,
        listed: &ListedRun,
        runs: &[LiveRun],
        waypoints: &[BlockId],
    ) -> Result<LiveRun, HistoryError> {
        let entries = runs.iter().map(|run| match &run.run {
            Run::Memory(run) => run.len() as u64,
            Run::File(run) => run.entries(),
        });
        let entries = entries.sum();
        let filter_bytes_max = self.options.memory_bytes / RECENT_DIVISOR;
        let name = run_name(listed.file);
        let mut writer = RunWriter::create(
            &*self.disk,
            &name,
            RunContent {
                identity: listed.identity,
                blocks: listed.first..=listed.last.number,
                entries,
                has_filter: Filter::bytes_for(entries) <= filter_bytes_max,
            },
            self.options.buffer_bytes,
            self.pace.clone(),
        )?;
        let mut merged = MergedRuns::new(runs, &[])?;
        while let Some(entry) = merged.entry() {
            writer.push(&entry)?;
            merged.advance()?;
        }
        writer.finish(waypoints)?;
        // Filters of other runs leave this much.
        let others: u64 = self.runs.read().files.iter().map(memory_of).sum();
        let replaced: u64 = runs.iter().map(memory_of).sum();
        let filter_bytes_max = (filter_bytes_max + replaced).saturating_sub(others);
        let run = open_run(
            &*self.disk,
            listed,
            &self.options,
            filter_bytes_max,
            &self.pages_read,
        )?;
        self.written.fetch_add(run.file_bytes(), Ordering::Relaxed);
        Ok(LiveRun {
            run: Run::File(run),
            last: listed.last.number,
        })
    }

    /// Takes back the blocks above the newest one that is still canonical.
    fn take_back(&self, db: &Db, writer: &mut Writer) -> Result<(), HistoryError> {
        let fork = self.newest_canonical(db, writer)?;
        let before = self.runs.read().clone();
        let is_above = |first: BlockNumber| first > fork.number;
        let mut list = writer.list.clone();
        list.runs.retain(|run| !is_above(run.first));
        if let Some(run) = list.runs.last_mut()
            && run.last.number > fork.number
        {
            run.last = fork;
        }
        let mut files = before.files[..list.runs.len()].to_vec();
        if let (Some(file), Some(run)) = (files.last_mut(), list.runs.last()) {
            file.last = run.last.number;
        }
        let memory = before
            .memory
            .iter()
            .filter_map(|run| match *run.blocks.end() > fork.number {
                true => run.up_to(fork.number).map(Arc::new),
                false => Some(run.clone()),
            });
        let runs = Runs {
            first: before.first,
            upto: fork,
            files,
            memory: memory.collect(),
        };
        if list != writer.list && self.lock.is_some() {
            self.guard(|| list.write(&*self.disk))?;
        }
        let removed: Vec<_> = writer.list.runs[list.runs.len()..].to_vec();
        writer.list = list;
        writer.ids.retain(|id| id.number <= fork.number);
        *self.runs.write() = Arc::new(runs);
        self.remove_files(&removed)
    }

    /// The newest block of the history that is canonical, as far as hashes are known.
    fn newest_canonical(&self, db: &Db, writer: &Writer) -> Result<BlockId, HistoryError> {
        let is_canonical = |id: &BlockId| -> Result<bool, HistoryError> {
            Ok(db.block_id(id.number)? == Some(*id))
        };
        for id in writer.ids.iter().rev() {
            if is_canonical(id)? {
                return Ok(*id);
            }
        }
        let runs = self.runs.read().clone();
        for (listed, live) in writer.list.runs.iter().zip(&runs.files).rev() {
            if is_canonical(&listed.last)? {
                return Ok(listed.last);
            }
            let Run::File(run) = &live.run else { continue };
            for id in run.waypoints()?.iter().rev() {
                if id.number < listed.last.number && is_canonical(id)? {
                    return Ok(*id);
                }
            }
        }
        let first = writer.list.first;
        match is_canonical(&first)? {
            true => Ok(first),
            // Nothing of it is left.
            false => Err(StateError::UnknownBlock(first.hash).into()),
        }
    }

    fn remove_files(&self, runs: &[ListedRun]) -> Result<(), HistoryError> {
        if self.lock.is_none() {
            return Ok(());
        }
        for run in runs {
            self.disk.remove(&run_name(run.file))?;
        }
        Ok(())
    }

    /// Merges the files that are due. False if none are.
    fn merge_once(&self) -> Result<bool, HistoryError> {
        let _merging = self.merging.lock();
        let Some((merged, replaced, inputs)) = self.plan_merge()? else {
            return Ok(false);
        };
        let mut waypoints = Vec::new();
        for (input, listed) in inputs.iter().zip(&replaced) {
            if let Run::File(run) = &input.run {
                let live = run.waypoints()?.into_iter();
                waypoints.extend(live.filter(|id| id.number <= listed.last.number));
            }
        }
        let run = self.guard(|| self.write_run(&merged, &inputs, &waypoints))?;
        let mut writer = self.writer.lock();
        let at = writer.list.runs.iter().position(|run| *run == replaced[0]);
        let at = at.filter(|at| writer.list.runs[*at..].starts_with(&replaced));
        let Some(at) = at else {
            // The head has moved below their end meanwhile.
            drop(writer);
            self.remove_files(&[merged])?;
            return Ok(true);
        };
        let mut list = writer.list.clone();
        list.runs.splice(at..at + replaced.len(), [merged]);
        self.guard(|| list.write(&*self.disk))?;
        writer.list = list;
        let before = self.runs.read().clone();
        let mut files = before.files.clone();
        files.splice(at..at + replaced.len(), [run]);
        *self.runs.write() = Arc::new(Runs {
            first: before.first,
            upto: before.upto,
            files,
            memory: before.memory.clone(),
        });
        drop(writer);
        self.remove_files(&replaced)?;
        Ok(true)
    }

    /// The runs to merge, as they are listed and open, and what they become.
    fn plan_merge(&self) -> Result<Option<MergePlan>, HistoryError> {
        if self.lock.is_none() {
            return Err(HistoryError::ReadOnly);
        }
        let mut writer = self.writer.lock();
        self.check_sound()?;
        let runs = self.runs.read().clone();
        let size = |run: &LiveRun| match &run.run {
            Run::File(run) => (run.entries(), run.file_bytes()),
            Run::Memory(_) => (0, 0),
        };
        let mut from = None;
        let (mut newer, mut bytes) = (0, 0);
        for (at, run) in runs.files.iter().enumerate().rev() {
            let (entries, file_bytes) = size(run);
            bytes += file_bytes;
            if bytes > MERGED_BYTES_MAX {
                break;
            }
            if newer > 0 && newer >= MERGE_RATIO * entries {
                from = Some(at);
            }
            newer += entries;
        }
        let Some(from) = from else { return Ok(None) };
        let replaced = writer.list.runs[from..].to_vec();
        let (Some(oldest), Some(newest)) = (replaced.first(), replaced.last()) else {
            return Ok(None);
        };
        let merged = ListedRun {
            file: writer.list.next_file,
            first: oldest.first,
            last: newest.last,
            identity: Manifest::new_salt(),
        };
        writer.list.next_file += 1;
        Ok(Some((merged, replaced, runs.files[from..].to_vec())))
    }
}

/// The run to be, the runs that it replaces as they are listed, and the same as they are open.
type MergePlan = (ListedRun, Vec<ListedRun>, Vec<LiveRun>);

fn memory_of(run: &LiveRun) -> u64 {
    match &run.run {
        Run::File(run) => run.memory_bytes(),
        Run::Memory(_) => 0,
    }
}

const fn is_waypoint(id: &BlockId) -> bool {
    id.number.is_multiple_of(WAYPOINT_DISTANCE)
}
