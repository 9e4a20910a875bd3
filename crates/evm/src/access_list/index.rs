//! A given access list, as steps are looked up in it and held against it.

use super::{StepAccesses, step::AccountAccesses};
use alloy_primitives::{Address, U256, map::HashMap};
use cambium_primitives::{
    AccessList, AccessListLimits, AccountChanges, BlockAccessIndex, StorageChange,
};
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

/// The index of an access list that a block came with, which may lie. What steps touch of it is
/// noted, from any thread.
pub(crate) struct ListIndex<'a> {
    list: &'a AccessList,
    accounts: HashMap<Address, usize>,
    slots: HashMap<(usize, U256), ListedSlot>,
    touched_accounts: Vec<AtomicBool>,
    touched_reads: Vec<AtomicBool>,
}

/// An account, or a slot of it, that a step touched, did not change, and does not find listed.
pub(crate) type Unlisted = (Address, Option<U256>);

/// Where a slot is listed.
#[derive(Clone, Copy)]
enum ListedSlot {
    /// Among the slots of its account that change.
    Changed(usize),
    /// Among all that are only read.
    Read(usize),
}

impl<'a> ListIndex<'a> {
    pub(crate) fn new(list: &'a AccessList) -> Self {
        let counts = list.counts();
        let listed_slots = (counts.slots_changed + counts.slots_read) as usize;
        let mut accounts = HashMap::with_capacity_and_hasher(list.accounts().len(), <_>::default());
        let mut slots = HashMap::with_capacity_and_hasher(listed_slots, <_>::default());
        let mut reads = 0;
        for (place, account) in list.accounts().iter().enumerate() {
            accounts.insert(account.address, place);
            for (at, changed) in account.storage_changes.iter().enumerate() {
                slots.insert((place, changed.slot), ListedSlot::Changed(at));
            }
            for slot in &account.storage_reads {
                slots.insert((place, *slot), ListedSlot::Read(reads));
                reads += 1;
            }
        }
        let untouched = |count| (0..count).map(|_| AtomicBool::new(false)).collect();
        Self {
            list,
            accounts,
            slots,
            touched_accounts: untouched(list.accounts().len()),
            touched_reads: untouched(reads),
        }
    }

    pub(crate) const fn list(&self) -> &'a AccessList {
        self.list
    }

    pub(crate) fn account(&self, address: &Address) -> Option<&'a AccountChanges> {
        let place = self.accounts.get(address)?;
        Some(&self.list.accounts()[*place])
    }

    /// The changes of a slot, if it is listed as changed.
    pub(crate) fn slot_changes(
        &self,
        address: &Address,
        slot: U256,
    ) -> Option<&'a [StorageChange]> {
        let place = *self.accounts.get(address)?;
        match self.slots.get(&(place, slot))? {
            ListedSlot::Changed(at) => {
                let account = &self.list.accounts()[place];
                Some(&account.storage_changes[*at].changes)
            }
            ListedSlot::Read(_) => None,
        }
    }

    /// How many changes a step made, if the list has each of them at index `at`. What the step
    /// only touched, and is not listed, goes to `unlisted`.
    pub(crate) fn changes_of(
        &self,
        step: &StepAccesses,
        at: u64,
        unlisted: &mut Vec<Unlisted>,
    ) -> Option<u64> {
        let mut changes = 0;
        for account in &step.0 {
            changes += match self.accounts.get(&account.address) {
                Some(place) => self.changes_at(*place, account, at, unlisted)?,
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
            match (self.slots.get(&(place, *slot)), value) {
                (None, None) => unlisted.push((account.address, Some(*slot))),
                (Some(ListedSlot::Read(at)), None) => touch(&self.touched_reads[*at]),
                (None | Some(ListedSlot::Read(_)), Some(_)) => return None,
                // Another step changes it, or the count of changes will be short.
                (Some(ListedSlot::Changed(_)), None) => {}
                (Some(ListedSlot::Changed(slot)), Some(value)) => {
                    let slot = &listed.storage_changes[*slot];
                    let listed = at_index(&slot.changes, at, |c| c.block_access_index)?;
                    changes += is_same(&listed.new_value, value)?;
                }
            }
        }
        Some(changes)
    }

    /// The list of a block whose steps made so many of the list's changes in all, and touched what
    /// was noted and what is `unlisted`. `None` if the list has more changes.
    pub(crate) fn touched(&self, changes: u64, unlisted: Vec<Unlisted>) -> Option<AccessList> {
        if changes != self.list.counts().changes() {
            return None;
        }
        let is_touched = |touched: &AtomicBool| touched.load(Ordering::Relaxed);
        let mut all = self.touched_accounts.iter().chain(&self.touched_reads);
        if unlisted.is_empty() && all.all(is_touched) {
            return Some(self.list.clone());
        }
        let mut accounts = BTreeMap::new();
        let mut reads = self.touched_reads.iter();
        for (listed, touched) in self.list.accounts().iter().zip(&self.touched_accounts) {
            let mut account = listed.clone();
            // Asked of every slot, so that none is taken for another.
            let is_read = |_: &U256| reads.next().is_some_and(is_touched);
            account.storage_reads.retain(is_read);
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

/// Written once: what many steps touch is not to travel between processors.
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
