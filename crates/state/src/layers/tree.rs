//! The tree of blocks above the base.
//!
//! ```text
//!   root (the base's block) -- 101 -- 102 -- 103   <- head
//!                                 \-- 102'         <- a side branch
//! ```
//!
//! Ids grow from parent to child. A layer is either sealed, in memory only, or committed.
//!
//! A *restored layer* is a child of the root although its block is not a child of the root's block.
//! Its changes lead from the root's state directly to its own. It stands for an older block or one
//! of another branch, so that other blocks can be built on it.

use crate::{
    layers::overlay::{AncestorSet, LayerId, Overlay, size_of_changes},
    log::records::BlockMeta,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::StateError;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// A block above the base.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) id: LayerId,
    pub(crate) parent: LayerId,
    pub(crate) ancestors: AncestorSet,
    pub(crate) block: BlockId,
    pub(crate) parent_hash: B256,
    pub(crate) state_root: B256,
    /// Changes from the parent's state to this one's. Unused at the root of the tree.
    pub(crate) changes: Changes,
    /// Changes from this state back to the parent's.
    pub(crate) reverts: Changes,
    /// Whether the block was dropped. Shared with the layers that replace this one when the tree is
    /// cut.
    pub(crate) dropped: Arc<AtomicBool>,
    /// Number of changed leaves, those of this layer included, since the newest block below whose references the log has or
    /// will have. 0 for such a block.
    pub(crate) leaves_since_references: AtomicUsize,
}

/// Memory of a layer besides its values, in bytes: the block's id, its place in the tree and in the
/// chain.
const LAYER_BYTES: usize = 640;

impl Layer {
    /// Memory besides the values that [`size_of_changes`] estimates, in bytes.
    fn extra_bytes(&self) -> usize {
        let reverts = size_of_changes(&self.reverts);
        // `size_of_changes` assumes reverts as long as the changes; those of a wipe are longer.
        let longer = reverts.saturating_sub(size_of_changes(&self.changes));
        LAYER_BYTES + size_of_val(&*self.ancestors.others) + longer
    }

    /// Memory of the layer without its tries, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_changes(&self.changes) + self.extra_bytes()
    }

    /// Adds the layer's values to an overlay.
    pub(crate) fn put_into(&self, overlay: &Overlay) {
        overlay.insert(self.id, &self.changes, self.extra_bytes());
    }

    /// Removes the layer's values from an overlay.
    pub(crate) fn take_out_of(&self, overlay: &Overlay) {
        overlay.remove(self.id, &self.changes, self.extra_bytes());
    }

    /// Whether the block was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Marks the block as dropped, for all who hold the layer.
    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    /// Number of changed leaves since the newest references for the log, or more.
    pub(crate) fn leaves_since_references(&self) -> usize {
        self.leaves_since_references.load(Ordering::Relaxed)
    }

    /// Sets the number of changed leaves since the newest references for the log: 0 if this block has some.
    pub(crate) fn set_leaves_since_references(&self, leaves: usize) {
        self.leaves_since_references
            .store(leaves, Ordering::Relaxed);
    }

    fn meta(&self) -> BlockMeta {
        BlockMeta {
            id: self.block,
            parent: self.parent_hash,
            state_root: self.state_root,
            body: Bytes::new(),
        }
    }
}

/// All layers above the base, with the base's own block as the root.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: LayerId,
    head: LayerId,
    next: u64,
    layers: HashMap<LayerId, Arc<Layer>>,
    by_hash: HashMap<B256, LayerId>,
}

impl Tree {
    /// A tree of one block, whose state is the base's.
    pub(crate) fn new(block: BlockId, parent_hash: B256, state_root: B256, id: LayerId) -> Self {
        let layer = Arc::new(Layer {
            id,
            parent: id,
            ancestors: AncestorSet {
                newest: id,
                others: Arc::new([]),
            },
            block,
            parent_hash,
            state_root,
            changes: Changes::default(),
            reverts: Changes::default(),
            dropped: Arc::default(),
            leaves_since_references: AtomicUsize::new(0),
        });
        Self {
            root: id,
            head: id,
            next: id.0 + 1,
            by_hash: [(block.hash, id)].into(),
            layers: [(id, layer)].into(),
        }
    }

