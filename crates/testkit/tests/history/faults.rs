//! Faults in the files of the history and in the chain.

use cambium_history::{History, HistoryError, HistoryFollower, HistoryOptions, WholeNodes};
use cambium_state::{Disk, Fault, FaultyDisk, FileSizes, Options};
use cambium_testkit::{
    TINY_FILES,
    plain::{self, path},
    say,
};
use std::{sync::Arc, thread, time::Duration};

use super::world::*;

#[test]
fn a_failed_write_loses_nothing_and_a_crash_at_any_time_nothing_either() {
    let mut failures = 0;
    for calls in (0..320).step_by(5) {
        let nodes = (calls % 3 > 0).then(WholeNodes::default);
        let mut world = World::with(nodes, 100 + calls);
        (0..40).for_each(|_| world.block());
        world.disk.fail_call_after(calls);
        let outcome = world
            .history
            .catch_up(&world.db, &mut |_| true)
            .map(drop)
            .and_then(|()| world.history.flush())
            .and_then(|()| world.history.merge());
        failures += u64::from(outcome.is_err());
        world.disk.clear_faults();
        let crash = calls % 2 == 0;
        let mut world = world.reopen(crash);
        world.block();
        world.catch_up();
        world.compare_some();
        world.history.flush().unwrap();
        world.history.merge().unwrap();
        world.compare_some();
        world.history.check().unwrap();
    }
    say(&format!("{failures} of 64 calls failed"));
    assert!(failures > 20);
}

#[test]
fn a_loss_of_power_at_any_operation_loses_nothing() {
    for operations in 0..80 {
        let nodes = (operations % 3 > 0).then(WholeNodes::default);
        let mut world = World::with(nodes, 200 + operations);
        (0..30).for_each(|_| world.block());
        world.disk.lose_power_after(operations);
        let _ = world
            .history
            .catch_up(&world.db, &mut |_| true)
            .map(drop)
            .and_then(|()| world.history.flush())
            .and_then(|()| world.history.merge());
        let mut world = world.reopen(true);
        world.block();
        world.catch_up();
        world.compare_some();
        world.history.check().unwrap();
    }
}

#[test]
fn every_bad_bit_is_named_and_none_is_believed() {
    let mut world = World::with(Some(WholeNodes::default()), 16);
    (0..120).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let head = world.db.head();
    let names: Vec<_> = world
        .disk
        .files()
        .into_iter()
        .filter(|name| name.ends_with(".run") || name.ends_with(".list"))
        .collect();
    assert!(names.len() >= 3);
    let mut found = 0;
    for name in &names {
        let len = world.disk.contents(name).unwrap().len() as u64;
        for at in (0..len).step_by(97) {
            let disk = world.disk.duplicate();
            disk.flip_bit(name, at, (at % 8) as u8);
            let shared: Arc<dyn Disk> = Arc::new(disk);
            let opened = History::open_read_only(shared, &world.db, LITTLE);
            let checked = opened.and_then(|history| history.check());
            match checked {
                Err(HistoryError::Damaged { file, .. } | HistoryError::Missing { file }) => {
                    assert!(file.contains(name.as_str()), "{file}, {name}");
                    found += 1;
                }
                Err(error) => panic!("{name} at {at}: {error}"),
                // Bytes between the sections are not read.
                Ok(_) => assert!(is_padding(&world.disk, name, at), "{name} at {at}"),
            }
        }
    }
    assert!(found > 100, "{found}");
    assert_eq!(world.db.head(), head);
}

/// Whether a byte is zero, and so is the next one.
fn is_padding(disk: &FaultyDisk, name: &str, at: u64) -> bool {
    let bytes = disk.contents(name).unwrap();
    let at = at as usize;
    bytes[at..(at + 2).min(bytes.len())]
        .iter()
        .all(|byte| *byte == 0)
}

#[test]
fn passing_errors_pass() {
    let mut world = World::with(Some(WholeNodes::default()), 17);
    (0..120).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let view = world.history.state_at(&world.db, 3).unwrap();
    let id = view.block();
    let mut failed = 0;
    for at in (0..ACCOUNTS).map(path) {
        world.disk.inject(Fault::FailedRead, "history/", 1);
        failed += u64::from(view.account(&at).is_err());
        world.disk.clear_faults();
    }
    assert!(failed > 10, "{failed}");
    world.compare_view(&view, id);
}

