//! The tree of blocks above the snapshot.
//!
//! ```text
//!   root (the base's block) -- 101 -- 102 -- 103   <- head
//!                                 \-- 102'         <- a side branch
//! ```
//!
//! Ids grow from parent to child. A layer may be sealed (in memory only) or committed.

use crate::{
    overlay::{LayerId, Lineage},
    records::BlockMeta,
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, Changes};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// A block above the base.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) id: LayerId,
    pub(crate) parent: LayerId,
    pub(crate) lineage: Lineage,
    pub(crate) block: BlockId,
    pub(crate) parent_hash: B256,
    pub(crate) state_root: B256,
    /// From the parent's state to this one's. Of no use at the root of the tree.
    pub(crate) changes: Changes,
    /// The way back.
    pub(crate) reverts: Changes,
}

/// All layers above the base, the base's own block as their root.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: LayerId,
    head: LayerId,
    next: u32,
    layers: HashMap<LayerId, Arc<Layer>>,
    by_hash: HashMap<B256, LayerId>,
}

impl Tree {
    /// The tree of one block, whose state is the base's.
    pub(crate) fn new(block: BlockId, parent_hash: B256, state_root: B256, id: LayerId) -> Self {
        let layer = Arc::new(Layer {
            id,
            parent: id,
            lineage: Lineage {
                newest: id,
                others: Arc::new([]),
            },
            block,
            parent_hash,
            state_root,
            changes: Changes::default(),
            reverts: Changes::default(),
        });
        Self {
            root: id,
            head: id,
            next: id.0 + 1,
            by_hash: [(block.hash, id)].into(),
            layers: [(id, layer)].into(),
        }
    }

    pub(crate) fn root(&self) -> &Arc<Layer> {
        &self.layers[&self.root]
    }

    pub(crate) fn head(&self) -> &Arc<Layer> {
        &self.layers[&self.head]
    }

    pub(crate) fn get(&self, id: LayerId) -> Option<&Arc<Layer>> {
        self.layers.get(&id)
    }

    pub(crate) fn by_hash(&self, hash: &B256) -> Option<&Arc<Layer>> {
        self.layers.get(self.by_hash.get(hash)?)
    }

    /// Number of layers above the root.
    pub(crate) fn len(&self) -> usize {
        self.layers.len() - 1
    }

    /// Adds a block on `parent`. Panics if the parent is not in the tree.
    pub(crate) fn add(
        &mut self,
        parent: LayerId,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
    ) -> Arc<Layer> {
        let id = LayerId(self.next);
        self.next += 1;
        let parent = &self.layers[&parent];
        let between = (parent.id.0 + 1..id.0)
            .map(LayerId)
            .filter(|id| self.layers.contains_key(id));
        let mut others: Vec<_> = parent
            .lineage
            .others
            .iter()
            .copied()
            .chain(between)
            .collect();
        others.sort_unstable();
        let others = if others.len() == parent.lineage.others.len() {
            parent.lineage.others.clone()
        } else {
            others.into()
        };
        let layer = Arc::new(Layer {
            id,
            parent: parent.id,
            lineage: Lineage { newest: id, others },
            block: meta.id,
            parent_hash: meta.parent,
            state_root: meta.state_root,
            changes,
            reverts,
        });
        self.layers.insert(id, layer.clone());
        self.by_hash.insert(meta.id.hash, id);
        layer
    }

    /// Takes a layer out. Its children must be gone.
    pub(crate) fn remove(&mut self, id: LayerId) {
        if let Some(layer) = self.layers.remove(&id)
            && self.by_hash.get(&layer.block.hash) == Some(&id)
        {
            self.by_hash.remove(&layer.block.hash);
        }
    }

    pub(crate) fn set_head(&mut self, id: LayerId) {
        assert!(
            self.layers.contains_key(&id),
            "the head must be in the tree"
        );
        self.head = id;
    }

