//! The parent's state, by the places of a block's access list: what is listed is found with one
//! look into the list's index, and read once however many threads want it.

use super::given::Given;
use crate::{
    StateRead,
    access_list::{ChangedKey, SlotPlace},
    account::{account, account_info},
    cache::{BlockCache, Cell, Keys},
};
use alloy_primitives::{Address, B256, U256};
use cambium_primitives::FoundValues;
use revm::{bytecode::Bytecode, state::AccountInfo};

/// Keys that [`Parent::read_ahead`] reads at once: enough to keep a disk busy but for a moment
/// in between, and a fifth of those of a block of a billion gas.
const PORTION: usize = 16_384;

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

    /// Reads all that the list names at once.
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

    /// Reads all that the list says is changed, for the first steps first: what a step changes it
    /// reads as well. Many keys are read at once, of them those that nobody has read or is
    /// reading: who wants one of them waits instead of reading it, and its page, a second time.
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

    /// Takes values for those of the parent's state that somebody says are: one for each key of
    /// the list.
    pub(super) fn believe(&self, found: &FoundValues) {
        for (cell, found) in self.accounts.iter().zip(found.accounts()) {
            let exists = !found.account.is_empty();
            cell.put(exists.then(|| account_info(found.account)));
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
        let accounts = accounts.map(|info| info.as_ref().map(account).unwrap_or_default());
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
