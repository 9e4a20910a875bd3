//! Promises about memory, sessions, merges and threads, each of which was once broken.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Fault, FaultyDisk, Loader, Options, Sealed, StateError, View};
use cambium_store::lock_data_dir;
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{self, account, change, first_block, make, path, put, remove, tiny_options},
    say,
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const ACCOUNTS: u64 = 300;

fn database_with(options: Options) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(7);
    let db = make(Arc::new(disk.clone()), options, ACCOUNTS, |index| index % 5);
    (db, disk)
}

fn seal(view: View, name: &str, changes: Changes) -> Result<Sealed, StateError> {
    plain::seal(view, name, changes, vec![])
}

/// Bytes of this process in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// "opening again takes a short replay", "all within one memory budget": of blocks without
/// changes.
#[test]
fn blocks_without_changes_are_merged_too() {
    let (db, disk) = database_with(tiny_options());
    let mut sealed = Vec::new();
    let mut view = db.view().unwrap();
    const BLOCKS: u64 = 6_000;
    for number in 1..=BLOCKS {
        let one = seal(view, &format!("a{number}"), Changes::default()).unwrap();
        view = one.view().unwrap();
        sealed.push(one);
        if number % 500 == 0 {
            db.commit_all(std::mem::take(&mut sealed)).unwrap();
        }
    }
    drop(view);
    let stats = db.stats().unwrap();
    say(&format!(
        "{} layers, {} bytes counted, snapshot at {}, {} MiB resident",
        stats.layers,
        stats.overlay_bytes + stats.delta_bytes,
        stats.snapshot.number,
        resident() >> 20
    ));
    drop(db);
    while lock_data_dir(&disk).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    let (_db, recovery) = Db::open(Arc::new(disk), tiny_options()).unwrap();
    say(&format!(
        "{} replayed in {:?}",
        recovery.replayed_blocks,
        start.elapsed()
    ));
    assert!(
        recovery.replayed_blocks < BLOCKS as usize,
        "all blocks ever are replayed"
    );
}

