//! Values of accounts and slots by the step of the block that wrote them, for steps after it.
//!
//! Step 0 is the one before the transactions, step `i + 1` transaction `i`. A step writes when it
//! has run, in any order. It may run again: until then its writes are *estimates*, for which later
//! steps wait.
//!
//! Keys are in shards with a lock each. A key that no step wrote is found by its bit in a filter,
//! without a lock. Nearly all keys that a block reads are such.

mod cells;
mod filter;

pub(super) use cells::Found;

use super::{
    adds::{Adds, Amount},
    sync::{AtomicBool, Mutex, MutexGuard, Ordering, lock},
};
use crate::{
    account::account,
    effects::{AccountRead, AccountWrite, Reads, SlotWrite, Writes},
};
use alloy_primitives::{
    Address, B256, U256,
    map::{AddressMap, B256Map, Entry, HashMap, HashSet},
};
use cells::{AccountCell, SlotCell, Version, insert, make_estimate};
use filter::Filter;
use revm::{bytecode::Bytecode, state::AccountInfo};

/// Number of maps with a lock of their own, so that threads rarely contend.
pub(super) const SHARDS: usize = 256;

/// Number of keys up to which a list is searched from one end to the other.
const SEARCHED_MAX: usize = 16;

pub(super) struct Versions {
    filter: Filter,
    shards: Box<[Shard]>,
    codes: Mutex<B256Map<Bytecode>>,
    /// Whether a step deleted an account's slots. If none did, slots need no look at their account.
    any_wiped: AtomicBool,
    /// The keys that each step has written.
    left: Box<[Mutex<Vec<Key>>]>,
}

/// Aligned, so that two locks do not share a cache line.
#[repr(align(128))]
#[derive(Default)]
struct Shard(Mutex<Cells>);

#[derive(Default)]
pub(super) struct Cells {
    pub(super) accounts: AddressMap<AccountCell>,
    pub(super) slots: HashMap<(Address, U256), SlotCell>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    Account(Address),
    Slot(Address, U256),
}

/// Whether reads are still those of earlier steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Same,
    /// One of them is an estimate.
    Unknown,
    Differs,
}

/// What a write shows: whether its step or later ones have read outdated values.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Put {
    /// Whether the step read a value that an earlier step has changed since.
    pub(super) is_outdated: bool,
    /// Later steps that read a value which this step has changed.
    pub(super) outdated: Vec<usize>,
}

/// Values of the parent's state.
pub(super) trait ParentValues {
    type Error;

    fn account(&self, address: Address) -> Result<Option<AccountInfo>, Self::Error>;
    fn slot(&self, address: Address, slot: U256) -> Result<U256, Self::Error>;
}

impl Versions {
    /// Versions of a block with this number of steps.
    pub(super) fn new(steps: usize) -> Self {
        Self {
            filter: Filter::new(steps),
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            codes: Mutex::default(),
            any_wiped: AtomicBool::new(false),
            left: (0..steps).map(|_| Mutex::default()).collect(),
        }
    }

    /// The account before `step`.
    pub(super) fn account(&self, address: Address, step: usize) -> Found<Option<AccountInfo>> {
        if !self.filter.has(&address, U256::ZERO) {
            return Found::Parent;
        }
        let mut cells = self.shard(account_shard(&address));
        match cells.accounts.get_mut(&address) {
            Some(cell) => cell.before(step),
            None => Found::Parent,
        }
    }

    /// The slot before `step`. Not called for accounts that do not exist.
    pub(super) fn slot(&self, address: Address, slot: U256, step: usize) -> Found<U256> {
        let wiped = self.wiped(address, step);
        let found = match self.filter.has(&address, slot) {
            false => Found::Parent,
            true => {
                let cells = self.shard(slot_shard(&address, slot));
                let cell = cells.slots.get(&(address, slot));
                cell.map_or(Found::Parent, |cell| cell.before(step, wiped))
            }
        };
        match (wiped, found) {
            (Some(_), Found::Parent | Found::Unread) => Found::Value(U256::ZERO),
            (_, found) => found,
        }
    }

