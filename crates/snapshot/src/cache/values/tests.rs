//! Tests of the value cache: capacity, eviction, and consistency with snapshots.

use super::table::{ValueCache, words};
use crate::base::key::{Key, MergedChange};
use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes};
use parking_lot::RwLock;
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

pub(crate) fn path(index: u64) -> B256 {
    keccak256(index.to_le_bytes())
}

pub(crate) fn account(nonce: u64) -> Option<Account> {
    Some(Account {
        nonce,
        balance: U256::from(1_000_000_000),
        ..Account::default()
    })
}

pub(crate) fn entries(bytes: u64) -> ValueCache {
    ValueCache::with_seeds(
        bytes,
        [2, 3].map(|seed| words(&path(seed))[0]),
        Arc::default(),
    )
}

/// Returns the cache after a merge of `changes`.
pub(crate) fn after(entries: &ValueCache, changes: Vec<AccountDiff>) -> ValueCache {
    entries.after(|visit| {
        for change in Changes::new(changes).accounts() {
            match &change.account {
                AccountUpdate::Keep | AccountUpdate::Entry(_) => {}
                AccountUpdate::Put(account) => {
                    visit(MergedChange::Account(change.path, Some(*account)))
                }
                AccountUpdate::Delete => visit(MergedChange::Account(change.path, None)),
            }
            if change.wipe {
                visit(MergedChange::Wipe(change.path));
            }
            for (slot, value) in &change.slots {
                visit(MergedChange::Slot(change.path, *slot, *value));
            }
        }
    })
}

pub(crate) fn put(path: B256, account: Option<Account>) -> AccountDiff {
    AccountDiff {
        path,
        account: account.map_or(AccountUpdate::Delete, AccountUpdate::Put),
        wipe: false,
        slots: vec![],
    }
}

#[test]
fn entries_of_any_size_are_found_again_and_absence_is_one() {
    let entries = entries(1 << 20);
    let contract = Account {
        nonce: u64::MAX,
        balance: U256::MAX,
        code_hash: path(0),
    };
    let accounts = [None, account(0), account(u64::MAX), Some(contract)];
    let values = [U256::ZERO, U256::from(1), U256::from(256), U256::MAX];
    for (index, (account, value)) in (0..).zip(accounts.iter().zip(values)) {
        let slot = (path(index), path(index));
        assert_eq!(entries.get(&path(index)), None);
        entries.put(&path(index), account);
        assert_eq!(entries.get(&slot), None, "an account is no slot");
        entries.put(&slot, &value);
    }
    for (index, (account, value)) in (0..).zip(accounts.iter().zip(values)) {
        assert_eq!(entries.get(&path(index)), Some(*account));
        assert_eq!(entries.get(&(path(index), path(index))), Some(value));
        assert_eq!(entries.get(&(path(index), path(index + 1))), None);
        assert_eq!(entries.get(&(path(index + 1), path(index))), None);
    }
    let counters = &entries.counters;
    let counts = (
        counters.value_cache_hits.get(),
        counters.value_cache_misses.get(),
    );
    assert_eq!(counts, (8, 16));
}

#[test]
fn a_table_takes_no_more_memory_than_it_may_but_has_a_bucket() {
    for (bytes, taken) in [(0, 512), (511, 512), (1023, 512), (300 << 10, 300 << 10)] {
        assert_eq!(entries(bytes).memory_bytes(), taken);
    }
}

/// Reads each account once and inserts the missing ones. Returns the number of hits.
fn read(entries: &ValueCache, indexes: impl IntoIterator<Item = u64>) -> usize {
    let indexes = indexes.into_iter();
    let is_there = |index| {
        let found = entries.get(&path(index));
        match found {
            Some(found) => assert_eq!(found, account(index)),
            None => entries.put(&path(index), &account(index)),
        }
        found.is_some()
    };
    indexes.filter(|index| is_there(*index)).count()
}

/// Size of a table for 1280 accounts, in buckets of 10, in bytes.
const SMALL: u64 = 64 << 10;

