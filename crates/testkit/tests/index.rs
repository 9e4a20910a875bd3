//! An index that is larger than its memory: it returns the same as one in memory, with one more
//! read of the disk.

use alloy_primitives::{B256, U256, b256, keccak256};
use cambium_primitives::{Account, AccountDiff};
use cambium_state::{Db, Disk, FaultyDisk, Loader, Options, View};
use cambium_store::{Checkpoint, StoreError, load_latest_checkpoint};
use cambium_testkit::plain::{self, account, first_block, path, put, remove};
use cambium_trie::ProofTargets;
use std::sync::Arc;

const ACCOUNTS: u64 = 60_000;
/// Slots of the first account: its storage alone makes several hundred parts.
const SLOTS: u64 = 80_000;

fn slot(index: u64) -> (B256, B256) {
    (path(0), keccak256(index.to_be_bytes()))
}

/// Options with `index_bytes_max` bytes for the index. The page cache holds few pages.
fn options(index_bytes_max: u64) -> Options {
    Options {
        memory_bytes: 1 << 20,
        index_bytes_max: Some(index_bytes_max),
        ..Options::default()
    }
}

const ON_DISK: u64 = 0;
const IN_MEMORY: u64 = 1 << 30;

fn database(index_bytes_max: u64) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(1);
    let options = options(index_bytes_max);
    let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
    for index in 0..ACCOUNTS {
        loader.account(path(index), &account(index), []).unwrap();
    }
    let slots = (0..SLOTS).map(|index| (slot(index).1, U256::from(index + 1)));
    loader.slots(path(0), slots).unwrap();
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    (loaded.create(meta, vec![]).unwrap(), disk)
}

fn open(disk: &FaultyDisk, index_bytes_max: u64) -> Db {
    let disk = Arc::new(disk.clone());
    Db::open(disk, options(index_bytes_max)).unwrap().0
}

fn commit(db: &Db, changes: Vec<AccountDiff>) -> B256 {
    plain::commit(db, changes, vec![])
}

/// Accounts and slots, and the root of their proofs, some of them absent.
fn read(view: &View) -> (Vec<Option<Account>>, Vec<U256>, B256) {
    let accounts: Vec<_> = (0..ACCOUNTS + 1000).step_by(37).map(path).collect();
    let slots: Vec<_> = (0..SLOTS + 1000).step_by(91).map(slot).collect();
    let one_by_one: Vec<_> = accounts
        .iter()
        .map(|path| view.account(path).unwrap())
        .collect();
    assert_eq!(view.accounts(&accounts).unwrap(), one_by_one);
    let values: Vec<_> = slots
        .iter()
        .map(|(owner, slot)| view.slot(owner, slot).unwrap())
        .collect();
    assert_eq!(view.storage(&slots).unwrap(), values);
    let some = accounts.iter().step_by(40).map(|path| (*path, vec![]));
    let owned = slots.iter().step_by(20).map(|(_, slot)| *slot).collect();
    let keys = ProofTargets::new(some.chain([(path(0), owned)]).collect());
    let part = view.extract(&keys).unwrap();
    (one_by_one, values, part.state_root().unwrap())
}

fn assert_sound(db: &Db) {
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
}

/// A block that changes much, adds and removes.
fn mixed(round: u64) -> Vec<AccountDiff> {
    let changed = (round..ACCOUNTS).step_by(11 + round as usize);
    let mut changes: Vec<_> = changed
        .filter(|index| *index > 0)
        .map(|index| match index % 5 {
            0 => remove(path(index)),
            _ => put(path(index), round),
        })
        .collect();
    changes.extend((0..50).map(|index| put(path(ACCOUNTS + round * 100 + index), round)));
    let slots = (round * 7..SLOTS + 500).step_by(101);
    changes.push(AccountDiff {
        slots: slots
            .map(|index| (slot(index).1, U256::from(index % 3)))
            .collect(),
        ..put(path(0), round)
    });
    changes
}

