//! The stream, leases and snapshots on real NATS servers, which are killed.

use crate::common::{
    nats::options,
    stream::{bare_update, first_block, keys, signer},
};
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_cluster::{
    AppendError, Follower, FollowerState, Member, Nats, NatsError, NatsOptions, NatsStream,
    Placement, Publisher, Record, SnapshotPointer, Stream, StreamItem, StreamPosition, Verdict,
};
use cambium_primitives::BlockId;
use cambium_testkit::NatsServers;
use futures_util::TryStreamExt;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

const SOON: Duration = Duration::from_secs(5);

/// Tries until the servers answer.
fn eventually<T, E: std::fmt::Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let start = Instant::now();
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) if start.elapsed() > Duration::from_secs(20) => panic!("{what}: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn connect(options: &NatsOptions) -> Nats {
    eventually("connecting", || Nats::connect(options.clone()))
}

/// Bytes that are different at each place.
fn noise(seed: u64, length: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(length + 32);
    let mut hash = keccak256(seed.to_be_bytes());
    while bytes.len() < length {
        bytes.extend_from_slice(&hash.0);
        hash = keccak256(hash);
    }
    bytes.truncate(length);
    bytes.into()
}

fn items(stream: &NatsStream, from: u64, count: usize) -> Vec<StreamItem> {
    let mut reader = stream.reader(StreamPosition(from)).unwrap();
    let items = (0..count).map(|_| reader.next(SOON).unwrap().expect("an item"));
    let items = items.collect();
    assert_eq!(reader.next(Duration::ZERO).unwrap(), None);
    items
}

#[test]
fn records_of_any_length_are_appended_once_behind_the_expected_tail() {
    let Some(servers) = NatsServers::start(1) else {
        return;
    };
    let options = options(&servers);
    let nats = connect(&options);
    let stream = eventually("making a stream", || nats.stream());
    let bounds = stream.bounds().unwrap();
    assert_eq!((bounds.first.0, bounds.last.0), (1, 0));
    let at = StreamPosition;
    // One message, several, and exactly two.
    let lengths = [100, 700_000, 64 << 10, 128 << 10, (64 << 10) + 1, 1];
    let records: Vec<_> = (0..)
        .zip(lengths)
        .map(|(seed, length)| noise(seed, length))
        .collect();
    let expected = [(1, 1), (2, 12), (13, 13), (14, 15), (16, 17), (18, 18)];
    let mut tail = at(0);
    for (record, (_, last)) in records.iter().zip(expected) {
        let id = keccak256(record).to_string();
        // Behind another tail nothing is appended, not even a part.
        let wrong = stream.append(record, &id, at(tail.0 + 1)).unwrap_err();
        assert!(matches!(wrong, AppendError::OtherTail), "{wrong}");
        assert_eq!(stream.bounds().unwrap().last, tail);
        tail = stream.append(record, &id, tail).unwrap();
        assert_eq!(tail, at(last));
        // The same once more: the tail is another one, or the id is known.
        let again = stream.append(record, &id, at(tail.0 - 1)).unwrap_err();
        assert!(
            matches!(again, AppendError::OtherTail | AppendError::Duplicate),
            "{again}"
        );
        let again = stream.append(record, &id, tail).unwrap_err();
        assert!(matches!(again, AppendError::Duplicate), "{again}");
        assert_eq!(stream.bounds().unwrap().last, tail);
    }
    let all: Vec<_> = records
        .iter()
        .zip(expected)
        .map(|(record, (first, last))| StreamItem {
            first: at(first),
            position: at(last),
            record: Some(record.clone()),
        })
        .collect();
    assert_eq!(items(&stream, 1, 6), all);
    assert_eq!(items(&stream, 13, 4), all[2..]);
    // From within a record it is read from its first position on.
    for from in [2, 3, 7, 12] {
        assert_eq!(items(&stream, from, 5), all[1..]);
    }
    // A reader waits for what is appended later.
    let mut reader = stream.reader(at(19)).unwrap();
    assert_eq!(reader.next(Duration::from_millis(300)).unwrap(), None);
    let late = noise(9, 10);
    stream.append(&late, "late", tail).unwrap();
    assert_eq!(
        reader.next(SOON).unwrap(),
        Some(StreamItem::new(at(19), late))
    );
    // Old records are removed, and a reader begins with what is there.
    stream.remove_before(at(14)).unwrap();
    assert_eq!(stream.bounds().unwrap().first, at(14));
    let mut reader = stream.reader(at(1)).unwrap();
    assert_eq!(reader.next(SOON).unwrap().as_ref(), Some(&all[3]));

    // Full.
    let small = NatsOptions {
        name: "small".to_owned(),
        stream_bytes_max: 200_000,
        ..options.clone()
    };
    let small = connect(&small).stream().unwrap();
    let mut tail = at(0);
    let full = loop {
        match small.append(&noise(tail.0, 30_000), &tail.to_string(), tail) {
            Ok(position) => tail = position,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, AppendError::Full(_)), "{full}");
    let full = small.append(&noise(0, 150_000), "long", tail).unwrap_err();
    assert!(matches!(full, AppendError::Full(_)), "{full}");
    assert_eq!(small.bounds().unwrap().last, tail);
    // Another configuration is not changed silently.
    let other = NatsOptions {
        replicas: 3,
        ..options.clone()
    };
    let other = connect(&other).stream().unwrap_err().to_string();
    assert!(other.contains("1 replicas instead of 3"), "{other}");
    let wrong = NatsOptions {
        name: "a.b".to_owned(),
        ..options
    };
    assert!(matches!(Nats::connect(wrong), Err(NatsError::Options(_))));
}

