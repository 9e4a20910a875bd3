//! The trie above the base, at one block at a time: it walks the tree of layers by their changes
//! and their reverts.
//!
//! Its stubs stand for what the base has. It is expanded wherever a layer between the base and
//! its position changed something, so that what is a stub is the base's still.

use crate::{
    base::Base,
    batch::Key,
    counters::Counters,
    error::StateError,
    forest::{Forest, PagesAre},
    overlay::LayerId,
    tree::Tree,
};
use alloy_primitives::B256;
use cambium_primitives::Changes;
use cambium_trie::{Keys, PartialTrie};
use parking_lot::{Mutex, MutexGuard};
use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Changes in the trie that no layer has yet.
struct Floating {
    owner: u64,
    reverts: Changes,
}

/// The delta that roots are computed in, behind its lock.
pub(crate) struct DeltaLock {
    delta: Mutex<Delta>,
    bytes: AtomicUsize,
}

impl DeltaLock {
    pub(crate) fn new(delta: Delta) -> Self {
        let bytes = delta.forest().memory_bytes().into();
        let delta = Mutex::new(delta);
        Self { delta, bytes }
    }

    pub(crate) fn lock(&self) -> LockedDelta<'_> {
        LockedDelta {
            delta: self.delta.lock(),
            bytes: &self.bytes,
        }
    }

    /// Memory of its tries when it was last unlocked: known without waiting for a root.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The delta, locked.
pub(crate) struct LockedDelta<'a> {
    delta: MutexGuard<'a, Delta>,
    bytes: &'a AtomicUsize,
}

impl Deref for LockedDelta<'_> {
    type Target = Delta;

    fn deref(&self) -> &Delta {
        &self.delta
    }
}

impl DerefMut for LockedDelta<'_> {
    fn deref_mut(&mut self) -> &mut Delta {
        &mut self.delta
    }
}

impl Drop for LockedDelta<'_> {
    fn drop(&mut self) {
        let bytes = self.delta.forest().memory_bytes();
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

pub(crate) struct Delta {
    base: Arc<Base>,
    /// Shared only while a base is made of it.
    forest: Arc<Forest>,
    /// The layer that is the base's own block.
    root: LayerId,
    at: LayerId,
    floating: Option<Floating>,
    counters: Arc<Counters>,
}

impl Delta {
    /// At the base itself, which is the layer `at`.
    pub(crate) fn on(
        base: Arc<Base>,
        at: LayerId,
        counters: Arc<Counters>,
    ) -> Result<Self, StateError> {
        let forest = Arc::new(Forest::on(&base, &counters)?);
        Ok(Self {
            base,
            forest,
            root: at,
            at,
            floating: None,
            counters,
        })
    }

    pub(crate) fn base(&self) -> &Arc<Base> {
        &self.base
    }

    /// Takes a base of the same state: what was intermediate is in the snapshot now.
    pub(crate) fn rebase(&mut self, base: Arc<Base>) {
        assert_eq!(
            self.base.block(),
            base.block(),
            "a merge does not change the state"
        );
        self.base = base;
    }

    pub(crate) const fn forest(&self) -> &Arc<Forest> {
        &self.forest
    }

    /// Reads leaves, sorted by their paths, and loads what is on the way to them.
    pub(crate) fn read<K: Key>(&mut self, keys: &[K]) -> Result<Vec<K::Value>, StateError> {
        self.counters.reads.add(keys.len() as u64);
        Arc::make_mut(&mut self.forest).read(keys, &self.base)
    }

    /// See [`Forest::extract_for_changes`]. What is not loaded yet is read all at once first.
    pub(crate) fn extract_for_changes(
        &mut self,
        keys: &Keys,
        changes: &Changes,
    ) -> Result<Option<PartialTrie>, StateError> {
        let accounts: Vec<_> = keys
            .accounts()
            .iter()
            .map(|(account, _)| *account)
            .collect();
        let slots = keys.accounts().iter();
        let slots = slots.flat_map(|(account, slots)| slots.iter().map(|slot| (*account, *slot)));
        let slots: Vec<_> = slots.collect();
        let forest = Arc::make_mut(&mut self.forest);
        forest.read(&accounts, &self.base)?;
        forest.read(&slots, &self.base)?;
        forest.extract_for_changes(keys.accounts(), changes.accounts(), &self.base)
    }

    /// The layer whose state this is, floating changes aside.
    pub(crate) const fn at(&self) -> LayerId {
        self.at
    }

    /// The changes that lead from here to the state of `to`.
    pub(crate) fn way_to(&self, tree: &Tree, to: LayerId) -> Changes {
        let undo = self
            .floating
            .as_ref()
            .map(|floating| floating.reverts.clone());
        undo.unwrap_or_default().then(tree.way(self.at, to))
    }

    /// Goes the way that `way_to` told. After an error the trie is at the base.
    pub(crate) fn take_way(&mut self, way: &Changes, to: LayerId) -> Result<B256, StateError> {
        if !way.is_empty() {
            self.apply(way, PagesAre::OnDisk)?;
        }
        self.floating = None;
        self.at = to;
        Ok(self.forest.root())
    }

    /// Puts changes into the trie that no layer has yet. `reverts` lead from all that `owner`
    /// has put there back to the layer that the trie is at.
    pub(crate) fn float(
        &mut self,
        owner: u64,
        changes: &Changes,
        reverts: Changes,
    ) -> Result<B256, StateError> {
        let root = self.apply(changes, PagesAre::InMemory)?;
        self.floating = Some(Floating { owner, reverts });
        Ok(root)
    }

    /// Whether the changes of `owner` are in the trie.
    pub(crate) fn floats(&self, owner: u64) -> bool {
        self.floating
            .as_ref()
            .is_some_and(|floating| floating.owner == owner)
    }

    /// The floating changes of `owner`, if they are still there, are the layer `layer` now.
    pub(crate) fn settle(&mut self, owner: u64, layer: LayerId) {
        if self.floats(owner) {
            self.floating = None;
            self.at = layer;
        }
    }

    fn apply(&mut self, changes: &Changes, pages: PagesAre) -> Result<B256, StateError> {
        let forest = Arc::make_mut(&mut self.forest);
        match forest.apply(changes.accounts(), &self.base, pages, &self.counters) {
            Ok(root) => Ok(root),
            Err(error) => {
                // Half applied: start again from the base at the next use.
                self.forest = Arc::new(Forest::on(&self.base, &self.counters)?);
                self.floating = None;
                self.at = self.root;
                Err(error)
            }
        }
    }
}
