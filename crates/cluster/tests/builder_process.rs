//! The process of a builder beside shards that are slow, and behind a stream that loses what it has acknowledged.

use crate::{
    common::{databases, together},
    nats_files::Genesis,
};
use cambium_cluster::{
    Builder, BuilderOptions, BuilderProcess, BuilderProcessError, Incomplete, MemoryStream,
    MetricsHost, MetricsPage, Paused, Publisher, Reader, Record, Shard, ShardHost, ShardProcess,
    ShardProgress, Stream, StreamPosition,
};
use cambium_primitives::BlockId;
use cambium_testkit::exposition::Exposition;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A builder of empty blocks, with a shard that has all of them.
struct Own {
    process: BuilderProcess<MemoryStream>,
    shard: Arc<Shard>,
}

impl Own {
    fn new(genesis: &Genesis, stream: &MemoryStream, epoch: u64, ahead_max: u64) -> Self {
        let signer = databases::signer();
        let mut publisher = Publisher::new(stream.clone(), databases::keys(), epoch).unwrap();
        let record = Record::from(signer.open_epoch(epoch));
        publisher.publish(&record).unwrap();
        let shard = genesis.shard();
        let reader = Reader::new(together(&[Arc::clone(&shard)]), &genesis.header, 1, 0);
        let (spec, header) = (genesis.spec.clone(), genesis.header.clone());
        let depth = shard.range().depth();
        let builder = Builder::new(reader, spec.clone(), depth, Incomplete::Fetch);
        let options = BuilderOptions {
            ahead_max,
            ..BuilderOptions::default()
        };
        let process = BuilderProcess::new(builder, header, spec, signer, publisher, epoch, options);
        Self { process, shard }
    }

    fn build(&self) -> BlockId {
        let (built, _) = self.process.build(0).unwrap();
        self.shard.apply(built.id, &built.update).unwrap();
        built.id
    }

    fn page(&self) -> Exposition {
        page(&self.process)
    }
}

fn page(host: &dyn MetricsHost) -> Exposition {
    let mut page = MetricsPage::default();
    host.report(&mut page);
    Exposition::parse(&page.to_string()).unwrap()
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn at(newest: u64) -> Option<ShardProgress> {
    Some(ShardProgress {
        newest,
        position: StreamPosition(0),
    })
}

fn records(stream: &MemoryStream) -> Vec<Record> {
    let mut reader = stream.reader(StreamPosition(1)).unwrap();
    let mut records = Vec::new();
    while let Some(item) = reader.next(Duration::ZERO).unwrap() {
        records.push(Record::decode(&item.record.unwrap()).unwrap());
    }
    records
}

#[test]
fn a_builder_pauses_while_a_shard_is_too_far_behind() {
    let genesis = Genesis::new();
    let stream = MemoryStream::new();
    let own = Own::new(&genesis, &stream, 1, 3);
    // Nobody has said where the shards are.
    for _ in 0..5 {
        own.build();
    }
    assert_eq!(own.process.paused(), None);
    assert_eq!(own.process.ready(), Ok(()));

    own.process.note_shards(&[at(5), at(2), at(4), None]);
    let paused = Paused {
        shard: 1,
        newest: 2,
        head: 5,
        ahead_max: 3,
    };
    assert_eq!(own.process.paused(), Some(paused));
    let before = stream.bounds().unwrap();
    let error = own.process.build(0).unwrap_err();
    assert!(matches!(error, BuilderProcessError::Paused(it) if it == paused));
    assert!(error.is_passing());
    let why = own.process.ready().unwrap_err();
    let expected = "no replica of shard 1 is beyond block 2, and the head is 5";
    assert!(why.contains(expected), "{why}");
    assert_eq!(stream.bounds().unwrap(), before);
    for (name, value) in [
        ("cambium_builder_ahead_blocks", 3.0),
        ("cambium_builder_paused", 1.0),
        ("cambium_builder_pauses_total", 1.0),
        ("cambium_builder_head_block", 5.0),
    ] {
        assert_eq!(own.page().value(name, &[]), value, "{name}");
    }

    // A shard that does not answer is where it was.
    own.process.note_shards(&[at(5), None, at(5), None]);
    assert_eq!(own.process.paused(), Some(paused));
    own.process.note_shards(&[at(5), at(3), at(5), None]);
    assert_eq!(own.process.paused(), None);
    assert_eq!(own.build().number, 6);
    assert!(own.process.build(0).is_err());
    own.process.note_shards(&[at(6), at(6), at(6), at(6)]);
    assert_eq!(own.build().number, 7);
    for (name, value) in [
        ("cambium_builder_ahead_blocks", 1.0),
        ("cambium_builder_paused", 0.0),
        ("cambium_builder_pauses_total", 2.0),
    ] {
        own.process.paused();
        assert_eq!(own.page().value(name, &[]), value, "{name}");
    }
}

/// The stream loses the record of the builder's epoch, and all behind it.
#[test]
fn a_builder_opens_its_epoch_again_in_a_stream_that_has_lost_it() {
    let genesis = Genesis::new();
    let stream = MemoryStream::new();
    let own = Own::new(&genesis, &stream, 4, 100);
    let blocks: Vec<_> = (0..3).map(|_| own.build()).collect();
    assert_eq!(stream.lose_last(100), 7);
    let last = own.build();
    let all = records(&stream);
    assert!(matches!(&all[0], Record::Epoch(epoch) if epoch.number == 4));
    let updates = all.iter().filter_map(|record| match record {
        Record::Update(update) => Some(update.id()),
        _ => None,
    });
    let updates: Vec<_> = updates.collect();
    assert_eq!(updates, [&blocks[..], &[last]].concat());
    let replica = genesis.replica(Vec::new());
    follow(&replica, &stream, || replica.head() == Some(last));
}

/// Lets a replica follow a stream until something is so.
fn follow(replica: &ShardProcess, stream: &MemoryStream, is_so: impl Fn() -> bool) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let following = scope.spawn(|| replica.run(stream, &stop));
        let start = Instant::now();
        while !is_so() && start.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        following.join().unwrap().unwrap();
    });
    assert!(is_so(), "{:?}", replica.status());
}