    /// The layer of the base's own block.
    pub(crate) fn root(&self) -> &Arc<Layer> {
        &self.layers[&self.root]
    }

    /// The layer of the head.
    pub(crate) fn head(&self) -> &Arc<Layer> {
        &self.layers[&self.head]
    }

    /// The layer with that id.
    pub(crate) fn get(&self, id: LayerId) -> Option<&Arc<Layer>> {
        self.layers.get(&id)
    }

    /// The layer of the block with that hash; the first one if there are several.
    pub(crate) fn by_hash(&self, hash: &B256) -> Option<&Arc<Layer>> {
        self.layers.get(self.by_hash.get(hash)?)
    }

    /// Number of layers above the root.
    pub(crate) fn len(&self) -> usize {
        self.layers.len() - 1
    }

    /// Adds a block on `parent`.
    ///
    /// # Panics
    ///
    /// If the parent is not in the tree.
    pub(crate) fn add(
        &mut self,
        parent: LayerId,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
    ) -> Arc<Layer> {
        self.add_as(parent, meta, changes, reverts, Arc::default())
    }

    /// Adds a block that shares its mark of being dropped with another layer.
    fn add_as(
        &mut self,
        parent: LayerId,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
        dropped: Arc<AtomicBool>,
    ) -> Arc<Layer> {
        let id = LayerId(self.next);
        self.next += 1;
        let parent = &self.layers[&parent];
        let between = (parent.id.0 + 1..id.0)
            .map(LayerId)
            .filter(|id| self.layers.contains_key(id));
        let mut others: Vec<_> = parent
            .ancestors
            .others
            .iter()
            .copied()
            .chain(between)
            .collect();
        others.sort_unstable();
        let others = if others.len() == parent.ancestors.others.len() {
            parent.ancestors.others.clone()
        } else {
            others.into()
        };
        let (accounts, slots) = changes.counts();
        let leaves = parent.leaves_since_references() + accounts + slots;
        let layer = Arc::new(Layer {
            id,
            parent: parent.id,
            ancestors: AncestorSet { newest: id, others },
            block: meta.id,
            parent_hash: meta.parent,
            state_root: meta.state_root,
            changes,
            reverts,
            dropped,
            leaves_since_references: AtomicUsize::new(leaves),
        });
        self.insert(layer.clone());
        layer
    }

    /// Of several layers of one block, the first one is found by hash.
    fn insert(&mut self, layer: Arc<Layer>) {
        self.by_hash.entry(layer.block.hash).or_insert(layer.id);
        self.layers.insert(layer.id, layer);
    }

    /// Whether this is a restored layer: a child of the root whose block is not a child of the
    /// root's.
    pub(crate) fn is_restored(&self, layer: &Layer) -> bool {
        layer.parent == self.root
            && layer.id != self.root
            && layer.parent_hash != self.root().block.hash
    }

    /// A number that grows with each layer that is added.
    pub(crate) const fn version(&self) -> u64 {
        self.next
    }

    /// Removes a layer. Its children must be removed first.
    pub(crate) fn remove(&mut self, id: LayerId) {
        if let Some(layer) = self.layers.remove(&id)
            && self.by_hash.get(&layer.block.hash) == Some(&id)
        {
            self.by_hash.remove(&layer.block.hash);
        }
    }

    /// Makes a layer the head.
    ///
    /// # Panics
    ///
    /// If the layer is not in the tree.
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

    /// The newest common ancestor, which may be `a` or `b` itself. Both must be in the tree.
    pub(crate) fn common_ancestor(&self, a: LayerId, b: LayerId) -> LayerId {
        let (mut a, mut b) = (a, b);
        while a != b {
            // Ids grow from parent to child, so the larger one is not the ancestor.
            if a > b {
                a = self.layers[&a].parent
            } else {
                b = self.layers[&b].parent
            }
        }
        a
    }

