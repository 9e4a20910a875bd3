//! Pages are as large as the memory of the index makes them. What is read and proved does not depend on that, whatever
//! pages are side by side.

use alloy_primitives::{B256, U256};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes};
use cambium_state::{Db, FaultyDisk, Options};
use cambium_testkit::{
    Model, Random,
    plain::{account, change, commit, make, path, put, remove, tiny_options},
};
use cambium_trie::ProofTargets;
use std::{collections::BTreeMap, sync::Arc};

const ACCOUNTS: u64 = 20_000;
/// Slots of the first account.
const SLOTS: u64 = 9_000;
/// Memory of an index that holds the smallest pages, and of one that is on disk.
const MUCH: u64 = 16 << 20;
const NONE: u64 = 0;

fn options(index_bytes_max: u64) -> Options {
    Options {
        index_bytes_max: Some(index_bytes_max),
        ..tiny_options()
    }
}

fn slots_of(index: u64) -> u64 {
    match index {
        0 => SLOTS,
        // Storages that stay in the pages of their accounts, and such that do not.
        1..40 => 12 * index,
        _ => 0,
    }
}

fn loaded(index_bytes_max: u64) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(1);
    let db = make(
        Arc::new(disk.clone()),
        options(index_bytes_max),
        ACCOUNTS,
        slots_of,
    );
    (db, disk)
}

/// The model of a database that [`loaded`] made.
fn model() -> Model {
    let mut model = Model::default();
    let made = (0..ACCOUNTS).map(|index| AccountDiff {
        slots: (0..slots_of(index))
            .map(|at| (path(at), U256::from(at + 1)))
            .collect(),
        ..change(path(index), AccountUpdate::Put(account(0)))
    });
    model.apply(&Changes::new(made.collect()));
    model
}

/// Compares everything in the database with the model, and has it checked.
fn assert_is(db: &Db, model: &Model, what: &str) {
    let view = db.view().unwrap();
    assert_eq!(view.state_root(), model.root(), "{what}");
    let paths: Vec<_> = (0..2 * ACCOUNTS).map(path).collect();
    let expected: Vec<_> = (paths.iter())
        .map(|path| model.account(path).map(|account| account.account))
        .collect();
    assert_eq!(view.accounts(&paths).unwrap(), expected, "{what}");
    let slots: Vec<_> = (0..40)
        .flat_map(|index| (0..slots_of(index) + 10).map(move |at| (path(index), path(at))))
        .collect();
    let expected: Vec<_> = slots
        .iter()
        .map(|(owner, slot)| {
            let value = model.account(owner).and_then(|owner| owner.slots.get(slot));
            value.copied().unwrap_or_default()
        })
        .collect();
    assert_eq!(view.storage(&slots).unwrap(), expected, "{what}");
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new(), "{what}");
}

/// Some accounts, put and removed, and slots of the large storage.
fn some_changes(random: &mut Random, round: u64) -> Vec<AccountDiff> {
    let mut changed = BTreeMap::new();
    for _ in 0..1_000 {
        let at = path(1 + random.below(ACCOUNTS + ACCOUNTS / 4));
        let change = match random.percent(15) {
            true => remove(at),
            false => put(at, round),
        };
        changed.insert(at, change);
    }
    let slots: BTreeMap<B256, U256> = (0..150)
        .map(|_| {
            let slot = path(random.below(SLOTS + 100));
            (slot, U256::from(random.below(5) * round))
        })
        .collect();
    let large = AccountDiff {
        slots: slots.into_iter().collect(),
        ..put(path(0), round)
    };
    changed.insert(path(0), large);
    changed.into_values().collect()
}

#[test]
fn a_state_is_loaded_into_smaller_pages_where_the_index_may_be_larger() {
    let model = model();
    let keys = ProofTargets::new((0..50).map(|index| (path(index * 77), vec![])).collect());
    let loaded = [NONE, 464 << 10, MUCH].map(|bytes| {
        let (db, _) = loaded(bytes);
        assert_is(&db, &model, &format!("index of {bytes} bytes"));
        let witness = db.view().unwrap().extract(&keys).unwrap().witness_nodes();
        let stats = db.stats().unwrap();
        assert!(stats.index_bytes_on_disk == 0 || bytes < MUCH);
        (stats.pages, witness)
    });
    let [large, medium, small] = loaded.each_ref().map(|(pages, _)| *pages);
    // One of each shard, and those of the storages and beside them.
    assert!((256..2_000).contains(&large), "{large}");
    assert!(
        large + 500 < medium && medium + 500 < small,
        "{large}, {medium}, {small}"
    );
    let [a, b, c] = loaded.map(|(_, witness)| witness);
    assert!(a == b && b == c);
}

#[test]
fn pages_follow_the_memory_while_they_are_merged() {
    let (db, disk) = loaded(NONE);
    let mut model = model();
    let mut pages = db.stats().unwrap().pages;
    drop(db);
    let mut random = Random::new(7);
    let mut round = 0;
    // With more memory than before, and with less, in turns.
    for bytes in [MUCH, NONE, MUCH, 1 << 20, 512 << 10, MUCH] {
        let opened = Db::open(Arc::new(disk.clone()), options(bytes));
        let (db, _) = opened.unwrap();
        assert_eq!(db.stats().unwrap().pages, pages, "opening changes no page");
        assert_is(&db, &model, &format!("opened with {bytes}"));
        for _ in 0..6 {
            round += 1;
            let changes = some_changes(&mut random, round);
            let root = commit(&db, changes.clone(), vec![]);
            model.apply(&Changes::new(changes));
            assert_eq!(root, model.root());
            db.flush(0).unwrap();
        }
        assert_is(&db, &model, &format!("{round} merges, {bytes} bytes"));
        let now = db.stats().unwrap().pages;
        match bytes {
            MUCH => assert!(now > 3_000, "{now}, before {pages}"),
            NONE => assert!(3 * now < 2 * pages, "{now}, before {pages}"),
            _ => {}
        }
        pages = now;
        // Another process, whose memory is another again.
        drop(db);
    }
}

#[test]
fn few_changes_rewrite_few_pages_however_large_these_ought_to_be() {
    let (db, disk) = loaded(MUCH);
    drop(db);
    let opened = Db::open(Arc::new(disk.clone()), options(NONE));
    let (db, _) = opened.unwrap();
    let before = db.counters();
    let root = commit(&db, vec![put(path(1_000), 5)], vec![]);
    db.flush(0).unwrap();
    let after = db.counters();
    assert_eq!(db.view().unwrap().state_root(), root);
    // The page, or that which replaces it and its fifteen neighbours.
    assert_eq!(after.pages_written - before.pages_written, 1);
    assert!(after.page_reads_merge - before.page_reads_merge <= 16);
}
