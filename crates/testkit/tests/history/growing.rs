//! A history grows above and below, is merged and pruned, and is read, all at once.

use super::world::*;
use cambium_history::{History, HistoryError, HistoryFollower, HistoryOptions, WholeNodes};
use cambium_primitives::BlockNumber;
use cambium_state::{Db, StateError};
use cambium_testkit::{Random, plain::path};
use cambium_trie::ProofTargets;
use std::{
    num::NonZeroU64,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

const KINDS: [Option<WholeNodes>; 2] = [None, Some(WholeNodes::ALL)];

/// Runs `work` in a thread; panics if it is not done in time.
fn in_time<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    let done = receiver.recv_timeout(Duration::from_secs(30));
    done.unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Goes on after a moment.
fn slowly<T>(millis: u64) -> impl FnMut(T) -> bool {
    move |_| {
        thread::sleep(Duration::from_millis(millis));
        true
    }
}

impl World {
    /// Compares all blocks that the history says it has, and opens it a second time.
    fn compare_all(&self) {
        let (first, upto) = self.history.blocks();
        (first.number..=upto.number).for_each(|number| self.compare(number));
        History::open_read_only(Arc::new(self.disk.clone()), &self.db, LITTLE).unwrap();
    }

    /// A history that begins at a block, in files.
    fn from_block(nodes: Option<WholeNodes>, first: BlockNumber, options: HistoryOptions) -> Self {
        let mut world = Self::with(nodes, first);
        (0..160).for_each(|_| world.block());
        let world = world.remade(first, nodes, options);
        world.catch_up();
        world.history.flush().unwrap();
        world
    }
}

#[test]
fn a_block_above_the_head_is_refused_while_the_head_is_below_the_history() {
    for nodes in KINDS {
        let world = World::from_block(nodes, 120, LITTLE);
        world.db.unwind(110).unwrap();
        let (history, db) = (world.history.clone(), world.db.clone());
        let error = in_time("a view", move || history.state_at(&db, 125).err().unwrap());
        let number = match error {
            HistoryError::State(StateError::NoSuchBlock { number, .. }) => number,
            other => panic!("{other}"),
        };
        assert_eq!(number, 125);
    }
}

#[test]
fn whoever_is_told_of_progress_may_ask_how_far_it_is() {
    for nodes in KINDS {
        for down in [false, true] {
            let mut world = World::with(nodes, 5);
            (0..40).for_each(|_| world.block());
            let world = world.remade(20, nodes, LITTLE);
            let (history, db) = (world.history.clone(), world.db.clone());
            in_time("progress", move || {
                let is_far = || history.durable().number + history.stats().files > 1_000;
                match down {
                    false => history.catch_up(&db, &mut |_| !is_far()).map(drop),
                    true => history.extend_down(&db, 0, &mut |_| !is_far()).map(drop),
                }
                .unwrap();
            });
        }
    }
}

#[test]
fn blocks_that_are_not_kept_are_not_added_below() {
    for nodes in KINDS {
        let options = HistoryOptions {
            keep_blocks: NonZeroU64::new(60),
            ..LITTLE
        };
        let world = World::from_block(nodes, 140, options);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    world.history.merge().unwrap();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let reached = world.history.extend_down(&world.db, 0, &mut slowly(2));
            assert_eq!(reached.unwrap().number, 100);
            is_over.store(true, Ordering::Relaxed);
        });
        world.compare_all();
    }
}

#[test]
fn a_history_that_is_pruned_while_it_grows_downwards_has_no_gap() {
    for nodes in KINDS {
        let options = HistoryOptions {
            keep_blocks: NonZeroU64::new(60),
            ..LITTLE
        };
        let mut world = World::from_block(nodes, 140, options);
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        let (history, db) = (world.history.clone(), world.db.clone());
        let down = thread::spawn(move || history.extend_down(&db, 0, &mut slowly(4)));
        let mut blocks = 0;
        while !down.is_finished() {
            // The blocks that are added below leave meanwhile.
            world.block();
            blocks += 1;
            thread::sleep(Duration::from_millis(2));
        }
        down.join().unwrap().unwrap();
        follower.finish().unwrap();
        world.history.merge().unwrap();
        assert!(blocks > 20, "{blocks}");
        world.compare_all();
    }
}

#[test]
fn two_threads_that_extend_a_history_add_each_block_once() {
    for nodes in KINDS {
        let world = World::from_block(nodes, 120, LITTLE);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let reached = world.history.extend_down(&world.db, 0, &mut slowly(1));
                    assert_eq!(reached.unwrap().number, 0);
                });
            }
        });
        world.compare_all();
    }
}