#[test]
fn reads_proofs_merges_and_checks_agree_with_an_index_in_memory() {
    let (on_disk, disk) = database(ON_DISK);
    let (in_memory, _) = database(IN_MEMORY);
    let stats = on_disk.stats().unwrap();
    assert!(stats.index_bytes_on_disk > 100_000, "{stats:?}");
    let resident = in_memory.stats().unwrap();
    assert_eq!(resident.index_bytes_on_disk, 0);
    assert!(
        resident.index_bytes > 2 * stats.index_bytes,
        "{resident:?}, {stats:?}"
    );

    let first = on_disk.view().unwrap();
    let before = read(&first);
    assert_eq!(before, read(&in_memory.view().unwrap()));
    for round in 1..4 {
        let roots = [&on_disk, &in_memory].map(|db| commit(db, mixed(round)));
        assert_eq!(roots[0], roots[1]);
        on_disk.flush(0).unwrap();
        in_memory.flush(0).unwrap();
        let [got, expected] = [&on_disk, &in_memory].map(|db| read(&db.view().unwrap()));
        assert_eq!(got, expected);
        assert_eq!(got.2, roots[0]);
        assert!(on_disk.stats().unwrap().index_bytes_on_disk > 100_000);
        assert_sound(&on_disk);
    }
    // The checkpoint of this view was removed; its file is read while the view exists.
    assert_eq!(read(&first), before);
    // The reverts of wiping a storage need all of its slots.
    let gone = remove(path(0));
    let full = read(&on_disk.view().unwrap());
    let roots = [&on_disk, &in_memory].map(|db| commit(db, vec![gone.clone()]));
    assert_eq!(roots[0], roots[1]);
    on_disk.flush(0).unwrap();
    assert_eq!(on_disk.view().unwrap().account(&path(0)).unwrap(), None);
    on_disk.unwind(3).unwrap();
    assert_eq!(read(&on_disk.view().unwrap()), full);
    on_disk.flush(0).unwrap();
    drop((on_disk, first));

    // The same files with more memory, and with less again.
    for index_bytes_max in [IN_MEMORY, ON_DISK] {
        let db = open(&disk, index_bytes_max);
        let is_on_disk = db.stats().unwrap().index_bytes_on_disk > 0;
        assert_eq!(is_on_disk, index_bytes_max == ON_DISK);
        assert_eq!(read(&db.view().unwrap()), full);
        assert_sound(&db);
    }
}

#[test]
fn the_form_on_disk_is_what_it_was() {
    let disk = FaultyDisk::new(1);
    let mut loader = Loader::new(Arc::new(disk.clone()), options(ON_DISK)).unwrap();
    let slots = (0..SLOTS).map(|index| (slot(index).1, U256::from(index + 1)));
    loader.account(path(0), &account(0), slots).unwrap();
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    drop(loaded.create(meta, vec![]).unwrap());
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let hash = |name: &str| {
        let found = load_latest_checkpoint(&disk, StoreError::is_corruption, |found| {
            found.read_section(name)
        });
        keccak256(found.unwrap().loaded.expect("a checkpoint"))
    };
    // Databases in use hold some: other values here are another format number of checkpoints.
    let expected = [
        b256!("97c9b4ae46b57ba85c3978bd29a6a45c4e571657ec797f4a977c751991870628"),
        b256!("526bbefa90de548929ac351ea44c5a57cf01c8e7699b2019a6c025ec32c97644"),
    ];
    assert_eq!([hash("index"), hash("tops")], expected);
}

