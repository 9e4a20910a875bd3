//! Promises of `docs/HISTORY.md`, and attempts to break them.

use super::world::*;
use cambium_history::{
    History, HistoryError, HistoryFollower, HistoryOptions, StateAt, WholeNodes,
    backup_with_history,
};
use cambium_state::{Db, Disk, Fault, FaultyDisk, FileSizes, Options, StateError, StoreError};
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{self, path},
    say,
};
use cambium_trie::{LeafRange, ProofTargets};
use std::{
    num::{NonZeroU64, NonZeroUsize},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const KINDS: [Option<WholeNodes>; 2] = [
    None,
    Some(WholeNodes {
        one_of: std::num::NonZeroU32::MIN.saturating_add(7),
    }),
];

/// A database that keeps few blocks in its log, in small files.
fn few(blocks: u64) -> Options {
    Options {
        keep_blocks: Some(blocks),
        unfinalized_blocks: blocks as usize,
        files: FileSizes {
            log_file_bytes_max: 4 << 10,
            log_extend_bytes: 4 << 10,
            log_spare_blocks: 4,
            ..TINY_FILES
        },
        ..options()
    }
}

/// An archive of which some windows wait, and the names of their files.
fn waiting(seed: u64) -> (World, Vec<String>) {
    let mut world = World::with(Some(WholeNodes::default()), seed);
    (0..120).for_each(|_| world.block());
    let mut left = 80;
    let caught_up = world.history.catch_up(&world.db, &mut |_| {
        left -= 1;
        left > 0
    });
    caught_up.unwrap();
    let stats = world.history.stats();
    assert!(stats.waiting_files > 1 && stats.files == 0, "{stats:?}");
    let names = world.disk.files().into_iter();
    let names = names.filter(|name| name.ends_with(".run")).collect();
    (world, names)
}

#[test]
fn a_window_that_waits_and_has_a_bad_page_is_made_again() {
    for seed in cambium_seeds::seeds!(0..4) {
        let (world, names) = waiting(600 + seed);
        let name = &names[seed as usize % names.len()];
        let pages = world.disk.contents(name).unwrap().len() as u64 / 4096 - 4;
        world
            .disk
            .flip_bit(name, seed % pages.max(1) * 4096 + 40, 3);
        let world = world.reopen(false);
        world
            .history
            .catch_up(&world.db, &mut |_| true)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        world.history.flush().unwrap();
        world.history.check().unwrap();
        let head = world.db.head().number;
        (0..=head)
            .step_by(9)
            .for_each(|number| world.compare(number));
    }
}

#[test]
fn a_copy_is_made_without_a_window_that_waits_and_is_gone() {
    let (world, names) = waiting(610);
    world.disk.remove(&names[0]).unwrap();
    let to = FaultyDisk::new(1);
    let (from, copy): (Arc<dyn Disk>, Arc<dyn Disk>) =
        (Arc::new(world.disk.clone()), Arc::new(to.clone()));
    backup_with_history(&from, &copy, options(), &mut |_| {}).unwrap();
    plain::wait_until_closed(&to);
    let (db, _) = Db::open(Arc::new(to.clone()), options()).unwrap();
    let history = open_history(&to, &db);
    history.catch_up(&db, &mut |_| true).unwrap();
    assert_eq!(history.blocks().1, db.head());
}

#[test]
fn a_copy_has_no_block_above_its_head_though_the_log_has_forgotten_the_branch() {
    for first in [0, 60] {
        let mut world = World::of(615, few(100), None, LITTLE);
        (0..100).for_each(|_| world.block());
        let forgetful = Options {
            unfinalized_blocks: 3,
            ..few(100)
        };
        let World { disk, db, .. } = world;
        drop((db, world.history));
        plain::wait_until_closed(&disk);
        let (db, _) = Db::open(Arc::new(disk.clone()), forgetful).unwrap();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        disk.remove("history/runs.list").unwrap();
        let history = History::create(shared.clone(), &db, first, None, LITTLE).unwrap();
        history.catch_up(&db, &mut |_| true).unwrap();
        history.flush().unwrap();
        history.merge().unwrap();
        let left = db.head();
        db.unwind(40).unwrap();
        for nonce in 0..3 {
            plain::commit(&db, vec![plain::put(path(2), nonce)], vec![]);
            db.flush(0).unwrap();
        }
        assert_eq!(history.durable(), left);
        assert_eq!(db.block_by_id(left).unwrap(), None, "it is forgotten");
        let to = FaultyDisk::new(1);
        let copy: Arc<dyn Disk> = Arc::new(to.clone());
        let copied = backup_with_history(&shared, &copy, forgetful, &mut |_| {});
        let (report, copied) = copied.unwrap();
        assert_eq!(copied.is_some(), first == 0);
        if let Some(copied) = copied {
            let upto = copied.upto.number;
            assert!(upto <= report.head.number, "{upto} in {report:?}");
        }
    }
}

#[test]
fn a_history_of_the_newest_blocks_has_no_more_than_a_part_above_them() {
    const KEPT: u64 = 200;
    for nodes in KINDS {
        for is_behind in [false, true] {
            let kept = HistoryOptions {
                keep_blocks: NonZeroU64::new(KEPT),
                ..HistoryOptions::default()
            };
            let mut world = World::of(620, options(), nodes, kept);
            for _ in 0..60 {
                (0..20).for_each(|_| world.block());
                if !is_behind {
                    world.catch_up();
                    world.history.merge().unwrap();
                }
            }
            world.catch_up();
            world.history.flush().unwrap();
            world.history.merge().unwrap();
            let (first, head) = (world.history.blocks().0.number, world.db.head().number);
            let kept = head - first;
            assert!(kept >= KEPT, "{kept}");
            assert!(kept <= KEPT + KEPT / 4, "{kept} blocks are kept");
            let numbers = (first..=head).step_by(23);
            numbers.for_each(|number| world.compare(number));
        }
    }
}

/// Waits until something is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_log_keeps_what_a_stopped_history_needs_though_its_newest_block_leaves_the_chain() {
    for nodes in KINDS {
        let mut world = World::of(630, few(100), nodes, LITTLE);
        let follower = HistoryFollower::start(world.history.clone(), world.db.clone());
        for at in 0..160 {
            world.block();
            if at % 4 == 0 {
                world.db.flush(0).unwrap();
            }
        }
        // An archive is followed up to the merged layers.
        world.db.flush(0).unwrap();
        let head = world.db.head();
        wait_until("following", || world.history.blocks().1 == head);
        // Its list can't be written any more.
        world.history.flush().unwrap();
        world
            .disk
            .inject(Fault::FailedWrite, "history/runs.list", u32::MAX);
        world.block();
        world.db.flush(0).unwrap();
        wait_until("a failure", || {
            let caught_up = world.history.catch_up(&world.db, &mut |_| true);
            caught_up.and_then(|_| world.history.flush()).is_err()
        });
        // The follower notices, and ends.
        thread::sleep(Duration::from_millis(200));
        world.disk.clear_faults();
        let durable = world.history.durable().number;
        world.db.unwind(durable - 20).unwrap();
        for _ in 0..240 {
            world.block();
            world.db.flush(0).unwrap();
        }
        drop(follower);
        let world = world.reopen(false);
        world
            .history
            .catch_up(&world.db, &mut |_| true)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(world.history.blocks().1, world.db.head());
        let head = world.db.head().number;
        (0..=head)
            .step_by(9)
            .for_each(|number| world.compare(number));
    }
}