    /// The changes from the state of `from` to the state of `to`.
    pub(crate) fn changes_between(&self, from: LayerId, to: LayerId) -> Changes {
        let fork = self.common_ancestor(from, to);
        let until = |layer: LayerId| {
            self.chain(layer)
                .take_while(|layer| layer.id != fork)
                .cloned()
                .collect::<Vec<_>>()
        };
        let mut fold = Fold::forwards();
        for layer in until(from) {
            fold.push(layer.reverts.clone());
        }
        for layer in until(to).into_iter().rev() {
            fold.push(layer.changes.clone());
        }
        fold.finish()
    }

    /// The tree with the new root `root` and only those layers above it for which `stay` is true.
    /// If the parent of such a layer goes, a restored layer replaces the parent, provided that
    /// `can_restore` allows it; otherwise the descendants go as well. Layers keep their ids, except
    /// for those above a restored layer.
    pub(crate) fn cut(
        &self,
        root: LayerId,
        stay: impl Fn(&Layer) -> bool,
        can_restore: impl Fn(BlockId) -> Result<bool, StateError>,
    ) -> Result<Self, StateError> {
        let mut cut = Self {
            root,
            head: root,
            next: self.next,
            layers: HashMap::new(),
            by_hash: HashMap::new(),
        };
        cut.insert(self.layers[&root].clone());
        let mut new_ids = HashMap::from([(root, root)]);
        let mut moved = Vec::new();
        for layer in self.above_root() {
            if layer.id == root || !stay(&layer) {
                continue;
            }
            if new_ids.contains_key(&layer.parent) {
                new_ids.insert(layer.id, layer.id);
                cut.insert(layer);
            } else {
                moved.push(layer);
            }
        }
        // Layers with new ids come last, so that no other layer's id lies between theirs.
        for layer in moved {
            let parent = match new_ids.get(&layer.parent) {
                Some(parent) => *parent,
                None => {
                    let parent = &self.layers[&layer.parent];
                    if !can_restore(parent.block)? {
                        continue;
                    }
                    let (changes, reverts) = (
                        self.changes_between(root, parent.id),
                        self.changes_between(parent.id, root),
                    );
                    let restored = cut.add(root, &parent.meta(), changes, reverts);
                    new_ids.insert(parent.id, restored.id);
                    restored.id
                }
            };
            let (changes, reverts) = (layer.changes.clone(), layer.reverts.clone());
            let dropped = layer.dropped.clone();
            let new = cut.add_as(parent, &layer.meta(), changes, reverts, dropped);
            new_ids.insert(layer.id, new.id);
        }
        cut.head = new_ids.get(&self.head).copied().unwrap_or(root);
        Ok(cut)
    }

    /// `layer` and its descendants, parents before children.
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

    /// An overlay with the values of all layers.
    pub(crate) fn overlay(&self) -> Overlay {
        let overlay = Overlay::new();
        for layer in self.above_root() {
            layer.put_into(&overlay);
        }
        overlay
    }

    /// All layers except the root, parents before children.
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

/// Merges consecutive change sets into one. Sets are merged pairwise, so that n sets of m keys cost
/// n m log n and few sets are in memory at a time.
pub(crate) struct Fold {
    /// Merged sets, each with the number of sets in it, which is at least twice the next one's.
    sets: Vec<(usize, Changes)>,
    join: fn(Changes, Changes) -> Changes,
}

impl Fold {
    /// For sets that are pushed oldest first.
    pub(crate) fn forwards() -> Self {
        Self {
            sets: Vec::new(),
            join: Changes::then,
        }
    }

    /// For sets that are pushed newest first.
    pub(crate) fn backwards() -> Self {
        Self {
            sets: Vec::new(),
            join: |later, earlier| earlier.then(later),
        }
    }

