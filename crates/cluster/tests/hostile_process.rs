//! What a hostile reading of the process of a shard attacked with programs.
#![allow(
    unused,
    clippy::all,
    reason = "they were written to break it, not to be kept"
)]

use crate::common::{
    Keys, Meddling, State,
    stream::{item, keys, signer},
};
use alloy_primitives::{Address, B256, Bytes, map::HashMap};
use cambium_cluster::*;
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::BlockId;
use cambium_seeds::Random;
use parking_lot::Mutex;
use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

fn range() -> ShardRange {
    ShardRange::new(0, 1).unwrap()
}

fn options() -> ProcessOptions {
    ProcessOptions {
        range: range(),
        limits: ShardLimits {
            versions: 10_000,
            ..ShardLimits::default()
        },
        journal: JournalOptions {
            segment_bytes: 4 << 10,
            bytes_max: 64 << 20,
            extend_bytes: 1 << 10,
        },
        snapshot_blocks: 10,
        patience: Duration::from_millis(1),
    }
}

fn open(
    disk: &FaultyDisk,
    peers: Vec<Box<dyn Peer>>,
    options: ProcessOptions,
) -> Result<ShardProcess, ProcessError> {
    ShardProcess::open(
        Arc::new(disk.clone()) as Arc<dyn Disk>,
        keys(),
        peers,
        options,
    )
}

fn push(stream: &MemoryStream, record: impl Into<Record>) -> u64 {
    let bytes = Bytes::from(record.into().encode());
    let last = stream.bounds().unwrap().last;
    stream
        .append(&bytes, &format!("id{}", last.0), last)
        .unwrap()
        .0
}

/// Genesis, and a stream: epoch 1, then `count` blocks, each followed by a choice that makes it final if `finals`.
fn chain(count: u64, finals: bool) -> (State, Vec<State>, MemoryStream) {
    let mut random = Random::new(3);
    let account_keys = Keys::new(&mut random, 10, 4);
    let first = State::genesis();
    let stream = MemoryStream::new();
    push(&stream, signer(1).open_epoch(1));
    let (mut states, mut state) = (Vec::new(), first.clone());
    for salt in 0..count {
        let changes = account_keys.changes(&mut random, &state.model);
        state = state.child(&changes, salt);
        push(&stream, signer(1).sign_update(1, state.update(1)));
        if finals {
            push(
                &stream,
                signer(1).choose(1, salt + 1, state.id, state.id, state.id),
            );
        }
        states.push(state.clone());
    }
    (first, states, stream)
}

/// Takes what the stream has from where the process is.
fn take_all(process: &ShardProcess, stream: &MemoryStream, to: u64) {
    let at = process.status().position;
    let mut reader = stream.reader(StreamPosition(at + 1)).unwrap();
    for _ in at..to {
        let Some(item) = reader.next(Duration::ZERO).unwrap() else {
            break;
        };
        assert_eq!(process.take(&item).unwrap(), Taken::Judged);
    }
    process.sync().unwrap();
}

/// Runs for some time, or until the block is there. Returns whether it is.
fn run_until(
    process: &ShardProcess,
    stream: &MemoryStream,
    block: BlockId,
    max: Duration,
) -> (bool, Result<(), String>) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            process
                .run(stream, &stop)
                .map_err(|error| error.to_string())
        });
        let started = Instant::now();
        let has = || process.shard().unwrap().has(block);
        while !has() && started.elapsed() < max && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
        let result = running.join().unwrap();
        (has(), result)
    })
}

