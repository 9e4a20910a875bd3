//! A view: the state at one block, immutable and cheap to make. Writers never wait for it.

use crate::{
    engine::{parts::Engine, past_states::PastState},
    layers::{overlay::Overlay, tree::Layer},
    tries::base::Base,
};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{
    Account, AccountDiff, AccountUpdate, BlockId, BlockNumber, Changes, EntryValue, Path,
};
use cambium_snapshot::{EntryKey, PagePin, StateError};
use cambium_trie::TrieError;
use revm::{bytecode::Bytecode, database_interface::DatabaseRef, state::AccountInfo};
use std::{ops::ControlFlow, sync::Arc};

/// The state after a block. Clones are cheap, and threads may share a view.
///
/// A view keeps the memory and the files that it needs for as long as it lives. Drop views that are
/// not needed any more.
#[derive(Clone)]
pub struct View {
    pub(crate) inner: Arc<Engine>,
    pub(crate) base: Arc<Base>,
    pub(crate) overlay: Arc<Overlay>,
    pub(crate) layer: Arc<Layer>,
    /// The restored state of an old block, if the view is of one.
    pub(crate) past: Option<Arc<PastState>>,
    /// Keeps the pages that reads need.
    pub(crate) pin: Option<Arc<PagePin>>,
}

impl View {
    /// The block whose state this is.
    pub fn block(&self) -> BlockId {
        self.layer.block
    }

    /// The state root.
    pub fn state_root(&self) -> B256 {
        self.layer.state_root
    }

    /// Whether no merge has begun or ended since the view was made. A view that outlives merges keeps
    /// files and memory that nothing else needs.
    pub fn is_on_newest_base(&self) -> bool {
        Arc::ptr_eq(&self.base, &self.inner.layers.current.read().base)
    }

    /// Reads the account at keccak(address); `None` if it doesn't exist.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the disk fails, and an error that names the file if a page or a part of
    /// the index is damaged.
    pub fn account(&self, path: &B256) -> Result<Option<Account>, StateError> {
        self.read(path)
    }

    /// Reads the slot at keccak(slot) of the account at keccak(address); zero if it is not set.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn slot(&self, account: &B256, slot: &B256) -> Result<U256, StateError> {
        self.read(&(*account, *slot))
    }

    /// The account in the layers above the snapshot: `None` if none of them wrote it, and
    /// `Some(None)` if it was deleted.
    pub(crate) fn account_above(&self, path: &B256) -> Option<Option<Account>> {
        self.overlay
            .account(path, &self.layer.ancestors)
            .or_else(|| {
                let middle = self.base.intermediate.as_ref()?;
                middle.overlay.account(path, &middle.ancestors)
            })
    }

    /// The value of an entry in the layers above the snapshot, as [`View::account_above`].
    pub(crate) fn entry_above(&self, key: &B256) -> Option<Option<EntryValue>> {
        self.overlay.entry(key, &self.layer.ancestors).or_else(|| {
            let middle = self.base.intermediate.as_ref()?;
            middle.overlay.entry(key, &middle.ancestors)
        })
    }

    /// The slot in the layers above the snapshot; `None` if none of them wrote it.
    pub(crate) fn slot_above(&self, account: &B256, slot: &B256) -> Option<U256> {
        self.overlay
            .slot(account, slot, &self.layer.ancestors)
            .or_else(|| {
                let middle = self.base.intermediate.as_ref()?;
                middle.overlay.slot(account, slot, &middle.ancestors)
            })
    }

    /// Reads all non-zero slots of an account, by keccak(slot). The result can be large;
    /// [`View::each_slot`] does not collect it.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn slots(&self, account: &B256) -> Result<Vec<(B256, U256)>, StateError> {
        let mut slots = Vec::new();
        self.each_slot(account, |slot, value| {
            slots.push((slot, value));
            ControlFlow::Continue(())
        })?;
        Ok(slots)
    }

    /// Visits the non-zero slots of an account in the order of keccak(slot), until `visit` breaks.
    /// Besides the slots that layers above the snapshot wrote, one page of slots is in memory at a
    /// time.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn each_slot(
        &self,
        account: &B256,
        visit: impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        self.each_slot_from(account, &B256::ZERO, visit)
    }

    /// Whether an account has a non-zero slot. Reads no further than the first one.
    ///
    /// # Errors
    ///
    /// As [`View::slot`].
    pub fn has_storage(&self, account: &B256) -> Result<bool, StateError> {
        let mut has_one = false;
        self.each_slot(account, |_, _| {
            has_one = true;
            ControlFlow::Break(())
        })?;
        Ok(has_one)
    }

    /// Reads the code with that hash.
    ///
    /// # Errors
    ///
    /// [`StateError::MissingCode`] if the database has no such code, and [`StateError::Store`] if the disk
    /// fails or the code is damaged.
    pub fn code(&self, hash: &B256) -> Result<Bytes, StateError> {
        Ok(self.bytecode(hash)?.original_bytes())
    }

    /// Reads the code with that hash, analysed for execution.
    fn bytecode(&self, hash: &B256) -> Result<Bytecode, StateError> {
        if *hash == KECCAK256_EMPTY {
            return Ok(Bytecode::default());
        }
        self.inner
            .store
            .code_cache
            .get(hash, &self.inner.store.codes)
    }

    /// The hash of this block or of an ancestor. `None` for a number above this block, and for one
    /// below the database's first block.
    ///
    /// # Errors
    ///
    /// [`StateError::UnknownBlock`] if the view has outlived its block: the ancestors of a dropped
    /// branch are not known any more.
    pub fn block_hash(&self, number: BlockNumber) -> Result<Option<B256>, StateError> {
        if number > self.layer.block.number {
            return Ok(None);
        }
        self.inner.ancestor_hash(&self.layer, number)
    }

    /// Rejects `changes` that set slots of accounts which they do not create and which do not exist
    /// in this state after the changes `before`.
    pub(crate) fn check_owners(
        &self,
        before: &Changes,
        changes: &Changes,
    ) -> Result<(), StateError> {
        let is_set = |change: &&AccountDiff| {
            let keeps = matches!(change.account, AccountUpdate::Keep);
            keeps && change.slots.iter().any(|(_, value)| !value.is_zero())
        };
        let mut unknown = Vec::new();
        for change in changes.accounts().iter().filter(is_set) {
            let path = change.path;
            match before.account(&path).map(|before| &before.account) {
                Some(AccountUpdate::Put(_) | AccountUpdate::Entry(_)) => {}
                Some(AccountUpdate::Delete) => return Err(no_account(path)),
                Some(AccountUpdate::Keep) | None => unknown.push(path),
            }
        }
        let there = self.accounts(&unknown)?;
        match unknown
            .iter()
            .zip(there)
            .find(|(_, account)| account.is_none())
        {
            Some((path, _)) => Err(no_account(*path)),
            None => Ok(()),
        }
    }

    /// Fails with [`StateError::UnknownBlock`] if the view's block was dropped. A later block with
    /// the same hash is another one.
    pub(crate) fn check_alive(&self) -> Result<(), StateError> {
        match self.layer.is_dropped() {
            true => Err(StateError::UnknownBlock(self.layer.block.hash)),
            false => Ok(()),
        }
    }

    /// Does the same as [`View::reverts_of`], from the values of the accounts and slots in
    /// [`Touched`].
    pub(crate) fn reverts_from(
        &self,
        changes: &Changes,
        accounts: Vec<Option<Account>>,
        slots: Vec<U256>,
    ) -> Result<Changes, StateError> {
        let mut values = slots.into_iter();
        let revert = |(change, account): (&AccountDiff, Option<Account>)| {
            let path = change.path;
            let mut slots = Vec::with_capacity(if change.wipe { 0 } else { change.slots.len() });
            if !change.wipe {
                let paths = change.slots.iter().map(|(slot, _)| *slot);
                slots.extend(paths.zip(values.by_ref()));
            }
            let Some(account) = account else {
                return Ok(AccountDiff {
                    path,
                    account: AccountUpdate::Delete,
                    wipe: true,
                    slots: Vec::new(),
                });
            };
            if change.wipe {
                // Restores the exact storage: wipes slots that were set since, then sets all old
                // ones.
                slots = self.slots(&path)?;
            }
            let account = match change.account {
                AccountUpdate::Keep => AccountUpdate::Keep,
                AccountUpdate::Put(_) | AccountUpdate::Entry(_) | AccountUpdate::Delete => {
                    AccountUpdate::Put(account)
                }
            };
            Ok(AccountDiff {
                path,
                account,
                wipe: change.wipe,
                slots,
            })
        };
        let reverts = changes.accounts().iter().zip(accounts).map(revert);
        Ok(Changes::new(reverts.collect::<Result<_, StateError>>()?))
    }
}

