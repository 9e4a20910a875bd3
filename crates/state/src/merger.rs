//! Freezing the layers and merging them in the background, so that no commit waits for a merge
//! that keeps up.

use crate::{
    base::{Base, Intermediate, Snapshot},
    blocks::Window,
    checkpoint::{self, CheckpointState, LogState},
    clean::Cleaning,
    counters::Counters,
    db::{Current, Inner, Writer},
    delta::Delta,
    error::StateError,
    index::{Index, IndexWriter, WrittenIndex},
    merge::merge,
    overlay::{LayerId, Overlay},
    pool,
    tree::Tree,
};
use cambium_store::PageAddr;
use cambium_trie::SHARDS;
use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Instant,
};

/// A merge under way.
pub(crate) struct MergeJob {
    thread: JoinHandle<Result<(), StateError>>,
    /// Memory of the layers that it merges.
    pub(crate) bytes: usize,
    /// Shards that had been merged before, since the database was opened.
    parts_before: u64,
}

impl MergeJob {
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// How much of it is done, from 0 to 1: all shards, but perhaps not the checkpoint.
    pub(crate) fn progress(&self, counters: &Counters) -> f64 {
        (counters.merge_parts.get() - self.parts_before) as f64 / SHARDS as f64
    }
}

/// What merges left behind that may still be needed.
#[derive(Default)]
pub(crate) struct Retired {
    /// Pages that the newest checkpoint no longer names, but the one before it does.
    pub(crate) pages: Vec<PageAddr>,
    /// Earlier snapshots, which views may hold.
    snapshots: Vec<Weak<Snapshot>>,
}

impl Retired {
    /// With pages that only the checkpoint before the newest names.
    pub(crate) fn with_pages(pages: Vec<PageAddr>) -> Self {
        Self {
            pages,
            ..Self::default()
        }
    }
}

impl Inner {
    /// Starts a merge if the layers take too much memory; waits for the one under way as far as
    /// it is behind.
    pub(crate) fn freeze_if_large(self: &Arc<Self>, writer: &mut Writer) -> Result<(), StateError> {
        let mut has_waited = false;
        if let Some(merge) = &writer.merge
            && !merge.is_finished()
        {
            if self.keep_pace(merge, writer.usual)? {
                return Ok(());
            }
            has_waited = true;
            let start = Instant::now();
            self.wait_for_merge(writer)?;
            self.counters
                .merge_wait_ns
                .add(start.elapsed().as_nanos() as u64);
        }
        self.wait_for_merge(writer)?;
        match self.is_merge_due() {
            true => {
                // One that is waited for is not gentle, nor the next.
                writer.is_hurried = has_waited;
                self.freeze(writer, 0)
            }
            false => Ok(()),
        }
    }

    /// Waits until no merge is under way. A failed merge poisons the engine.
    pub(crate) fn wait_for_merge(&self, writer: &mut Writer) -> Result<(), StateError> {
        let Some(job) = writer.merge.take() else {
            return Ok(());
        };
        // Somebody waits: as fast as can be.
        self.pages.segments.pace().set_gentle(false);
        let panicked = |_| StateError::Poisoned("the merging thread panicked".to_owned());
        self.poison(job.thread.join().map_err(panicked).flatten())
    }

    /// Makes the head's ancestor `keep` layers below it the base, and starts merging all up to
    /// it. No merge may be under way.
    ///
    /// Of the layers above it those stay that are on the way to the head or not committed. All
    /// others can be brought back from the log.
    pub(crate) fn freeze(
        self: &Arc<Self>,
        writer: &mut Writer,
        keep: usize,
    ) -> Result<(), StateError> {
        self.check_sound()?;
        let bytes = self.layer_bytes();
        let parts_before = self.counters.merge_parts.get();
        let mut delta = self.delta.lock();
        let (target, head, stay, way) = {
            let current = self.current.read();
            let tree = &current.tree;
            let mut chain = tree.chain(tree.head().id);
            let mut stay: HashSet<_> = chain.by_ref().take(keep).map(|layer| layer.id).collect();
            let Some(target) = chain.next().cloned() else {
                return Ok(());
            };
            if target.id == tree.root().id {
                return Ok(());
            }
            stay.extend(self.uncommitted(tree)?);
            (
                target.clone(),
                tree.head().block,
                stay,
                delta.way_to(tree, target.id),
            )
        };
        // All that the log has up to its present end is in the layers, or in what is recent.
        self.poison(self.log.sync())?;
        let replay = self.log.end();
        let window = Window {
            base: target.block.number,
            head: head.number,
            heights: self.options.unfinalized_blocks as u64,
        };
        let base_move = self.blocks.plan_move(target.block, window)?;
        delta.take_way(&way, target.id)?;
        let intermediate = Arc::new(Intermediate {
            block: target.block,
            parent_hash: target.parent_hash,
            state_root: target.state_root,
            lineage: target.lineage.clone(),
            forest: delta.forest().clone(),
            overlay: self.current.read().overlay.clone(),
        });
        let base = Arc::new(Base {
            snapshot: delta.base().snapshot.clone(),
            intermediate: Some(intermediate.clone()),
        });
        *delta = Delta::on(base.clone(), target.id, self.counters.clone())?;
        let log = LogState {
            head: head.hash,
            replay,
            recent: base_move.recent(),
        };
        self.blocks.move_base(base_move);
        let old = {
            let mut current = self.current.write();
            let tree = current.tree.cut(
                target.id,
                |layer| stay.contains(&layer.id),
                |block| self.blocks.chain_of(block).is_ok(),
            );
            let overlay = Overlay::new();
            for layer in tree.above_root() {
                overlay.insert(layer.id, &layer.changes);
            }
            let new = Current {
                base: base.clone(),
                overlay: Arc::new(overlay),
                unlogged_jumps: tree.jumps().collect(),
                tree,
            };
            std::mem::replace(&mut *current, new)
        };
        drop(delta);
        let inner = self.clone();
        let run = move || {
            pool::lower_priority();
            // Much memory, and nobody waits here.
            drop(old);
            inner.run_merge(&base, &intermediate, log)
        };
        self.pages.segments.pace().set_gentle(!writer.is_hurried);
        let thread = thread::Builder::new()
            .name("cambium-merge".to_owned())
            .spawn(run);
        let thread = self.poison(thread.map_err(|error| {
            StateError::Poisoned(format!("no thread to merge in could be started: {error}"))
        }))?;
        writer.merge = Some(MergeJob {
            thread,
            bytes,
            parts_before,
        });
        Ok(())
    }

