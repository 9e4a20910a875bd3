//! Builders, shards and a stream with faults in one seeded history: real shards verify real updates, and all of them end at the
//! same blocks.

use crate::common::{
    Keys, State,
    stream::{fault, keys, signer},
};
use alloy_primitives::{B256, Bytes, map::HashMap};
use cambium_cluster::{
    Choice, Follower, FollowerState, Ignored, Journal, JournalOptions, MemoryStream, Missing,
    PublishError, Publisher, Record, Shard, ShardLimits, ShardRange, Stream, StreamFault,
    StreamItem, StreamPosition, StreamReader, Verdict,
};
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::BlockId;
use cambium_seeds::{Random, seeds};
use std::{collections::HashSet, sync::Arc, time::Duration};

const TINY: JournalOptions = JournalOptions {
    segment_bytes: 8 << 10,
    bytes_max: 64 << 20,
    extend_bytes: 1 << 10,
};

/// All records that builders have made: what they keep until every shard has a snapshot.
#[derive(Default)]
struct Kept {
    blocks: HashMap<B256, Bytes>,
    records: HashMap<StreamPosition, Bytes>,
}

/// A shard with its journal.
struct Replica {
    first: State,
    disk: FaultyDisk,
    journal: Journal,
    shard: Shard,
    known: HashSet<B256>,
    follower: Follower,
    reader: Box<dyn StreamReader>,
    choice: Option<Choice>,
    refused: usize,
}

impl Replica {
    fn open(first: &State, disk: FaultyDisk, stream: &MemoryStream) -> Self {
        let as_disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let (journal, recovery) = Journal::open(as_disk, TINY).unwrap();
        let limits = ShardLimits {
            versions: 10_000,
            ..ShardLimits::default()
        };
        let shard = first.shard(ShardRange::new(0, 1).unwrap(), limits);
        let mut known = HashSet::from([first.id.hash]);
        let mut choice = None;
        for entry in journal.entries() {
            match Record::decode(&entry.unwrap().record).unwrap() {
                Record::Update(update) => {
                    shard.apply(update.id(), update.update()).unwrap();
                    known.insert(update.id().hash);
                }
                Record::Choice(chosen) => choice = Some(chosen),
                Record::Epoch(_) => {}
            }
        }
        let follower = Follower::new(keys(), recovery.state);
        let reader = stream.reader(follower.state().position.next()).unwrap();
        Self {
            first: first.clone(),
            disk,
            journal,
            shard,
            known,
            follower,
            reader,
            choice,
            refused: 0,
        }
    }

    /// Loses power, and comes back.
    fn crash(self, stream: &MemoryStream) -> Self {
        Self::open(&self.first, self.disk.crash(), stream)
    }

    fn apply(&mut self, hash: B256, record: &Bytes, filled_for: Option<StreamPosition>) {
        let Record::Update(update) = Record::decode(record).unwrap() else {
            panic!("not an update")
        };
        if self.shard.apply(update.id(), update.update()).is_err() {
            self.refused += 1;
            return;
        }
        self.known.insert(hash);
        let state = self.follower.state();
        match filled_for {
            None => self.journal.append(state, Some(hash), record),
            Some(position) => self.journal.append_filled(position, state, hash, record),
        }
        .unwrap();
    }

    /// Gets a block and its missing ancestors. Returns whether all are there.
    fn fetch(&mut self, hash: B256, kept: &Kept, position: StreamPosition) -> bool {
        let mut wanted = vec![hash];
        while let Some(&hash) = wanted.last() {
            if self.known.contains(&hash) {
                wanted.pop();
                continue;
            }
            let Some(record) = kept.blocks.get(&hash) else {
                return false;
            };
            let block = self.follower.verify_block(hash, record).unwrap().unwrap();
            if !self.known.contains(&block.parent()) {
                wanted.push(block.parent());
                continue;
            }
            self.apply(hash, record, Some(position));
            if !self.known.contains(&hash) {
                return false;
            }
        }
        true
    }

    fn take(&mut self, verdict: Verdict, record: Option<&Bytes>) {
        match verdict {
            Verdict::Apply(update) => self.apply(update.id().hash, record.unwrap(), None),
            Verdict::Choose(choice) => {
                let state = self.follower.state();
                self.journal.append(state, None, record.unwrap()).unwrap();
                self.choice = Some(*choice);
            }
            Verdict::Opened(_) => {
                let state = self.follower.state();
                self.journal.append(state, None, record.unwrap()).unwrap();
            }
            Verdict::Ignore(_) | Verdict::Damaged(_) | Verdict::Missing(_) => {}
        }
    }

