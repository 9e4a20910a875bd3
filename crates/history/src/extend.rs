//! Making a history longer by spans: upwards to a newer block, if it has nodes, and downwards to older
//! ones.

use crate::{
    HistoryError,
    keeper::{Keeper, Writer, is_waypoint},
    list::ListedRun,
    memory_run::MemoryRun,
    runs::{LiveRun, Run, Runs},
    span::{Limits, Made, Span, Window},
    view::Present,
};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{Db, StateError};
use cambium_store::Manifest;
use parking_lot::MutexGuard;
use std::sync::Arc;

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
    /// no, or if the chain is another one meanwhile.
    pub(crate) fn extend_up(
        &self,
        db: &Db,
        writer: &mut Writer,
        to: BlockId,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<bool, HistoryError> {
        let before = self.runs.read().clone();
        let upto = before.upto;
        let none = Runs {
            first: to,
            upto: to,
            has_nodes: true,
            files: Vec::new(),
            memory: Vec::new(),
        };
        let present = Arc::new(Present::new(db.view_of(to)?));
        let nodes = writer.list.nodes;
        let mut span = Span::new(db, present, nodes, Arc::new(none), to, self.limits());
        let mut made: Vec<Made> = Vec::new();
        let (mut in_memory, mut reached) = (0, to);
        let is_made = span.make(upto.number, goes_on, &mut |window, above| {
            let Window { run, ids, parent } = window;
            let is_last = parent.number == upto.number;
            in_memory += run.bytes();
            if self.lock.is_none() && in_memory > READER_BYTES_MAX {
                let (upto, head) = (writer.list.upto(), db.head());
                return Err(HistoryError::Behind { upto, head });
            }
            let run = if self.lock.is_some() && (!made.is_empty() || !is_last) {
                self.flush(writer)?;
                self.write_window(writer, run, &ids)?
            } else {
                Made::Memory(Arc::new(run), ids)
            };
            let mut files = vec![run.live()];
            files.extend(above.files.iter().cloned());
            made.push(run);
            reached = parent;
            Ok(Arc::new(Runs {
                first: parent,
                files,
                ..Runs::clone(above)
            }))
        })?;
        let is_made = is_made && reached == upto;
        drop(span);
        match is_made {
            true => self.install(writer, to, made)?,
            false => {
                let files = made.iter().filter_map(|run| match run {
                    Made::File(listed, _) => Some(*listed),
                    Made::Memory(..) => None,
                });
                self.remove_files(&files.collect::<Vec<_>>())?;
            }
        }
        Ok(is_made)
    }

    /// Adds the blocks down to that above `to`, window by window, each durable before the next is begun.
    /// Files are merged between them. False if `goes_on` said no.
    pub(crate) fn extend_down(
        &self,
        db: &Db,
        to: BlockNumber,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<bool, HistoryError> {
        let mut writer = self.writer.lock();
        let runs = self.runs.read().clone();
        let first = writer.list.first;
        let upto = runs.upto;
        if db.block_id(upto.number)? != Some(upto) {
            return Err(StateError::UnknownBlock(upto.hash).into());
        }
        let present = self.present(db, upto)?;
        let nodes = writer.list.nodes;
        let mut span = Span::new(db, present, nodes, runs, first, self.limits());
        span.make(to, goes_on, &mut |window, _| {
            let Window { run, ids, parent } = window;
            let Made::File(listed, live) = self.write_window(&mut writer, run, &ids)? else {
                return Err(HistoryError::ReadOnly);
            };
            let mut list = writer.list.clone();
            list.first = parent;
            list.runs.insert(0, listed);
            self.guard(|| list.write(&*self.disk))?;
            writer.list = list;
            let before = self.runs.read().clone();
            let mut files = vec![live];
            files.extend(before.files.iter().cloned());
            *self.runs.write() = Arc::new(Runs {
                first: parent,
                files,
                ..Runs::clone(&before)
            });
            MutexGuard::unlocked(&mut writer, || self.merge_all())?;
            Ok(self.runs.read().clone())
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            entries_bytes: self.recent_bytes_max(),
            trie_bytes: usize::try_from(self.options.trie_bytes).unwrap_or(usize::MAX),
        }
    }

    /// Writes a window to a file that is not listed yet.
    fn write_window(
        &self,
        writer: &mut Writer,
        run: MemoryRun,
        ids: &[BlockId],
    ) -> Result<Made, HistoryError> {
        let blocks = run.blocks.clone();
        let last = *ids.last().ok_or(HistoryError::ReadOnly)?;
        let run = LiveRun {
            run: Run::Memory(Arc::new(run)),
            last: last.number,
        };
        let listed = ListedRun {
            file: writer.list.next_file,
            first: *blocks.start(),
            last,
            identity: Manifest::new_salt(),
        };
        self.guard(|| {
            writer.list.next_file += 1;
            let file = self.write_run(&listed, &[run], &waypoints(ids))?;
            Ok(Made::File(listed, file))
        })
    }

    /// Adds runs above all that are there; `made` has the newest first. They are all in memory, or all
    /// in files.
    fn install(
        &self,
        writer: &mut Writer,
        upto: BlockId,
        mut made: Vec<Made>,
    ) -> Result<(), HistoryError> {
        made.reverse();
        let before = self.runs.read().clone();
        let mut list = writer.list.clone();
        let mut files = before.files.clone();
        for run in made {
            match run {
                Made::File(listed, run) => {
                    list.runs.push(listed);
                    files.push(run);
                }
                Made::Memory(run, ids) => {
                    writer.ids.extend_from_slice(&ids);
                    let upto = ids.last().copied().unwrap_or(upto);
                    self.add_recent(writer, upto, run)?;
                }
            }
        }
        if files.len() == before.files.len() {
            return Ok(());
        }
        self.guard(|| list.write(&*self.disk))?;
        writer.list = list;
        *self.runs.write() = Arc::new(Runs {
            upto,
            files,
            ..Runs::clone(&before)
        });
        Ok(())
    }
}

fn waypoints(ids: &[BlockId]) -> Vec<BlockId> {
    ids.iter().copied().filter(is_waypoint).collect()
}
