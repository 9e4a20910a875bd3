//! Threads on one database, with files so small that merges, cleaning, checkpoints and new log files
//! come hundreds of times, and with faults that come meanwhile.

use alloy_primitives::{Bytes, keccak256};
use cambium_primitives::{BlockId, Changes};
use cambium_state::{BlockMeta, Db, FaultyDisk, Loader, Options, StateError};
use cambium_testkit::{
    ConcurrentDriver, ConcurrentParams, RoundFaults, TINY_FILES, is_long,
    plain::{self, account, first_block, path, put},
    say,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Once,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const fn params(seed: u64, faults: RoundFaults) -> ConcurrentParams {
    ConcurrentParams {
        seed,
        accounts: 400,
        changes_max: 40,
        memory_bytes: 4 << 20,
        index_bytes_max: None,
        files: TINY_FILES,
        readers: 3,
        steps: 100,
        faults,
    }
}

/// Silences injected panics.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if panic.payload_as_str() != Some("a panic that was asked for") {
                loud(panic);
            }
        }));
    });
}

/// Returns what was done, and how often.
fn run(
    name: &str,
    seeds: u64,
    rounds: u64,
    params: ConcurrentParams,
) -> BTreeMap<&'static str, u64> {
    let mut done = BTreeMap::new();
    for seed in cambium_seeds::seeds!(0..seeds) {
        let mut driver = ConcurrentDriver::new(ConcurrentParams {
            seed: params.seed + seed,
            ..params
        });
        driver.run(rounds);
        for (name, count) in driver.done() {
            *done.entry(name).or_insert(0) += count;
        }
    }
    say(&format!(
        "{name}: {seeds} runs of {rounds} rounds: {done:?}"
    ));
    done
}

#[test]
fn readers_beside_blocks_branches_unwinds_and_merges_see_the_state_of_their_block() {
    let (seeds, rounds) = if is_long() { (4, 10) } else { (1, 1) };
    let done = run("threads", seeds, rounds, params(20_000, RoundFaults::None));
    assert!(done["merges"] > 30 * seeds * rounds && done["proofs"] > 0);
    assert!(!done.contains_key("reads that met a fault"));
}

#[test]
fn readers_beside_merges_see_the_state_of_their_block_with_an_index_on_disk() {
    let params = ConcurrentParams {
        index_bytes_max: Some(0),
        ..params(21_000, RoundFaults::None)
    };
    let (seeds, rounds) = if is_long() { (4, 10) } else { (1, 1) };
    run("threads, index on disk", seeds, rounds, params);
}

#[test]
fn reads_that_fail_are_errors_and_never_values_of_another_block() {
    let (seeds, rounds) = if is_long() { (4, 15) } else { (1, 2) };
    let done = run(
        "failed reads",
        seeds,
        rounds,
        params(22_000, RoundFaults::Reads),
    );
    assert!(done["reads that met a fault"] > 0);
}

#[test]
fn an_engine_that_stops_under_its_readers_opens_at_the_acknowledged_head() {
    let (seeds, rounds) = if is_long() { (6, 20) } else { (1, 3) };
    let done = run(
        "failures",
        seeds,
        rounds,
        params(23_000, RoundFaults::Failures),
    );
    assert!(done["stopped"] > 0);
}

#[test]
fn a_panic_in_an_update_or_a_merge_leaves_readers_and_the_disk_as_they_were() {
    quiet_panics();
    let (seeds, rounds) = if is_long() { (6, 30) } else { (1, 5) };
    let done = run("panics", seeds, rounds, params(24_000, RoundFaults::Panics));
    if is_long() {
        assert!(done["panics in an update"] > 0 && done["panics in a merge"] > 0);
    }
    assert!(done["rounds"] == seeds * rounds);
}

/// A block on `parent` whose account 0 has the nonce `name`.
fn sealed(db: &Db, parent: BlockId, name: u64) -> cambium_state::Sealed {
    let session = db.view_of(parent).unwrap().session();
    let changes = Changes::new(vec![put(path(0), name)]);
    let staged = session.finish(changes, vec![]).unwrap();
    let meta = BlockMeta {
        id: BlockId::new(parent.number + 1, keccak256(name.to_be_bytes())),
        parent: parent.hash,
        state_root: staged.root(),
        body: Bytes::new(),
    };
    staged.seal(meta).unwrap()
}

