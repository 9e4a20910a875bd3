//! Background merges: the layers up to the head are frozen and become pages.
//!
//! ```text
//!   idle -> freezing    the layers are separated from those that stay   merge_if_due, merge_now
//!        -> merging     pages, index, checkpoint                         run_merge
//!        -> finishing   their memory is free; the log's next file is prepared
//!        -> idle, or freezing again if the next merge is due before that file is prepared
//! ```
//!
//! Each merge runs on its own thread. Commits never wait for it. Blocks wait for memory before they
//! are sealed, and only until there is enough ([`pacing`](crate::write::pacing)).

use crate::engine::merging::{LastMerge, MergeJob, Phase};
use crate::{
    engine::{layers::Current, parts::Engine},
    layers::{
        overlay::LayerId,
        tree::{Layer, Tree},
    },
    log::{
        blocks::UnfinalizedRange,
        log_state::{LayeredRoots, LogState},
    },
    tries::{
        base::{Base, Intermediate},
        delta::{Delta, LockedDelta},
    },
    values::{LongValues, lowest_segment},
};
use cambium_disk::WritePace;
use cambium_primitives::BlockId;
use cambium_snapshot::{
    Cleaning, Index, IndexWriter, RETRY_PAUSES, Reclaimer, Snapshot, StateError, WrittenIndex,
    checkpoint,
    checkpoint::{CheckpointState, RetiredPages},
    merge, pool, retry_transient,
};
use cambium_store::{PageAddr, live_readers};
use parking_lot::MutexGuard;
use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    thread,
    time::Instant,
};

/// Number of layers at which a merge starts, however small they are: opening the database replays
/// them one by one.
const LAYERS_MAX: usize = 4096;

/// The tries moved to a layer, with the locks that keep them and the head in place.
type TriesAt<'a> = (LockedDelta<'a>, MutexGuard<'a, ()>, Arc<Layer>);

/// The layers of a merge, frozen.
struct Frozen {
    base: Arc<Base>,
    intermediate: Arc<Intermediate>,
    log: LogState,
    /// The state that views were made from; dropped on the merge's thread, since that takes time.
    old: Current,
}

impl Engine {
    /// Whether the layers that are not being merged take enough memory for a merge.
    fn is_merge_due(&self) -> bool {
        self.layers.bytes() > self.merging.limit.due()
            || self.value_merges_behind() > 0
            || self.layers.current.read().tree.len() > LAYERS_MAX
    }

    /// Number of merges that would be due for the long values written since the newest one began.
    pub(super) fn value_merges_behind(&self) -> u64 {
        let bytes_max = self.options.files.value_segment_bytes_max;
        let values = self.store.values.as_ref();
        values.map_or(0, |values| values.bytes_since_merge() / bytes_max.max(1))
    }

    /// Starts a merge if one is due and none is under way.
    pub(crate) fn merge_if_due(self: &Arc<Self>) {
        if self.is_merge_due() {
            self.start_merge(0);
        }
    }

    /// Merges all but the newest `keep` blocks of the head's chain. Returns when a durable
    /// checkpoint has them.
    pub(crate) fn merge_now(self: &Arc<Self>, keep: usize) -> Result<(), StateError> {
        // The caller waits, so the merge writes at full speed.
        let hurry = || self.store.pages.segments.pace().set_gentle(false);
        let number = loop {
            hurry();
            self.merging.wait_until_free();
            self.health.check()?;
            if let Some(number) = self.start_merge(keep) {
                break number;
            }
        };
        hurry();
        self.merging.wait_until_ended(number);
        self.health.check()
    }

    /// Waits until all merges that are under way have ended.
    pub(crate) fn wait_for_merge(&self) -> Result<(), StateError> {
        let newest = self.merging.state().begun;
        self.merging.wait_until_ended(newest);
        self.health.check()
    }