#[test]
fn epochs_members_placement_and_snapshots_are_changed_by_one_at_a_time() {
    let Some(servers) = NatsServers::start(1) else {
        return;
    };
    let options = NatsOptions {
        lease: Duration::from_secs(2),
        ..options(&servers)
    };
    let nats = connect(&options);
    let registry = eventually("making buckets", || nats.registry());
    assert_eq!(registry.epoch().unwrap(), None);
    let (one, two) = (signer(1).address(), signer(2).address());
    assert_eq!(registry.win_epoch(one, 0).unwrap(), Some(1));
    // The stream knows of a higher one.
    assert_eq!(registry.win_epoch(two, 7).unwrap(), Some(8));
    assert_eq!(registry.epoch().unwrap(), Some((8, two)));
    // Of several at once each number has one winner.
    let mut won: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let registry = registry.clone();
                scope.spawn(move || {
                    let won = (0..5).filter_map(|_| registry.win_epoch(one, 0).unwrap());
                    won.collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    won.sort_unstable();
    let expected: Vec<_> = (9..9 + won.len() as u64).collect();
    assert!(won.len() >= 5 && won == expected, "{won:?}");

    let member = |name: &str| Member {
        name: name.to_owned(),
        about: format!("shard at {name}"),
    };
    let mut lease = registry.join(member("a")).unwrap().unwrap();
    assert_eq!(registry.join(member("a")).unwrap(), None);
    let other = registry.join(member("b")).unwrap().unwrap();
    assert_eq!(registry.members().unwrap(), [member("a"), member("b")]);
    registry.leave(other).unwrap();
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(800));
        assert!(registry.renew(&mut lease, "at 7").unwrap());
    }
    let renewed = registry.members().unwrap();
    assert_eq!((renewed.len(), &*renewed[0].about), (1, "at 7"));
    // It is not renewed any more.
    eventually("expiry", || match registry.members().unwrap().len() {
        0 => Ok(()),
        left => Err(left),
    });
    assert!(!registry.renew(&mut lease, "late").unwrap());
    assert!(registry.join(member("a")).unwrap().is_some());

    assert_eq!(registry.placement(3).unwrap(), None);
    let mut placement = Placement {
        epoch: 0,
        replicas: vec!["a".to_owned(), "b".to_owned()],
        revision: 0,
    };
    let mut late = placement.clone();
    assert!(registry.place(3, &mut placement).unwrap());
    assert!(!registry.place(3, &mut late).unwrap());
    assert_eq!(registry.placement(3).unwrap().as_ref(), Some(&placement));
    placement.replicas.reverse();
    assert!(registry.place(3, &mut placement).unwrap());
    assert_eq!(
        (placement.epoch, registry.placement(3).unwrap()),
        (2, Some(placement.clone()))
    );

    let snapshots = nats.snapshots().unwrap();
    assert_eq!(snapshots.newest(1).unwrap(), None);
    let bytes = noise(1, 3_000_000);
    let put = |height: u64, bytes: &Bytes| {
        let block = BlockId::new(height, B256::repeat_byte(height as u8));
        let root = keccak256([height as u8]);
        let state = FollowerState {
            position: StreamPosition(height * 10),
            epoch: 3,
            ..FollowerState::default()
        };
        snapshots
            .put(1, block, root, &state, &mut &bytes[..])
            .unwrap()
    };
    let first = put(5, &bytes);
    assert_eq!(snapshots.newest(1).unwrap().as_ref(), Some(&first));
    assert_eq!(first.state.position, StreamPosition(50));
    assert_eq!((first.bytes, first.digest), (3_000_000, keccak256(&bytes)));
    let second = put(6, &noise(2, 100));
    // An older one does not become the newest.
    assert_eq!(put(4, &noise(3, 10)), second);
    let mut read = Vec::new();
    snapshots.get(&first, &mut read).unwrap();
    assert_eq!(read, bytes);
    let wrong = SnapshotPointer {
        digest: B256::ZERO,
        ..second.clone()
    };
    let refused = snapshots.get(&wrong, &mut Vec::new()).unwrap_err();
    assert!(matches!(refused, NatsError::Snapshot { .. }), "{refused}");
    assert_eq!(snapshots.remove_before(&second).unwrap(), 2);
    let gone = snapshots
        .get(&first, &mut Vec::new())
        .unwrap_err()
        .to_string();
    assert!(gone.ends_with("is damaged: it is not there"), "{gone}");
    snapshots.get(&second, &mut Vec::new()).unwrap();
}

