//! Blocks that the stream does not have, from peers that are slow, have a part of them, or lie.

use crate::common::{databases::*, stream::item};
use alloy_primitives::Bytes;
use cambium_cluster::{
    FollowError, MemoryStream, Peer, Record, Shard, ShardLimits, ShardRange, SnapshotError, Stream,
    StreamPosition, Taken, Wanted,
};
use cambium_primitives::{BlockId, Changes};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A peer that counts what it is asked, and has nothing any more after so many questions.
struct Counting {
    of: Kept,
    asked: Arc<AtomicU64>,
    most: u64,
}

impl Peer for Counting {
    fn name(&self) -> String {
        "a peer that counts".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        match self.asked.fetch_add(1, Ordering::Relaxed) < self.most {
            true => self.of.record(wanted),
            false => Ok(None),
        }
    }

    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        self.of.snapshot(range, limits)
    }
}

/// Promise: what is wrong with a record does not hang a follower. Here a header has a false number.
#[test]
fn an_update_with_a_false_number_is_not_judged_forever() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let kept = Kept::of(updates.clone());
    let asked = Arc::new(AtomicU64::new(0));
    let peer = Counting {
        of: kept,
        asked: asked.clone(),
        most: 1_000,
    };
    node.feed_with(vec![Box::new(peer)], |feeding| {
        feeding.take_all(&updates[..2]);
        let mut false_number = updates[2].clone();
        false_number.header.number = 7;
        let taken = feeding.take(signed(false_number));
        assert_eq!(taken.unwrap(), Taken::Judged);
        assert!(feeding.database.followed().blocks <= 3);
    });
    let asked = asked.load(Ordering::Relaxed);
    assert!(
        asked < 10,
        "one record: a peer was asked {asked} times until it had nothing any more"
    );
}

/// Promise: blocks that the stream does not have any more come from the shards' journals, by hash; and every follower ends at the
/// builder's head.
#[test]
fn many_blocks_that_the_stream_has_not_come_by_hash() {
    let blocks = 200;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, blocks);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&updates, true);
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    let kept = builder.kept.clone();
    // Only the epoch comes by position.
    kept.0.lock().1.retain(|position, _| *position == 1);
    for storage in [None, Some(all_but_the_token())] {
        let node = Node::new(&workload, 7, storage.as_ref(), &kept);
        node.read(&builder.stream, u64::MAX);
        assert_eq!(node.chain().db().head(), builder.head());
    }
}

/// A stream whose beginning was removed: what is before comes from shards, by hash.
#[test]
fn a_database_that_is_behind_the_stream_gets_blocks_by_hash() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, BLOCKS);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&updates, true);
    // What opens the epoch is gone as well, and shards have it.
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    let node = Node::new(&workload, 7, None, &builder.kept);
    let followed = node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), builder.head());
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

/// Promise: blocks that the stream does not have any more come from shards.
#[test]
fn more_blocks_than_are_got_at_once_come_by_hash() {
    let blocks = 4_200;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    let engine = engine.anew(&workload);
    builder.make_all(&engine, blocks);
    builder.keep_end();
    let node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), builder.head());
}

/// Promise: what is wrong with a record does not hang a follower.
#[test]
fn a_choice_with_a_false_number_is_not_judged_forever() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let node = Node::new(&workload, 1, None, &Kept::default());
    let genesis = node.chain().db().head();
    let kept = Kept::of(updates.clone());
    let asked = Arc::new(AtomicU64::new(0));
    let peer = Counting {
        of: kept,
        asked: asked.clone(),
        most: 1_000,
    };
    node.feed_with(vec![Box::new(peer)], |feeding| {
        feeding.take_all(&updates);
        let head = BlockId::new(9, updates[2].id().hash);
        let taken = feeding.take(chosen(1, head, genesis, genesis));
        assert_eq!(taken.unwrap(), Taken::Judged);
        assert_eq!(feeding.database.followed().blocks, 3);
    });
    let asked = asked.load(Ordering::Relaxed);
    assert!(
        asked < 10,
        "one record: a peer was asked {asked} times until it had nothing any more"
    );
}

/// Promise: what peers say is verified. One of them has a block as a builder has signed it with --no-bodies, and another one has it whole.
#[test]
fn a_peer_without_bodies_does_not_end_the_follower_where_another_has_them() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&updates, false);
    let head = updates[2].id();
    builder.append(chosen(1, head, head, head));
    builder.keep_end();
    let bare = Kept::of(updates.iter().cloned().map(|mut update| {
        update.body = Bytes::new();
        update
    }));
    // Alone it can't help, whoever is asked after it and has nothing, and that is said.
    let alone = Node::new(&workload, 8, None, &Kept::default());
    let error = alone.feed_with(
        vec![Box::new(bare.clone()), Box::new(Kept::default())],
        |feeding| feeding.take(chosen(1, head, head, head)).unwrap_err(),
    );
    assert!(matches!(error, FollowError::NoBody(_)), "{error}");
    let node = Node::new(&workload, 7, None, &builder.kept);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(bare), Box::new(builder.kept.clone())];
    node.read_with(peers, MOMENT, &builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), head);
}