#[test]
fn older_snapshot_goes_on_from_the_stream() {
    let (first, states, stream) = chain(37, true);
    let disk = FaultyDisk::new(5);
    let process = open(&disk, vec![], options()).unwrap();
    process
        .adopt(first.shard(range(), options().limits), &[])
        .unwrap();
    for to in 1..=75 {
        take_all(&process, &stream, to);
        if process.is_snapshot_due() {
            process.write_snapshot().unwrap();
        }
    }
    drop(process);
    let mut names: Vec<_> = disk
        .list("")
        .unwrap()
        .into_iter()
        .filter(|name| name.ends_with(".shard"))
        .collect();
    names.sort();
    println!("{names:?} log {:?}", disk.list("log"));
    let file = disk.open(names.last().unwrap()).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 100).unwrap();
    file.write_at(&[byte[0] ^ 1], 100).unwrap();
    file.sync().unwrap();
    let process = open(&disk, vec![], options()).unwrap();
    println!("status {:?}", process.status());
    let stats = process.shard().unwrap().stats();
    println!(
        "oldest {} newest {} stream {:?}",
        stats.oldest.number,
        stats.newest.number,
        stream.bounds()
    );
    let last = states.last().unwrap().id;
    let (has, result) = run_until(&process, &stream, last, Duration::from_secs(4));
    println!("after run: {:?} {result:?}", process.status());
    assert!(
        has,
        "block {last} is in the stream and was durable, and the shard never has it"
    );
}

#[test]
fn snapshot_beside_one_that_is_sent() {
    let (first, states, stream) = chain(30, true);
    let disk = FaultyDisk::new(6);
    let options = ProcessOptions {
        snapshot_blocks: 1,
        ..options()
    };
    let process = open(&disk, vec![], options.clone()).unwrap();
    process
        .adopt(first.shard(range(), options.limits), &[])
        .unwrap();
    take_all(&process, &stream, 3); // block 8 is final, so that a snapshot is due
    let shard = process.shard().unwrap();
    shard
        .write_snapshot(
            Meddling {
                out: vec![],
                meddle: Some(|| {
                    // a replica loads a snapshot meanwhile
                    take_all(&process, &stream, 61);
                    assert!(process.is_snapshot_due());
                    let block = process.write_snapshot().unwrap();
                    println!("snapshot of {block:?}");
                }),
            },
            &[],
        )
        .unwrap();
    let last = states.last().unwrap().id;
    assert!(shard.has(last));
    process.sync().unwrap();
    drop((process, shard));
    let disk = disk.crash();
    println!("{:?} log {:?}", disk.list(""), disk.list("log"));
    let process = open(&disk, vec![], options).unwrap();
    let stats = process.shard().unwrap().stats();
    println!(
        "{:?} oldest {} newest {}",
        process.status(),
        stats.oldest.number,
        stats.newest.number
    );
    let (has, result) = run_until(&process, &stream, last, Duration::from_secs(4));
    println!("after run: {:?} {result:?}", process.status());
    assert!(has, "durable blocks are lost");
}

#[test]
fn note_while_another_snapshot_is_sent() {
    let (first, states, stream) = chain(30, true);
    let disk = FaultyDisk::new(7);
    let process = open(&disk, vec![], options()).unwrap();
    process
        .adopt(first.shard(range(), options().limits), &[])
        .unwrap();
    let shard = process.shard().unwrap();
    let mut sent = Vec::new();
    shard
        .write_snapshot(
            Meddling {
                out: vec![],
                meddle: Some(|| {
                    take_all(&process, &stream, 59);
                    // as the server does for the second replica
                    let note = process.note();
                    println!(
                        "note {:?}",
                        FollowerState::decode(&note).map(|it| it.position)
                    );
                    sent = shard.write_snapshot(Vec::new(), &note).unwrap();
                }),
            },
            &[],
        )
        .unwrap();
    let replica = open(&FaultyDisk::new(8), vec![], options()).unwrap();
    replica.load(&sent[..]).unwrap();
    println!(
        "replica {:?} oldest {}",
        replica.status(),
        replica.shard().unwrap().stats().oldest.number
    );
    let last = states.last().unwrap().id;
    let (has, _) = run_until(&replica, &stream, last, Duration::from_secs(4));
    println!("after run: {:?}", replica.status());
    assert!(has, "a replica skips blocks that the stream has");
}