/// Servers that no longer answer for a reader's consumer are asked for another one.
#[test]
fn a_consumer_that_is_lost_is_made_anew() {
    let Some(servers) = NatsServers::start(1) else {
        return;
    };
    let options = options(&servers);
    let nats = connect(&options);
    let stream = eventually("making a stream", || nats.stream());
    let mut reader = stream.reader(StreamPosition(1)).unwrap();
    let mut tail = StreamPosition(0);
    for round in 0..3u64 {
        let record = noise(round, 100);
        tail = stream.append(&record, &round.to_string(), tail).unwrap();
        let item = StreamItem::new(tail, record);
        assert_eq!(reader.next(SOON).unwrap().as_ref(), Some(&item));
        // With nothing left to read the reader keeps its consumer.
        assert_eq!(reader.next(Duration::ZERO).unwrap(), None);
        assert_eq!(remove_consumers(&options), 1, "round {round}");
    }
    let start = Instant::now();
    assert_eq!(reader.next(Duration::from_millis(300)).unwrap(), None);
    assert!(start.elapsed() >= Duration::from_millis(300));
}

/// Removes all consumers of the stream, and returns how many there were.
fn remove_consumers(options: &NatsOptions) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = async_nats::connect(options.urls.clone()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        let stream = context.get_stream(&options.name).await.unwrap();
        let names: Vec<_> = stream.consumer_names().try_collect().await.unwrap();
        for name in &names {
            stream.delete_consumer(name).await.unwrap();
        }
        names.len()
    })
}