    /// Prepares the log's next file, or begins it, on a background thread, if that is due. A failure poisons the
    /// engine; a thread that can't be started does not, since a merge or a commit does the same.
    pub(crate) fn prepare_log_if_due(self: &Arc<Self>) {
        if !self.journal.log.wants_next() || !self.merging.begin_preparing() {
            return;
        }
        let inner = self.clone();
        // At the priority of callers: a commit may wait for it, and it waits for the disk most of the time.
        let run = move || {
            let prepared = catch_unwind(AssertUnwindSafe(|| {
                let log = &inner.journal.log;
                log.preallocate_next(&WritePace::gentle())?;
                log.begin_prepared()
            }));
            let panicked = |_| {
                Err(StateError::Poisoned(
                    "preparing the log panicked".to_owned(),
                ))
            };
            let prepared = prepared.map_or_else(panicked, |done| done.map_err(StateError::from));
            let _ = inner.health.poison(prepared);
            let merging = inner.merging.clone();
            // A caller that waits may open the database again at once.
            drop(inner);
            merging.end_preparing();
        };
        let thread = thread::Builder::new().name("cambium-log".to_owned());
        if thread.spawn(run).is_err() {
            self.merging.end_preparing();
        }
    }

    /// Starts a merge and returns its number, or `None` if another one still has layers to merge. A
    /// merge that fails, or can't be started, poisons the engine.
    pub(crate) fn start_merge(self: &Arc<Self>, keep: usize) -> Option<u64> {
        let number = self.merging.begin()?;
        let inner = self.clone();
        let run = move || {
            pool::lower_priority();
            // Shared state is behind locks, and a panic poisons the engine.
            let merged = catch_unwind(AssertUnwindSafe(|| inner.merge(keep)));
            let panicked = |_| Err(StateError::Poisoned("a merge panicked".to_owned()));
            let _ = inner.health.poison(merged.unwrap_or_else(panicked));
            let merging = inner.merging.clone();
            // A caller that waits may open the database again at once.
            drop(inner);
            merging.end(number);
        };
        let thread = thread::Builder::new().name("cambium-merge".to_owned());
        if let Err(error) = thread.spawn(run) {
            let what = format!("the thread of a merge could not be started: {error}");
            let _ = self.health.poison(Err::<(), _>(StateError::Poisoned(what)));
            self.merging.end(number);
        }
        Some(number)
    }

    /// Freezes the layers, merges them, and prepares the log's next file.
    fn merge(&self, keep: usize) -> Result<(), StateError> {
        self.health.check()?;
        let head = self.layers.current.read().tree.head().block.number;
        self.journal.scan_old_files(head);
        if let Some(values) = &self.store.values {
            values.merge_begins();
            // The checkpoint lists what is durable.
            self.health.poison(values.segments.sync())?;
        }
        let Some(frozen) = self.freeze(keep)? else {
            return Ok(());
        };
        let Frozen {
            base,
            intermediate,
            log,
            old,
        } = frozen;
        drop(old);
        let (start, block) = (Instant::now(), intermediate.block);
        let _span = tracing::debug_span!("merge", %block).entered();
        tracing::debug!(%block, "merging blocks into pages");
        let counters = &self.store.counters;
        let written = || {
            [
                counters.pages_written.get(),
                counters.pages_moved.get(),
                self.store.pages.segments.bytes_written(),
            ]
        };
        let before = written();
        self.run_merge(&base, &intermediate, log)?;
        let seconds = start.elapsed().as_secs_f64();
        let after = written();
        self.merging.note(LastMerge {
            block,
            blocks: block.number.abs_diff(base.snapshot.block.number),
            seconds,
            pages_written: after[0] - before[0],
            pages_moved: after[1] - before[1],
            page_bytes: after[2] - before[2],
        });
        tracing::info!(%block, seconds, "merged blocks into pages, with a checkpoint");
        drop((base, intermediate));
        // Before the next merge can begin, whose checkpoint lists the segments that are there.
        self.remove_values()?;
        self.merging.set(Phase::Finishing);
        Ok(self
            .journal
            .log
            .preallocate_next(self.store.pages.segments.pace())?)
    }

