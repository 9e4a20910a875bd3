//! Loading a first state, beside the model: any shape, any order, little memory, and a power
//! failure at any point.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes, Path};
use cambium_state::{
    BlockMeta, Db, Disk, FaultyDisk, Loaded, Loader, Options, RootLoader, StateError, StoreError,
};
use cambium_testkit::{Model, Random};
use cambium_trie::TrieError;
use std::sync::Arc;

/// Little enough that buckets are spilled, sorted in runs, and built part by part.
const LITTLE: u64 = 1 << 20;

fn options(memory_bytes: u64) -> Options {
    Options {
        memory_bytes,
        ..Options::default()
    }
}

/// Input of a loader, in its order.
#[derive(Clone)]
enum Given {
    Account(B256, Account, Vec<(B256, U256)>),
    Slots(B256, Vec<(B256, U256)>),
}

fn account_path(index: u64) -> B256 {
    let mut path = keccak256(index.to_le_bytes());
    match index % 16 {
        // Many in one shard, in which others have few.
        0..4 => path.0[0] = 0x5a,
        // A prefix as no two hashes share, with leaves at all depths to the last.
        4 => {
            path = B256::repeat_byte(0x5a);
            path.0[8..16].copy_from_slice(&(index / 64).to_be_bytes());
            path.0[31] = (index / 16) as u8 % 4;
        }
        _ => {}
    }
    path
}

fn slot(index: u64) -> (B256, U256) {
    let value = U256::from(index + 1) << (index % 240);
    (keccak256(index.to_be_bytes()), value)
}

