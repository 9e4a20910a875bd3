//! Keeping the runs of a history: blocks are added, taken back, written to files, and merged.

use crate::{
    HistoryError,
    list::{ListedRun, RunList, run_name},
    memory_run::{MEMORY_RUN_BYTES_MAX, MemoryRun},
    merge::MergedRuns,
    run::{
        Filter, PageReads,
        reader::RunFile,
        writer::{RunContent, RunWriter},
    },
    runs::{LiveRun, Run, Runs},
    view::Present,
};
use cambium_disk::{Disk, DiskLock};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{CommittedBlock, Db};
use cambium_store::{Manifest, WritePace};
use parking_lot::{Mutex, RwLock};
use std::{
    num::NonZeroU64,
    ops::Range,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// Every so many blocks a run has the hash of one, by which a fork is found.
const WAYPOINT_DISTANCE: u64 = 64;
/// Neighbours are merged when they have this many times the entries of the largest beside it.
const MERGE_RATIO: u64 = 3;
/// Largest sum of the files that are merged, in bytes.
const MERGED_BYTES_MAX: u64 = 1 << 40;
/// Share of the memory for entries of the newest blocks.
const RECENT_DIVISOR: u64 = 2;

/// A history of limited length has runs of at most this part of it: what is no longer kept leaves by
/// whole runs.
const KEPT_RUNS: u64 = 4;

/// Options with which a history is opened.
#[derive(Clone, Copy, Debug)]
pub struct HistoryOptions {
    /// Memory for the entries of the newest blocks and for filters, in bytes, half each. Fences take
    /// a further 0.3 % of the files.
    pub memory_bytes: u64,
    /// Memory of the trie from which nodes are made, in bytes. The trie of a larger span of blocks is
    /// begun anew when it has become as large, which takes reads of what has been made.
    pub trie_bytes: u64,
    /// Memory for pages that look-ups have read, in bytes.
    pub cache_bytes: u64,
    /// Bytes that are read or written at once, where runs are written, merged and checked.
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

/// Keeps the runs of a history: adds to them, takes back, and merges.
pub(crate) struct Keeper {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: HistoryOptions,
    pub(crate) runs: RwLock<Arc<Runs>>,
    pub(crate) writer: Mutex<Writer>,
    /// Held while files are merged.
    merging: Mutex<()>,
    failure: OnceLock<String>,
    pub(crate) reads: Arc<PageReads>,
    pub(crate) written: AtomicU64,
    pub(crate) pace: Arc<WritePace>,
    /// What views of old blocks share, while there are any.
    pub(crate) present: Mutex<Weak<Present>>,
    /// `None` if it is open for reading alone. Dropped last.
    pub(crate) lock: Option<DiskLock>,
}

/// What only whoever writes needs.
pub(crate) struct Writer {
    pub(crate) list: RunList,
    /// The blocks of the runs in memory.
    pub(crate) ids: Vec<BlockId>,
}

/// Runs that are open, and what they read with.
pub(crate) struct OpenedRuns {
    runs: Vec<LiveRun>,
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

/// Opens the runs of a list. The newest get their filters first, as far as memory allows.
pub(crate) fn open_runs(
    disk: &Arc<dyn Disk>,
    list: &RunList,
    options: &HistoryOptions,
) -> Result<OpenedRuns, HistoryError> {
    let OpenedRuns { mut runs, reads } = OpenedRuns::none(disk, options);
    let mut filters_left = options.memory_bytes / RECENT_DIVISOR;
    for listed in list.runs.iter().rev() {
        let run = open_run(&reads, listed, options, filters_left)?;
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
    options: &HistoryOptions,
    filter_bytes_max: u64,
) -> Result<Arc<RunFile>, HistoryError> {
    let name = run_name(listed.file);
    let run = RunFile::open(
        reads.clone(),
        &name,
        listed.identity,
        filter_bytes_max,
        options.buffer_bytes,
    )?;
    let blocks = run.blocks();
    match *blocks.start() == listed.first && *blocks.end() >= listed.last.number {
        true => Ok(Arc::new(run)),
        false => Err(HistoryError::Damaged {
            file: reads.disk.display_path(&name),
            offset: 0,
            what: "it has not the blocks that the list of runs says".to_owned(),
        }),
    }
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
            disk,
            options,
            runs: RwLock::new(Arc::new(runs)),
            writer: Mutex::new(Writer {
                list,
                ids: Vec::new(),
            }),
            merging: Mutex::default(),
            failure: OnceLock::new(),
            reads: files.reads,
            written: AtomicU64::new(0),
            pace: Arc::default(),
            present: Mutex::default(),
            lock,
        }
    }

    /// Remembers how many blocks are kept, if the options say it.
    pub(crate) fn remember_options(&self) -> Result<(), HistoryError> {
        let mut writer = self.writer.lock();
        let keep_blocks = self.options.keep_blocks.or(writer.list.keep_blocks);
        if keep_blocks == writer.list.keep_blocks {
            return Ok(());
        }
        writer.list.keep_blocks = keep_blocks;
        self.guard(|| writer.list.write(&*self.disk))
    }

    pub(crate) fn check_sound(&self) -> Result<(), HistoryError> {
        match self.failure.get() {
            None => Ok(()),
            Some(cause) => Err(HistoryError::Poisoned {
                cause: cause.clone(),
            }),
        }
    }

    /// Runs a step that changes files. After a failure there are no more.
    pub(crate) fn guard<T>(
        &self,
        step: impl FnOnce() -> Result<T, HistoryError>,
    ) -> Result<T, HistoryError> {
        if self.lock.is_none() {
            return Err(HistoryError::ReadOnly);
        }
        self.check_sound()?;
        step().inspect_err(|error| _ = self.failure.set(error.to_string()))
    }

    /// Memory of entries at which they go to a file, in bytes.
    pub(crate) fn recent_bytes_max(&self) -> usize {
        let bytes = self.options.memory_bytes / RECENT_DIVISOR;
        bytes.min(MEMORY_RUN_BYTES_MAX as u64) as usize
    }

    pub(crate) fn append(
        &self,
        writer: &mut Writer,
        block: &CommittedBlock,
    ) -> Result<(), HistoryError> {
        let id = block.meta.id;
        let run = MemoryRun::of_block(id.number, &block.changes, &block.reverts);
        writer.ids.push(id);
        self.add_recent(writer, id, Arc::new(run))
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
        let is_full = runs.memory_bytes() >= self.recent_bytes_max();
        *self.runs.write() = Arc::new(runs);
        match is_full && self.lock.is_some() {
            true => self.flush(writer),
            false => Ok(()),
        }
    }

    pub(crate) fn flush(&self, writer: &mut Writer) -> Result<(), HistoryError> {
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
                files,
                memory: Vec::new(),
                ..Runs::clone(&before)
            });
            Ok(())
        })
    }

    /// Writes the file of a run with the entries of `runs`.
    pub(crate) fn write_run(
        &self,
        listed: &ListedRun,
        runs: &[LiveRun],
        waypoints: &[BlockId],
    ) -> Result<LiveRun, HistoryError> {
        let keys = runs.iter().map(|run| match &run.run {
            Run::Memory(run) => run.keys(),
            Run::File(run) => run.keys(),
        });
        let keys = keys.fold(0, u64::saturating_add);
        let filter_bytes_max = self.options.memory_bytes / RECENT_DIVISOR;
        let name = run_name(listed.file);
        let mut writer = RunWriter::create(
            &*self.disk,
            &name,
            RunContent {
                identity: listed.identity,
                blocks: listed.first..=listed.last.number,
                keys,
                has_filter: Filter::bytes_for(keys) <= filter_bytes_max,
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
        let run = open_run(&self.reads, listed, &self.options, filter_bytes_max)?;
        self.written.fetch_add(run.file_bytes(), Ordering::Relaxed);
        Ok(LiveRun {
            run: Run::File(run),
            last: listed.last.number,
        })
    }

    /// Takes back the blocks above the newest one that is still canonical.
    pub(crate) fn take_back(&self, db: &Db, writer: &mut Writer) -> Result<(), HistoryError> {
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
            has_nodes: before.has_nodes,
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
            false => Err(HistoryError::Abandoned { first }),
        }
    }

    pub(crate) fn remove_files(&self, runs: &[ListedRun]) -> Result<(), HistoryError> {
        if self.lock.is_none() {
            return Ok(());
        }
        for run in runs {
            self.disk.remove(&run_name(run.file))?;
        }
        Ok(())
    }

    /// Merges files as long as any are due.
    pub(crate) fn merge_all(&self) -> Result<(), HistoryError> {
        while self.merge_once()? {}
        Ok(())
    }

    /// Merges the files that are due. False if none are.
    pub(crate) fn merge_once(&self) -> Result<bool, HistoryError> {
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
            files,
            ..Runs::clone(&before)
        });
        drop(writer);
        self.remove_files(&replaced)?;
        Ok(true)
    }

    /// Removes the oldest runs of which no block is kept. False if there are none.
    pub(crate) fn prune(&self) -> Result<bool, HistoryError> {
        let _merging = self.merging.lock();
        let mut writer = self.writer.lock();
        let Some(keep) = writer.list.keep_blocks else {
            return Ok(false);
        };
        let before = self.runs.read().clone();
        let oldest_kept = before.upto.number.saturating_sub(keep.get());
        let gone = writer.list.runs.iter();
        let gone = gone
            .take_while(|run| run.last.number <= oldest_kept)
            .count();
        if gone == 0 {
            return Ok(false);
        }
        let mut list = writer.list.clone();
        let removed: Vec<_> = list.runs.drain(..gone).collect();
        list.first = removed.last().map_or(list.first, |run| run.last);
        self.guard(|| list.write(&*self.disk))?;
        *self.runs.write() = Arc::new(Runs {
            first: list.first,
            files: before.files[gone..].to_vec(),
            ..Runs::clone(&before)
        });
        writer.list = list;
        drop(writer);
        self.remove_files(&removed)?;
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
        let sizes: Vec<_> = runs.files.iter().map(RunSize::of).collect();
        let keep_blocks = writer.list.keep_blocks;
        let blocks_max = keep_blocks.map(|keep| keep.get() / KEPT_RUNS);
        let Some(due) = due_for_merge(&sizes, blocks_max.unwrap_or(u64::MAX)) else {
            return Ok(None);
        };
        let replaced = writer.list.runs[due.clone()].to_vec();
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
        Ok(Some((merged, replaced, runs.files[due].to_vec())))
    }
}