    /// Makes the head's ancestor `keep` layers below it the base. `None` if it is the base already.
    ///
    /// Layers between the new base and the head stay, and so do layers that are not committed. All
    /// others can be restored from the log.
    fn freeze(&self, keep: usize) -> Result<Option<Frozen>, StateError> {
        let bytes = self.layers.bytes();
        let parts_before = self.store.counters.merge_parts.get();
        let Some((mut delta, writer, target)) = self.take_tries_to_target(keep)? else {
            return Ok(None);
        };
        // Every record up to here is in the layers, or among the recent blocks.
        let synced = self.health.poison(self.journal.log.sync())?;
        let replay = self.journal.replaying.lock().unwrap_or(synced);
        let in_memory = self.layers.current.read().tree.head().block;
        // A checkpoint has to name the head that the log names.
        let target_head = *self.journal.target_head.lock();
        let range = UnfinalizedRange {
            base: target.block.number,
            head: in_memory.number,
            heights: self.options.unfinalized_blocks as u64,
            target_head,
            // A later record may undo the finality that a replay finds.
            finalized: match self.journal.replaying.lock().is_some() {
                true => None,
                false => self.journal.finality.lock().finalized,
            },
        };
        let base_move = retry_transient(|| self.journal.blocks.plan_move(target.block, range))?;
        let intermediate = Arc::new(Intermediate {
            block: target.block,
            parent_hash: target.parent_hash,
            trie_root: delta.tries()?.root(),
            ancestors: target.ancestors.clone(),
            tries: delta.tries()?.clone(),
            overlay: self.layers.current.read().overlay.clone(),
        });
        let base = Arc::new(Base {
            snapshot: delta.base().snapshot.clone(),
            intermediate: Some(intermediate.clone()),
        });
        let new_delta = Delta::on(base.clone(), target.id, self.store.counters.clone())?;
        let mut log = LogState {
            head: target_head.unwrap_or(in_memory),
            replay,
            recent: base_move.recent(),
            kept: self.journal.plan_kept(&base_move, in_memory),
            finality: *self.journal.finality.lock(),
            values: Vec::new(),
            layered: self.layered_roots(&target, in_memory),
        };
        // Views don't wait while layers are folded and the overlay is filled. If a layer is
        // restored meanwhile, the version of the tree has changed, and the cut is repeated.
        let mut prepared = Some((base_move, new_delta));
        let old = loop {
            let (tree, version) = {
                let current = self.layers.current.read();
                (current.tree.clone(), current.tree.version())
            };
            let stays = |block| match &prepared {
                Some((base_move, _)) => self.journal.blocks.stays(base_move, block),
                None => Ok(false),
            };
            let new = retry_transient(|| self.cut(&tree, target.id, base.clone(), stays))?;
            let mut current = self.layers.current.write();
            if current.tree.version() == version
                && let Some((base_move, new_delta)) = prepared.take()
            {
                self.journal.blocks.move_base(base_move);
                *delta = new_delta;
                break std::mem::replace(&mut *current, new);
            }
        };
        if let Some(values) = &self.store.values {
            let way = old.tree.chain(target.id).collect();
            self.merge_values(values, &old.tree, way);
            let pinned_from = self.values_pinned_from(values);
            log.values = values.plan_checkpoint(pinned_from);
            // If all blocks are kept, their reverts need every value.
            if self.options.keep_blocks.is_some() {
                let (segments, unkept) = (&values.segments, log.kept.number);
                values.cleaning.choose(segments, unkept, pinned_from);
            }
        }
        drop((writer, delta));
        self.merging.set(Phase::Merging(MergeJob {
            bytes,
            parts_before,
        }));
        Ok(Some(Frozen {
            base,
            intermediate,
            log,
            old,
        }))
    }

