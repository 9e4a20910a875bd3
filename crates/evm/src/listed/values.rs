//! The state before each block of a batch, by position in the blocks' access lists. A listed key
//! takes one look-up in the list's index, and is read once, however many threads need it.
//!
//! ```text
//!   key in the list of block b -> newest earlier list that has it -> .. -> state before the batch
//!                                 its last change, if there is one
//! ```

use super::given::Given;
use crate::{
    BlockInput, StateRead,
    access_list::{ListedKey, SlotPlace},
    account::{account, account_info},
    cache::{BlockCache, Cell, Keys},
};
use alloy_primitives::{
    Address, B256, U256,
    map::{AddressMap, HashMap},
};
use cambium_primitives::{AccountDiff, PreStateValues};
use revm::{bytecode::Bytecode, state::AccountInfo};
use std::{
    cell::RefCell,
    ops::Range,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Above every index of a block: selects the values after the block.
const AT_THE_END: u64 = u64::MAX;

/// Consecutive blocks that come with their access lists, and the values before each of them.
pub(crate) struct Values<'a, DB> {
    blocks: Vec<BlockValues<'a>>,
    /// Values of the state before the first block that are not listed, and codes.
    rest: BlockCache<'a, DB>,
}

/// A block, and the values before it by position in its list.
pub(crate) struct BlockValues<'a> {
    pub(super) input: BlockInput<'a>,
    /// The block's hash; `None` for a block alone.
    hash: Option<B256>,
    /// Pre-state values that came with the block, which are used unverified.
    pub(super) found: Option<&'a PreStateValues>,
    listed: OnceLock<Indexed<'a>>,
}

/// A block's indexed list, with a place for the value of each key before the block.
struct Indexed<'a> {
    given: Given<'a>,
    accounts: Box<[Cell<Option<AccountInfo>>]>,
    slots: Box<[Cell<U256>]>,
    /// Where the newest earlier list of the batch that has the account has it.
    earlier: Box<[Earlier]>,
}

/// A block of the batch and the position of an account in its list, or neither.
struct Earlier(AtomicU64);

impl Earlier {
    const NONE: u64 = u64::MAX;

    fn set(&self, block: usize, account: usize) {
        let packed = (block as u64) << 32 | account as u64;
        self.0.store(packed, Ordering::Relaxed);
    }

    fn get(&self) -> Option<(usize, usize)> {
        let packed = self.0.load(Ordering::Relaxed);
        let place = ((packed >> 32) as usize, (packed & 0xffff_ffff) as usize);
        (packed != Self::NONE).then_some(place)
    }
}

/// Values that are not listed, as one thread has found them before a block. Threads share them only
/// when they are first read, since such keys may be those that all steps need.
#[derive(Default)]
pub(super) struct Unlisted {
    accounts: RefCell<AddressMap<Option<AccountInfo>>>,
    slots: RefCell<HashMap<(Address, U256), U256>>,
}

impl Unlisted {
    /// Forgets all values.
    pub(super) fn clear(&self) {
        self.accounts.borrow_mut().clear();
        self.slots.borrow_mut().clear();
    }
}

impl<'a> BlockValues<'a> {
    pub(crate) const fn new(input: BlockInput<'a>, hash: Option<B256>) -> Self {
        Self {
            input,
            hash,
            found: None,
            listed: OnceLock::new(),
        }
    }

    /// Uses these pre-state values, one for each key of the list, unverified.
    pub(super) fn trust(&mut self, found: &'a PreStateValues) {
        self.found = Some(found);
    }

