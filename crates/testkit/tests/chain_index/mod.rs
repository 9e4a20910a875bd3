//! The index of blocks, transactions and logs against a naive model.

mod broken_once;
mod chain;
mod large;
mod world;

use alloy_primitives::keccak256;
use cambium_index::{ChainIndex, IndexError, IndexFollower};
use cambium_state::{Disk, Fault, FaultyDisk, Options};
use cambium_testkit::say;
use std::{sync::Arc, thread, time::Duration};
use world::{LITTLE, World, options};

#[test]
fn whatever_happens_each_hash_and_each_log_is_found_where_it_is() {
    let (mut cuts, mut crashes, mut runs) = (0, 0, 0);
    for seed in cambium_seeds::seeds!(0..12) {
        let mut world = World::new(seed);
        for _ in 0..60 {
            match world.random.below(10) {
                0..=4 => {
                    for _ in 0..world.random.below(12) {
                        world.block();
                    }
                }
                5 | 6 => {
                    world.reorganize(if seed % 2 == 0 { 6 } else { 40 });
                    cuts += 1;
                }
                7 => world.catch_up().unwrap(),
                8 => {
                    world.catch_up().unwrap();
                    world.index.flush().unwrap();
                    world.index.merge().unwrap();
                }
                _ => {
                    let crash = world.random.percent(60);
                    world = world.reopen(crash);
                    crashes += u64::from(crash);
                }
            }
        }
        let index = world.index.clone();
        world.compare(&index);
        world.index.flush().unwrap();
        world.index.merge().unwrap();
        world.compare(&index);
        let checked = world.index.check(&mut |_| {}).unwrap();
        assert_eq!(checked.blocks, world.db.head().number + 1);
        let mut world = {
            drop(index);
            world.reopen(false)
        };
        let index = world.index.clone();
        world.compare(&index);
        runs += index.stats().runs;
        // A reader beside the writer.
        let disk: Arc<dyn Disk> = Arc::new(world.disk.clone());
        let reader = ChainIndex::open_read_only(disk, &world.db, LITTLE).unwrap();
        world.blocks(0..20);
        world.reorganize(30);
        world.compare(&reader);
        world.catch_up().unwrap();
        world.index.flush().unwrap();
        world.index.merge().unwrap();
        world.compare(&reader);
        world.reorganize(30);
        world.compare(&reader);
    }
    say(&format!(
        "{cuts} branches, {crashes} crashes, {runs} runs at the end"
    ));
    assert!(cuts > 50 && crashes > 20 && runs > 12);
}

#[test]
fn searches_over_pages_of_a_key_find_the_same_blocks() {
    let mut world = World::with_index(7, options(), Default::default());
    world.blocks(0..6_000);
    world.catch_up().unwrap();
    world.index.flush().unwrap();
    world.index.merge().unwrap();
    // The index looks at the newest blocks in memory besides.
    world.blocks(0..20);
    let index = world.index.clone();
    let reads = index.stats().index_reads;
    for _ in 0..400 {
        world.compare_logs(&index);
    }
    let stats = index.stats();
    // It writes blocks by time as well.
    assert!(stats.runs <= 4, "{stats:?}");
    say(&format!(
        "{} entries of logs in {} runs: {} reads for 400 searches",
        stats.logs,
        stats.runs,
        stats.index_reads - reads
    ));
}

#[test]
fn a_look_up_takes_two_reads_at_most() {
    let mut world = World::new(50);
    world.blocks(0..400);
    world.catch_up().unwrap();
    world.index.flush().unwrap();
    world.index.merge().unwrap();
    // With memory for all filters.
    let disk: Arc<dyn Disk> = Arc::new(world.disk.clone());
    let index = ChainIndex::open_read_only(disk, &world.db, Default::default()).unwrap();
    assert!(index.stats().runs > 1);
    let chain: Vec<_> = world.chain().into_iter().cloned().collect();
    let before = index.stats();
    let mut asked = 0;
    for block in &chain {
        for hash in block.transactions.iter().chain([&block.id.hash]) {
            assert!(index.find(&world.db, *hash).unwrap().is_some());
            asked += 1;
        }
    }
    let after = index.stats();
    let index_reads = after.index_reads - before.index_reads;
    say(&format!(
        "{asked} look-ups, {index_reads} reads of runs in {} runs",
        after.runs
    ));
    assert_eq!(after.data_reads - before.data_reads, asked);
    // Filters let few others pass.
    assert!(index_reads <= asked + asked / 20);
    for number in 0..1_000u32 {
        let hash = keccak256(number.to_le_bytes());
        assert_eq!(index.find(&world.db, hash).unwrap(), None);
    }
    let misses = index.stats().index_reads - after.index_reads;
    assert!(misses < 100, "{misses}");
    assert_eq!(index.stats().data_reads, after.data_reads);
}

