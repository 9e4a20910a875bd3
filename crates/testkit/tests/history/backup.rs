//! Copying a database with its history while both change.

use super::world::*;
use cambium_history::{
    HistoryCopy, HistoryError, HistoryFollower, HistoryOptions, WholeNodes, backup_with_history,
};
use cambium_state::{BackupReport, Db, Disk, FaultyDisk, Options, StateError, StoreError, repair};
use cambium_testkit::{
    Random,
    plain::{self, path},
    say,
};
use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

type Copied = (BackupReport, Option<HistoryCopy>);

fn backup(from: &FaultyDisk, to: &FaultyDisk, options: Options) -> Result<Copied, HistoryError> {
    let (from, to): (Arc<dyn Disk>, Arc<dyn Disk>) = (Arc::new(from.clone()), Arc::new(to.clone()));
    backup_with_history(&from, &to, options, &mut |_| {})
}

/// Opens a copy of the world, with the models that the world has.
fn open_copy(of: &World, to: &FaultyDisk, options: Options) -> World {
    plain::wait_until_closed(to);
    let (db, recovery) = Db::open(Arc::new(to.clone()), options).unwrap();
    assert!(recovery.notes.is_empty(), "{recovery:?}");
    World {
        history: open_history(to, &db),
        disk: to.clone(),
        db,
        models: of.models.clone(),
        random: Random::new(of.blocks),
        // Its blocks are others than those to come of the original.
        blocks: of.blocks + 1_000_000,
    }
}

/// Compares a copy with the models, goes on with it, and compares it again.
fn check_copy(of: &World, to: &FaultyDisk, options: Options, (report, copy): Copied) {
    let copy = copy.expect("a history");
    let mut world = open_copy(of, to, options);
    assert_eq!(world.db.head(), report.head);
    assert_eq!(world.history.blocks(), (copy.first, copy.upto));
    let stats = world.history.stats();
    assert_eq!(stats.files + stats.waiting_files, copy.sizes.copied_files);
    assert!(copy.upto.number <= report.head.number);
    compare_some(&world);
    let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
    for at in 0..12 {
        world.block();
        if at % 4 == 3 {
            world.db.flush(0).unwrap();
        }
    }
    follower.finish().unwrap();
    assert_eq!(world.history.durable(), world.db.head());
    compare_some(&world);
}

/// Compares states all over the history, its first and its last one among them.
fn compare_some(world: &World) {
    let (first, upto) = world.history.blocks();
    let step = 1 + (upto.number - first.number) as usize / 12;
    let numbers = (first.number..upto.number).step_by(step);
    let numbers = numbers.chain([upto.number]);
    numbers.for_each(|number| world.compare(number));
    world.history.check().unwrap();
}

#[test]
fn a_copy_has_the_history_as_far_as_the_copied_chain_goes() {
    let few = Options {
        keep_blocks: Some(3),
        ..options()
    };
    let (mut copies, mut whole) = (0, 0);
    for seed in cambium_seeds::seeds!(0..6) {
        let nodes = (seed % 3 > 0).then(WholeNodes::default);
        let kept = HistoryOptions {
            keep_blocks: NonZeroU64::new([40, 1_000][seed as usize % 2]),
            memory_bytes: 4 << 10,
            ..LITTLE
        };
        let world = World::of(400 + seed, few, nodes, LITTLE);
        let mut world = world.remade(0, nodes, kept);
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        let (disk, is_over) = (world.disk.clone(), AtomicBool::new(false));
        let made = thread::scope(|scope| {
            let copying = scope.spawn(|| {
                let mut made = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let to = FaultyDisk::new(seed);
                    made.push((backup(&disk, &to, few).unwrap(), to));
                    thread::sleep(Duration::from_millis(20));
                }
                made
            });
            for at in 0..500 {
                world.block();
                if at % 6 == 0 {
                    world.db.flush(at % 3).unwrap();
                }
                if at % 17 == 16 {
                    let head = world.db.head().number;
                    let back = world.random.below(3).min(head);
                    world.db.unwind(head - back).unwrap();
                }
                if at % 10 == 0 {
                    thread::sleep(Duration::from_millis(3));
                }
            }
            is_over.store(true, Ordering::Relaxed);
            copying.join().unwrap()
        });
        follower.finish().unwrap();
        for (copied, to) in made {
            copies += 1;
            whole += u64::from(copied.1.is_some_and(|copy| copy.upto == copied.0.head));
            // It is durable.
            check_copy(&world, &to.crash(), few, copied);
        }
    }
    say(&format!(
        "{copies} copies, {whole} of them with all of their blocks in the history's files"
    ));
    assert!(copies > 20);
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_the_next_one_is_whole() {
    let mut world = World::with(Some(WholeNodes::default()), 41);
    (0..60).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let to = FaultyDisk::new(1);
    backup(&world.disk, &to, options()).unwrap();
    let (calls, mut cleared) = (to.calls(), 0);
    for call in (0..calls).step_by(1 + calls as usize / 24) {
        let to = FaultyDisk::new(2);
        to.fail_call_after(call);
        let done = backup(&world.disk, &to, options());
        to.clear_faults();
        if let Err(error) = done {
            assert!(!matches!(error, HistoryError::Damaged { .. }), "{error}");
            // The call that failed may have been that which removes a file.
            if !to.files().is_empty() {
                continue;
            }
            cleared += 1;
        } else {
            continue;
        }
        let done = backup(&world.disk, &to, options()).unwrap();
        check_copy(&world, &to, options(), done);
    }
    assert!(cleared > 6, "{cleared}");
}

