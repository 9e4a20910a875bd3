//! An index of a given access list, in which steps are looked up and verified.

use super::{StepAccesses, step::AccountAccesses};
use alloy_primitives::{Address, U256};
use cambium_primitives::{
    AccessList, AccessListLimits, AccountChanges, BlockAccessIndex, StorageChange,
};
use std::{
    collections::BTreeMap,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

/// An index of a block's access list, which is untrusted. Threads mark what their steps touch.
///
/// Keys of a list are sorted, so the index only divides them by their leading bits: this takes one
/// pass, and a look-up searches few keys.
pub(crate) struct ListIndex<'a> {
    list: &'a AccessList,
    accounts: Buckets,
    slots: Vec<AccountSlots>,
    touched_accounts: Vec<AtomicBool>,
    touched_slots: Vec<AtomicBool>,
}

/// Where the slots of an account are.
struct AccountSlots {
    /// Position of the first slot.
    first: usize,
    changed: Buckets,
    read: Buckets,
}

/// Divides sorted keys by their leading bits.
#[derive(Default)]
struct Buckets {
    bits: u32,
    /// Position of the first key of each bucket, and the number of keys. Empty if there is only
    /// one bucket.
    starts: Vec<u32>,
    count: usize,
}

/// Number of keys up to which one bucket holds them.
const BUCKET_KEYS: usize = 8;

impl Buckets {
    /// `leading`: the first 64 bits of each key, in order.
    fn new(count: usize, leading: impl Iterator<Item = u64>) -> Self {
        if count <= BUCKET_KEYS || u32::try_from(count).is_err() {
            return Self {
                count,
                ..Self::default()
            };
        }
        let bits = count.ilog2();
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (place, leading) in leading.enumerate() {
            let bucket = (leading >> (64 - bits)) as usize;
            if starts.len() <= bucket {
                starts.resize(bucket + 1, place as u32);
            }
        }
        starts.resize((1 << bits) + 1, count as u32);
        Self {
            bits,
            starts,
            count,
        }
    }

    /// Position of a key with these leading bits among the `keys`.
    fn find<T, K: Ord>(
        &self,
        keys: &[T],
        leading: u64,
        key: &K,
        of: impl Fn(&T) -> K,
    ) -> Option<usize> {
        let range = match self.starts.is_empty() {
            true => 0..self.count,
            false => {
                let bucket = (leading >> (64 - self.bits)) as usize;
                self.starts[bucket] as usize..self.starts[bucket + 1] as usize
            }
        };
        let found = keys[range.clone()].binary_search_by(|item| of(item).cmp(key));
        Some(range.start + found.ok()?)
    }
}

fn leading_of_address(address: &Address) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = address.0.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

const fn leading_of_slot(slot: &U256) -> u64 {
    slot.as_limbs()[3]
}

/// Position of a slot. Slots are numbered in the order of the list; of each account the changed
/// slots come first.
#[derive(Clone, Copy)]
pub(crate) struct SlotPlace {
    pub(crate) account: usize,
    pub(crate) slot: usize,
}

impl SlotPlace {
    /// The slot at position `slot`, which is one of the account at position `account`.
    pub(crate) const fn new(account: usize, slot: usize) -> Self {
        Self { account, slot }
    }
}

/// A listed account or slot.
#[derive(Clone, Copy)]
pub(crate) struct ListedKey {
    /// Position of the account.
    pub(crate) account: usize,
    /// Position and number of the slot; `None` for the account itself.
    pub(crate) slot: Option<(usize, U256)>,
}

/// An account or slot that a step touched without changing it, and that is not listed.
pub(crate) type Unlisted = (Address, Option<U256>);

