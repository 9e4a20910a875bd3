//! The table in all orders of threads: merges beside readers of the snapshots before and after.

use super::{
    table::Entries,
    tests::{account, after, entries, path, put},
};
use crate::base::sync::Mutex;
use alloy_primitives::U256;
use cambium_primitives::{Account, AccountChange};
use loom::{model::Builder, thread};

/// Changed by each merge.
const CHANGED: u64 = 0;
/// Changed by none, in the same bucket.
const SAME: u64 = 1;

/// What the snapshot of a generation has.
fn account_at(generation: u32, index: u64) -> Option<Account> {
    match index {
        CHANGED => account(u64::from(generation)),
        _ => account(1000),
    }
}

/// Slots are cleared by the first merge.
fn slot_at(generation: u32) -> U256 {
    U256::from(if generation == 0 { 7 } else { 0 })
}

/// One read as the engine does it.
fn read(entries: &Entries, index: u64) {
    let expected = account_at(entries.generation, index);
    match entries.get(&path(index)) {
        Some(found) => assert_eq!(found, expected, "at generation {}", entries.generation),
        None => entries.put(&path(index), &expected),
    }
}

fn read_slot(entries: &Entries) {
    let (key, expected) = ((path(CHANGED), path(0)), slot_at(entries.generation));
    match entries.get(&key) {
        Some(found) => assert_eq!(found, expected, "at generation {}", entries.generation),
        None => entries.put(&key, &expected),
    }
}

/// What views are made from.
#[derive(Clone)]
struct Newest(Arc<Mutex<Option<Entries>>>);

impl Newest {
    fn new(entries: Entries) -> Self {
        let newest = Self(Arc::new(Mutex::default()));
        newest.set(entries);
        newest
    }

    fn get(&self) -> Entries {
        self.0.lock().clone().expect("set from the beginning")
    }

    fn set(&self, entries: Entries) {
        *self.0.lock() = Some(entries);
    }
}

fn merge(newest: &Newest, wipe: bool) {
    let entries = newest.get();
    let change = AccountChange {
        wipe,
        ..put(path(CHANGED), account_at(entries.generation + 1, CHANGED))
    };
    newest.set(after(&entries, vec![change]));
}

/// Runs a model in all orders with so many switches between threads that could go on, and a few
/// more in the long form. With two of them each rule of the table that is left out is found out.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    let more = 2 * usize::from(std::env::var_os("CAMBIUM_LONG").is_some());
    builder.preemption_bound = Some(preemptions + more);
    builder.max_branches = 10_000;
    builder.check(model);
}

#[test]
fn a_value_read_late_never_answers_for_a_newer_snapshot_nor_a_new_one_for_an_older() {
    check(3, || {
        // One bucket, which is all that there is.
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
        // More than one bucket: the one of the slot is not the account's, perhaps.
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
