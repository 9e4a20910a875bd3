//! Keeping the runs of a history: blocks are added, taken back, and written to files.
//!
//! Four locks, taken in this order: one of two for threads that extend the history, above or below; that of merging;
//! that of the list. The first three are held while files are read and written. The last one is held no longer than it
//! takes to replace the list, to write the entries in memory to a file, or to find the newest canonical block by the
//! waypoints of files.

use crate::{
    HistoryError,
    list::{RUN_LIST, RunList, run_name},
    memory_run::{MEMORY_RUN_BYTES_MAX, MemoryRun},
    merge::MergedRuns,
    node::WholeNodes,
    run::{
        PageReads,
        reader::RunFile,
        writer::{RunContent, RunWriter},
    },
    runs::{LiveRun, Run, Runs},
    state_at::Present,
};
use cambium_disk::{Disk, DiskLock, WritePace};
use cambium_primitives::BlockId;
use cambium_runs::{Folder, KeyFilter, ListedRun};
use cambium_state::{CommittedBlock, Db, Followers, follower_bytes};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::BTreeSet,
    num::NonZeroU64,
    ops::RangeInclusive,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Distance in blocks between the hashes in a run, by which a fork is found.
pub(crate) const WAYPOINT_DISTANCE: u64 = 64;
/// Least and largest number of bytes that are read or written at once.
const BUFFER_BYTES: RangeInclusive<usize> = 4 << 10..=64 << 20;
/// Share of the memory for entries of the newest blocks.
const RECENT_DIVISOR: u64 = 2;
/// A history of limited length has runs of at most this part of it: blocks that are no longer kept are removed in whole
/// runs.
const KEPT_RUNS: u64 = 4;
/// Blocks that a run may have however few are kept: each file takes syncs.
const RUN_BLOCKS_MIN: u64 = 32;

/// Options with which a history is opened.
#[derive(Clone, Copy, Debug)]
pub struct HistoryOptions {
    /// Memory for the entries of the newest blocks and for filters, in bytes, half each. Fences take
    /// a further 0.3 % of the files.
    pub memory_bytes: u64,
    /// Memory of the trie from which nodes are made, in bytes. At this size the trie of a larger span of blocks is
    /// begun anew, by reading the runs made so far.
    pub trie_bytes: u64,
    /// Memory for pages that look-ups have read, in bytes.
    pub cache_bytes: u64,
    /// Bytes that are read or written at once, where runs are written, merged and checked. Less than a
    /// page is a page, and more than 64 MiB are 64 MiB.
    pub buffer_bytes: usize,
    /// Blocks below the newest one whose states can be read, at least; older ones leave by and by. The
    /// history remembers it. `None`: as before; all, if it is new.
    pub keep_blocks: Option<NonZeroU64>,
}

impl Default for HistoryOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            trie_bytes: 256 << 20,
            cache_bytes: 64 << 20,
            buffer_bytes: 256 << 10,
            keep_blocks: None,
        }
    }
}

impl HistoryOptions {
    /// Options for a history beside a database, where both have a budget of `memory_bytes` bytes. The history
    /// takes [`HistoryOptions::budget_bytes`] of it.
    pub fn beside(memory_bytes: u64) -> Self {
        let share = follower_bytes(memory_bytes);
        Self {
            memory_bytes: share,
            trie_bytes: share,
            cache_bytes: share / 4,
            ..Self::default()
        }
    }

    /// Memory of the history in all, without fences, in bytes.
    pub const fn budget_bytes(&self) -> u64 {
        let of_runs = self.memory_bytes.saturating_add(self.trie_bytes);
        of_runs.saturating_add(self.cache_bytes)
    }
}