    /// Indexes the block's list. False if it has none, or an impossible one.
    pub(super) fn index(&self, is_in_batch: bool) -> bool {
        let given = self.input.access_list.and_then(Given::new);
        let Some(given) = given else { return false };
        let is_cached = self.found.is_none();
        let accounts = given.list().accounts().len();
        let cached = if is_cached { accounts } else { 0 };
        let slots = given.index().key_count() - accounts;
        let slots = if is_cached { slots } else { 0 };
        let linked = if is_in_batch { accounts } else { 0 };
        let listed = Indexed {
            given,
            accounts: (0..cached).map(|_| Cell::default()).collect(),
            slots: (0..slots).map(|_| Cell::default()).collect(),
            earlier: (0..linked)
                .map(|_| Earlier(AtomicU64::new(Earlier::NONE)))
                .collect(),
        };
        self.listed.set(listed).is_ok()
    }

    pub(super) fn given(&self) -> &Given<'a> {
        &self.listed().given
    }

    /// Panics unless [`Self::index`] has returned true.
    fn listed(&self) -> &Indexed<'a> {
        self.listed
            .get()
            .expect("only indexed blocks are looked at")
    }
}

impl<'a, DB: StateRead + Sync> Values<'a, DB> {
    /// `db` is the state before the first block.
    pub(crate) fn new(blocks: Vec<BlockValues<'a>>, db: &'a DB) -> Self {
        Self {
            blocks,
            rest: BlockCache::new(db),
        }
    }

