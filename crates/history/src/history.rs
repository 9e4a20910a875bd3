//! The flat history of a database.

use crate::{
    HistoryError, WholeNodes,
    entry::entries_of,
    extend::READER_BYTES_MAX,
    keeper::{HistoryOptions, Keeper, OpenedRuns, open_runs},
    list::{DIR, RUN_LIST, RunList, file_of},
    run::reader,
    runs::Run,
    state_at::{Present, StateAt},
};
use cambium_disk::{Disk, DiskLock};
use cambium_primitives::{BlockId, BlockNumber, Path};
use cambium_runs::while_missing;
use cambium_state::{CommittedBlock, Db, LeafKind, StateError};
use cambium_trie::ProofTargets;
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

/// Attempts to find the child of the newest block while the head moves.
const PARTED_MAX: usize = 1_000;
/// Attempts to open the runs of a list beside a process that merges them.
const OPEN_ATTEMPTS: usize = 8;

/// How far a history has got.
#[derive(Clone, Copy, Debug)]
pub struct CatchUp {
    /// The newest block that it has. If it has nodes, all blocks up to the head count at once, when the oldest
    /// of them has been made.
    pub upto: BlockId,
    /// The block that was read, or is about to be.
    pub at: BlockNumber,
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
    /// Number of runs in files above blocks that are not in the history yet. They count when these have
    /// been added.
    pub waiting_files: u64,
    /// Number of runs in memory.
    pub memory_runs: u64,
    /// Memory of these runs, in bytes.
    pub recent_bytes: u64,
    /// Memory of fences and filters, in bytes.
    pub index_bytes: u64,
    /// Memory of pages that look-ups have read, in bytes.
    pub cache_bytes: u64,
    /// Device reads so far, to look up single keys.
    pub reads: u64,
    /// Times that a look-up waited for them: once for those that were made at once.
    pub waits: u64,
    /// Bytes of files written so far, merges included.
    pub written_bytes: u64,
}

/// Counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedHistory {
    /// Number of files.
    pub files: u64,
    /// Number of entries.
    pub entries: u64,
}

/// The flat history of a database. Clones are handles of the same history.
#[derive(Clone)]
pub struct History {
    pub(crate) inner: Arc<Keeper>,
}

impl History {
    /// Whether a database has a history.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Disk`] if the disk fails, and [`HistoryError::Missing`] if there are files, and the list of them
    /// is lost.
    pub fn exists(disk: &dyn Disk) -> Result<bool, HistoryError> {
        RunList::exists(disk)
    }

    /// Begins the history of a database, whose disk is `disk`: the oldest state that it will have
    /// is that after block `first`. [`History::catch_up`] adds the blocks above, and
    /// [`History::extend_down`] those below. With `nodes` it proves old states, too.
    ///
    /// # Errors
    ///
    /// [`HistoryError::NoAccounts`] for a key-value database, [`HistoryError::Exists`] if there is one, an error if block `first` is not canonical, and if
    /// another process has the history.
    pub fn create(
        disk: Arc<dyn Disk>,
        db: &Db,
        first: BlockNumber,
        nodes: Option<WholeNodes>,
        options: HistoryOptions,
    ) -> Result<Self, HistoryError> {
        if db.options().leaves == LeafKind::Entries {
            return Err(HistoryError::NoAccounts);
        }
        if db.merge_interval().is_some() {
            return Err(StateError::NotUnderLayered("a history").into());
        }
        if db.kept_storage().is_some() {
            return Err(StateError::NotOnPartial("a history").into());
        }
        let head = db.head();
        let first = db.block_id(first)?.ok_or(StateError::NoSuchBlock {
            number: first,
            head,
        })?;
        disk.create_dir(DIR)?;
        disk.sync_dir("")?;
        let lock = RUN_LIST.lock(&*disk)?;
        if let Some(list) = RunList::read(&*disk)? {
            return Err(HistoryError::Exists {
                dir: disk.display_path(""),
                first: list.first.number,
            });
        }
        let list = RunList {
            genesis: db.genesis().hash,
            first,
            nodes,
            keep_blocks: options.keep_blocks,
            next_file: 1,
            runs: Vec::new(),
            waiting: Vec::new(),
        };
        list.write(&*disk)?;
        let files = OpenedRuns::none(&disk, &options);
        Ok(Self::assemble(disk, options, list, files, Some(lock)))
    }