/// Keeps the runs of a history: adds to them, takes back, and merges.
pub(crate) struct Keeper {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: HistoryOptions,
    pub(crate) runs: RwLock<Arc<Runs>>,
    /// Held while blocks are added above, or taken back.
    pub(crate) growing_up: Mutex<()>,
    /// Held while blocks are added below.
    pub(crate) growing_down: Mutex<()>,
    /// Held while files are merged.
    pub(crate) merging: Mutex<()>,
    pub(crate) writer: Mutex<Writer>,
    /// Which nodes it has, if any.
    pub(crate) nodes: Option<WholeNodes>,
    /// Identities of waiting runs from an earlier process, whose pages have not been read since.
    pub(crate) unread_waiting: Mutex<BTreeSet<u64>>,
    pub(crate) reads: Arc<PageReads>,
    pub(crate) written: AtomicU64,
    pub(crate) pace: Arc<WritePace>,
    pub(crate) followers: Mutex<Followers>,
    /// The present state that views of old blocks share, while there are any.
    pub(crate) present: Mutex<Weak<Present>>,
    /// Dropped last, with the lock of a writer.
    pub(crate) folder: Folder,
}

/// What only the writer changes: the list of files, and the blocks of the runs in memory.
pub(crate) struct Writer {
    pub(crate) list: RunList,
    /// The blocks of the runs in memory.
    pub(crate) ids: Vec<BlockId>,
}

/// Runs that are open, and what they read with.
pub(crate) struct OpenedRuns {
    pub(crate) runs: Vec<LiveRun>,
    reads: Arc<PageReads>,
}

impl OpenedRuns {
    /// No runs.
    pub(crate) fn none(disk: &Arc<dyn Disk>, options: &HistoryOptions) -> Self {
        Self {
            runs: Vec::new(),
            reads: Arc::new(PageReads::new(disk.clone(), options.cache_bytes)),
        }
    }
}

/// Opens the runs of a list. Loads filters within the memory limit, those of the newest runs first.
pub(crate) fn open_runs(
    disk: &Arc<dyn Disk>,
    list: &RunList,
    options: &HistoryOptions,
) -> Result<OpenedRuns, HistoryError> {
    let OpenedRuns { mut runs, reads } = OpenedRuns::none(disk, options);
    let mut filters_left = options.memory_bytes / RECENT_DIVISOR;
    for listed in list.runs.iter().rev() {
        let run = open_run(&reads, listed, list.nodes, options, filters_left)?;
        filters_left = filters_left.saturating_sub(run.memory_bytes());
        runs.push(LiveRun {
            run: Run::File(run),
            last: listed.last.number,
        });
    }
    runs.reverse();
    Ok(OpenedRuns { runs, reads })
}

fn open_run(
    reads: &Arc<PageReads>,
    listed: &ListedRun,
    nodes: Option<WholeNodes>,
    options: &HistoryOptions,
    filter_bytes_max: u64,
) -> Result<Arc<RunFile>, HistoryError> {
    let name = run_name(listed.file);
    let run = RunFile::open(
        reads.clone(),
        &name,
        listed.identity,
        filter_bytes_max,
        buffer_bytes(options),
    )?;
    let damaged = |what: &str| {
        Err(HistoryError::Damaged {
            file: reads.disk.display_path(&name),
            offset: 0,
            what: what.to_owned(),
        })
    };
    let blocks = run.blocks();
    if *blocks.start() != listed.first || *blocks.end() < listed.last.number {
        return damaged("it has not the blocks that the list of runs says");
    }
    if run.nodes() != nodes {
        return damaged("it has not the nodes that the list of runs says");
    }
    Ok(Arc::new(run))
}

fn buffer_bytes(options: &HistoryOptions) -> usize {
    let (least, largest) = (*BUFFER_BYTES.start(), *BUFFER_BYTES.end());
    options.buffer_bytes.clamp(least, largest)
}

