//! The parent's state, by position in the block's access list. A listed key takes one look-up in
//! the list's index, and is read once, however many threads need it.

use super::given::Given;
use crate::{
    StateRead,
    access_list::{ChangedKey, SlotPlace},
    account::{account, account_info},
    cache::{BlockCache, Cell, Keys},
};
use alloy_primitives::{Address, B256, U256};
use cambium_primitives::PreStateValues;
use revm::{bytecode::Bytecode, state::AccountInfo};

/// Number of keys that [`Parent::read_ahead`] reads in one batch: enough to keep a disk busy nearly
/// all the time, and a fifth of the keys of a block of a billion gas.
const PORTION: usize = 16_384;

/// Values of the parent's state that a block has read.
pub(super) struct Parent<'a, DB> {
    given: &'a Given<'a>,
    accounts: Vec<Cell<Option<AccountInfo>>>,
    slots: Vec<Cell<U256>>,
    /// Codes, and keys that are not listed.
    rest: BlockCache<'a, DB>,
}

impl<'a, DB: StateRead + Sync> Parent<'a, DB> {
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

    /// The account at position `place`.
    pub(super) fn account(&self, place: usize) -> Result<Option<AccountInfo>, DB::Error> {
        let address = self.given.list().accounts()[place].address;
        self.accounts[place].get(|| self.rest.read_account(address))
    }

    /// The slot at position `place`.
    pub(super) fn slot(
        &self,
        place: SlotPlace,
        address: Address,
        slot: U256,
    ) -> Result<U256, DB::Error> {
        self.slots[place.slot].get(|| self.db().storage_ref(address, slot))
    }

    /// An account that is not listed.
    pub(super) fn unlisted_account(
        &self,
        address: Address,
    ) -> Result<Option<AccountInfo>, DB::Error> {
        self.rest.account(address)
    }

    /// A slot that is not listed.
    pub(super) fn unlisted_slot(&self, address: Address, slot: U256) -> Result<U256, DB::Error> {
        self.rest.slot(address, slot)
    }

    /// Reads all listed keys in one batch.
    pub(super) fn read_all(&self) -> Result<(), DB::Error> {
        let (accounts, slots) = self.rest.read_all(&Keys::of(self.given.list()))?;
        for (cell, account) in self.accounts.iter().zip(accounts) {
            cell.put(account);
        }
        for (cell, slot) in self.slots.iter().zip(slots) {
            cell.put(slot);
        }
        Ok(())
    }

    /// Reads all keys that are listed as changed, in the order of steps, since a step reads what it
    /// changes. Keys are read in batches, without those that have been read or are being read. A
    /// thread that needs a key of a batch waits for the batch, so that no page is read twice.
    pub(super) fn read_ahead(&self) -> Result<(), DB::Error> {
        let changed = self.given.index().changed();
        let mut portions = changed.chunks(PORTION);
        portions.try_for_each(|portion| self.read_unclaimed(portion))
    }

    fn read_unclaimed(&self, portion: &[ChangedKey]) -> Result<(), DB::Error> {
        let (mut keys, mut claims) = (Keys::default(), Vec::new());
        let (mut accounts, mut slots) = (Vec::new(), Vec::new());
        for key in portion {
            let address = self.given.list().accounts()[key.account].address;
            match key.slot {
                Some((place, slot)) => {
                    let cell = &self.slots[place];
                    let Some(claim) = cell.claim() else { continue };
                    claims.push(claim);
                    keys.slots.push((address, slot));
                    slots.push(cell);
                }
                None => {
                    let cell = &self.accounts[key.account];
                    let Some(claim) = cell.claim() else { continue };
                    claims.push(claim);
                    keys.accounts.push(address);
                    accounts.push(cell);
                }
            }
        }
        let read = self.rest.read_all(&keys)?;
        for (cell, account) in accounts.into_iter().zip(read.0) {
            cell.put(account);
        }
        for (cell, slot) in slots.into_iter().zip(read.1) {
            cell.put(slot);
        }
        Ok(())
    }

    /// Uses pre-state values, one for each key of the list, without verifying them.
    pub(super) fn trust(&self, values: &PreStateValues) {
        for (cell, found) in self.accounts.iter().zip(values.accounts()) {
            let exists = !found.account.is_empty();
            cell.put(exists.then(|| account_info(found.account)));
        }
        let slots = values.accounts().iter().flat_map(|found| &found.slots);
        for (cell, value) in self.slots.iter().zip(slots) {
            cell.put(*value);
        }
    }

    /// Whether pre-state values equal those in the parent's state.
    pub(super) fn verify(&self, values: &PreStateValues) -> Result<bool, DB::Error> {
        let (accounts, slots) = self.rest.read_all(&Keys::of(self.given.list()))?;
        let accounts = accounts.iter();
        let accounts = accounts.map(|info| info.as_ref().map(account).unwrap_or_default());
        let given_slots = values.accounts().iter().flat_map(|found| &found.slots);
        Ok(
            accounts.eq(values.accounts().iter().map(|found| found.account))
                && slots.iter().eq(given_slots),
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