#[test]
fn an_index_that_outgrows_its_memory_moves_to_disk_and_back() {
    let (db, disk) = database(IN_MEMORY);
    let needed = db.stats().unwrap().index_bytes as u64;
    drop(db);
    let db = open(&disk, needed + needed / 8);
    assert_eq!(db.stats().unwrap().index_bytes_on_disk, 0);
    let slots = (0..SLOTS).map(|index| (slot(index).1, U256::from(index + 1)));
    let grown = AccountDiff {
        slots: slots.collect(),
        ..put(path(1), 1)
    };
    commit(&db, vec![grown]);
    db.flush(0).unwrap();
    // It is known to be too large from now on.
    let root = commit(&db, vec![put(path(2), 1)]);
    db.flush(0).unwrap();
    let stats = db.stats().unwrap();
    assert!(stats.index_bytes_on_disk > 0, "{stats:?}");
    assert_eq!(read(&db.view().unwrap()).2, root);
    let gone = remove(path(1));
    let root = commit(&db, vec![gone]);
    db.flush(0).unwrap();
    drop(db);
    let db = open(&disk, needed + needed / 8);
    assert_eq!(db.stats().unwrap().index_bytes_on_disk, 0);
    assert_eq!(read(&db.view().unwrap()).2, root);
}

/// Numbers of the checkpoints there are, and what each is on.
fn checkpoints(disk: &FaultyDisk) -> Vec<(u64, Option<u64>)> {
    let names = disk.files().into_iter();
    let numbers = names.filter_map(|name| name.strip_prefix("checkpoint-")?.parse().ok());
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    numbers
        .map(|number| {
            (
                number,
                Checkpoint::open(&disk, number).unwrap().id().before(),
            )
        })
        .collect()
}

fn copy_of(disk: &FaultyDisk) -> FaultyDisk {
    let copy = FaultyDisk::new(2);
    for name in disk.files() {
        if let Some((dir, _)) = name.split_once('/') {
            copy.create_dir(dir).unwrap();
        }
        let file = copy.create(&name).unwrap();
        file.write_at(&disk.contents(&name).unwrap(), 0).unwrap();
    }
    copy
}

#[test]
fn checkpoints_have_what_changed_and_now_and_then_all() {
    let (db, disk) = database(IN_MEMORY);
    let (other, _) = database(ON_DISK);
    let (mut on_others, mut whole) = (0, 0);
    for round in 1..12 {
        let before = db.counters().checkpoint_bytes_written;
        let roots = [&db, &other].map(|db| commit(db, mixed(round)));
        db.flush(0).unwrap();
        other.flush(0).unwrap();
        assert_eq!(roots[0], roots[1]);
        let written = db.counters().checkpoint_bytes_written - before;
        let kept = checkpoints(&disk);
        let (newest, is_on) = *kept.last().expect("a checkpoint");
        match is_on {
            Some(older) => {
                assert_eq!(older, newest - 1);
                on_others += 1;
            }
            None => whole += 1,
        }
        println!("{written} bytes for checkpoint {newest}, of {kept:?}");
        // Two of them, and what these are on.
        let first_kept = kept[0].0;
        assert_eq!(kept[0].1, None);
        assert!(
            kept[1..]
                .iter()
                .all(|(number, is_on)| is_on.is_some() || *number == newest)
        );
        assert_eq!(newest - first_kept + 1, kept.len() as u64);
        // Opened with memory for all of the index, and with none: then it is written whole.
        for index_bytes_max in [IN_MEMORY, ON_DISK] {
            let again = open(&copy_of(&disk), index_bytes_max);
            let stats = again.stats().unwrap();
            assert_eq!(stats.index_bytes_on_disk > 0, index_bytes_max == ON_DISK);
            assert_eq!(stats.pages, db.stats().unwrap().pages);
            assert_eq!(again.view().unwrap().state_root(), roots[0]);
            if round % 5 == 0 {
                assert_eq!(read(&again.view().unwrap()), read(&other.view().unwrap()));
                assert_sound(&again);
                commit(&again, mixed(round + 1));
                again.flush(0).unwrap();
                assert_sound(&again);
            }
        }
    }
    assert!(on_others >= 4 && whole >= 1, "{on_others} and {whole}");
}

#[test]
fn a_small_change_makes_a_small_checkpoint() {
    let (db, _) = database(IN_MEMORY);
    let whole = db.stats().unwrap().index_bytes as u64;
    let before = db.counters().checkpoint_bytes_written;
    commit(&db, (1..20).map(|index| put(path(index), 7)).collect());
    db.flush(0).unwrap();
    let written = db.counters().checkpoint_bytes_written - before;
    println!("{written} bytes of a checkpoint, {whole} of the index");
    assert!(written * 20 < whole, "{written} of {whole}");
}

