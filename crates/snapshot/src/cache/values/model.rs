//! Loom model of the value cache: merges concurrent with readers of older and newer snapshots.

use super::{
    table::ValueCache,
    tests::{account, after, entries, path, put},
};
use crate::base::sync::Mutex;
use alloy_primitives::U256;
use cambium_primitives::{Account, AccountDiff};
use loom::{model::Builder, thread};
use std::sync::Arc;

/// Account that each merge changes.
const CHANGED: u64 = 0;
/// Account in the same bucket that no merge changes.
const SAME: u64 = 1;

/// Expected account in the snapshot of a generation.
fn account_at(generation: u32, index: u64) -> Option<Account> {
    match index {
        CHANGED => account(u64::from(generation)),
        _ => account(1000),
    }
}

/// Expected slot in the snapshot of a generation. The first merge clears slots.
fn slot_at(generation: u32) -> U256 {
    U256::from(if generation == 0 { 7 } else { 0 })
}

/// Reads one account as the engine does: from the cache, or from the snapshot and then into the
/// cache.
fn read(entries: &ValueCache, index: u64) {
    let expected = account_at(entries.generation, index);
    match entries.get(&path(index)) {
        Some(found) => assert_eq!(found, expected, "at generation {}", entries.generation),
        None => entries.put(&path(index), &expected),
    }
}

fn read_slot(entries: &ValueCache) {
    let (key, expected) = ((path(CHANGED), path(0)), slot_at(entries.generation));
    match entries.get(&key) {
        Some(found) => assert_eq!(found, expected, "at generation {}", entries.generation),
        None => entries.put(&key, &expected),
    }
}

/// The newest cache handle, from which views are created.
#[derive(Clone)]
struct Newest(Arc<Mutex<Option<ValueCache>>>);

impl Newest {
    fn new(value_cache: ValueCache) -> Self {
        let newest = Self(Arc::new(Mutex::default()));
        newest.set(value_cache);
        newest
    }

    fn get(&self) -> ValueCache {
        self.0.lock().clone().expect("set from the beginning")
    }

    fn set(&self, value_cache: ValueCache) {
        *self.0.lock() = Some(value_cache);
    }
}

fn merge(newest: &Newest, wipe: bool) {
    let entries = newest.get();
    let change = AccountDiff {
        wipe,
        ..put(path(CHANGED), account_at(entries.generation + 1, CHANGED))
    };
    newest.set(after(&entries, vec![change]));
}

/// Explores all interleavings of `model` with at most `preemptions` preemptions, or two more if
/// `CAMBIUM_LONG` is set. Two preemptions suffice to detect the omission of any one of the rules.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    let more = 2 * usize::from(cambium_seeds::is_long());
    builder.preemption_bound = Some(preemptions + more);
    builder.max_branches = 10_000;
    builder.check(model);
}

#[test]
fn a_value_read_late_never_answers_for_a_newer_snapshot_nor_a_new_one_for_an_older() {
    check(3, || {
        // The table has one bucket.
        let newest = Newest::new(entries(0));
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let newest = newest.clone();
                thread::spawn(move || {
                    let view = newest.get();
                    read(&view, CHANGED);
                    if reader == 0 {
                        read(&view, SAME);
                    }
                    read(&newest.get(), CHANGED);
                })
            })
            .collect();
        merge(&newest, false);
        read(&newest.get(), CHANGED);
        readers.into_iter().for_each(|one| one.join().unwrap());
        read(&newest.get(), CHANGED);
    });
}

#[test]
fn two_merges_after_each_other_leave_nothing_of_what_was_before() {
    check(3, || {
        let newest = Newest::new(entries(0));
        let first = newest.get();
        let reader = {
            let newest = newest.clone();
            thread::spawn(move || {
                read(&first, CHANGED);
                let second = newest.get();
                read(&second, CHANGED);
                read(&first, CHANGED);
                read(&newest.get(), CHANGED);
                read(&second, SAME);
            })
        };
        merge(&newest, false);
        merge(&newest, false);
        reader.join().unwrap();
        read(&newest.get(), CHANGED);
    });
}

#[test]
fn slots_that_a_merge_clears_are_read_by_views_of_before_alone() {
    check(3, || {
        // Two buckets, so that slot and account may be in different ones.
        let newest = Newest::new(entries(1024));
        let first = newest.get();
        let reader = {
            let newest = newest.clone();
            thread::spawn(move || {
                read_slot(&first);
                read_slot(&first);
                read_slot(&newest.get());
            })
        };
        merge(&newest, true);
        read_slot(&newest.get());
        reader.join().unwrap();
        read_slot(&newest.get());
    });
}