/// The changes that undo `changes` of entries, from the values that these had before.
pub(crate) fn entry_reverts(changes: &Changes, before: Vec<Option<EntryValue>>) -> Changes {
    let reverts = changes.accounts().iter().zip(before);
    let reverts = reverts.map(|(change, before)| AccountDiff {
        path: change.path,
        wipe: before.is_none(),
        account: before.map_or(AccountUpdate::Delete, AccountUpdate::Entry),
        slots: Vec::new(),
    });
    Changes::new(reverts.collect())
}

/// The error for slots of an account that doesn't exist.
fn no_account(path: B256) -> StateError {
    let path = Path::account(&path);
    StateError::BadChanges(TrieError::NoAccount { path })
}

/// The accounts and slots that changes touch, in their order. Wiped storage is not listed by slot,
/// since it is read as a whole.
pub(crate) struct Touched {
    pub(crate) accounts: Vec<B256>,
    pub(crate) slots: Vec<(B256, B256)>,
}

impl Touched {
    /// The keys of entries, if that is what changes touch.
    pub(crate) fn entries(&self) -> Vec<EntryKey> {
        self.accounts.iter().copied().map(EntryKey).collect()
    }

    /// The accounts and slots that `changes` touch.
    pub(crate) fn by(changes: &Changes) -> Self {
        let changes = changes.accounts();
        let kept = changes.iter().filter(|change| !change.wipe);
        Self {
            accounts: changes.iter().map(|change| change.path).collect(),
            slots: kept
                .flat_map(|change| change.slots.iter().map(|(slot, _)| (change.path, *slot)))
                .collect(),
        }
    }
}

/// Converts an account into revm's type, without its code.
pub fn account_info(account: Account) -> AccountInfo {
    AccountInfo {
        balance: account.balance,
        nonce: account.nonce,
        code_hash: account.code_hash,
        code: None,
        ..AccountInfo::default()
    }
}

/// revm reads by address and slot number, whose hashes are the keys of the state.
impl DatabaseRef for View {
    type Error = StateError;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, StateError> {
        let account = self.account(&keccak256(address))?;
        Ok(account.map(account_info))
    }

    fn code_by_hash_ref(&self, code_hash: B256) -> Result<Bytecode, StateError> {
        self.bytecode(&code_hash)
    }

    fn storage_ref(&self, address: Address, index: U256) -> Result<U256, StateError> {
        self.slot(&keccak256(address), &keccak256(index.to_be_bytes::<32>()))
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, StateError> {
        Ok(self.block_hash(number)?.unwrap_or_default())
    }
}
