//! Memory of whole passes over a database: allocations are counted, in a process of their own.

use alloy_primitives::{Bytes, U256, keccak256};
use cambium_primitives::{BlockId, Changes};
use cambium_state::{BlockMeta, Db, Loader, Options, StateError, StdDisk};
use cambium_testkit::{
    CountingAllocator, Random, held_bytes, most_during,
    plain::{self, account, first_block, path, put, remove, tiny_options},
    say,
};
use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// All that is allocated is counted: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Blocks beside each other that change nothing are within the budget of memory, too.
#[test]
fn siblings_are_within_the_memory_budget() {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let mut loader = Loader::new(Arc::new(StdDisk::new(dir.path())), options).unwrap();
    for index in 0..300 {
        loader.account(path(index), &account(0), []).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    let db = loaded.create(meta, vec![]).unwrap();
    let genesis = db.genesis();
    let (sealed, most) = most_during(|| {
        let mut sealed = Vec::new();
        for number in 0..8000u64 {
            let session = db.view_of(genesis).unwrap().session();
            let staged = session.finish(Changes::default(), vec![]).unwrap();
            let meta = BlockMeta {
                id: BlockId::new(1, keccak256(number.to_le_bytes())),
                parent: genesis.hash,
                state_root: staged.root(),
                body: Bytes::new(),
            };
            match staged.seal(meta) {
                Ok(one) => sealed.push(one),
                Err(error) => {
                    assert!(matches!(error, StateError::NoRoom { .. }), "{error}");
                    break;
                }
            }
        }
        sealed
    });
    let stats = db.stats().unwrap();
    say(&format!(
        "{} siblings took {most} bytes, counted are {}",
        sealed.len(),
        stats.overlay_bytes + stats.delta_bytes
    ));
    assert!(most < 64 << 20, "{most} bytes");
}

const ACCOUNTS: u64 = 400_000;

/// A database of [`ACCOUNTS`] with 64 MiB of memory. One account has `slots` slots, the others none.
fn large_database(dir: &TempDir, slots: u64) -> Db {
    let disk = Arc::new(StdDisk::new(dir.path()));
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let mut loader = Loader::new(disk.clone(), options).unwrap();
    for index in 0..ACCOUNTS {
        let slots = if index == 7 { slots } else { 0 };
        let slots = (0..slots).map(|slot| (path(slot), U256::from(slot + 1)));
        loader.account(path(index), &account(index), slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    drop(loaded.create(meta, vec![]).unwrap());
    Db::open(disk, options).unwrap().0
}

#[test]
fn checks_and_large_storages_take_little_memory() {
    let _alone = ALONE.lock();
    const SLOTS: u64 = 300_000;
    let dir = tempfile::tempdir().unwrap();
    // One account's storage is most of all slots.
    let db = large_database(&dir, SLOTS);

    let (report, most) = most_during(|| db.check(&mut |_| {}).unwrap());
    assert_eq!((report.accounts, report.slots), (ACCOUNTS, SLOTS));
    assert_eq!(report.damage, Vec::<String>::new());
    say(&format!(
        "a check of {ACCOUNTS} accounts and {SLOTS} slots took {most} bytes"
    ));
    assert!(most < 16 << 20, "{most} bytes");

    let view = db.view().unwrap();
    let cached = || db.stats().unwrap().page_cache_bytes as usize;
    let before = cached();
    let (count, most) = most_during(|| {
        let mut count = 0;
        let visit = |_, _| {
            count += 1;
            ControlFlow::Continue(())
        };
        view.each_slot(&path(7), visit).unwrap();
        count
    });
    assert_eq!(count, SLOTS);
    let most = most.saturating_sub(cached() - before);
    say(&format!(
        "{SLOTS} slots one after the other took {most} bytes, caches apart"
    ));
    assert!(most < 1 << 20, "{most} bytes");

    let (has_storage, most) = most_during(|| view.has_storage(&path(7)).unwrap());
    assert!(has_storage && most < 1 << 20, "{most} bytes");
}

/// "all within one memory budget": the reverts of a wipe are in memory as well.
#[test]
fn the_way_back_from_wipes_is_within_the_memory_budget() {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let disk = StdDisk::new(dir.path());
    let mut loader = Loader::new(Arc::new(disk), tiny_options()).unwrap();
    let slots = (0..150_000).map(|at| (path(at), U256::from(at + 1)));
    loader.account(path(0), &account(0), slots).unwrap();
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    let db = loaded.create(meta, vec![]).unwrap();
    let genesis = db.genesis();
    let before = held_bytes();
    let ((), most) = most_during(|| {
        for number in 0..12 {
            let view = db.view_of(genesis).unwrap();
            let gone = Changes::new(vec![remove(path(0)), put(path(1), number)]);
            let one = plain::seal(view, format!("s{number}"), gone, vec![]).unwrap();
            one.commit_side_branch().unwrap();
        }
    });
    let held = held_bytes() - before;
    let stats = db.stats().unwrap();
    say(&format!(
        "{held} bytes more for {} layers, {most} at most, counted are {}",
        stats.layers,
        stats.overlay_bytes + stats.delta_bytes
    ));
    assert!(held < 64 << 20, "{held} bytes of 64 MiB");
    // While one of them is made, its changes and its way back are there besides.
    assert!(most < 100 << 20, "{most} bytes of 64 MiB");
}

/// "all within one memory budget": of small pages a third of the memory is that of the cache's own tables.
#[test]
fn cached_pages_take_the_memory_that_they_are_counted_with() {
    let _alone = ALONE.lock();
    let dir = tempfile::tempdir().unwrap();
    let db = large_database(&dir, 0);
    let before = db.stats().unwrap().page_cache_bytes;
    let view = db.view().unwrap();
    let mut random = Random::new(1);
    let ((), most) = most_during(|| {
        for _ in 0..20_000 {
            let paths: Vec<_> = (0..50).map(|_| path(random.below(ACCOUNTS))).collect();
            assert!(view.accounts(&paths).unwrap().iter().all(Option::is_some));
        }
    });
    let stats = db.stats().unwrap();
    let counted = (stats.page_cache_bytes - before) as usize;
    let reads = db.counters().page_reads_value;
    say(&format!(
        "{reads} pages of {} read: {most} bytes at most, counted are {counted}",
        stats.pages
    ));
    // More than fit into the cache.
    assert!(reads > 2 * stats.pages);
    assert!(most < counted + counted / 8, "{most} bytes, not {counted}");
}
