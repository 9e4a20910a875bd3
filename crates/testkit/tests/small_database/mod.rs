//! A database of plain accounts, with tiny files and some large storages, and random blocks for it.

use alloy_primitives::U256;
use cambium_primitives::AccountDiff;
use cambium_state::{Db, Disk, FaultyDisk, Options, StateError};
use cambium_store::{BlockLog, LogOptions, LogPosition, Manifest};
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{commit, make, path, put, remove, tiny_options},
};
use std::sync::Arc;

pub(crate) const ACCOUNTS: u64 = 2000;

pub(crate) fn database() -> (Db, FaultyDisk) {
    database_of(ACCOUNTS, tiny_options())
}

pub(crate) fn database_of(accounts: u64, options: Options) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(7);
    let slots_of = |index| if index % 100 == 0 { 800 } else { index % 3 };
    (
        make(Arc::new(disk.clone()), options, accounts, slots_of),
        disk,
    )
}

pub(crate) fn open(disk: &FaultyDisk) -> Result<Db, StateError> {
    Db::open(Arc::new(disk.clone()), tiny_options()).map(|(db, _)| db)
}

/// Changes of some accounts: mostly of their fields, and of some slots.
pub(crate) fn some_changes(random: &mut Random, count: u64) -> Vec<AccountDiff> {
    let mut indices: Vec<_> = (0..count).map(|_| random.below(ACCOUNTS)).collect();
    indices.sort_unstable();
    indices.dedup();
    let change = |index| match random.below(10) {
        0 => remove(path(index)),
        1 => AccountDiff {
            slots: vec![(path(random.below(800)), U256::from(random.below(1000)))],
            ..put(path(index), random.below(1 << 40))
        },
        _ => put(path(index), random.below(1 << 40)),
    };
    indices.into_iter().map(change).collect()
}

/// A block on the head, and a merge of everything.
pub(crate) fn commit_and_merge(db: &Db, random: &mut Random) {
    commit(db, some_changes(random, 150), vec![]);
    db.flush(0).unwrap();
}

pub(crate) fn check(db: &Db) {
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
}

/// Appends a record to the log of a database with tiny files that is closed.
pub(crate) fn append(disk: &FaultyDisk, kind: u8, payload: &[u8]) {
    let log_options = LogOptions {
        file_bytes_max: TINY_FILES.log_file_bytes_max,
        extend_bytes: TINY_FILES.log_extend_bytes,
        salt: Manifest::open(disk).unwrap().salt(),
    };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let (log, _) = BlockLog::open(disk, log_options, LogPosition::START).unwrap();
    log.settle().unwrap();
    log.append(kind, &[payload]).unwrap();
    log.sync().unwrap();
}