impl Keeper {
    /// Keeps the runs of a list, which are open.
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        options: HistoryOptions,
        list: RunList,
        files: OpenedRuns,
        lock: Option<DiskLock>,
    ) -> Self {
        let runs = Runs {
            first: list.first,
            upto: list.upto(),
            has_nodes: list.nodes.is_some(),
            files: files.runs,
            memory: Vec::new(),
        };
        Self {
            options,
            runs: RwLock::new(Arc::new(runs)),
            growing_up: Mutex::default(),
            growing_down: Mutex::default(),
            merging: Mutex::default(),
            nodes: list.nodes,
            unread_waiting: Mutex::new(list.waiting.iter().map(|run| run.identity).collect()),
            writer: Mutex::new(Writer {
                list,
                ids: Vec::new(),
            }),
            reads: files.reads,
            written: AtomicU64::new(0),
            pace: Arc::default(),
            followers: Mutex::default(),
            present: Mutex::default(),
            folder: Folder::new(disk.clone(), &RUN_LIST, lock),
            disk,
        }
    }

    /// Remembers how many blocks are kept, if the options say it.
    pub(crate) fn remember_options(&self) -> Result<(), HistoryError> {
        let mut writer = self.writer.lock();
        let keep_blocks = self.options.keep_blocks.or(writer.list.keep_blocks);
        if keep_blocks == writer.list.keep_blocks {
            return Ok(());
        }
        let list = RunList {
            keep_blocks,
            ..writer.list.clone()
        };
        self.replace_list(&mut writer, list)
    }

    pub(crate) fn check_sound(&self) -> Result<(), HistoryError> {
        Ok(self.folder.check_sound()?)
    }

    /// Whether files may be written.
    pub(crate) fn check_writable(&self) -> Result<(), HistoryError> {
        Ok(self.folder.check_writable()?)
    }

    /// Replaces the list of runs. After a failure it is unknown which list a crash would leave, so later writes fail,
    /// and no file is removed.
    pub(crate) fn replace_list(
        &self,
        writer: &mut Writer,
        list: RunList,
    ) -> Result<(), HistoryError> {
        self.check_writable()?;
        list.write(&*self.disk)
            .inspect_err(|error| self.folder.poison(error))?;
        writer.list = list;
        Ok(())
    }

    /// Memory of entries at which they go to a file, in bytes.
    pub(crate) fn recent_bytes_max(&self) -> usize {
        let bytes = self.options.memory_bytes / RECENT_DIVISOR;
        bytes.min(MEMORY_RUN_BYTES_MAX as u64) as usize
    }

    /// Adds the block above the newest one.
    pub(crate) fn append(&self, block: &CommittedBlock) -> Result<(), HistoryError> {
        let id = block.meta.id;
        let run = MemoryRun::of_block(id.number, &block.changes, &block.reverts);
        let mut writer = self.writer.lock();
        // Entries of an earlier, failed write.
        if self.is_full(&writer) {
            self.flush(&mut writer)?;
        }
        writer.ids.push(id);
        self.add_recent(&mut writer, id, Arc::new(run))
    }

    /// Adds a run in memory, whose newest block is `upto`. The writer has its blocks already.
    pub(crate) fn add_recent(
        &self,
        writer: &mut Writer,
        upto: BlockId,
        run: Arc<MemoryRun>,
    ) -> Result<(), HistoryError> {
        let before = self.runs.read().clone();
        let mut memory = before.memory.clone();
        memory.push(run);
        // So each is larger than all newer ones together, and there are few.
        while let [.., older, newer] = &memory[..]
            && older.len() <= newer.len()
            && older.bytes() + newer.bytes() <= MEMORY_RUN_BYTES_MAX
        {
            let merged = MemoryRun::merged(older, newer);
            memory.truncate(memory.len() - 2);
            memory.push(Arc::new(merged));
        }
        let runs = Runs {
            upto,
            memory,
            ..Runs::clone(&before)
        };
        *self.runs.write() = Arc::new(runs);
        match self.is_full(writer) {
            true => self.flush(writer),
            false => Ok(()),
        }
    }

    /// Whether the entries in memory are to be written to a file.
    fn is_full(&self, writer: &Writer) -> bool {
        let blocks = writer.ids.len() as u64;
        self.folder.is_writer()
            && (self.runs.read().memory_bytes() >= self.recent_bytes_max()
                || blocks >= run_blocks_max(writer.list.keep_blocks))
    }

    /// Writes all entries in memory to a file. If that fails, they stay in memory.
    pub(crate) fn flush(&self, writer: &mut Writer) -> Result<(), HistoryError> {
        let before = self.runs.read().clone();
        let Some(oldest) = before.memory.first() else {
            return Ok(());
        };
        self.check_writable()?;
        let listed = self.folder.new_run(
            &mut writer.list.next_file,
            *oldest.blocks.start(),
            before.upto,
        );
        let recent: Vec<_> = before.all().skip(before.files.len()).collect();
        let waypoints: Vec<_> = writer.ids.iter().copied().filter(is_waypoint).collect();
        let run = self.write_run(&listed, &recent, &waypoints)?;
        let mut list = writer.list.clone();
        list.runs.push(listed);
        self.replace_list(writer, list)?;
        writer.ids.clear();
        let mut files = before.files.clone();
        files.push(run);
        *self.runs.write() = Arc::new(Runs {
            files,
            memory: Vec::new(),
            ..Runs::clone(&before)
        });
        Ok(())
    }

    /// Writes the file of a run with the entries of `runs`. A file that could not be written is removed:
    /// nothing needs it, and the next attempt has another one.
    pub(crate) fn write_run(
        &self,
        listed: &ListedRun,
        runs: &[LiveRun],
        waypoints: &[BlockId],
    ) -> Result<LiveRun, HistoryError> {
        let written = self.try_to_write_run(listed, runs, waypoints);
        if written.is_err() {
            // Opening removes it otherwise.
            _ = self.disk.remove(&run_name(listed.file));
        }
        written
    }

    fn try_to_write_run(
        &self,
        listed: &ListedRun,
        runs: &[LiveRun],
        waypoints: &[BlockId],
    ) -> Result<LiveRun, HistoryError> {
        self.check_writable()?;
        let keys = runs.iter().map(|run| match &run.run {
            Run::Memory(run) => run.keys(),
            Run::File(run) => run.keys(),
        });
        let keys = keys.fold(0, u64::saturating_add);
        let filter_bytes_max = self.options.memory_bytes / RECENT_DIVISOR;
        let mut writer = RunWriter::create(
            &*self.disk,
            &run_name(listed.file),
            RunContent {
                identity: listed.identity,
                nodes: self.nodes,
                blocks: listed.first..=listed.last.number,
                keys,
                has_filter: KeyFilter::bytes_for(keys) <= filter_bytes_max,
            },
            buffer_bytes(&self.options),
            self.pace.clone(),
        )?;
        let mut merged = MergedRuns::new(runs, &[])?;
        while let Some(entry) = merged.entry() {
            writer.push(&entry)?;
            merged.advance()?;
        }
        writer.finish(waypoints)?;
        // Filters of other runs leave this much.
        let replaced: u64 = runs.iter().map(memory_of).sum();
        let others = self.reads.index_bytes();
        let filter_bytes_max = filter_bytes_max
            .saturating_add(replaced)
            .saturating_sub(others);
        let run = open_run(
            &self.reads,
            listed,
            self.nodes,
            &self.options,
            filter_bytes_max,
        )?;
        self.written.fetch_add(run.file_bytes(), Ordering::Relaxed);
        Ok(LiveRun {
            run: Run::File(run),
            last: listed.last.number,
        })
    }

    /// Takes back the blocks above the newest one that is still canonical.
    pub(crate) fn take_back(&self, db: &Db) -> Result<(), HistoryError> {
        let mut writer = self.writer.lock();
        let fork = self.newest_canonical(db, &writer)?;
        let before = self.runs.read().clone();
        let mut list = writer.list.clone();
        let removed = list.cut(fork);
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
            has_nodes: before.has_nodes,
            files,
            memory: memory.collect(),
        };
        match list != writer.list && self.folder.is_writer() {
            true => self.replace_list(&mut writer, list)?,
            false => writer.list = list,
        }
        writer.ids.retain(|id| id.number <= fork.number);
        *self.runs.write() = Arc::new(runs);
        drop(writer);
        self.remove_files(&removed)
    }

    /// The newest canonical block of the history by the known hashes.
    fn newest_canonical(&self, db: &Db, writer: &Writer) -> Result<BlockId, HistoryError> {
        let is_canonical = |id: &BlockId| -> Result<bool, HistoryError> {
            Ok(db.block_id(id.number)? == Some(*id))
        };
        for id in writer.ids.iter().rev() {
            if is_canonical(id)? {
                return Ok(*id);
            }
        }
        let first = writer.list.first;
        // The log knows a branch that was left lately. It need not reach down to a waypoint.
        let fork = canonical_ancestor(db, writer.list.upto())?;
        if let Some(fork) = fork.filter(|fork| fork.number >= first.number) {
            return Ok(fork);
        }
        let runs = self.runs.read().clone();
        newest_canonical_in(db, &writer.list, &runs.files)?.ok_or(HistoryError::Abandoned { first })
    }

    /// Opens a run of the list that was not opened with it.
    pub(crate) fn open_listed(&self, listed: &ListedRun) -> Result<Arc<RunFile>, HistoryError> {
        let filter_bytes_max = self.options.memory_bytes / RECENT_DIVISOR;
        let filter_bytes_max = filter_bytes_max.saturating_sub(self.reads.index_bytes());
        open_run(
            &self.reads,
            listed,
            self.nodes,
            &self.options,
            filter_bytes_max,
        )
    }

    pub(crate) fn remove_files(&self, runs: &[ListedRun]) -> Result<(), HistoryError> {
        let names = runs.iter().map(|run| run_name(run.file));
        Ok(self.folder.remove(names)?)
    }
}