/// Promise: what peers say is verified. One of them has false updates that a builder has signed, and another one has the true ones.
#[test]
fn a_peer_with_false_updates_does_not_hide_true_ones() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&updates, false);
    let head = updates[2].id();
    builder.append(chosen(1, head, head, head));
    builder.keep_end();
    let lying = Kept::of(updates.iter().cloned().map(|mut update| {
        update.changes = Changes::default();
        update
    }));
    let node = Node::new(&workload, 7, None, &builder.kept);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(lying), Box::new(builder.kept.clone())];
    node.read_with(peers, MOMENT, &builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), head);
}

/// Promise: a hole that hides an epoch is filled by a replica that has it, whatever another one says.
#[test]
fn a_peer_that_answers_with_another_record_does_not_hide_an_epoch() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    builder.publish(&signer().sign_update(1, updates[0].clone()));
    builder.append(Record::from(signer().open_epoch(2)).encode());
    let hole = builder.tail;
    for update in &updates[1..] {
        builder.publish(&signer().sign_update(2, update.clone()));
    }
    let head = updates[2].id();
    let choice = Record::from(signer().choose(2, 1, head, genesis, genesis)).encode();
    builder.append(choice);
    builder.stream.damage(hole, Some(5));
    // It says of each position that an old record is there.
    let liar = Kept::default();
    for position in 0..100 {
        let record = signed(updates[0].clone());
        liar.0.lock().1.insert(position, record.into());
    }
    let node = Node::new(&workload, 7, None, &builder.kept);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(liar), Box::new(builder.kept.clone())];
    node.read_with(peers, MOMENT, &builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), head);
}

/// A peer that takes its time.
struct Slow(Kept, Duration);

impl Peer for Slow {
    fn name(&self) -> String {
        "a slow peer".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        thread::sleep(self.1);
        self.0.record(wanted)
    }

    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        self.0.snapshot(range, limits)
    }
}

/// Promise: a stream is followed until `stop` is set.
#[test]
fn a_follower_that_asks_for_blocks_stops_although_its_peer_is_slow() {
    stops_although_its_peer_is_slow(true);
}

/// Promise: a stream is followed until `stop` is set, also where records of a hole are asked for.
#[test]
fn a_follower_that_asks_for_records_stops_although_its_peer_is_slow() {
    stops_although_its_peer_is_slow(false);
}

fn stops_although_its_peer_is_slow(by_hash: bool) {
    let blocks = 100;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&engine.updates(1, blocks), false);
    let kept = builder.kept.clone();
    let stream = MemoryStream::new();
    let mut all = builder.stream.reader(StreamPosition(1)).unwrap();
    let mut count = 0;
    while let Some(item) = all.next(Duration::ZERO).unwrap() {
        let last = stream.bounds().unwrap().last;
        stream
            .append(&item.record.unwrap(), &count.to_string(), last)
            .unwrap();
        count += 1;
    }
    if by_hash {
        // The second block comes first, which is as if one were missing of a long chain.
        for position in 2..count {
            stream.damage(StreamPosition(position), None);
        }
        kept.0.lock().1.clear();
    } else {
        stream.remove_before(StreamPosition(count - 1));
    }
    let node = Node::new(&workload, 7, None, &kept);
    let stop = AtomicBool::new(false);
    let peers: Vec<Box<dyn Peer>> = vec![Box::new(Slow(kept, Duration::from_millis(100)))];
    let late = node.follow_with(peers, Duration::from_secs(60), |database| {
        thread::scope(|scope| {
            let asked = scope.spawn(|| {
                // In the middle of what it asks the peer for.
                let ms = if by_hash { 100 * blocks + 1_000 } else { 1_000 };
                thread::sleep(Duration::from_millis(ms));
                stop.store(true, Ordering::Relaxed);
                Instant::now()
            });
            database.run(&stream, &stop, &mut |_, _| false).unwrap();
            let ended = Instant::now();
            ended.saturating_duration_since(asked.join().unwrap())
        })
    });
    assert!(
        late < Duration::from_secs(2),
        "by hash: {by_hash}: it went on for {late:?}"
    );
}