    /// The layers from `layer` down to the root, both included, newest first.
    pub(crate) fn chain(&self, layer: LayerId) -> impl Iterator<Item = &Arc<Layer>> {
        let mut next = self.layers.get(&layer);
        std::iter::from_fn(move || {
            let layer = next?;
            next = if layer.id == self.root {
                None
            } else {
                self.layers.get(&layer.parent)
            };
            Some(layer)
        })
    }

    /// The blocks of the chain that ends in `layer`, above the root, in order. Where a block was
    /// brought back, those that it takes back are not among them.
    pub(crate) fn blocks_above_root(&self, layer: LayerId) -> Vec<BlockId> {
        let mut blocks: Vec<BlockId> = Vec::new();
        for layer in self.chain(layer).take_while(|layer| layer.id != self.root) {
            if blocks
                .last()
                .is_none_or(|above| layer.block.number < above.number)
            {
                blocks.push(layer.block);
            }
        }
        blocks.reverse();
        blocks
    }

    /// The newest layer that both are, or descend from. Both must be in the tree.
    pub(crate) fn common_ancestor(&self, a: LayerId, b: LayerId) -> LayerId {
        let (mut a, mut b) = (a, b);
        while a != b {
            // Ids grow from parent to child: the larger one can't be the ancestor.
            if a > b {
                a = self.layers[&a].parent
            } else {
                b = self.layers[&b].parent
            }
        }
        a
    }

    /// The changes that lead from the state of `from` to the state of `to`.
    pub(crate) fn way(&self, from: LayerId, to: LayerId) -> Changes {
        let fork = self.common_ancestor(from, to);
        let until = |layer: LayerId| {
            self.chain(layer)
                .take_while(|layer| layer.id != fork)
                .cloned()
                .collect::<Vec<_>>()
        };
        let down = until(from).into_iter().map(|layer| layer.reverts.clone());
        let up = until(to)
            .into_iter()
            .rev()
            .map(|layer| layer.changes.clone());
        fold(down.chain(up).collect())
    }

    /// The tree that starts at `root`: all that descends from it, under the same ids.
    pub(crate) fn rooted_at(&self, root: LayerId) -> Self {
        let ids: HashSet<_> = self.descendants(root).into_iter().collect();
        let head = if ids.contains(&self.head) {
            self.head
        } else {
            root
        };
        let by_hash = self.by_hash.iter().filter(|(_, id)| ids.contains(id));
        let layers = self.layers.iter().filter(|(id, _)| ids.contains(id));
        Self {
            root,
            head,
            next: self.next,
            by_hash: by_hash.map(|(hash, id)| (*hash, *id)).collect(),
            layers: layers.map(|(id, layer)| (*id, layer.clone())).collect(),
        }
    }

    /// `layer` and all that descends from it, parents before children.
    pub(crate) fn descendants(&self, layer: LayerId) -> Vec<LayerId> {
        let mut known: HashSet<_> = [layer].into();
        let mut found = vec![layer];
        for later in self.above_root() {
            if later.id > layer && known.contains(&later.parent) {
                known.insert(later.id);
                found.push(later.id);
            }
        }
        found
    }

    /// All layers but the root, parents before children.
    pub(crate) fn above_root(&self) -> Vec<Arc<Layer>> {
        let mut all: Vec<_> = self
            .layers
            .values()
            .filter(|layer| layer.id != self.root)
            .cloned()
            .collect();
        all.sort_unstable_by_key(|layer| layer.id);
        all
    }
}

/// Change sets one after another, as one. Pairwise, so that n sets of m keys cost n m log n.
pub(crate) fn fold(mut sets: Vec<Changes>) -> Changes {
    while sets.len() > 1 {
        let mut halved = Vec::with_capacity(sets.len().div_ceil(2));
        let mut rest = sets.into_iter();
        while let Some(first) = rest.next() {
            halved.push(match rest.next() {
                Some(second) => first.then(second),
                None => first,
            });
        }
        sets = halved;
    }
    sets.pop().unwrap_or_default()
}
