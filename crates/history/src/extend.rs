//! Making a history longer by spans: upwards to a newer block, if it has nodes, and downwards to older
//! ones.

use crate::{
    HistoryError,
    keeper::{Keeper, is_waypoint},
    memory_run::MemoryRun,
    runs::{LiveRun, Run, Runs},
    span::{Above, Keep, Limits, Span, Window},
    upkeep::FileRun,
    view::Present,
};
use cambium_primitives::{BlockId, BlockNumber};
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

    /// Holds that state for whoever reads old blocks next, as long as it is that of the history's
    /// newest block, and lets go of a snapshot that is not the newest any more.
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

    /// Adds the blocks up to `to`, which has all of the history below it. False if `goes_on` said
    /// no, or if the chain is another one meanwhile. At most `threads` threads make nodes. The caller
    /// holds `growing_up`.
    pub(crate) fn extend_up(
        &self,
        db: &Db,
        to: BlockId,
        threads: usize,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<bool, HistoryError> {
        let mut made = MadeRuns::default();
        let mut outcome = self.make_up_to(db, to, threads, goes_on, &mut made);
        if matches!(outcome, Ok(true)) && !made.files.is_empty() {
            // What is in memory is below them.
            outcome = self.flush(&mut self.writer.lock()).map(|()| true);
        }
        if let Ok(true) = outcome {
            self.install(to, made)?;
        } else {
            // Nobody has seen them. What can't be removed is removed when the history is opened.
            let listed: Vec<_> = made.files.iter().map(|run| run.listed).collect();
            _ = self.remove_files(&listed);
        }
        outcome
    }

    /// Makes runs of the blocks up to `to` that are not in the history yet.
    fn make_up_to(
        &self,
        db: &Db,
        to: BlockId,
        threads: usize,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
        made: &mut MadeRuns,
    ) -> Result<bool, HistoryError> {
        let upto = self.runs.read().upto;
        let above = Above {
            present: Arc::new(Present::new(db.view_of(to)?)),
            runs: Arc::new(Runs {
                first: to,
                upto: to,
                has_nodes: true,
                files: Vec::new(),
                memory: Vec::new(),
            }),
        };
        let mut span = Span::new(db, above, self.nodes, to, self.limits(threads));
        let (mut in_memory, mut reached) = (0, to);
        let is_made = span.make(upto.number, goes_on, &mut |window, above| {
            let Window { run, ids, parent } = window;
            let is_last = parent.number == upto.number;
            in_memory += run.bytes();
            if self.lock.is_none() && in_memory > READER_BYTES_MAX {
                let head = db.head();
                return Err(HistoryError::Behind { upto, head });
            }
            if self.lock.is_none() || (made.files.is_empty() && is_last) {
                made.memory.insert(0, (Arc::new(run), ids));
            } else {
                made.files.insert(0, self.write_window(run, &ids)?);
                self.merge_unlisted(&mut made.files)?;
            }
            reached = parent;
            let runs = Runs {
                first: parent,
                files: made.files.iter().map(|run| run.live.clone()).collect(),
                memory: made.memory.iter().map(|(run, _)| run.clone()).collect(),
                ..Runs::clone(&above.runs)
            };
            Ok(Keep::GoOn(Above {
                runs: Arc::new(runs),
                present: above.present.clone(),
            }))
        })?;
        Ok(is_made && reached == upto)
    }

    /// Adds runs above all that are there.
    fn install(&self, upto: BlockId, made: MadeRuns) -> Result<(), HistoryError> {
        let mut writer = self.writer.lock();
        if !made.files.is_empty() {
            let mut list = writer.list.clone();
            list.runs.extend(made.files.iter().map(|run| run.listed));
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
        let limits = self.limits(rayon::current_num_threads());
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
            // A head that moves takes the runs of other blocks with it: what is read of the state above
            // the span must be of one moment.
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

    fn limits(&self, threads: usize) -> Limits {
        Limits {
            entries_bytes: self.recent_bytes_max() / WINDOWS_AT_ONCE,
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
        let listed = Self::new_run(&mut self.writer.lock(), first, last);
        let live = self.write_run(&listed, &[run], &waypoints(ids))?;
        Ok(FileRun { listed, live })
    }
}

/// Runs that are not part of the history yet, oldest first: some in files, then some in memory.
#[derive(Default)]
struct MadeRuns {
    files: Vec<FileRun>,
    memory: Vec<(Arc<MemoryRun>, Vec<BlockId>)>,
}

fn waypoints(ids: &[BlockId]) -> Vec<BlockId> {
    ids.iter().copied().filter(is_waypoint).collect()
}