    /// Opens the history of a database for writing, by one process at a time.
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
        let lock = RUN_LIST.lock(&*disk)?;
        let list = Self::list(&*disk, db)?;
        let files = open_runs(&disk, &list, &options)?;
        let history = Self::assemble(disk, options, list, files, Some(lock));
        history.remove_leftovers()?;
        history.inner.remember_options()?;
        Ok(history)
    }

    /// Opens the history of a database for reading alone, beside a process that may write to it.
    /// Blocks above its files are read from the block log by [`History::catch_up`], and kept in
    /// memory.
    ///
    /// # Errors
    ///
    /// As [`History::open`].
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        db: &Db,
        options: HistoryOptions,
    ) -> Result<Self, HistoryError> {
        Self::no_history(&*disk)?;
        // Another process may merge a run after its list was read.
        let is_missing = |error: &HistoryError| matches!(error, HistoryError::Missing { .. });
        let (list, files) = while_missing(OPEN_ATTEMPTS, is_missing, || {
            let list = Self::list(&*disk, db)?;
            let files = open_runs(&disk, &list, &options)?;
            Ok((list, files))
        })?;
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
        list.check_genesis(disk, db.genesis().hash)?;
        Ok(list)
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
        let listed: BTreeSet<u64> = writer.list.files().collect();
        let is_leftover = |name: &str| file_of(name).is_some_and(|file| !listed.contains(&file));
        Ok(RUN_LIST.remove_leftovers(&*self.inner.disk, is_leftover)?)
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

    /// Sizes and counters.
    pub fn stats(&self) -> HistoryStats {
        let runs = self.inner.runs.read().clone();
        let mut stats = HistoryStats {
            index_bytes: self.inner.reads.index_bytes(),
            memory_runs: runs.memory.len() as u64,
            recent_bytes: runs.memory_bytes() as u64,
            reads: self.inner.reads.reads(),
            waits: self.inner.reads.waits(),
            cache_bytes: self.inner.reads.cache_bytes(),
            written_bytes: self.inner.written.load(Ordering::Relaxed),
            waiting_files: self.inner.writer.lock().list.waiting.len() as u64,
            ..HistoryStats::default()
        };
        for run in &runs.files {
            if let Run::File(run) = &run.run {
                stats.files += 1;
                stats.file_bytes += run.file_bytes();
                stats.file_entries += run.entries();
            }
        }
        stats
    }

    /// The state after the canonical block at `number`. Blocks above the history's newest one are
    /// left to the database.
    ///
    /// # Errors
    ///
    /// [`HistoryError::NotKept`] below its first block, [`StateError::NoSuchBlock`] above the head, [`HistoryError::NotYet`] if
    /// it is too far behind the snapshot, and the errors of [`History::catch_up`].
    pub fn state_at(&self, db: &Db, number: BlockNumber) -> Result<StateAt, HistoryError> {
        loop {
            let head = db.head();
            let runs = self.inner.runs.read().clone();
            if number < runs.first.number {
                let first = runs.first.number;
                return Err(HistoryError::NotKept { number, first });
            }
            if number > head.number {
                return Err(StateError::NoSuchBlock { number, head }.into());
            }
            // The snapshot may be far ahead of the history.
            let upto = runs.upto;
            let too_far = |error| match error {
                StateError::TooFar { .. } => HistoryError::NotYet { number, upto },
                error => error.into(),
            };
            if number >= upto.number {
                return Ok(db.view_at(number).map_err(too_far)?.into());
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
            let present = self.inner.present(db, upto).map_err(|error| match error {
                HistoryError::State(error) => too_far(error),
                error => error,
            })?;
            if present.view.block_hash(number)? == Some(id.hash) {
                return Ok(StateAt::new(present, runs, id));
            }
        }
    }

    /// Adds the blocks up to the head, which it reads from the block log, and takes back those that
    /// are not canonical any more. Calls `goes_on` after each block, and stops if it returns false: it
    /// must not ask for old states, or catch up itself. Returns the newest block then. If the history is
    /// open for writing, its entries go to a file whenever they fill their memory. With nodes, blocks are made
    /// from the head backwards; after an interruption the next call goes on below the files written before.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Gap`] if the log no longer has the next block, [`HistoryError::Abandoned`] if the
    /// chain has left the history's first block for another, an error of the disk if a file can't be
    /// written, after which the next call tries again, and [`HistoryError::Poisoned`] if the list of
    /// files could not be written before.
    pub fn catch_up(
        &self,
        db: &Db,
        goes_on: &mut dyn FnMut(&CatchUp) -> bool,
    ) -> Result<BlockId, HistoryError> {
        self.advance(db, &|| db.head(), rayon::current_num_threads(), goes_on)
    }

    /// As [`History::catch_up`], but the nodes of blocks whose layers are in memory are left for later:
    /// the database itself proves these states.
    pub(crate) fn follow(
        &self,
        db: &Db,
        goes_on: &mut dyn FnMut(&CatchUp) -> bool,
    ) -> Result<BlockId, HistoryError> {
        match self.has_nodes() {
            // Commits need the other threads.
            true => self.advance(db, &|| db.settled_block(), 1, goes_on),
            false => self.catch_up(db, goes_on),
        }
    }

    fn advance(
        &self,
        db: &Db,
        goal: &dyn Fn() -> BlockId,
        threads: usize,
        goes_on: &mut dyn FnMut(&CatchUp) -> bool,
    ) -> Result<BlockId, HistoryError> {
        let mut parted = 0;
        loop {
            let head = goal();
            let growing = self.inner.growing_up.lock();
            self.inner.check_sound()?;
            let (first, upto) = self.blocks();
            if head.number < first.number {
                // The same blocks may come back.
                return Ok(upto);
            }
            if db.block_id(upto.number)? != Some(upto) {
                self.inner.take_back(db)?;
                continue;
            }
            if self.inner.nodes.is_some() {
                if upto.number >= head.number || db.block_id(head.number)? != Some(head) {
                    return Ok(upto);
                }
                // The oldest block comes last. It is checked first, so that a gap is reported before any work.
                if !self.inner.has_waiting(upto.number + 1) {
                    next_block(db, upto, head)?;
                }
                let mut is_wanted = true;
                let mut goes_on = |at| {
                    is_wanted = goes_on(&CatchUp { upto, at, head });
                    is_wanted
                };
                if self.inner.extend_up(db, head, threads, &mut goes_on)? {
                    continue;
                }
                parted += 1;
                match is_wanted && parted < PARTED_MAX {
                    true => continue,
                    false => return Ok(upto),
                }
            }
            let Some(next) = next_block(db, upto, head)? else {
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
            self.inner.append(&next)?;
            drop(growing);
            let is_reader = !self.inner.folder.is_writer();
            if is_reader && self.inner.runs.read().memory_bytes() > READER_BYTES_MAX {
                return Err(HistoryError::Behind { upto, head });
            }
            let upto = next.meta.id;
            if !goes_on(&CatchUp {
                upto,
                at: upto.number,
                head,
            }) {
                return Ok(upto);
            }
        }
    }

    /// Begins the history at an older block: adds the blocks down to that above `to`, which it reads
    /// from the block log, but none that [`HistoryOptions::keep_blocks`] does not keep. Calls `goes_on` before each
    /// block, and stops if it returns false: it must not extend the history itself. Earlier blocks stay, and the next
    /// call continues there. Returns the oldest block whose state can be read then.
    ///
    /// Other threads may catch up, merge and read meanwhile.
    ///
    /// # Errors
    ///
    /// [`HistoryError::LogEnds`] if the log no longer has a block, an error if the head has moved since
    /// the history caught up with it, and the errors of [`History::catch_up`].
    pub fn extend_down(
        &self,
        db: &Db,
        to: BlockNumber,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<BlockId, HistoryError> {
        self.inner.extend_down(db, to, goes_on)?;
        Ok(self.blocks().0)
    }

    /// See [`Keeper::hold_present`]. A history without nodes reads so little of that state that it is
    /// made anew.
    pub(crate) fn hold_present(
        &self,
        db: &Db,
        held: &mut Option<Arc<Present>>,
    ) -> Result<(), HistoryError> {
        match self.has_nodes() {
            true => self.inner.hold_present(db, held),
            false => Ok(()),
        }
    }

    /// Whether it proves old states.
    pub fn has_nodes(&self) -> bool {
        self.inner.runs.read().has_nodes
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

    /// Merges files as long as any are due, and removes those whose blocks are not kept any more. Other
    /// threads may read and catch up meanwhile.
    ///
    /// # Errors
    ///
    /// As [`History::flush`]; the errors of reading the files that are merged.
    pub fn merge(&self) -> Result<(), HistoryError> {
        self.inner.prune()?;
        self.inner.merge_all()
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

impl History {
    /// Compares the values before block `number` with the reverts of the block in the block log. Returns their number,
    /// and `None` if the log does not have the block, or can't read it, which [`Db::check`] reports.
    ///
    /// # Errors
    ///
    /// [`HistoryError::Differs`] if a value is another one, and the errors of reading.
    pub fn check_block(&self, db: &Db, number: BlockNumber) -> Result<Option<u64>, HistoryError> {
        let block = db.committed_block(number).or_else(unless_gone)?;
        let Some(block) = block.filter(|block| block.meta.id.number > self.blocks().0.number)
        else {
            return Ok(None);
        };
        let view = self.state_at(db, number - 1)?;
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

impl History {
    /// Proves a part of the state after block `number`: the path of the block's hash, and the keys that the next block
    /// changes, if the log can read it. Every node is hashed, and the root is compared with the block's header, if the
    /// log can read it. False if the history has no nodes.
    ///
    /// # Errors
    ///
    /// [`HistoryError::BrokenNode`] if a node differs from the reference in its parent, or the root from that in the
    /// header, and the errors of reading.
    pub fn check_nodes(&self, db: &Db, number: BlockNumber) -> Result<bool, HistoryError> {
        if !self.has_nodes() {
            return Ok(false);
        }
        let view = self.state_at(db, number)?;
        let next = db.committed_block(number + 1).or_else(unless_gone)?;
        let mut keys = ProofTargets::new(vec![(view.block().hash, Vec::new())]);
        if let Some(next) = next {
            keys = keys.and(&ProofTargets::of_changes(next.reverts.accounts()));
        }
        let root = view.extract(&keys)?.state_root();
        let meta = db.block(number).or_else(unless_gone)?;
        match meta.is_none_or(|meta| Some(meta.state_root) == root) {
            true => Ok(true),
            false => Err(HistoryError::BrokenNode {
                number: number + 1,
                path: Path::EMPTY,
            }),
        }
    }
}

/// The canonical block above `upto`; `None` if that is the head.
fn next_block(
    db: &Db,
    upto: BlockId,
    head: BlockId,
) -> Result<Option<CommittedBlock>, HistoryError> {
    if upto.number >= head.number {
        return Ok(None);
    }
    db.committed_block(upto.number + 1)
        .map_err(|error| match error.has_left_log() {
            true => HistoryError::Gap {
                upto,
                cause: error.to_string(),
            },
            false => error.into(),
        })
}

/// Returns `None` if the log no longer has the block, or has lost it.
fn unless_gone<T>(error: StateError) -> Result<Option<T>, StateError> {
    match error {
        StateError::NotKept { .. } | StateError::Damaged { .. } => Ok(None),
        StateError::Store(error) if error.is_corruption() => Ok(None),
        error => Err(error),
    }
}
