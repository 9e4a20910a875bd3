//! An index of a given access list, in which steps are looked up and verified.

use super::{StepAccesses, step::AccountAccesses};
use alloy_primitives::{
    Address, U256,
    map::{AddressMap, HashMap},
};
use cambium_primitives::{
    AccessList, AccessListLimits, AccountChanges, BlockAccessIndex, StorageChange,
};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

/// An index of a block's access list, which is untrusted. Threads mark what their steps touch.
pub(crate) struct ListIndex<'a> {
    list: &'a AccessList,
    /// Position of each account in the list.
    accounts: AddressMap<usize>,
    /// Position of each slot, by the account's position.
    slots: HashMap<(usize, U256), usize>,
    /// Position of each account's first slot.
    first_slots: Vec<usize>,
    touched_accounts: Vec<AtomicBool>,
    touched_slots: Vec<AtomicBool>,
}

/// Position of a slot. Slots are numbered in the order of the list; of each account the changed
/// slots come first.
#[derive(Clone, Copy)]
pub(crate) struct SlotPlace {
    account: usize,
    pub(crate) slot: usize,
}

/// An account or slot that is listed as changed.
pub(crate) struct ChangedKey {
    /// The first step that changes it.
    first: BlockAccessIndex,
    /// Position of the account.
    pub(crate) account: usize,
    /// Position and number of the slot; `None` for the account itself.
    pub(crate) slot: Option<(usize, U256)>,
}

/// An account or slot that a step touched without changing it, and that is not listed.
pub(crate) type Unlisted = (Address, Option<U256>);

impl<'a> ListIndex<'a> {
    pub(crate) fn new(list: &'a AccessList) -> Self {
        let counts = list.counts();
        let listed_slots = (counts.slots_changed + counts.slots_read) as usize;
        let mut accounts =
            AddressMap::with_capacity_and_hasher(list.accounts().len(), <_>::default());
        let mut slots = HashMap::with_capacity_and_hasher(listed_slots, <_>::default());
        let mut first_slots = Vec::with_capacity(list.accounts().len());
        for (place, account) in list.accounts().iter().enumerate() {
            accounts.insert(account.address, place);
            first_slots.push(slots.len());
            for slot in account.storage_slots() {
                // A canonical list has no slot twice.
                slots.insert((place, slot), slots.len());
            }
        }
        let untouched = |count| (0..count).map(|_| AtomicBool::new(false)).collect();
        Self {
            list,
            accounts,
            touched_accounts: untouched(list.accounts().len()),
            touched_slots: untouched(slots.len()),
            slots,
            first_slots,
        }
    }

