//! Where a database is in a stream: notes, epochs, and streams that begin late, end early, or are replaced.

use crate::common::databases::*;
use alloy_primitives::Bytes;
use cambium_cluster::{
    AppendError, BlockUpdate, MemoryStream, Record, Signer, Stream, StreamBounds, StreamError,
    StreamItem, StreamPosition, StreamReader,
};
use cambium_disk::FaultyDisk;
use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

/// Promise: a stream without its beginning is followed, where shards have what it has not.
#[test]
fn an_epoch_far_behind_the_beginning_of_a_stream_is_found() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 3);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    for number in 1..=1_100 {
        builder.append(chosen(number, genesis, genesis, genesis));
    }
    let second = Signer::new(4_093, [1; 32]).unwrap();
    builder.append(Record::from(second.open_epoch(2)).encode());
    for update in &updates {
        let update = second.sign_update(2, update.clone());
        builder.publish(&update);
    }
    let head = updates[2].id();
    let choice = Record::from(second.choose(2, 1, head, genesis, genesis)).encode();
    builder.append(choice);
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 1));
    let node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(
        node.chain().db().head(),
        head,
        "shards have all records of the stream"
    );
}

/// Promise: a database may begin with files or a later state, where shards have not the blocks, and records, before that.
#[test]
fn a_database_that_begins_late_learns_which_epoch_is_open() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, BLOCKS);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&updates, true);
    let node = Node::new(&workload, 7, None, &builder.kept);
    // It has all blocks but the last, as from files.
    for update in &updates[..BLOCKS as usize - 1] {
        node.chain()
            .import_block(update.block_rlp().unwrap(), None)
            .unwrap();
    }
    assert_eq!(node.chain().db().head().number, BLOCKS - 1);
    builder
        .stream
        .remove_before(StreamPosition(builder.tail.0 - 3));
    // Snapshots of shards have taken the place of what their journals had before.
    let first = builder.tail.0 - 3;
    builder
        .kept
        .0
        .lock()
        .1
        .retain(|position, _| *position >= first);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), builder.head());
}

/// Promise: a note that is lost costs reading records again whose blocks are known.
#[test]
fn a_lost_note_and_a_branch_that_has_lost_pass_no_record() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    let mut lost = Vec::new();
    let engine = engine.anew(&workload);
    let mut parent = genesis;
    for mark in 0..6 {
        let update = engine.on(parent, 100 + mark);
        parent = update.id();
        lost.push(signer().sign_update(1, update));
    }
    let engine = engine.anew(&workload);
    let mut parent = genesis;
    let mut won = Vec::new();
    for mark in 0..12 {
        let update = engine.on(parent, mark);
        parent = update.id();
        won.push(signer().sign_update(1, update));
    }
    for update in lost.iter().chain(&won) {
        builder.publish(update);
    }
    let head = won[11].id();
    builder.append(chosen(1, head, won[1].id(), won[1].id()));
    let mut node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), head);
    node.note = FaultyDisk::new(3);
    let followed = node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), head);
    assert_eq!(
        followed.passed, 0,
        "shards have each of these blocks: {followed:?}"
    );
}

/// Promise: a note is only a place in the stream, which may be lost. This one is newer than the database, which was made anew.
#[test]
fn a_note_that_is_ahead_of_its_database_costs_reading_again() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, 4);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    for update in &updates[..3] {
        builder.publish(&signer().sign_update(1, update.clone()));
    }
    let id = |number: usize| updates[number - 1].id();
    builder.append(chosen(1, id(3), genesis, genesis));
    let mut node = Node::new(&workload, 7, None, &Kept::default());
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), id(3));
    let note = node.note.duplicate();
    node = Node::new(&workload, 9, None, &Kept::default());
    node.note = note;
    builder.publish(&signer().sign_update(1, updates[3].clone()));
    builder.append(chosen(2, id(4), genesis, genesis));
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), id(4), "the stream has all of it");
}