    /// The last step before `step` that deleted the account's slots.
    pub(super) fn wiped(&self, address: Address, step: usize) -> Option<usize> {
        if !self.any_wiped.load(Ordering::SeqCst) {
            return None;
        }
        let cells = self.shard(account_shard(&address));
        let wipes = &cells.accounts.get(&address)?.wipes;
        wipes.iter().copied().rfind(|wipe| *wipe < step)
    }

    /// Whether a run of some step deleted the account's slots, even if it no longer counts.
    fn was_wiped(&self, address: Address) -> bool {
        if !self.any_wiped.load(Ordering::SeqCst) {
            return false;
        }
        let cells = self.shard(account_shard(&address));
        let cell = cells.accounts.get(&address);
        cell.is_some_and(|cell| cell.was_wiped)
    }

    /// Whether an account that a step has written exists after all steps.
    pub(super) fn exists(&self, address: Address) -> bool {
        let mut cells = self.shard(account_shard(&address));
        let cell = cells.accounts.get_mut(&address);
        cell.is_some_and(|cell| cell.last().0.is_some())
    }

    /// A code that a step has created.
    pub(super) fn code(&self, hash: &B256) -> Option<Bytecode> {
        lock(&self.codes).get(hash).cloned()
    }

    /// Whether what a step has read is still so. The account `except` is not looked at.
    pub(super) fn verdict(&self, step: usize, reads: &Reads, except: &Address) -> Verdict {
        let mut slots = reads.slots.as_slice();
        let mut verdict = Verdict::Same;
        for read in &reads.accounts {
            let of_account;
            (of_account, slots) = slots.split_at(read.slot_count);
            if read.address != *except {
                match self.account_verdict(step, read) {
                    Verdict::Same => {}
                    Verdict::Differs => return Verdict::Differs,
                    Verdict::Unknown => verdict = Verdict::Unknown,
                }
            }
            for (slot, value) in of_account {
                match self.slot(read.address, *slot, step) {
                    // A zero may have been read where a step had deleted the slots that did not when it ran again.
                    Found::Parent if value.is_zero() && self.was_wiped(read.address) => {
                        verdict = Verdict::Unknown;
                    }
                    Found::Parent => {}
                    Found::Value(now) if now == *value => {}
                    Found::Value(_) => return Verdict::Differs,
                    Found::Unread | Found::WaitFor(_) => verdict = Verdict::Unknown,
                }
            }
        }
        verdict
    }

    fn account_verdict(&self, step: usize, read: &AccountRead) -> Verdict {
        match self.account(read.address, step) {
            Found::Parent if !read.is_guess => Verdict::Same,
            Found::Parent | Found::Unread => Verdict::Differs,
            Found::WaitFor(_) => Verdict::Unknown,
            Found::Value(now) => match read.agrees_with(now.as_ref().map(account).as_ref()) {
                true => Verdict::Same,
                false => Verdict::Differs,
            },
        }
    }

    /// Replaces the writes of a step. Values of `parent` that are new here are read from it; the
    /// step has read nearly all of them before.
    pub(super) fn put<P: ParentValues>(
        &self,
        step: usize,
        writes: Writes,
        parent: &P,
    ) -> Result<Put, P::Error> {
        let mut left = lock(&self.left[step]);
        let mut put = Put::default();
        let count = writes.accounts.len() + writes.slots.len();
        let before = std::mem::replace(&mut *left, Vec::with_capacity(count));
        if !writes.codes.is_empty() {
            lock(&self.codes).extend(writes.codes);
        }
        let accounts = writes.accounts.into_iter();
        let mut all = accounts.map(|(address, write)| {
            left.push(Key::Account(address));
            self.put_account(step, address, write, parent, &mut put)
        });
        let mut done = all.try_for_each(|done| done);
        drop(all);
        if done.is_ok() {
            let mut all = writes.slots.iter().map(|write| {
                left.push(Key::Slot(write.address, write.slot));
                self.put_slot(step, write, parent, &mut put)
            });
            done = all.try_for_each(|done| done);
        }
        if let Err(error) = done {
            // The next run of the step removes what this one has not replaced.
            left.extend(before);
            return Err(error);
        }
        match before.len() {
            0 => {}
            1..=SEARCHED_MAX => {
                let gone = before.iter().filter(|key| !left.contains(key));
                gone.for_each(|key| self.remove(step, key));
            }
            _ => {
                let now: HashSet<_> = left.iter().collect();
                let gone = before.iter().filter(|key| !now.contains(key));
                gone.for_each(|key| self.remove(step, key));
            }
        }
        put.outdated.sort_unstable();
        put.outdated.dedup();
        Ok(put)
    }

