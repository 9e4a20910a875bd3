//! Promises of the index that were broken once.

use super::world::{LITTLE, World};
use alloy_primitives::{B256, U256};
use cambium_index::{ChainIndex, IndexError, IndexFollower, IndexOptions, LogFilter};
use cambium_state::{Disk, Fault};
use std::{sync::Arc, thread, time::Duration};

fn disk(world: &World) -> Arc<dyn Disk> {
    Arc::new(world.disk.clone())
}

fn reader(world: &World, options: IndexOptions) -> ChainIndex {
    ChainIndex::open_read_only(disk(world), &world.db, options).unwrap()
}

fn to_files(world: &World) {
    world.catch_up().unwrap();
    world.index.flush().unwrap();
    world.index.merge().unwrap();
}

/// Removes the index and makes another one.
fn make_again(world: &mut World, first: u64) {
    let other = reader(world, LITTLE);
    drop(std::mem::replace(&mut world.index, other));
    for name in world.disk.files() {
        if name.starts_with("index/") && !name.ends_with("LOCK") {
            world.disk.remove(&name).unwrap();
        }
    }
    world.index = ChainIndex::create(disk(world), &world.db, first, LITTLE).unwrap();
}

#[test]
fn a_reader_goes_on_beside_an_index_that_is_made_again() {
    let mut world = World::new(205);
    world.blocks(0..60);
    to_files(&world);
    let reader = reader(&world, LITTLE);
    world.compare(&reader);
    make_again(&mut world, 0);
    world.blocks(0..200);
    to_files(&world);
    world.compare(&reader);
}

#[test]
fn a_reader_goes_on_when_the_writer_has_taken_back_and_removed_files() {
    for seed in cambium_seeds::seeds!(0..4) {
        let mut world = World::new(210 + seed);
        world.blocks(0..200);
        to_files(&world);
        // It has opened none of the files of data yet.
        let reader = reader(&world, IndexOptions::default());
        world.reorganize(60);
        to_files(&world);
        assert!(reader.block(&world.db, 10).unwrap().is_some());
        world.compare(&reader);
    }
}

#[test]
fn a_reader_that_is_far_behind_finds_what_is_in_files_by_now() {
    let mut world = World::new(220);
    world.blocks(0..50);
    to_files(&world);
    let reader = reader(&world, IndexOptions::default());
    world.blocks(0..400);
    to_files(&world);
    world.compare(&reader);
}

#[test]
fn what_is_not_found_is_no_absence_while_older_blocks_are_not_indexed() {
    let mut world = World::new(230);
    world.blocks(0..60);
    make_again(&mut world, 50);
    world.catch_up().unwrap();
    let hash_of = |number: u64| world.db.block_id(number).unwrap().unwrap().hash;
    let found = world.index.find(&world.db, hash_of(10));
    let (missing, oldest) = (0, 50);
    assert!(
        matches!(found, Err(IndexError::Incomplete { missing: m, oldest: o }) if (m, o) == (missing, oldest)),
        "{found:?}"
    );
    assert!(world.index.find(&world.db, hash_of(55)).unwrap().is_some());
}

#[test]
fn a_look_up_keeps_no_receipts_out_of_the_index() {
    let mut world = World::new(240);
    world.blocks(0..100);
    let all = LogFilter {
        topics: [vec![B256::from(U256::from(1))], vec![], vec![], vec![]],
        ..LogFilter::default()
    };
    world.index.find(&world.db, B256::ZERO).unwrap();
    let before = world.index.log_blocks(&world.db, &all, 0..=100).unwrap();
    let mut asked = 0;
    let mut make = |_, _: &_| {
        asked += 1;
        Ok(Some(cambium_index::pack_receipts(&[0xc0])))
    };
    let done = world
        .index
        .catch_up(&world.db, Some(&mut make), &mut |_| true);
    assert!(done.unwrap());
    assert!(asked > 5, "{asked}");
    // Blocks whose receipts were unknown could have any log, and have none now.
    let after = world.index.log_blocks(&world.db, &all, 0..=100).unwrap();
    assert!(after.blocks.len() < before.blocks.len());
}

#[test]
fn a_look_up_from_a_callback_waits_for_nobody() {
    let mut world = World::new(250);
    world.blocks(0..30);
    let (index, db) = (world.index.clone(), world.db.clone());
    let (done, ended) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut make = |id: cambium_primitives::BlockId, _: &_| {
            _ = index.find(&db, id.hash);
            _ = index.flush();
            Ok(None)
        };
        let caught = index.catch_up(&db, Some(&mut make), &mut |progress| {
            let found = index.find(&db, progress.upto.hash).unwrap();
            assert!(found.is_some());
            assert!(!index.catch_up(&db, None, &mut |_| true).unwrap());
            true
        });
        done.send(caught.unwrap()).unwrap();
    });
    assert!(ended.recv_timeout(Duration::from_secs(20)).unwrap());
}

#[test]
fn one_failed_write_is_tried_again() {
    let mut world = World::new(260);
    world.blocks(0..50);
    world
        .disk
        .inject(Fault::FailedWrite, "index/runs.list.tmp", 1);
    let follower = IndexFollower::start(world.index.clone(), world.db.clone());
    world.blocks(0..20);
    thread::sleep(Duration::from_millis(400));
    follower.finish().unwrap();
    assert_eq!(world.index.durable(), Some(world.db.head()));
    let index = world.index.clone();
    world.compare(&index);
}

#[test]
fn a_look_up_writes_nothing_and_needs_little_memory() {
    let mut world = World::new(270);
    to_files(&world);
    let none = IndexOptions {
        memory_bytes: 0,
        ..LITTLE
    };
    let reader = reader(&world, none);
    world.blocks(0..100);
    world.disk.inject(Fault::FailedWrite, "index/", 1_000);
    world.compare(&reader);
    let index = world.index.clone();
    world.compare(&index);
    world.disk.clear_faults();
}

#[test]
fn a_list_that_can_not_be_written_leaves_no_run_behind() {
    let mut world = World::new(280);
    for _ in 0..20 {
        world.blocks(0..8);
        world.catch_up().unwrap();
        world
            .disk
            .inject(Fault::FailedWrite, "index/runs.list.tmp", 1);
        let failed = world.index.flush().and_then(|()| world.index.merge());
        assert!(failed.is_err());
        world.disk.clear_faults();
        world.index.flush().unwrap();
        world
            .disk
            .inject(Fault::FailedWrite, "index/runs.list.tmp", 1);
        _ = world.index.merge();
        world.disk.clear_faults();
        let runs = world.disk.files().into_iter();
        let runs = runs.filter(|name| name.ends_with(".run")).count() as u64;
        assert_eq!(runs, world.index.stats().runs, "no file is left behind");
    }
    let index = world.index.clone();
    world.compare(&index);
}