impl<'a> ListIndex<'a> {
    pub(crate) fn new(list: &'a AccessList) -> Self {
        let accounts = list.accounts();
        let (mut slots, mut first) = (Vec::with_capacity(accounts.len()), 0);
        for account in accounts {
            let (changed, read) = (&account.storage_changes, &account.storage_reads);
            let leading = changed.iter().map(|slot| leading_of_slot(&slot.slot));
            slots.push(AccountSlots {
                first,
                changed: Buckets::new(changed.len(), leading),
                read: Buckets::new(read.len(), read.iter().map(leading_of_slot)),
            });
            first += changed.len() + read.len();
        }
        let leading = accounts.iter();
        let leading = leading.map(|account| leading_of_address(&account.address));
        let untouched = |count| (0..count).map(|_| AtomicBool::new(false)).collect();
        Self {
            list,
            accounts: Buckets::new(accounts.len(), leading),
            slots,
            touched_accounts: untouched(accounts.len()),
            touched_slots: untouched(first),
        }
    }

    pub(crate) const fn list(&self) -> &'a AccessList {
        self.list
    }

    /// Position of an account.
    pub(crate) fn account(&self, address: &Address) -> Option<usize> {
        let leading = leading_of_address(address);
        let accounts = self.list.accounts();
        self.accounts
            .find(accounts, leading, address, |account| account.address)
    }

    /// Position of a slot.
    pub(crate) fn slot(&self, address: &Address, slot: U256) -> Option<SlotPlace> {
        self.slot_of(self.account(address)?, slot)
    }

    /// Position of a slot of the account at position `account`.
    pub(crate) fn slot_of(&self, account: usize, slot: U256) -> Option<SlotPlace> {
        let listed = &self.list.accounts()[account];
        let AccountSlots {
            first,
            changed,
            read,
        } = &self.slots[account];
        let leading = leading_of_slot(&slot);
        let changes = &listed.storage_changes;
        let at = match changed.find(changes, leading, &slot, |changed| changed.slot) {
            Some(at) => at,
            None => changes.len() + read.find(&listed.storage_reads, leading, &slot, |s| *s)?,
        };
        Some(SlotPlace::new(account, first + at))
    }

    /// The changes of a slot; empty if it is only read.
    pub(crate) fn changes(&self, place: SlotPlace) -> &'a [StorageChange] {
        let at = place.slot - self.slots[place.account].first;
        let account = &self.list.accounts()[place.account];
        let changed = account.storage_changes.get(at);
        changed.map_or(&[], |changed| &changed.changes)
    }

    /// Position of a slot among those of its account.
    pub(crate) fn within_account(&self, place: SlotPlace) -> usize {
        place.slot - self.slots[place.account].first
    }

    /// Number of listed keys.
    pub(crate) const fn key_count(&self) -> usize {
        self.slots.len() + self.touched_slots.len()
    }

    /// Divides the accounts into parts of consecutive ones, of about `keys` keys each. A part is
    /// larger if its last account is.
    pub(crate) fn parts(&self, keys: usize) -> Vec<Range<usize>> {
        let number = |account: usize| match self.slots.get(account) {
            Some(slots) => account + slots.first,
            None => self.key_count(),
        };
        let (mut parts, mut start) = (Vec::new(), 0);
        for end in 1..=self.slots.len() {
            if end == self.slots.len() || number(end) - number(start) >= keys {
                parts.push(start..end);
                start = end;
            }
        }
        parts
    }

    /// The listed keys from number `start` to before `end`, in the order of the list.
    pub(crate) fn keys(&self, start: usize, end: usize) -> Vec<ListedKey> {
        let mut keys = Vec::with_capacity(end - start);
        // Number of the first key of an account: the accounts and slots before it.
        let number = |account: usize| account + self.slots[account].first;
        let (mut low, mut high) = (0, self.slots.len());
        while low < high {
            let middle = low.midpoint(high);
            match number(middle) <= start {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let mut skipped = start;
        for account in low.saturating_sub(1)..self.slots.len() {
            let number = number(account);
            if number >= end {
                break;
            }
            if skipped <= number {
                keys.push(ListedKey {
                    account,
                    slot: None,
                });
                skipped = number + 1;
            }
            let first = self.slots[account].first;
            let listed = self.list.accounts()[account].storage_slots();
            let slots = listed.enumerate().skip(skipped - number - 1);
            let slots = slots.take(end - skipped);
            keys.extend(slots.map(|(at, slot)| ListedKey {
                account,
                slot: Some((first + at, slot)),
            }));
            skipped = start + keys.len();
        }
        keys
    }

    /// All keys that are listed as changed, in the order of the first step that changes them.
    pub(crate) fn changed(&self) -> Vec<ListedKey> {
        let mut keys = Vec::new();
        let accounts = self.list.accounts().iter().zip(&self.slots);
        for (place, (account, slots)) in accounts.enumerate() {
            let slots_start = keys.len();
            for (slot, changed) in (slots.first..).zip(&account.storage_changes) {
                keys.extend(changed.changes.first().map(|change| {
                    let key = ListedKey {
                        account: place,
                        slot: Some((slot, changed.slot)),
                    };
                    (change.block_access_index, key)
                }));
            }
            let balance = account.balance_changes.first();
            let nonce = account.nonce_changes.first();
            let code = account.code_changes.first();
            let first = [
                balance.map(|change| change.block_access_index),
                nonce.map(|change| change.block_access_index),
                code.map(|change| change.block_access_index),
                keys[slots_start..].iter().map(|(first, _)| *first).min(),
            ];
            keys.extend(first.into_iter().flatten().min().map(|first| {
                let key = ListedKey {
                    account: place,
                    slot: None,
                };
                (first, key)
            }));
        }
        keys.sort_by_key(|(first, _)| *first);
        keys.into_iter().map(|(_, key)| key).collect()
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

    /// Number of changes of the accounts at these positions.
    pub(crate) fn count_changes(&self, positions: Range<usize>) -> u64 {
        let accounts = self.list.accounts()[positions].iter();
        let counts = accounts.map(|account| {
            let slots = account.storage_changes.iter();
            slots.map(|slot| slot.changes.len()).sum::<usize>()
                + account.balance_changes.len()
                + account.nonce_changes.len()
                + account.code_changes.len()
        });
        counts.sum::<usize>() as u64
    }

    /// Whether the list has no slot that is only read, as if it lacked all keys that are only read.
    pub(crate) fn has_no_reads(&self) -> bool {
        let mut accounts = self.list.accounts().iter();
        accounts.all(|account| account.storage_reads.is_empty())
    }

    /// The access list of the execution, whose steps made all changes of the list and touched the
    /// marked and the `unlisted` keys. `copy`: a copy of the list's accounts, if there is one.
    pub(crate) fn touched(
        &self,
        unlisted: Vec<Unlisted>,
        copy: Option<Vec<AccountChanges>>,
    ) -> Option<AccessList> {
        let is_touched = |touched: &AtomicBool| touched.load(Ordering::Relaxed);
        let mut all = self.touched_accounts.iter().chain(&self.touched_slots);
        let is_all = all.all(is_touched);
        if unlisted.is_empty() && is_all {
            return Some(self.list.clone());
        }
        let mut accounts = match copy {
            Some(copy) => copy,
            None => self.list.accounts().to_vec(),
        };
        if !is_all {
            let listed = accounts.into_iter().zip(&self.touched_accounts);
            let listed = listed.zip(&self.slots);
            let kept = listed.filter(|((_, touched), _)| is_touched(touched));
            let kept = kept.map(|((mut account, _), slots)| {
                // All changes were made, so all changed slots were touched.
                let first_read = slots.first + account.storage_changes.len();
                let mut reads = self.touched_slots[first_read..].iter();
                account
                    .storage_reads
                    .retain(|_| reads.next().is_some_and(is_touched));
                account
            });
            accounts = kept.collect();
        }
        let mut reads = BTreeMap::<_, Vec<_>>::new();
        for (address, slot) in unlisted {
            reads.entry(address).or_default().extend(slot);
        }
        let known = accounts.len();
        for (address, slots) in reads {
            let found = accounts[..known].binary_search_by_key(&address, |it| it.address);
            let account = match found {
                Ok(place) => &mut accounts[place],
                Err(_) => accounts.push_mut(AccountChanges::new(address)),
            };
            account.storage_reads.extend(slots);
            account.storage_reads.sort_unstable();
            account.storage_reads.dedup();
        }
        // Two sorted runs.
        accounts.sort_by_key(|account| account.address);
        let any = AccessListLimits {
            index_max: u64::MAX,
            items_max: u64::MAX,
        };
        AccessList::new(accounts, &any).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_primitives::SlotChanges;

    /// A list of `count` accounts. Account number n has n slots, which are small numbers, spread
    /// over all numbers, or alike in their first bits; every third one is only read.
    fn list(count: u64) -> AccessList {
        let accounts = (0..count).map(|number| {
            let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut address = [7; 20];
            if number % 3 > 0 {
                address[..8].copy_from_slice(&spread.to_be_bytes());
            }
            address[12..].copy_from_slice(&number.to_be_bytes());
            let mut account = AccountChanges::new(address.into());
            for at in 0..number {
                let slot = match number % 4 {
                    0 => U256::from(at),
                    1 => U256::from(at) << 200 | U256::from(5) << 250,
                    _ => U256::from(at.wrapping_mul(0xd134_2543_de82_ef95)) << 192,
                };
                match at % 3 {
                    0 => account.storage_reads.push(slot),
                    _ => {
                        let change = StorageChange::new(BlockAccessIndex(at), U256::from(at));
                        let changed = SlotChanges::new(slot, vec![change]);
                        account.storage_changes.push(changed);
                    }
                }
            }
            account.storage_reads.sort_unstable();
            account.storage_changes.sort_by_key(|changed| changed.slot);
            account
        });
        let mut accounts: Vec<_> = accounts.collect();
        accounts.sort_by_key(|account| account.address);
        let any = AccessListLimits {
            index_max: u64::MAX,
            items_max: u64::MAX,
        };
        AccessList::new(accounts, &any).expect("sorted")
    }

    #[test]
    fn every_listed_key_is_found_where_it_is_and_no_other() {
        for count in [0, 1, 8, 9, 70] {
            let list = list(count);
            let index = ListIndex::new(&list);
            let mut number = 0;
            for (place, account) in list.accounts().iter().enumerate() {
                assert_eq!(index.account(&account.address), Some(place));
                for (at, slot) in account.storage_slots().enumerate() {
                    let found = index.slot(&account.address, slot).expect("listed");
                    assert_eq!((found.account, found.slot), (place, number));
                    assert_eq!(index.within_account(found), at);
                    let changed = account.storage_changes.get(at);
                    let changes = changed.map_or(&[][..], |changed| &changed.changes);
                    assert_eq!(index.changes(found), changes);
                    number += 1;
                }
                for slot in [U256::MAX, U256::from(77_777), U256::from(3) << 190] {
                    assert!(index.slot(&account.address, slot).is_none());
                }
            }
            for address in [[0; 20], [7; 20], [0xff; 20]] {
                let is_listed = list.account(&address.into()).is_some();
                assert_eq!(index.account(&address.into()).is_some(), is_listed);
            }
        }
    }

    #[test]
    fn portions_of_keys_and_parts_of_accounts_make_up_the_list() {
        let list = list(30);
        let index = ListIndex::new(&list);
        let mut all = Vec::new();
        for (place, account) in list.accounts().iter().enumerate() {
            all.push((place, None));
            all.extend(account.storage_slots().map(|slot| (place, Some(slot))));
        }
        assert_eq!(index.key_count(), all.len());
        for size in [1, 2, 7, 64, all.len()] {
            let mut found = Vec::new();
            for start in (0..all.len()).step_by(size) {
                let end = all.len().min(start + size);
                let keys = index.keys(start, end);
                assert_eq!(keys.len(), end - start);
                for key in keys {
                    let address = list.accounts()[key.account].address;
                    if let Some((number, slot)) = key.slot {
                        let place = index.slot(&address, slot).expect("listed");
                        assert_eq!(place.slot, number);
                    }
                    found.push((key.account, key.slot.map(|(_, slot)| slot)));
                }
            }
            assert_eq!(found, all);
            let parts = index.parts(size);
            let positions: Vec<_> = parts.iter().cloned().flatten().collect();
            assert_eq!(positions, (0..30).collect::<Vec<_>>());
            let counts = parts.into_iter().map(|part| index.count_changes(part));
            assert_eq!(counts.sum::<u64>(), list.counts().changes());
        }
    }
}