#[test]
fn a_history_without_its_blocks_or_of_another_database_says_so() {
    let mut world = World::new(18);
    (0..20).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(world.disk.clone());
    let again = History::create(disk.clone(), &world.db, 0, None, LITTLE);
    assert!(again.is_err(), "somebody has it");
    let other = FaultyDisk::new(19);
    let db = plain::make(Arc::new(other.clone()), options(), 3, |_| 1);
    let none = History::open(Arc::new(other.clone()), &db, LITTLE);
    assert!(matches!(none.err(), Some(HistoryError::NoHistory { .. })));
    let above = History::create(Arc::new(other), &db, 7, None, LITTLE);
    assert!(above.is_err(), "there is no block 7");
    let run = world
        .disk
        .files()
        .into_iter()
        .find(|name| name.ends_with(".run"))
        .unwrap();
    let copy = world.disk.duplicate();
    copy.remove(&run).unwrap();
    let missing = History::open_read_only(Arc::new(copy), &world.db, LITTLE);
    assert!(matches!(missing.err(), Some(HistoryError::Missing { .. })));
}

#[test]
fn a_chain_that_leaves_the_first_block_may_come_back_to_it_and_no_other_is_followed() {
    let mut world = World::new(20);
    (0..30).for_each(|_| world.block());
    let World {
        disk, db, history, ..
    } = &world;
    drop(history.clone());
    disk.remove("history/runs.list").unwrap();
    let shared: Arc<dyn Disk> = Arc::new(disk.duplicate());
    let history = History::create(shared, db, 20, None, LITTLE).unwrap();
    history.catch_up(db, &mut |_| true).unwrap();
    history.flush().unwrap();
    let head = db.head();
    db.unwind(10).unwrap();
    assert_eq!(
        history.catch_up(db, &mut |_| true).unwrap(),
        head,
        "it waits"
    );
    assert!(history.state_at(db, 15).is_err());
    db.set_head(head).unwrap();
    history.catch_up(db, &mut |_| true).unwrap();
    world.history = history;
    (20..30).for_each(|number| world.compare(number));
    world.db.unwind(10).unwrap();
    (0..20).for_each(|_| world.block());
    let error = world
        .history
        .catch_up(&world.db, &mut |_| true)
        .err()
        .unwrap();
    assert!(matches!(error, HistoryError::Abandoned { .. }), "{error}");
    let error = world.history.state_at(&world.db, 25).err().unwrap();
    assert!(matches!(error, HistoryError::Abandoned { .. }), "{error}");
}

#[test]
fn the_log_is_kept_for_a_follower_and_no_longer() {
    let few = Options {
        keep_blocks: Some(3),
        ..options()
    };
    let kept_from = |follows: bool| {
        // The history stays in memory until the end.
        let mut world = World::of(21, few, None, HistoryOptions::default());
        let blocks = |world: &mut World| {
            for _ in 0..400 {
                world.block();
                if world.blocks.is_multiple_of(20) {
                    world.db.flush(0).unwrap();
                }
            }
            world.db.stats().unwrap().kept_from
        };
        let follower =
            follows.then(|| HistoryFollower::start(world.history.clone(), world.db.clone()));
        let during = blocks(&mut world);
        drop(follower.map(HistoryFollower::finish).transpose().unwrap());
        (during, blocks(&mut world))
    };
    let (without, later) = kept_from(false);
    assert!(without > 300 && later > without, "{without}, {later}");
    let (during, after) = kept_from(true);
    assert_eq!(during, 0);
    assert!(after > 300, "{after}");
}

#[test]
fn a_follower_that_could_not_finish_leaves_the_log_that_its_history_needs() {
    let few = Options {
        keep_blocks: Some(3),
        ..options()
    };
    for is_dropped in [false, true] {
        let mut world = World::of(23, few, None, HistoryOptions::default());
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        (0..30).for_each(|_| world.block());
        world.disk.inject(Fault::FailedWrite, "history/", 10_000);
        match is_dropped {
            true => drop(follower),
            false => assert!(follower.finish().is_err()),
        }
        for _ in 0..20 {
            (0..20).for_each(|_| world.block());
            world.db.flush(0).unwrap();
        }
        assert_eq!(world.db.stats().unwrap().kept_from, 0, "{is_dropped}");
        world.disk.clear_faults();
        // Another one takes it over, and gives the log back when it is done.
        drop(world.history);
        world.history = open_history(&world.disk, &world.db);
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        follower.finish().unwrap();
        assert_eq!(world.history.durable(), world.db.head(), "{is_dropped}");
        (0..430)
            .step_by(31)
            .for_each(|number| world.compare(number));
        (0..20).for_each(|_| world.block());
        world.db.flush(0).unwrap();
        assert!(
            world.db.stats().unwrap().kept_from > 300,
            "the log is held for nobody any more"
        );
    }
}