#[test]
fn full_then_snapshot_then_crash() {
    let (first, states, stream) = chain(4, true);
    let disk = FaultyDisk::new(9);
    let mut options = options();
    options.limits.versions = 3;
    let process = open(&disk, vec![], options.clone()).unwrap();
    process
        .adopt(first.shard(range(), options.limits), &[])
        .unwrap();
    let shard = process.shard().unwrap();
    shard
        .write_snapshot(
            Meddling {
                out: vec![],
                meddle: Some(|| {
                    take_all(&process, &stream, 5);
                    let item = stream
                        .reader(StreamPosition(6))
                        .unwrap()
                        .next(Duration::ZERO)
                        .unwrap()
                        .unwrap();
                    assert_eq!(process.take(&item).unwrap(), Taken::Full);
                }),
            },
            &[],
        )
        .unwrap();
    // the snapshot that was sent has ended, there is room; before the record is given again, a snapshot is written
    process.write_snapshot().unwrap();
    drop((process, shard));
    let disk = disk.crash();
    let process = open(&disk, vec![], options).unwrap();
    println!("{:?}", process.status());
    let (has, _) = run_until(&process, &stream, states[3].id, Duration::from_secs(4));
    println!("after run: {:?}", process.status());
    assert!(
        has,
        "the block that waited for room was never applied, and is behind the follower"
    );
}

#[test]
fn a_large_hole() {
    let (first, _, _) = chain(0, true);
    let process = open(&FaultyDisk::new(12), vec![], options()).unwrap();
    process
        .adopt(first.shard(range(), options().limits), &[])
        .unwrap();
    let bytes = |record: Record| Bytes::from(record.encode());
    process
        .take(&item(1, bytes(signer(1).open_epoch(1).into())))
        .unwrap();
    let choice = signer(1).choose(1, 1, first.id, first.id, first.id);
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        let taken = process.take(&item(1 << 40, bytes(choice.into())));
        let _ = to.send(format!("{taken:?}"));
    });
    let taken = from.recv_timeout(Duration::from_secs(20));
    println!("{taken:?}");
    assert!(taken.is_ok(), "take does not return");
}

struct Liar(State, FollowerState);
impl Peer for Liar {
    fn name(&self) -> String {
        "liar".into()
    }
    fn record(&self, _: Wanted) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }
    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        let bytes = self
            .0
            .shard(range, limits)
            .write_snapshot(Vec::new(), &self.1.encode())?;
        Shard::read_snapshot(&bytes[..], range, limits)
    }
}

#[test]
fn two_snapshots_at_once() {
    let mut failures = Vec::new();
    for seed in 0..20 {
        let (first, states, stream) = chain(8, true);
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(cambium_disk::StdDisk::new(dir.path()));
        let process = ShardProcess::open(Arc::clone(&disk), keys(), vec![], options()).unwrap();
        process
            .adopt(first.shard(range(), options().limits), &[])
            .unwrap();
        take_all(&process, &stream, 17);
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        process
                            .write_snapshot()
                            .map(drop)
                            .map_err(|error| error.to_string())
                    })
                })
                .collect();
            for one in all {
                if let Err(error) = one.join().unwrap() {
                    failures.push(error);
                }
            }
        });
        drop(process);
        let process = ShardProcess::open(disk, keys(), vec![], options()).unwrap();
        let status = process.status();
        if !status.trouble.is_empty() {
            failures.push(format!("opened again: {}", status.trouble));
        }
    }
    println!("{} failures", failures.len());
    failures.iter().for_each(|failure| println!("  {failure}"));
    assert!(failures.is_empty());
}

struct KeptBlocks(HashMap<B256, Bytes>);
impl Peer for KeptBlocks {
    fn name(&self) -> String {
        "builder".into()
    }
    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        Ok(match wanted {
            Wanted::Block(hash) => self.0.get(&hash).map(|it| it.to_vec()),
            _ => None,
        })
    }
    fn snapshot(&self, _: ShardRange, _: ShardLimits) -> Result<(Shard, Vec<u8>), SnapshotError> {
        Err(SnapshotError::Damaged {
            at: 0,
            what: "none".into(),
        })
    }
}