    fn put_account<P: ParentValues>(
        &self,
        step: usize,
        address: Address,
        write: AccountWrite,
        parent: &P,
        put: &mut Put,
    ) -> Result<(), P::Error> {
        let mut cells = self.shard(account_shard(&address));
        let cell = match cells.accounts.entry(address) {
            Entry::Occupied(cell) => cell.into_mut(),
            Entry::Vacant(cell) => cell.insert(AccountCell {
                parent: parent.account(address)?,
                sets: Vec::new(),
                adds: Adds::default(),
                wipes: Vec::new(),
                was_wiped: false,
            }),
        };
        match write {
            AccountWrite::Add { balance, nonce } => {
                cell.remove_set(step);
                cell.adds.put(step, Amount { balance, nonce });
            }
            AccountWrite::Set { before, now, wiped } => {
                cell.adds.remove(step);
                if let Found::Value(found) = cell.before(step)
                    && found.as_ref().map(account) != before
                {
                    put.is_outdated = true;
                }
                let known = cell.wipes.binary_search(&step);
                match (wiped, known) {
                    (true, Err(place)) => {
                        self.any_wiped.store(true, Ordering::SeqCst);
                        cell.was_wiped = true;
                        cell.wipes.insert(place, step);
                    }
                    (false, Ok(place)) => _ = cell.wipes.remove(place),
                    _ => {}
                }
                let value = now.as_ref().map(account);
                let next = insert(
                    &mut cell.sets,
                    Version {
                        step,
                        is_estimate: false,
                        read: before,
                        value: now,
                    },
                );
                if let Some(next) = cell.sets.get(next)
                    && !next.is_estimate
                    && next.read != value
                    && cell.adds.sum(step + 1, next.step).is_none()
                {
                    put.outdated.push(next.step);
                }
            }
        }
        self.filter.add(&address, U256::ZERO);
        Ok(())
    }

    fn put_slot<P: ParentValues>(
        &self,
        step: usize,
        write: &SlotWrite,
        parent: &P,
        put: &mut Put,
    ) -> Result<(), P::Error> {
        let SlotWrite { address, slot, .. } = *write;
        let mut cells = self.shard(slot_shard(&address, slot));
        let cell = cells.slots.entry((address, slot)).or_insert(SlotCell {
            parent: None,
            versions: Vec::new(),
        });
        if cell.parent.is_none() && !write.created {
            cell.parent = Some(parent.slot(address, slot)?);
        }
        let version = Version {
            step,
            is_estimate: false,
            read: write.before,
            value: write.now,
        };
        let next = insert(&mut cell.versions, version);
        // Where slots were deleted, the comparison at the commit position finds the differences.
        if !self.any_wiped.load(Ordering::SeqCst) {
            let before = match next.checked_sub(2).map(|before| &cell.versions[before]) {
                None => cell.parent.filter(|_| !write.created),
                Some(before) => (!before.is_estimate).then_some(before.value),
            };
            put.is_outdated |= before.is_some_and(|before| before != write.before);
            if let Some(next) = cell.versions.get(next)
                && !next.is_estimate
                && next.read != write.now
            {
                put.outdated.push(next.step);
            }
        }
        self.filter.add(&address, slot);
        Ok(())
    }

    /// Removes a write of an earlier run of a step.
    fn remove(&self, step: usize, key: &Key) {
        match *key {
            Key::Account(address) => {
                let mut cells = self.shard(account_shard(&address));
                if let Some(cell) = cells.accounts.get_mut(&address) {
                    cell.remove_set(step);
                    cell.adds.remove(step);
                }
            }
            Key::Slot(address, slot) => {
                let mut cells = self.shard(slot_shard(&address, slot));
                if let Some(cell) = cells.slots.get_mut(&(address, slot)) {
                    let place = cell.versions.binary_search_by_key(&step, |it| it.step);
                    place.ok().map(|place| cell.versions.remove(place));
                }
            }
        }
    }