    pub(crate) fn block(&self, block: usize) -> &BlockValues<'a> {
        &self.blocks[block]
    }

    pub(crate) const fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn given(&self, block: usize) -> &Given<'a> {
        self.blocks[block].given()
    }

    fn db(&self) -> &'a DB {
        self.rest.db()
    }

    /// Finds for each account whose address starts with one of these bytes the newest earlier list
    /// that has it, in the first `count` blocks.
    pub(super) fn link(&self, bytes: Range<u16>, count: usize) {
        let mut newest = AddressMap::<(usize, usize)>::default();
        for (block, values) in self.blocks[..count].iter().enumerate() {
            let listed = values.listed();
            let accounts = listed.given.list().accounts();
            let at = |byte| accounts.partition_point(|it| u16::from(it.address[0]) < byte);
            let own = at(bytes.start)..at(bytes.end);
            for (account, listed_account) in own.clone().zip(&accounts[own]) {
                let before = newest.insert(listed_account.address, (block, account));
                if let Some((block, place)) = before {
                    listed.earlier[account].set(block, place);
                }
            }
        }
    }

    fn earlier(&self, block: usize, account: usize) -> Option<(usize, usize)> {
        self.blocks[block].listed().earlier.get(account)?.get()
    }

    /// The account at position `place` of a block's list, before the block.
    pub(super) fn account(
        &self,
        block: usize,
        place: usize,
    ) -> Result<Option<AccountInfo>, DB::Error> {
        if let Some(found) = self.blocks[block].found {
            return Ok(found_account(found, place));
        }
        let cell = &self.blocks[block].listed().accounts[place];
        if let Some(value) = cell.known() {
            return Ok(value.clone());
        }
        // From the newest block down to one before which the account is known, and back.
        let mut later = Vec::new();
        let mut at = (block, place);
        let mut account = loop {
            let cell = &self.blocks[at.0].listed().accounts[at.1];
            if let Some(value) = cell.known() {
                break value.clone();
            }
            let Some(earlier) = self.earlier(at.0, at.1) else {
                let address = self.given(at.0).list().accounts()[at.1].address;
                break cell.get(|| self.rest.read_account(address))?;
            };
            later.push((at, earlier));
            at = earlier;
        };
        for (at, earlier) in later.into_iter().rev() {
            account = self
                .given(earlier.0)
                .account(earlier.1, AT_THE_END, account);
            self.blocks[at.0].listed().accounts[at.1].put(account.clone());
        }
        Ok(account)
    }

    /// The slot at position `place` of a block's list, before the block.
    pub(super) fn slot(
        &self,
        block: usize,
        place: SlotPlace,
        slot: U256,
    ) -> Result<U256, DB::Error> {
        if let Some(found) = self.blocks[block].found {
            let at = self.given(block).index().within_account(place);
            return Ok(found.accounts()[place.account].slots[at]);
        }
        let cell = &self.blocks[block].listed().slots[place.slot];
        if let Some(value) = cell.known() {
            return Ok(*value);
        }
        let value = match self.slot_in_earlier(block, place.account, slot) {
            Some((_, _, Some(value))) => value,
            Some((earlier, place, None)) => {
                let cell = &self.blocks[earlier].listed().slots[place.slot];
                self.read_slot(earlier, place, slot, cell)?
            }
            None => return self.read_slot(block, place, slot, cell),
        };
        cell.put(value);
        Ok(value)
    }

    fn read_slot(
        &self,
        block: usize,
        place: SlotPlace,
        slot: U256,
        cell: &Cell<U256>,
    ) -> Result<U256, DB::Error> {
        let address = self.given(block).list().accounts()[place.account].address;
        cell.get(|| self.db().storage_ref(address, slot))
    }

    /// The earlier block that decides a slot: the newest one that changes it, with the value that
    /// it leaves, or else the oldest one that lists it. `None` if no earlier list has the slot.
    fn slot_in_earlier(
        &self,
        block: usize,
        account: usize,
        slot: U256,
    ) -> Option<(usize, SlotPlace, Option<U256>)> {
        let (mut at, mut oldest) = ((block, account), None);
        while let Some(earlier) = self.earlier(at.0, at.1) {
            let given = self.given(earlier.0);
            if let Some(place) = given.index().slot_of(earlier.1, slot) {
                let left = given.slot(place, AT_THE_END);
                if left.is_some() {
                    return Some((earlier.0, place, left));
                }
                oldest = Some((earlier.0, place, None));
            }
            at = earlier;
        }
        oldest
    }

    /// An account that is not listed, before a block.
    pub(super) fn unlisted_account(
        &self,
        block: usize,
        address: Address,
        known: &Unlisted,
    ) -> Result<Option<AccountInfo>, DB::Error> {
        if let Some(account) = known.accounts.borrow().get(&address) {
            return Ok(account.clone());
        }
        let mut account = self.rest.account(address)?;
        for earlier in &self.blocks[..block] {
            let given = earlier.given();
            if let Some(place) = given.index().account(&address) {
                account = given.account(place, AT_THE_END, account);
            }
        }
        known.accounts.borrow_mut().insert(address, account.clone());
        Ok(account)
    }

    /// A slot that is not listed, before a block.
    pub(super) fn unlisted_slot(
        &self,
        block: usize,
        (address, slot): (Address, U256),
        known: &Unlisted,
    ) -> Result<U256, DB::Error> {
        if let Some(value) = known.slots.borrow().get(&(address, slot)) {
            return Ok(*value);
        }
        let left = self.blocks[..block].iter().rev().find_map(|earlier| {
            let given = earlier.given();
            let place = given.index().slot(&address, slot)?;
            given.slot(place, AT_THE_END)
        });
        let value = match left {
            Some(value) => value,
            None => self.rest.slot(address, slot)?,
        };
        known.slots.borrow_mut().insert((address, slot), value);
        Ok(value)
    }

    /// Reads keys of a block's list in one batch, without those that have been read or are being
    /// read, and those that an earlier list has. A thread that needs a key of a batch waits for the
    /// batch, so that no page is read twice.
    pub(super) fn read(&self, block: usize, portion: &[ListedKey]) -> Result<(), DB::Error> {
        let listed = self.blocks[block].listed();
        let (mut keys, mut claims) = (Keys::default(), Vec::new());
        let (mut accounts, mut slots) = (Vec::new(), Vec::new());
        for key in portion {
            let address = listed.given.list().accounts()[key.account].address;
            match key.slot {
                Some((place, slot)) => {
                    let cell = &listed.slots[place];
                    if self.slot_in_earlier(block, key.account, slot).is_some() {
                        continue;
                    }
                    let Some(claim) = cell.claim() else { continue };
                    claims.push(claim);
                    keys.slots.push((address, slot));
                    slots.push(cell);
                }
                None => {
                    let cell = &listed.accounts[key.account];
                    if self.earlier(block, key.account).is_some() {
                        continue;
                    }
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

    /// Whether the pre-state values of these keys of the first block are those in the state.
    pub(super) fn verify(
        &self,
        found: &PreStateValues,
        portion: &[ListedKey],
    ) -> Result<bool, DB::Error> {
        let given = self.given(0);
        let (mut keys, mut slots) = (Keys::default(), Vec::new());
        let mut accounts = Vec::new();
        for key in portion {
            let address = given.list().accounts()[key.account].address;
            let found = &found.accounts()[key.account];
            match key.slot {
                Some((place, slot)) => {
                    let place = SlotPlace::new(key.account, place);
                    slots.push(found.slots[given.index().within_account(place)]);
                    keys.slots.push((address, slot));
                }
                None => {
                    accounts.push(found.account);
                    keys.accounts.push(address);
                }
            }
        }
        let read = self.rest.read_all(&keys)?;
        let read_accounts = read.0.iter();
        let read_accounts =
            read_accounts.map(|info| info.as_ref().map(account).unwrap_or_default());
        Ok(read_accounts.eq(accounts) && read.1 == slots)
    }

    /// See [`BlockCache::has_empty_account`].
    pub(super) fn has_empty_account(&self) -> bool {
        self.rest.has_empty_account()
    }

    /// A code that exists before a block or that the block creates.
    pub(super) fn code(&self, block: usize, hash: B256) -> Result<Bytecode, DB::Error> {
        let mut newest_first = self.blocks[..=block].iter().rev();
        match newest_first.find_map(|values| values.given().code(&hash)) {
            Some(code) => Ok(code.clone()),
            None => self.rest.code(hash),
        }
    }

    /// Whether an account has a slot before step `at` of a block; `None` if the lists can't tell.
    pub(super) fn has_storage(
        &self,
        block: usize,
        at: u64,
        address: Address,
    ) -> Result<Option<bool>, DB::Error> {
        let of_block = self.given(block).has_slot_before(&address, at);
        let mut earlier = self.blocks[..block].iter();
        let of_earlier = |it: &BlockValues<'_>| it.given().has_slot_before(&address, AT_THE_END);
        if of_block || earlier.any(of_earlier) {
            return Ok(None);
        }
        self.db().has_storage(address).map(Some)
    }

    /// Hash of the block `number`, before a block.
    pub(super) fn block_hash(&self, block: usize, number: u64) -> Result<B256, DB::Error> {
        let mut earlier = self.blocks[..block].iter();
        let earlier = earlier.find(|it| it.input.header.number == number);
        match earlier.and_then(|block| block.hash) {
            Some(hash) => Ok(hash),
            None => self.db().block_hash_ref(number),
        }
    }

    /// The changes that a block's list claims of the accounts at these positions, each with its
    /// slots in order.
    pub(super) fn changes_of(
        &self,
        block: usize,
        positions: Range<usize>,
    ) -> Result<Vec<AccountDiff>, DB::Error> {
        let given = self.given(block);
        let (list, index) = (given.list(), given.index());
        let place_of = |address: &Address| index.account(address).expect("it is of the list");
        let mut changes = list.changes_of(
            positions,
            |address| {
                let info = self.account(block, place_of(&address))?;
                Ok(info.as_ref().map(account))
            },
            |address, slot| {
                let place = index.slot_of(place_of(&address), slot);
                self.slot(block, place.expect("it is of the list"), slot)
            },
        )?;
        for account in &mut changes {
            account.slots.sort_unstable_by_key(|(slot, _)| *slot);
        }
        Ok(changes)
    }
}

fn found_account(found: &PreStateValues, place: usize) -> Option<AccountInfo> {
    let account = found.accounts()[place].account;
    (!account.is_empty()).then(|| account_info(account))
}
