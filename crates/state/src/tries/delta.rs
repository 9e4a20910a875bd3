//! The trie above the base, at one block at a time: it walks the tree of layers by their changes
//! and their reverts.
//!
//! Its stubs stand for what the base has. It is expanded wherever a layer between the base and
//! its position changed something, so that what is a stub is the base's still.

use crate::{
    layers::{overlay::LayerId, tree::Tree},
    tries::{base::Base, shards::TrieShards, update::PagesAre},
};
use alloy_primitives::B256;
use cambium_primitives::Changes;
use cambium_snapshot::{Counters, Key, StateError};
use cambium_trie::{Keys, PartialTrie, TrieError};
use parking_lot::{Mutex, MutexGuard};
use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Changes in the trie that no layer has yet.
struct Uncommitted {
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
        let bytes = delta.memory_bytes().into();
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
        let bytes = self.delta.memory_bytes();
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

pub(crate) struct Delta {
    base: Arc<Base>,
    /// Shared only while a base is made of it. `None` while it is changed, and after that has
    /// failed, by an error or a panic: what is half changed is of no use, and is made anew from
    /// the base when it is needed next.
    tries: Option<Arc<TrieShards>>,
    /// The layer that is the base's own block.
    root: LayerId,
    at: LayerId,
    uncommitted: Option<Uncommitted>,
    counters: Arc<Counters>,
}

impl Delta {
    /// At the base itself, which is the layer `at`.
    pub(crate) fn on(
        base: Arc<Base>,
        at: LayerId,
        counters: Arc<Counters>,
    ) -> Result<Self, StateError> {
        let tries = Arc::new(TrieShards::on(&base, &counters)?);
        Ok(Self {
            base,
            tries: Some(tries),
            root: at,
            at,
            uncommitted: None,
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

    /// The tries.
    pub(crate) fn tries(&mut self) -> Result<&Arc<TrieShards>, StateError> {
        if self.tries.is_none() {
            self.tries = Some(Arc::new(TrieShards::on(&self.base, &self.counters)?));
        }
        Ok(self.tries.as_ref().expect("just made"))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.tries.as_ref().map_or(0, |tries| tries.memory_bytes())
    }

    /// Reads leaves, sorted by their paths, and loads what is on the way to them.
    pub(crate) fn read<K: Key>(&mut self, keys: &[K]) -> Result<Vec<K::Value>, StateError> {
        self.counters.reads.add(keys.len() as u64);
        self.work(|tries, base| tries.read(keys, base))
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
        self.work(|tries, base| {
            tries.read(&accounts, base)?;
            tries.read(&slots, base)?;
            tries.extract_for_changes(keys.accounts(), changes.accounts(), base)
        })
    }

    /// Lets go of the tries. They are at the base from now on.
    pub(crate) fn reset(&mut self) {
        self.tries = None;
        self.at = self.root;
        self.uncommitted = None;
    }

    /// Does what only loads more into the tries, or fails and leaves them as they are. After a
    /// panic they are at the base again.
    fn work<T>(
        &mut self,
        work: impl FnOnce(&mut TrieShards, &Base) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let (mut tries, at, uncommitted) = self.take()?;
        let done = work(Arc::make_mut(&mut tries), &self.base);
        (self.tries, self.at, self.uncommitted) = (Some(tries), at, uncommitted);
        done
    }

    /// Takes the tries, and leaves the delta as it is to be found if they never come back: at the
    /// base.
    fn take(&mut self) -> Result<(Arc<TrieShards>, LayerId, Option<Uncommitted>), StateError> {
        self.tries()?;
        let tries = self.tries.take().expect("just seen to");
        let at = std::mem::replace(&mut self.at, self.root);
        Ok((tries, at, self.uncommitted.take()))
    }

    /// The layer whose state this is, floating changes aside.
    pub(crate) const fn at(&self) -> LayerId {
        self.at
    }

    /// The changes that lead from here to the state of `to`.
    pub(crate) fn path_to(&self, tree: &Tree, to: LayerId) -> Changes {
        let undo = self
            .uncommitted
            .as_ref()
            .map(|uncommitted| uncommitted.reverts.clone());
        undo.unwrap_or_default()
            .then(tree.changes_between(self.at, to))
    }

    /// Goes the way that `way_to` told. After an error the trie is at the base.
    pub(crate) fn move_along(&mut self, changes: &Changes, to: LayerId) -> Result<(), StateError> {
        if !changes.is_empty() {
            self.apply(changes, PagesAre::OnDisk)?;
        }
        self.uncommitted = None;
        self.at = to;
        Ok(())
    }

    /// Puts changes into the trie that no layer has yet, and returns the root. `reverts` lead from
    /// all that `owner` has put there back to the layer that the trie is at.
    pub(crate) fn apply_uncommitted(
        &mut self,
        owner: u64,
        changes: &Changes,
        reverts: Changes,
    ) -> Result<B256, StateError> {
        let root = self.apply(changes, PagesAre::InMemory)?;
        self.uncommitted = Some(Uncommitted { owner, reverts });
        Ok(root)
    }

    /// Whether the changes of `owner` are in the trie.
    pub(crate) fn has_uncommitted_of(&self, owner: u64) -> bool {
        self.uncommitted
            .as_ref()
            .is_some_and(|uncommitted| uncommitted.owner == owner)
    }

    /// The floating changes of `owner`, if they are still there, are the layer `layer` now.
    pub(crate) fn adopt(&mut self, owner: u64, layer: LayerId) {
        if self.has_uncommitted_of(owner) {
            self.uncommitted = None;
            self.at = layer;
        }
    }

    /// Applies changes, and returns the root. After an error or a panic the trie is at the base.
    fn apply(&mut self, changes: &Changes, pages: PagesAre) -> Result<B256, StateError> {
        let (mut tries, at, uncommitted) = self.take()?;
        let changed = Arc::make_mut(&mut tries);
        let root = changed.apply(changes.accounts(), &self.base, pages, &self.counters)?;
        (self.tries, self.at, self.uncommitted) = (Some(tries), at, uncommitted);
        Ok(root)
    }
}

/// What the trie says of changes by a caller.
pub(crate) fn as_bad_changes(error: StateError) -> StateError {
    match error {
        StateError::Trie(error @ TrieError::NoAccount { .. }) => StateError::BadChanges(error),
        error => error,
    }
}
