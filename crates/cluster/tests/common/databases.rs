//! Databases that follow a stream, and who publishes what they follow.

use super::stream::{fault, item};
use alloy_primitives::{B256, Bytes, keccak256, map::HashMap};
use cambium_chain::{Block, Chain, ChainError, ChainSealer, Fork, InitOptions};
use cambium_cluster::{
    BlockUpdate, BuilderKeys, FollowError, Followed, FollowingDatabase, MemoryStream, Peer, Record,
    Shard, ShardLimits, ShardRange, SignedUpdate, Signer, SnapshotError, Source, Stream,
    StreamPosition, Taken, Wanted,
};
use cambium_disk::{Disk, FaultyDisk};
use cambium_primitives::BlockId;
use cambium_seeds::Random;
use cambium_state::{KeptStorage, Options};
use cambium_workload::{BlockSealer, BlockSize, TOKEN, Workload, WorkloadParams};
use parking_lot::Mutex;
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

pub const BLOCKS: u64 = 18;

pub fn signer() -> Signer {
    Signer::new(4_093, [1; 32]).unwrap()
}

pub fn keys() -> BuilderKeys {
    BuilderKeys {
        chain_id: 4_093,
        keys: vec![signer().address()],
    }
}

pub fn workload() -> Workload {
    workload_of(BLOCKS, 5)
}

pub fn workload_of(blocks: u64, transactions: u64) -> Workload {
    Workload::new(WorkloadParams {
        fork: Fork::Osaka,
        accounts: 60,
        senders: Some(40),
        blocks,
        block_size: BlockSize::Transactions(transactions),
        erc20_percent: 60,
        ..WorkloadParams::default()
    })
    .unwrap()
}

/// A database with the first block alone.
fn first(workload: &Workload, seed: u64) -> Chain {
    let disk = Arc::new(FaultyDisk::new(seed));
    workload.init(disk, options(), &mut |_| {}).unwrap()
}

pub fn options() -> Options {
    Options {
        memory_bytes: 64 << 20,
        ..Options::default()
    }
}

/// Seals blocks, and keeps their drafts.
pub struct Drafting<'a> {
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
pub struct Engine {
    pub chain: Chain,
    drafts: Arc<Vec<Block>>,
}

