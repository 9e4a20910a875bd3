//! From a view to a durable block: `View -> Session -> Staged -> Sealed -> Committed`.
//!
//! ```text
//!   View       the state after the parent
//!   Session    what a block does to it, as far as it has run
//!   Staged     all it does, and the root that results; dropped: as if it had not been
//!   Sealed     named: other blocks can be built on it, though it is not durable
//!   Committed  survives power loss
//! ```

use crate::{
    batch::{Ask, LayeredKey},
    commit::check_record,
    db::{Db, Inner},
    records::{BlockMeta, BlockRecord},
    tree::Layer,
    view::View,
};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountUpdate, BlockId, Changes, KECCAK_EMPTY};
use cambium_snapshot::{StateError, pool};
use cambium_store::StoreError;
use cambium_trie::{Keys, PartialTrie};
use rayon::prelude::*;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

/// A block being executed on a view.
pub struct Session {
    view: View,
    id: u64,
    /// The changes of which roots were asked for already, and the way back from them.
    floating: Changes,
    floating_reverts: Changes,
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
            floating: Changes::default(),
            floating_reverts: Changes::default(),
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
        if !self.floating.is_empty() {
            // The trie is past the state before the block.
            return self.view.read_all(keys, Ask::Entries);
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
        self.view.check_owners(&self.floating, changes)?;
        // After an error the session is as it was, and can be asked again.
        let reverts = self.view.reverts_of(changes)?;
        let reverts = self.floating_reverts.clone().then(reverts);
        let all = self.floating.clone().then(changes.clone());
        let inner = &self.view.inner;
        let root = inner.float(&self.view, self.id, changes, &all, reverts.clone())?;
        (self.floating, self.floating_reverts) = (all, reverts);
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
        self.view.inner.check_codes(&changes, &codes)?;
        let Self {
            view,
            id,
            floating_reverts,
            ..
        } = self;
        // A slot that one transaction set and a later one set back is in no change set.
        let (root, reverts) = if floating_reverts.is_empty() {
            view.inner.stage(&view, id, &changes)?
        } else {
            // The trie is to get what is left to be done, in which they may be put.
            view.check_owners(&Changes::default(), &changes)?;
            let reverts = view.reverts_of(&changes)?;
            let net = floating_reverts.then(changes.clone());
            let root = view
                .inner
                .float(&view, id, &net, &changes, reverts.clone())?;
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
        codes.extend(inner.borrowed_codes(&self.changes, &self.reverts, &codes)?);
        // Before it is put together, which takes memory for all of it.
        let least = BlockRecord::bytes_min(&meta, &self.changes, &self.reverts, &codes);
        check_record("record of a block", least)?;
        let record = BlockRecord::encode(&meta, &self.changes, &self.reverts, &codes);
        let (changes, reverts) = (self.changes, self.reverts);
        let layer = inner.seal(&self.view, self.id, &meta, changes, reverts, record.len())?;
        // Dropped after an error, the layer goes as well.
        let sealed = Sealed::new(inner, layer, record);
        for (hash, code) in &codes {
            sealed.inner.put_code(*hash, code)?;
        }
        Ok(sealed)
    }
}

/// A named block. Dropping it takes it, and all built on it, away again.
pub struct Sealed {
    inner: Arc<Inner>,
    layer: Arc<Layer>,
    /// What the log is to hold of the block; nothing once it does.
    record: Option<Vec<u8>>,
}

impl Sealed {
    fn new(inner: Arc<Inner>, layer: Arc<Layer>, record: Vec<u8>) -> Self {
        let bytes = layer.bytes();
        inner.sealed_bytes.fetch_add(bytes, Ordering::Relaxed);
        Self {
            inner,
            layer,
            record: Some(record),
        }
    }

    /// The block.
    pub fn id(&self) -> BlockId {
        self.layer.block
    }

    /// The state after the block.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if it went with a block below it that was dropped.
    pub fn view(&self) -> Result<View, StateError> {
        self.check_alive()?;
        self.inner.view_of(self.layer.block)
    }

    /// Whether its layer, or one that took its place, is there: another of the same name is none
    /// of its.
    pub(crate) fn check_alive(&self) -> Result<(), StateError> {
        match self.layer.is_given_up() {
            true => Err(StateError::UnknownBlock(self.layer.block.hash)),
            false => Ok(()),
        }
    }