/// The newest block of a list's runs that is canonical, of those whose hashes their files have, or the block at
/// which the list begins. `None` if not even that is canonical.
pub(crate) fn newest_canonical_in(
    db: &Db,
    list: &RunList,
    files: &[LiveRun],
) -> Result<Option<BlockId>, HistoryError> {
    for (listed, live) in list.runs.iter().zip(files).rev() {
        if let Run::File(run) = &live.run
            && let Some(id) = newest_canonical_of(db, listed, run)?
        {
            return Ok(Some(id));
        }
    }
    let is_canonical = db.block_id(list.first.number)? == Some(list.first);
    Ok(is_canonical.then_some(list.first))
}

/// The newest block of a run that is canonical, of those whose hashes it has.
pub(crate) fn newest_canonical_of(
    db: &Db,
    listed: &ListedRun,
    run: &RunFile,
) -> Result<Option<BlockId>, HistoryError> {
    if db.block_id(listed.last.number)? == Some(listed.last) {
        return Ok(Some(listed.last));
    }
    for id in run.waypoints()?.iter().rev() {
        if id.number < listed.last.number && db.block_id(id.number)? == Some(*id) {
            return Ok(Some(*id));
        }
    }
    Ok(None)
}

/// The block where the branch of `id` leaves the canonical chain, or `id` itself if it is canonical. `None` if
/// the log no longer knows the branch.
pub(crate) fn canonical_ancestor(db: &Db, id: BlockId) -> Result<Option<BlockId>, HistoryError> {
    let mut at = id;
    while db.block_id(at.number)? != Some(at) {
        let meta = match db.block_by_id(at) {
            Err(error) if error.has_left_log() => None,
            meta => meta?,
        };
        let (Some(meta), Some(number)) = (meta, at.number.checked_sub(1)) else {
            return Ok(None);
        };
        at = BlockId::new(number, meta.parent);
    }
    Ok(Some(at))
}

fn memory_of(run: &LiveRun) -> u64 {
    match &run.run {
        Run::File(run) => run.memory_bytes(),
        Run::Memory(_) => 0,
    }
}

/// Largest number of blocks of a run of a history that keeps `keep_blocks`; `None` keeps all.
pub(crate) fn run_blocks_max(keep_blocks: Option<NonZeroU64>) -> u64 {
    let part = |keep: NonZeroU64| (keep.get() / KEPT_RUNS).max(RUN_BLOCKS_MIN);
    keep_blocks.map_or(u64::MAX, part)
}

pub(crate) const fn is_waypoint(id: &BlockId) -> bool {
    id.number.is_multiple_of(WAYPOINT_DISTANCE)
}
