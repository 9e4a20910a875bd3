//! Any state is as it was.

use cambium_history::{History, HistoryError, HistoryFollower, HistoryOptions, WholeNodes};
use cambium_state::Disk;
use cambium_testkit::{plain::path, say};
use std::{num::NonZeroU64, sync::Arc};

use super::world::*;

#[test]
fn any_state_is_as_it_was_whatever_has_happened_since() {
    let (mut files, mut merged, mut unwound) = (0, 0, 0);
    for seed in cambium_seeds::seeds!(0..12) {
        let nodes = [None, Some(WholeNodes::default()), Some(WholeNodes::ALL)];
        let mut world = World::with(nodes[seed as usize % 3], seed);
        if seed % 2 == 1 {
            world.block();
            world.crowd();
        }
        for _ in 0..260 {
            match world.random.below(40) {
                0 => world.db.flush(2).unwrap(),
                1 | 2 => world.history.flush().unwrap(),
                3..=5 => {
                    let before = world.history.stats().files;
                    world.history.merge().unwrap();
                    merged += before - world.history.stats().files;
                }
                6 => {
                    let crash = world.random.percent(50);
                    world = world.reopen(crash);
                }
                7 | 8 => {
                    let head = world.db.head().number;
                    // Mostly not far, and sometimes below everything that is in memory.
                    let most = if world.random.percent(20) {
                        head
                    } else {
                        head.min(6)
                    };
                    let to = head - world.random.below(most + 1);
                    world.db.unwind(to).unwrap();
                    unwound += head - to;
                }
                9..=12 => {
                    world.catch_up();
                    world.compare_some();
                    files = files.max(world.history.stats().files);
                }
                _ => world.block(),
            }
        }
        world.catch_up();
        world.history.flush().unwrap();
        (0..=world.db.head().number).for_each(|number| world.compare(number));
        world.history.check().unwrap();
    }
    say(&format!(
        "at most {files} files, {merged} merged away, {unwound} blocks unwound"
    ));
    assert!(files >= 4 && merged > 20 && unwound > 200);
}

#[test]
fn made_afterwards_it_serves_the_same() {
    let mut world = World::new(11);
    for at in 0..300 {
        world.block();
        if at % 9 == 0 {
            world.db.flush(1).unwrap();
        }
    }
    world.catch_up();
    let numbers = [0, 1, 7, 64, 150, 299];
    numbers.into_iter().for_each(|number| world.compare(number));
    // From a later block on.
    let World {
        disk, db, history, ..
    } = world;
    drop(history);
    for name in disk
        .files()
        .into_iter()
        .filter(|name| name.starts_with("history/"))
    {
        disk.remove(&name).unwrap();
    }
    let history = History::create(Arc::new(disk.clone()), &db, 100, None, LITTLE).unwrap();
    history
        .catch_up(&db, &mut |so_far| so_far.upto.number < 170)
        .unwrap();
    history.flush().unwrap();
    drop(history);
    let world = World {
        history: open_history(&disk, &db),
        disk,
        db,
        models: world.models,
        random: world.random,
        blocks: world.blocks,
    };
    assert_eq!(
        world.history.blocks().1.number,
        170,
        "it goes on where it was"
    );
    world.catch_up();
    for number in [100, 101, 164, 171, 299, 300] {
        world.compare(number);
    }
    let error = world.history.state_at(&world.db, 99).err().unwrap();
    assert!(matches!(
        error,
        HistoryError::NotKept {
            number: 99,
            first: 100
        }
    ));
}

#[test]
fn a_history_grows_downwards_window_by_window_and_goes_on_where_it_was() {
    for nodes in [None, Some(WholeNodes::default()), Some(WholeNodes::ALL)] {
        let mut world = World::with(nodes, 31);
        world.crowd();
        for at in 0..160 {
            world.block();
            if at % 30 == 29 {
                world.db.flush(at % 4).unwrap();
            }
        }
        let world = world.remade(100, nodes, LITTLE);
        let mut left = 37;
        let first = world.history.extend_down(&world.db, 10, &mut |_| {
            left -= 1;
            left > 0
        });
        let first = first.unwrap().number;
        assert!((63..100).contains(&first), "{first}");
        let mut world = world.reopen(true);
        assert_eq!(world.history.blocks().0.number, first);
        world.catch_up();
        // The nodes for the next windows come from runs above and below the first one.
        let reached = world.history.extend_down(&world.db, 10, &mut |_| true);
        assert_eq!(reached.unwrap().number, 10);
        (0..30).for_each(|_| world.block());
        world.db.unwind(150).unwrap();
        (0..20).for_each(|_| world.block());
        world.catch_up();
        (10..world.db.head().number).for_each(|number| world.compare(number));
        assert!(world.history.state_at(&world.db, 9).is_err());
        world
            .history
            .extend_down(&world.db, 0, &mut |_| true)
            .unwrap();
        world.history.merge().unwrap();
        world.history.check().unwrap();
        world.compare_some();
    }
}