    /// Whether it is a block of this database.
    pub(crate) fn is_of(&self, inner: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.inner, inner)
    }

    /// Makes the block durable, and the head. When this returns it survives power loss.
    pub fn commit(self) -> Result<Committed, StateError> {
        let id = self.id();
        self.inner.clone().commit(vec![self], true)?;
        Ok(Committed { id })
    }

    /// Makes the block durable without making it the head: a side branch.
    pub fn commit_aside(self) -> Result<Committed, StateError> {
        let id = self.id();
        self.inner.clone().commit(vec![self], false)?;
        Ok(Committed { id })
    }

    /// The hash of its parent.
    pub(crate) fn parent(&self) -> B256 {
        self.layer.parent_hash
    }

    /// Whether the log has the block.
    pub(crate) const fn is_durable(&self) -> bool {
        self.record.is_none()
    }

    pub(crate) fn record(&mut self) -> Option<&mut [u8]> {
        self.record.as_deref_mut()
    }

    /// The block is durable: dropping this takes nothing away.
    pub(crate) fn is_committed(&mut self) {
        self.stop_waiting();
    }

    /// True if the block waited to be committed.
    fn stop_waiting(&mut self) -> bool {
        let waited = self.record.take().is_some();
        if waited {
            let bytes = self.layer.bytes();
            self.inner.sealed_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        waited
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        if self.stop_waiting() {
            self.inner.give_up(&self.layer);
        }
    }
}

/// A durable block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    id: BlockId,
}

impl Committed {
    /// The block.
    pub const fn id(&self) -> BlockId {
        self.id
    }
}

impl Db {
    /// Makes several blocks durable with one sync, in order, each after its parent; the last is
    /// the head then. After an error none of them counts as committed: those of which the disk has
    /// all are there when the database is opened again.
    pub fn commit_all(&self, sealed: Vec<Sealed>) -> Result<(), StateError> {
        self.inner.commit(sealed, true)
    }
}

impl Inner {
    /// Keeps a block's code. After a failed write no later block can be.
    fn put_code(&self, hash: B256, code: &[u8]) -> Result<(), StateError> {
        match self.codes.put(hash, code) {
            Err(error @ (StoreError::Disk(_) | StoreError::Poisoned { .. })) => {
                self.poison(Err(error))
            }
            put => Ok(put.map(drop)?),
        }
    }

    /// Codes that accounts have from this block on, and that are in the database only since a block
    /// brought them that may never be committed: the record needs them as well.
    fn borrowed_codes(
        &self,
        changes: &Changes,
        reverts: &Changes,
        given: &[(B256, Bytes)],
    ) -> Result<Vec<(B256, Bytes)>, StateError> {
        let mut borrowed: Vec<(B256, Bytes)> = Vec::new();
        let before = |path: &B256| {
            let accounts = reverts.accounts();
            let at = accounts.binary_search_by(|change| change.path.cmp(path));
            match accounts[at.ok()?].account {
                AccountUpdate::Put(account) => Some(account.code_hash),
                _ => None,
            }
        };
        for change in changes.accounts() {
            let AccountUpdate::Put(Account { code_hash, .. }) = change.account else {
                continue;
            };
            let is_known = code_hash == KECCAK_EMPTY
                || before(&change.path) == Some(code_hash)
                || given.iter().any(|(hash, _)| *hash == code_hash)
                || borrowed.iter().any(|(hash, _)| *hash == code_hash)
                || self.codes.is_durable(&code_hash);
            if !is_known && let Some(code) = self.codes.get(&code_hash)? {
                borrowed.push((code_hash, code.into()));
            }
        }
        Ok(borrowed)
    }

    /// Holds given codes against their hashes, and those of accounts against what there is.
    fn check_codes(&self, changes: &Changes, codes: &[(B256, Bytes)]) -> Result<(), StateError> {
        for (expected, code) in codes {
            let (expected, got) = (*expected, keccak256(code));
            if got != expected {
                return Err(StateError::WrongCode { expected, got });
            }
        }
        for change in changes.accounts() {
            let AccountUpdate::Put(Account { code_hash, .. }) = change.account else {
                continue;
            };
            let is_given = || codes.iter().any(|(hash, _)| *hash == code_hash);
            if code_hash != KECCAK_EMPTY && !self.codes.contains(&code_hash) && !is_given() {
                let account = change.path;
                return Err(StateError::UnknownCode { account, code_hash });
            }
        }
        Ok(())
    }
}