/// A random state, and the same in pieces and in no order.
fn state(random: &mut Random, accounts: u64, large: u64) -> (Model, Vec<Given>) {
    let mut changes = Vec::new();
    let mut given = Vec::new();
    for index in 0..accounts {
        let path = account_path(index);
        let account = Account {
            nonce: random.below(300),
            balance: U256::from(random.next()) << random.below(190),
            code_hash: match random.percent(10) {
                true => keccak256([1]),
                false => Account::default().code_hash,
            },
        };
        let slots = match index {
            0 | 7 => large,
            _ if random.percent(20) => random.below(12),
            _ => 0,
        };
        let slots: Vec<_> = (0..slots).map(slot).collect();
        let (first, rest) = slots.split_at(slots.len().min(random.below(400) as usize));
        given.push(Given::Account(path, account, first.to_vec()));
        let rest = rest.chunks(1 + random.below(300) as usize);
        given.extend(rest.map(|slots| Given::Slots(path, slots.to_vec())));
        changes.push(AccountDiff {
            path,
            account: AccountUpdate::Put(account),
            wipe: false,
            slots,
        });
    }
    for at in (1..given.len()).rev() {
        given.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut model = Model::default();
    model.apply(&Changes::new(changes));
    (model, given)
}

fn give(loader: &mut Loader, given: &[Given]) -> Result<(), StateError> {
    for given in given {
        match given {
            Given::Account(path, account, slots) => {
                let zero = (B256::repeat_byte(9), U256::ZERO);
                loader.account(*path, account, slots.iter().copied().chain([zero]))?;
            }
            Given::Slots(path, slots) => loader.slots(*path, slots.iter().copied())?,
        }
    }
    Ok(())
}

fn load(disk: &FaultyDisk, memory: u64, given: &[Given]) -> Result<Loaded, StateError> {
    let mut loader = Loader::new(Arc::new(disk.clone()), options(memory))?;
    give(&mut loader, given)?;
    loader.code(keccak256([1]), &[1])?;
    let mut last = None;
    let loaded = loader.finish(&mut |progress| {
        assert!(last.is_none_or(|last| last < progress.done) && progress.done <= progress.of);
        last = Some(progress.done);
    })?;
    Ok(loaded)
}

fn meta(number: u64, parent: B256, state_root: B256) -> BlockMeta {
    BlockMeta {
        id: BlockId::new(number, keccak256(number.to_le_bytes())),
        parent,
        state_root,
        body: Bytes::from_static(b"body"),
    }
}

fn create(loaded: Loaded) -> Result<Db, StateError> {
    let genesis = meta(0, B256::ZERO, loaded.root());
    loaded.create(genesis, vec![])
}

fn spilled(disk: &FaultyDisk) -> Vec<String> {
    let files = disk.files().into_iter();
    files.filter(|name| name.starts_with("load-")).collect()
}

fn compare(db: &Db, model: &Model) {
    let view = db.view().unwrap();
    for (path, expected) in model.accounts() {
        assert_eq!(view.account(path).unwrap(), Some(expected.account));
        let slots = view.slots(path).unwrap();
        assert!(slots.into_iter().eq(expected.slots.clone()), "{path}");
    }
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
    assert_eq!(report.accounts, model.accounts().count() as u64);
}

#[test]
fn any_state_in_any_order_has_the_models_root_whatever_the_memory() {
    let random = &mut Random::new(1);
    for (accounts, large) in [(0, 0), (1, 0), (1, 5000), (40, 20), (3000, 9000)] {
        let (model, given) = state(random, accounts, large);
        for memory in [LITTLE, 8 << 20, 1 << 30] {
            let disk = FaultyDisk::new(accounts + memory);
            let loaded = load(&disk, memory, &given).unwrap();
            assert_eq!(loaded.root(), model.root(), "{accounts}, {large}, {memory}");
            let db = create(loaded).unwrap();
            compare(&db, &model);
            drop(db);
            assert_eq!(spilled(&disk), [""; 0]);
            let (db, _) = Db::open(Arc::new(disk.crash()), options(memory)).unwrap();
            compare(&db, &model);
        }
    }
}

#[test]
fn a_load_that_loses_power_anywhere_can_be_made_again() {
    let random = &mut Random::new(2);
    let (model, given) = state(random, 300, 1500);
    let make = |disk: &FaultyDisk| load(disk, LITTLE, &given).and_then(create);
    let whole = FaultyDisk::new(1);
    make(&whole).unwrap();
    let operations = whole.operations();
    assert!(operations > 80, "{operations} are too few to mean much");
    let step = if cambium_seeds::is_long() { 1 } else { 3 };
    for at in (0..operations).step_by(step) {
        let mut disk = FaultyDisk::new(at);
        // Twice, since what a cut attempt leaves is removed by one that is cut too.
        for cut in [at, random.below(operations)] {
            disk.lose_power_after(cut);
            let made = make(&disk);
            assert!(
                made.is_err() || cut >= operations - 1,
                "power fails at {cut}"
            );
            drop(made);
            disk = disk.crash();
            match Db::open(Arc::new(disk.clone()), options(LITTLE)) {
                // Its last operations are not needed to make it a database.
                Ok((db, _)) => assert_eq!(db.view().unwrap().state_root(), model.root()),
                Err(
                    StateError::Unfinished | StateError::Store(StoreError::NotADatabase { .. }),
                ) => {}
                Err(error) => panic!("power failed at {cut}: {error}"),
            }
        }
        match make(&disk) {
            Ok(db) => assert_eq!(db.view().unwrap().state_root(), model.root()),
            Err(StateError::Store(StoreError::AlreadyADatabase { .. })) => {}
            Err(error) => panic!("again after {at}: {error}"),
        }
        assert_eq!(spilled(&disk), [""; 0]);
        let (db, _) = Db::open(Arc::new(disk), options(LITTLE)).unwrap();
        assert_eq!(db.view().unwrap().state_root(), model.root());
    }
}

#[test]
fn a_load_that_a_full_disk_ends_anywhere_can_be_made_again() {
    let random = &mut Random::new(3);
    let (model, given) = state(random, 300, 1500);
    let make = |disk: &FaultyDisk| load(disk, LITTLE, &given).and_then(create);
    let whole = FaultyDisk::new(1);
    make(&whole).unwrap();
    let (calls, mut failed) = (whole.calls(), 0);
    // The last ones are those that make it a database.
    for at in (0..calls).filter(|at| at % 7 == 0 || at + 40 > calls) {
        let disk = FaultyDisk::new(at);
        disk.fill_after(at);
        let made = make(&disk);
        disk.clear_faults();
        let db = match made {
            Ok(db) => db,
            Err(error) => {
                failed += 1;
                make(&disk).unwrap_or_else(|again| panic!("{at} of {calls}: {error}, then {again}"))
            }
        };
        assert_eq!(db.view().unwrap().state_root(), model.root(), "{at}");
    }
    assert!(failed > 40, "{failed} of {calls}");
}

#[test]
fn what_is_given_twice_or_has_no_account_is_named() {
    let random = &mut Random::new(3);
    let (_, given) = state(random, 200, 3000);
    let large = account_path(0);
    let cases = [
        Given::Account(account_path(9), Account::default(), vec![]),
        Given::Account(large, Account::default(), vec![]),
        Given::Slots(large, vec![slot(1700)]),
        Given::Slots(B256::repeat_byte(0x5a), vec![slot(3)]),
    ];
    for memory in [LITTLE, 1 << 30] {
        for (number, more) in cases.iter().enumerate() {
            let mut given = given.clone();
            given.insert(random.below(given.len() as u64) as usize, more.clone());
            let disk = FaultyDisk::new(3);
            let error = load(&disk, memory, &given).err().expect("an error");
            let expected = match number {
                0 => TrieError::Unsorted {
                    path: Path::account(&account_path(9)),
                },
                1 => TrieError::Unsorted {
                    path: Path::account(&large),
                },
                2 => TrieError::Unsorted {
                    path: Path::slot(&large, &slot(1700).0),
                },
                _ => TrieError::Orphan {
                    path: Path::slot(&B256::repeat_byte(0x5a), &slot(3).0),
                },
            };
            assert!(
                matches!(&error, StateError::Trie(got) if *got == expected),
                "{error} instead of {expected}"
            );
            assert_eq!(spilled(&disk), [""; 0]);
        }
    }
}

#[test]
fn a_root_alone_is_that_of_the_model_and_leaves_no_trace() {
    let random = &mut Random::new(4);
    let (model, given) = state(random, 2000, 6000);
    for memory in [LITTLE, 1 << 30] {
        let disk = FaultyDisk::new(4);
        let mut loader = RootLoader::new(Arc::new(disk.clone()), memory);
        for given in &given {
            match given {
                Given::Account(path, account, slots) => {
                    loader
                        .account(*path, account, slots.iter().copied())
                        .unwrap();
                }
                Given::Slots(path, slots) => {
                    loader.slots(*path, slots.iter().copied()).unwrap();
                }
            }
        }
        assert_eq!(!spilled(&disk).is_empty(), memory == LITTLE);
        assert_eq!(loader.finish(&mut |_| {}).unwrap(), model.root());
        assert_eq!(disk.files(), [""; 0]);
    }
}

#[test]
fn what_rots_while_it_is_spilled_is_noticed() {
    let (_, given) = state(&mut Random::new(5), 500, 3000);
    let disk = FaultyDisk::new(5);
    let mut loader = Loader::new(Arc::new(disk.clone()), options(LITTLE)).unwrap();
    give(&mut loader, &given).unwrap();
    loader.code(keccak256([1]), &[1]).unwrap();
    let file = spilled(&disk).pop().expect("a spilled file");
    disk.flip_bit(&file, 5000, 3);
    let error = loader
        .finish(&mut |_| {})
        .err()
        .expect("an error")
        .to_string();
    assert!(
        error.contains(&file) && error.contains("load again"),
        "{error}"
    );
}

#[test]
fn what_a_cut_root_loader_spilled_is_removed_by_the_next_opening() {
    let disk = FaultyDisk::new(6);
    let (_, given) = state(&mut Random::new(6), 30, 0);
    drop(create(load(&disk, LITTLE, &given).unwrap()).unwrap());
    disk.create("load-7.tmp").unwrap();
    disk.create("load-of-mine.txt").unwrap();
    drop(Db::open(Arc::new(disk.clone()), options(LITTLE)).unwrap());
    assert_eq!(spilled(&disk), ["load-of-mine.txt"]);
}

#[test]
fn files_of_others_are_left_alone() {
    let disk = FaultyDisk::new(7);
    let others = ["log/system.log", "log/1.log", "segments/a.seg", "notes"];
    for (dir, file) in [("log", 0), ("log", 1), ("segments", 2), ("", 3)] {
        disk.create_dir(dir).unwrap();
        disk.create(others[file]).unwrap();
    }
    drop(Loader::new(Arc::new(disk.clone()), options(LITTLE)).unwrap());
    assert!(others.iter().all(|name| disk.exists(name).unwrap()));
}

#[test]
fn a_database_that_lost_its_checkpoints_is_not_taken_for_an_unfinished_one() {
    let disk = FaultyDisk::new(8);
    let (_, given) = state(&mut Random::new(8), 30, 0);
    let db = create(load(&disk, LITTLE, &given).unwrap()).unwrap();
    let genesis = db.genesis();
    let session = db.view().unwrap().session();
    let staged = session.finish(Changes::default(), vec![]).unwrap();
    let block = meta(1, genesis.hash, staged.root());
    staged.seal(block).unwrap().commit().unwrap();
    db.flush(0).unwrap();
    drop(db);
    let checkpoints = |disk: &FaultyDisk| {
        let files = disk.files().into_iter();
        let own = files.filter(|name| name.starts_with("checkpoint-"));
        own.collect::<Vec<_>>()
    };
    for name in checkpoints(&disk) {
        disk.remove(&name).unwrap();
    }
    let files = disk.files();
    let told = |error: StateError| {
        assert!(
            matches!(error, StateError::CheckpointsLost { .. }),
            "{error}"
        );
        let told = error.to_string();
        assert!(told.contains("checkpoint-*") && told.contains("remove the directory"));
    };
    told(
        Db::open(Arc::new(disk.clone()), options(LITTLE))
            .err()
            .unwrap(),
    );
    told(
        Loader::new(Arc::new(disk.clone()), options(LITTLE))
            .err()
            .unwrap(),
    );
    assert_eq!(disk.files(), files, "nothing is removed");
    // Damage within the log does not make it an unfinished one either.
    disk.flip_bit("log/00000001.log", 40, 1);
    told(
        Loader::new(Arc::new(disk.clone()), options(LITTLE))
            .err()
            .unwrap(),
    );

    // With no block but the first it may have been cut short: it is made again.
    let disk = FaultyDisk::new(9);
    drop(create(load(&disk, LITTLE, &given).unwrap()).unwrap());
    for name in checkpoints(&disk) {
        disk.remove(&name).unwrap();
    }
    let opened = Db::open(Arc::new(disk.clone()), options(LITTLE));
    assert!(matches!(opened.err(), Some(StateError::Unfinished)));
    create(load(&disk, LITTLE, &given).unwrap()).unwrap();
}
