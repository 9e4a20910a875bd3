//! Full and partial databases that follow a stream: on faulty disks, behind a faulty stream, with branches that compete, records that are
//! lost, and builders that lie.

use crate::common::stream::{fault, item};
use alloy_primitives::{B256, Bytes, keccak256, map::HashMap};
use cambium_chain::{Block, Chain, ChainError, ChainSealer, Fork, InitOptions};
use cambium_cluster::{
    BlockUpdate, BuilderKeys, FollowError, FollowingDatabase, MemoryStream, Peer, Record, Shard,
    ShardLimits, ShardRange, SignedUpdate, Signer, SnapshotError, Source, Stream, StreamPosition,
    Taken, Wanted,
};
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::BlockId;
use cambium_seeds::{Random, seeds};
use cambium_state::{KeptStorage, Options};
use cambium_workload::{BlockSealer, BlockSize, TOKEN, Workload, WorkloadParams};
use parking_lot::Mutex;
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

const BLOCKS: u64 = 18;

fn signer() -> Signer {
    Signer::new(4_093, [1; 32]).unwrap()
}

fn keys() -> BuilderKeys {
    BuilderKeys {
        chain_id: 4_093,
        keys: vec![signer().address()],
    }
}

fn workload() -> Workload {
    Workload::new(WorkloadParams {
        fork: Fork::Osaka,
        accounts: 60,
        senders: Some(40),
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(5),
        erc20_percent: 60,
        ..WorkloadParams::default()
    })
    .unwrap()
}

/// A database with the first block alone.
fn first(workload: &Workload, disk: &FaultyDisk, kept: Option<&KeptStorage>) -> Chain {
    let options = InitOptions {
        storage_of: kept.cloned(),
        ..InitOptions::from(options())
    };
    workload
        .init(Arc::new(disk.clone()), options, &mut |_| {})
        .unwrap()
}

fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    }
}

/// Seals blocks, and keeps their drafts.
struct Drafting<'a> {
    engine: &'a Chain,
    drafts: Vec<Block>,
}

impl BlockSealer for Drafting<'_> {
    type Error = ChainError;

    fn seal(&mut self, draft: Block) -> Result<Block, ChainError> {
        self.drafts.push(draft.clone());
        ChainSealer(self.engine).seal(draft)
    }
}

/// A full database in which blocks are made, also on parents that others have been built on.
struct Engine {
    chain: Chain,
    drafts: Arc<Vec<Block>>,
}

impl Engine {
    /// One with all blocks.
    fn new(workload: &Workload) -> Self {
        let chain = first(workload, &FaultyDisk::new(1), None);
        let genesis = chain.block(0).unwrap().header;
        let mut sealer = Drafting {
            engine: &chain,
            drafts: Vec::new(),
        };
        workload
            .generate(&genesis, &mut sealer, |_| Ok(()))
            .unwrap();
        let drafts = Arc::new(sealer.drafts);
        Self { chain, drafts }
    }

    /// Another one with the first block alone.
    fn anew(&self, workload: &Workload) -> Self {
        Self {
            chain: first(workload, &FaultyDisk::new(2), None),
            drafts: Arc::clone(&self.drafts),
        }
    }

    fn updates(&self, first: u64, last: u64) -> Vec<BlockUpdate> {
        let source = Source::new(&self.chain, ShardRange::new(0, 4).unwrap());
        let updates = source.updates(first, last).unwrap();
        updates.map(Result::unwrap).collect()
    }

    /// The next block on `parent`, with a mark that tells it from others.
    fn on(&self, parent: BlockId, mark: u64) -> BlockUpdate {
        let number = parent.number + 1;
        if self.chain.db().head() != parent {
            self.chain.set_canonical(parent.hash, None, None).unwrap();
        }
        let mut draft = self.drafts[number as usize - 1].clone();
        draft.header.parent_hash = parent.hash;
        draft.header.extra_data = mark.to_be_bytes().to_vec().into();
        ChainSealer(&self.chain).seal(draft).unwrap();
        self.updates(number, number).remove(0)
    }
}

/// The same block with a mark that tells it from others. Without a history of hashes of its own, its state is the same.
fn marked(update: &BlockUpdate, mark: u64) -> BlockUpdate {
    let mut update = update.clone();
    update.header.extra_data = mark.to_be_bytes().to_vec().into();
    update
}

/// What shards keep of what was published.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<(HashMap<B256, Bytes>, HashMap<u64, Bytes>)>>);

impl Peer for Kept {
    fn name(&self) -> String {
        "the shards".to_owned()
    }

    fn record(&self, wanted: Wanted) -> Result<Option<Vec<u8>>, String> {
        let kept = self.0.lock();
        let record = match wanted {
            Wanted::Block(hash) => kept.0.get(&hash),
            Wanted::Position(position) => kept.1.get(&position),
        };
        Ok(record.map(|record| record.to_vec()))
    }