/// The run to be, the runs that it replaces as they are listed, and the same as they are open.
type MergePlan = (ListedRun, Vec<ListedRun>, Vec<LiveRun>);

/// The size of a run in a file.
#[derive(Clone, Copy, Debug)]
struct RunSize {
    entries: u64,
    bytes: u64,
    blocks: u64,
}

impl RunSize {
    fn of(live: &LiveRun) -> Self {
        match &live.run {
            Run::File(run) => Self {
                entries: run.entries(),
                bytes: run.file_bytes(),
                blocks: (live.last + 1).saturating_sub(*run.blocks().start()),
            },
            Run::Memory(_) => Self {
                entries: 0,
                bytes: 0,
                blocks: 0,
            },
        }
    }
}

/// The runs to merge: of all neighbours the largest of which has at most a quarter of their entries,
/// those with the fewest entries. So each entry is written about as often as there are powers of four
/// between a new run and the whole, whether runs are added above or below.
fn due_for_merge(sizes: &[RunSize], blocks_max: u64) -> Option<Range<usize>> {
    let mut due: Option<(u64, Range<usize>)> = None;
    for from in 0..sizes.len() {
        let (mut entries, mut largest, mut bytes, mut blocks) = (0, 0, 0, 0);
        for (at, size) in sizes.iter().enumerate().skip(from) {
            entries += size.entries;
            largest = largest.max(size.entries);
            bytes += size.bytes;
            blocks += size.blocks;
            if bytes > MERGED_BYTES_MAX || blocks > blocks_max {
                break;
            }
            if at > from && entries >= (MERGE_RATIO + 1) * largest {
                if due.as_ref().is_none_or(|(least, _)| entries < *least) {
                    due = Some((entries, from..at + 1));
                }
                break;
            }
        }
    }
    due.map(|(_, range)| range)
}