/// `NoRoom`: "commit some of them, or give the database more memory".
#[test]
fn no_room_passes_once_blocks_are_committed_or_dropped() {
    let options = Options {
        memory_bytes: 0,
        ..tiny_options()
    };
    let (db, _disk) = database_with(options);
    for drops in [false, true] {
        let mut view = db.view().unwrap();
        let mut sealed = Vec::new();
        let error = loop {
            let slots = (0..200)
                .map(|at| (path(1000 + at), U256::from(at + 1)))
                .collect();
            let changes = AccountDiff {
                slots,
                ..put(path(sealed.len() as u64), 1)
            };
            let name = format!("{drops} {}", sealed.len());
            match seal(view.clone(), &name, Changes::new(vec![changes])) {
                Ok(one) => {
                    view = one.view().unwrap();
                    sealed.push(one);
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(error, StateError::NoRoom { .. }), "{error}");
        say(&format!("{} blocks: {error}", sealed.len()));
        drop(view);
        match drops {
            true => drop(sealed),
            false => db.commit_all(sealed).unwrap(),
        }
        let next = seal(
            db.view().unwrap(),
            &format!("next {drops}"),
            Changes::default(),
        );
        next.unwrap().commit().unwrap();
    }
    assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
}

/// "After a failed write or sync a running engine takes no more blocks"; a read
/// that fails once is neither, and ":39 A page that can't be read stops nothing but what needs it".
#[test]
fn a_read_that_fails_once_in_a_merge_does_not_stop_the_engine() {
    let mut stopped = Vec::new();
    for what in ["segments/", "checkpoint-", "blocks.idx", "log/"] {
        for fault in [Fault::FailedRead, Fault::FailedOpen] {
            for after in 0..4 {
                let options = Options {
                    index_bytes_max: (after % 2 == 1).then_some(0),
                    ..tiny_options()
                };
                let (db, disk) = database_with(options);
                let mut random = Random::new(after);
                for number in 1..=10 {
                    let index = random.below(ACCOUNTS / 2) * 2;
                    let changes = vec![put(path(index), number), put(path(index + 1), number)];
                    seal(
                        db.view().unwrap(),
                        &format!("a{number}"),
                        Changes::new(changes),
                    )
                    .unwrap()
                    .commit()
                    .unwrap();
                    if number % 3 == 0 {
                        db.flush(0).unwrap();
                    }
                }
                drop(db);
                while lock_data_dir(&disk).is_err() {
                    thread::sleep(Duration::from_millis(1));
                }
                // The caches are empty.
                let (db, _) = Db::open(Arc::new(disk.clone()), options).unwrap();
                disk.inject(fault, what, 1 + (after / 2) as u32);
                let flushed = db.flush(0);
                let hits = disk.take_hits();
                disk.clear_faults();
                if hits.is_empty() {
                    continue;
                }
                let next = seal(db.view().unwrap(), "next", Changes::default())
                    .and_then(|sealed| sealed.commit());
                if let Err(error) = next {
                    stopped.push(format!("{fault:?} of {what}: {flushed:?}: {error}"));
                }
            }
        }
    }
    for one in &stopped {
        say(one);
    }
    assert!(stopped.is_empty(), "{} stopped the engine", stopped.len());
}

type Slots = BTreeMap<B256, U256>;

/// Random changes that lead on from a state of four accounts.
fn step(random: &mut Random, state: &mut BTreeMap<u64, (u64, Slots)>) -> Changes {
    let mut changes = Vec::new();
    for index in 1000..1004 {
        if random.below(2) == 0 {
            continue;
        }
        let is_there = state.contains_key(&index);
        match random.below(4) {
            0 if is_there => {
                state.remove(&index);
                changes.push(remove(path(index)));
            }
            kind => {
                let wipe = kind == 1;
                let (nonce, slots) = state.entry(index).or_default();
                *nonce = random.below(5) + 1;
                if wipe {
                    slots.clear();
                }
                let mut set = BTreeMap::new();
                for _ in 0..random.below(4) {
                    set.insert(path(random.below(5)), U256::from(random.below(3)));
                }
                for (slot, value) in &set {
                    match value.is_zero() {
                        true => _ = slots.remove(slot),
                        false => _ = slots.insert(*slot, *value),
                    }
                }
                changes.push(AccountDiff {
                    wipe,
                    slots: set.into_iter().collect(),
                    ..put(path(index), *nonce)
                });
            }
        }
    }
    Changes::new(changes)
}

/// Net changes from one state to the other, as an executor makes them, without unchanged values.
fn net(from: &BTreeMap<u64, (u64, Slots)>, to: &BTreeMap<u64, (u64, Slots)>) -> Changes {
    let mut changes = Vec::new();
    for index in 1000..1004 {
        match (from.get(&index), to.get(&index)) {
            (Some(_), None) => changes.push(remove(path(index))),
            (old, Some((nonce, slots))) => {
                let old_slots = old.map(|(_, slots)| slots.clone()).unwrap_or_default();
                let mut set: Slots = slots
                    .iter()
                    .filter(|(slot, value)| old_slots.get(*slot) != Some(value))
                    .map(|(slot, value)| (*slot, *value))
                    .collect();
                for slot in old_slots.keys() {
                    if !slots.contains_key(slot) {
                        set.insert(*slot, U256::ZERO);
                    }
                }
                if old.is_none_or(|(old, _)| old != nonce) || !set.is_empty() {
                    changes.push(AccountDiff {
                        slots: set.into_iter().collect(),
                        ..put(path(index), *nonce)
                    });
                }
            }
            (None, None) => {}
        }
    }
    Changes::new(changes)
}

/// `intermediate_root`, of several sessions at once, some of which are dropped. One that could not
/// read is asked again.
#[test]
fn intermediate_roots_of_several_sessions() {
    let mut asked_again = 0;
    for seed in cambium_seeds::seeds!(0..60) {
        let (db, disk) = database_with(tiny_options());
        let mut random = Random::new(seed);
        let mut state = BTreeMap::new();
        let mut roots = vec![db.view().unwrap().state_root()];
        for number in 1..=10u64 {
            let mut sessions: Vec<_> = (0..3)
                .map(|_| (db.view().unwrap().session(), state.clone()))
                .collect();
            for _ in 0..6 {
                let at = random.below(sessions.len() as u64) as usize;
                let (session, after) = &mut sessions[at];
                let changes = step(&mut random, after);
                if random.below(2) == 0 {
                    disk.inject(Fault::FailedRead, "segments/", 1);
                }
                let root = session.intermediate_root(&changes);
                disk.clear_faults();
                let root = root.unwrap_or_else(|_| {
                    asked_again += 1;
                    session.intermediate_root(&changes).unwrap()
                });
                let plain = db.view().unwrap().session();
                if random.below(2) == 0 {
                    let expected = plain.finish(net(&state, after), vec![]).unwrap();
                    assert_eq!(root, expected.root(), "seed {seed}, block {number}");
                }
                if random.below(6) == 0 {
                    sessions[at] = (db.view().unwrap().session(), state.clone());
                }
                if random.below(6) == 0 {
                    db.flush(random.below(3) as usize).unwrap();
                }
            }
            let (session, after) = sessions.remove(random.below(3) as usize);
            let changes = net(&state, &after);
            let parent = session.view().block();
            let staged = session.finish(changes.clone(), vec![]).unwrap();
            let plain = db
                .view()
                .unwrap()
                .session()
                .finish(changes, vec![])
                .unwrap();
            assert_eq!(staged.root(), plain.root(), "seed {seed}, block {number}");
            drop(plain);
            let meta = BlockMeta {
                id: BlockId::new(number, keccak256(parent.hash)),
                parent: parent.hash,
                state_root: staged.root(),
                body: Bytes::new(),
            };
            roots.push(staged.root());
            staged.seal(meta).unwrap().commit().unwrap();
            state = after;
            if random.below(3) == 0 {
                db.flush(0).unwrap();
            }
        }
        // All the way back, by the reverts.
        for number in (0..10u64).rev() {
            db.unwind(number).unwrap();
            let staged = db
                .view()
                .unwrap()
                .session()
                .finish(Changes::default(), vec![]);
            assert_eq!(
                staged.unwrap().root(),
                roots[number as usize],
                "seed {seed}"
            );
            if random.below(3) == 0 {
                db.flush(0).unwrap();
            }
        }
    }
    say(&format!(
        "{asked_again} intermediate roots were asked for again"
    ));
    assert!(asked_again > 20, "{asked_again}");
}

/// Slots of an account that is not there, by what a block has done before.
#[test]
fn a_caller_that_gives_wrong_changes_is_told_or_leaves_no_trace() {
    let (db, _disk) = database_with(tiny_options());
    let root = db.view().unwrap().state_root();
    // A wipe of slots, and slots again, of an account that is not there; and zeros.
    for slots in [
        vec![],
        vec![(path(1), U256::ZERO)],
        vec![(path(1), U256::from(1))],
    ] {
        for wipe in [false, true] {
            let changes = AccountDiff {
                wipe,
                slots: slots.clone(),
                ..change(path(ACCOUNTS + 1), AccountUpdate::Keep)
            };
            let name = format!("{wipe} {slots:?}");
            match seal(db.view().unwrap(), &name, Changes::new(vec![changes])) {
                Ok(sealed) => {
                    let view = sealed.view().unwrap();
                    assert_eq!(view.state_root(), root, "{name}");
                    let there = view.slot(&path(ACCOUNTS + 1), &path(1)).unwrap();
                    assert_eq!(there, U256::ZERO, "{name}");
                }
                Err(error) => say(&format!("{name}: {error} (damage: {})", error.is_damage())),
            }
            let next = seal(db.view().unwrap(), "next", Changes::default()).unwrap();
            assert_eq!(next.view().unwrap().state_root(), root);
        }
    }
}

/// Commits, unwinds, merges, checks and reads, all at once.
#[test]
fn threads_that_do_everything_at_once() {
    let (db, disk) = database_with(Options {
        memory_bytes: 16 << 20,
        unfinalized_blocks: 8,
        ..tiny_options()
    });
    let stop = AtomicBool::new(false);
    let names = AtomicU64::new(0);
    // The nonce of account 1 after each block, by hash.
    let nonces = Mutex::new(HashMap::from([(db.genesis().hash, 0u64)]));
    let wrong = Mutex::new(Vec::<String>::new());
    thread::scope(|scope| {
        for thread in 0..2 {
            let (db, stop, names, nonces, wrong) = (&db, &stop, &names, &nonces, &wrong);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                while !stop.load(Ordering::Relaxed) {
                    let name = names.fetch_add(1, Ordering::Relaxed);
                    let mut changes = vec![put(path(1), name + 1)];
                    changes.extend((0..20).map(|at| put(path(20 + at), random.below(100))));
                    changes.sort_unstable_by_key(|change| change.path);
                    let view = db.view().unwrap();
                    let sealed = match seal(view, &name.to_string(), Changes::new(changes)) {
                        Ok(sealed) => sealed,
                        Err(StateError::UnknownBlock(_) | StateError::TooFar { .. }) => continue,
                        Err(error) => {
                            wrong.lock().unwrap().push(format!("seal: {error}"));
                            continue;
                        }
                    };
                    nonces.lock().unwrap().insert(sealed.id().hash, name + 1);
                    let done = match random.below(3) {
                        0 => sealed.commit_side_branch(),
                        1 => sealed.commit(),
                        _ => {
                            drop(sealed);
                            continue;
                        }
                    };
                    match done {
                        Ok(done) if random.below(4) == 0 => match db.set_head(done.id()) {
                            Ok(_) | Err(StateError::UnknownBlock(_)) => {}
                            Err(error) => wrong.lock().unwrap().push(format!("head: {error}")),
                        },
                        Ok(_)
                        | Err(StateError::UnknownBlock(_) | StateError::ParentNotCommitted(_)) => {}
                        Err(error) => wrong.lock().unwrap().push(format!("commit: {error}")),
                    }
                }
            });
        }
        let (db, stop, nonces, wrong) = (&db, &stop, &nonces, &wrong);
        scope.spawn(move || {
            let mut random = Random::new(77);
            while !stop.load(Ordering::Relaxed) {
                let head = db.head().number;
                match db.unwind(head.saturating_sub(random.below(6))) {
                    Ok(_) | Err(StateError::NoSuchBlock { .. } | StateError::UnknownBlock(_)) => {}
                    Err(error) => wrong.lock().unwrap().push(format!("unwind: {error}")),
                }
                thread::sleep(Duration::from_millis(3));
            }
        });
        scope.spawn(move || {
            let mut random = Random::new(78);
            while !stop.load(Ordering::Relaxed) {
                if let Err(error) = db.flush(random.below(3) as usize) {
                    wrong.lock().unwrap().push(format!("flush: {error}"));
                }
                db.stats().unwrap();
            }
        });
        scope.spawn(move || {
            let mut random = Random::new(79);
            while !stop.load(Ordering::Relaxed) {
                let head = db.head().number;
                let view = match db.view_at(head.saturating_sub(random.below(9))) {
                    Ok(view) => view,
                    Err(StateError::NoSuchBlock { .. } | StateError::UnknownBlock(_)) => continue,
                    Err(error) => {
                        wrong.lock().unwrap().push(format!("view: {error}"));
                        continue;
                    }
                };
                for _ in 0..3 {
                    let nonce = view.account(&path(1)).unwrap().unwrap().nonce;
                    let expected = nonces.lock().unwrap().get(&view.block().hash).copied();
                    if expected.is_some_and(|expected| expected != nonce) {
                        let block = view.block();
                        let what = format!("block {block}: {nonce} not {expected:?}");
                        wrong.lock().unwrap().push(what);
                    }
                }
                let trie = view.extract(&Default::default());
                match trie.map(|trie| trie.state_root()) {
                    Ok(root) if root == Some(view.state_root()) => {}
                    other => wrong.lock().unwrap().push(format!("proof: {other:?}")),
                }
            }
        });
        thread::sleep(Duration::from_secs(12));
        stop.store(true, Ordering::Relaxed);
    });
    let wrong = wrong.into_inner().unwrap();
    for one in wrong.iter().take(20) {
        say(one);
    }
    say(&format!("{} blocks", names.into_inner()));
    assert!(wrong.is_empty(), "{}", wrong.len());
    let report = db.check(&mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    let head = db.head();
    drop(db);
    while lock_data_dir(&disk).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    let (db, recovery) = Db::open(Arc::new(disk), tiny_options()).unwrap();
    assert_eq!(db.head(), head, "{:?}", recovery.notes);
}

/// "`properties` are kept with the database and given back by `Db::property`".
#[test]
fn properties_of_any_name_but_its_own_are_given_back() {
    let disk = FaultyDisk::new(3);
    let load = || {
        let loader = Loader::new(Arc::new(disk.clone()), tiny_options()).unwrap();
        loader.finish(&mut |_| {}).unwrap()
    };
    for name in ["genesis_number", "genesis_hash"] {
        let loaded = load();
        let meta = first_block(loaded.root());
        let refused = loaded.create(meta, vec![(name.to_owned(), vec![9; 8])]);
        assert!(matches!(refused.err(), Some(StateError::BadStart(_))));
    }
    let loaded = load();
    let meta = first_block(loaded.root());
    let properties = vec![
        ("twice".to_owned(), vec![1]),
        ("n".repeat(300), vec![2; 70_000]),
        (String::new(), vec![]),
    ];
    let db = loaded.create(meta, properties).unwrap();
    let genesis = db.genesis();
    drop(db);
    let (db, _) = Db::open(Arc::new(disk.duplicate()), tiny_options()).unwrap();
    assert_eq!(db.genesis(), genesis);
    assert_eq!(db.property(&"n".repeat(300)).map(<[u8]>::len), Some(70_000));
}

/// A disk that is full while a state is loaded: it can be made again.
#[test]
fn a_load_onto_a_full_disk_can_be_made_again() {
    let disk = FaultyDisk::new(3);
    let load = || -> Result<Db, StateError> {
        let mut loader = Loader::new(Arc::new(disk.clone()), tiny_options())?;
        for index in 0..2000 {
            let slots = (0..20).map(|at| (path(at), U256::from(at + 1)));
            loader.account(path(index), &account(0), slots)?;
        }
        let loaded = loader.finish(&mut |_| {})?;
        let meta = first_block(loaded.root());
        loaded.create(meta, vec![])
    };
    for space in (0..16_000_000).step_by(800_000) {
        disk.limit_space(Some(space));
        match load() {
            Ok(db) => {
                say(&format!("{space} bytes are enough"));
                assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
                return;
            }
            Err(error) => assert!(!error.is_damage(), "{space}: {error}"),
        }
        disk.limit_space(None);
    }
    panic!("never enough");
}

/// "A page that can't be read stops nothing but what needs it: reads of its accounts
/// and slots are errors that name the file, merges leave it where it is", of pages that the device
/// can't give.
#[test]
fn a_page_that_the_device_cannot_give_stops_nothing_but_what_needs_it() {
    let (db, disk) = database_with(tiny_options());
    drop(db);
    while lock_data_dir(&disk).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    for name in disk.files() {
        if name.starts_with("segments/") {
            let len = disk.contents(&name).unwrap().len() as u64;
            disk.spoil(&name, len / 2, 4096);
        }
    }
    let (db, _) = Db::open(Arc::new(disk.clone()), tiny_options()).unwrap();
    let view = db.view().unwrap();
    let good: Vec<_> = (0..ACCOUNTS)
        .filter(|index| view.account(&path(*index)).is_ok())
        .collect();
    drop(view);
    assert!((good.len() as u64) < ACCOUNTS && good.len() as u64 > ACCOUNTS / 2);
    for round in 0..30 {
        let changes = good
            .iter()
            .step_by(3)
            .map(|index| put(path(*index), round + 1));
        let changes = Changes::new(changes.collect());
        let sealed = seal(db.view().unwrap(), &format!("a{round}"), changes).unwrap();
        sealed.commit().unwrap();
        db.flush(0)
            .unwrap_or_else(|error| panic!("merge {round}: {error}"));
    }
}

/// With room for all blocks in memory.
fn roomy() -> Options {
    Options {
        memory_bytes: 1 << 30,
        files: TINY_FILES,
        ..Options::default()
    }
}

fn opening(blocks: u64) -> Duration {
    let disk = FaultyDisk::new(7);
    let mut loader = Loader::new(Arc::new(disk.clone()), roomy()).unwrap();
    for index in 0..300 {
        let slots = [(path(index), U256::from(1))];
        loader.account(path(index), &account(0), slots).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    let db = loaded.create(meta, vec![]).unwrap();
    let mut view = db.view().unwrap();
    let mut sealed = Vec::new();
    let start = Instant::now();
    for number in 1..=blocks {
        let parent = view.block();
        let changes = Changes::new(vec![put(path(number % 300), number)]);
        let staged = view.session().finish(changes, vec![]).unwrap();
        let meta = BlockMeta {
            id: BlockId::new(number, keccak256(parent.hash)),
            parent: parent.hash,
            state_root: staged.root(),
            body: Bytes::new(),
        };
        let one = staged.seal(meta).unwrap();
        view = one.view().unwrap();
        sealed.push(one);
        if number % 250 == 0 {
            db.commit_all(std::mem::take(&mut sealed)).unwrap();
        }
    }
    let made = start.elapsed();
    drop((view, db));
    while lock_data_dir(&disk).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    let (db, recovery) = Db::open(Arc::new(disk), roomy()).unwrap();
    let taken = start.elapsed();
    say(&format!(
        "{blocks} blocks made in {made:?}, {} replayed in {taken:?}",
        recovery.replayed_blocks
    ));
    assert_eq!(db.head().number, blocks);
    taken
}

#[test]
fn opening_takes_time_in_proportion_to_what_is_replayed() {
    let few = opening(500).max(Duration::from_millis(20));
    let many = opening(4000);
    // Eight times as many.
    assert!(many < few * 24, "{few:?} for 500 blocks, {many:?} for 4000");
}