/// A note is only a place in the stream.
#[test]
fn a_damaged_note_costs_reading_again() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&engine.updates(1, BLOCKS), false);
    builder.choose();
    let node = Node::new(&workload, 5, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    let head = builder.head();
    assert_eq!(node.chain().db().head(), head);
    let is_read_anew = |what: &str| {
        node.follow(|database| {
            assert_eq!(database.state().position, StreamPosition(0), "{what}");
            let trouble = database.followed().trouble.as_ref().unwrap();
            assert!(trouble.contains("damaged"), "{what}: {trouble}");
        });
    };
    let note = node.note.contents("follower").unwrap();
    for byte in 0..note.len() as u64 {
        node.note.flip_bit("follower", byte, (byte % 8) as u8);
        is_read_anew(&format!("byte {byte}"));
        node.note.flip_bit("follower", byte, (byte % 8) as u8);
    }
    // A device that can't read it is the same.
    for (offset, len) in [(0, note.len()), (9, 1), (note.len() as u64 - 1, 1)] {
        node.note.spoil("follower", offset, len);
        is_read_anew(&format!("{len} bytes from {offset}"));
        node.read(&builder.stream, u64::MAX);
        assert_eq!(node.chain().db().head(), head);
        node.follow(|database| assert_eq!(database.state().position, builder.tail));
    }
}

/// Promise: a stream that has lost its end, or is another one, is noticed, and is read again.
#[test]
fn a_stream_that_is_replaced_is_followed() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let genesis = engine.chain.db().genesis();
    let updates = engine.updates(1, 6);
    // What a builder publishes that knows of four of the blocks.
    let mut others: Vec<BlockUpdate> = Vec::new();
    for mark in 0..2 {
        let parent = others.last().map_or(updates[3].id(), BlockUpdate::id);
        others.push(engine.on(parent, mark));
    }
    for lost in [Some(1), Some(2), Some(12), None] {
        let mut builder = Builder::new(genesis);
        builder.publish_all(&updates, true);
        let node = Node::new(&workload, 1, None, &builder.kept);
        node.read(&builder.stream, u64::MAX);
        assert_eq!(node.chain().db().head(), updates[5].id());
        let (before, choices) = (builder.tail, builder.choices);
        match lost {
            Some(count) => assert_eq!(builder.stream.lose_last(count), count),
            None => builder = Builder::new(genesis),
        }
        builder.choices = choices;
        builder.chain.truncate(1);
        if lost.is_none_or(|count| count > 4) {
            builder.publish_all(&updates[..4], false);
        } else {
            builder
                .chain
                .extend(updates[..4].iter().map(BlockUpdate::id));
        }
        builder.publish_all(&others, false);
        builder.choose();
        if lost.is_none() {
            assert!(builder.tail < before, "it is shorter");
        }
        let fresh = Node::new(&workload, 9, None, &builder.kept);
        for node in [&node, &fresh] {
            node.read(&builder.stream, u64::MAX);
            assert_eq!(node.chain().db().head(), others[1].id(), "{lost:?} lost");
            let finalized = node.chain().db().finality().finalized;
            assert_eq!(finalized, Some(updates[1].id()), "{lost:?} lost");
            node.follow(|database| assert_eq!(database.state().position, builder.tail));
        }
    }
}

/// Promise: every follower ends at the builder's head, also where it was unwound.
#[test]
fn a_database_that_was_unwound_follows_on() {
    let blocks = 150;
    let workload = workload_of(blocks, 1);
    let engine = Engine::new(&workload);
    let updates = engine.updates(1, blocks);
    let genesis = engine.chain.db().genesis();
    let mut builder = Builder::new(genesis);
    let mut last = genesis;
    for (at, update) in updates[..blocks as usize - 1].iter().enumerate() {
        builder.publish(&signer().sign_update(1, update.clone()));
        last = update.id();
        builder.append(chosen(1 + at as u64, last, genesis, genesis));
    }
    let mut node = Node::new(&workload, 7, None, &Kept::default());
    node.read(&builder.stream, u64::MAX);
    assert_eq!(node.chain().db().head(), last);
    node.chain().db().flush(0).unwrap();
    node.chain().db().unwind(5).unwrap();
    node.chain().db().flush(0).unwrap();
    node.crash();
    let update = updates.last().unwrap();
    builder.publish(&signer().sign_update(1, update.clone()));
    builder.append(chosen(blocks, update.id(), genesis, genesis));
    node.read(&builder.stream, u64::MAX);
    assert_eq!(
        node.chain().db().head(),
        update.id(),
        "the stream has all of it"
    );
}

