//! An index that is larger than its memory: it returns the same as one in memory, with one more
//! read of the disk.

use alloy_primitives::{B256, U256, b256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes};
use cambium_state::{Db, Disk, FaultyDisk, Loader, Options, View, repair};
use cambium_store::{Checkpoint, StoreError, load_latest_checkpoint};
use cambium_testkit::{
    Model, Random,
    plain::{self, account, change, first_block, path, put, remove, tiny_options},
};
use cambium_trie::ProofTargets;
use std::{collections::BTreeSet, sync::Arc};

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

/// A database in small segments, with `index_bytes_max` bytes for the index, and its disk. Thirty accounts have large storages.
fn small_segments(index_bytes_max: u64) -> (Db, FaultyDisk, Options) {
    let disk = FaultyDisk::new(3);
    let options = Options {
        index_bytes_max: Some(index_bytes_max),
        ..tiny_options()
    };
    let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
    for index in 0..4_000 {
        let slots = if index < 30 { 1_500 } else { index % 3 };
        let slots = (0..slots).map(|at| (slot(at).1, U256::from(at + 1)));
        loader.account(path(index), &account(index), slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    let db = loaded.create(meta, vec![]).unwrap();
    commit(&db, vec![put(path(31), 1)]);
    // Its first merge moves parts on disk from the checkpoint to the segments.
    db.flush(0).unwrap();
    (db, disk, options)
}

/// Changes of few accounts and slots, some of them new and some removed.
fn few(random: &mut Random, round: u64) -> Vec<AccountDiff> {
    let mut changed: Vec<_> = (0..1 + random.below(6))
        .map(|_| match random.below(5) {
            0 => random.below(40),
            _ => random.below(5_000),
        })
        .collect();
    changed.sort_unstable();
    changed.dedup();
    let mut changes: Vec<_> = changed
        .into_iter()
        .map(|index| match random.below(5) {
            0 if index >= 30 => remove(path(index)),
            _ => {
                let mut slots: Vec<_> = (0..random.below(4))
                    .map(|_| (slot(random.below(2_000)).1, U256::from(random.below(3))))
                    .collect();
                slots.sort_unstable_by_key(|(slot, _)| *slot);
                slots.dedup_by_key(|(slot, _)| *slot);
                AccountDiff {
                    slots,
                    ..put(path(index), round)
                }
            }
        })
        .collect();
    changes.sort_unstable_by_key(|change| change.path);
    changes
}

/// All accounts of [`small_segments`], and slots of one in ten.
fn read_small(view: &View) -> (Vec<Option<Account>>, Vec<U256>) {
    let accounts: Vec<_> = (0..5_000).map(path).collect();
    let owners = (0..5_000).step_by(10).chain(0..30).map(path);
    let slots: Vec<_> = owners
        .flat_map(|owner| (0..2_000).step_by(97).map(move |at| (owner, slot(at).1)))
        .collect();
    (
        view.accounts(&accounts).unwrap(),
        view.storage(&slots).unwrap(),
    )
}

/// Bytes of all segments and checkpoints.
fn files_bytes(disk: &FaultyDisk) -> u64 {
    let names = disk.files().into_iter();
    let names =
        names.filter(|name| name.starts_with("segments/") || name.starts_with("checkpoint"));
    names
        .map(|name| disk.contents(&name).unwrap().len() as u64)
        .sum()
}

#[test]
fn a_merge_writes_the_parts_that_it_changes_and_the_tops() {
    let (db, _) = database(ON_DISK);
    commit(&db, vec![put(path(1), 1)]);
    db.flush(0).unwrap();
    let stats = db.stats().unwrap();
    let tops = stats.index_bytes as u64;
    for (round, changed) in [1u64, 2, 8].into_iter().enumerate() {
        let before = db.counters();
        let changes = (0..changed).map(|index| put(path(1_000 * index + 7), round as u64 + 5));
        commit(&db, changes.collect());
        db.flush(0).unwrap();
        let after = db.counters();
        let parts = after.index_parts_written - before.index_parts_written;
        let opened = after.index_parts_opened - before.index_parts_opened;
        let checkpoint = after.checkpoint_bytes_written - before.checkpoint_bytes_written;
        let segments = after.page_bytes_written - before.page_bytes_written;
        let reads = after.index_reads - before.index_reads;
        println!(
            "{changed} changes: {parts} parts of {opened}, {segments} bytes of segments, {checkpoint} of the checkpoint; \
             tops of {tops}, parts of {} bytes, {reads} reads",
            stats.index_bytes_on_disk
        );
        assert!((1..=changed).contains(&parts) && opened <= changed);
        assert!(reads <= 2 * changed, "{reads} reads of the index");
        // A part and a page of up to 8 KiB each, and the block that fills the last one.
        assert!(segments <= changed * (16 << 10) + (4 << 10));
        assert!(checkpoint <= tops + (8 << 10));
        assert!(
            segments + checkpoint < stats.index_bytes_on_disk,
            "as much as the index"
        );
    }
}

#[test]
fn an_index_on_disk_is_what_one_in_memory_is_after_hundreds_of_merges_and_its_files_do_not_grow() {
    let (db, disk, options) = small_segments(ON_DISK);
    let (in_memory, other, _) = small_segments(IN_MEMORY);
    let mut random = Random::new(5);
    // The most that the files of each took in rounds 200 to 299, and 300 to 399.
    let mut most = [[0; 2]; 2];
    for round in 0..400 {
        let changed = few(&mut random, round);
        let roots = [&db, &in_memory].map(|db| {
            let root = commit(db, changed.clone());
            db.flush(0).unwrap();
            root
        });
        assert_eq!(roots[0], roots[1], "round {round}");
        let stats = db.stats().unwrap();
        assert!(stats.index_bytes_on_disk > 0);
        if round >= 200 {
            for (most, disk) in most.iter_mut().zip([&disk, &other]) {
                let most = &mut most[round as usize / 100 - 2];
                *most = files_bytes(disk).max(*most);
            }
        }
        if round % 80 != 7 {
            continue;
        }
        // In memory it has smaller pages, so their numbers differ.
        for db in [&db, &in_memory] {
            let report = db.check(&mut |_| {}).unwrap();
            assert_eq!(report.damage, Vec::<String>::new());
            assert_eq!(report.pages, db.stats().unwrap().pages);
        }
        let [expected, other] = [&db, &in_memory].map(|db| {
            let view = db.view().unwrap();
            (view.state_root(), read_small(&view))
        });
        assert_eq!(expected, other);
        // In memory it is written whole again, and then by changes; and on disk once more.
        let copy = copy_of(&disk);
        for index_bytes_max in [IN_MEMORY, IN_MEMORY, ON_DISK, ON_DISK] {
            let options = Options {
                index_bytes_max: Some(index_bytes_max),
                ..options
            };
            let (again, recovery) = Db::open(Arc::new(copy.clone()), options).unwrap();
            assert_eq!(recovery.notes, Vec::<String>::new());
            let is_on_disk = again.stats().unwrap().index_bytes_on_disk > 0;
            assert_eq!(is_on_disk, index_bytes_max == ON_DISK);
            let view = again.view().unwrap();
            assert_eq!((view.state_root(), read_small(&view)), expected);
            drop(view);
            for nonce in 0..2 {
                commit(&again, vec![put(path(4_999), nonce)]);
                again.flush(0).unwrap();
            }
            assert_sound(&again);
            commit(&again, vec![change_back(&db)]);
            again.flush(0).unwrap();
            assert_eq!(again.view().unwrap().state_root(), expected.0);
            again.close().unwrap();
        }
    }
    let (stats, counters) = (db.stats().unwrap(), db.counters());
    println!(
        "files of {most:?} bytes at most, {} live; {} parts of {} bytes written, of {} bytes, {} pages moved",
        stats.segment_live_bytes,
        counters.index_parts_written,
        counters.index_bytes_written,
        stats.index_bytes_on_disk,
        counters.pages_moved
    );
    // Parts were written several times, and are not there several times.
    assert!(counters.index_bytes_written > 4 * stats.index_bytes_on_disk);
    assert!(counters.pages_moved > 0);
    let [on_disk, in_memory] = most;
    assert!(on_disk[1] < on_disk[0] * 5 / 4, "{most:?}");
    assert!(on_disk[1] < in_memory[1] * 5 / 4, "{most:?}");
}

/// The account 4,999 as it is in `db`.
fn change_back(db: &Db) -> AccountDiff {
    match db.view().unwrap().account(&path(4_999)).unwrap() {
        None => remove(path(4_999)),
        Some(account) => change(path(4_999), AccountUpdate::Put(account)),
    }
}

#[test]
fn a_damaged_part_is_told_by_file_and_offset_and_repaired_from_pages() {
    let (db, disk, options) = small_segments(ON_DISK);
    let mut random = Random::new(9);
    for round in 0..12 {
        commit(&db, few(&mut random, round));
        db.flush(0).unwrap();
    }
    let root = db.view().unwrap().state_root();
    let expected = read_small(&db.view().unwrap());
    db.close().unwrap();
    let parts = parts_in(&disk, options);
    assert!(parts.len() > 20, "{} parts", parts.len());
    let mut restored = 0;
    for (name, offset) in parts.iter().step_by(parts.len() / 12) {
        let disk = copy_of(&disk);
        disk.flip_bit(name, offset + 40, 2);
        let told = format!("{name} is damaged at byte {offset}: ");
        let (db, _) = Db::open(Arc::new(disk.clone()), options).unwrap();
        let view = db.view().unwrap();
        assert_eq!(view.state_root(), root);
        let read: Vec<_> = (0..5_000).map(|index| view.account(&path(index))).collect();
        for (read, expected) in read.iter().zip(&expected.0) {
            match read {
                Ok(read) => assert_eq!(read, expected),
                Err(error) => assert!(error.to_string().starts_with(&told), "{error}"),
            }
        }
        let report = db.check(&mut |_| {}).unwrap();
        assert!(
            report.damage.iter().any(|damage| damage.starts_with(&told)),
            "{report:?}"
        );
        drop(view);
        db.close().unwrap();
        // With memory for the whole index it opens too.
        let in_memory = Options {
            index_bytes_max: Some(IN_MEMORY),
            ..options
        };
        let (db, recovery) = Db::open(Arc::new(copy_of(&disk)), in_memory).unwrap();
        assert!(
            recovery.notes.iter().any(|note| note.starts_with(&told)),
            "{recovery:?}"
        );
        assert!(db.stats().unwrap().index_bytes_on_disk > 0);
        drop(db);
        let arc: Arc<dyn Disk> = Arc::new(disk.clone());
        let report = repair(&arc, options, false, &mut |_| {}).unwrap();
        assert!(report.findings[0].damage.starts_with(&told), "{report:?}");
        let (db, recovery) = Db::open(Arc::new(disk), options).unwrap();
        assert_eq!(recovery.notes, Vec::<String>::new());
        if report.findings[0].is_repaired {
            restored += 1;
            assert_eq!(db.view().unwrap().state_root(), root);
            assert_eq!(read_small(&db.view().unwrap()), expected);
            assert_sound(&db);
            commit(&db, few(&mut random, 99));
            db.flush(0).unwrap();
            assert_sound(&db);
        }
    }
    println!("{restored} of 12 parts restored");
    assert!(restored >= 6, "{restored} parts restored");
}

/// File and offset of each part that the newest checkpoint names.
fn parts_in(disk: &FaultyDisk, options: Options) -> Vec<(String, u64)> {
    let mut found = BTreeSet::new();
    let (db, _) = Db::open(Arc::new(copy_of(disk)), options).unwrap();
    // A record of a part begins with a checksum, its length, and a byte that no page has there.
    for name in disk
        .files()
        .into_iter()
        .filter(|name| name.starts_with("segments/"))
    {
        let bytes = disk.contents(&name).unwrap();
        for offset in (32..bytes.len().saturating_sub(16)).step_by(16) {
            let len = u32::from_le_bytes(bytes[offset + 8..offset + 12].try_into().unwrap());
            if bytes[offset + 12] == 129 && (13..=8192).contains(&len) {
                found.insert((name.clone(), offset as u64));
            }
        }
    }
    // Only live ones: a damaged dead one is told by nothing.
    let is_live = |(name, offset): &(String, u64)| {
        let copy = copy_of(disk);
        copy.flip_bit(name, offset + 40, 2);
        let (db, _) = Db::open(Arc::new(copy), options).unwrap();
        !db.check(&mut |_| {}).unwrap().damage.is_empty()
    };
    drop(db);
    let all: Vec<_> = found.into_iter().collect();
    let some = all.len().div_ceil(60);
    all.into_iter().step_by(some).filter(is_live).collect()
}

#[test]
fn each_file_of_an_index_on_disk_that_is_damaged_or_missing_is_told_or_not_needed() {
    let (db, disk, options) = small_segments(ON_DISK);
    let mut random = Random::new(11);
    for round in 0..12 {
        commit(&db, few(&mut random, round));
        db.flush(0).unwrap();
    }
    let root = db.view().unwrap().state_root();
    let expected = read_small(&db.view().unwrap());
    db.close().unwrap();
    let names: Vec<_> = disk.files().into_iter().collect();
    let names = names
        .iter()
        .filter(|name| name.starts_with("segments/") || name.starts_with("checkpoint-"));
    for name in names {
        let len = disk.contents(name).unwrap().len() as u64;
        for damage in 0..3 {
            let disk = copy_of(&disk);
            match damage {
                0 => disk.remove(name).unwrap(),
                1 => disk.open(name).unwrap().set_len(len / 2).unwrap(),
                _ => disk.flip_bit(name, random.below(len), 1),
            }
            for index_bytes_max in [ON_DISK, IN_MEMORY] {
                let options = Options {
                    index_bytes_max: Some(index_bytes_max),
                    ..options
                };
                let opened = Db::open(Arc::new(copy_of(&disk)), options);
                let (db, _) = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
                let view = db.view().unwrap();
                assert_eq!(view.state_root(), root);
                let mut errors = 0;
                for (index, expected) in (0..5_000).zip(&expected.0) {
                    match view.account(&path(index)) {
                        Ok(read) => assert_eq!(read, *expected),
                        Err(error) => {
                            errors += 1;
                            let file = name.trim_start_matches("segments/");
                            let told = error.to_string();
                            let is_named = told.contains(file) || told.contains("segment ");
                            assert!(is_named, "{name}: {told}");
                        }
                    }
                }
                // Either of two checkpoints may be lost.
                assert!(
                    errors == 0 || name.starts_with("segments/"),
                    "{name}: {errors}"
                );
            }
        }
    }
}

/// Of the few blocks that such a merge opens few name a page of the sparsest segments.
#[test]
fn dead_space_stays_near_its_limit_where_a_merge_changes_one_or_two_accounts() {
    for (each, merges) in [(1, 1_200), (2, 800)] {
        let disk = FaultyDisk::new(7);
        let options = Options {
            index_bytes_max: Some(IN_MEMORY),
            ..tiny_options()
        };
        // Of one shard, whose index has blocks.
        let path = |index: u64| {
            let mut path = path(index);
            path[0] = 0xab;
            path
        };
        let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
        let mut model = Model::default();
        for index in 0..3_000 {
            loader.account(path(index), &account(0), []).unwrap();
        }
        let loaded = loader.finish(&mut |_| {}).unwrap();
        model.apply(&Changes::new(
            (0..3_000).map(|at| put(path(at), 0)).collect(),
        ));
        let meta = first_block(loaded.root());
        let db = loaded.create(meta, vec![]).unwrap();
        let (mut random, mut most) = (Random::new(3), 0.0f64);
        for round in 0..merges {
            let mut changes: Vec<_> = (0..each)
                .map(|_| put(path(random.below(3_000)), 1 + round))
                .collect();
            changes.sort_unstable_by_key(|change| change.path);
            changes.dedup_by_key(|change| change.path);
            model.apply(&Changes::new(changes.clone()));
            commit(&db, changes);
            db.flush(0).unwrap();
            if round > merges / 2 {
                let stats = db.stats().unwrap();
                let dead = stats.segment_bytes - stats.segment_live_bytes;
                most = most.max(dead as f64 / stats.segment_live_bytes as f64);
            }
        }
        let counters = db.counters();
        println!(
            "{each} a merge: at most {most:.2} dead bytes a live one, {} pages moved, {} written, {} blocks opened",
            counters.pages_moved, counters.pages_written, counters.index_blocks_opened
        );
        assert!(most < 2.5, "{most:.2} dead bytes a live one");
        assert!(counters.index_blocks_opened > merges);
        assert_eq!(db.view().unwrap().state_root(), model.root());
        assert_sound(&db);
    }
}
