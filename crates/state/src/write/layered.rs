//! State roots under the `layered` commitment, and the jobs that compute the roots of snapshots.
//!
//! A block's root comes from the upper tries, which are in memory, and from the root of the state
//! after an earlier block, where an interval ended. That one is computed in the background, by the
//! tries above the base, from the first block of an interval on; it is needed when the next interval
//! begins. A merge whose pages would pass such a block computes its root on the way.

use crate::{
    engine::parts::Engine,
    layered::{parts::Layered, snapshot_roots::Claim},
    layers::tree::Layer,
    tries::delta::{Delta, as_bad_changes},
    view::state::View,
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, Changes, Path};
use cambium_snapshot::{StateError, pool};
use cambium_trie::net_changes;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Instant,
};

impl Engine {
    /// Computes the root after all `changes` of a session so far, which `reverts` undo.
    pub(crate) fn layered_root(
        self: &Arc<Self>,
        layered: &Layered,
        view: &View,
        owner: u64,
        changes: &Changes,
        reverts: &Changes,
    ) -> Result<B256, StateError> {
        let net = net_changes(changes, reverts).ok_or(StateError::Broken {
            path: Path::EMPTY,
            what: "the old value of a change",
        })?;
        let (roots, start, snapshot) = {
            let mut uppers = layered.lock();
            view.check_alive()?;
            let tries = self.uppers_at(layered, &mut uppers, view.block())?;
            let applied = tries.apply_uncommitted(owner, &net);
            applied.map_err(|error| as_bad_changes(error.into()))?;
            let roots = tries.roots(&self.store.counters);
            (roots, tries.start, tries.snapshot)
        };
        self.store.counters.roots.add(1);
        self.begin_snapshot_root(start);
        let waited = layered
            .roots
            .known(&snapshot.hash)
            .is_none()
            .then(Instant::now);
        let root = self.snapshot_root(snapshot)?;
        if let Some(start) = waited {
            let counters = &self.store.counters;
            counters.snapshot_root_waits.add(1);
            let taken = start.elapsed().as_nanos() as u64;
            counters.snapshot_root_wait_ns.add(taken);
        }
        Ok(roots.above(root))
    }

    /// Begins to compute the root of the state after `block` in the background, unless it is known
    /// or under way.
    fn begin_snapshot_root(self: &Arc<Self>, block: BlockId) {
        let Some(layered) = &self.layered else {
            return;
        };
        let Claim::Mine(job) = layered.roots.claim(block) else {
            return;
        };
        let inner = self.clone();
        let run = move || {
            pool::lower_priority();
            // Shared state is behind locks. Tries that a panic has left half changed are dropped.
            let compute = || pool::in_background(|| inner.compute_snapshot_root(block));
            let computed = catch_unwind(AssertUnwindSafe(compute));
            // A thread that waits for the job may open the database again at once.
            drop(inner);
            // A block that needs the root, and does not find it, tries again and reports the error.
            if let Ok(Ok(root)) = computed {
                job.end(root);
            }
        };
        let thread = thread::Builder::new().name("cambium-root".to_owned());
        // If the thread can't be started, the job is dropped with the closure.
        let _ = thread.spawn(run);
    }

    /// The root of the trie of the state after `block`, an ancestor of a block that is being built.
    pub(crate) fn snapshot_root(self: &Arc<Self>, block: BlockId) -> Result<B256, StateError> {
        let Some(layered) = &self.layered else {
            return Err(StateError::NotUnderMpt("the root of a snapshot"));
        };
        loop {
            match layered.roots.claim(block) {
                Claim::Known(root) => return Ok(root),
                Claim::Running => layered.roots.wait(&block.hash),
                Claim::Mine(job) => {
                    let root = self.compute_snapshot_root(block)?;
                    job.end(root);
                    return Ok(root);
                }
            }
        }
    }

    /// Waits until no root of a snapshot is being computed.
    pub(crate) fn wait_for_snapshot_roots(&self) {
        if let Some(layered) = &self.layered {
            layered.roots.wait_until_idle();
        }
    }

    fn compute_snapshot_root(self: &Arc<Self>, block: BlockId) -> Result<B256, StateError> {
        let start = Instant::now();
        self.health.check()?;
        let root = match self.root_of_layer(block)? {
            Some(root) => root,
            // A merge that passed the block has found the root. Restoring its state would only take memory.
            None => match self.known_snapshot_root(block) {
                Some(root) => root,
                None => self.root_of_old_state(block)?,
            },
        };
        let counters = &self.store.counters;
        counters.snapshot_roots.add(1);
        let taken = start.elapsed().as_nanos() as u64;
        counters.snapshot_root_ns.add(taken);
        Ok(root)
    }

    fn known_snapshot_root(&self, block: BlockId) -> Option<B256> {
        self.layered.as_ref()?.roots.known(&block.hash)
    }

    /// The root of the trie after a block of the tree, to which the tries above the base are moved.
    fn root_of_layer(self: &Arc<Self>, block: BlockId) -> Result<Option<B256>, StateError> {
        self.catch_up()?;
        let mut delta = self.layers.delta.lock();
        // A merge may have held the tries for long.
        if let Some(root) = self.known_snapshot_root(block) {
            return Ok(Some(root));
        }
        if self.is_overgrown(delta.memory_bytes()) {
            delta.reset();
        }
        let is_there = {
            let current = self.layers.current.read();
            let layer = current.tree.by_hash(&block.hash);
            layer.is_some_and(|layer| layer.block == block)
        };
        if !is_there {
            return Ok(None);
        }
        self.layers.move_to(&mut delta, block)?;
        Ok(Some(delta.tries()?.root()))
    }

    /// The root of the trie after a block that is not in memory.
    fn root_of_old_state(self: &Arc<Self>, block: BlockId) -> Result<B256, StateError> {
        match self.trie_view_of(block) {
            Ok(view) => self.with_tries(&view, |tries, _| Ok(tries.root())),
            // No block may be refused for want of memory that another node has.
            Err(StateError::TooFar { .. }) => loop {
                self.restore_layer(block, true)?;
                if let Some(root) = self.root_of_layer(block)? {
                    return Ok(root);
                }
            },
            Err(error) => Err(error),
        }
    }

    /// Moves the tries to each layer up to `target` at which an interval ends and whose root is not
    /// known, and notes the root: once the base is above it, it would have to be restored.
    pub(crate) fn stop_at_boundaries(
        &self,
        delta: &mut Delta,
        target: &Layer,
    ) -> Result<(), StateError> {
        let Some(layered) = &self.layered else {
            return Ok(());
        };
        let stops: Vec<_> = {
            let current = self.layers.current.read();
            let tree = &current.tree;
            let chain = tree.chain(target.id);
            let above = chain.take_while(|layer| layer.id != tree.root().id);
            let ends = above.filter(|layer| layered.intervals.is_boundary(layer.block.number));
            let unknown = ends.filter(|layer| layered.roots.known(&layer.block.hash).is_none());
            unknown.cloned().collect()
        };
        for layer in stops.iter().rev() {
            let path = delta.path_to(&self.layers.current.read().tree, layer.id);
            delta.move_along(&path, layer.id)?;
            layered.roots.put(layer.block, delta.tries()?.root());
        }
        Ok(())
    }
}