    /// Counts the values that a merge of the layers on `way` brings into the state and replaces. `way`
    /// leads from the target to the root of the tree `old`, and the current tree begins at the target.
    /// Values of other layers that are gone are kept for as long as their blocks.
    fn merge_values(&self, values: &LongValues, old: &Tree, way: Vec<&Arc<Layer>>) {
        let root = old.root();
        let merged: HashSet<_> = way.iter().map(|layer| layer.id).collect();
        for layer in way.into_iter().rev().filter(|layer| layer.id != root.id) {
            // The checkpoint before this one refers to the replaced values, also where the head is below its block by
            // now.
            let until = layer.block.number.max(root.block.number.saturating_add(1));
            values.merge_block(&layer.changes, &layer.reverts, until);
        }
        let current = self.layers.current.read().tree.clone();
        for layer in old.above_root() {
            if !merged.contains(&layer.id) && current.by_hash(&layer.block.hash).is_none() {
                values.keep_for(&layer.changes, &layer.reverts, layer.block.number);
            }
        }
    }

    /// The first segment to which layers, or blocks that have no layer yet, may refer.
    fn values_pinned_from(&self, values: &LongValues) -> u32 {
        let pinned = values.first_pinned();
        let layers = self.layers.current.read().tree.above_root();
        let segments = layers
            .iter()
            .filter_map(|layer| lowest_segment(&layer.changes));
        segments.fold(pinned, u32::min)
    }

    /// Removes unneeded segments of values.
    fn remove_values(&self) -> Result<(), StateError> {
        let Some(values) = &self.store.values else {
            return Ok(());
        };
        let removed = values.remove_unneeded(self.values_pinned_from(values))?;
        let newest = {
            let current = self.layers.current.read();
            current.base.snapshot.index.files().sequence()
        };
        let mut reclaim = self.store.reclaim.lock();
        for one in removed {
            if let Some(file) = one.file {
                reclaim.lent.add(newest, one.bytes, file);
            }
        }
        self.settle_lent(&mut reclaim, newest);
        Ok(())
    }

    /// Frees the space of removed files that no other process reads. If the readers are not known,
    /// all files stay lent.
    fn settle_lent(&self, reclaim: &mut Reclaimer, newest: u64) {
        if !reclaim.lent.is_empty()
            && let Ok(readers) = live_readers(&*self.store.disk)
        {
            let lag_max = self.options.reader_lag;
            reclaim.lent.settle(&readers, newest, lag_max);
        }
    }