/// Two branches, of blocks 1 to 4 and of block 2', whose names are their nonces.
fn two_branches() -> (Db, Vec<(BlockId, u64)>, (BlockId, u64)) {
    let options = Options {
        memory_bytes: 16 << 20,
        files: TINY_FILES,
        ..Options::default()
    };
    let mut loader = Loader::new(Arc::new(FaultyDisk::new(1)), options).unwrap();
    loader.account(path(0), &account(0), []).unwrap();
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let first = first_block(loaded.root());
    let db = loaded.create(first.clone(), vec![]).unwrap();
    let mut main = vec![(first.id, 0)];
    for nonce in 1..=4 {
        let block = sealed(&db, main[main.len() - 1].0, nonce);
        main.push((block.id(), nonce));
        block.commit().unwrap();
    }
    let side = sealed(&db, main[1].0, 100);
    let aside = (side.id(), 100);
    side.commit_side_branch().unwrap();
    (db, main, aside)
}

#[test]
fn blocks_that_come_back_as_layers_or_become_ancestors_of_the_base_are_there_all_the_time() {
    let (db, main, aside) = two_branches();
    let asked: Vec<_> = main[1..].iter().copied().chain([aside]).collect();
    let is_over = AtomicBool::new(false);
    let turns = if is_long() { 3000 } else { 150 };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (db, asked, is_over) = (&db, &asked, &is_over);
                scope.spawn(move || {
                    for at in reader.. {
                        if is_over.load(Ordering::SeqCst) {
                            break;
                        }
                        let (id, nonce) = asked[at % asked.len()];
                        let view = db.view_of(id).unwrap();
                        assert_eq!(view.account(&path(0)).unwrap(), Some(account(nonce)));
                    }
                })
            })
            .collect();
        for _ in 0..turns {
            for (head, _) in [aside, main[4]] {
                db.set_head(head).unwrap();
                db.flush(0).unwrap();
            }
            if readers.iter().any(thread::ScopedJoinHandle::is_finished) {
                break;
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_check_beside_moves_of_the_head_finds_no_damage() {
    let (db, main, aside) = two_branches();
    let is_over = AtomicBool::new(false);
    let checks = if is_long() { 2000 } else { 60 };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                for (head, _) in [aside, main[4]] {
                    db.set_head(head).unwrap();
                }
            }
        });
        for _ in 0..checks {
            let damage = db.check(&mut |_| {}).unwrap().damage;
            is_over.fetch_or(!damage.is_empty(), Ordering::SeqCst);
            assert_eq!(damage, Vec::<String>::new());
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

/// The head moves between any two calls, so nothing of a view may come from an earlier look at it.
#[test]
fn a_view_by_number_is_of_that_number_while_the_head_moves() {
    const MOVES: u64 = 50_000;
    let disk = Arc::new(FaultyDisk::new(1));
    let db = plain::make(disk, plain::tiny_options(), 50, |_| 0);
    for number in 1..=3 {
        plain::commit(&db, vec![put(path(number), number)], Vec::new());
    }
    let top = db.head();
    let moves = AtomicU64::new(0);
    // Compared when the other thread has ended.
    let wrong = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..MOVES {
                db.unwind(2).unwrap();
                db.set_head(top).unwrap();
                moves.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (mut wrong, mut views) = (None, 0_u64);
        while wrong.is_none() && moves.load(Ordering::Relaxed) < MOVES {
            let number = db.head().number;
            views += 1;
            wrong = match db.view_at(number) {
                Ok(view) => (view.block().number != number).then_some((number, Ok(view.block()))),
                Err(StateError::NoSuchBlock { .. }) if number == top.number => None,
                Err(error) => Some((number, Err(error))),
            };
        }
        say(&format!("{views} views"));
        wrong
    });
    assert!(wrong.is_none(), "{wrong:?}");
}