#[test]
fn one_failed_write_does_not_end_a_follower() {
    let few = Options {
        keep_blocks: Some(3),
        ..options()
    };
    for nodes in [None, Some(WholeNodes::default())] {
        let mut world = World::of(21, few, nodes, LITTLE);
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        let (mut at, mut hits) = (0, 0);
        while at < 600 || (hits < 3 && at < 6_000) {
            at += 1;
            hits += world.disk.take_hits().len();
            if at % 100 == 50 {
                world.disk.inject(Fault::FailedWrite, "history/0", 1);
            }
            world.block();
            if at % 20 == 0 {
                world.db.flush(0).unwrap();
                thread::sleep(Duration::from_millis(20));
            }
        }
        assert!(hits >= 3, "{hits} writes failed");
        world.disk.clear_faults();
        follower.finish().unwrap();
        assert_eq!(world.history.durable(), world.db.head());
        for number in (0..600).step_by(17) {
            world.compare(number);
        }
        assert_no_other_file(&world);
    }
}

/// No file of the history but those that count.
fn assert_no_other_file(world: &World) {
    let runs = world.disk.files().into_iter();
    let runs = runs.filter(|name| name.ends_with(".run")).count() as u64;
    assert_eq!(runs, world.history.stats().files, "no file is left behind");
}

#[test]
fn a_full_disk_costs_the_history_nothing_and_with_room_it_goes_on() {
    let (mut full, mut poisoned) = (0, 0);
    for calls in (0..240).step_by(4) {
        let nodes = (calls % 3 > 0).then(WholeNodes::default);
        let mut world = World::with(nodes, 300 + calls);
        (0..40).for_each(|_| world.block());
        world.catch_up();
        (0..40).for_each(|_| world.block());
        let down = calls % 8 == 4;
        if down {
            // It begins in the middle, and grows in both directions.
            world = world.remade(40, nodes, LITTLE);
        }
        world.disk.fill_after(calls);
        let World { db, history, .. } = &world;
        let all = || -> Result<(), HistoryError> {
            history.catch_up(db, &mut |_| true)?;
            if down {
                history.extend_down(db, 0, &mut |_| true)?;
            }
            history.flush()?;
            history.merge()
        };
        if let Err(error) = all() {
            full += 1;
            let told = error.to_string();
            assert!(
                told.contains("disk full") && told.contains("history/"),
                "{told}"
            );
        }
        (0..80)
            .step_by(7)
            .for_each(|number| match down && number <= 40 {
                true => {}
                false => world.compare(number),
            });
        world.disk.clear_faults();
        // Only a list that can't be written ends it, until it is opened again.
        let again = all();
        if let Err(HistoryError::Poisoned { .. }) = again {
            poisoned += 1;
            world = world.reopen(false);
            world.catch_up();
            if down {
                world
                    .history
                    .extend_down(&world.db, 0, &mut |_| true)
                    .unwrap();
            }
            world.history.flush().unwrap();
            world.history.merge().unwrap();
        } else {
            again.unwrap();
        }
        assert_no_other_file(&world);
        (0..80).step_by(7).for_each(|number| world.compare(number));
        world.history.check().unwrap();
    }
    say(&format!(
        "{full} of 60 met a full disk, {poisoned} while they wrote the list"
    ));
    assert!(full > 20 && poisoned > 0 && poisoned < full / 2);
}

#[test]
fn after_a_reorganization_a_short_log_is_enough_to_follow() {
    let few = Options {
        keep_blocks: Some(3),
        unfinalized_blocks: 3,
        files: FileSizes {
            log_file_bytes_max: 4 << 10,
            log_extend_bytes: 4 << 10,
            ..TINY_FILES
        },
        ..options()
    };
    for nodes in [None, Some(WholeNodes::default())] {
        let mut world = World::of(23, few, nodes, LITTLE);
        // One file, which ends far above a block whose hash it has: the log does not reach down to it.
        let is_far = |world: &World| {
            let (files, head) = (world.history.stats().files, world.db.head().number);
            let above = world.db.committed_block(head / 64 * 64 + 1);
            files == 1 && head > 120 && above.is_err()
        };
        while !is_far(&world) {
            world.block();
            world.catch_up();
            world.history.flush().unwrap();
            world.history.merge().unwrap();
            world
                .db
                .keep_log_above("history", world.history.durable().number);
            world.db.flush(0).unwrap();
        }
        let head = world.db.head().number;
        world.db.unwind(head - 2).unwrap();
        (0..3).for_each(|_| world.block());
        world.catch_up();
        assert_eq!(world.history.blocks().1, world.db.head());
        (0..head)
            .step_by(7)
            .for_each(|number| world.compare(number));
        world.compare(head - 1);
    }
}