#[test]
fn reading_much_once_leaves_alone_what_is_read_now_and_then() {
    let entries = entries(SMALL);
    read(&entries, 0..500);
    let hot = read(&entries, 0..500);
    assert!(hot > 490, "{hot} of 500 accounts fit");
    // Each scan reads twice as many accounts as fit.
    for scanned in 1..50 {
        read(&entries, (0..2800).map(|index| scanned * 10_000 + index));
        let found = read(&entries, 0..500);
        assert!(found > 480, "{found} of 500, {hot} in the beginning");
    }
}

#[test]
fn what_was_hot_makes_room_for_what_becomes_hot() {
    let entries = entries(SMALL);
    for first in [0, 10_000, 20_000] {
        // A cyclic scan, which is the worst order for eviction.
        for _ in 0..20 {
            read(&entries, first..first + 600);
        }
        let hot = read(&entries, first..first + 600);
        assert!(hot > 520, "{hot} of 600 accounts, from {first} on");
    }
}

#[test]
fn a_full_table_has_nothing_wrong() {
    // Three buckets, with inserts and evictions of records of all sizes.
    let entries = entries(1536);
    let value = |index: u64, slot: u64| U256::MAX >> ((index * 31 + slot * 7) % 257);
    let mut found = 0;
    for step in 0..20_000u64 {
        let (index, slot) = (step * step % 13, step * 7 % 5);
        match slot {
            0 => {
                let key = path(index);
                let expected = account(1 << index).filter(|_| index > 2);
                match entries.get(&key) {
                    Some(got) => assert_eq!(got, expected),
                    None => entries.put(&key, &expected),
                }
            }
            _ => {
                let key = (path(index), path(slot));
                match entries.get(&key) {
                    Some(got) => assert_eq!(got, value(index, slot)),
                    None => entries.put(&key, &value(index, slot)),
                }
                continue;
            }
        }
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn a_merge_replaces_what_it_changed_and_clears_slots() {
    let old = entries(1 << 20);
    let slot = |account, slot| (path(account), path(slot));
    for index in 0..4 {
        old.put(&path(index), &account(index));
        for number in 0..3 {
            old.put(&slot(index, number), &U256::from(7));
        }
    }
    let wipe = |index, slots| AccountDiff {
        wipe: true,
        slots,
        ..put(path(index), account(10))
    };
    let changes = vec![
        put(path(0), account(9)),
        put(path(1), None),
        wipe(2, vec![(path(2), U256::from(8))]),
    ];
    let new = after(&old, changes);
    assert_eq!(new.get(&path(0)), Some(account(9)));
    assert_eq!(new.get(&path(1)), Some(None));
    assert_eq!(new.get(&path(2)), Some(account(10)));
    assert_eq!(new.get(&path(3)), Some(account(3)));
    for number in 0..3 {
        for kept in [0, 3] {
            assert_eq!(new.get(&slot(kept, number)), Some(U256::from(7)));
        }
        // Deleting an account clears its storage.
        for wiped in [1, 2] {
            let found = new.get(&slot(wiped, number));
            assert!(found.is_none_or(|value| (wiped, number) == (2, 2) && value == U256::from(8)));
        }
    }
}

#[test]
fn views_of_an_older_snapshot_neither_see_nor_bring_what_is_not_theirs() {
    let old = entries(1 << 20);
    old.put(&path(0), &account(0));
    let new = after(
        &old,
        vec![put(path(0), account(1)), put(path(1), account(1))],
    );
    assert_eq!(old.get(&path(0)), None);
    for late in 0..3 {
        old.put(&path(late), &account(0));
    }
    assert_eq!(new.get(&path(0)), Some(account(1)));
    assert_eq!((new.get(&path(1)), new.get(&path(2))), (None, None));
    new.put(&path(1), &account(1));
    assert_eq!(
        (old.get(&path(1)), new.get(&path(1))),
        (None, Some(account(1)))
    );
}

const ACCOUNTS: u64 = 24;
const SLOTS: u64 = 4;

/// Reference model of the state.
#[derive(Clone, Default)]
struct Model {
    accounts: BTreeMap<u64, Account>,
    slots: BTreeMap<(u64, u64), U256>,
}

impl Model {
    /// Makes random changes and returns them.
    fn change(&mut self, generation: u64, random: &mut impl FnMut(u64) -> u64) -> Vec<AccountDiff> {
        let mut changes = BTreeMap::new();
        for _ in 0..8 {
            let (index, is_deleted) = (random(ACCOUNTS), random(8) == 0);
            if changes.contains_key(&index) {
                continue;
            }
            let new = account(generation).filter(|_| !is_deleted);
            let wipe = is_deleted || random(8) == 0;
            let set: BTreeMap<_, _> = (0..random(3))
                .filter(|_| !is_deleted)
                .map(|_| (random(SLOTS), U256::from(generation * random(2))))
                .collect();
            let slots = set.iter().map(|(slot, value)| (path(*slot), *value));
            let change = AccountDiff {
                wipe,
                slots: slots.collect(),
                ..put(path(index), new)
            };
            changes.insert(index, change);
            match new {
                Some(new) => _ = self.accounts.insert(index, new),
                None => _ = self.accounts.remove(&index),
            }
            if wipe {
                self.slots.retain(|(account, _), _| *account != index);
            }
            let set = set.into_iter().map(|(slot, value)| ((index, slot), value));
            self.slots.extend(set);
        }
        changes.into_values().collect()
    }
}

fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) % below
    }
}

