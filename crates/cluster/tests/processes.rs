//! Processes of shards on faulty disks, behind a faulty stream, with replicas and a builder that keeps what it has published. Files
//! are so small that snapshots and segments come and go all the time.

use crate::common::{
    self, Keys, State,
    stream::{fault, keys, signer},
};
use alloy_primitives::{B256, Bytes, map::HashMap};
use cambium_cluster::{
    JournalOptions, MemoryStream, Peer, ProcessError, ProcessOptions, PublishError, Publisher,
    Record, Shard, ShardHost, ShardLimits, ShardProcess, ShardRange, SnapshotError, Stream,
    StreamItem, StreamPosition, StreamReader, Taken, Wanted,
};
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::BlockId;
use cambium_seeds::{Random, seeds};
use parking_lot::{Mutex, RwLock};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

fn options(range: ShardRange) -> ProcessOptions {
    ProcessOptions {
        range,
        limits: ShardLimits {
            versions: 10_000,
            ..ShardLimits::default()
        },
        journal: JournalOptions {
            segment_bytes: 8 << 10,
            bytes_max: 64 << 20,
            extend_bytes: 1 << 10,
        },
        snapshot_blocks: 3,
        patience: Duration::from_millis(1),
    }
}

/// What a builder keeps of what it has published.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<KeptRecords>>);

#[derive(Default)]
struct KeptRecords {
    blocks: HashMap<B256, Bytes>,
    records: HashMap<u64, Bytes>,
}

impl Peer for Kept {
    fn name(&self) -> String {
        "the builder".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        let kept = self.0.lock();
        let record = match wanted {
            Wanted::Block(hash) => kept.blocks.get(&hash),
            Wanted::Position(position) => kept.records.get(&position),
        };
        Ok(record.map(|record| record.to_vec()))
    }

    fn snapshot(&self, _: ShardRange, _: ShardLimits) -> Result<(Shard, Vec<u8>), SnapshotError> {
        Err(SnapshotError::Damaged {
            at: 0,
            what: "a builder has none".to_owned(),
        })
    }
}

/// Another process of the same shard, while it runs.
#[derive(Clone, Default)]
struct Replica(Arc<RwLock<Option<Arc<ShardProcess>>>>);

impl Peer for Replica {
    fn name(&self) -> String {
        "a replica".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        let process = self.0.read().clone().ok_or("it does not run")?;
        let record = process.record(wanted)?;
        Ok(record.map(|record| record.to_vec()))
    }

    fn snapshot(
        &self,
        range: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Shard, Vec<u8>), SnapshotError> {
        let process = self.0.read().clone();
        let gone = || SnapshotError::Damaged {
            at: 0,
            what: "it does not run".to_owned(),
        };
        let process = process.ok_or_else(gone)?;
        let shard = process.shard().ok_or_else(gone)?;
        let note = process.note();
        let bytes = shard.write_snapshot(Vec::new(), &note)?;
        Shard::read_snapshot(&bytes[..], range, limits)
    }
}

/// A process with its disk and its place in the stream.
struct Node {
    range: ShardRange,
    disk: FaultyDisk,
    own: Replica,
    other: Replica,
    kept: Kept,
    reader: Box<dyn StreamReader>,
    position: StreamPosition,
}

impl Node {
    fn open(&mut self, stream: &MemoryStream) {
        *self.own.0.write() = None;
        let peers: Vec<Box<dyn Peer>> =
            vec![Box::new(self.other.clone()), Box::new(self.kept.clone())];
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let process = ShardProcess::open(disk, keys(), peers, options(self.range)).unwrap();
        let process = Arc::new(process);
        *self.own.0.write() = Some(Arc::clone(&process));
        self.go_on(stream);
    }

    fn process(&self) -> Arc<ShardProcess> {
        self.own.0.read().clone().unwrap()
    }

    fn go_on(&mut self, stream: &MemoryStream) {
        self.position = StreamPosition(self.process().status().position);
        self.reader = stream.reader(self.position.next()).unwrap();
    }