/// A builder publishes without pause while the leader is killed, and then all three servers.
#[test]
fn killed_servers_lose_and_double_nothing_that_was_acknowledged() {
    let Some(mut servers) = NatsServers::start(3) else {
        return;
    };
    let options = options(&servers);
    let nats = connect(&options);
    let stream = eventually("making a stream", || nats.stream());
    let registry = eventually("making buckets", || nats.registry());
    let builder = signer(1);
    let epoch = registry.win_epoch(builder.address(), 0).unwrap().unwrap();
    let (stop, published) = (AtomicBool::new(false), AtomicUsize::new(0));
    let reads = AtomicUsize::new(0);
    let start = Instant::now();
    let mut longest = Duration::ZERO;
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let stream = connect(&options).stream().unwrap();
            let mut publisher = Publisher::new(stream, keys(), epoch).unwrap();
            publisher
                .publish(&builder.open_epoch(epoch).into())
                .unwrap();
            let (mut blocks, mut parent) = (Vec::new(), first_block());
            let mut longest = Duration::ZERO;
            while !stop.load(Ordering::Relaxed) {
                let salt = blocks.len() as u64;
                let mut update = bare_update(parent, salt);
                // Every fifth takes several messages.
                let length = if salt.is_multiple_of(5) {
                    200_000
                } else {
                    2_000
                };
                update.header.extra_data = noise(salt, length);
                let record = Record::from(builder.sign_update(epoch, update));
                let began = Instant::now();
                let position = publisher.publish(&record).unwrap();
                longest = longest.max(began.elapsed());
                let Record::Update(update) = record else {
                    unreachable!()
                };
                parent = update.id();
                blocks.push((position, parent));
                published.store(blocks.len(), Ordering::Relaxed);
            }
            (blocks, longest, publisher.retries())
        });
        let reading = scope.spawn(|| {
            let stream = connect(&options).stream().unwrap();
            let mut reader = stream.reader(StreamPosition(1)).unwrap();
            let mut follower = Follower::new(keys(), FollowerState::default());
            let (mut blocks, mut known) = (Vec::new(), first_block().hash);
            let mut quiet = 0;
            // Until nothing more comes for a while after the end.
            while quiet < 3 {
                match reader.next(Duration::from_millis(500)) {
                    Ok(Some(item)) => {
                        quiet = 0;
                        match follower.step(&item, |id| id.hash == known) {
                            Verdict::Apply(update) => {
                                known = update.id().hash;
                                blocks.push((item.position, update.id()));
                                reads.store(blocks.len(), Ordering::Relaxed);
                            }
                            Verdict::Opened(_) => {}
                            other => panic!("{} {other:?}", item.position),
                        }
                    }
                    Ok(None) | Err(_) if stop.load(Ordering::Relaxed) => {
                        let there = stream.bounds().map(|bounds| bounds.last);
                        let is_all = there.is_ok_and(|last| last == follower.state().position);
                        quiet += usize::from(is_all);
                    }
                    Ok(None) | Err(_) => thread::sleep(Duration::from_millis(50)),
                }
                assert!(
                    start.elapsed() < Duration::from_secs(90),
                    "the reader hangs"
                );
            }
            blocks
        });
        let more = |count: usize| {
            let before = published.load(Ordering::Relaxed);
            while published.load(Ordering::Relaxed) < before + count && !writing.is_finished() {
                thread::sleep(Duration::from_millis(20));
            }
        };
        let began = Instant::now();
        more(40);
        println!("40 records in {:?}", began.elapsed());
        let leader = eventually("a leader", || stream.leader());
        let at: usize = leader.unwrap()[1..].parse().unwrap();
        servers.kill(at);
        more(40);
        let after_leader = start.elapsed();
        servers.restart(at);
        more(40);
        (0..servers.count()).for_each(|at| servers.kill(at));
        thread::sleep(Duration::from_millis(300));
        (0..servers.count()).for_each(|at| servers.restart(at));
        more(40);
        stop.store(true, Ordering::Relaxed);
        let (blocks, slowest, retries) = writing.join().unwrap();
        let read = reading.join().unwrap();
        longest = longest.max(slowest);
        println!(
            "{} records, {retries} retries, {after_leader:?} to the recovery from the leader's death, slowest {longest:?}, \
             {:?} in all",
            blocks.len(),
            start.elapsed()
        );
        assert_eq!(read.len(), blocks.len());
        assert_eq!(read, blocks);
    });
    assert_eq!(
        reads.load(Ordering::Relaxed),
        published.load(Ordering::Relaxed)
    );
}

/// Updates of several messages and choices of one, behind each other without waiting; and again behind a record of somebody else.
#[test]
fn records_on_their_way_at_once_are_appended_in_order_and_once() {
    for count in [1, 3] {
        let Some(servers) = NatsServers::start(count) else {
            return;
        };
        let nats = connect(&options(&servers));
        let stream = eventually("making a stream", || nats.stream());
        let signer = signer(1);
        let mut publisher = Publisher::new(nats.stream().unwrap(), keys(), 1).unwrap();
        let epoch = Record::from(signer.open_epoch(1));
        eventually("the epoch", || publisher.publish(&epoch));
        let before = publisher.retries();
        let (mut parent, mut number) = (first_block(), 0);
        let mut batch = || {
            let mut records = Vec::new();
            for _ in 0..4 {
                number += 1;
                let mut update = bare_update(parent, number);
                update.body = noise(number, 150_000);
                let update = signer.sign_update(1, update);
                parent = update.id();
                records.push(Record::from(update));
                records.push(signer.choose(1, number, parent, parent, parent).into());
            }
            records
        };
        let mut all = vec![Bytes::from(epoch.encode())];
        let encoded = |records: &[Record]| {
            let records = records.iter().map(|record| Bytes::from(record.encode()));
            records.collect::<Vec<_>>()
        };
        for _ in 0..3 {
            let records = batch();
            let (done, published) = publisher.publish_all(&records);
            published.unwrap();
            assert_eq!(done, records.len());
            all.extend(encoded(&records));
        }
        assert_eq!(publisher.retries(), before, "one by one on {count} servers");
        let other = noise(99, 100);
        stream.append(&other, "other", publisher.tail()).unwrap();
        all.push(other);
        let records = batch();
        let (done, published) = publisher.publish_all(&records);
        published.unwrap();
        assert_eq!(done, records.len());
        all.extend(encoded(&records));
        let found = items(&stream, 1, all.len());
        let found: Vec<_> = found.into_iter().map(|item| item.record.unwrap()).collect();
        assert!(found == all, "{} records on {count} servers", found.len());
    }
}