#[test]
fn a_copy_that_ends_with_the_power_is_none_or_has_its_whole_history() {
    let mut world = World::with(Some(WholeNodes::default()), 42);
    (0..60).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let to = FaultyDisk::new(1);
    backup(&world.disk, &to, options()).unwrap();
    let (mut whole, mut none, mut unfinished) = (0, 0, 0);
    for operations in 0..to.operations() + 1 {
        let to = FaultyDisk::new(operations);
        to.lose_power_after(operations);
        _ = backup(&world.disk, &to, options());
        let to = to.crash();
        let shared: Arc<dyn Disk> = Arc::new(to.clone());
        match Db::open(shared.clone(), options()) {
            Ok((db, _)) => {
                whole += 1;
                let history = open_history(&to, &db);
                assert_eq!(history.blocks(), world.history.blocks());
                history.check().unwrap();
            }
            Err(StateError::UnfinishedBackup { .. }) => {
                unfinished += 1;
                let read = Db::open_read_only(shared.clone(), options());
                assert!(matches!(read, Err(StateError::UnfinishedBackup { .. })));
                let again = backup(&world.disk, &to, options());
                let told = again.unwrap_err().to_string();
                assert!(told.contains("Remove the directory"), "{told}");
                let repaired = repair(&shared, options(), false, &mut |_| {});
                assert!(matches!(repaired, Err(StateError::UnfinishedBackup { .. })));
            }
            Err(StateError::Store(StoreError::NotADatabase { .. })) => none += 1,
            Err(error) => panic!("{operations}: {error}"),
        }
    }
    say(&format!(
        "copies: {whole} whole, {unfinished} not finished, {none} not begun"
    ));
    assert!(whole > 0 && unfinished > 40 && none > 0);
}

#[test]
fn what_is_no_history_of_the_copy_is_left_out_or_refused() {
    let mut world = World::new(43);
    (0..30).for_each(|_| world.block());
    let to = FaultyDisk::new(1);
    let copied = backup(&world.disk, &to, options()).unwrap();
    // It has just begun.
    let copy = copied.1.expect("a history");
    assert_eq!((copy.first.number, copy.upto.number), (0, 0));
    check_copy(&world, &to, options(), copied);
    world.catch_up();
    let damaged = world.disk.duplicate();
    damaged.flip_bit("history/runs.list", 20, 1);
    let error = backup(&damaged, &FaultyDisk::new(1), options()).unwrap_err();
    assert!(matches!(error, HistoryError::Damaged { .. }), "{error}");
    let other = FaultyDisk::new(44);
    let db = plain::make(Arc::new(other.clone()), options(), 3, |_| 1);
    let none = backup(&other, &FaultyDisk::new(1), options()).unwrap().1;
    assert!(none.is_none());
    plain::commit(&db, vec![plain::put(path(1), 1)], vec![]);
    // The chain has left all blocks of a history that began above.
    let world = world.remade(25, None, LITTLE);
    world.catch_up();
    world.history.flush().unwrap();
    world.db.unwind(20).unwrap();
    let to = FaultyDisk::new(1);
    let (report, copy) = backup(&world.disk, &to, options()).unwrap();
    assert_eq!((report.head.number, copy), (20, None));
    assert!(to.files().iter().all(|name| !name.starts_with("history/")));
}