#[test]
fn a_cold_access_takes_two_reads_of_the_disk_and_its_update_none() {
    let (db, _) = database(ON_DISK);
    let spread = |from: u64, step: usize| (from..ACCOUNTS).step_by(step).map(path);
    let reads = |work: &dyn Fn()| {
        let before = db.counters();
        work();
        let after = db.counters();
        let caused = |counters: &cambium_state::CounterValues| {
            counters.page_reads() + counters.index_reads + counters.block_index_reads
        };
        let reads = after.disk_reads - before.disk_reads;
        assert_eq!(caused(&after) - caused(&before), reads, "reads by cause");
        reads as f64
    };
    let view = db.view().unwrap();
    let cold: Vec<_> = spread(1, 23).collect();
    let one_by_one = reads(&|| {
        for path in &cold {
            assert!(view.account(path).unwrap().is_some());
        }
    });
    let each = one_by_one / cold.len() as f64;
    assert!((1.8..=2.1).contains(&each), "{each} reads an account");
    let slots: Vec<_> = (0..SLOTS).step_by(29).map(slot).collect();
    let each = reads(&|| {
        for (owner, slot) in &slots {
            assert!(!view.slot(owner, slot).unwrap().is_zero());
        }
    }) / slots.len() as f64;
    assert!((1.8..=2.1).contains(&each), "{each} reads a slot");

    // Those of a batch share parts and pages.
    let cold: Vec<_> = spread(2, 29).collect();
    let each = reads(&|| drop(view.accounts(&cold).unwrap())) / cold.len() as f64;
    assert!((0.5..=2.1).contains(&each), "{each} reads an account");
    let cold: Vec<_> = spread(5, 31).collect();
    let each = reads(&|| {
        let changes = cold.iter().map(|path| put(*path, 7));
        commit(&db, changes.collect());
    }) / cold.len() as f64;
    assert!((0.5..=2.1).contains(&each), "{each} reads a change");
    reads(&|| db.flush(0).unwrap());
}

#[test]
fn a_damaged_part_is_told_by_file_and_offset_and_costs_nothing() {
    let (db, disk) = database(ON_DISK);
    commit(&db, mixed(1));
    db.flush(0).unwrap();
    let root = commit(&db, mixed(2));
    db.flush(0).unwrap();
    let expected = read(&db.view().unwrap());
    let newest = disk.files().into_iter().rfind(|name| {
        name.strip_prefix("checkpoint-")
            .is_some_and(|number| number.parse::<u32>().is_ok())
    });
    let newest = newest.expect("a checkpoint");
    // The first part begins behind the header.
    disk.flip_bit(&newest, 24 + 100, 5);
    let view = db.view().unwrap();
    let paths = (0..ACCOUNTS).map(path);
    let errors: Vec<_> = paths
        .filter_map(|path| view.account(&path).err())
        .map(|error| error.to_string())
        .collect();
    let told = format!("{newest} is damaged at byte 24: ");
    assert!(
        errors.iter().all(|error| error.starts_with(&told)),
        "{errors:?}"
    );
    // One part of many.
    assert!((1..ACCOUNTS as usize / 100).contains(&errors.len()));
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.damage.iter().any(|damage| damage.starts_with(&told)));
    drop((view, db));

    for index_bytes_max in [IN_MEMORY, ON_DISK] {
        let disk = disk.crash();
        let options = options(index_bytes_max);
        let (db, recovery) = Db::open(Arc::new(disk), options).unwrap();
        assert!(recovery.notes[0].starts_with(&newest), "{recovery:?}");
        assert_eq!(db.view().unwrap().state_root(), root);
        assert_eq!(read(&db.view().unwrap()), expected);
        assert_sound(&db);
    }
}