    fn judge(&mut self, item: &StreamItem, kept: &Kept) {
        loop {
            let known = &self.known;
            let verdict = self.follower.step(item, |id| known.contains(&id.hash));
            match verdict {
                Verdict::Missing(Missing::Block(hash)) => {
                    if !self.fetch(hash, kept, item.position) {
                        self.follower.skip(item);
                        return;
                    }
                }
                Verdict::Missing(Missing::Records(hole)) => {
                    for position in hole.first.0..=hole.last.0 {
                        let position = StreamPosition(position);
                        let Some(record) = kept.records.get(&position) else {
                            continue;
                        };
                        let known = &self.known;
                        let is_known = |id: BlockId| known.contains(&id.hash);
                        match self.follower.fill(position, record, is_known) {
                            Verdict::Missing(Missing::Block(hash)) => {
                                if self.fetch(hash, kept, position) {
                                    let known = &self.known;
                                    let is_known = |id: BlockId| known.contains(&id.hash);
                                    let filled = self.follower.fill(position, record, is_known);
                                    self.take(filled, Some(record));
                                }
                            }
                            filled => self.take(filled, Some(record)),
                        }
                    }
                    self.follower.give_up(hole);
                }
                verdict => {
                    self.take(verdict, item.record.as_ref());
                    return;
                }
            }
        }
    }

    fn read(&mut self, stream: &MemoryStream, kept: &Kept, count: u64) {
        // A stream that ends before what was read has lost it, and may have other records there.
        if stream.bounds().unwrap().last < self.follower.state().position {
            let first = stream.bounds().unwrap().first;
            self.follower.rewind(StreamPosition(first.0 - 1));
            self.reader = stream.reader(first).unwrap();
        }
        for _ in 0..count {
            let Some(item) = self.reader.next(Duration::ZERO).unwrap() else {
                break;
            };
            self.judge(&item, kept);
        }
        self.journal.sync().unwrap();
    }
}

struct Builder {
    number: u8,
    epoch: u64,
    choices: u64,
    publisher: Publisher<MemoryStream>,
}

impl Builder {
    fn win(number: u8, epoch: u64, stream: &MemoryStream) -> Self {
        let publisher = Publisher::new(stream.clone(), keys(), epoch).unwrap();
        Self {
            number,
            epoch,
            choices: 0,
            publisher,
        }
    }

