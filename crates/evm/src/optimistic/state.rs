//! The state that a step runs on: the parent's state with the writes of earlier steps.

use super::{
    team::Reading,
    versions::{Found, ParentValues, Versions},
};
use crate::{StateRead, cache::BlockCache};
use alloy_primitives::{
    Address, B256, U256,
    map::{AddressMap, Entry, U256Map},
};
use revm::{
    DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker, state::AccountInfo,
};
use std::cell::{Cell, RefCell};

/// The state below an overlay on which a step runs.
pub(super) struct Below<'a, DB> {
    pub(super) parent: &'a ParentReads<'a, DB>,
    pub(super) versions: &'a Versions,
    /// The step that runs.
    pub(super) step: usize,
    /// The sender's address and the nonce that its transaction requires.
    pub(super) sender: Option<(Address, u64)>,
    /// Whether the sender has another nonce in the state.
    pub(super) is_nonce_guessed: Cell<bool>,
    pub(super) beneficiary: Address,
    pub(super) position: Position,
}

/// Where a step runs in the order of the block.
pub(super) enum Position {
    /// Before its commit position: earlier steps may still run, and the beneficiary's fees are unknown.
    Ahead,
    /// At its commit position, with the beneficiary's account there.
    Commit(Option<AccountInfo>),
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum BelowError<E> {
    #[error(transparent)]
    State(E),
    /// The value can't be guessed: the transaction must wait for its commit position.
    #[error("this value is only read at the commit position")]
    InOrder,
    /// The value is written by a step that will run again. The slot, unless it is an account.
    #[error("this value is written by step {0}, which will run again")]
    WaitFor(usize, Option<(Address, U256)>),
}

impl<E: DBErrorMarker> DBErrorMarker for BelowError<E> {}

/// Values of the parent's state that one thread has read. Threads read them by themselves: few keys
/// are read by several, and a cache for all would need a lock.
pub(super) struct ParentReads<'a, DB> {
    /// Has codes for all threads.
    cache: &'a BlockCache<'a, DB>,
    reading: Reading<'a>,
    accounts: RefCell<AddressMap<Option<AccountInfo>>>,
    slots: RefCell<AddressMap<U256Map<U256>>>,
}

impl<'a, DB: StateRead + Sync> ParentReads<'a, DB> {
    pub(super) fn new(cache: &'a BlockCache<'a, DB>, reading: Reading<'a>) -> Self {
        Self {
            cache,
            reading,
            accounts: RefCell::default(),
            slots: RefCell::default(),
        }
    }
}

impl<DB: StateRead + Sync> ParentValues for ParentReads<'_, DB> {
    type Error = DB::Error;

    fn account(&self, address: Address) -> Result<Option<AccountInfo>, DB::Error> {
        match self.accounts.borrow_mut().entry(address) {
            Entry::Occupied(account) => Ok(account.get().clone()),
            Entry::Vacant(entry) => {
                let account = self.reading.read(|| self.cache.db().basic_ref(address))?;
                Ok(entry.insert(account).clone())
            }
        }
    }

    fn slot(&self, address: Address, slot: U256) -> Result<U256, DB::Error> {
        match self
            .slots
            .borrow_mut()
            .entry(address)
            .or_default()
            .entry(slot)
        {
            Entry::Occupied(value) => Ok(*value.get()),
            Entry::Vacant(entry) => {
                let read = || self.cache.db().storage_ref(address, slot);
                let value = self.reading.read(read)?;
                Ok(*entry.insert(value))
            }
        }
    }
}

impl<DB: StateRead + Sync> DatabaseRef for Below<'_, DB> {
    type Error = BelowError<DB::Error>;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        let parent = || self.parent.account(address).map_err(BelowError::State);
        if address == self.beneficiary {
            return match &self.position {
                // Transactions that depend on its balance are found out when they have run.
                Position::Ahead => parent(),
                Position::Commit(beneficiary) => Ok(beneficiary.clone()),
            };
        }
        let mut account = match self.versions.account(address, self.step) {
            Found::Parent | Found::Unread => parent()?,
            Found::Value(account) => account,
            Found::WaitFor(step) => return Err(BelowError::WaitFor(step, None)),
        };
        if let Some((sender, nonce)) = self.sender
            && sender == address
            && let Some(account) = &mut account
            && account.nonce != nonce
        {
            self.is_nonce_guessed.set(true);
            account.nonce = nonce;
        }
        Ok(account)
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Self::Error> {
        match self.versions.code(&hash) {
            Some(code) => Ok(code),
            None => {
                let code = self.parent.reading.read(|| self.parent.cache.code(hash));
                code.map_err(BelowError::State)
            }
        }
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        match self.versions.slot(address, slot, self.step) {
            Found::Parent | Found::Unread => {
                let value = self.parent.slot(address, slot);
                value.map_err(BelowError::State)
            }
            Found::Value(value) => Ok(value),
            Found::WaitFor(step) => Err(BelowError::WaitFor(step, Some((address, slot)))),
        }
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Self::Error> {
        let read = || self.parent.cache.db().block_hash_ref(number);
        let hash = self.parent.reading.read(read);
        hash.map_err(BelowError::State)
    }
}

impl<DB: StateRead + Sync> StateRead for Below<'_, DB> {
    fn has_storage(&self, address: Address) -> Result<bool, Self::Error> {
        if matches!(self.position, Position::Ahead) {
            return Err(BelowError::InOrder);
        }
        if self.versions.wiped(address, self.step).is_some() {
            return Ok(false);
        }
        let read = || self.parent.cache.db().has_storage(address);
        let has_storage = self.parent.reading.read(read);
        has_storage.map_err(BelowError::State)
    }
}