    fn crash(&mut self, stream: &MemoryStream) {
        *self.own.0.write() = None;
        self.disk = self.disk.crash();
        self.open(stream);
        assert!(self.process().is_loaded(), "a snapshot is in the folder");
    }

    fn read(&mut self, count: u64) {
        let process = self.process();
        for _ in 0..count {
            let Some(item) = self.reader.next(Duration::ZERO).unwrap() else {
                break;
            };
            while process.take(&item).unwrap() != Taken::Judged {
                process.pass(&item);
            }
        }
        process.sync().unwrap();
        if process.is_snapshot_due() {
            process.write_snapshot().unwrap().unwrap();
        }
    }
}

struct Builder {
    number: u8,
    epoch: u64,
    choices: u64,
    publisher: Publisher<MemoryStream>,
}

impl Builder {
    fn win(number: u8, epoch: u64, stream: &MemoryStream, kept: &Kept) -> Self {
        let mut builder = Self {
            number,
            epoch,
            choices: 0,
            publisher: Publisher::new(stream.clone(), keys(), epoch).unwrap(),
        };
        builder.publish(signer(number).open_epoch(epoch), kept);
        builder
    }

    fn publish(&mut self, record: impl Into<Record>, kept: &Kept) {
        let record = record.into();
        let bytes = Bytes::from(record.encode());
        if let Record::Update(update) = &record {
            let mut kept = kept.0.lock();
            kept.blocks.insert(update.id().hash, bytes.clone());
        }
        loop {
            match self.publisher.publish(&record) {
                Ok(position) => {
                    kept.0.lock().records.insert(position.0, bytes);
                    return;
                }
                Err(PublishError::Full(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn choose(&mut self, head: BlockId, finalized: BlockId, kept: &Kept) {
        self.choices += 1;
        let signer = signer(self.number);
        let choice = signer.choose(self.epoch, self.choices, head, finalized, finalized);
        self.publish(choice, kept);
    }
}

fn check(process: &ShardProcess, state: &State, keys: &Keys) {
    common::check(&process.shard().unwrap(), state, keys);
}

/// Two shards with two replicas each. Blocks compete and become final; builders depose each other; the stream has faults; processes lose
/// power, and folders are lost or damaged. In the end every replica has every block that is not final, and the same state.
#[test]
fn replicas_end_at_the_same_state_whatever_happens() {
    let (mut crashes, mut losses, mut damages, mut finals) = (0, 0, 0, 0);
    for seed in seeds!(0..60) {
        let mut random = Random::new(seed);
        let account_keys = Keys::new(&mut random, 10, 4);
        let mut first = State::genesis();
        for salt in 0..random.below(6) {
            let changes = account_keys.changes(&mut random, &first.model);
            first = first.child(&changes, salt);
        }
        let stream = MemoryStream::new();
        let kept = Kept::default();
        let mut builder = Builder::win(1, 1, &stream, &kept);
        let mut nodes = Vec::new();
        for range in ShardRange::all(2).unwrap() {
            let pair = [Replica::default(), Replica::default()];
            for at in 0..2 {
                let mut node = Node {
                    range,
                    disk: FaultyDisk::new(seed * 10 + nodes.len() as u64),
                    own: pair[at].clone(),
                    other: pair[1 - at].clone(),
                    kept: kept.clone(),
                    reader: stream.reader(StreamPosition(1)).unwrap(),
                    position: StreamPosition(0),
                };
                node.open(&stream);
                let process = node.process();
                assert!(!process.is_loaded());
                let limits = options(range).limits;
                process.adopt(first.shard(range, limits), &[]).unwrap();
                nodes.push(node);
            }
        }
        // States that are not final, each after its parent; the first one is the oldest.
        let mut states = vec![first];
        for salt in 0..80 {
            stream.plan(fault(&mut random, 20));
            match random.below(20) {
                0 => {
                    let number = 3 - builder.number;
                    builder = Builder::win(number, builder.epoch + 1, &stream, &kept);
                }
                1..=3 => {
                    // Some block becomes final: what does not descend from it is gone.
                    let at = random.below(states.len() as u64) as usize;
                    let mut left = vec![states.remove(at)];
                    for state in states {
                        if left.iter().any(|it| it.id.hash == state.header.parent_hash) {
                            left.push(state);
                        }
                    }
                    states = left;
                    let finalized = states[0].id;
                    let head = states[random.below(states.len() as u64) as usize].id;
                    builder.choose(head, finalized, &kept);
                    finals += 1;
                }
                4 | 5 => {
                    let at = random.below(4) as usize;
                    nodes[at].crash(&stream);
                    crashes += 1;
                }
                6 => {
                    // A folder is lost, and the other replica has what it had.
                    let at = random.below(4) as usize;
                    *nodes[at].own.0.write() = None;
                    nodes[at].disk = FaultyDisk::new(seed * 100 + salt);
                    nodes[at].open(&stream);
                    assert!(nodes[at].process().load_from_peers().unwrap());
                    nodes[at].go_on(&stream);
                    losses += 1;
                }
                7 => {
                    // Rot in one of the snapshots.
                    let at = random.below(4) as usize;
                    let node = &mut nodes[at];
                    let names = node.disk.list("").unwrap();
                    let names = names.iter().filter(|name| name.starts_with("state-"));
                    let names: Vec<_> = names.cloned().collect();
                    let name = &names[random.below(names.len() as u64) as usize];
                    let file = node.disk.open(name).unwrap();
                    let offset = random.below(file.len().unwrap());
                    let mut byte = [0];
                    file.read_at(&mut byte, offset).unwrap();
                    file.write_at(&[byte[0] ^ 0x40], offset).unwrap();
                    file.sync().unwrap();
                    node.open(&stream);
                    if !node.process().is_loaded() {
                        assert!(node.process().load_from_peers().unwrap());
                        node.go_on(&stream);
                    }
                    damages += 1;
                }
                _ => {
                    // Most often on the newest block.
                    let last = states.len() as u64 - 1;
                    let on = match random.percent(80) {
                        true => last,
                        false => random.below(last + 1),
                    };
                    let on = &states[on as usize];
                    let changes = account_keys.changes(&mut random, &on.model);
                    let block = on.child(&changes, salt);
                    let signer = signer(builder.number);
                    let update = signer.sign_update(builder.epoch, block.update(1));
                    builder.publish(update, &kept);
                    states.push(block);
                }
            }
            let at = random.below(4) as usize;
            let count = random.below(8);
            nodes[at].read(count);
        }
        let (finalized, head) = (states[0].id, states[states.len() - 1].id);
        stream.plan(None);
        builder.choose(head, finalized, &kept);
        for node in &mut nodes {
            node.read(10_000);
            let process = node.process();
            assert_eq!(process.head(), Some(head), "seed {seed}");
            let shard = process.shard().unwrap();
            assert_eq!(shard.stats().oldest, finalized);
            states
                .iter()
                .for_each(|state| check(&process, state, &account_keys));
            assert_eq!(shard.stats().versions, states.len());
            // And once more, from its folder.
            drop(process);
            node.crash(&stream);
            node.read(10_000);
            let process = node.process();
            states
                .iter()
                .for_each(|state| check(&process, state, &account_keys));
        }
    }
    println!("{crashes} crashes, {losses} lost folders, {damages} damaged, {finals} finalized");
    assert!(crashes > 100 && losses > 50 && damages > 50 && finals > 100);
}

/// The loop that a program runs: it follows, waits, writes snapshots beside, and stops when it is told.
#[test]
fn a_process_follows_a_stream_by_itself() {
    let mut random = Random::new(3);
    let account_keys = Keys::new(&mut random, 10, 4);
    let first = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let stream = MemoryStream::new();
    let kept = Kept::default();
    let mut builder = Builder::win(1, 1, &stream, &kept);
    let disk = FaultyDisk::new(5);
    let as_disk = || Arc::new(disk.clone()) as Arc<dyn Disk>;
    let process = ShardProcess::open(as_disk(), keys(), Vec::new(), options(range)).unwrap();
    process
        .adopt(first.shard(range, options(range).limits), &[])
        .unwrap();
    let process = Arc::new(process);
    let stop = AtomicBool::new(false);
    let mut state = first;
    std::thread::scope(|scope| {
        let running = scope.spawn(|| process.run(&stream, &stop));
        for salt in 0..40 {
            let changes = account_keys.changes(&mut random, &state.model);
            state = state.child(&changes, salt);
            let update = signer(1).sign_update(1, state.update(1));
            builder.publish(update, &kept);
            builder.choose(state.id, state.id, &kept);
        }
        let started = Instant::now();
        while process.head() != Some(state.id) || process.is_snapshot_due() {
            assert!(started.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap();
    });
    check(&process, &state, &account_keys);
    let files = disk.list("").unwrap();
    let snapshots = files.iter().filter(|name| name.ends_with(".shard"));
    assert_eq!(snapshots.count(), 2);

    // Nobody else gets the folder meanwhile.
    let again = ShardProcess::open(as_disk(), keys(), Vec::new(), options(range));
    assert!(matches!(again, Err(ProcessError::Lock(_))));
    drop(process);
    let again = ShardProcess::open(as_disk(), keys(), Vec::new(), options(range)).unwrap();
    check(&again, &state, &account_keys);
}

/// The stream is replaced by an empty one, in which everything is published anew.
#[test]
fn a_stream_that_is_lost_is_read_again() {
    let mut random = Random::new(4);
    let account_keys = Keys::new(&mut random, 10, 4);
    let first = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let kept = Kept::default();
    let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(5));
    let process = ShardProcess::open(disk, keys(), Vec::new(), options(range)).unwrap();
    process
        .adopt(first.shard(range, options(range).limits), &[])
        .unwrap();
    let mut state = first;
    let run_until = |stream: &MemoryStream, head: BlockId| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| process.run(stream, &stop));
            let started = Instant::now();
            while process.head() != Some(head) {
                assert!(started.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap().unwrap();
        });
    };
    for epoch in 1..6 {
        // A new stream, of which this builder knows nothing but what it publishes.
        let stream = MemoryStream::new();
        let mut builder = Builder::win(1 + (epoch % 2) as u8, epoch, &stream, &kept);
        let mut states = Vec::new();
        for salt in 0..3 + random.below(6) {
            let changes = account_keys.changes(&mut random, &state.model);
            state = state.child(&changes, 100 * epoch + salt);
            let update = signer(builder.number).sign_update(epoch, state.update(1));
            builder.publish(update, &kept);
            states.push(state.clone());
        }
        builder.choose(state.id, states[0].id, &kept);
        run_until(&stream, state.id);
        states
            .iter()
            .for_each(|state| check(&process, state, &account_keys));
    }
}

/// Without any peer: the snapshot before the newest goes on with the journal, which has all that came after it.
#[test]
fn a_damaged_snapshot_costs_nothing_while_there_is_another_one() {
    for seed in seeds!(0..20) {
        let mut random = Random::new(seed);
        let account_keys = Keys::new(&mut random, 10, 4);
        let first = State::genesis();
        let range = ShardRange::new(0, 1).unwrap();
        let stream = MemoryStream::new();
        let kept = Kept::default();
        let mut builder = Builder::win(1, 1, &stream, &kept);
        let disk = FaultyDisk::new(seed);
        let as_disk = || Arc::new(disk.clone()) as Arc<dyn Disk>;
        let open = || ShardProcess::open(as_disk(), keys(), Vec::new(), options(range)).unwrap();
        let mut process = open();
        process
            .adopt(first.shard(range, options(range).limits), &[])
            .unwrap();
        let mut states = vec![first];
        let mut reader = stream.reader(StreamPosition(1)).unwrap();
        for salt in 0..40 {
            let on = &states[states.len() - 1];
            let block = on.child(&account_keys.changes(&mut random, &on.model), salt);
            builder.publish(signer(1).sign_update(1, block.update(1)), &kept);
            states.push(block);
            if states.len() > 4 {
                let finalized = states.remove(0).id;
                builder.choose(states[states.len() - 1].id, finalized, &kept);
            }
            while let Some(item) = reader.next(Duration::ZERO).unwrap() {
                assert_eq!(process.take(&item).unwrap(), Taken::Judged);
            }
            process.sync().unwrap();
            if process.is_snapshot_due() {
                process.write_snapshot().unwrap().unwrap();
            }
            if random.percent(20) {
                drop(process);
                let names = disk.list("").unwrap();
                let newest = names.iter().filter(|name| name.starts_with("state-")).max();
                let file = disk.open(newest.unwrap()).unwrap();
                let mut byte = [0];
                file.read_at(&mut byte, 40).unwrap();
                let snapshots = names.iter().filter(|name| name.starts_with("state-"));
                if snapshots.count() > 1 {
                    file.write_at(&[byte[0] ^ 1], 40).unwrap();
                }
                drop(file);
                process = open();
                assert!(process.is_loaded());
                states
                    .iter()
                    .for_each(|state| check(&process, state, &account_keys));
                // It is as before, and the damaged file is written anew or replaced.
                process.write_snapshot().unwrap().unwrap();
            }
        }
    }
}

/// A journal whose room is nearly taken gets snapshots as soon as a block is final. If none becomes final, the process ends, and goes on
/// where it was once the journal may be larger.
#[test]
fn a_journal_that_is_nearly_full_makes_snapshots_and_a_full_one_says_so() {
    let mut random = Random::new(4);
    let account_keys = Keys::new(&mut random, 10, 4);
    let first = State::genesis();
    let range = ShardRange::new(0, 1).unwrap();
    let mut own = options(range);
    own.snapshot_blocks = 1_000_000;
    own.journal.bytes_max = 200 << 10;
    let disk = FaultyDisk::new(1);
    let open = |own: &ProcessOptions| {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        ShardProcess::open(disk, keys(), Vec::new(), own.clone()).unwrap()
    };
    let process = open(&own);
    process.adopt(first.shard(range, own.limits), &[]).unwrap();
    let (signer, mut position, mut last) = (signer(1), 0, first);
    let mut next = |process: &ShardProcess, record: Record| {
        let item = StreamItem::new(StreamPosition(position + 1), record.encode().into());
        let taken = process.take(&item)?;
        assert_eq!(taken, Taken::Judged);
        position += 1;
        process.sync()
    };
    next(&process, signer.open_epoch(1).into()).unwrap();
    let mut block = |last: &State, salt| {
        let changes = account_keys.changes(&mut random, &last.model);
        last.child(&changes, salt)
    };
    let mut snapshots = 0;
    for salt in 1..400 {
        let state = block(&last, salt);
        let update = signer.sign_update(1, state.update(1));
        next(&process, update.into()).unwrap();
        let choice = signer.choose(1, salt, state.id, last.id, last.id);
        next(&process, choice.into()).unwrap();
        if process.is_snapshot_due() {
            process.write_snapshot().unwrap();
            snapshots += 1;
        }
        last = state;
    }
    assert!((2..200).contains(&snapshots), "{snapshots}");

    // Nothing becomes final any more.
    let (error, state) = loop {
        let state = block(&last, 1);
        let update = signer.sign_update(1, state.update(1));
        if let Err(error) = next(&process, update.into()) {
            break (error, state);
        }
        // Of what became final before.
        if process.is_snapshot_due() {
            process.write_snapshot().unwrap();
        }
        last = state;
    };
    let text = error.to_string();
    assert!(matches!(error, ProcessError::Journal(_)), "{text}");
    assert!(
        text.contains("of at most 204800") && text.contains("--journal-size"),
        "{text}"
    );
    drop(process);
    let process = open(&own);
    let before = process.status();
    assert_eq!(before.trouble, "");
    let update = signer.sign_update(1, state.update(1));
    drop(process);
    own.journal.bytes_max *= 2;
    let process = open(&own);
    assert_eq!(process.status().position, before.position);
    next(&process, update.into()).unwrap();
    check(&process, &state, &account_keys);
}