#[test]
fn a_failed_call_or_a_loss_of_power_at_any_time_loses_nothing() {
    let (mut failures, mut off) = (0, 0);
    for at in 0..160u64 {
        let mut world = World::new(100 + at);
        world.blocks(0..60);
        world.catch_up().unwrap();
        if at % 3 == 0 {
            world.reorganize(40);
        }
        let power = at % 2 == 0;
        match power {
            true => world.disk.lose_power_after(at / 2),
            false => world.disk.fail_call_after(2 * at),
        }
        let outcome = world
            .catch_up()
            .and_then(|()| world.index.flush())
            .and_then(|()| world.index.merge());
        failures += u64::from(outcome.is_err());
        off += u64::from(world.disk.is_off());
        world.disk.clear_faults();
        let crash = power || at % 4 == 1;
        let mut world = world.reopen(crash);
        world.block();
        let index = world.index.clone();
        world.compare(&index);
        world.index.flush().unwrap();
        world.index.merge().unwrap();
        world.compare(&index);
        world.index.check(&mut |_| {}).unwrap();
    }
    say(&format!(
        "{failures} of 160 attempts failed, {off} by a loss of power"
    ));
    assert!(failures > 40 && off > 20);
}

#[test]
fn every_bad_bit_is_named_and_none_is_believed() {
    let mut world = World::new(7);
    world.blocks(0..150);
    world.catch_up().unwrap();
    world.index.flush().unwrap();
    let names = world.disk.files().into_iter();
    let names: Vec<String> = names.filter(|name| name.starts_with("index/")).collect();
    let mut found = 0;
    for name in &names {
        let bytes = world.disk.contents(name).unwrap();
        for at in (0..bytes.len()).step_by(89) {
            let disk = world.disk.duplicate();
            disk.flip_bit(name, at as u64, (at % 8) as u8);
            let shared: Arc<dyn Disk> = Arc::new(disk);
            let opened = ChainIndex::open_read_only(shared, &world.db, LITTLE);
            match opened.and_then(|index| index.check(&mut |_| {})) {
                Err(IndexError::Damaged { file, .. } | IndexError::Missing { file }) => {
                    assert!(file.contains(name.as_str()), "{file}, {name}");
                    found += 1;
                }
                Err(error) => panic!("{name} at {at}: {error}"),
                // Padding to whole blocks is not read.
                Ok(_) => {
                    let is_read = bytes[at] != 0 && !name.ends_with("LOCK");
                    assert!(!is_read, "{name} at {at}");
                }
            }
        }
    }
    say(&format!("{found} bad bits found"));
    assert!(found > 150);
}

#[test]
fn passing_errors_pass() {
    let mut world = World::new(8);
    world.blocks(0..80);
    world.catch_up().unwrap();
    world.index.flush().unwrap();
    let index = world.index.clone();
    let hashes: Vec<_> = world.chain().iter().map(|block| block.id.hash).collect();
    let mut failed = 0;
    for hash in hashes {
        world.disk.inject(Fault::FailedRead, "index/", 1);
        failed += u64::from(index.find(&world.db, hash).is_err());
        world.disk.clear_faults();
    }
    assert!(failed > 40, "{failed}");
    world.compare(&index);
}

