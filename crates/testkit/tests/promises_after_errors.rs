//! Promises about what comes after an error: of the disk, once, or of the caller. And about moves of
//! the head beside merges that others begin.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{Db, Disk, Fault, FaultyDisk, Loader, Options, Sealed, StateError, View};
use cambium_store::lock_data_dir;
use cambium_testkit::{
    TINY_FILES,
    plain::{self, change, commit, make, path, put, remove},
};
use cambium_trie::ProofTargets;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

const OPTIONS: Options = Options {
    memory_bytes: 64 << 20,
    commitment: cambium_trie::Commitment::Mpt,
    leaves: cambium_state::LeafKind::Accounts,
    merge_interval_blocks: None,
    unfinalized_blocks: 3,
    index_bytes_max: None,
    reader_lag: 16,
    room_wait: Duration::from_secs(10),
    keep_blocks: None,
    files: TINY_FILES,
};

/// So little that an unwind of a hundred blocks goes in steps.
const STEPS: Options = Options {
    memory_bytes: 16 << 20,
    ..OPTIONS
};

fn database(options: Options) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(7);
    (make(Arc::new(disk.clone()), options, 500, |_| 0), disk)
}

fn seal(view: View, name: &str, changes: Vec<AccountDiff>) -> Result<Sealed, StateError> {
    plain::seal(view, name, Changes::new(changes), vec![])
}

/// An account with many slots.
fn large(number: u64) -> AccountDiff {
    let slots = (0..400).map(|at| (path(at), U256::from(number * 1000 + at)));
    AccountDiff {
        slots: slots.collect(),
        ..put(path(number % 20), number)
    }
}

/// Slots of an account that is not there.
fn slots_of_nobody(index: u64) -> AccountDiff {
    AccountDiff {
        slots: vec![(path(1), U256::from(77))],
        ..change(path(index), AccountUpdate::Keep)
    }
}

