//! One bad bit in any checkpoint's file, that of the whole index at the bottom above all: the
//! database opens at its head.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate};
use cambium_state::{Db, Disk, Fault, FaultyDisk, Loader, Options};
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{commit, first_block, path, put, remove},
    say,
};
use std::sync::Arc;

fn slot(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

fn options(index_bytes_max: Option<u64>) -> Options {
    Options {
        memory_bytes: 64 << 20,
        index_bytes_max,
        files: TINY_FILES,
        ..Options::default()
    }
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

fn checkpoints(disk: &FaultyDisk) -> Vec<String> {
    let is_one = |name: &String| {
        name.strip_prefix("checkpoint-")
            .is_some_and(|number| number.parse::<u64>().is_ok())
    };
    disk.files().into_iter().filter(is_one).collect()
}

/// Accounts: small ones, and some whose slots fill many pages.
fn database(accounts: u64, index_bytes_max: Option<u64>) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(1);
    let mut loader = Loader::new(Arc::new(disk.clone()), options(index_bytes_max)).unwrap();
    for index in 0..accounts {
        let slots = match index % 50 {
            0 => 3000,
            1 => 400,
            2 => 20,
            _ => index % 4,
        };
        let slots = (0..slots).map(|at| (slot(at), U256::from(at + 1)));
        let account = Account {
            nonce: index,
            ..Account::default()
        };
        loader.account(path(index), &account, slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    (loaded.create(meta, vec![]).unwrap(), disk)
}

/// A block that changes accounts of all kinds: their fields alone, slots alone, storage that comes
/// and goes.
fn changes(random: &mut Random, accounts: u64, nonce: u64) -> Vec<AccountDiff> {
    let mut indices: Vec<_> = (0..40).map(|_| random.below(accounts + 5)).collect();
    indices.extend((0..4).map(|_| random.below(accounts) / 50 * 50));
    indices.sort_unstable();
    indices.dedup();
    let change = |index: u64| {
        let slots = |random: &mut Random, most: u64, of: u64| {
            let mut slots: Vec<_> = (0..random.below(most))
                .map(|_| (slot(random.below(of)), U256::from(random.below(3))))
                .collect();
            slots.sort_unstable();
            slots.dedup_by_key(|(slot, _)| *slot);
            slots
        };
        match random.below(8) {
            0 => remove(path(index)),
            1 => put(path(index), nonce),
            2 => AccountDiff {
                slots: slots(random, 600, 5000),
                wipe: true,
                ..put(path(index), nonce)
            },
            3 => AccountDiff {
                slots: slots(random, 1500, 5000),
                ..put(path(index), nonce)
            },
            4 => AccountDiff {
                // All of the first slots go, so that another page comes first.
                slots: {
                    let mut first: Vec<_> = (0..5000).map(slot).collect();
                    first.sort_unstable();
                    let gone = random.below(400) as usize;
                    first[..gone]
                        .iter()
                        .map(|slot| (*slot, U256::ZERO))
                        .collect()
                },
                ..put(path(index), nonce)
            },
            _ => AccountDiff {
                slots: slots(random, 10, 5000),
                ..put(path(index), nonce)
            },
        }
    };
    indices.into_iter().map(change).collect()
}

/// Opens, looks whether all is there, and goes on for two merges.
fn assert_whole(disk: &FaultyDisk, options: Options, root: B256, what: &str) -> Vec<String> {
    let opened = Db::open(Arc::new(disk.clone()), options);
    let (db, recovery) = opened.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(db.view().unwrap().state_root(), root, "{what}");
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new(), "{what}");
    for nonce in 1..3 {
        commit(
            &db,
            vec![put(path(0), 1000 + nonce), put(path(50), nonce)],
            vec![],
        );
        db.flush(0).unwrap();
    }
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new(), "{what}, later");
    recovery.notes
}

fn every_checkpoint(accounts: u64, rounds: u64, index_bytes_max: Option<u64>) -> (u64, u64) {
    let (db, disk) = database(accounts, index_bytes_max);
    let mut random = Random::new(accounts);
    let (mut rebuilt, mut fell_back) = (0, 0);
    for round in 1..=rounds {
        let changed = changes(&mut random, accounts, round);
        let root = commit(&db, changed, vec![]);
        db.flush(random.below(2) as usize).unwrap();
        if round % 3 != 0 {
            continue;
        }
        for name in checkpoints(&disk) {
            let copy = copy_of(&disk);
            let len = copy.contents(&name).unwrap().len() as u64;
            copy.flip_bit(&name, random.below(len), random.below(8) as u8);
            let what = format!("round {round}, {name} of {:?}", checkpoints(&disk));
            let notes = assert_whole(&copy, options(index_bytes_max), root, &what);
            let says = |part: &str| notes.iter().any(|note| note.contains(part));
            rebuilt += u64::from(says("made again from the pages"));
            fell_back += u64::from(says("an older checkpoint is used"));
        }
    }
    (rebuilt, fell_back)
}

#[test]
fn a_bad_bit_in_any_checkpoint_costs_nothing() {
    // With three accounts few are made again, and how many depends on when merges end.
    for (accounts, rounds) in [(3, 90), (120, 18)] {
        let (rebuilt, fell_back) = every_checkpoint(accounts, rounds, None);
        say(&format!(
            "{accounts} accounts: {rebuilt} indices made again from pages, {fell_back} older \
             checkpoints used"
        ));
        assert!(rebuilt > 0 && fell_back > 0);
    }
}

#[test]
fn an_index_on_disk_is_never_damaged_twice() {
    let (rebuilt, fell_back) = every_checkpoint(120, 12, Some(8 << 10));
    assert!(rebuilt == 0 && fell_back > 0);
}

#[test]
fn an_account_is_known_by_its_first_page() {
    let (db, disk) = database(60, None);
    let update = AccountUpdate::Put(Account {
        nonce: 777,
        ..Account::default()
    });
    // Its fields alone; its slots alone; the slots of its first page; all but a few.
    let change = |slots: Vec<(B256, U256)>, account| AccountDiff {
        path: path(0),
        account,
        wipe: false,
        slots,
    };
    let mut sorted: Vec<_> = (0..3000).map(slot).collect();
    sorted.sort_unstable();
    let gone = |slots: &[B256]| slots.iter().map(|slot| (*slot, U256::ZERO)).collect();
    for changed in [
        change(vec![], update),
        change(vec![(slot(7), U256::from(8))], AccountUpdate::Keep),
        change(gone(&sorted[..300]), AccountUpdate::Keep),
        change(gone(&sorted[300..2900]), AccountUpdate::Keep),
    ] {
        let root = commit(&db, vec![changed], vec![]);
        db.flush(0).unwrap();
        let report = db.check(&mut |_| {}).unwrap();
        assert_eq!(report.damage, Vec::<String>::new());
        let copy = copy_of(&disk);
        let whole = &checkpoints(&disk)[0];
        copy.flip_bit(whole, 100, 1);
        assert_whole(&copy, options(None), root, whole);
    }
}

/// Number of accounts of [`large_storages`] whose storages have many parts of an index each.
const LARGE: u64 = 6;
/// Number of their slots at first.
const LARGE_SLOTS: u64 = 20_000;

/// Large storages, and a few small accounts. Segments are large enough to be cleaned before they are
/// empty.
fn large_storages(index_bytes_max: Option<u64>) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(1);
    let mut options = options(index_bytes_max);
    options.files.segment_bytes_max = 512 << 10;
    let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
    for index in 0..LARGE + 600 {
        let slots = if index < LARGE { LARGE_SLOTS } else { 0 };
        let slots = (0..slots).map(|at| (slot(at), U256::from(at + 1)));
        let account = Account {
            nonce: index + 1,
            ..Account::default()
        };
        loader.account(path(index), &account, slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    (loaded.create(meta, vec![]).unwrap(), disk)
}

/// A block that touches few parts of the index: some slots, or all with paths of some prefix, of a
/// large storage.
fn few_changes(random: &mut Random, db: &Db, nonce: u64) -> Vec<AccountDiff> {
    let index = random.below(LARGE);
    let mut sorted: Vec<_> = (0..LARGE_SLOTS).map(slot).collect();
    sorted.sort_unstable();
    let all_zero = |slots: &[B256]| slots.iter().map(|slot| (*slot, U256::ZERO)).collect();
    let slots: Vec<_> = match random.below(6) {
        0 => Vec::new(),
        1 => all_zero(&sorted[..random.below(600) as usize]),
        2 => {
            // All below one child of the storage's root, or of a branch below it.
            let (byte, mask) = [(random.next() as u8, 0xf0), (random.next() as u8, 0xff)]
                [random.below(2) as usize];
            sorted.retain(|slot| (slot[0] ^ byte) & mask == 0);
            all_zero(&sorted)
        }
        _ => {
            // Many now and then, so that dead space is everywhere, and cleaned.
            let most = [8, 8, 8, 300][random.below(4) as usize];
            let some = (0..=random.below(most)).map(|_| slot(random.below(2 * LARGE_SLOTS)));
            let mut some: Vec<_> = some.collect();
            some.sort_unstable();
            some.dedup();
            some.into_iter()
                .map(|slot| (slot, U256::from(random.below(3))))
                .collect()
        }
    };
    let is_there = db.view().unwrap().account(&path(index)).unwrap().is_some();
    let account = match random.below(2) {
        0 if is_there => AccountUpdate::Keep,
        _ => AccountUpdate::Put(Account {
            nonce,
            ..Account::default()
        }),
    };
    let large = AccountDiff {
        path: path(index),
        account,
        wipe: false,
        slots,
    };
    let mut changes = vec![large];
    changes.extend(match random.below(40) {
        // A storage goes with all of its parts, or one that is as large comes.
        0 => vec![remove(path((index + 1) % LARGE))],
        1 => vec![AccountDiff {
            slots: (0..LARGE_SLOTS)
                .map(|at| (slot(at), U256::from(nonce)))
                .collect(),
            wipe: true,
            ..put(path((index + 1) % LARGE), nonce)
        }],
        at => vec![put(path(LARGE + at), nonce)],
    });
    for change in &mut changes {
        change.slots.sort_unstable();
    }
    changes.sort_unstable_by_key(|change| change.path);
    changes
}

#[test]
fn merges_that_open_few_parts_of_an_index_on_disk_make_what_they_make_of_one_in_memory() {
    let (on_disk, disk) = large_storages(Some(0));
    let (in_memory, _) = large_storages(None);
    let mut random = Random::new(1);
    // How many pages a merge moves depends on when it runs: it goes on until both have moved enough.
    let moved = || [&on_disk, &in_memory].map(|db| db.counters().pages_moved);
    let mut round = 0;
    while round < 160 || (round < 1_000 && moved().iter().any(|pages| *pages <= 20)) {
        round += 1;
        let changed = few_changes(&mut random, &on_disk, round);
        let roots = [&on_disk, &in_memory].map(|db| {
            let root = commit(db, changed.clone(), vec![]);
            db.flush(0).unwrap();
            root
        });
        assert_eq!(roots[0], roots[1]);
        assert!(on_disk.stats().unwrap().index_bytes_on_disk > 0);
        if round % 6 == 0 {
            let report = on_disk.check(&mut |_| {}).unwrap();
            assert_eq!(report.damage, Vec::<String>::new(), "round {round}");
        }
        if round % 40 == 0 {
            // The pages alone determine it, the accounts above large storages as well.
            let copy = copy_of(&disk);
            assert_whole(&copy, options(None), roots[0], "in memory");
            let root = {
                let (db, _) = Db::open(Arc::new(copy.clone()), options(None)).unwrap();
                db.view().unwrap().state_root()
            };
            copy.flip_bit(&checkpoints(&copy)[0], 100, 1);
            assert_whole(&copy, options(None), root, "from pages");
        }
    }
    let moved = moved();
    // Their pages have other sizes, as the memory of their indices allows. Both are cleaned.
    let per_live = [&on_disk, &in_memory].map(|db| {
        let stats = db.stats().unwrap();
        stats.segment_bytes as f64 / stats.segment_live_bytes as f64
    });
    say(&format!(
        "{round} merges, {moved:?} pages moved, {per_live:?} bytes of segments for each live one"
    ));
    assert!(moved[0] > 20 && moved[1] > 20);
    assert!(per_live.iter().all(|bytes| *bytes < 6.0));
}

#[test]
fn parts_of_an_index_that_a_merge_leaves_as_they_were_stay_in_memory() {
    // Room for the parts of one storage.
    let (db, disk) = large_storages(None);
    let needed = db.stats().unwrap().index_bytes as u64;
    drop(db);
    let db = Db::open(Arc::new(disk), options(Some(needed * 7 / 8)))
        .unwrap()
        .0;
    let stats = db.stats().unwrap();
    assert!(stats.index_bytes_on_disk > 0, "{stats:?}, {needed}");
    // The first merge moves all parts to the segments.
    commit(&db, vec![put(path(LARGE), 3)], vec![]);
    db.flush(0).unwrap();
    let read_all = |index: u64| {
        let before = db.counters().index_reads;
        let view = db.view().unwrap();
        for at in (0..LARGE_SLOTS).step_by(7) {
            view.slot(&path(index), &slot(at)).unwrap();
        }
        db.counters().index_reads - before
    };
    let cold = read_all(0);
    assert!(cold > 10, "{cold} parts");
    for nonce in 0..3 {
        let one = vec![(slot(nonce), U256::from(77))];
        let slots = AccountDiff {
            slots: one,
            ..put(path(0), nonce)
        };
        commit(&db, vec![slots], vec![]);
        db.flush(0).unwrap();
        let again = read_all(0);
        say(&format!(
            "{cold} parts read at first, {again} after a merge"
        ));
        assert!(again * 10 <= cold, "{again} of {cold} parts");
    }
}

#[test]
fn a_merge_repeats_a_read_of_the_index_that_fails_once() {
    let (db, disk) = database(4_000, Some(0));
    assert!(db.stats().unwrap().index_bytes_on_disk > 0);
    for nonce in 0..8 {
        commit(&db, vec![put(path(77), nonce)], vec![]);
        // The first merge moves all parts to the segments.
        let files = if nonce == 0 {
            "checkpoint-"
        } else {
            "segments/"
        };
        disk.inject(Fault::FailedRead, files, 1);
        db.flush(0).unwrap();
        assert_eq!(disk.take_hits().len(), 1);
    }
}

#[test]
fn two_damaged_checkpoints_of_an_index_on_disk_are_not_to_be_opened_again_and_again() {
    let (db, disk) = database(4_000, Some(0));
    for nonce in 0..3 {
        commit(&db, vec![put(path(77), nonce)], vec![]);
        db.flush(0).unwrap();
    }
    drop(db);
    let disk = disk.crash();
    for name in checkpoints(&disk) {
        disk.flip_bit(&name, 124, 5);
    }
    let opened = Db::open(Arc::new(disk), options(Some(0)));
    let error = opened
        .err()
        .expect("neither checkpoint is whole")
        .to_string();
    assert!(
        error.contains("checkpoint-") && error.contains("db repair"),
        "{error}"
    );
    assert!(!error.contains("open the database again"), "{error}");
}