    fn snapshot(&self, _: ShardRange, _: ShardLimits) -> Result<(Shard, Vec<u8>), SnapshotError> {
        Err(SnapshotError::Damaged {
            at: 0,
            what: "none of these is wanted".to_owned(),
        })
    }
}

/// A builder that publishes through a stream that fails, and keeps all of it.
struct Builder {
    stream: MemoryStream,
    kept: Kept,
    tail: StreamPosition,
    appended: u64,
    choices: u64,
    /// The canonical chain, from the first block on.
    chain: Vec<BlockId>,
}

impl Builder {
    fn new(first: BlockId) -> Self {
        let mut builder = Self {
            stream: MemoryStream::new(),
            kept: Kept::default(),
            tail: StreamPosition(0),
            appended: 0,
            choices: 0,
            chain: vec![first],
        };
        let epoch = Record::from(signer().open_epoch(1)).encode();
        builder.append(epoch.into(), None, None);
        builder
    }

    /// A guard against repetition that nothing else has.
    fn next_id(&mut self) -> String {
        self.appended += 1;
        self.appended.to_string()
    }

    /// Appends a record in a test's stream of one writer, whatever becomes of it.
    fn append(&mut self, record: Bytes, of: Option<B256>, random: Option<&mut Random>) {
        let id = self.next_id();
        let mut kept = self.kept.0.lock();
        if let Some(hash) = of {
            kept.0.insert(hash, record.clone());
        }
        if let Some(random) = random {
            self.stream.plan(fault(random, 20));
        }
        let last = self.stream.bounds().unwrap().last;
        let _ = self.stream.append(&record, &id, last);
        self.tail = self.stream.bounds().unwrap().last;
        // Whatever the stream has at this position, shards have the record itself.
        if self.tail > last {
            kept.1.insert(self.tail.0, record);
        }
    }

    fn publish(&mut self, update: &SignedUpdate, random: Option<&mut Random>) {
        let record = Record::from(update.clone()).encode();
        self.append(record.into(), Some(update.id().hash), random);
    }

    fn choose(&mut self, random: Option<&mut Random>) {
        self.choices += 1;
        let head = *self.chain.last().unwrap();
        let at = |below: usize| self.chain[self.chain.len().saturating_sub(1 + below)];
        let choice = signer().choose(1, self.choices, head, at(2), at(4));
        self.append(Record::from(choice).encode().into(), None, random);
    }
}

/// A database that follows, with its disks.
struct Node {
    db: FaultyDisk,
    note: FaultyDisk,
    chain: Option<Chain>,
    kept: Kept,
}

impl Node {
    fn new(workload: &Workload, seed: u64, storage: Option<&KeptStorage>, kept: &Kept) -> Self {
        let db = FaultyDisk::new(seed);
        let chain = first(workload, &db, storage);
        Self {
            db,
            note: FaultyDisk::new(seed + 1),
            chain: Some(chain),
            kept: kept.clone(),
        }
    }

    fn follow<T>(&self, act: impl FnOnce(&mut FollowingDatabase<'_>) -> T) -> T {
        let chain = self.chain.as_ref().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(self.note.clone());
        let peers: Vec<Box<dyn Peer>> = vec![Box::new(self.kept.clone())];
        let patience = Duration::from_millis(1);
        let mut database = FollowingDatabase::new(chain, disk, keys(), peers, patience).unwrap();
        act(&mut database)
    }

    /// Follows the stream for so many records, or until none is left.
    fn read(&self, stream: &MemoryStream, count: u64) {
        let never = AtomicBool::new(false);
        let mut left = count;
        self.follow(|database| {
            database
                .run(stream, &never, &mut |_, is_idle| {
                    left = left.saturating_sub(1);
                    is_idle || left == 0
                })
                .unwrap();
        });
    }

    fn crash(&mut self) {
        self.chain = None;
        (self.db, self.note) = (self.db.crash(), self.note.crash());
        let (chain, _) = Chain::open(Arc::new(self.db.clone()), options()).unwrap();
        self.chain = Some(chain);
    }

    fn chain(&self) -> &Chain {
        self.chain.as_ref().unwrap()
    }
}

fn all_but_the_token() -> KeptStorage {
    KeptStorage::new([]).unwrap()
}

fn with_the_token() -> KeptStorage {
    KeptStorage::new([keccak256(TOKEN)]).unwrap()
}

#[test]
fn databases_follow_a_stream_through_faults_and_branches() {
    let workload = workload();
    let first_engine = Engine::new(&workload);
    let genesis = first_engine.chain.db().genesis();
    let (mut reorganized, mut crashes) = (0, 0);
    for seed in seeds!(0..30) {
        let random = &mut Random::new(seed);
        let mut builder = Builder::new(genesis);
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
            builder.publish(&signed, Some(random));
            if random.percent(70) {
                builder.choose(Some(random));
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
        builder.choose(None);
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
        builder.publish(&signed, None);
        builder.choose(None);
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
        builder.publish(&signed, None);
    }
    builder.choose(None);
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