#[test]
fn a_history_whose_next_block_has_left_the_log_says_so_at_once_and_how_to_begin_again() {
    for nodes in KINDS {
        let mut world = World::of(640, few(12), nodes, LITTLE);
        for _ in 0..120 {
            world.block();
            world.db.flush(0).unwrap();
        }
        let mut made = 0;
        let caught_up = world.history.catch_up(&world.db, &mut |_| {
            made += 1;
            true
        });
        let error = caught_up.err().unwrap();
        assert!(matches!(error, HistoryError::Gap { .. }), "{error}");
        assert!(error.to_string().contains("remove the folder"), "{error}");
        assert_eq!(made, 0);
    }
}

#[test]
fn whatever_happens_between_two_files_of_a_copy_its_history_goes_on() {
    let mut with_history = 0;
    for seed in cambium_seeds::seeds!(0..32) {
        let nodes = KINDS[seed as usize % 2];
        let kept = HistoryOptions {
            keep_blocks: NonZeroU64::new([30, 1_000][seed as usize / 2 % 2]),
            memory_bytes: 4 << 10,
            ..LITTLE
        };
        let mut world = World::of(660 + seed, few(6), nodes, kept);
        let step = |world: &mut World, blocks: u64| {
            for _ in 0..blocks {
                world.block();
                world.catch_up();
                world
                    .db
                    .keep_log_above("history", world.history.durable().number);
                world.db.flush(world.random.below(2) as usize).unwrap();
            }
            world.history.merge().unwrap();
        };
        step(&mut world, 60);
        if nodes.is_some() && seed % 3 == 0 {
            // Some windows wait.
            (0..30).for_each(|_| world.block());
            let mut left = 20;
            let goes_on = &mut |_: &_| {
                left -= 1;
                left > 0
            };
            world.history.catch_up(&world.db, goes_on).unwrap();
        }
        let (calls, mut call) = (world.random.below(12), 0);
        let to = FaultyDisk::new(seed);
        let (from, copy): (Arc<dyn Disk>, Arc<dyn Disk>) =
            (Arc::new(world.disk.clone()), Arc::new(to.clone()));
        let copied = backup_with_history(&from, &copy, few(6), &mut |_| {
            call += 1;
            if call == calls {
                let back = world.random.below(6);
                let head = world.db.head().number;
                world.db.unwind(head - back).unwrap();
                let blocks = world.random.below(24);
                step(&mut world, blocks);
            }
        });
        let (report, copied) = match copied {
            Ok(copied) => copied,
            // More checkpoints than a reader may be behind.
            Err(HistoryError::State(StateError::Store(StoreError::ReaderBehind { .. }))) => {
                continue;
            }
            Err(error) => panic!("{seed}: {error}"),
        };
        let Some(copied) = copied else { continue };
        with_history += 1;
        assert!(copied.upto.number <= report.head.number);
        plain::wait_until_closed(&to);
        let (db, _) = Db::open(Arc::new(to.clone()), few(6)).unwrap();
        let mut copy = World {
            history: open_history(&to, &db),
            disk: to,
            db,
            models: world.models.clone(),
            random: Random::new(seed),
            blocks: world.blocks + 1_000_000,
        };
        assert!(copy.history.blocks().1.number <= copy.db.head().number);
        copy.catch_up();
        assert_eq!(copy.history.blocks().1, copy.db.head(), "{seed}");
        (0..10).for_each(|_| copy.block());
        copy.catch_up();
        copy.history.flush().unwrap();
        copy.history.check().unwrap();
        let (first, upto) = copy.history.blocks();
        let numbers = (first.number..=upto.number).step_by(7);
        numbers.for_each(|number| copy.compare(number));
    }
    assert!(with_history > 12, "{with_history}");
}