#[test]
fn what_is_no_longer_kept_leaves_by_whole_runs() {
    let keep = 60;
    for nodes in [None, Some(WholeNodes::default())] {
        let options = HistoryOptions {
            keep_blocks: NonZeroU64::new(keep),
            ..LITTLE
        };
        let mut world = World::with(nodes, 32).remade(0, nodes, options);
        let (mut most, mut most_bytes) = (0, Vec::new());
        for at in 0..600 {
            world.block();
            if at % 5 == 4 {
                world.catch_up();
                world.history.merge().unwrap();
                let (first, upto) = world.history.blocks();
                most = most.max(upto.number - first.number);
                most_bytes.push(world.history.stats().file_bytes);
            }
            if at % 200 == 199 {
                // The length is remembered: reopening does not set it.
                world = world.reopen(at % 400 == 399);
                world.catch_up();
            }
            if at % 50 == 49 {
                let first = world.history.blocks().0.number;
                world.compare(first);
                world.compare(world.db.head().number.saturating_sub(keep));
                assert_eq!(
                    first == 0,
                    world.history.state_at(&world.db, first.max(1) - 1).is_ok()
                );
            }
        }
        assert!((keep..2 * keep).contains(&most), "{most} blocks");
        let files = world.disk.files().into_iter();
        let files = files.filter(|name| name.ends_with(".run")).count() as u64;
        assert_eq!(files, world.history.stats().files, "no file is left behind");
        let half = most_bytes.len() / 2;
        let largest = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or_default();
        let (early, late) = (largest(&most_bytes[..half]), largest(&most_bytes[half..]));
        assert!(2 * late < 3 * early, "{early} bytes, then {late}");
    }
}

#[test]
fn a_view_stays_as_it_is_while_the_head_moves() {
    for nodes in [None, Some(WholeNodes::default())] {
        let mut world = World::with(nodes, 12);
        (0..80).for_each(|_| world.block());
        world.catch_up();
        let ids: Vec<_> = [3, 40, 77]
            .map(|number| world.db.block_id(number).unwrap().unwrap())
            .into();
        let views: Vec<_> = ids
            .iter()
            .map(|id| world.history.state_at(&world.db, id.number).unwrap())
            .collect();
        world.db.unwind(50).unwrap();
        (0..60).for_each(|_| world.block());
        world.catch_up();
        world.history.flush().unwrap();
        world.history.merge().unwrap();
        for (view, id) in views.iter().zip(&ids) {
            world.compare_view(view, *id);
        }
    }
}

#[test]
fn a_reader_beside_the_writer_sees_the_same() {
    for nodes in [None, Some(WholeNodes::default())] {
        let mut world = World::with(nodes, 13);
        for _ in 0..4 {
            (0..25).for_each(|_| world.block());
            world.catch_up();
            world.block();
            let shared: Arc<dyn Disk> = Arc::new(world.disk.clone());
            let reading = History::open_read_only(shared, &world.db, LITTLE).unwrap();
            reading.catch_up(&world.db, &mut |_| true).unwrap();
            assert!(matches!(
                reading.flush(),
                Err(HistoryError::ReadOnly) | Ok(())
            ));
            let files = world.disk.files();
            let own = std::mem::replace(&mut world.history, reading);
            (0..world.db.head().number).for_each(|number| world.compare(number));
            world.history = own;
            assert_eq!(files, world.disk.files());
        }
    }
}

#[test]
fn a_thread_follows_the_chain_and_keeps_the_log_for_itself() {
    for nodes in [None, Some(WholeNodes::default())] {
        let mut world = World::with(nodes, 14);
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        for at in 0..400 {
            world.block();
            if at % 50 == 49 {
                world.db.flush(1).unwrap();
                world.db.unwind(world.db.head().number - 3).unwrap();
            }
        }
        let history = follower.finish().unwrap();
        assert_eq!(history.blocks().1, world.db.head());
        assert_eq!(history.durable(), world.db.head());
        for number in (0..world.db.head().number).step_by(11) {
            world.compare(number);
        }
    }
}

#[test]
fn a_look_up_takes_at_most_one_read_of_the_history_but_for_false_positives() {
    let mut world = World::new(15);
    (0..600).for_each(|_| world.block());
    world.history = {
        let World { disk, history, .. } = &world;
        drop(history.clone());
        let disk = disk.clone();
        let db = world.db.clone();
        world.catch_up();
        world.history.flush().unwrap();
        let old = std::mem::replace(
            &mut world.history,
            History::open_read_only(Arc::new(disk.clone()), &db, HistoryOptions::default())
                .unwrap(),
        );
        drop(old);
        History::open(Arc::new(disk), &db, HistoryOptions::default()).unwrap()
    };
    let files = world.history.stats().files;
    let (mut look_ups, mut most) = (0, 0);
    let before = world.history.stats().reads;
    for number in (0..600).step_by(13) {
        let view = world.history.state_at(&world.db, number).unwrap();
        for at in (0..ACCOUNTS).map(path) {
            let before = world.history.stats().reads;
            view.account(&at).unwrap();
            view.slot(&at, &path(3)).unwrap();
            look_ups += 2;
            most = most.max(world.history.stats().reads - before);
        }
    }
    let reads = world.history.stats().reads - before;
    say(&format!(
        "{files} files, {look_ups} look-ups, {reads} pages, at most {most} for two"
    ));
    assert!(files > 3);
    assert!(reads <= look_ups + look_ups / 20);
}
