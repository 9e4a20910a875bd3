//! Limits of zero, and huge ones.

use super::world::*;
use crate::small_database::{database, some_changes};
use cambium_history::{History, HistoryError, HistoryOptions, WholeNodes};
use cambium_testkit::{
    Random,
    plain::{self, commit},
};
use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
};

#[test]
fn whatever_the_limits_are_the_states_are_right() {
    let cases = [
        HistoryOptions {
            buffer_bytes: 0,
            ..LITTLE
        },
        HistoryOptions {
            buffer_bytes: usize::MAX,
            ..LITTLE
        },
        HistoryOptions {
            memory_bytes: 0,
            trie_bytes: 0,
            cache_bytes: 0,
            ..LITTLE
        },
        HistoryOptions {
            memory_bytes: u64::MAX,
            trie_bytes: u64::MAX,
            cache_bytes: u64::MAX,
            ..LITTLE
        },
        HistoryOptions {
            keep_blocks: NonZeroU64::new(1),
            ..LITTLE
        },
        HistoryOptions {
            keep_blocks: NonZeroU64::new(u64::MAX),
            ..LITTLE
        },
    ];
    let never = WholeNodes {
        one_of: NonZeroU32::MAX,
    };
    for options in cases {
        for nodes in [None, Some(never)] {
            let mut world = World::with(nodes, 35);
            (0..40).for_each(|_| world.block());
            let world = world.remade(20, nodes, options);
            world.catch_up();
            world.history.flush().unwrap();
            world
                .history
                .extend_down(&world.db, 0, &mut |_| true)
                .unwrap();
            world.history.merge().unwrap();
            let (first, upto) = world.history.blocks();
            (first.number..=upto.number).for_each(|number| world.compare(number));
            world.history.check().unwrap();
        }
    }
}

#[test]
fn an_archive_that_catches_up_with_little_memory_has_few_files() {
    let none = HistoryOptions {
        memory_bytes: 0,
        buffer_bytes: 4096,
        trie_bytes: 1 << 30,
        ..LITTLE
    };
    let world = World::of(45, options(), Some(WholeNodes::ALL), none);
    for at in 0..3_000 {
        plain::commit(
            &world.db,
            vec![plain::put(plain::path(at % 50), at)],
            vec![],
        );
        if at % 500 == 499 {
            world.db.flush(0).unwrap();
        }
    }
    world.catch_up();
    let files = world.history.stats().files;
    assert!((2..=40).contains(&files), "{files} files");
    let on_disk = world.disk.files().into_iter();
    let on_disk = on_disk.filter(|name| name.ends_with(".run")).count();
    assert_eq!(on_disk as u64, files, "no file is left behind");
    let World {
        disk, db, history, ..
    } = world;
    drop(history);
    let history = History::open(Arc::new(disk), &db, none).unwrap();
    for number in [0, 1, 1_499, 2_999] {
        let root = db.block(number).unwrap().unwrap().state_root;
        let view = history.state_at(&db, number).unwrap();
        assert_eq!(view.state_root().unwrap(), root);
    }
}

/// An import may be far ahead of its history, which then says so: what it has is not lost.
#[test]
fn a_state_that_the_history_has_not_reached_is_told_apart_from_one_that_is_gone() {
    let (db, disk) = database();
    let shared = Arc::new(disk);
    let history = History::create(shared, &db, 0, Some(WholeNodes::ALL), LITTLE).unwrap();
    let mut random = Random::new(21);
    for _ in 0..4 {
        commit(&db, some_changes(&mut random, 150), vec![]);
    }
    let known = history.catch_up(&db, &mut |_| true).unwrap();
    for _ in 0..1_500 {
        commit(&db, some_changes(&mut random, 150), vec![]);
    }
    for number in [known.number - 2, known.number, known.number + 5] {
        let refused = history.state_at(&db, number);
        let is_told = matches!(refused, Err(HistoryError::NotYet { number: asked, upto })
            if (asked, upto) == (number, known));
        assert!(is_told, "{number}: {:?}", refused.err());
    }
    history.catch_up(&db, &mut |_| true).unwrap();
    for number in [known.number - 2, known.number, known.number + 5] {
        assert_eq!(
            history.state_at(&db, number).unwrap().block().number,
            number
        );
    }
}
