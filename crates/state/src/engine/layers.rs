//! The state above the base in memory: values, tries and the tree of blocks, each behind its lock.

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

/// Memory of the tries of changed accounts, in that of their values. Where blocks don't move the tries, a
/// merge moves them past all of its blocks at once, and needs room for that.
const TRIES_TO_VALUES: usize = 3;

/// The state from which views are made.
pub(crate) struct Current {
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) tree: Tree,
}

impl Current {
    /// Adds a layer and its values on `parent`, which must be in the tree.
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
    /// The tries above the base, which compute roots.
    pub(crate) delta: DeltaLock,
    /// Whether blocks leave the tries where they are, as under `layered`.
    tries_lag: bool,
    /// Base, overlay and tree of layers. Locked for moments only; views copy from it.
    pub(crate) current: RwLock<Current>,
    /// Memory of the values of blocks that are sealed and not committed, in bytes.
    pub(crate) sealed_bytes: AtomicUsize,
    /// Overlays and tries that were merged or replaced, with their memory in bytes. Views may still
    /// hold them.
    pub(crate) pinned: Mutex<Vec<(Weak<dyn Send + Sync>, usize)>>,
}

impl Layers {
    /// No layers yet, on `base`.
    pub(crate) fn new(base: Arc<Base>, tree: Tree, delta: Delta, tries_lag: bool) -> Self {
        Self {
            delta: DeltaLock::new(delta),
            tries_lag,
            current: RwLock::new(Current {
                base,
                overlay: Arc::new(Overlay::new()),
                tree,
            }),
            sealed_bytes: AtomicUsize::new(0),
            pinned: Mutex::new(Vec::new()),
        }
    }

    /// Memory of the layers that are not being merged, in bytes, with that of the tries that merging them
    /// needs.
    pub(crate) fn bytes(&self) -> usize {
        let (values, tries) = (self.current.read().overlay.bytes(), self.delta.bytes());
        values
            + match self.tries_lag {
                true => tries.max(TRIES_TO_VALUES * values),
                false => tries,
            }
    }

    /// Whether there are committed blocks above the base.
    pub(crate) fn can_merge(&self) -> bool {
        let current = self.current.read();
        current.tree.head().id != current.tree.root().id
    }

    /// Moves the tries to the state after `parent`, which must have a layer.
    ///
    /// # Panics
    ///
    /// If it has none.
    pub(crate) fn move_to(&self, delta: &mut Delta, parent: BlockId) -> Result<(), StateError> {
        let (parent, path) = {
            let current = self.current.read();
            let parent = current.tree.by_hash(&parent.hash);
            let parent = parent.expect("the delta is above the parent").id;
            (parent, delta.path_to(&current.tree, parent))
        };
        delta.move_along(&path, parent)
    }

    /// Counts the memory of an overlay that only views may still hold.
    pub(crate) fn note_pinned(&self, overlay: &Arc<Overlay>) {
        let kept = (Arc::downgrade(overlay) as Weak<_>, overlay.bytes());
        self.pinned.lock().push(kept);
    }

    /// Memory that only views still hold, in bytes.
    pub(crate) fn pinned_bytes(&self) -> usize {
        let mut pinned = self.pinned.lock();
        pinned.retain(|(kept, _)| kept.strong_count() > 0);
        pinned.iter().map(|(_, bytes)| bytes).sum::<usize>()
    }
}