/// Reads one key as the engine does, with the model as the snapshot. Returns whether it was a hit.
fn read_like<K: Key>(entries: &ValueCache, key: &K, expected: K::Value, pause: bool) -> bool
where
    K::Value: PartialEq + std::fmt::Debug,
{
    if let Some(found) = entries.get(key) {
        let generation = entries.generation;
        assert_eq!(found, expected, "at generation {generation}");
        return true;
    }
    // Gives a merge the time to make the value stale before it is inserted.
    if pause {
        thread::yield_now();
    }
    entries.put(key, &expected);
    false
}

#[test]
fn readers_of_old_and_new_snapshots_beside_merges_see_what_is_theirs() {
    // Few enough buckets for contention, and enough for most values to fit.
    let first = (entries(16 << 10), Arc::new(Model::default()));
    let newest = RwLock::new(first);
    let (is_over, hits) = (AtomicBool::new(false), AtomicU64::new(0));
    let merges = if cambium_seeds::is_long() {
        100_000
    } else {
        2_000
    };
    thread::scope(|scope| {
        let (newest, is_over, hits) = (&newest, &is_over, &hits);
        let reader = |seed| {
            let mut random = random(seed);
            while !is_over.load(Ordering::Relaxed) {
                // Stays in use during several merges.
                let (entries, model) = newest.read().clone();
                for _ in 0..1 + random(200) {
                    let (index, slot) = (random(ACCOUNTS), random(2 * SLOTS));
                    let pause = random(16) == 0;
                    let is_hit = match slot < SLOTS {
                        true => {
                            let value = model.slots.get(&(index, slot)).copied();
                            let key = (path(index), path(slot));
                            read_like(&entries, &key, value.unwrap_or_default(), pause)
                        }
                        false => {
                            let account = model.accounts.get(&index).copied();
                            read_like(&entries, &path(index), account, pause)
                        }
                    };
                    hits.fetch_add(is_hit.into(), Ordering::Relaxed);
                }
            }
        };
        let readers: Vec<_> = (0..4)
            .map(|seed| scope.spawn(move || reader(seed)))
            .collect();
        let mut random = random(100);
        for generation in 1..=merges {
            let (entries, model) = newest.read().clone();
            let mut model = Model::clone(&model);
            let changes = model.change(generation, &mut random);
            *newest.write() = (after(&entries, changes), Arc::new(model));
            // Waits for one more hit, unless a reader has failed.
            while hits.load(Ordering::Relaxed) < generation
                && !readers.iter().any(thread::ScopedJoinHandle::is_finished)
            {
                thread::yield_now();
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