fn close(db: Db, disk: &FaultyDisk) {
    drop(db);
    while lock_data_dir(disk).is_err() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Flushes until stopped, or until the engine has stopped.
fn flush_beside(db: &Db) -> impl FnOnce() {
    let stop = Arc::new(AtomicBool::new(false));
    let (other, told) = (db.clone(), stop.clone());
    let flushes =
        thread::spawn(move || while !told.load(Ordering::Relaxed) && other.flush(0).is_ok() {});
    move || {
        stop.store(true, Ordering::Relaxed);
        flushes.join().unwrap();
    }
}

#[test]
fn an_unwind_in_steps_is_durable_when_it_returns_whoever_merges_besides() {
    let (db, disk) = database(STEPS);
    for number in 1..=140 {
        commit(&db, vec![large(number)], vec![]);
    }
    db.flush(0).unwrap();
    close(db, &disk);
    for round in 0..6 {
        let disk = disk.duplicate();
        let (db, _) = Db::open(Arc::new(disk.clone()), STEPS).unwrap();
        let stop = flush_beside(&db);
        let head = db.unwind(1).unwrap();
        // As power would leave it, if all that was written stayed.
        let after = disk.duplicate();
        stop();
        drop(db);
        let (db, _) = Db::open(Arc::new(after), STEPS).unwrap();
        assert_eq!(db.head(), head, "round {round}");
    }
}

#[test]
fn the_head_goes_in_steps_below_what_was_safe_and_finalized_whatever_happens_on_the_way() {
    let (db, disk) = database(STEPS);
    let mut blocks = vec![db.head()];
    for number in 1..=140 {
        commit(&db, vec![large(number)], vec![]);
        blocks.push(db.head());
    }
    db.flush(0).unwrap();
    close(db, &disk);
    // Which of them are safe and finalized, and where the head goes.
    let cases = [
        (Some(140), Some(140), 1),
        (Some(140), None, 1),
        (Some(140), Some(120), 40),
        (Some(130), Some(30), 40),
        (Some(30), Some(30), 30),
    ];
    let (mut cuts, mut opened_below) = (0, 0);
    for (safe, finalized, to) in cases {
        let block = |number: Option<usize>| number.map(|number| blocks[number]);
        let case = format!("{safe:?}, {finalized:?}, to {to}");
        let stays = |number: Option<usize>| block(number.filter(|number| *number <= to));
        let (mut operations, mut cut) = (0, None);
        loop {
            let from = disk.duplicate();
            let (db, _) = Db::open(Arc::new(from.clone()), STEPS).unwrap();
            db.set_canonical(db.head(), block(safe), block(finalized))
                .unwrap();
            let before = from.operations();
            if let Some(cut) = cut {
                from.lose_power_after(cut);
            }
            let moved = db.unwind(to as u64);
            if cut.is_none() {
                assert_eq!(moved.unwrap(), blocks[to], "{case}");
                assert!(from.operations() > before + 40, "{case}: not in steps");
                operations = from.operations() - before;
                let now = db.finality();
                assert_eq!(now.finalized, stays(finalized), "{case}");
                assert_eq!(now.safe, stays(safe).or(stays(finalized)), "{case}");
                db.flush(0).unwrap();
            }
            drop(db);
            let left = match cut {
                None => from,
                Some(_) => from.crash(),
            };
            plain::wait_until_closed(&left);
            let opened = Db::open(Arc::new(left.clone()), STEPS);
            let (db, _) = opened.unwrap_or_else(|error| panic!("{case}, {cut:?}: {error}"));
            let head = db.head();
            let is_there = head == blocks[to] || cut.is_some() && head == blocks[140];
            assert!(is_there, "{case}, {cut:?}: {head}");
            if head == blocks[to] {
                opened_below += 1;
                assert_eq!(db.finality().finalized, stays(finalized), "{case}, {cut:?}");
            } else {
                assert_eq!(db.finality().finalized, block(finalized), "{case}, {cut:?}");
            }
            assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
            // It goes on from there.
            let next = seal(db.view().unwrap(), "another", vec![large(7)]).unwrap();
            next.commit().unwrap();
            close(db, &left);
            let next = cut.map_or(0, |cut| cut + operations.div_ceil(9));
            if next >= operations {
                break;
            }
            cut = Some(next);
            cuts += 1;
        }
    }
    assert!(cuts >= 40 && opened_below > 30, "{cuts}, {opened_below}");
}

/// `set_head` may undo a finalized block. The head can go back to a block below a merge that was done while another
/// branch was finalized, and a replay, which begins before that merge, has to find it as well.
#[test]
fn a_head_that_went_back_below_a_finalized_block_beside_a_merge_is_there_after_a_crash() {
    let (mut during, mut readers) = (0, 0);
    for seed in cambium_seeds::seeds!(0..60) {
        let disk = FaultyDisk::new(seed);
        let options = plain::tiny_options();
        let db = make(Arc::new(disk.clone()), options, 3000, |_| 0);
        let mut made = 0u64;
        let mut block = |on: BlockId| {
            made += 1;
            let mut changes: Vec<_> = (0..200)
                .map(|at| put(path((at * 7 + made) % 3000), made))
                .collect();
            changes.sort_by_key(|change| change.path);
            changes.dedup_by_key(|change| change.path);
            seal(db.view_of(on).unwrap(), &format!("block {made}"), changes).unwrap()
        };
        let genesis = db.head();
        let mut chain = vec![genesis];
        for _ in 0..6 {
            let sealed = block(*chain.last().unwrap());
            chain.push(sealed.id());
            sealed.commit().unwrap();
        }
        let below = block(chain[1]).commit_side_branch().unwrap().id();
        let above = block(below).commit_side_branch().unwrap().id();
        // A reader that follows sees each move by itself.
        let (mut reader, _) = Db::open_read_only(Arc::new(disk.clone()), options).unwrap();
        let after = thread::scope(|scope| {
            let merge = scope.spawn(|| db.flush(0));
            while db.settled_block() == genesis && !merge.is_finished() {
                thread::yield_now();
            }
            db.set_canonical(above, None, Some(below)).unwrap();
            let is_merging = !merge.is_finished();
            if seed % 2 == 0 {
                _ = reader.catch_up();
            }
            // It may be gone by now, which is said then.
            if db.set_head(chain[5]).is_err() {
                return None;
            }
            during += u64::from(is_merging);
            for _ in 0..3 {
                block(db.head()).commit().unwrap();
            }
            readers += u64::from(reader.catch_up().is_ok());
            assert_eq!(reader.head(), db.head(), "seed {seed}: a reader");
            Some(disk.crash())
        });
        let (head, finality) = (db.head(), db.finality());
        drop(db);
        let Some(after) = after else { continue };
        let (db, recovery) = Db::open(Arc::new(after), options).unwrap();
        assert_eq!(db.head(), head, "seed {seed}: {recovery:?}");
        assert_eq!(db.finality(), finality, "seed {seed}");
    }
    assert!(during > 5 && readers > 5, "{during}, {readers}");
}

#[test]
fn unwinds_at_once_end_at_the_lowest() {
    let (db, _disk) = database(OPTIONS);
    for number in 1..=20 {
        commit(&db, vec![put(path(number), number)], vec![]);
    }
    let head = db.head();
    for round in 0..400 {
        thread::scope(|scope| {
            scope.spawn(|| db.unwind(5).unwrap());
            // If it runs second, the block does not exist.
            scope.spawn(|| db.unwind(12).map(drop).unwrap_or_default());
        });
        assert_eq!(db.head().number, 5, "round {round}");
        db.set_head(head).unwrap();
    }
}

#[test]
fn of_siblings_that_are_committed_at_once_none_but_the_last_becomes_the_head() {
    let (mut before, mut last) = (0, 0);
    for seed in cambium_seeds::seeds!(0..120) {
        let disk = FaultyDisk::new(seed);
        let db = make(Arc::new(disk.clone()), OPTIONS, 50, |_| 0);
        for number in 1..=5 {
            commit(&db, vec![put(path(number), number)], vec![]);
        }
        let old = db.head();
        let sealed = |name: &str| seal(db.view().unwrap(), name, vec![put(path(7), 7)]).unwrap();
        let (aside, below) = (sealed("aside"), sealed("below"));
        let above = seal(below.view().unwrap(), "above", vec![put(path(7), 8)]).unwrap();
        let ids = [below.id(), above.id()];
        disk.lose_power_after(seed % 4);
        let done = db.commit_all(vec![aside, below, above]);
        drop(db);
        let (db, _) = Db::open(Arc::new(disk.crash()), OPTIONS).unwrap();
        let head = db.head();
        assert!(head == old || ids.contains(&head), "seed {seed}: {head}");
        assert!(done.is_err() || head == ids[1], "seed {seed}");
        before += u64::from(head == old);
        last += u64::from(head == ids[1]);
    }
    assert!(before > 20 && last > 5, "{before}, {last}");
}

#[test]
fn the_head_goes_to_a_long_branch_whoever_merges_besides() {
    let options = Options {
        unfinalized_blocks: 200,
        ..STEPS
    };
    let (db, disk) = database(options);
    let mut side = BlockId::default();
    for number in 1..=140u64 {
        let changes = vec![put(path(number % 20), 7000 + number)];
        let sealed = seal(db.view().unwrap(), &format!("side {number}"), changes).unwrap();
        side = sealed.id();
        sealed.commit().unwrap();
    }
    db.unwind(1).unwrap();
    for number in 2..=140 {
        commit(&db, vec![large(number)], vec![]);
    }
    db.flush(0).unwrap();
    close(db, &disk);
    for round in 0..4 {
        let disk = disk.duplicate();
        let (db, _) = Db::open(Arc::new(disk.clone()), options).unwrap();
        let stop = flush_beside(&db);
        let moved = db.set_head(side);
        let after = disk.duplicate();
        stop();
        assert_eq!(moved.unwrap(), side, "round {round}");
        db.flush(usize::MAX).unwrap();
        drop(db);
        let (db, _) = Db::open(Arc::new(after), options).unwrap();
        assert_eq!(db.head(), side, "round {round}");
    }
    // A merge that a commit has begun may be at work on the old branch.
    for round in 0..4 {
        let disk = disk.duplicate();
        let (db, _) = Db::open(Arc::new(disk.clone()), options).unwrap();
        let (mut blocks, mut view) = (Vec::new(), db.view().unwrap());
        for number in 1..=24 {
            let sealed = seal(
                view,
                &format!("round {round}, {number}"),
                vec![large(number)],
            );
            blocks.push(sealed.unwrap());
            view = blocks[blocks.len() - 1].view().unwrap();
        }
        drop(view);
        db.commit_all(blocks).unwrap();
        let before = db.head();
        let moved = db.set_head(side);
        let after = disk.duplicate();
        db.flush(usize::MAX).unwrap();
        let expected = match moved {
            Ok(moved) => moved,
            // The merge was through with it before.
            Err(StateError::UnknownBlock(_)) => before,
            Err(error) => panic!("round {round}: {error}"),
        };
        drop(db);
        let (db, _) = Db::open(Arc::new(after), options).unwrap();
        assert_eq!(db.head(), expected, "round {round}");
    }
}

#[test]
fn a_read_that_fails_once_stops_no_unwind_in_steps() {
    let (db, disk) = database(STEPS);
    for number in 1..=140 {
        commit(&db, vec![large(number)], vec![]);
    }
    db.flush(0).unwrap();
    close(db, &disk);
    let mut hits = 0;
    for at in 0..4 {
        let disk = disk.duplicate();
        let (db, _) = Db::open(Arc::new(disk.clone()), STEPS).unwrap();
        // Once it is on its way down.
        let breaker = {
            let (db, disk) = (db.clone(), disk.clone());
            let merges = db.counters().merges + at;
            thread::spawn(move || {
                for _ in 0..2000 {
                    if db.counters().merges > merges {
                        return disk.inject(Fault::FailedRead, "log/", 1);
                    }
                    thread::sleep(Duration::from_micros(500));
                }
            })
        };
        let unwound = db.unwind(1);
        breaker.join().unwrap();
        hits += disk.take_hits().len();
        disk.clear_faults();
        assert_eq!(unwound.unwrap().number, 1);
        let next = seal(db.view().unwrap(), "next", vec![put(path(9), 10)]);
        next.unwrap().commit().unwrap();
    }
    assert!(hits > 0);
}

#[test]
fn a_read_that_fails_once_makes_no_init_take_blocks_for_nothing() {
    let (db, disk) = database(OPTIONS);
    for number in 1..=10 {
        commit(&db, vec![put(path(number), number)], vec![]);
    }
    close(db, &disk);
    let lost = |name: &String| name.starts_with("checkpoint-");
    for name in disk.files().into_iter().filter(lost) {
        disk.remove(&name).unwrap();
    }
    let log = disk.contents("log/00000001.log");
    for at in 0..200 {
        let disk = disk.duplicate();
        disk.fail_call_after(at);
        let made = Loader::new(Arc::new(disk.clone()), OPTIONS).map(drop);
        assert!(made.is_err(), "call {at}");
        assert_eq!(disk.contents("log/00000001.log"), log, "call {at}");
        disk.clear_faults();
        disk.fail_call_after(at);
        let error = Db::open(Arc::new(disk), OPTIONS).map(drop).unwrap_err();
        assert!(
            !matches!(error, StateError::Unfinished),
            "call {at}: {error}"
        );
    }
}

#[test]
fn slots_of_nobody_are_refused_after_intermediate_roots_as_well() {
    let (db, _disk) = database(OPTIONS);
    let is_refused = |result: Result<(), StateError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, StateError::BadChanges(_)), "{error}");
    };
    let bad = |index| Changes::new(vec![slots_of_nobody(index)]);
    let mut session = db.view().unwrap().session();
    let there = Changes::new(vec![put(path(9000), 1)]);
    session.intermediate_root(&there).unwrap();
    // Of what an earlier call has put there, slots may be set; not of what the block does not keep.
    session.intermediate_root(&bad(9000)).unwrap();
    is_refused(session.finish(bad(9000), vec![]).map(drop));

    for meddles in [false, true] {
        let mut session = db.view().unwrap().session();
        let gone = Changes::new(vec![remove(path(1))]);
        session.intermediate_root(&gone).unwrap();
        if meddles {
            let mut other = db.view().unwrap().session();
            other.intermediate_root(&there).unwrap();
        }
        is_refused(session.intermediate_root(&bad(1)).map(drop));
        // It goes on from where it was.
        let root = session.intermediate_root(&Changes::default()).unwrap();
        let plain = db.view().unwrap().session();
        assert_eq!(root, plain.finish(gone, vec![]).unwrap().root());
    }

    let keys = ProofTargets::new(vec![]);
    let view = db.view().unwrap();
    is_refused(view.extract_for_changes(&keys, &bad(9000)).map(drop));
    let session = view.session();
    is_refused(session.extract_for_changes(&keys, &bad(9000)).map(drop));
}