#[test]
fn a_branch_that_has_lost_costs_patience() {
    let first = State::genesis();
    let (a1, b1) = (first.child(&[], 1), first.child(&[], 2));
    let mut branch = vec![b1];
    for salt in 0..5 {
        let next = branch.last().unwrap().child(&[], 10 + salt);
        branch.push(next);
    }
    let stream = MemoryStream::new();
    push(&stream, signer(1).open_epoch(1));
    let mut kept = HashMap::default();
    for state in branch.iter().chain([&a1]) {
        let update = signer(1).sign_update(1, state.update(1));
        kept.insert(
            state.id.hash,
            Bytes::from(Record::from(update.clone()).encode()),
        );
        push(&stream, update);
    }
    push(&stream, signer(1).choose(1, 1, a1.id, a1.id, a1.id));
    // a shard that starts from the final block reads the stream from its beginning, as after `cluster init` or a rewind
    let patience = Duration::from_secs(2);
    let process = open(
        &FaultyDisk::new(15),
        vec![Box::new(KeptBlocks(kept))],
        ProcessOptions {
            patience,
            ..options()
        },
    )
    .unwrap();
    process
        .adopt(a1.shard(range(), options().limits), &[])
        .unwrap();
    let stop = AtomicBool::new(false);
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| process.run(&stream, &stop));
        while process.head() != Some(a1.id) && started.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!(
        "took {:?} with patience {patience:?}: {:?}",
        started.elapsed(),
        process.status()
    );
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "each block of a branch that lost is waited for"
    );
}

#[test]
fn trimmed_stream_without_the_epoch() {
    let (first, states, stream) = chain(6, true);
    stream.remove_before(StreamPosition(2));
    let process = open(&FaultyDisk::new(16), vec![], options()).unwrap();
    process
        .adopt(first.shard(range(), options().limits), &[])
        .unwrap();
    let last = states.last().unwrap().id;
    let (has, result) = run_until(&process, &stream, last, Duration::from_secs(3));
    println!("{:?} {result:?}", process.status());
    assert!(
        has || !process.status().trouble.is_empty(),
        "every record is ignored and nobody is told"
    );
}

#[test]
fn head_of_another_branch_than_final() {
    let first = State::genesis();
    let (a1, b1) = (first.child(&[], 1), first.child(&[], 2));
    let b2 = b1.child(&[], 3);
    let stream = MemoryStream::new();
    push(&stream, signer(1).open_epoch(1));
    for state in [&a1, &b1, &b2] {
        push(&stream, signer(1).sign_update(1, state.update(1)));
    }
    push(&stream, signer(1).choose(1, 1, b2.id, a1.id, a1.id));
    let process = open(&FaultyDisk::new(17), vec![], options()).unwrap();
    process
        .adopt(first.shard(range(), options().limits), &[])
        .unwrap();
    take_all(&process, &stream, 5);
    let shard = process.shard().unwrap();
    assert!(
        process.head().is_none_or(|head| shard.has(head)),
        "head() is a block that the shard has removed"
    );
}

/// While a snapshot is written, a choice that contradicts finality is followed.
#[test]
fn finality_is_taken_back_during_a_snapshot() {
    let first = State::genesis();
    let (a1, b1) = (first.child(&[], 1), first.child(&[], 2));
    let b2 = b1.child(&[], 3);
    let mut oldest = Vec::new();
    for pinned in [false, true] {
        let stream = MemoryStream::new();
        push(&stream, signer(1).open_epoch(1));
        for state in [&a1, &b1, &b2] {
            push(&stream, signer(1).sign_update(1, state.update(1)));
        }
        push(&stream, signer(1).choose(1, 1, a1.id, a1.id, a1.id));
        push(&stream, signer(1).choose(1, 2, b2.id, b2.id, b2.id));
        let process = open(&FaultyDisk::new(18), vec![], options()).unwrap();
        process
            .adopt(first.shard(range(), options().limits), &[])
            .unwrap();
        let shard = process.shard().unwrap();
        let all = || {
            let mut reader = stream.reader(StreamPosition(1)).unwrap();
            while let Some(item) = reader.next(Duration::ZERO).unwrap() {
                let taken = process.take(&item).unwrap();
                if taken != Taken::Judged {
                    println!("pinned {pinned}: {} {taken:?}", item.position);
                    process.pass(&item);
                }
            }
        };
        match pinned {
            true => {
                shard
                    .write_snapshot(
                        Meddling {
                            out: vec![],
                            meddle: Some(all),
                        },
                        &[],
                    )
                    .unwrap();
            }
            false => all(),
        }
        println!(
            "pinned {pinned}: oldest {} head {:?}",
            shard.stats().oldest,
            process.head()
        );
        oldest.push(shard.stats().oldest);
    }
    assert_eq!(oldest[0], a1.id);
    assert_eq!(oldest[1], a1.id, "a block that was final is gone");
}
