//! The parent's state, by the places of a block's access list: what is listed is found with one
//! look into the list's index, and read once however many threads want it.

use super::given::Given;
use crate::{
    StateRead,
    access_list::SlotPlace,
    cache::{BlockCache, Cell, Keys},
    overlay::plain,
};
use alloy_primitives::{Address, B256, U256};
use cambium_primitives::FoundValues;
use revm::{bytecode::Bytecode, state::AccountInfo};

/// What a block has read of its parent's state.
pub(super) struct Parent<'a, DB> {
    given: &'a Given<'a>,
    accounts: Vec<Cell<Option<AccountInfo>>>,
    slots: Vec<Cell<U256>>,
    /// Codes, and what the list does not name.
    rest: BlockCache<'a, DB>,
}

impl<'a, DB: StateRead> Parent<'a, DB> {
    pub(super) fn new(given: &'a Given<'a>, db: &'a DB) -> Self {
        let accounts = given.list().accounts().len();
        let slots = given.index().slot_count();
        Self {
            given,
            accounts: (0..accounts).map(|_| Cell::default()).collect(),
            slots: (0..slots).map(|_| Cell::default()).collect(),
            rest: BlockCache::new(db),
        }
    }

    pub(super) const fn given(&self) -> &'a Given<'a> {
        self.given
    }

    pub(super) const fn db(&self) -> &'a DB {
        self.rest.db()
    }

    /// The account at `place`.
    pub(super) fn account(&self, place: usize) -> Result<Option<AccountInfo>, DB::Error> {
        let address = self.given.list().accounts()[place].address;
        self.accounts[place].get(|| self.rest.read_account(address))
    }

    /// The slot at `place`.
    pub(super) fn slot(
        &self,
        place: SlotPlace,
        address: Address,
        slot: U256,
    ) -> Result<U256, DB::Error> {
        self.slots[place.slot].get(|| self.db().storage_ref(address, slot))
    }

    /// An account that the list does not name.
    pub(super) fn unlisted_account(
        &self,
        address: Address,
    ) -> Result<Option<AccountInfo>, DB::Error> {
        self.rest.account(address)
    }

    /// A slot that the list does not name.
    pub(super) fn unlisted_slot(&self, address: Address, slot: U256) -> Result<U256, DB::Error> {
        self.rest.slot(address, slot)
    }

    /// Reads many keys of the list at once.
    pub(super) fn read(&self, keys: &Keys) -> Result<(), DB::Error> {
        let (accounts, slots) = self.rest.read_all(keys)?;
        for (place, account) in keys.account_places.iter().zip(accounts) {
            self.accounts[*place].put(account);
        }
        for (place, slot) in keys.slot_places.iter().zip(slots) {
            self.slots[*place].put(slot);
        }
        Ok(())
    }

    /// As [`Self::read`], of keys that nobody has read or is reading: who wants one of them waits
    /// instead of reading it, and its page, a second time.
    pub(super) fn read_ahead(&self, keys: &Keys) -> Result<(), DB::Error> {
        let (mut wanted, mut claims) = (Keys::default(), Vec::new());
        for (address, place) in keys.accounts.iter().zip(&keys.account_places) {
            if let Some(claim) = self.accounts[*place].claim() {
                claims.push(claim);
                wanted.accounts.push(*address);
                wanted.account_places.push(*place);
            }
        }
        for (slot, place) in keys.slots.iter().zip(&keys.slot_places) {
            if let Some(claim) = self.slots[*place].claim() {
                claims.push(claim);
                wanted.slots.push(*slot);
                wanted.slot_places.push(*place);
            }
        }
        self.read(&wanted)
    }

    /// Takes values for those of the parent's state that somebody says are: one for each key of
    /// the list.
    pub(super) fn believe(&self, found: &FoundValues) {
        for (cell, found) in self.accounts.iter().zip(found.accounts()) {
            let account = found.account;
            let info = AccountInfo {
                nonce: account.nonce,
                balance: account.balance,
                code_hash: account.code_hash,
                code: None,
                ..AccountInfo::default()
            };
            cell.put((!account.is_empty()).then_some(info));
        }
        let slots = found.accounts().iter().flat_map(|found| &found.slots);
        for (cell, value) in self.slots.iter().zip(slots) {
            cell.put(*value);
        }
    }

    /// Whether the parent's state has these values.
    pub(super) fn bears_out(&self, found: &FoundValues) -> Result<bool, DB::Error> {
        let (accounts, slots) = self.rest.read_all(&Keys::of(self.given.list()))?;
        let accounts = accounts.iter();
        let accounts = accounts.map(|account| account.as_ref().map(plain).unwrap_or_default());
        let found_slots = found.accounts().iter().flat_map(|found| &found.slots);
        Ok(
            accounts.eq(found.accounts().iter().map(|found| found.account))
                && slots.iter().eq(found_slots),
        )
    }

    /// See [`BlockCache::has_empty_account`].
    pub(super) fn has_empty_account(&self) -> bool {
        self.rest.has_empty_account()
    }

    pub(super) fn code(&self, hash: B256) -> Result<Bytecode, DB::Error> {
        self.rest.code(hash)
    }
}
