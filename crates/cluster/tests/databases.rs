//! Full and partial databases that follow a stream: on faulty disks, behind a faulty stream, with branches that compete, records that are
//! lost, and builders that lie.

use crate::common::{databases::*, stream::item};
use alloy_primitives::Bytes;
use cambium_cluster::{BlockUpdate, FollowError, Record, Signer, StreamPosition, Taken};
use cambium_disk::FaultyDisk;
use cambium_seeds::{Random, seeds};
use std::sync::atomic::AtomicBool;

#[test]
fn databases_follow_a_stream_through_faults_and_branches() {
    let workload = workload();
    let first_engine = Engine::new(&workload);
    let genesis = first_engine.chain.db().genesis();
    let (mut reorganized, mut crashes) = (0, 0);
    for seed in seeds!(0..30) {
        let random = &mut Random::new(seed);
        let mut builder = Builder::new(genesis);
        builder.faults = Some(Random::new(random.next()));
        let kept = builder.kept.clone();
        let (none, token) = (all_but_the_token(), with_the_token());
        let mut nodes = [None, Some(&none), Some(&token)]
            .map(|storage| Node::new(&workload, random.next(), storage, &kept));
        let engine = first_engine.anew(&workload);
        let mut marks = 0;
        while builder.chain.len() <= BLOCKS as usize {
            // Another branch from somewhere above what is final.
            let length = builder.chain.len();
            if length > 3 && random.percent(20) {
                builder
                    .chain
                    .truncate(length - 1 - random.below(2) as usize);
                reorganized += 1;
            }
            marks += 1;
            let parent = *builder.chain.last().unwrap();
            let signed = signer().sign_update(1, engine.on(parent, marks));
            builder.chain.push(signed.id());
            builder.publish(&signed);
            if random.percent(70) {
                builder.choose();
            }
            for node in &mut nodes {
                match random.below(8) {
                    0 => {
                        node.crash();
                        crashes += 1;
                    }
                    1 => node.note = FaultyDisk::new(random.next()),
                    2 => {}
                    _ => node.read(&builder.stream, 1 + random.below(6)),
                }
            }
        }
        builder.faults = None;
        builder.choose();
        for (at, node) in nodes.iter_mut().enumerate() {
            node.read(&builder.stream, u64::MAX);
            if random.percent(50) {
                node.crash();
                crashes += 1;
            }
            let chain = node.chain();
            assert_eq!(
                chain.db().head(),
                *builder.chain.last().unwrap(),
                "seed {seed}, node {at}"
            );
            let root = chain.db().view().unwrap().state_root();
            let last = engine.chain.block(BLOCKS).unwrap();
            assert_eq!(root, last.header.state_root);
            for id in &builder.chain[1..] {
                let number = id.number as usize;
                let block = chain.block(id.number).unwrap();
                let own = engine.chain.block(id.number).unwrap();
                assert_eq!(block.header.hash_slow(), id.hash, "seed {seed}, node {at}");
                assert_eq!(block.body, own.body, "block {number}");
            }
            let finality = chain.db().finality();
            let below = builder.chain.len() - 1 - 4;
            assert_eq!(finality.finalized, Some(builder.chain[below]));
        }
    }
    eprintln!("  {reorganized} times another branch, {crashes} losses of power");
    assert!(reorganized > 0 && crashes > 0);
}

/// A stream whose beginning was removed: what is before comes from shards, by hash.
#[test]
fn a_database_that_is_behind_the_stream_gets_blocks_by_hash() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, BLOCKS);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in &updates {
        let signed = signer().sign_update(1, update.clone());
        builder.chain.push(signed.id());
        builder.publish(&signed);
        builder.choose();
    }
    // What opens the epoch is gone as well, and shards have it.
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    let node = Node::new(&workload, 7, None, &builder.kept);
    let never = AtomicBool::new(false);
    let followed = node.follow(|database| {
        let run = database.run(&builder.stream, &never, &mut |_, is_idle| is_idle);
        run.unwrap();
        database.followed().clone()
    });
    assert_eq!(node.chain().db().head(), *builder.chain.last().unwrap());
    assert_eq!(followed.blocks, BLOCKS);
    assert!(followed.fetched >= BLOCKS - 1, "{followed:?}");

    // Where nobody has them, the record is passed, and that is said.
    let nobody = Node::new(&workload, 8, None, &Kept::default());
    let epoch = item(
        builder.tail.0 + 1,
        Record::from(signer().open_epoch(2)).encode(),
    );
    let orphan = signer().sign_update(2, updates[9].clone());
    let orphan = item(builder.tail.0 + 2, Record::from(orphan).encode());
    nobody.follow(|database| {
        assert_eq!(database.take(&epoch).unwrap(), Taken::Judged);
        let waits = database.take(&orphan).unwrap();
        assert_eq!(waits, Taken::Waits(updates[8].id().hash));
    });
    nobody.read(&builder.stream, u64::MAX);
    nobody.follow(|database| assert_eq!(database.state().position, builder.tail));
}