/// Promise: a record that the stream can't read is a hole. It does not make the stream another one.
#[test]
fn a_stream_whose_last_record_is_unreadable_is_not_taken_for_another_one() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&engine.updates(1, 3), false);
    builder.stream.damage(builder.tail, None);
    let node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    assert!(node.chain().db().has(engine.updates(3, 3)[0].id()).unwrap());
    let never = AtomicBool::new(false);
    node.follow(|database| {
        assert_eq!(database.state().position, builder.tail);
        let mut troubles = Vec::new();
        let run = database.run(&builder.stream, &never, &mut |database, is_idle| {
            troubles.extend(database.followed().trouble.clone());
            is_idle
        });
        run.unwrap();
        let trouble = troubles.join("; ");
        assert!(!trouble.contains("another one"), "{trouble}");
    });
}

/// A stream whose records come after a while, as over a slow network.
struct Late(MemoryStream, Duration);

impl Stream for Late {
    fn append(
        &self,
        record: &Bytes,
        id: &str,
        last: StreamPosition,
    ) -> Result<StreamPosition, AppendError> {
        self.0.append(record, id, last)
    }

    fn bounds(&self) -> Result<StreamBounds, StreamError> {
        self.0.bounds()
    }

    fn reader(&self, from: StreamPosition) -> Result<Box<dyn StreamReader>, StreamError> {
        Ok(Box::new(LateReader(
            self.0.reader(from)?,
            self.1,
            Instant::now(),
        )))
    }

    fn pause(&self, attempt: u32) {
        self.0.pause(attempt);
    }
}

struct LateReader(Box<dyn StreamReader>, Duration, Instant);

impl StreamReader for LateReader {
    fn next(&mut self, wait: Duration) -> Result<Option<StreamItem>, StreamError> {
        let left = self.1.saturating_sub(self.2.elapsed());
        thread::sleep(left.min(wait));
        if left > wait {
            return Ok(None);
        }
        self.0.next(wait)
    }
}

/// Promise: a stream that has lost what it acknowledged is noticed. One that is slow has lost nothing.
#[test]
fn a_slow_stream_is_not_taken_for_another_one() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&engine.updates(1, 3), false);
    let node = Node::new(&workload, 7, None, &builder.kept);
    node.read(&builder.stream, u64::MAX);
    let late = Late(builder.stream.clone(), Duration::from_millis(300));
    let never = AtomicBool::new(false);
    node.follow(|database| {
        let mut idle = 0;
        let run = database.run(&late, &never, &mut |_, is_idle| {
            idle += u64::from(is_idle);
            idle > 5
        });
        run.unwrap();
        assert_eq!(database.followed().trouble, None);
    });
}

/// As `cambium import --follow --once` does: promise is that it ends once all that is published is there.
#[test]
fn once_ends_where_a_stream_has_nothing_any_more() {
    let workload = workload();
    let engine = Engine::new(&workload);
    let mut builder = Builder::new(engine.chain.db().genesis());
    builder.publish_all(&engine.updates(1, 3), false);
    builder.stream.remove_before(builder.tail.next());
    assert_eq!(builder.stream.bounds().unwrap().last, builder.tail);
    let node = Node::new(&workload, 7, None, &builder.kept);
    let never = AtomicBool::new(false);
    let (mut idle, mut ended) = (0, false);
    node.follow(|database| {
        let run = database.run(&builder.stream, &never, &mut |database, is_idle| {
            ended = is_idle && database.is_at_the_end(&builder.stream);
            idle += u64::from(is_idle);
            ended || idle > 10
        });
        run.unwrap();
    });
    assert!(ended, "nothing more will come, and it would wait for ever");
}