fn extend_to_the_bottom(history: &History, db: &Db) {
    loop {
        match history.extend_down(db, 0, &mut slowly(1)) {
            Ok(first) if first.number == 0 => return,
            Ok(_) => {}
            // The head has moved since.
            Err(HistoryError::State(StateError::UnknownBlock(_))) => {
                history.catch_up(db, &mut |_| true).unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_history_grows_downwards_while_the_head_moves() {
    for seed in cambium_seeds::seeds!(0..4) {
        for nodes in [None, Some(WholeNodes::default())] {
            let mut world = World::with(nodes, 50 + seed);
            world.crowd();
            (0..160).for_each(|_| world.block());
            let mut world = world.remade(150, nodes, LITTLE);
            world.catch_up();
            let (history, db) = (world.history.clone(), world.db.clone());
            let down = thread::spawn(move || extend_to_the_bottom(&history, &db));
            let mut moves = 0;
            while !down.is_finished() {
                let head = world.db.head().number;
                world.db.unwind(head - 3).unwrap();
                (0..4).for_each(|_| world.block());
                world.catch_up();
                moves += 1;
            }
            down.join().unwrap();
            assert!(moves > 3);
            world.catch_up();
            world.compare_all();
        }
    }
}

/// A span of blocks is read from the newest down, so that the blocks below may be others when they are read.
#[test]
fn a_chain_that_changes_below_while_it_is_followed_is_no_damage() {
    for moved_at in 1..=24 {
        let mut world = World::with(None, 700);
        (0..24).for_each(|_| world.block());
        let mut world = world.remade(0, Some(WholeNodes::default()), LITTLE);
        let (history, db) = (world.history.clone(), world.db.clone());
        let mut calls = 0;
        let followed = history.catch_up(&db, &mut |_| {
            calls += 1;
            if calls == moved_at {
                world.db.unwind(2).unwrap();
                (0..25).for_each(|_| world.block());
            }
            true
        });
        followed.unwrap_or_else(|error| panic!("moved before block {moved_at}: {error}"));
        assert!(calls >= moved_at);
        world.catch_up();
        world.compare_all();
    }
}

#[test]
fn readers_beside_a_follower_that_prunes_see_what_was() {
    let read = AtomicU64::new(0);
    for seed in cambium_seeds::seeds!(0..4) {
        let nodes = (seed % 2 > 0).then(WholeNodes::default);
        let options = HistoryOptions {
            keep_blocks: NonZeroU64::new(30),
            memory_bytes: 4 << 10,
            ..LITTLE
        };
        let mut world = World::with(nodes, 300 + seed).remade(0, nodes, options);
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        let models = Mutex::new(world.models.clone());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..2 {
                let (history, db) = (world.history.clone(), world.db.clone());
                let (is_over, models, read) = (&is_over, &models, &read);
                scope.spawn(move || {
                    let mut random = Random::new(seed * 10 + reader);
                    while !is_over.load(Ordering::Relaxed) {
                        let number = db.head().number.saturating_sub(random.below(60));
                        let view = match history.state_at(&db, number) {
                            Ok(view) => view,
                            Err(
                                HistoryError::NotKept { .. }
                                | HistoryError::State(StateError::NoSuchBlock { .. }),
                            ) => continue,
                            Err(error) => panic!("{error}"),
                        };
                        let hash = view.block().hash;
                        let Some(model) = models.lock().unwrap().get(&hash).cloned() else {
                            continue;
                        };
                        let at = path(random.below(ACCOUNTS));
                        let expected = model.account(&at).map(|account| account.account);
                        assert_eq!(view.account(&at).unwrap(), expected);
                        if nodes.is_some() {
                            let keys = ProofTargets::new(vec![(at, vec![path(1)])]);
                            compare_proof(&view, &model, keys);
                        }
                        read.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for at in 0..200 {
                world.block();
                models.lock().unwrap().clone_from(&world.models);
                if at % 5 == 0 {
                    world.db.flush(at % 4).unwrap();
                }
                if at % 11 == 10 {
                    let head = world.db.head();
                    let to = head.number - world.random.below(head.number.min(12) + 1);
                    world.db.unwind(to).unwrap();
                    if world.random.percent(40) {
                        world.db.set_head(head).unwrap();
                    }
                }
                if at % 20 == 0 {
                    thread::sleep(Duration::from_millis(15));
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        follower.finish().unwrap();
    }
    assert!(read.into_inner() > 500);
}

#[test]
fn the_log_is_kept_until_the_last_follower_has_finished() {
    let few = cambium_state::Options {
        keep_blocks: Some(3),
        ..options()
    };
    let mut world = World::of(21, few, None, HistoryOptions::default());
    let one = HistoryFollower::start(world.history.clone(), world.db.clone());
    let other = HistoryFollower::start(world.history.clone(), world.db.clone());
    (0..300).for_each(|_| world.block());
    drop(other);
    let commit_some = |world: &mut World| {
        for _ in 0..60 {
            world.block();
            world.db.flush(0).unwrap();
        }
        world.db.stats().unwrap().kept_from
    };
    let durable = world.history.durable().number;
    let kept_from = commit_some(&mut world);
    assert!(kept_from <= durable + 1, "{kept_from} after {durable}");
    one.finish().unwrap();
    assert!(commit_some(&mut world) > 300);
}
