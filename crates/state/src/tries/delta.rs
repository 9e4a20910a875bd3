//! The state trie above the base, at one layer at a time. It moves between layers by applying their
//! changes and reverts.
//!
//! Its blinded nodes stand for subtries of the base. Every path that a layer between the base and
//! the current position changed is expanded, so that each blinded node still equals the base's
//! subtrie. Sessions also expand paths that they read.

use crate::{
    layers::{overlay::LayerId, tree::Tree},
    tries::{base::Base, shards::TrieShards, slots::PagesAre},
};
use alloy_primitives::B256;
use cambium_primitives::{Changes, Path};
use cambium_snapshot::{Counters, Key, StateError, shard_of};
use cambium_trie::{EntryProof, Link, PartialTrie, ProofTargets, TrieError};
use parking_lot::{Mutex, MutexGuard};
use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Changes in the tries that do not belong to a layer yet: those of a session.
struct Uncommitted {
    owner: u64,
    reverts: Changes,
}

/// The delta that computes roots, behind its lock.
pub(crate) struct DeltaLock {
    delta: Mutex<Delta>,
    bytes: AtomicUsize,
}

impl DeltaLock {
    /// Puts a delta behind its lock.
    pub(crate) fn new(delta: Delta) -> Self {
        let bytes = delta.memory_bytes().into();
        let delta = Mutex::new(delta);
        Self { delta, bytes }
    }

    /// Locks the delta, waiting for a root that is being computed.
    pub(crate) fn lock(&self) -> LockedDelta<'_> {
        LockedDelta {
            delta: self.delta.lock(),
            bytes: &self.bytes,
        }
    }

    /// Memory of the tries when they were last unlocked, in bytes. Does not wait for the lock.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The locked delta. Unlocking updates the memory that [`DeltaLock::bytes`] returns.
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

/// The tries above the base, at the position of one layer.
pub(crate) struct Delta {
    base: Arc<Base>,
    /// Shared only while a base is made of it. `None` while it is changed, and after a change has
    /// failed by an error or a panic: tries that are half changed are useless, and are created from
    /// the base when they are needed next.
    tries: Option<Arc<TrieShards>>,
    /// The layer of the base's own block.
    root: LayerId,
    at: LayerId,
    uncommitted: Option<Uncommitted>,
    counters: Arc<Counters>,
}

impl Delta {
    /// A delta at the base itself, which is the layer `at`.
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

    /// The base of the tries.
    pub(crate) fn base(&self) -> &Arc<Base> {
        &self.base
    }

    /// Replaces the base by one of the same state: the merge of the intermediate layer has ended.
    ///
    /// # Panics
    ///
    /// If the new base is another block.
    pub(crate) fn rebase(&mut self, base: Arc<Base>) {
        assert_eq!(
            self.base.block(),
            base.block(),
            "a merge does not change the state"
        );
        self.base = base;
    }

    /// The tries, created from the base if there are none.
    pub(crate) fn tries(&mut self) -> Result<&Arc<TrieShards>, StateError> {
        if self.tries.is_none() {
            self.tries = Some(Arc::new(TrieShards::on(&self.base, &self.counters)?));
        }
        Ok(self.tries.as_ref().expect("just made"))
    }

    /// The tries, unless a change of them has failed.
    pub(crate) const fn made_tries(&self) -> Option<&Arc<TrieShards>> {
        self.tries.as_ref()
    }

