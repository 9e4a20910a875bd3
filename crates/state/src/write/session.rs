//! From a view to a durable block: `View -> Session -> Staged -> Sealed -> Committed`.
//!
//! ```text
//!   View       the state after the parent
//!   Session    what a block does to it, as far as it has run
//!   Staged     all it does, and the root that results; dropped: as if it had not been
//!   Sealed     named: other blocks can be built on it, though it is not durable
//!   Committed  survives power loss
//! ```

use crate::write::sealed::Sealed;
use crate::{
    log::records::{BlockMeta, BlockRecord, check_record},
    view::{
        batch::{LayeredKey, ValueCacheUse},
        state::View,
    },
};
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{Account, Changes};
use cambium_snapshot::{StateError, pool};
use cambium_trie::{Keys, PartialTrie};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

/// A block being executed on a view.
pub struct Session {
    view: View,
    id: u64,
    /// The changes of which roots were asked for already, and the way back from them.
    applied: Changes,
    applied_reverts: Changes,
}

impl View {
    /// Begins a block on this state, which may be that of any block that is here.
    pub fn session(self) -> Session {
        Session::new(self)
    }
}

impl Session {
    fn new(view: View) -> Self {
        let id = NEXT_SESSION.fetch_add(1, Ordering::Relaxed);
        Self {
            view,
            id,
            applied: Changes::default(),
            applied_reverts: Changes::default(),
        }
    }

    /// The state before the block.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Reads accounts that the block is going to change, by keccak(address), in any order: as
    /// [`View::accounts`], and what their update needs besides is made ready meanwhile, so that
    /// [`Session::finish`] has less to do.
    pub fn accounts(&self, paths: &[B256]) -> Result<Vec<Option<Account>>, StateError> {
        self.read(paths)
    }

    /// Reads slots that the block is going to change, each by keccak(address) and keccak(slot):
    /// see [`Session::accounts`].
    pub fn storage(&self, slots: &[(B256, B256)]) -> Result<Vec<U256>, StateError> {
        self.read(slots)
    }

    fn read<K: LayeredKey>(&self, keys: &[K]) -> Result<Vec<K::Value>, StateError> {
        if !self.applied.is_empty() {
            // The trie is past the state before the block.
            return self.view.read_all(keys, ValueCacheUse::ReadAndFill);
        }
        let mut sorted: Vec<_> = keys.iter().copied().zip(0..).collect();
        pool::install(|| sorted.par_sort_unstable());
        let (sorted, places): (Vec<K>, Vec<usize>) = sorted.into_iter().unzip();
        let values = self.view.inner.read(&self.view, &sorted)?;
        let mut ordered: Vec<_> = keys.iter().map(|_| None).collect();
        for (at, value) in places.into_iter().zip(values) {
            ordered[at] = Some(value);
        }
        Ok(ordered.into_iter().flatten().collect())
    }

    /// As [`View::extract_for_changes`] of the state before the block, from the tries that
    /// [`Session::finish`] computes the root with: what was read through this session is in them
    /// already, and what is hashed for a witness is not hashed again for the root. Roots wait for
    /// it, as they don't for a view's.
    pub fn extract_for_changes(
        &self,
        keys: &Keys,
        changes: &Changes,
    ) -> Result<PartialTrie, StateError> {
        let all = keys.clone().and(&Keys::of_changes(changes.accounts()));
        match self.view.inner.extract(&self.view, &all, changes)? {
            Some(part) => Ok(part),
            None => self.view.extract_for_changes(keys, changes),
        }
    }

    /// The state root after `changes` on top of those of earlier calls, before the block ends:
    /// what a receipt before Byzantium holds.
    pub fn intermediate_root(&mut self, changes: &Changes) -> Result<B256, StateError> {
        self.view.check_owners(&self.applied, changes)?;
        // After an error the session is as it was, and can be asked again.
        let reverts = self.view.reverts_of(changes)?;
        let reverts = self.applied_reverts.clone().then(reverts);
        let all = self.applied.clone().then(changes.clone());
        let inner = &self.view.inner;
        let root = inner.apply_uncommitted(&self.view, self.id, changes, &all, reverts.clone())?;
        (self.applied, self.applied_reverts) = (all, reverts);
        Ok(root)
    }

    /// Takes all that the block changed (what earlier calls gave included) and the code it
    /// created, by hash, and computes the state root.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongCode`] for code of another hash, and [`StateError::UnknownCode`] for an
    /// account whose code is neither given nor in the database.
    pub fn finish(self, changes: Changes, codes: Vec<(B256, Bytes)>) -> Result<Staged, StateError> {
        self.view.inner.store.check_codes(&changes, &codes)?;
        let Self {
            view,
            id,
            applied_reverts,
            ..
        } = self;
        // A slot that one transaction set and a later one set back is in no change set.
        let (root, reverts) = if applied_reverts.is_empty() {
            view.inner.stage(&view, id, &changes)?
        } else {
            // The trie is to get what is left to be done, in which they may be put.
            view.check_owners(&Changes::default(), &changes)?;
            let reverts = view.reverts_of(&changes)?;
            let net = applied_reverts.then(changes.clone());
            let root = view
                .inner
                .apply_uncommitted(&view, id, &net, &changes, reverts.clone())?;
            (root, reverts)
        };
        Ok(Staged {
            view,
            id,
            changes,
            reverts,
            codes,
            root,
        })
    }
}

/// A block's changes and the root they lead to. Nothing is durable, nothing visible.
pub struct Staged {
    view: View,
    id: u64,
    changes: Changes,
    reverts: Changes,
    codes: Vec<(B256, Bytes)>,
    root: B256,
}

impl Staged {
    /// The state root after the block.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// What the block changes.
    pub const fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Names the block, so that others can be built on it. Waits for memory, if blocks come faster
    /// than they can be merged.
    ///
    /// # Errors
    ///
    /// Nothing is kept of a block that is refused: [`StateError::WrongRoot`] if it claims another
    /// state root, [`StateError::NotAChild`] another parent or a number that does not follow it,
    /// [`StateError::BlockExists`] the hash of a block that is there, and [`StoreError::TooLarge`]
    /// if it does not fit into a record of the log.
    pub fn seal(self, meta: BlockMeta) -> Result<Sealed, StateError> {
        if meta.state_root != self.root {
            let (got, expected) = (self.root, meta.state_root);
            return Err(StateError::WrongRoot {
                block: meta.id,
                got,
                expected,
            });
        }
        let inner = self.view.inner.clone();
        let mut codes = self.codes;
        codes.extend(
            inner
                .store
                .borrowed_codes(&self.changes, &self.reverts, &codes)?,
        );
        // Before it is put together, which takes memory for all of it.
        let least = BlockRecord::bytes_min(&meta, &self.changes, &self.reverts, &codes);
        check_record("record of a block", least)?;
        let record = BlockRecord::encode(&meta, &self.changes, &self.reverts, &codes);
        let (changes, reverts) = (self.changes, self.reverts);
        let layer = inner.seal(&self.view, self.id, &meta, changes, reverts, record.len())?;
        // Dropped after an error, the layer goes as well.
        let sealed = Sealed::new(inner, layer, record);
        for (hash, code) in &codes {
            sealed
                .inner
                .store
                .put_code(&sealed.inner.health, *hash, code)?;
        }
        Ok(sealed)
    }
}