    pub(crate) const fn list(&self) -> &'a AccessList {
        self.list
    }

    /// Number of listed slots.
    pub(crate) const fn slot_count(&self) -> usize {
        self.touched_slots.len()
    }

    /// Position of an account.
    pub(crate) fn account(&self, address: &Address) -> Option<usize> {
        self.accounts.get(address).copied()
    }

    /// Position of a slot.
    pub(crate) fn slot(&self, address: &Address, slot: U256) -> Option<SlotPlace> {
        self.slot_of(self.account(address)?, slot)
    }

    fn slot_of(&self, account: usize, slot: U256) -> Option<SlotPlace> {
        let slot = *self.slots.get(&(account, slot))?;
        Some(SlotPlace { account, slot })
    }

    /// The changes of a slot; empty if it is only read.
    pub(crate) fn changes(&self, place: SlotPlace) -> &'a [StorageChange] {
        let at = place.slot - self.first_slots[place.account];
        let account = &self.list.accounts()[place.account];
        let changed = account.storage_changes.get(at);
        changed.map_or(&[], |changed| &changed.changes)
    }

    /// All keys that are listed as changed, in the order of the first step that changes them.
    pub(crate) fn changed(&self) -> Vec<ChangedKey> {
        let mut keys = Vec::new();
        let accounts = self.list.accounts().iter().zip(&self.first_slots);
        for (place, (account, first_slot)) in accounts.enumerate() {
            let slots_start = keys.len();
            for (slot, changed) in (*first_slot..).zip(&account.storage_changes) {
                keys.extend(changed.changes.first().map(|change| ChangedKey {
                    first: change.block_access_index,
                    account: place,
                    slot: Some((slot, changed.slot)),
                }));
            }
            let balance = account.balance_changes.first();
            let nonce = account.nonce_changes.first();
            let code = account.code_changes.first();
            let first = [
                balance.map(|change| change.block_access_index),
                nonce.map(|change| change.block_access_index),
                code.map(|change| change.block_access_index),
                keys[slots_start..].iter().map(|key| key.first).min(),
            ];
            keys.extend(first.into_iter().flatten().min().map(|first| ChangedKey {
                first,
                account: place,
                slot: None,
            }));
        }
        keys.sort_unstable_by_key(|key| key.first);
        keys
    }

    /// Verifies a step's changes against index `at` of the list, and returns how many there are;
    /// `None` if one differs from the list. Unlisted keys that the step only touched are added to
    /// `unlisted`.
    pub(crate) fn changes_of(
        &self,
        step: &StepAccesses,
        at: u64,
        unlisted: &mut Vec<Unlisted>,
    ) -> Option<u64> {
        let mut changes = 0;
        for account in &step.0 {
            changes += match self.account(&account.address) {
                Some(place) => self.changes_at(place, account, at, unlisted)?,
                None if account.is_changed() => return None,
                None => {
                    unlisted.push((account.address, None));
                    let slots = account.slots.iter();
                    unlisted.extend(slots.map(|(slot, _)| (account.address, Some(*slot))));
                    0
                }
            };
        }
        Some(changes)
    }

    fn changes_at(
        &self,
        place: usize,
        account: &AccountAccesses,
        at: u64,
        unlisted: &mut Vec<Unlisted>,
    ) -> Option<u64> {
        touch(&self.touched_accounts[place]);
        let listed = &self.list.accounts()[place];
        let mut changes = 0;
        if let Some(balance) = account.balance {
            let listed = at_index(&listed.balance_changes, at, |c| c.block_access_index)?;
            changes += is_same(&listed.post_balance, &balance)?;
        }
        if let Some(nonce) = account.nonce {
            let listed = at_index(&listed.nonce_changes, at, |c| c.block_access_index)?;
            changes += is_same(&listed.new_nonce, &nonce)?;
        }
        if let Some(code) = &account.code {
            let listed = at_index(&listed.code_changes, at, |c| c.block_access_index)?;
            changes += is_same(&listed.new_code, code)?;
        }
        for (slot, value) in &account.slots {
            match (self.slot_of(place, *slot), value) {
                (None, None) => unlisted.push((account.address, Some(*slot))),
                (None, Some(_)) => return None,
                (Some(place), None) => touch(&self.touched_slots[place.slot]),
                (Some(place), Some(value)) => {
                    touch(&self.touched_slots[place.slot]);
                    let listed = self.changes(place);
                    let listed = at_index(listed, at, |c| c.block_access_index)?;
                    changes += is_same(&listed.new_value, value)?;
                }
            }
        }
        Some(changes)
    }

    /// The access list of the execution, if its steps made `changes` of the list's changes in total
    /// and touched the marked and the `unlisted` keys. `None` if the list has more changes.
    pub(crate) fn touched(&self, changes: u64, unlisted: Vec<Unlisted>) -> Option<AccessList> {
        if changes != self.list.counts().changes() {
            return None;
        }
        let is_touched = |touched: &AtomicBool| touched.load(Ordering::Relaxed);
        let mut all = self.touched_accounts.iter().chain(&self.touched_slots);
        if unlisted.is_empty() && all.all(is_touched) {
            return Some(self.list.clone());
        }
        let mut accounts = BTreeMap::new();
        let listed = self.list.accounts().iter().zip(&self.touched_accounts);
        for ((listed, touched), first) in listed.zip(&self.first_slots) {
            let mut account = listed.clone();
            // All changes were made, so all changed slots were touched.
            let reads = &self.touched_slots[first + account.storage_changes.len()..];
            let mut reads = reads.iter();
            account
                .storage_reads
                .retain(|_| reads.next().is_some_and(is_touched));
            if is_touched(touched) {
                accounts.insert(account.address, account);
            }
        }
        for (address, slot) in unlisted {
            let new = || AccountChanges::new(address);
            let account = accounts.entry(address).or_insert_with(new);
            account.storage_reads.extend(slot);
        }
        for account in accounts.values_mut() {
            account.storage_reads.sort_unstable();
            account.storage_reads.dedup();
        }
        let any = AccessListLimits {
            index_max: u64::MAX,
            items_max: u64::MAX,
        };
        AccessList::new(accounts.into_values().collect(), &any).ok()
    }
}

impl AccountAccesses {
    fn is_changed(&self) -> bool {
        self.balance.is_some()
            || self.nonce.is_some()
            || self.code.is_some()
            || self.slots.iter().any(|(_, value)| value.is_some())
    }
}

/// Marks a key. Writes once, so that the cache lines of popular keys stay shared between cores.
fn touch(touched: &AtomicBool) {
    if !touched.load(Ordering::Relaxed) {
        touched.store(true, Ordering::Relaxed);
    }
}

fn at_index<C>(changes: &[C], at: u64, index: impl Fn(&C) -> BlockAccessIndex) -> Option<&C> {
    let place = changes.binary_search_by_key(&at, |change| index(change).get());
    Some(&changes[place.ok()?])
}

fn is_same<V: PartialEq>(listed: &V, made: &V) -> Option<u64> {
    (listed == made).then_some(1)
}