fn memory_of(run: &LiveRun) -> u64 {
    match &run.run {
        Run::File(run) => run.memory_bytes(),
        Run::Memory(_) => 0,
    }
}

pub(crate) const fn is_waypoint(id: &BlockId) -> bool {
    id.number.is_multiple_of(WAYPOINT_DISTANCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds runs of one entry, above or below, merges what is due, and returns the entries that were
    /// written for each.
    fn written_for_each(added: u64, below: bool, blocks_max: u64) -> (u64, usize) {
        let size = |entries| RunSize {
            entries,
            bytes: entries,
            blocks: entries,
        };
        let (mut sizes, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..added {
            let at = if below { 0 } else { sizes.len() };
            sizes.insert(at, size(1));
            while let Some(range) = due_for_merge(&sizes, blocks_max) {
                let entries = sizes[range.clone()].iter().map(|size| size.entries).sum();
                written += entries;
                sizes.splice(range, [size(entries)]);
            }
            most = most.max(sizes.len());
        }
        assert!(sizes.iter().all(|size| size.blocks <= blocks_max));
        (written / added, most)
    }

    #[test]
    fn an_entry_is_written_once_for_each_power_of_four() {
        for below in [false, true] {
            let (written, most) = written_for_each(4_096, below, u64::MAX);
            assert_eq!(written, 6);
            assert!(most <= 3 * 6 + 1, "{most} runs");
            let (written, most) = written_for_each(4_096, below, 64);
            assert_eq!(written, 3);
            assert!(most <= 64 + 9, "{most} runs");
        }
    }
}