#[test]
fn a_view_of_a_dropped_block_is_that_of_no_other_of_its_name() {
    let (db, _disk) = database(OPTIONS);
    let with = |slots: &[(u64, u64)]| AccountDiff {
        slots: slots
            .iter()
            .map(|(slot, value)| (path(*slot), U256::from(*value)))
            .collect(),
        ..put(path(1), slots.len() as u64)
    };
    let one = seal(db.view().unwrap(), "pending", vec![with(&[(1, 1)])]).unwrap();
    let view = one.view().unwrap();
    let root = view.state_root();
    drop(one);
    let two = seal(db.view().unwrap(), "pending", vec![with(&[(1, 2), (5, 9)])]).unwrap();
    let (id, other_root) = (two.id(), two.view().unwrap().state_root());
    assert_ne!(root, other_root);

    // It stays what it was, and nothing is built on it.
    let keys = ProofTargets::new(vec![(path(1), vec![path(1)])]);
    assert_eq!(view.extract(&keys).unwrap().state_root(), Some(root));
    assert_eq!(view.account(&path(1)).unwrap().unwrap().nonce, 1);
    let is_unknown = |result: Result<(), StateError>| {
        let error = result.unwrap_err();
        assert!(matches!(error, StateError::UnknownBlock(_)), "{error}");
    };
    let mut session = view.clone().session();
    is_unknown(session.accounts(&[path(1)]).map(drop));
    is_unknown(session.storage(&[(path(1), path(1))]).map(drop));
    is_unknown(session.intermediate_root(&Changes::default()).map(drop));
    is_unknown(seal(view, "child", vec![remove(path(1))]).map(drop));

    two.commit().unwrap();
    commit(&db, vec![remove(path(1))], vec![]);
    db.flush(0).unwrap();
    db.unwind(1).unwrap();
    let view = db.view().unwrap();
    assert_eq!((view.block(), view.state_root()), (id, other_root));
    assert_eq!(view.slots(&path(1)).unwrap().len(), 2);
    assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
}

