//! An archive that is far behind the head, and is interrupted on its way there again and again.

use super::world::*;
use cambium_history::{HistoryFollower, WholeNodes};
use cambium_state::Disk;
use cambium_testkit::say;
use std::{thread, time::Duration};

/// Blocks of two windows, at most, with [`LITTLE`] memory.
const LOST_MAX: u64 = 12;

/// How an attempt to catch up ended.
struct Attempt {
    /// The blocks of which it made nodes.
    made: u64,
    /// The first of them.
    first: Option<u64>,
    /// The last, which is the oldest.
    last: u64,
}

impl World {
    /// Catches up until `calls` blocks have been made, or the power is lost.
    fn attempt(&self, calls: u64) -> Attempt {
        let mut attempt = Attempt {
            made: 0,
            first: None,
            last: 0,
        };
        let outcome = self.history.catch_up(&self.db, &mut |so_far| {
            attempt.made += 1;
            attempt.first.get_or_insert(so_far.at);
            attempt.last = so_far.at;
            attempt.made < calls
        });
        assert!(outcome.is_ok() || self.disk.is_off(), "{outcome:?}");
        attempt
    }

    fn is_there(&self) -> bool {
        self.history.blocks().1 == self.db.head()
    }

    /// A world whose archive has no more than the first block.
    fn far_behind(seed: u64, blocks: u64) -> Self {
        let mut world = Self::with(Some(WholeNodes::default()), seed);
        if seed.is_multiple_of(2) {
            world.crowd();
        }
        (0..blocks).for_each(|_| world.block());
        world
    }

    /// Compares all states with the model, and the size with that of a history made at once.
    fn compare_with_another(self, has_unwound: bool) {
        self.history.flush().unwrap();
        (0..=self.db.head().number).for_each(|number| self.compare(number));
        self.history.check().unwrap();
        let stats = self.history.stats();
        let runs = self.disk.files().into_iter();
        let runs = runs.filter(|name| name.ends_with(".run")).count() as u64;
        assert_eq!((stats.files, stats.waiting_files), (runs, 0));
        let another = self.remade(0, Some(WholeNodes::default()), LITTLE);
        another.catch_up();
        another.history.flush().unwrap();
        // Files may have dead entries of blocks that were unwound.
        let entries = another.history.stats().file_entries;
        assert!(stats.file_entries >= entries && (has_unwound || stats.file_entries == entries));
    }
}

#[test]
fn no_interruption_costs_more_than_two_windows() {
    let (mut attempts, mut most_lost) = (0, 0);
    for seed in cambium_seeds::seeds!(0..9) {
        let mut world = World::far_behind(500 + seed, 150);
        // A loss of power, an ending program, and a request to stop.
        let kind = seed % 3;
        let mut before: Option<Attempt> = None;
        while !world.is_there() {
            attempts += 1;
            let calls = 2 * LOST_MAX + world.random.below(30);
            let attempt = match kind {
                0 => {
                    let operations = 60 + world.random.below(200);
                    world.disk.lose_power_after(operations);
                    world.attempt(u64::MAX)
                }
                _ => world.attempt(calls),
            };
            if let (Some(before), Some(first)) = (before, attempt.first) {
                let lost = (first + 1).saturating_sub(before.last);
                most_lost = most_lost.max(lost);
                assert!(lost <= LOST_MAX, "{lost} blocks are lost");
            }
            before = Some(attempt);
            world = match kind {
                2 => world,
                kind => world.reopen(kind == 0),
            };
        }
        world.compare_with_another(false);
    }
    say(&format!(
        "{attempts} attempts, of which none lost more than {most_lost} blocks"
    ));
    assert!(attempts > 30);
}

#[test]
fn the_head_moves_between_interruptions() {
    let mut attempts = 0;
    for seed in cambium_seeds::seeds!(0..6) {
        let mut world = World::far_behind(520 + seed, 100);
        let (mut made, mut unwound) = (0, 0);
        for round in 0..8 {
            attempts += 1;
            let calls = 2 * LOST_MAX + world.random.below(20);
            made += world.attempt(calls).made;
            if round % 2 == 0 {
                let crash = world.random.percent(50);
                world = world.reopen(crash);
            }
            // Above, or on another branch, which may part far below.
            if seed % 2 == 1 && round % 3 == 1 {
                let head = world.db.head().number;
                let back = world.random.below([6, 40][round % 2]);
                world.db.unwind(head - back).unwrap();
                unwound += back;
            }
            for _ in 0..world.random.below(20) {
                world.block();
            }
            if world.random.percent(40) {
                world.db.flush(2).unwrap();
            }
            world.compare(0);
        }
        made += world.attempt(u64::MAX).made;
        assert!(world.is_there());
        let most = world.blocks + 9 * LOST_MAX + unwound;
        assert!(made <= most, "{made} of {most} blocks were made");
        world.compare_with_another(unwound > 0);
    }
    say(&format!("{attempts} interruptions"));
}

#[test]
fn followers_that_come_and_go_get_there() {
    let mut world = World::far_behind(530, 200);
    for round in 0..12 {
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        for _ in 0..10 {
            world.block();
            thread::sleep(Duration::from_millis(1));
        }
        if round % 4 == 3 {
            world.db.flush(1).unwrap();
            world.db.unwind(world.db.head().number - 4).unwrap();
        }
        drop(follower);
    }
    let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
    follower.finish().unwrap();
    assert!(world.is_there());
    world.compare_with_another(true);
}

#[test]
fn what_waits_and_is_damaged_or_gone_is_made_again() {
    for (seed, is_gone) in [(541, false), (542, true)] {
        let world = World::far_behind(seed, 120);
        world.attempt(80);
        let stats = world.history.stats();
        assert!(stats.waiting_files > 1 && stats.files == 0, "{stats:?}");
        let runs = world.disk.files().into_iter();
        let runs: Vec<_> = runs.filter(|name| name.ends_with(".run")).collect();
        assert_eq!(runs.len() as u64, stats.waiting_files);
        for name in runs.iter().step_by(2) {
            match is_gone {
                true => world.disk.remove(name).unwrap(),
                false => {
                    let len = world.disk.contents(name).unwrap().len() as u64;
                    world.disk.flip_bit(name, len - 4096 + 30, 1);
                }
            }
        }
        let world = world.reopen(false);
        world.catch_up();
        world.compare_with_another(false);
    }
}