    /// The layers that are not in the log.
    fn uncommitted(&self, tree: &Tree) -> Result<Vec<LayerId>, StateError> {
        let mut found = Vec::new();
        for layer in tree.above_root() {
            if self.blocks.position_of(layer.block)?.is_none() {
                found.push(layer.id);
            }
        }
        Ok(found)
    }

    fn run_merge(
        &self,
        base: &Arc<Base>,
        intermediate: &Arc<Intermediate>,
        log: LogState,
    ) -> Result<(), StateError> {
        let start = Instant::now();
        let old = &base.snapshot;
        let cleaning = Cleaning::of(&self.pages.segments.live(), &self.retired.lock().pages);
        let is_too_large = !old.index.fits(self.options.index_bytes_max());
        let (disk, parts) = (self.disk.clone(), self.parts.clone());
        let pace = self.pages.segments.pace().clone();
        let files = old.index.files();
        let index = match is_too_large || files.is_whole_due() {
            true => IndexWriter::whole(disk, pace, parts, Some(files), is_too_large)?,
            false => IndexWriter::changes(disk, pace, parts, &old.index)?,
        };
        let merged = merge(old, &intermediate.forest, &cleaning, &index)?;
        self.counters.pages_written.add(merged.pages_written);
        self.counters.pages_split.add(merged.pages_split);
        self.counters.pages_joined.add(merged.pages_joined);
        self.counters.pages_dead.add(merged.dead.len() as u64);
        // A checkpoint relies on the index of the blocks that it covers.
        self.blocks.extend_index()?;
        let state = CheckpointState {
            block: intermediate.block,
            parent_hash: intermediate.parent_hash,
            state_root: intermediate.state_root,
        };
        let mut retired = self.retired.lock();
        let index =
            self.write_checkpoint(&mut retired, index.finish()?, state, log, merged.dead)?;
        self.divide_budget(index.reserved_bytes(self.options.index_bytes_max()));
        let snapshot = Arc::new(Snapshot {
            block: state.block,
            state_root: state.state_root,
            index,
            pages: self.pages.clone(),
            entries: old.entries.after(intermediate),
        });
        retired.snapshots.push(Arc::downgrade(old));
        drop(retired);
        let new = Arc::new(Base {
            snapshot,
            intermediate: None,
        });
        let mut delta = self.delta.lock();
        delta.rebase(new.clone());
        self.current.write().base = new;
        drop(delta);
        self.log.prepare_next(self.pages.segments.pace())?;
        self.counters.merges.add(1);
        self.counters
            .merge_ns
            .add(start.elapsed().as_nanos() as u64);
        Ok(())
    }

    /// Writes the rest of the checkpoint of `state`, which does not name the pages `dead` any more,
    /// and gives its index. The pages that only the checkpoint before the newest names are dead
    /// from now on: it goes.
    fn write_checkpoint(
        &self,
        retired: &mut Retired,
        index: WrittenIndex,
        state: CheckpointState,
        log: LogState,
        dead: Vec<PageAddr>,
    ) -> Result<Index, StateError> {
        for addr in std::mem::replace(&mut retired.pages, dead) {
            self.pages.segments.mark_dead(addr);
        }
        let dead = &retired.pages;
        let (index, bytes) = checkpoint::write(index, &self.pages, &self.codes, state, log, dead)?;
        self.counters.checkpoint_bytes_written.add(bytes);
        retired.snapshots.retain(|older| older.strong_count() > 0);
        // Views of older snapshots may still read what is dead now.
        if retired.snapshots.is_empty() {
            self.pages.segments.remove_dead(|_| true)?;
        }
        Ok(index)
    }
}