#[test]
fn blocks_that_have_left_the_log_are_still_there_and_those_that_left_it_before_are_named() {
    let few = Options {
        keep_blocks: Some(4),
        ..options()
    };
    let mut world = World::with(9, few);
    world.blocks(0..100);
    world.catch_up().unwrap();
    world.index.flush().unwrap();
    for _ in 0..300 {
        world.block();
        world.db.flush(1).unwrap();
        world.catch_up().unwrap();
    }
    assert!(world.db.block(50).is_err(), "the log has dropped it");
    let index = world.index.clone();
    world.compare(&index);
    // Without a follower blocks leave the log, and the index goes on above them.
    drop(index);
    for _ in 0..300 {
        world.block();
        world.db.flush(1).unwrap();
    }
    world.catch_up().unwrap();
    world.index.flush().unwrap();
    world.index.merge().unwrap();
    let (db, index, head) = (&world.db, &world.index, world.db.head());
    let gap = (0..=head.number).filter(|number| {
        let found = index.block(db, *number);
        matches!(found, Err(IndexError::NotIndexed { .. }))
    });
    let gap: Vec<_> = gap.collect();
    assert!(
        gap.len() > 100 && gap[0] > 390,
        "{} from {}",
        gap.len(),
        gap[0]
    );
    let oldest = index.stats().oldest;
    assert_eq!(gap.last(), Some(&(oldest - 1)));
    assert!(index.block(db, 50).unwrap().is_some());
    let all = index.log_blocks(db, &Default::default(), 0..=head.number);
    assert!(matches!(all, Err(IndexError::NotIndexed { number, .. }) if number == gap[0]));
    assert!(
        index
            .log_blocks(db, &Default::default(), oldest..=head.number)
            .is_ok()
    );
    index.check(&mut |_| {}).unwrap();
}

#[test]
fn a_follower_keeps_up_with_a_chain_that_branches() {
    let few = Options {
        keep_blocks: Some(3),
        ..options()
    };
    let mut world = World::with(11, few);
    let follower = IndexFollower::start(world.index.clone(), world.db.clone());
    for round in 0..60 {
        world.blocks(0..5);
        if round % 7 == 0 {
            world.reorganize(3);
        }
        world.db.flush(1).unwrap();
        if round % 20 == 0 {
            thread::sleep(Duration::from_millis(60));
        }
    }
    let index = follower.index().clone();
    world.compare(&index);
    follower.finish().unwrap();
    world.compare(&index);
    index.check(&mut |_| {}).unwrap();
    assert_eq!(index.durable(), Some(world.db.head()));
}

#[test]
fn a_follower_that_could_not_finish_leaves_the_log_that_its_index_needs() {
    let few = Options {
        keep_blocks: Some(3),
        ..options()
    };
    for is_dropped in [false, true] {
        let mut world = World::with(14, few);
        world.catch_up().unwrap();
        let follower = IndexFollower::start(world.index.clone(), world.db.clone());
        world.disk.inject(Fault::FailedWrite, "index/", 10_000);
        world.blocks(0..30);
        match is_dropped {
            true => drop(follower),
            false => assert!(follower.finish().is_err()),
        }
        for _ in 0..20 {
            world.blocks(0..20);
            world.db.flush(0).unwrap();
        }
        let kept_from = world.db.stats().unwrap().kept_from;
        assert!(kept_from < 30, "{is_dropped}: {kept_from}");
        world.disk.clear_faults();
        // Another one takes it over, and gives the log back when it is done.
        world = world.reopen(false);
        let index = world.index.clone();
        IndexFollower::start(index.clone(), world.db.clone())
            .finish()
            .unwrap();
        assert_eq!(index.durable(), Some(world.db.head()), "{is_dropped}");
        world.compare(&index);
        world.blocks(0..20);
        world.db.flush(0).unwrap();
        assert!(
            world.db.stats().unwrap().kept_from > 300,
            "the log is held for nobody any more"
        );
    }
}

#[test]
fn an_index_of_another_database_and_one_that_is_held_say_so() {
    let world = World::new(12);
    let disk: Arc<dyn Disk> = Arc::new(world.disk.clone());
    assert!(
        ChainIndex::open(disk.clone(), &world.db, LITTLE).is_err(),
        "somebody has it"
    );
    let other = World::new(13);
    let opened = ChainIndex::open_read_only(disk, &other.db, LITTLE);
    assert!(matches!(
        opened.err(),
        Some(IndexError::OtherDatabase { .. })
    ));
    let none: Arc<dyn Disk> = Arc::new(FaultyDisk::new(14));
    let opened = ChainIndex::open(none, &world.db, LITTLE);
    assert!(matches!(opened.err(), Some(IndexError::NoIndex { .. })));
}