    /// Adds an estimate of a step that waits for a value of the slot. Most steps that read such a
    /// slot write it, so later ones wait for this step, instead of running at the same time.
    pub(super) fn expect(&self, step: usize, address: Address, slot: U256) {
        let mut left = lock(&self.left[step]);
        let mut cells = self.shard(slot_shard(&address, slot));
        let Some(cell) = cells.slots.get_mut(&(address, slot)) else {
            return;
        };
        let place = cell.versions.binary_search_by_key(&step, |it| it.step);
        if let Err(place) = place {
            let version = Version {
                step,
                is_estimate: true,
                read: U256::ZERO,
                value: U256::ZERO,
            };
            cell.versions.insert(place, version);
            left.push(Key::Slot(address, slot));
        }
    }

    /// Makes the writes of a step estimates. Returns the later steps that read them, as far as these
    /// wrote the same keys.
    pub(super) fn make_estimates(&self, step: usize) -> Vec<usize> {
        let left = lock(&self.left[step]);
        let mut readers = Vec::new();
        for key in &*left {
            match *key {
                Key::Account(address) => {
                    let mut cells = self.shard(account_shard(&address));
                    if let Some(cell) = cells.accounts.get_mut(&address) {
                        readers.extend(make_estimate(&mut cell.sets, step));
                    }
                }
                Key::Slot(address, slot) => {
                    let mut cells = self.shard(slot_shard(&address, slot));
                    if let Some(cell) = cells.slots.get_mut(&(address, slot)) {
                        readers.extend(make_estimate(&mut cell.versions, step));
                    }
                }
            }
        }
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// Forgets which keys a step has written, when it will not run again.
    pub(super) fn forget(&self, step: usize) {
        *lock(&self.left[step]) = Vec::new();
    }

    /// Locks one of the [`SHARDS`].
    pub(super) fn shard(&self, shard: usize) -> MutexGuard<'_, Cells> {
        lock(&self.shards[shard].0)
    }
}

pub(super) fn account_shard(address: &Address) -> usize {
    usize::from(address.0[19]) % SHARDS
}

fn slot_shard(address: &Address, slot: U256) -> usize {
    usize::from(address.0[19] ^ slot.byte(0)) % SHARDS
}

#[cfg(test)]
mod tests {
    use super::{super::sync::one_thread, *};
    use crate::effects::Needs;
    use std::convert::Infallible;

    const A: Address = Address::repeat_byte(1);

    struct Parent;

    impl ParentValues for Parent {
        type Error = Infallible;

        fn account(&self, _: Address) -> Result<Option<AccountInfo>, Infallible> {
            Ok(Some(info(100, 1)))
        }

        fn slot(&self, _: Address, slot: U256) -> Result<U256, Infallible> {
            Ok(slot)
        }
    }

    fn info(balance: u64, nonce: u64) -> AccountInfo {
        AccountInfo {
            balance: U256::from(balance),
            nonce,
            ..AccountInfo::default()
        }
    }

    fn add(balance: u64, nonce: u64) -> Writes {
        let balance = U256::from(balance);
        let write = AccountWrite::Add { balance, nonce };
        Writes {
            accounts: vec![(A, write)],
            ..Writes::default()
        }
    }

    fn set(before: AccountInfo, now: Option<AccountInfo>, wiped: bool) -> Writes {
        let before = Some(account(&before));
        let write = AccountWrite::Set { before, now, wiped };
        Writes {
            accounts: vec![(A, write)],
            ..Writes::default()
        }
    }

    fn slot(slot: u64, before: u64, now: u64) -> Writes {
        let [slot, before, now] = [slot, before, now].map(U256::from);
        Writes {
            slots: vec![SlotWrite {
                address: A,
                slot,
                before,
                now,
                created: false,
            }],
            ..Writes::default()
        }
    }