/// The end of a stream is lost while a shard waits at it; then another builder opens an epoch, at a position that the shard has passed.
#[test]
fn a_shard_notices_that_the_stream_has_gone_back_while_it_waits() {
    let genesis = Genesis::new();
    let stream = MemoryStream::new();
    let first = Own::new(&genesis, &stream, 1, 100);
    let blocks: Vec<_> = (0..4).map(|_| first.build()).collect();
    let replica = genesis.replica(Vec::new());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| replica.run(&stream, &stop).unwrap());
        eventually("blocks", || replica.head() == blocks.last().copied());
        stream.lose_last(3);
        let rewinds = || page(&*replica).value("cambium_stream_rewinds_total", &[]);
        eventually("that records are lost", || rewinds() >= 1.0);
        let second = Own::new(&genesis, &stream, 2, 100);
        // The same blocks, of another epoch.
        let own: Vec<_> = (0..6).map(|_| second.build()).collect();
        assert_eq!(own[..4], blocks);
        eventually("the blocks of the other builder", || {
            replica.head() == own.last().copied()
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(replica.status().epoch, 2);
}

/// A block is lost in the stream before any shard has read it: the builder finds that shards lack it, and publishes it again.
#[test]
fn what_no_shard_has_read_is_published_again() {
    let genesis = Genesis::new();
    let stream = MemoryStream::new();
    let own = Own::new(&genesis, &stream, 1, 100);
    let blocks: Vec<_> = (0..3).map(|_| own.build()).collect();
    // The update of the second block.
    stream.damage(StreamPosition(4), None);
    let replica = genesis.replica_with(Vec::new(), Duration::from_millis(1));
    let end = stream.bounds().unwrap().last;
    follow(&replica, &stream, || replica.status().position >= end.0);
    let newest = || replica.shard().unwrap().stats().newest;
    assert_eq!(newest(), blocks[0]);
    let start = Instant::now();
    while stream.bounds().unwrap().last == end {
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "nothing is published again"
        );
        own.process.note_shards(&[Some(ShardProgress {
            newest: newest().number,
            position: StreamPosition(replica.status().position),
        })]);
        own.process.publish().unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    follow(&replica, &stream, || newest() == blocks[2]);
    // Not again at once.
    let end = stream.bounds().unwrap().last;
    let stuck = ShardProgress {
        newest: 1,
        position: end,
    };
    own.process.note_shards(&[Some(stuck)]);
    own.process.publish().unwrap();
    assert_eq!(stream.bounds().unwrap().last, end);
}
