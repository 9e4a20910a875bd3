//! A view: the state at one block, immutable and cheap to make. Writers never wait for it.

use crate::{
    engine::{parts::Engine, past_states::PastState},
    layers::{overlay::Overlay, tree::Layer},
    tries::base::Base,
};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, BlockId, BlockNumber, STORAGE_ROOT_KEY};
use cambium_snapshot::{PagePin, StateError, storage_root_of};
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

    /// The state root: of a block that was sealed with a claimed one, the claim. See [`Sealed::verify`](crate::Sealed::verify).
    pub fn state_root(&self) -> B256 {
        self.layer.state_root
    }

    /// Whether no merge has begun or ended since the view was made. A view that outlives merges keeps
    /// files and memory that nothing else needs.
    pub fn is_on_newest_base(&self) -> bool {
        Arc::ptr_eq(&self.base, &self.inner.layers.current.read().base)
    }

    /// Reads all non-zero slots of an account, by keccak(slot). The result can be large;
    /// [`View::each_slot`] does not collect it.
    ///
    /// # Errors
    ///
    /// As [`View::slot`].
    pub fn slots(&self, account: &B256) -> Result<Vec<(B256, U256)>, StateError> {
        self.inner.check_storage_kept(account)?;
        self.leaves_of_storage(account)
    }

    /// Reads the leaves of an account's storage: its slots, or the storage root if the slots are not kept.
    pub(crate) fn leaves_of_storage(
        &self,
        account: &B256,
    ) -> Result<Vec<(B256, U256)>, StateError> {
        let mut slots = Vec::new();
        self.each_leaf_of_storage(account, &B256::ZERO, |slot, value| {
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
    /// As [`View::slot`].
    pub fn each_slot(
        &self,
        account: &B256,
        visit: impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        self.each_slot_from(account, &B256::ZERO, visit)
    }

    /// Whether an account has a non-zero slot, of any account in a partial database, too. Reads no further than the first one.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn has_storage(&self, account: &B256) -> Result<bool, StateError> {
        let mut has_one = false;
        self.each_leaf_of_storage(account, &B256::ZERO, |_, _| {
            has_one = true;
            ControlFlow::Break(())
        })?;
        Ok(has_one)
    }

    /// Reads the storage root that a partial database has in place of the slots of an account which it does not keep; `None` if
    /// the storage is empty. [`View::storage_root`] computes that of any account, from the nodes above it.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn root_in_place_of_slots(&self, account: &B256) -> Result<Option<B256>, StateError> {
        let mut root = None;
        self.each_leaf_of_storage(account, &STORAGE_ROOT_KEY, |key, value| {
            if key == STORAGE_ROOT_KEY {
                root = Some(storage_root_of(value));
            }
            ControlFlow::Break(())
        })?;
        Ok(root)
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

    /// Fails with [`StateError::UnknownBlock`] if the view's block was dropped. A later block with
    /// the same hash is another one.
    pub(crate) fn check_alive(&self) -> Result<(), StateError> {
        match self.layer.is_dropped() {
            true => Err(StateError::UnknownBlock(self.layer.block.hash)),
            false => Ok(()),
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
        self.slot_at(address, index)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, StateError> {
        Ok(self.block_hash(number)?.unwrap_or_default())
    }
}