    fn put(versions: &Versions, step: usize, writes: Writes) -> Put {
        versions.put(step, writes, &Parent).unwrap()
    }

    fn outdated(steps: &[usize]) -> Put {
        Put {
            is_outdated: false,
            outdated: steps.to_vec(),
        }
    }

    fn value(versions: &Versions, at: u64, step: usize) -> Found<u64> {
        match versions.slot(A, U256::from(at), step) {
            Found::Parent => Found::Parent,
            Found::Unread => Found::Unread,
            Found::Value(value) => Found::Value(value.to()),
            Found::WaitFor(step) => Found::WaitFor(step),
        }
    }

    #[test]
    fn a_step_finds_what_earlier_ones_wrote() {
        one_thread(|| {
            let versions = Versions::new(9);
            assert_eq!(value(&versions, 5, 9), Found::Parent);
            assert_eq!(put(&versions, 3, slot(5, 5, 30)), outdated(&[]));
            assert_eq!(put(&versions, 6, slot(5, 30, 60)), outdated(&[]));
            assert_eq!(value(&versions, 5, 3), Found::Value(5));
            assert_eq!(value(&versions, 5, 4), Found::Value(30));
            assert_eq!(value(&versions, 5, 9), Found::Value(60));
            assert_eq!(versions.make_estimates(3), [6]);
            assert_eq!(value(&versions, 5, 6), Found::WaitFor(3));
            // Step 3 runs again and writes something else: step 6 has read what is gone.
            assert_eq!(put(&versions, 3, slot(5, 5, 31)), outdated(&[6]));
            assert_eq!(put(&versions, 3, slot(7, 7, 1)), outdated(&[]));
            assert_eq!(value(&versions, 5, 4), Found::Value(5));
            assert!(put(&versions, 6, slot(5, 30, 60)).is_outdated);
        });
    }

    #[test]
    fn additions_apply_to_the_last_write_before_them() {
        one_thread(|| {
            let versions = Versions::new(9);
            put(&versions, 4, add(4, 1));
            put(&versions, 2, add(2, 0));
            let found = |step| match versions.account(A, step) {
                Found::Value(Some(info)) => (info.balance.to::<u64>(), info.nonce),
                _ => panic!("it exists"),
            };
            assert_eq!(
                [found(2), found(3), found(9)],
                [(100, 1), (102, 1), (106, 2)]
            );
            put(&versions, 3, set(info(102, 1), Some(info(50, 7)), false));
            assert_eq!([found(3), found(4), found(9)], [(102, 1), (50, 7), (54, 8)]);
            versions.make_estimates(3);
            assert!(matches!(versions.account(A, 9), Found::WaitFor(3)));
            // An estimate of an addition is taken as it is.
            put(&versions, 3, add(1, 0));
            versions.make_estimates(3);
            assert_eq!(found(9), (107, 2));
            let mut cells = versions.shard(account_shard(&A));
            let balances = cells.accounts.get_mut(&A).unwrap().added_balances();
            let balances = balances.into_iter().map(|(step, it)| (step, it.to()));
            assert_eq!(
                balances.collect::<Vec<_>>(),
                [(2, 102_u64), (3, 103), (4, 107)]
            );
        });
    }

    #[test]
    fn slots_of_a_deleted_account_are_zero() {
        one_thread(|| {
            let versions = Versions::new(9);
            put(&versions, 2, slot(5, 5, 20));
            put(&versions, 4, set(info(100, 1), None, true));
            for (at, step, expected) in [(5, 4, 20), (5, 5, 0), (6, 5, 0), (5, 9, 0)] {
                assert_eq!(value(&versions, at, step), Found::Value(expected));
            }
            assert_eq!(value(&versions, 6, 4), Found::Parent);
            put(&versions, 6, slot(5, 0, 60));
            assert_eq!(value(&versions, 5, 9), Found::Value(60));
            assert!(!versions.exists(A));
            assert_eq!(
                (versions.wiped(A, 4), versions.wiped(A, 9)),
                (None, Some(4))
            );
            put(&versions, 4, Writes::default());
            assert_eq!((versions.wiped(A, 9), versions.exists(A)), (None, true));
        });
    }

