//! Freezing the layers and merging them in the background, so that no commit waits for a merge
//! that keeps up.

use crate::{
    base::{Base, Intermediate, Snapshot},
    checkpoint,
    commit::LogWriter,
    db::{Current, Inner},
    delta::Delta,
    error::StateError,
    merge::merge,
    overlay::Overlay,
};
use cambium_store::{LogPosition, PageAddr};
use std::{
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Instant,
};

/// A merge under way.
pub(crate) struct MergeJob {
    thread: JoinHandle<Result<(), StateError>>,
}

/// What merges left behind that may still be needed.
#[derive(Default)]
pub(crate) struct Retired {
    /// Pages that the newest checkpoint no longer names, but the one before it does.
    pub(crate) pages: Vec<PageAddr>,
    /// Earlier snapshots, which views may hold.
    pub(crate) snapshots: Vec<Weak<Snapshot>>,
}

impl Inner {
    /// Starts a merge if the layers take too much memory; waits for the one under way if they
    /// take far too much.
    pub(crate) fn freeze_if_large(self: &Arc<Self>, log: &mut LogWriter) -> Result<(), StateError> {
        let (bytes, max) = (self.layer_bytes(), self.options.layer_bytes_max());
        if bytes <= max {
            return Ok(());
        }
        if log
            .merge
            .as_ref()
            .is_some_and(|merge| !merge.thread.is_finished())
        {
            if bytes < 2 * max {
                return Ok(());
            }
            let start = Instant::now();
            self.wait_for_merge(log)?;
            self.counters
                .merge_wait_ns
                .add(start.elapsed().as_nanos() as u64);
        }
        self.wait_for_merge(log)?;
        // Half of the layers at most are kept back, so that large blocks can be merged as well.
        let keep = self
            .options
            .unfinalized_blocks
            .min(self.current.read().tree.len() / 2);
        self.freeze(log, keep)
    }

    /// Waits until no merge is under way. A failed merge poisons the engine.
    pub(crate) fn wait_for_merge(&self, log: &mut LogWriter) -> Result<(), StateError> {
        let Some(job) = log.merge.take() else {
            return Ok(());
        };
        let panicked = |_| StateError::Poisoned("the merging thread panicked".to_owned());
        self.poison(job.thread.join().map_err(panicked).flatten())
    }

    /// Makes the head's ancestor `keep` blocks below it the base, and starts merging all up to
    /// it. No merge may be under way.
    pub(crate) fn freeze(
        self: &Arc<Self>,
        log: &mut LogWriter,
        keep: usize,
    ) -> Result<(), StateError> {
        self.check_sound()?;
        let mut delta = self.delta.lock();
        let (target, way) = {
            let current = self.current.read();
            let mut chain = current.tree.chain(current.tree.head().id);
            let Some(target) = chain.nth(keep).cloned() else {
                return Ok(());
            };
            if target.id == current.tree.root().id {
                return Ok(());
            }
            let way = delta.way_to(&current.tree, target.id);
            (target, way)
        };
        let Some(position) = log.positions.get(&target.block.hash).copied() else {
            return Ok(());
        };
        delta.take_way(&way, target.id)?;
        // The checkpoint relies on the index of the blocks that it covers.
        let chain = self.current.read().tree.blocks_above_root(target.id);
        self.poison(log.extend_index(&chain))?;
        log.head_chain = log.head_chain.split_off(&(target.block.number + 1));

        let intermediate = Arc::new(Intermediate {
            block: target.block,
            parent_hash: target.parent_hash,
            state_root: target.state_root,
            lineage: target.lineage.clone(),
            forest: delta.forest().clone(),
            overlay: self.current.read().overlay.clone(),
        });
        let snapshot = delta.base().snapshot.clone();
        let base = Arc::new(Base {
            snapshot,
            intermediate: Some(intermediate.clone()),
        });
        *delta = Delta::on(base.clone(), target.id, self.counters.clone())?;
        {
            let mut current = self.current.write();
            let tree = current.tree.rooted_at(target.id);
            let overlay = Overlay::new();
            for layer in tree.above_root() {
                overlay.insert(layer.id, &layer.changes);
            }
            log.positions.retain(|hash, _| tree.by_hash(hash).is_some());
            log.rewound.retain(|hash, _| tree.by_hash(hash).is_some());
            *current = Current {
                base: base.clone(),
                overlay: Arc::new(overlay),
                tree,
            };
        }
        drop(delta);
        let inner = self.clone();
        let run = move || inner.run_merge(&base, &intermediate, position);
        let thread = thread::Builder::new()
            .name("cambium-merge".to_owned())
            .spawn(run);
        let thread = self.poison(thread.map_err(|error| {
            StateError::Poisoned(format!("no thread to merge in could be started: {error}"))
        }))?;
        log.merge = Some(MergeJob { thread });
        Ok(())
    }

    fn run_merge(
        &self,
        base: &Arc<Base>,
        intermediate: &Arc<Intermediate>,
        position: LogPosition,
    ) -> Result<(), StateError> {
        let start = Instant::now();
        let old = &base.snapshot;
        let merged = merge(old, |shard| intermediate.forest.shard(shard))?;
        self.counters.pages_written.add(merged.pages_written);
        self.counters.page_bytes_written.add(merged.bytes_written);
        self.counters.pages_dead.add(merged.dead.len() as u64);
        let snapshot = Arc::new(Snapshot {
            block: intermediate.block,
            parent_hash: intermediate.parent_hash,
            state_root: intermediate.state_root,
            index: merged.index,
            pages: self.pages.clone(),
        });
        self.write_checkpoint(old, merged.dead, &snapshot, position)?;
        let new = Arc::new(Base {
            snapshot,
            intermediate: None,
        });
        let mut delta = self.delta.lock();
        delta.rebase(new.clone());
        self.current.write().base = new;
        drop(delta);
        self.counters.merges.add(1);
        self.counters
            .merge_ns
            .add(start.elapsed().as_nanos() as u64);
        Ok(())
    }

    /// Writes the checkpoint of `snapshot`. The pages that the merge before this one replaced are
    /// dead from now on: the checkpoint that named them is gone.
    fn write_checkpoint(
        &self,
        old: &Arc<Snapshot>,
        dead: Vec<PageAddr>,
        snapshot: &Snapshot,
        position: LogPosition,
    ) -> Result<(), StateError> {
        let mut retired = self.retired.lock();
        for addr in std::mem::take(&mut retired.pages) {
            self.pages.segments.mark_dead(addr);
        }
        let bytes = checkpoint::write(self, snapshot, position, &dead)?;
        self.counters.checkpoint_bytes_written.add(bytes);
        retired.pages = dead;
        retired.snapshots.retain(|older| older.strong_count() > 0);
        // Views of older snapshots may still read what is dead now.
        if retired.snapshots.is_empty() {
            self.pages.segments.remove_dead(|_| true)?;
        }
        retired.snapshots.push(Arc::downgrade(old));
        Ok(())
    }
}
