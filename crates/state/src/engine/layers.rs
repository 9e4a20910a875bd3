//! What stands above the base: values, tries and the tree of blocks, and the lock of each.

use crate::{
    layers::{
        overlay::Overlay,
        tree::{Layer, Tree},
    },
    log::records::BlockMeta,
    tries::{
        base::Base,
        delta::{Delta, DeltaLock},
    },
};
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::StateError;
use parking_lot::{Mutex, RwLock};
use std::sync::{Arc, Weak, atomic::AtomicUsize};

/// What views are made from.
pub(crate) struct Current {
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) tree: Tree,
}

impl Current {
    /// Adds a layer on `parent`, which is in the tree, and its values.
    pub(crate) fn add(
        &mut self,
        parent: &Arc<Layer>,
        meta: &BlockMeta,
        changes: Changes,
        reverts: Changes,
    ) -> Arc<Layer> {
        let layer = self.tree.add(parent.id, meta, changes, reverts);
        layer.put_into(&self.overlay);
        layer
    }
}

/// The layers of an open database.
pub(crate) struct Layers {
    /// The trie above the base. Roots.
    pub(crate) delta: DeltaLock,
    /// Base, overlay and tree of layers. Held for moments only; views copy from it.
    pub(crate) current: RwLock<Current>,
    /// What the values take of blocks that are sealed and not committed.
    pub(crate) sealed_bytes: AtomicUsize,
    /// What was merged, and the memory that it took: views may keep it.
    pub(crate) pinned: Mutex<Vec<(Weak<dyn Send + Sync>, usize)>>,
}

impl Layers {
    /// No layers yet, on `base`.
    pub(crate) fn new(base: Arc<Base>, tree: Tree, delta: Delta) -> Self {
        Self {
            delta: DeltaLock::new(delta),
            current: RwLock::new(Current {
                base,
                overlay: Arc::new(Overlay::new()),
                tree,
            }),
            sealed_bytes: AtomicUsize::new(0),
            pinned: Mutex::new(Vec::new()),
        }
    }

    /// Memory of the layers that are not being merged.
    pub(crate) fn bytes(&self) -> usize {
        self.current.read().overlay.bytes() + self.delta.bytes()
    }

    /// Whether there are committed blocks above the base.
    pub(crate) fn can_merge(&self) -> bool {
        let current = self.current.read();
        current.tree.head().id != current.tree.root().id
    }

    /// Takes the trie to the state after `parent`, which has a layer.
    pub(crate) fn move_to(&self, delta: &mut Delta, parent: BlockId) -> Result<(), StateError> {
        let (parent, path) = {
            let current = self.current.read();
            let parent = current.tree.by_hash(&parent.hash);
            let parent = parent.expect("the delta is above the parent").id;
            (parent, delta.path_to(&current.tree, parent))
        };
        delta.move_along(&path, parent)
    }

    /// Counts what views may keep of values that nobody else needs.
    pub(crate) fn note_pinned(&self, overlay: &Arc<Overlay>) {
        let kept = (Arc::downgrade(overlay) as Weak<_>, overlay.bytes());
        self.pinned.lock().push(kept);
    }

    /// Memory that views keep although the engine is done with it.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let mut pinned = self.pinned.lock();
        pinned.retain(|(kept, _)| kept.strong_count() > 0);
        pinned.iter().map(|(_, bytes)| bytes).sum::<usize>()
    }
}
