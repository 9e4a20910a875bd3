//! From a view to a durable block: `View -> Session -> Staged -> Sealed -> Committed`.
//!
//! ```text
//!   View       the state after the parent
//!   Session    a block in execution, with the changes so far
//!   Staged     all its changes and the resulting root; dropping it discards them
//!   Sealed     has a hash: other blocks can be built on it, though it is not durable
//!   Committed  survives power loss
//! ```

use crate::write::{
    roots::StagedRoot,
    seal::RootIs,
    sealed::{Sealed, WithoutBody},
};
use crate::{
    log::records::{BlockMeta, BlockRecord, check_record},
    values::{LongValues, ValuePin, is_long},
    view::{
        batch::ValueCacheUse,
        known::{KnownKey, KnownValues},
        state::View,
    },
};
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{Account, BlockId, Changes, EntryValue, StoredValue};
use cambium_snapshot::{EntryKey, StateError, pool};
use cambium_trie::{
    Commitment, EntryProof, NoResolve, PartialTrie, ProofTargets, TrieError, UpdateError,
};
use parking_lot::Mutex;
use rayon::prelude::*;
use std::{
    borrow::Cow,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Fewest keys that several threads sort: fewer are sorted in less time than waking a thread takes.
const PARALLEL_SORT_MIN: usize = 4096;

/// Id of the next session, by which its uncommitted changes are known.
static NEXT_SESSION: AtomicU64 = AtomicU64::new(1);

/// A block that is being executed on a view.
pub struct Session {
    view: View,
    id: u64,
    /// The changes up to the last intermediate root, and their reverts.
    applied: Changes,
    applied_reverts: Changes,
    /// Values that the session has read and the tries lack.
    known: Mutex<KnownValues>,
    /// Keeps the values that the session has written, from the first one on.
    pin: OnceLock<ValuePin>,
}

impl View {
    /// Begins a block on this state, which may be the state of any block of the database.
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
            known: Mutex::default(),
            pin: OnceLock::new(),
        }
    }

    /// The state before the block.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Reads accounts that the block will change, by keccak(address), in any order. Unlike
    /// [`View::accounts`], this also loads the trie nodes that their update needs, so that
    /// [`Session::finish`] has less to do.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn accounts(&self, paths: &[B256]) -> Result<Vec<Option<Account>>, StateError> {
        self.read(paths)
    }

    /// Reads slots that the block will change, by keccak(address) and keccak(slot), in any order,
    /// and loads the trie nodes that their update needs: see [`Session::accounts`].
    ///
    /// # Errors
    ///
    /// As [`View::slot`].
    pub fn storage(&self, slots: &[(B256, B256)]) -> Result<Vec<U256>, StateError> {
        self.view.check_slots(slots)?;
        self.read(slots)
    }

    /// Reads entries that the block will change, by their keys, in any order, and loads the trie nodes
    /// that their update needs: see [`Session::accounts`].
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn entries(&self, keys: &[B256]) -> Result<Vec<Option<Bytes>>, StateError> {
        let read: Vec<_> = keys.iter().copied().map(EntryKey).collect();
        let values = self.read(&read)?;
        self.view.inner.store.whole_values(keys, values)
    }

    /// Reads keys in any order, and loads the trie nodes on the paths to them.
    pub(super) fn read<K: KnownKey>(&self, keys: &[K]) -> Result<Vec<K::Value>, StateError> {
        if !self.applied.is_empty() || self.view.inner.layered.is_some() {
            // The tries are past the state before the block, or no root needs them.
            let values = self.view.read_all(keys, ValueCacheUse::ReadAndFill)?;
            self.known.lock().add(keys, &values);
            return Ok(values);
        }
        let mut sorted: Vec<_> = keys.iter().copied().zip(0..).collect();
        match sorted.len() {
            PARALLEL_SORT_MIN.. => pool::install(|| sorted.par_sort_unstable()),
            _ => sorted.sort_unstable(),
        }
        let (sorted, places): (Vec<K>, Vec<usize>) = sorted.into_iter().unzip();
        let values = self.view.inner.read(&self.view, &sorted)?;
        let mut ordered: Vec<_> = keys.iter().map(|_| None).collect();
        for (at, value) in places.into_iter().zip(values) {
            ordered[at] = Some(value);
        }
        Ok(ordered.into_iter().flatten().collect())
    }

    /// Makes the value of an entry, for the changes of this block. Up to
    /// [`INLINE_VALUE_BYTES_MAX`](cambium_primitives::INLINE_VALUE_BYTES_MAX) bytes are part of the
    /// leaf. A longer value is written at once, and stays if the block becomes part of the database;
    /// committing the block makes it durable. Threads may call this side by side.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongLeaf`] for a long value if the leaves are accounts,
    /// [`StateError::ReadOnly`] for a long value in a reader, [`StateError::Store`] for a value of
    /// more than 16 MiB, and if it can't be written, which poisons the engine.
    pub fn value(&self, key: &B256, value: Bytes) -> Result<EntryValue, StateError> {
        if !is_long(&value) {
            return Ok(EntryValue::Inline(value));
        }
        let inner = &self.view.inner;
        inner.health.check()?;
        inner.journal.check_writable("given long values")?;
        let Some(values) = &inner.store.values else {
            let (path, leaves) = (*key, "accounts");
            return Err(StateError::WrongLeaf { path, leaves });
        };
        let hash = inner.options.commitment.value_hash(&value);
        self.pin_values(values);
        let place = values.append(&inner.health, key, &value)?;
        Ok(EntryValue::Stored(StoredValue {
            hash,
            len: value.len() as u32,
            place,
        }))
    }

    /// Keeps all values that are appended from now on, for as long as the session is not finished.
    pub(super) fn pin_values(&self, values: &LongValues) {
        self.pin.get_or_init(|| values.pin_newest());
    }

    /// Whether an intermediate root has changed `key`.
    pub(super) fn has_changed(&self, key: &B256) -> bool {
        self.applied.account(key).is_some()
    }

    /// Extracts the same partial trie as [`View::extract_for_changes`] from the state before the
    /// block, but from the tries that [`Session::finish`] uses. Nodes that this session has read
    /// are in these already, and nodes that are hashed for a witness are not hashed again for the
    /// root. Unlike the extraction from a view, it delays roots of other blocks.
    ///
    /// # Errors
    ///
    /// As [`View::extract_for_changes`].
    pub fn extract_for_changes(
        &self,
        keys: &ProofTargets,
        changes: &Changes,
    ) -> Result<PartialTrie, StateError> {
        let inner = &self.view.inner;
        inner.refuse_layered("a witness of nodes")?;
        let all = keys
            .clone()
            .and(&ProofTargets::of_changes(changes.accounts()));
        inner.check_targets(&all)?;
        match self.view.inner.extract(&self.view, &all, changes)? {
            Some(part) => Ok(part),
            None => self.view.extract_for_changes(keys, changes),
        }
    }

    /// Proves what `reads` are before the block, and what is needed to compute the root after `changes`: see
    /// [`verify_entry_update`](cambium_trie::verify_entry_update). Like
    /// [`Session::extract_for_changes`], it uses the tries of [`Session::finish`].
    ///
    /// # Errors
    ///
    /// As [`View::extract_for_changes`], and [`StateError::WrongLeaf`] for changes of accounts.
    pub fn prove_entry_update(
        &self,
        reads: &[B256],
        changes: &Changes,
    ) -> Result<EntryProof, StateError> {
        let inner = &self.view.inner;
        inner.refuse_layered("a witness of nodes")?;
        inner.check_leaves(changes)?;
        if let Commitment::Binary(_) = inner.options.commitment {
            // The proof of all keys is enough for the update.
            let changed = changes.accounts().iter().map(|change| change.path);
            let mut keys: Vec<_> = reads.iter().copied().chain(changed).collect();
            keys.sort_unstable();
            keys.dedup();
            if let Some(proof) = inner.prove_entries(&self.view, &keys)? {
                return Ok(proof);
            }
        }
        let targets = reads.iter().map(|key| (*key, Vec::new())).collect();
        let mut part = self.extract_for_changes(&ProofTargets::new(targets), changes)?;
        part.prove_entry_update(reads, changes.accounts(), &mut NoResolve)
            .map_err(|error| match error {
                UpdateError::Resolve(missing) => TrieError::NoNode { path: missing.path }.into(),
                UpdateError::Trie(error) => error.into(),
            })
    }

    /// Computes the state root after `changes` on top of those of earlier calls. Receipts before
    /// Byzantium contain such roots, one for each transaction.
    ///
    /// # Errors
    ///
    /// [`StateError::BadChanges`] for slots of an account that does not exist, and the errors of reads:
    /// [`View::account`]. The session is unchanged, and the call can be repeated.
    pub fn intermediate_root(&mut self, changes: &Changes) -> Result<B256, StateError> {
        self.view.inner.check_leaves(changes)?;
        let reduced = match &self.view.inner.kept_storage {
            None => Cow::Borrowed(changes),
            Some(kept) => kept.reduce(changes, &[])?,
        };
        let changes = &*reduced;
        self.view.check_owners(&self.applied, changes)?;
        // An error leaves the session unchanged.
        let reverts = self.view.reverts_of(changes, &self.known.lock())?;
        let reverts = self.applied_reverts.clone().then(reverts);
        let all = self.applied.clone().then(changes.clone());
        let inner = &self.view.inner;
        let root = inner.apply_uncommitted(&self.view, self.id, changes, &all, reverts.clone())?;
        (self.applied, self.applied_reverts) = (all, reverts);
        Ok(root)
    }

    /// Computes the state root from all changes of the block, including those of earlier calls of
    /// [`Session::intermediate_root`]. `codes` are the created codes with their hashes. In a database
    /// of entries the block may also move long values out of segments with much dead space: it puts
    /// them again with the same bytes, which changes no root.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongCode`] if a code has another hash, [`StateError::UnknownCode`] if the
    /// code of a changed account is neither given nor in the database,
    /// [`StateError::MissingValue`] if a stored value is not one of the database, and
    /// [`StateError::BadChanges`] if slots are changed of an account that doesn't exist.
    pub fn finish(self, changes: Changes, codes: Vec<(B256, Bytes)>) -> Result<Staged, StateError> {
        self.stage(changes, codes, &[], None)
    }

    /// Does the same as [`Session::finish`] with new storage roots, sorted by account. A partial database takes the
    /// storage roots of contracts that it does not keep from there, and passes over their slots in `changes`, which need not be
    /// there. Whether they are right follows from the state root, which commits to all of them. Roots of contracts whose
    /// storage is kept are compared with those that are computed.
    ///
    /// # Errors
    ///
    /// As [`Session::finish`]; [`StateError::StorageRoot`] if a root is missing, or the roots are not sorted;
    /// [`StateError::WrongStorageRoot`] if one is not that of the slots.
    pub fn finish_with_storage_roots(
        self,
        changes: Changes,
        codes: Vec<(B256, Bytes)>,
        storage_roots: &[(B256, B256)],
    ) -> Result<Staged, StateError> {
        self.stage(changes, codes, storage_roots, None)
    }

    /// Stages all changes of the block with the state root that its header claims, which is computed later: by
    /// [`Sealed::verify`], or when the block is committed. So the next block is executed on the values of this one while
    /// roots of both are outstanding.
    ///
    /// The root is computed at once, as by [`Session::finish`], where it is needed for more than its value: after
    /// intermediate roots, and under the `layered` commitment.
    ///
    /// # Errors
    ///
    /// As [`Session::finish`].
    pub fn finish_claimed(
        self,
        changes: Changes,
        codes: Vec<(B256, Bytes)>,
        root: B256,
    ) -> Result<Staged, StateError> {
        self.stage(changes, codes, &[], Some(root))
    }

    fn stage(
        self,
        changes: Changes,
        codes: Vec<(B256, Bytes)>,
        storage_roots: &[(B256, B256)],
        claimed: Option<B256>,
    ) -> Result<Staged, StateError> {
        let _span = tracing::debug_span!("root", parent_block = %self.view.block()).entered();
        let inner = &self.view.inner;
        inner.check_leaves(&changes)?;
        inner.store.check_codes(&changes, &codes)?;
        let changes = match &inner.kept_storage {
            None => changes,
            Some(kept) => match kept.reduce(&changes, storage_roots)? {
                Cow::Borrowed(_) => changes,
                Cow::Owned(reduced) => reduced,
            },
        };
        let changes = self.with_moved_values(changes)?;
        let pin = match &inner.store.values {
            Some(values) => values.pin_changes(&changes)?,
            None => None,
        };
        let Self {
            view,
            id,
            applied_reverts,
            known,
            ..
        } = self;
        let known = known.into_inner();
        let claimed =
            claimed.filter(|_| applied_reverts.is_empty() && view.inner.layered.is_none());
        // Slots that one transaction set and a later one set back are missing from `changes`.
        let StagedRoot {
            root,
            reverts,
            references,
        } = if let Some(claimed) = claimed {
            view.inner.health.check()?;
            StagedRoot {
                root: claimed,
                reverts: view.reverts_of_block(&changes, &known)?,
                references: None,
            }
        } else if applied_reverts.is_empty() {
            view.inner
                .stage(&view, id, &changes, &known, storage_roots)?
        } else {
            // The tries have intermediate changes: `net` undoes those before it applies `changes`.
            let reverts = view.reverts_of_block(&changes, &known)?;
            let net = applied_reverts.then(changes.clone());
            let root = view
                .inner
                .apply_uncommitted(&view, id, &net, &changes, reverts.clone())?;
            let references = None;
            StagedRoot {
                root,
                reverts,
                references,
            }
        };
        Ok(Staged {
            view,
            id,
            changes,
            reverts,
            codes,
            root,
            root_is: match claimed {
                Some(_) => RootIs::Claimed,
                None => RootIs::Computed,
            },
            references,
            pin,
        })
    }
}