impl Engine {
    /// One with all blocks.
    pub fn new(workload: &Workload) -> Self {
        let chain = first(workload, 1);
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
    pub fn anew(&self, workload: &Workload) -> Self {
        Self {
            chain: first(workload, 2),
            drafts: Arc::clone(&self.drafts),
        }
    }

    pub fn updates(&self, first: u64, last: u64) -> Vec<BlockUpdate> {
        let source = Source::new(&self.chain, ShardRange::new(0, 4).unwrap());
        let updates = source.updates(first, last).unwrap();
        updates.map(Result::unwrap).collect()
    }

    /// The next block on `parent`, with a mark that tells it from others.
    pub fn on(&self, parent: BlockId, mark: u64) -> BlockUpdate {
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

/// The same block, with a mark that tells it from others.
pub fn marked(update: &BlockUpdate, mark: u64) -> BlockUpdate {
    let mut update = update.clone();
    update.header.extra_data = mark.to_be_bytes().to_vec().into();
    update
}

/// What shards keep of what was published.
#[derive(Clone, Default)]
pub struct Kept(pub Arc<Mutex<Records>>);

/// Records of blocks by hash, and all records by position.
pub type Records = (HashMap<B256, Bytes>, HashMap<u64, Bytes>);

impl Kept {
    /// These blocks, as a builder has signed them.
    pub fn of(updates: impl IntoIterator<Item = BlockUpdate>) -> Self {
        let blocks = updates
            .into_iter()
            .map(|update| (update.id().hash, signed(update).into()));
        Self(Arc::new(Mutex::new((blocks.collect(), HashMap::default()))))
    }
}

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
pub struct Builder {
    pub stream: MemoryStream,
    pub kept: Kept,
    pub tail: StreamPosition,
    /// Of which appends fail.
    pub faults: Option<Random>,
    appended: u64,
    pub choices: u64,
    /// The canonical chain, from the first block on.
    pub chain: Vec<BlockId>,
}

impl Builder {
    pub fn new(first: BlockId) -> Self {
        let mut builder = Self {
            stream: MemoryStream::new(),
            kept: Kept::default(),
            tail: StreamPosition(0),
            faults: None,
            appended: 0,
            choices: 0,
            chain: vec![first],
        };
        let epoch = Record::from(signer().open_epoch(1)).encode();
        builder.append(epoch);
        builder
    }

    /// A guard against repetition that nothing else has.
    fn next_id(&mut self) -> String {
        self.appended += 1;
        self.appended.to_string()
    }

    /// Appends a record in a test's stream of one writer, whatever becomes of it.
    pub fn append(&mut self, record: impl Into<Bytes>) {
        self.append_of(record.into(), None);
    }

    fn append_of(&mut self, record: Bytes, of: Option<B256>) {
        let id = self.next_id();
        let mut kept = self.kept.0.lock();
        if let Some(hash) = of {
            kept.0.insert(hash, record.clone());
        }
        if let Some(random) = &mut self.faults {
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

    /// Publishes blocks of its epoch as its chain, with a choice after each if `chooses` says so.
    pub fn publish_all(&mut self, updates: &[BlockUpdate], chooses: bool) {
        for update in updates {
            let signed = signer().sign_update(1, update.clone());
            self.chain.push(signed.id());
            self.publish(&signed);
            if chooses {
                self.choose();
            }
        }
    }

    /// Makes so many blocks, publishes them as its chain, and then chooses the last one.
    pub fn make_all(&mut self, engine: &Engine, blocks: u64) {
        for mark in 0..blocks {
            let update = engine.on(self.head(), mark);
            self.publish_all(&[update], false);
        }
        self.choose();
    }

    /// Leaves the last two records in the stream. Shards have the others by hash, and what opens the epoch by position.
    pub fn keep_end(&self) {
        self.stream.remove_before(StreamPosition(self.tail.0 - 1));
        let mut kept = self.kept.0.lock();
        kept.1.retain(|position, _| *position == 1);
    }

    pub fn head(&self) -> BlockId {
        *self.chain.last().unwrap()
    }

    pub fn publish(&mut self, update: &SignedUpdate) {
        let record = Record::from(update.clone()).encode();
        self.append_of(record.into(), Some(update.id().hash));
    }

    pub fn choose(&mut self) {
        self.choices += 1;
        let head = self.head();
        let at = |below: usize| self.chain[self.chain.len().saturating_sub(1 + below)];
        let choice = signer().choose(1, self.choices, head, at(2), at(4));
        self.append(Record::from(choice).encode());
    }
}

/// How long a block is waited for that nobody has.
pub const MOMENT: Duration = Duration::from_millis(1);

/// Records for a follower, one after another.
pub struct Feeding<'a, 'c> {
    pub database: &'a mut FollowingDatabase<'c>,
    position: u64,
}

impl<'a, 'c> Feeding<'a, 'c> {
    fn new(database: &'a mut FollowingDatabase<'c>) -> Self {
        let position = database.state().position.0;
        let mut feeding = Self { database, position };
        feeding.take(opened()).unwrap();
        feeding
    }

    pub fn take(&mut self, record: Vec<u8>) -> Result<Taken, FollowError> {
        self.position += 1;
        self.database.take(&item(self.position, record))
    }

    pub fn take_all(&mut self, updates: &[BlockUpdate]) {
        for update in updates {
            self.take(signed(update.clone())).unwrap();
        }
    }
}

pub fn signed(update: BlockUpdate) -> Vec<u8> {
    Record::from(signer().sign_update(1, update)).encode()
}

pub fn opened() -> Vec<u8> {
    Record::from(signer().open_epoch(1)).encode()
}

pub fn chosen(number: u64, head: BlockId, safe: BlockId, finalized: BlockId) -> Vec<u8> {
    Record::from(signer().choose(1, number, head, safe, finalized)).encode()
}

/// A database that follows, with its disks.
pub struct Node {
    pub db: FaultyDisk,
    pub note: FaultyDisk,
    pub chain: Option<Chain>,
    pub kept: Kept,
    pub keys: BuilderKeys,
    options: Options,
}

impl Node {
    pub fn new(workload: &Workload, seed: u64, storage: Option<&KeptStorage>, kept: &Kept) -> Self {
        let options = InitOptions {
            storage_of: storage.cloned(),
            ..InitOptions::from(options())
        };
        Self::with(workload, seed, options, kept)
    }

    pub fn with(workload: &Workload, seed: u64, options: InitOptions, kept: &Kept) -> Self {
        let db = FaultyDisk::new(seed);
        let disk = Arc::new(db.clone());
        let of_db = options.db;
        let chain = workload.init(disk, options, &mut |_| {}).unwrap();
        Self {
            keys: keys(),
            options: of_db,
            db,
            note: FaultyDisk::new(seed + 1),
            chain: Some(chain),
            kept: kept.clone(),
        }
    }

    pub fn follow<T>(&self, act: impl FnOnce(&mut FollowingDatabase<'_>) -> T) -> T {
        let peers: Vec<Box<dyn Peer>> = vec![Box::new(self.kept.clone())];
        self.follow_with(peers, MOMENT, act)
    }

    pub fn follow_with<T>(
        &self,
        peers: Vec<Box<dyn Peer>>,
        patience: Duration,
        act: impl FnOnce(&mut FollowingDatabase<'_>) -> T,
    ) -> T {
        let chain = self.chain.as_ref().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(self.note.clone());
        let mut database =
            FollowingDatabase::new(chain, disk, self.keys.clone(), peers, patience).unwrap();
        act(&mut database)
    }

    /// Gives records to a follower, one after another, which are those behind its place. The first one opens an epoch.
    pub fn feed<T>(&self, act: impl FnOnce(&mut Feeding<'_, '_>) -> T) -> T {
        self.feed_with(vec![Box::new(self.kept.clone())], act)
    }

    pub fn feed_with<T>(
        &self,
        peers: Vec<Box<dyn Peer>>,
        act: impl FnOnce(&mut Feeding<'_, '_>) -> T,
    ) -> T {
        self.follow_with(peers, MOMENT, |database| act(&mut Feeding::new(database)))
    }

    /// Follows the stream for so many records, or until none is left.
    pub fn read(&self, stream: &dyn Stream, count: u64) -> Followed {
        self.try_read(stream, count).unwrap()
    }

    pub fn read_with(
        &self,
        peers: Vec<Box<dyn Peer>>,
        patience: Duration,
        stream: &dyn Stream,
        count: u64,
    ) -> Followed {
        self.try_read_with(peers, patience, stream, count).unwrap()
    }

    pub fn try_read(&self, stream: &dyn Stream, count: u64) -> Result<Followed, FollowError> {
        let peers: Vec<Box<dyn Peer>> = vec![Box::new(self.kept.clone())];
        self.try_read_with(peers, MOMENT, stream, count)
    }

    fn try_read_with(
        &self,
        peers: Vec<Box<dyn Peer>>,
        patience: Duration,
        stream: &dyn Stream,
        count: u64,
    ) -> Result<Followed, FollowError> {
        let never = AtomicBool::new(false);
        let mut left = count;
        self.follow_with(peers, patience, |database| {
            database.run(stream, &never, &mut |_, is_idle| {
                left = left.saturating_sub(1);
                is_idle || left == 0
            })?;
            Ok(database.followed().clone())
        })
    }

    pub fn crash(&mut self) {
        self.chain = None;
        (self.db, self.note) = (self.db.crash(), self.note.crash());
        let (chain, _) = Chain::open(Arc::new(self.db.clone()), self.options).unwrap();
        self.chain = Some(chain);
    }

    pub fn chain(&self) -> &Chain {
        self.chain.as_ref().unwrap()
    }
}

pub fn all_but_the_token() -> KeptStorage {
    KeptStorage::new([]).unwrap()
}

pub fn with_the_token() -> KeptStorage {
    KeptStorage::new([keccak256(TOKEN)]).unwrap()
}
