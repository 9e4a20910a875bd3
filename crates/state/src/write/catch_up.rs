//! What happens between the replay of the log and the first root.
//!
//! The tries are restored at the newest block whose references the log has, without a page, and a merge of all blocks up to
//! there begins in the background: only it reads their pages. Layers above that block, or all where the log has no
//! references, are merged in steps that fit into the memory, before the root is computed.

use crate::{
    engine::parts::Engine,
    layers::{
        overlay::LayerId,
        tree::{Layer, Tree},
    },
    log::references::References,
    tries::{restore::Segment, shards::TrieShards},
};
use alloy_primitives::{B256, map::B256Map};
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::StateError;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// Estimated memory of a change in the tries, its page included, in bytes.
const CHANGE_BYTES: usize = 3 << 10;

fn changes_of<'a>(layers: &[&'a Arc<Layer>]) -> Vec<&'a Changes> {
    let layers = layers.iter().copied();
    layers.map(|layer| &layer.changes).collect()
}

/// The way from the tree's root to the newest block of the head's chain that has references.
struct Way {
    to: LayerId,
    block: BlockId,
    state_root: B256,
    /// Number of layers between that block and the head.
    above: usize,
    /// The layers above the root, oldest first.
    layers: Vec<Arc<Layer>>,
    /// Their changes as one.
    changes: Changes,
}

impl Way {
    /// `None` if no layer of the head's chain has references, or one of its layers is no block.
    fn of(tree: &Tree, references: &B256Map<References>) -> Option<Self> {
        let root = tree.root().id;
        let chain = tree.chain(tree.head().id);
        let mut layers: Vec<_> = chain.take_while(|it| it.id != root).cloned().collect();
        let has_references = |layer: &Arc<Layer>| references.contains_key(&layer.block.hash);
        let above = layers.iter().position(has_references)?;
        layers.drain(..above);
        if layers.iter().any(|layer| tree.is_restored(layer)) {
            return None;
        }
        layers.reverse();
        let newest = layers.last()?;
        Some(Self {
            to: newest.id,
            block: newest.block,
            state_root: newest.state_root,
            above,
            changes: tree.changes_between(root, newest.id),
            layers,
        })
    }

    /// The layers in segments, each with its references. Blocks that no references cover are segments without.
    fn segments<'a>(&'a self, references: &'a B256Map<References>) -> Vec<Segment<'a>> {
        let (mut segments, mut open) = (Vec::new(), Vec::new());
        for layer in &self.layers {
            open.push(layer);
            let Some(known) = references.get(&layer.block.hash) else {
                continue;
            };
            let covered =
                open.partition_point(|layer: &&Arc<Layer>| layer.block.number <= known.after);
            let (without, with) = open.split_at(covered);
            segments.push(Segment {
                subtries: &[],
                blocks: changes_of(without),
            });
            segments.push(Segment {
                subtries: &known.subtries,
                blocks: changes_of(with),
            });
            open.clear();
        }
        segments
    }
}

impl Engine {
    /// The number of oldest layers to merge before tries are made of the others, and the number of
    /// all layers up to the head. The first is as many as one merge takes, or 0 if one set of tries
    /// can hold all layers.
    fn layers_behind(&self) -> (usize, usize) {
        let current = self.layers.current.read();
        let (head, root) = (current.tree.head().id, current.tree.root().id);
        let layers = current
            .tree
            .chain(head)
            .take_while(|layer| layer.id != root);
        let sizes: Vec<_> = layers
            .map(|layer| {
                let (accounts, slots) = layer.changes.counts();
                (accounts + slots) * CHANGE_BYTES
            })
            .collect();
        let max = self.merging.limit.due();
        if sizes.iter().sum::<usize>() <= max {
            return (0, sizes.len());
        }
        let mut bytes = 0;
        let fit = sizes.iter().rev().take_while(|size| {
            bytes += **size;
            bytes <= max
        });
        (fit.count().max(1), sizes.len())
    }

    /// Merges the layers that replay has left, in steps that fit into the memory.
    pub(crate) fn catch_up(self: &Arc<Self>) -> Result<(), StateError> {
        if !self.merging.is_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        let _one = self.merging.catching_up.lock();
        if !self.merging.is_behind.load(Ordering::Acquire) {
            return Ok(());
        }
        let start = Instant::now();
        self.restore_tries()?;
        loop {
            let (oldest, all) = self.layers_behind();
            if oldest == 0 {
                break;
            }
            let keep = all - oldest;
            // Pages for the next merge are read while the one before is under way.
            self.build_tries(keep)?;
            self.wait_for_merge()?;
            self.start_merge(keep);
            self.merging.wait_until_frozen();
            self.health.check()?;
        }
        let taken = start.elapsed().as_nanos() as u64;
        self.store.counters.catch_up_ns.add(taken);
        self.merging.is_behind.store(false, Ordering::Release);
        Ok(())
    }

    /// Restores the tries at the newest block whose references the log has, and freezes them for a merge. Does nothing if the
    /// log has none, or false ones: the tries are made from pages then.
    fn restore_tries(self: &Arc<Self>) -> Result<(), StateError> {
        let references = std::mem::take(&mut *self.merging.references.lock());
        if references.is_empty() {
            return Ok(());
        }
        // The replay itself may have begun one.
        self.wait_for_merge()?;
        let Some(above) = self.restore_from(&references) else {
            return Ok(());
        };
        self.start_merge(above);
        self.merging.wait_until_frozen();
        self.health.check()
    }

    /// Restores the tries from references. Returns the number of layers above the block where they are.
    fn restore_from(&self, references: &B256Map<References>) -> Option<usize> {
        let mut delta = self.layers.delta.lock();
        let way = Way::of(&self.layers.current.read().tree, references)?;
        let base = delta.base().clone();
        if base.intermediate.is_some() {
            return None;
        }
        let counters = &self.store.counters;
        let segments = way.segments(references);
        let restored = TrieShards::restored(&base, &segments, &way.changes, counters);
        let (block, expected) = (way.block, way.state_root);
        match restored {
            Ok(tries) if tries.root() == expected => {
                let unread = tries.unread().map_or(0, |unread| unread.count());
                tracing::info!(%block, unread, "tries restored from references in the block log");
                counters.subtries_restored.add(unread as u64);
                delta.put_restored(tries, way.to);
                Some(way.above)
            }
            Ok(tries) => {
                let got = tries.root();
                tracing::warn!(%block, %got, %expected, "references in the block log make another root: not used");
                counters.references_refused.add(1);
                None
            }
            // Catching up by pages meets the same error, or does not need what failed.
            Err(error) => {
                tracing::warn!(%block, %error, "references in the block log are not used");
                counters.references_refused.add(1);
                None
            }
        }
    }

    /// Moves the tries to the head's ancestor `keep` layers below it.
    fn build_tries(&self, keep: usize) -> Result<(), StateError> {
        let mut delta = self.layers.delta.lock();
        let (path, target) = {
            let current = self.layers.current.read();
            let tree = &current.tree;
            let mut chain = tree.chain(tree.head().id);
            let Some(target) = chain.nth(keep).map(|layer| layer.id) else {
                return Ok(());
            };
            (delta.path_to(tree, target), target)
        };
        delta.move_along(&path, target)
    }
}