    /// Publishes a record. Returns false if it is deposed.
    fn publish(&mut self, record: impl Into<Record>, kept: &mut Kept) -> bool {
        let record = record.into();
        let bytes = Bytes::from(record.encode());
        loop {
            match self.publisher.publish(&record) {
                Ok(position) => {
                    kept.records.insert(position, bytes);
                    return true;
                }
                Err(PublishError::Deposed { own, open }) => {
                    assert!(own < open);
                    return false;
                }
                // There is room again.
                Err(PublishError::Full(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// Two builders, one of which is deposed again and again and goes on all the same; replicas that crash; a stream that loses answers,
/// repeats, damages. In the end all replicas have all blocks of the last epoch's chain, and follow the same choice.
#[test]
fn replicas_end_at_the_same_blocks_whatever_the_stream_does() {
    let (mut blocks, mut crashes, mut fenced, mut retries) = (0, 0, 0, 0);
    for seed in seeds!(0..40) {
        let mut random = Random::new(seed);
        let random_keys = Keys::new(&mut random, 8, 4);
        let first = State::genesis();
        let stream = MemoryStream::new();
        let mut kept = Kept::default();
        let mut replicas: Vec<_> = (0..2)
            .map(|number| Replica::open(&first, FaultyDisk::new(seed * 2 + number), &stream))
            .collect();
        let mut epoch = 1;
        let mut builder = Builder::win(1, epoch, &stream);
        let mut deposed = None;
        assert!(builder.publish(signer(1).open_epoch(1), &mut kept));
        let mut head = first.clone();
        let mut side: Option<State> = None;
        for salt in 0..60 {
            stream.plan(fault(&mut random, 25));
            match random.below(12) {
                0 => {
                    // The other one wins the next epoch, on the head that it knows of.
                    epoch += 1;
                    let number = 3 - builder.number;
                    let mut winner = Builder::win(number, epoch, &stream);
                    let opening = signer(number).open_epoch(epoch);
                    assert!(winner.publish(opening, &mut kept));
                    deposed = Some(std::mem::replace(&mut builder, winner));
                }
                1 => {
                    // A block of no use to anyone, by a builder that does not know that it is deposed, right behind the tail.
                    if let Some(old) = &mut deposed {
                        old.publisher.read_again().unwrap();
                        let changes = random_keys.changes(&mut random, &head.model);
                        let block = head.child(&changes, 1_000 + salt);
                        let signer = signer(old.number);
                        let update = signer.sign_update(old.epoch, block.update(1));
                        let old_epoch = old.epoch;
                        old.publish(update, &mut kept);
                        assert!(old_epoch < epoch);
                    }
                }
                2 => {
                    builder.choices += 1;
                    let (epoch, number) = (builder.epoch, builder.choices);
                    let signer = signer(builder.number);
                    let choice = signer.choose(epoch, number, head.id, first.id, first.id);
                    builder.publish(choice, &mut kept);
                }
                3 => {
                    let at = random.below(2) as usize;
                    let replica = replicas.swap_remove(at);
                    replicas.push(replica.crash(&stream));
                    crashes += 1;
                }
                4 => {
                    // A lying builder: the root is another one. Shards refuse it, and the next block is on the true head.
                    let changes = random_keys.changes(&mut random, &head.model);
                    let mut lie = head.child(&changes, 5_000 + salt).update(1);
                    lie.header.state_root = B256::repeat_byte(9);
                    let lie = signer(builder.number).sign_update(builder.epoch, lie);
                    builder.publish(lie, &mut kept);
                }
                _ => {
                    let on = match (&side, random.percent(10)) {
                        (Some(side), true) => side.clone(),
                        _ => head.clone(),
                    };
                    let changes = random_keys.changes(&mut random, &on.model);
                    let block = on.child(&changes, salt);
                    let update = signer(builder.number).sign_update(builder.epoch, block.update(1));
                    let (id, bytes) = (
                        update.id(),
                        Bytes::from(Record::from(update.clone()).encode()),
                    );
                    kept.blocks.insert(id.hash, bytes);
                    assert!(builder.publish(update, &mut kept));
                    side = Some(std::mem::replace(&mut head, block));
                    blocks += 1;
                }
            }
            let at = random.below(2) as usize;
            let count = random.below(6);
            replicas[at].read(&stream, &kept, count);
            if random.percent(5) {
                // Nobody has had an acknowledgement of these.
                stream.lose_unacknowledged();
            }
        }
        // The last choice comes through in the end.
        builder.choices += 1;
        let (epoch, number) = (builder.epoch, builder.choices);
        let choice = signer(builder.number).choose(epoch, number, head.id, first.id, first.id);
        stream.plan(None);
        assert!(builder.publish(choice.clone(), &mut kept));
        retries += builder.publisher.retries();
        for replica in &mut replicas {
            replica.read(&stream, &kept, 10_000);
            assert_eq!(replica.choice.as_ref(), Some(&choice));
            assert!(replica.known.contains(&head.id.hash));
            let counts = replica.follower.counts();
            fenced += counts.ignored.get("fenced").copied().unwrap_or(0);
            assert_eq!(replica.follower.state().epoch, epoch);
            assert_eq!(replica.follower.state().holes, []);
        }
        // A replica that has nothing but the stream and what others have ends there as well.
        let mut late = Replica::open(&first, FaultyDisk::new(99), &stream);
        late.read(&stream, &kept, 10_000);
        assert_eq!(late.choice.as_ref(), Some(&choice));
    }
    println!("{blocks} blocks, {crashes} crashes, {fenced} fenced records, {retries} retries");
    assert!(fenced > 0 && retries > 0);
}

/// The stream is transport: all of it is lost, and what the shards have is published anew in another one.
#[test]
fn a_stream_that_is_lost_as_a_whole_is_published_anew_from_a_journal() {
    let mut random = Random::new(5);
    let random_keys = Keys::new(&mut random, 8, 4);
    let first = State::genesis();
    let stream = MemoryStream::new();
    let mut kept = Kept::default();
    let mut builder = Builder::win(1, 4, &stream);
    assert!(builder.publish(signer(1).open_epoch(4), &mut kept));
    let mut head = first.clone();
    for salt in 0..20 {
        let changes = random_keys.changes(&mut random, &head.model);
        head = head.child(&changes, salt);
        let update = signer(1).sign_update(4, head.update(1));
        assert!(builder.publish(update, &mut kept));
    }
    let nothing = Kept::default();
    let mut replica = Replica::open(&first, FaultyDisk::new(1), &stream);
    let mut behind = Replica::open(&first, FaultyDisk::new(2), &stream);
    replica.read(&stream, &nothing, 100);
    behind.read(&stream, &nothing, 9);

    assert_eq!(stream.lose_last(100), 21);
    let lost = builder.publisher.publish(&signer(1).open_epoch(5).into());
    assert!(matches!(lost, Err(PublishError::Lost { .. })), "{lost:?}");
    let mut last = StreamPosition(0);
    for entry in replica.journal.entries() {
        let record = entry.unwrap().record;
        last = stream
            .append(&record, &format!("again-{last}"), last)
            .unwrap();
    }
    assert_eq!(last, StreamPosition(21));
    builder.publisher.read_again().unwrap();
    let mut next = Builder::win(2, 5, &stream);
    assert!(next.publish(signer(2).open_epoch(5), &mut kept));
    let changes = random_keys.changes(&mut random, &head.model);
    let block = head.child(&changes, 77);
    let update = signer(2).sign_update(5, block.update(1));
    assert!(next.publish(update, &mut kept));
    // The deposed one finds out when it looks.
    stream.plan(Some(StreamFault::Lost));
    builder.publisher = Publisher::new(stream.clone(), keys(), 4).unwrap();
    let late = signer(1).sign_update(4, head.child(&[], 78).update(1));
    assert!(builder.publish(late, &mut kept));
    for replica in [&mut replica, &mut behind] {
        let is_same = |id: BlockId, replica: &Replica| replica.known.contains(&id.hash);
        replica.follower.rewind(StreamPosition(0));
        replica.reader = stream.reader(StreamPosition(1)).unwrap();
        replica.read(&stream, &nothing, 100);
        assert!(is_same(block.id, replica));
        assert_eq!(replica.follower.counts().ignored["fenced"], 1);
        assert_eq!(replica.known.len(), 22);
    }
}

#[test]
fn a_publisher_looks_before_it_decides() {
    let stream = MemoryStream::new();
    let publisher = || Publisher::new(stream.clone(), keys(), 1).unwrap();
    let mut one = publisher();
    let records: Vec<Record> = (1..=6)
        .map(|number| {
            let block = BlockId::default();
            signer(1).choose(1, number, block, block, block).into()
        })
        .collect();
    let faults = [
        None,
        Some(StreamFault::Lost),
        Some(StreamFault::NoAnswer),
        Some(StreamFault::FalseDuplicate),
        Some(StreamFault::AnsweredTwice),
    ];
    for (record, (fault, expected)) in records.iter().zip(faults.into_iter().zip(1..)) {
        stream.plan(fault);
        assert_eq!(one.publish(record).unwrap(), StreamPosition(expected));
    }
    assert_eq!(one.retries(), 4);
    // Another one has the tail: it looks, and goes on behind.
    let mut other = publisher();
    let position = other.publish(&signer(2).open_epoch(1).into()).unwrap();
    assert_eq!(position, StreamPosition(6));
    assert_eq!(one.publish(&records[5]).unwrap(), StreamPosition(7));
    // A record that is there is not appended again.
    assert_eq!(other.publish(&records[5]).unwrap(), StreamPosition(7));
    let mut higher = Publisher::new(stream.clone(), keys(), 2).unwrap();
    higher.publish(&signer(2).open_epoch(2).into()).unwrap();
    let deposed = one.publish(&signer(1).open_epoch(1).into());
    assert!(matches!(
        deposed,
        Err(PublishError::Deposed { own: 1, open: 2 })
    ));
    stream.plan(Some(StreamFault::Full));
    let block = BlockId::default();
    let choice = signer(2).choose(2, 1, block, block, block);
    let full = higher.publish(&choice.into());
    assert!(matches!(full, Err(PublishError::Full(_))));
    let mut follower = Follower::new(keys(), FollowerState::default());
    let mut reader = stream.reader(StreamPosition(1)).unwrap();
    let mut ignored = Vec::new();
    while let Some(item) = reader.next(Duration::ZERO).unwrap() {
        if let Verdict::Ignore(reason) = follower.step(&item, |_| true) {
            ignored.push(reason);
        }
    }
    // What has opened the first epoch is not there: whoever publishes first has won it.
    assert!(
        matches!(ignored[..], [Ignored::OldEpoch { number: 1, open: 1 }]),
        "{ignored:?}"
    );
}