    /// Memory of the tries, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.tries.as_ref().map_or(0, |tries| tries.memory_bytes())
    }

    /// Reads leaves, sorted by their paths, and loads the nodes on the paths to them.
    pub(crate) fn read<K: Key>(&mut self, keys: &[K]) -> Result<Vec<K::Value>, StateError> {
        self.counters.reads.add(keys.len() as u64);
        self.work(|tries, base| tries.read(keys, base))
    }

    /// See [`TrieShards::extract_for_changes`]. Leaves that are not loaded yet are read in one
    /// batch first.
    pub(crate) fn extract_for_changes(
        &mut self,
        keys: &ProofTargets,
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

    /// See [`TrieShards::prove_entries`]. `keys` are sorted. Leaves that are not loaded yet are read in
    /// one batch first.
    pub(crate) fn prove_entries(
        &mut self,
        keys: &[B256],
    ) -> Result<Option<EntryProof>, StateError> {
        self.work(|tries, base| {
            tries.read(keys, base)?;
            tries.prove_entries(keys, base)
        })
    }

    /// Drops the tries, and with them uncommitted changes. The delta is at the base afterwards.
    pub(crate) fn reset(&mut self) {
        self.tries = None;
        self.at = self.root;
        self.uncommitted = None;
    }

    /// Puts tries that were restored at layer `to` in place of those that the delta has.
    pub(crate) fn put_restored(&mut self, tries: TrieShards, to: LayerId) {
        self.tries = Some(Arc::new(tries));
        self.at = to;
        self.uncommitted = None;
    }

    /// Runs work that at most loads more nodes into the tries, even if it fails. After a panic the
    /// delta is at the base.
    fn work<T>(
        &mut self,
        work: impl FnOnce(&mut TrieShards, &Base) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        let (mut tries, at, uncommitted) = self.take()?;
        let done = work(Arc::make_mut(&mut tries), &self.base);
        (self.tries, self.at, self.uncommitted) = (Some(tries), at, uncommitted);
        done
    }

    /// Takes the tries out, and leaves the delta at the base, which is right if they are never put
    /// back.
    fn take(&mut self) -> Result<(Arc<TrieShards>, LayerId, Option<Uncommitted>), StateError> {
        self.tries()?;
        let tries = self.tries.take().expect("just seen to");
        let at = std::mem::replace(&mut self.at, self.root);
        Ok((tries, at, self.uncommitted.take()))
    }

    /// The layer at which the tries are, apart from uncommitted changes.
    pub(crate) const fn at(&self) -> LayerId {
        self.at
    }

    /// The changes from the current position, uncommitted changes included, to the state of `to`.
    pub(crate) fn path_to(&self, tree: &Tree, to: LayerId) -> Changes {
        let undo = self
            .uncommitted
            .as_ref()
            .map(|uncommitted| uncommitted.reverts.clone());
        undo.unwrap_or_default()
            .then(tree.changes_between(self.at, to))
    }

    /// Moves to layer `to` by the changes that [`Delta::path_to`] returned. After an error the
    /// delta is at the base.
    pub(crate) fn move_along(&mut self, changes: &Changes, to: LayerId) -> Result<(), StateError> {
        if !changes.is_empty() {
            self.apply(changes, PagesAre::OnDisk)?;
        }
        self.uncommitted = None;
        self.at = to;
        Ok(())
    }

    /// Moves to layer `to` as [`Delta::move_along`] does, from its parent, whose nodes on the changed paths are loaded.
    /// Returns the root there.
    pub(crate) fn move_up(&mut self, changes: &Changes, to: LayerId) -> Result<B256, StateError> {
        let root = self.apply(changes, PagesAre::InMemory)?;
        self.uncommitted = None;
        self.at = to;
        Ok(root)
    }

    /// Applies changes that belong to no layer yet, and returns the root. `reverts` undo all
    /// uncommitted changes of `owner`, back to the layer at which the tries are.
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

    /// Compares given storage roots of accounts in `changes`, which the tries have, with the computed ones.
    pub(crate) fn check_storage_roots(
        &mut self,
        changes: &Changes,
        given: &[(B256, B256)],
    ) -> Result<(), StateError> {
        if given.is_empty() {
            return Ok(());
        }
        let tries = self.tries()?;
        for (account, given) in given {
            // What the changes do not touch may be blinded in the tries.
            if changes.account(account).is_none() {
                continue;
            }
            let path = Path::account(account);
            let trie = tries.shard(shard_of(&path));
            let storage = trie.find(&path).unwrap_or(Link::EMPTY);
            let got = trie.storage_root_at(storage).unwrap_or_default();
            if got != *given {
                let (account, given) = (*account, *given);
                return Err(StateError::WrongStorageRoot {
                    account,
                    got,
                    given,
                });
            }
        }
        Ok(())
    }

    /// Whether the tries have uncommitted changes of `owner`.
    pub(crate) fn has_uncommitted_of(&self, owner: u64) -> bool {
        self.uncommitted
            .as_ref()
            .is_some_and(|uncommitted| uncommitted.owner == owner)
    }

    /// Makes the uncommitted changes of `owner`, if the tries still have them, those of `layer`.
    pub(crate) fn adopt(&mut self, owner: u64, layer: LayerId) {
        if self.has_uncommitted_of(owner) {
            self.uncommitted = None;
            self.at = layer;
        }
    }

    /// Applies changes, and returns the root. After an error or a panic the delta is at the base.
    fn apply(&mut self, changes: &Changes, pages: PagesAre) -> Result<B256, StateError> {
        let (mut tries, at, uncommitted) = self.take()?;
        let changed = Arc::make_mut(&mut tries);
        let root = changed.apply(changes.accounts(), &self.base, pages, &self.counters)?;
        (self.tries, self.at, self.uncommitted) = (Some(tries), at, uncommitted);
        Ok(root)
    }
}

/// Converts a trie error into [`StateError::BadChanges`] if the caller's changes are the cause.
pub(crate) fn as_bad_changes(error: StateError) -> StateError {
    match error {
        StateError::Trie(error @ TrieError::NoAccount { .. }) => StateError::BadChanges(error),
        error => error,
    }
}