    /// Adds the next change set.
    pub(crate) fn push(&mut self, set: Changes) {
        let (mut count, mut set) = (1, set);
        while let Some((_, before)) = self.sets.pop_if(|(before, _)| *before <= count) {
            set = (self.join)(before, set);
            count *= 2;
        }
        self.sets.push((count, set));
    }

    /// All sets merged into one.
    pub(crate) fn finish(self) -> Changes {
        let sets = self.sets.into_iter().map(|(_, set)| set);
        sets.rev()
            .reduce(|later, earlier| (self.join)(earlier, later))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_primitives::{Account, AccountDiff, AccountUpdate};

    fn hash(name: u8) -> B256 {
        B256::repeat_byte(name)
    }

    fn meta(name: u8, number: u64, parent: u8) -> BlockMeta {
        BlockMeta {
            id: BlockId::new(number, hash(name)),
            parent: hash(parent),
            state_root: hash(name),
            body: Bytes::new(),
        }
    }

    /// The test's only account, set to `nonce`.
    fn set(nonce: u8) -> Changes {
        Changes::new(vec![AccountDiff {
            path: B256::ZERO,
            account: AccountUpdate::Put(Account {
                nonce: nonce.into(),
                ..Account::default()
            }),
            wipe: false,
            slots: vec![],
        }])
    }

    /// Adds a block named by a letter, which sets the nonce to its name.
    fn add(tree: &mut Tree, name: u8, parent: u8) -> LayerId {
        let below = tree.by_hash(&hash(parent)).unwrap().clone();
        let meta = meta(name, below.block.number + 1, parent);
        tree.add(below.id, &meta, set(name), set(parent)).id
    }

    #[test]
    fn layers_that_stay_hang_on_the_new_root_and_see_no_other_branch() {
        // a - b - c - d, and a - e - f.
        let genesis = meta(b'a', 0, 0);
        let mut tree = Tree::new(genesis.id, genesis.parent, genesis.state_root, LayerId(1));
        add(&mut tree, b'b', b'a');
        add(&mut tree, b'e', b'a');
        let f = add(&mut tree, b'f', b'e');
        let c = add(&mut tree, b'c', b'b');
        let d = add(&mut tree, b'd', b'c');
        tree.set_head(d);
        let cut = tree
            .cut(c, |layer| layer.id == d || layer.id == f, |_| Ok(true))
            .unwrap();
        assert_eq!((cut.root().id, cut.head().id, cut.len()), (c, d, 3));
        let e = cut.by_hash(&hash(b'e')).unwrap();
        assert!(cut.is_restored(e));
        assert_eq!(
            (e.parent, &e.changes, &e.reverts),
            (c, &set(b'e'), &set(b'c'))
        );
        let f = cut.by_hash(&hash(b'f')).unwrap();
        assert_eq!((f.parent, &f.changes), (e.id, &set(b'f')));
        assert!(f.ancestors.others.contains(&d));
        assert_eq!(cut.changes_between(d, f.id), set(b'f'));
        assert_eq!(cut.changes_between(f.id, d), set(b'd'));

        let cut = tree
            .cut(c, |layer| layer.id == f.id, |_| Ok(false))
            .unwrap();
        assert_eq!((cut.head().id, cut.len()), (c, 0));
    }

    #[test]
    fn sets_of_changes_are_folded_in_their_order() {
        let one = |name: u8| {
            let mut changes = set(name).into_accounts();
            changes[0].slots = vec![(hash(name % 7), alloy_primitives::U256::from(name))];
            Changes::new(changes)
        };
        let mut expected = Changes::default();
        let (mut forwards, mut backwards) = (Fold::forwards(), Fold::backwards());
        for name in 1..100 {
            expected = expected.then(one(name));
            forwards.push(one(name));
            backwards.push(one(100 - name));
        }
        assert_eq!(forwards.finish(), expected);
        assert_eq!(backwards.finish(), expected);
    }
}