    /// Locks the tries and moves them to the head's ancestor `keep` layers below it, then locks the
    /// log, so that the ancestor stays one of the head. `None` if it is the base.
    fn take_tries_to_target(&self, keep: usize) -> Result<Option<TriesAt<'_>>, StateError> {
        let mut pauses = RETRY_PAUSES.iter();
        // Roots wait from here on; commits wait only once the log is locked.
        let mut delta = self.layers.delta.lock();
        loop {
            let target = {
                let current = self.layers.current.read();
                let tree = &current.tree;
                let mut chain = tree.chain(tree.head().id).skip(keep);
                let Some(target) = chain.next().cloned() else {
                    return Ok(None);
                };
                if target.id == tree.root().id {
                    return Ok(None);
                }
                target
            };
            let mut move_there = || {
                self.stop_at_boundaries(&mut delta, &target)?;
                let path = delta.path_to(&self.layers.current.read().tree, target.id);
                delta.move_along(&path, target.id)
            };
            let moved = match self.layered {
                // The tries are far behind, and no root waits for them.
                Some(_) => pool::in_background(move_there),
                None => move_there(),
            };
            match moved {
                // The tries are at the base again, and nothing was moved.
                Err(error) if error.is_transient() => {
                    let Some(pause) = pauses.next() else {
                        return Err(error);
                    };
                    drop(delta);
                    thread::sleep(*pause);
                    delta = self.layers.delta.lock();
                    continue;
                }
                taken => taken?,
            }
            let writer = self.journal.writer.lock();
            // The head may have changed before the log was locked.
            let current = self.layers.current.read();
            let tree = &current.tree;
            if tree
                .chain(tree.head().id)
                .any(|layer| layer.id == target.id)
            {
                drop(current);
                return Ok(Some((delta, writer, target)));
            }
        }
    }

    /// Roots of the `layered` commitment for a checkpoint of `target`, if the chain has it.
    fn layered_roots(&self, target: &Layer, head: BlockId) -> Option<LayeredRoots> {
        let layered = self.layered.as_ref()?;
        let oldest = head.number.min(target.block.number);
        let oldest = oldest.saturating_sub(self.options.unfinalized_blocks as u64);
        let lowest = layered.intervals.snapshot_of(oldest);
        Some(LayeredRoots {
            state_root: target.state_root,
            snapshots: layered.roots.prune(self.journal.genesis.number, lowest),
        })
    }

    /// Cuts the tree at its layer `root`, whose state is `base`. The layers that lead to the head
    /// stay, and so do those that are not committed, provided that the block they are built on
    /// `stays`.
    fn cut(
        &self,
        tree: &Tree,
        root: LayerId,
        base: Arc<Base>,
        stays: impl Fn(BlockId) -> Result<bool, StateError>,
    ) -> Result<Current, StateError> {
        let chain = tree.chain(tree.head().id);
        let mut stay: HashSet<_> = chain
            .take_while(|layer| layer.id != root)
            .map(|layer| layer.id)
            .collect();
        stay.extend(self.uncommitted(tree)?);
        let cut = tree.cut(root, |layer| stay.contains(&layer.id), stays)?;
        Ok(Current {
            base,
            overlay: Arc::new(cut.overlay()),
            tree: cut,
        })
    }

    /// Drops the layers that a merge would drop, when there is nothing to merge.
    pub(crate) fn drop_branches(&self) -> Result<(), StateError> {
        let mut delta = self.layers.delta.lock();
        let _writer = self.journal.writer.lock();
        loop {
            let (tree, base) = {
                let current = self.layers.current.read();
                (current.tree.clone(), current.base.clone())
            };
            let stays = |block| match self.journal.blocks.chain_of(block) {
                Err(StateError::UnknownBlock(_)) => Ok(false),
                chain => chain.map(|_| true),
            };
            let new = self.cut(&tree, tree.root().id, base, stays)?;
            if new.tree.len() == tree.len() {
                return Ok(());
            }
            let mut current = self.layers.current.write();
            if current.tree.version() == tree.version() {
                delta.reset();
                let old = std::mem::replace(&mut *current, new);
                drop(current);
                if let Some(values) = &self.store.values {
                    self.merge_values(values, &old.tree, Vec::new());
                }
                self.layers.note_pinned(&old.overlay);
                return Ok(());
            }
        }
    }

    /// The layers whose blocks are not in the log.
    fn uncommitted(&self, tree: &Tree) -> Result<Vec<LayerId>, StateError> {
        let mut found = Vec::new();
        for layer in tree.above_root() {
            if self.journal.blocks.position_of(layer.block)?.is_none() {
                found.push(layer.id);
            }
        }
        Ok(found)
    }

    /// Merges frozen layers into pages, writes the checkpoint, and installs the new base.
    fn run_merge(
        &self,
        base: &Arc<Base>,
        intermediate: &Arc<Intermediate>,
        log: LogState,
    ) -> Result<(), StateError> {
        let start = Instant::now();
        let old = &base.snapshot;
        let cleaning = Cleaning::of(
            &self.store.pages.segments.live(),
            self.store.reclaim.lock().retired(),
            &self.store.pages.unreadable_segments(),
        );
        let is_too_large = !old.index.fits(self.options.index_bytes_max());
        let (disk, parts) = (self.store.disk.clone(), self.store.parts.clone());
        let pace = self.store.pages.segments.pace().clone();
        let files = old.index.files();
        let index = match (is_too_large, files.is_whole_due()) {
            (true, _) => {
                let pages = self.store.pages.clone();
                IndexWriter::in_segments(disk, pages, parts, &old.index)?
            }
            (false, true) => IndexWriter::whole(disk, pace, parts, Some(files), false)?,
            (false, false) => IndexWriter::changes(disk, pace, parts, &old.index)?,
        };
        let tries = &intermediate.tries;
        let completed = |shard| tries.completed(shard);
        let merged = merge(old, tries.shards(), &completed, &cleaning, &index)?;
        self.store.counters.pages_written.add(merged.pages_written);
        self.store.counters.pages_split.add(merged.pages_split);
        self.store.counters.pages_joined.add(merged.pages_joined);
        self.store.counters.pages_dead.add(merged.dead.len() as u64);
        // The checkpoint relies on the block index for the blocks that it covers.
        self.journal.blocks.extend_index()?;
        let state = CheckpointState {
            block: intermediate.block,
            parent_hash: intermediate.parent_hash,
            state_root: intermediate.trie_root,
        };
        let mut dead_parts = merged.dead_parts;
        if index.is_whole() {
            dead_parts.extend(old.index.parts_in_segments());
        }
        let dead = merged.dead;
        let retired = [&dead[..], &dead_parts].concat();
        let index = self.write_checkpoint(old, index.finish()?, state, log, retired)?;
        self.divide_budget(index.reserved(self.options.index_bytes_max()));
        let snapshot = Arc::new(Snapshot {
            block: state.block,
            state_root: state.state_root,
            index,
            pages: self.store.pages.clone(),
            value_cache: old
                .value_cache
                .after(|visit| intermediate.overlay.each(&intermediate.ancestors, visit)),
        });
        let new = Arc::new(Base {
            snapshot,
            intermediate: None,
        });
        let mut delta = self.layers.delta.lock();
        delta.rebase(new.clone());
        self.layers.current.write().base = new;
        drop(delta);
        // Blocks have read them until now.
        dead.iter().for_each(|addr| self.store.pages.forget(*addr));
        let parts = &self.store.parts;
        dead_parts.iter().for_each(|addr| parts.forget(*addr));
        let tries = intermediate.tries.memory_bytes();
        let kept = (Arc::downgrade(&intermediate.tries) as Weak<_>, tries);
        self.layers.pinned.lock().push(kept);
        self.layers.note_pinned(&intermediate.overlay);
        self.forget_prover();
        self.store.counters.merges.add(1);
        self.store
            .counters
            .merge_ns
            .add(start.elapsed().as_nanos() as u64);
        Ok(())
    }

    /// Finishes the checkpoint of `state`, which no longer names the pages and parts `dead`, and returns its
    /// index. Pages that only the oldest of three checkpoints named are dead then, since that one
    /// is removed.
    fn write_checkpoint(
        &self,
        old: &Arc<Snapshot>,
        index: WrittenIndex,
        state: CheckpointState,
        log: LogState,
        dead: Vec<PageAddr>,
    ) -> Result<Index, StateError> {
        let _span = tracing::debug_span!("checkpoint", block = %state.block).entered();
        // Only this merge changes it.
        let retired_before = self.store.reclaim.lock().retired().to_vec();
        let kept = log.kept;
        let (index, bytes) = checkpoint::write(
            index,
            &self.store.pages,
            &self.store.codes,
            &self.journal.manifest,
            state,
            log,
            RetiredPages {
                now: &dead,
                before: &retired_before,
            },
        )?;
        self.store.counters.checkpoint_bytes_written.add(bytes);
        let newest = index.files().sequence();
        if let Some(values) = &self.store.values {
            let before = self.journal.keeping.lock().newest();
            values.checkpoint_written(before.number, old);
        }
        for one in self.journal.remove_unkept(kept)? {
            self.store
                .reclaim
                .lock()
                .lent
                .add(newest, one.bytes, one.file);
        }
        let segments = &self.store.pages.segments;
        let mut reclaim = self.store.reclaim.lock();
        reclaim.advance(old, dead, segments);
        let removed = segments.remove_dead(|segment| !reclaim.is_needed(segment))?;
        let numbers: Vec<_> = removed.iter().map(|one| one.number).collect();
        reclaim.forget(&numbers);
        self.store.pages.forget_segments(&numbers);
        self.store.parts.forget_segments(&numbers);
        for one in removed {
            if let Some(file) = one.file {
                reclaim.lent.add(newest, one.bytes, file);
            }
        }
        self.settle_lent(&mut reclaim, newest);
        Ok(index)
    }
}