#[test]
fn a_read_that_fails_once_in_a_merge_takes_no_sealed_block_away() {
    for at in 0..40 {
        let (db, disk) = database(OPTIONS);
        for number in 1..=8 {
            commit(&db, vec![put(path(number), number)], vec![]);
            if number == 4 {
                db.flush(0).unwrap();
            }
        }
        let sealed = seal(db.view_at(1).unwrap(), "side", vec![put(path(9), 9)]).unwrap();
        let root = sealed.view().unwrap().state_root();
        disk.fail_call_after(at);
        let flushed = db.flush(0);
        disk.clear_faults();
        // Not every call that fails is a read.
        if flushed.is_ok() {
            assert_eq!(sealed.view().unwrap().state_root(), root, "call {at}");
            sealed.commit_side_branch().unwrap();
        }
    }
}

#[test]
fn a_read_of_the_block_index_that_fails_once_in_a_merge_stops_nothing() {
    let (db, disk) = database(OPTIONS);
    for number in 1..=6 {
        commit(&db, vec![put(path(number), number)], vec![]);
    }
    db.flush(0).unwrap();
    db.unwind(4).unwrap();
    let other = seal(db.view().unwrap(), "other", vec![put(path(9), 9)]);
    other.unwrap().commit().unwrap();
    disk.inject(Fault::FailedRead, "blocks.idx", 1);
    db.flush(0).unwrap();
    assert!(!disk.take_hits().is_empty());
    let next = seal(db.view().unwrap(), "next", vec![put(path(9), 10)]);
    next.unwrap().commit().unwrap();
    assert_eq!(db.head().hash, keccak256("next"));
    assert_ne!(db.head().hash, B256::ZERO);
}