    #[test]
    fn reads_are_compared_with_what_was_written_since() {
        one_thread(|| {
            let versions = Versions::new(9);
            let read = |needs, is_guess| Reads {
                accounts: vec![AccountRead {
                    address: A,
                    found: Some(account(&info(100, 1))),
                    is_guess,
                    needs,
                    slot_count: 1,
                }],
                slots: vec![(U256::from(5), U256::from(5))],
            };
            let exact = read(Needs::Equal, false);
            let enough = read(Needs::Balance(U256::from(100)), false);
            let verdict = |reads: &Reads| versions.verdict(3, reads, &Address::ZERO);
            assert_eq!([verdict(&exact), verdict(&enough)], [Verdict::Same; 2]);
            assert_eq!(
                verdict(&read(Needs::Equal, true)),
                Verdict::Differs,
                "a nonce is guessed"
            );
            put(&versions, 1, add(1, 0));
            assert_eq!(
                [verdict(&exact), verdict(&enough)],
                [Verdict::Differs, Verdict::Same]
            );
            assert_eq!(versions.verdict(3, &exact, &A), Verdict::Same, "left out");
            put(&versions, 2, slot(5, 5, 6));
            assert_eq!(verdict(&enough), Verdict::Differs);
            versions.make_estimates(2);
            assert_eq!(verdict(&enough), Verdict::Unknown);
        });
    }

    #[test]
    fn a_zero_of_deleted_slots_is_not_taken_for_the_parents_value() {
        one_thread(|| {
            let versions = Versions::new(9);
            put(&versions, 2, set(info(100, 1), None, true));
            let again = AccountWrite::Set {
                before: None,
                now: Some(info(100, 1)),
                wiped: true,
            };
            let writes = Writes {
                accounts: vec![(A, again)],
                ..Writes::default()
            };
            put(&versions, 3, writes);
            assert_eq!(value(&versions, 5, 6), Found::Value(0));
            let reads = Reads {
                accounts: vec![AccountRead {
                    address: A,
                    found: Some(account(&info(100, 1))),
                    is_guess: false,
                    needs: Needs::Equal,
                    slot_count: 1,
                }],
                slots: vec![(U256::from(5), U256::ZERO)],
            };
            let verdict = || versions.verdict(6, &reads, &Address::ZERO);
            assert_eq!(verdict(), Verdict::Same);
            // Both run again and leave the account alone.
            put(&versions, 2, Writes::default());
            put(&versions, 3, Writes::default());
            assert_eq!(value(&versions, 5, 6), Found::Parent);
            assert_eq!(verdict(), Verdict::Unknown);
        });
    }

    /// A parent's state that can't be read.
    struct Unreadable;

    impl ParentValues for Unreadable {
        type Error = ();

        fn account(&self, _: Address) -> Result<Option<AccountInfo>, ()> {
            Err(())
        }

        fn slot(&self, _: Address, _: U256) -> Result<U256, ()> {
            Err(())
        }
    }

    #[test]
    fn a_failed_read_of_the_parents_state_leaves_no_estimate_behind() {
        one_thread(|| {
            let versions = Versions::new(9);
            put(&versions, 2, slot(5, 5, 20));
            versions.make_estimates(2);
            assert_eq!(versions.put(2, slot(6, 6, 7), &Unreadable), Err(()));
            assert_eq!(value(&versions, 5, 4), Found::WaitFor(2));
            put(&versions, 2, Writes::default());
            assert_eq!(value(&versions, 5, 4), Found::Value(5));
            assert_eq!(value(&versions, 6, 4), Found::Parent);
        });
    }

    #[test]
    fn a_slot_of_a_created_account_is_unread() {
        one_thread(|| {
            let versions = Versions::new(9);
            let mut writes = slot(5, 0, 1);
            writes.slots[0].created = true;
            put(&versions, 2, writes);
            assert_eq!(value(&versions, 5, 2), Found::Unread);
            assert_eq!(value(&versions, 5, 3), Found::Value(1));
        });
    }
}