#[test]
fn false_updates_are_refused_and_what_is_left_out_is_said() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, BLOCKS);
    for storage in [None, Some(all_but_the_token()), Some(with_the_token())] {
        let node = Node::new(&workload, 3, storage.as_ref(), &Kept::default());
        let before = node.chain().db().head();
        node.follow(|database| {
            let mut position = 0;
            let mut take = |record: Vec<u8>| {
                position += 1;
                database.take(&item(position, record))
            };
            take(Record::from(signer().open_epoch(1)).encode()).unwrap();
            let signed =
                |update: BlockUpdate| Record::from(signer().sign_update(1, update)).encode();
            // The changes of another block, or none at all.
            let mut false_changes = updates[0].clone();
            false_changes.changes = updates[1].changes.clone();
            assert_eq!(take(signed(false_changes)).unwrap(), Taken::Judged);
            let mut no_changes = marked(&updates[0], 1);
            no_changes.changes = Default::default();
            assert_eq!(take(signed(no_changes)).unwrap(), Taken::Judged);
            // The transactions of another block.
            let mut false_body = marked(&updates[0], 2);
            false_body.body = updates[1].body.clone();
            assert_eq!(take(signed(false_body)).unwrap(), Taken::Judged);
            // No block at all.
            let mut cut = marked(&updates[0], 3);
            cut.body = cut.body.slice(..cut.body.len() / 2);
            assert_eq!(take(signed(cut)).unwrap(), Taken::Judged);
            let mut trailing = marked(&updates[0], 4);
            trailing.body = [&trailing.body[..], &[0x80]].concat().into();
            assert_eq!(take(signed(trailing)).unwrap(), Taken::Judged);
            // None of them is there, so a choice of one comes to nothing, and one of another block waits for it.
            let choose =
                |number, head| Record::from(signer().choose(1, number, head, before, before));
            let refused = take(choose(1, updates[0].id()).encode()).unwrap();
            assert_eq!(refused, Taken::Judged);
            let waits = take(choose(2, updates[5].id()).encode()).unwrap();
            assert_eq!(waits, Taken::Waits(updates[5].id().hash));
            let mut bare = marked(&updates[0], 5);
            bare.body = Bytes::new();
            let error = take(signed(bare)).unwrap_err();
            assert!(matches!(error, FollowError::NoBody(_)), "{error}");
            assert!(error.to_string().contains("--no-bodies"));
            assert_eq!(database.followed().refused, 5);
            assert_eq!(database.followed().blocks, 0);
        });
        assert_eq!(node.chain().db().head(), before);
        // Whoever is not configured is not believed.
        let stranger = Signer::new(4_093, [9; 32]).unwrap();
        node.follow(|database| {
            let record = Record::from(stranger.sign_update(1, updates[0].clone())).encode();
            database.take(&item(1, record)).unwrap();
            assert_eq!(database.followed().blocks, 0);
            assert!(database.followed().trouble.is_some());
        });
    }
}

/// A note is only a place in the stream.
#[test]
fn a_damaged_note_costs_reading_again() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, BLOCKS);
    let mut builder = Builder::new(engine.chain.db().genesis());
    for update in &updates {
        let signed = signer().sign_update(1, update.clone());
        builder.chain.push(signed.id());
        builder.publish(&signed);
    }
    builder.choose();
    let node = Node::new(&workload, 5, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    let head = *builder.chain.last().unwrap();
    assert_eq!(node.chain().db().head(), head);
    let note = node.note.contents("follower").unwrap();
    for byte in 0..note.len() as u64 {
        node.note.flip_bit("follower", byte, (byte % 8) as u8);
        node.follow(|database| {
            assert_eq!(database.state().position, StreamPosition(0), "byte {byte}");
            assert!(
                database
                    .followed()
                    .trouble
                    .as_ref()
                    .unwrap()
                    .contains("damaged")
            );
        });
        node.note.flip_bit("follower", byte, (byte % 8) as u8);
    }
    node.note.flip_bit("follower", 9, 1);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), head);
    node.follow(|database| assert_eq!(database.state().position, builder.tail));
}
