//! Making a history longer by spans: upwards to a newer block, if it has nodes, and downwards to older
//! ones.

use crate::{
    HistoryError,
    keeper::{Keeper, canonical_ancestor, is_waypoint, newest_canonical_of, run_blocks_max},
    list::RunList,
    memory_run::MemoryRun,
    run::reader,
    runs::{LiveRun, Run, Runs},
    span::{Above, Keep, Limits, Span, Window},
    state_at::Present,
    upkeep::FileRun,
};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_runs::ListedRun;
use cambium_state::{Db, StateError};
use std::sync::Arc;

/// Windows in memory: one is written while the next one is made.
const WINDOWS_AT_ONCE: usize = 2;
/// Memory of the entries that a reader takes from the block log, at most, in bytes.
pub(crate) const READER_BYTES_MAX: usize = 256 << 20;

impl Keeper {
    /// The state after the newest block of the history, shared by all who read it.
    pub(crate) fn present(&self, db: &Db, block: BlockId) -> Result<Arc<Present>, HistoryError> {
        let mut shared = self.present.lock();
        if let Some(present) = shared.upgrade()
            && present.view.block() == block
        {
            return Ok(present);
        }
        let present = Arc::new(Present::new(db.view_of(block)?));
        *shared = Arc::downgrade(&present);
        Ok(present)
    }

    /// Holds that state for the next readers of old blocks, while it is that of the history's newest block, and drops a
    /// snapshot that is not the newest any more.
    pub(crate) fn hold_present(
        &self,
        db: &Db,
        held: &mut Option<Arc<Present>>,
    ) -> Result<(), HistoryError> {
        let upto = self.runs.read().upto;
        let of_newest = held.as_ref().filter(|present| present.view.block() == upto);
        if of_newest.is_some_and(|present| present.view.is_on_newest_base()) {
            return Ok(());
        }
        if db.settled_block() == upto {
            let present = Arc::new(Present::new(db.view_of(upto)?));
            *self.present.lock() = Arc::downgrade(&present);
            *held = Some(present);
        } else if of_newest.is_none() {
            *held = None;
        }
        Ok(())
    }