/// Reads a state in all ways, and compares it with the model; an error ends it.
fn read_all(world: &World, view: &StateAt) -> Result<(), HistoryError> {
    let model = &world.models[&view.block().hash];
    for at in (0..ACCOUNTS).map(path) {
        let expected = model.account(&at);
        assert_eq!(view.account(&at)?, expected.map(|one| one.account));
        let slots = expected.map(|one| one.slots.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
        assert_eq!(view.slots(&at)?, slots.unwrap_or_default());
    }
    if !world.history.has_nodes() {
        return Ok(());
    }
    assert_eq!(view.state_root()?, model.root());
    let keys = (0..ACCOUNTS).map(|at| (path(at), vec![path(1), path(4)]));
    let part = view.extract(&ProofTargets::new(keys.collect()))?;
    assert_eq!(part.state_root(), Some(model.root()));
    let all = LeafRange::accounts([0; 32].into(), [0xff; 32].into());
    let part = view.extract_range(&all, NonZeroUsize::MAX)?;
    let leaves = part.trie.leaves(&all).unwrap();
    assert_eq!(leaves.len(), model.accounts().count());
    Ok(())
}

#[test]
fn damage_below_an_open_history_is_named_and_never_believed() {
    let (mut named, mut unseen) = (0, 0);
    for nodes in KINDS {
        let mut world = World::with(nodes, 670);
        world.crowd();
        (0..120).for_each(|_| world.block());
        world.catch_up();
        world.history.flush().unwrap();
        let names = world.disk.files().into_iter();
        let names: Vec<_> = names.filter(|name| name.ends_with(".run")).collect();
        for at in 0..120 {
            let disk = world.disk.duplicate();
            let shared: Arc<dyn Disk> = Arc::new(disk.clone());
            let history = History::open_read_only(shared, &world.db, LITTLE).unwrap();
            let name = &names[world.random.below(names.len() as u64) as usize];
            let len = disk.contents(name).unwrap().len() as u64;
            for _ in 0..1 + at % 5 {
                let at = world.random.below(len);
                match world.random.below(3) {
                    0 => disk.spoil(name, at, 1),
                    _ => disk.flip_bit(name, at, (at % 8) as u8),
                }
            }
            let number = world.random.below(120);
            let view = history.state_at(&world.db, number).unwrap();
            match read_all(&world, &view) {
                Ok(()) => unseen += 1,
                Err(error) => {
                    named += 1;
                    let told = error.to_string();
                    assert!(told.contains(name.as_str()), "{told}");
                    // A check finds the damage that a read met.
                    let error = history.check().err();
                    let told = error.expect("damage").to_string();
                    assert!(told.contains(name.as_str()), "{told}");
                }
            }
        }
    }
    say(&format!("{named} damages met, {unseen} not met"));
    assert!(named > 60);
}

#[test]
fn files_that_changed_places_or_belong_to_another_database_are_named() {
    let mut world = World::with(Some(WholeNodes::default()), 680);
    (0..120).for_each(|_| world.block());
    world.catch_up();
    world.history.flush().unwrap();
    let mut other = World::with(Some(WholeNodes::default()), 681);
    (0..120).for_each(|_| other.block());
    other.catch_up();
    other.history.flush().unwrap();
    let runs = |disk: &FaultyDisk| {
        let names = disk.files().into_iter();
        let names = names.filter(|name| name.ends_with(".run"));
        names.collect::<Vec<_>>()
    };
    let (ours, theirs) = (runs(&world.disk), runs(&other.disk));
    let put = |disk: &FaultyDisk, name: &str, bytes: &[u8]| {
        disk.remove(name).unwrap();
        let file = disk.create(name).unwrap();
        file.write_at(bytes, 0).unwrap();
    };
    let contents = |disk: &FaultyDisk, name: &str| disk.contents(name).unwrap();
    let mut cases = Vec::new();
    let swapped = world.disk.duplicate();
    put(&swapped, &ours[0], &contents(&world.disk, &ours[1]));
    put(&swapped, &ours[1], &contents(&world.disk, &ours[0]));
    cases.push((swapped, ".run"));
    let foreign = world.disk.duplicate();
    put(&foreign, &ours[0], &contents(&other.disk, &theirs[0]));
    cases.push((foreign, ours[0].as_str()));
    let list = "history/runs.list";
    let foreign_list = world.disk.duplicate();
    put(&foreign_list, list, &contents(&other.disk, list));
    cases.push((foreign_list, ".run"));
    for len in [0, 1, 11, 12, 4095, 4096, 8192] {
        for name in [&ours[0][..], list] {
            let cut = world.disk.duplicate();
            let bytes = contents(&cut, name);
            if len < bytes.len() {
                put(&cut, name, &bytes[..len]);
                cases.push((cut, if name == list { list } else { &ours[0] }));
            }
        }
    }
    for (disk, name) in cases {
        let shared: Arc<dyn Disk> = Arc::new(disk);
        let opened = History::open_read_only(shared, &world.db, LITTLE);
        let told = opened.err().expect("an error").to_string();
        assert!(told.contains(name), "{name}: {told}");
        assert!(told.contains("emove the folder"), "{told}");
    }
}

#[test]
fn whatever_happens_in_any_order_the_kept_states_are_right() {
    let (mut waited, mut pruned, mut reorganized) = (0, 0, 0);
    for seed in cambium_seeds::seeds!(0..16) {
        let nodes = (seed % 4 > 0).then(WholeNodes::default);
        let keep = [24, 60, 1_000][seed as usize % 3];
        let kept = HistoryOptions {
            keep_blocks: NonZeroU64::new(keep),
            memory_bytes: [2 << 10, 8 << 10, 16 << 10][seed as usize / 3 % 3],
            ..LITTLE
        };
        let mut world = World::of(700 + seed, options(), nodes, kept);
        if seed % 5 == 0 {
            world.crowd();
        }
        for _ in 0..60 {
            let first = world.history.blocks().0.number;
            match world.random.below(11) {
                0..=3 => {
                    let blocks = world.random.below(40);
                    (0..blocks).for_each(|_| world.block());
                }
                4 => {
                    let mut left = world.random.below(30);
                    let goes_on = &mut |_: &_| {
                        left = left.saturating_sub(1);
                        left > 0
                    };
                    world.history.catch_up(&world.db, goes_on).unwrap();
                    waited += world.history.stats().waiting_files;
                }
                5 => world.catch_up(),
                6 => {
                    world.history.flush().unwrap();
                    world.history.merge().unwrap();
                    pruned += world.history.blocks().0.number - first;
                }
                7 => {
                    let head = world.db.head();
                    let to = head.number - world.random.below(head.number - first + 1).min(30);
                    world.db.unwind(to).unwrap();
                    reorganized += head.number - to;
                    if world.random.percent(30) {
                        world.db.set_head(head).unwrap();
                    }
                }
                8 => {
                    let to = world.random.below(first + 1);
                    match world.history.extend_down(&world.db, to, &mut |_| true) {
                        Ok(_) | Err(HistoryError::State(_)) => {}
                        Err(error) => panic!("{seed}: {error}"),
                    }
                }
                9 => world.db.flush(world.random.below(4) as usize).unwrap(),
                _ => {
                    let crash = world.random.percent(50);
                    world = world.reopen(crash);
                }
            }
            let (first, head) = (world.history.blocks().0.number, world.db.head().number);
            if first > head {
                // Its first block may come back; until then there is nothing to read.
                continue;
            }
            for _ in 0..2 {
                let number = first + world.random.below(head - first + 1);
                world.compare(number);
            }
            world.compare(first);
        }
        world.history.check().unwrap();
    }
    say(&format!(
        "{waited} windows waited, {pruned} blocks were removed, {reorganized} left the chain"
    ));
    assert!(waited > 0 && pruned > 0 && reorganized > 0);
}