/// A block's changes and the state root that they lead to. Nothing is visible or durable yet.
pub struct Staged {
    view: View,
    id: u64,
    changes: Changes,
    reverts: Changes,
    codes: Vec<(B256, Bytes)>,
    root: B256,
    root_is: RootIs,
    /// References for the log after this block, if there are some.
    references: Option<Vec<u8>>,
    /// Keeps the stored values of the changes, until there is a layer that does.
    pin: Option<ValuePin>,
}

impl Staged {
    /// The state root after the block, or the one that was claimed.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// The changes of the block, with the values that it moves.
    pub const fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Undoes the changes: the pre-state values of every key that the block changes.
    pub const fn reverts(&self) -> &Changes {
        &self.reverts
    }

    /// Gives the block its number and hash, so that other blocks can be built on it. Waits for
    /// memory if blocks arrive faster than they can be merged.
    ///
    /// # Errors
    ///
    /// A rejected block leaves nothing behind. [`StateError::WrongRoot`] if `meta` has another
    /// state root, [`StateError::NotAChild`] if it has another parent or a number that doesn't
    /// follow it, [`StateError::BlockExists`] if its hash is in the database already, and
    /// [`StoreError::TooLarge`](cambium_store::StoreError::TooLarge) if it exceeds the size of a
    /// record.
    pub fn seal(self, meta: BlockMeta) -> Result<Sealed, StateError> {
        self.check_root(&meta)?;
        let codes = self.all_codes()?;
        // Checked before encoding, which takes memory for the whole record.
        let least = BlockRecord::bytes_min(&meta, &self.changes, &self.reverts, &codes);
        check_record("record of a block", least)?;
        let record = BlockRecord::encode(&meta, &self.changes, &self.reverts, &codes);
        check_record("record of a block", record.len())?;
        self.with_layer(&meta, record, &codes)
    }