    /// Adds the blocks up to `to`, which has all of the history below it, or to a later block that runs have
    /// which wait. False if `goes_on` said no, or if the chain is another one meanwhile: all windows that
    /// were written wait for the next call. At most `threads` threads make nodes. The caller holds
    /// `growing_up`.
    pub(crate) fn extend_up(
        &self,
        db: &Db,
        to: BlockId,
        threads: usize,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<bool, HistoryError> {
        let _span = tracing::debug_span!("history_extend", %to).entered();
        let waiting = self.open_waiting(db)?;
        let newest = waiting.last().map(|run| run.listed.last);
        let to = newest.filter(|id| id.number > to.number).unwrap_or(to);
        let mut made = MadeRuns::new(Arc::new(Present::new(db.view_of(to)?)), waiting);
        if !self.make_runs(db, &mut made, threads, goes_on)? {
            return Ok(false);
        }
        if !made.files.is_empty() {
            // The blocks in memory are below them.
            self.flush(&mut self.writer.lock())?;
        }
        self.install(to, made)?;
        Ok(true)
    }

    /// Whether a run that waits begins at a block.
    pub(crate) fn has_waiting(&self, number: BlockNumber) -> bool {
        let writer = self.writer.lock();
        self.folder.is_writer() && writer.list.waiting.iter().any(|run| run.first == number)
    }

    /// Opens the canonical blocks of the waiting runs. Other runs leave the list, and so do those that can't be read:
    /// their blocks are made again.
    fn open_waiting(&self, db: &Db) -> Result<Vec<FileRun>, HistoryError> {
        let listed = match self.folder.is_writer() {
            true => self.writer.lock().list.waiting.clone(),
            false => Vec::new(),
        };
        let (mut open, mut gone) = (Vec::new(), Vec::new());
        for listed in &listed {
            match self.open_canonical(db, listed) {
                Ok(Some(run)) => open.push(run),
                Ok(None) => gone.push(*listed),
                Err(error @ (HistoryError::Missing { .. } | HistoryError::Damaged { .. })) => {
                    tracing::warn!(%error, "its blocks are added to the history again");
                    gone.push(*listed);
                }
                Err(error) => return Err(error),
            }
        }
        let waiting: Vec<_> = open.iter().map(|run| run.listed).collect();
        if waiting != listed {
            let mut writer = self.writer.lock();
            let list = RunList {
                waiting,
                ..writer.list.clone()
            };
            self.replace_list(&mut writer, list)?;
        }
        for run in gone {
            // Files that can't be removed now are removed when the history is opened.
            _ = self.remove_files(&[run]);
        }
        Ok(open)
    }

    /// Opens a run, whose last block is its newest canonical one. `None` if there is none. Reads the pages of an
    /// earlier process's run once: a damaged run is thus found before it is part of the history.
    fn open_canonical(&self, db: &Db, listed: &ListedRun) -> Result<Option<FileRun>, HistoryError> {
        let run = self.open_listed(listed)?;
        let is_unread = self.unread_waiting.lock().contains(&listed.identity);
        if is_unread {
            reader::check(&run)?;
            run.waypoints()?;
            self.unread_waiting.lock().remove(&listed.identity);
        }
        let fork = canonical_ancestor(db, listed.last)?;
        let last = match fork.filter(|fork| fork.number >= listed.first) {
            None => newest_canonical_of(db, listed, &run)?,
            last => last,
        };
        Ok(last.map(|last| FileRun {
            listed: ListedRun { last, ..*listed },
            live: LiveRun {
                run: Run::File(run),
                last: last.number,
            },
        }))
    }

    /// Makes runs of all blocks between the newest one and those of the history, but for those that wait.
    fn make_runs(
        &self,
        db: &Db,
        made: &mut MadeRuns,
        threads: usize,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<bool, HistoryError> {
        let upto = self.runs.read().upto;
        while made.take_waiting()? {
            let low = made.waiting.last().map(|run| run.listed.last);
            let low = low.unwrap_or(upto);
            if made.bottom.number <= low.number {
                return Ok(made.bottom == low);
            }
            let (above, bottom) = (made.above(), made.bottom);
            let limits = self.limits(threads, above.present.view.block().number);
            let mut span = Span::new(db, above, self.nodes, bottom, limits);
            let mut keep = |window, _: &Above| {
                self.keep_window(db, made, window, upto)?;
                Ok(Keep::GoOn(made.above()))
            };
            if !span.make(low.number, goes_on, &mut keep)? || made.bottom != low {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Keeps a window: in a file, or in memory if there are no others. A reader has only memory.
    fn keep_window(
        &self,
        db: &Db,
        made: &mut MadeRuns,
        window: Window,
        upto: BlockId,
    ) -> Result<(), HistoryError> {
        let Window { run, ids, parent } = window;
        let is_alone = made.files.is_empty() && parent.number == upto.number;
        if !self.folder.is_writer() || is_alone {
            made.memory.insert(0, (Arc::new(run), ids));
            if !self.folder.is_writer() && made.memory_bytes() > READER_BYTES_MAX {
                let head = db.head();
                return Err(HistoryError::Behind { upto, head });
            }
        } else {
            let run = self.write_window(run, &ids)?;
            self.list_waiting(run.listed, &[])?;
            made.files.insert(0, run);
            self.merge_waiting(&mut made.files)?;
        }
        made.bottom = parent;
        Ok(())
    }

    /// Adds runs above all that are there.
    fn install(&self, upto: BlockId, made: MadeRuns) -> Result<(), HistoryError> {
        let mut writer = self.writer.lock();
        if !made.files.is_empty() {
            let mut list = writer.list.clone();
            list.runs.append(&mut list.waiting);
            self.replace_list(&mut writer, list)?;
            let before = self.runs.read().clone();
            let mut files = before.files.clone();
            files.extend(made.files.into_iter().map(|run| run.live));
            *self.runs.write() = Arc::new(Runs {
                upto,
                files,
                ..Runs::clone(&before)
            });
        }
        for (run, ids) in made.memory {
            let blocks = (writer.ids.len() + ids.len()) as u64;
            if self.folder.is_writer() && blocks > run_blocks_max(writer.list.keep_blocks) {
                self.flush(&mut writer)?;
            }
            writer.ids.extend_from_slice(&ids);
            let upto = ids.last().copied().unwrap_or(upto);
            self.add_recent(&mut writer, upto, run)?;
        }
        Ok(())
    }

    /// Adds the blocks down to that above `to`, or to the oldest that the history keeps, window by
    /// window. Each is durable before the next but one is begun, and files are merged meanwhile. It
    /// ends early if `goes_on` says no, or if the chain is another one.
    pub(crate) fn extend_down(
        &self,
        db: &Db,
        to: BlockNumber,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<(), HistoryError> {
        let _growing = self.growing_down.lock();
        self.check_writable()?;
        let runs = self.runs.read().clone();
        let (first, upto) = (runs.first, runs.upto);
        let keep_blocks = self.writer.lock().list.keep_blocks;
        let oldest_kept = keep_blocks.map_or(0, |keep| upto.number.saturating_sub(keep.get()));
        if db.block_id(upto.number)? != Some(upto) {
            return Err(StateError::UnknownBlock(upto.hash).into());
        }
        let present = self.present(db, upto)?;
        let above = Above { present, runs };
        let limits = self.limits(rayon::current_num_threads(), upto.number);
        let mut span = Span::new(db, above, self.nodes, first, limits);
        span.make(to.max(oldest_kept), goes_on, &mut |window, above| {
            let Window { run, ids, parent } = window;
            let made = self.write_window(run, &ids)?;
            if !self.install_below(&made, parent)? {
                // The history begins at a later block now: these are not to be kept.
                self.remove_files(&[made.listed])?;
                return Ok(Keep::End);
            }
            self.merge_all()?;
            // A moving head removes runs of other blocks, so the runs and the state above the span must be taken at one
            // moment.
            let runs = self.runs.read().clone();
            Ok(Keep::GoOn(match self.present(db, runs.upto) {
                Ok(present) => Above { present, runs },
                Err(_) => above.with_run_below(made.live, parent),
            }))
        })?;
        Ok(())
    }

    /// Adds a run below all that are there. False if the history does not begin where it ends.
    fn install_below(&self, made: &FileRun, parent: BlockId) -> Result<bool, HistoryError> {
        let mut writer = self.writer.lock();
        if writer.list.first != made.listed.last {
            return Ok(false);
        }
        let mut list = writer.list.clone();
        list.first = parent;
        list.runs.insert(0, made.listed);
        self.replace_list(&mut writer, list)?;
        let before = self.runs.read().clone();
        *self.runs.write() = Arc::new(before.with_file_below(made.live.clone(), parent));
        Ok(true)
    }

    /// `upto` is the newest block that the history is going to have.
    fn limits(&self, threads: usize, upto: BlockNumber) -> Limits {
        let keep_blocks = self.writer.lock().list.keep_blocks;
        let oldest_kept = keep_blocks.map(|keep| upto.saturating_sub(keep.get()));
        Limits {
            entries_bytes: self.recent_bytes_max() / WINDOWS_AT_ONCE,
            blocks_max: run_blocks_max(keep_blocks),
            few_above: oldest_kept.unwrap_or_default(),
            trie_bytes: usize::try_from(self.options.trie_bytes).unwrap_or(usize::MAX),
            threads,
        }
    }

    /// Writes a window to a file that is not listed yet.
    fn write_window(&self, run: MemoryRun, ids: &[BlockId]) -> Result<FileRun, HistoryError> {
        let first = *run.blocks.start();
        let last = ids.last().copied().unwrap_or_default();
        let run = LiveRun {
            run: Run::Memory(Arc::new(run)),
            last: last.number,
        };
        let listed = {
            let mut writer = self.writer.lock();
            self.folder.new_run(&mut writer.list.next_file, first, last)
        };
        let live = self.write_run(&listed, &[run], &waypoints(ids))?;
        Ok(FileRun { listed, live })
    }
}

/// Runs that are not part of the history yet.
struct MadeRuns {
    /// The state after the newest block that they are to have.
    present: Arc<Present>,
    /// All blocks above this one are in the runs in files and in memory.
    bottom: BlockId,
    /// Runs below blocks that are in no run yet, oldest first.
    waiting: Vec<FileRun>,
    /// Runs that follow one another, oldest first. They are listed as waiting, too.
    files: Vec<FileRun>,
    /// Those above.
    memory: Vec<(Arc<MemoryRun>, Vec<BlockId>)>,
}

impl MadeRuns {
    fn new(present: Arc<Present>, waiting: Vec<FileRun>) -> Self {
        Self {
            bottom: present.view.block(),
            present,
            waiting,
            files: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Takes the waiting runs below that follow. False if they are those of another chain.
    fn take_waiting(&mut self) -> Result<bool, HistoryError> {
        while let Some(run) = self
            .waiting
            .pop_if(|run| run.listed.last.number >= self.bottom.number)
        {
            let below = run.listed.first - 1;
            let parent = self.present.view.block_hash(below)?;
            let (true, Some(parent)) = (run.listed.last == self.bottom, parent) else {
                return Ok(false);
            };
            self.bottom = BlockId::new(below, parent);
            self.files.insert(0, run);
        }
        Ok(true)
    }

    /// The state after the bottom block, and the runs above it.
    fn above(&self) -> Above {
        Above {
            present: self.present.clone(),
            runs: Arc::new(Runs {
                first: self.bottom,
                upto: self.present.view.block(),
                has_nodes: true,
                files: self.files.iter().map(|run| run.live.clone()).collect(),
                memory: self.memory.iter().map(|(run, _)| run.clone()).collect(),
            }),
        }
    }

    fn memory_bytes(&self) -> usize {
        self.memory.iter().map(|(run, _)| run.bytes()).sum()
    }
}

fn waypoints(ids: &[BlockId]) -> Vec<BlockId> {
    ids.iter().copied().filter(is_waypoint).collect()
}
