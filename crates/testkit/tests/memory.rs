//! What whole passes over a database take of memory: allocations are counted, in a process of their
//! own.

#![expect(unsafe_code, reason = "an allocator can't be written without")]

mod counting_allocator;

use alloy_primitives::U256;
use cambium_state::{Db, Loader, Options, StdDisk};
use cambium_testkit::{
    plain::{account, first_block, path},
    say,
};
use counting_allocator::most_during;
use std::{ops::ControlFlow, sync::Arc};

#[test]
fn checks_and_large_storages_take_little_memory() {
    const ACCOUNTS: u64 = 400_000;
    const SLOTS: u64 = 300_000;
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(StdDisk::new(dir.path()));
    let options = Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    };
    let mut loader = Loader::new(disk.clone(), options).unwrap();
    for index in 0..ACCOUNTS {
        // One account's storage is most of all slots.
        let slots = if index == 7 { SLOTS } else { 0 };
        let slots = (0..slots).map(|slot| (path(slot), U256::from(slot + 1)));
        loader.account(path(index), &account(index), slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    drop(loaded.create(meta, vec![]).unwrap());
    let (db, _) = Db::open(disk, options).unwrap();

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