    /// As [`Staged::seal`], of a block whose body is still being made: blocks can be built on it, and
    /// [`WithoutBody::complete`] gives it the body with which it is committed.
    ///
    /// # Errors
    ///
    /// As [`Staged::seal`].
    pub fn seal_without_body(
        self,
        id: BlockId,
        parent: B256,
        state_root: B256,
    ) -> Result<WithoutBody, StateError> {
        let meta = BlockMeta {
            id,
            parent,
            state_root,
            body: Bytes::new(),
        };
        self.check_root(&meta)?;
        let codes = self.all_codes()?;
        let sealed = self.with_layer(&meta, Vec::new(), &codes)?;
        Ok(WithoutBody::new(sealed, meta, codes))
    }

    fn check_root(&self, meta: &BlockMeta) -> Result<(), StateError> {
        if meta.state_root != self.root {
            let (got, expected) = (self.root, meta.state_root);
            return Err(StateError::WrongRoot {
                block: meta.id,
                got,
                expected,
            });
        }
        Ok(())
    }

    /// The created codes, and those of its accounts that only blocks have which may be dropped.
    fn all_codes(&self) -> Result<Vec<(B256, Bytes)>, StateError> {
        let mut codes = self.codes.clone();
        let store = &self.view.inner.store;
        codes.extend(store.borrowed_codes(&self.changes, &self.reverts, &codes)?);
        Ok(codes)
    }

    fn with_layer(
        self,
        meta: &BlockMeta,
        record: Vec<u8>,
        codes: &[(B256, Bytes)],
    ) -> Result<Sealed, StateError> {
        let inner = self.view.inner.clone();
        let (changes, reverts) = (self.changes, self.reverts);
        let owner = (self.root_is == RootIs::Computed).then_some(self.id);
        let layer = inner.seal(&self.view, owner, meta, changes, reverts)?;
        // If an error follows, dropping it removes the layer.
        let mut sealed = Sealed::new(inner, layer, record, self.root_is);
        sealed.set_references(self.references);
        // From here on the layer keeps them.
        drop(self.pin);
        for (hash, code) in codes {
            sealed
                .inner
                .store
                .put_code(&sealed.inner.health, *hash, code)?;
        }
        Ok(sealed)
    }
}
