//! Databases that follow a stream, and who publishes what they follow.

use super::stream::fault;
use alloy_primitives::{B256, Bytes, keccak256, map::HashMap};
use cambium_chain::{Block, Chain, ChainError, ChainSealer, Fork, InitOptions};
use cambium_cluster::{
    BlockUpdate, BuilderKeys, FollowingDatabase, MemoryStream, Peer, Record, Shard, ShardLimits,
    ShardRange, SignedUpdate, Signer, SnapshotError, Source, Stream, StreamPosition, Wanted,
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
pub fn first(workload: &Workload, disk: &FaultyDisk, kept: Option<&KeptStorage>) -> Chain {
    let options = InitOptions {
        storage_of: kept.cloned(),
        ..InitOptions::from(options())
    };
    workload
        .init(Arc::new(disk.clone()), options, &mut |_| {})
        .unwrap()
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
    pub fn anew(&self, workload: &Workload) -> Self {
        Self {
            chain: first(workload, &FaultyDisk::new(2), None),
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

/// The same block with a mark that tells it from others. Without a history of hashes of its own, its state is the same.
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
        builder.append(epoch.into(), None);
        builder
    }

    /// A guard against repetition that nothing else has.
    pub fn next_id(&mut self) -> String {
        self.appended += 1;
        self.appended.to_string()
    }

    /// Appends a record in a test's stream of one writer, whatever becomes of it.
    pub fn append(&mut self, record: Bytes, of: Option<B256>) {
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

    pub fn publish(&mut self, update: &SignedUpdate) {
        let record = Record::from(update.clone()).encode();
        self.append(record.into(), Some(update.id().hash));
    }

    pub fn choose(&mut self) {
        self.choices += 1;
        let head = *self.chain.last().unwrap();
        let at = |below: usize| self.chain[self.chain.len().saturating_sub(1 + below)];
        let choice = signer().choose(1, self.choices, head, at(2), at(4));
        self.append(Record::from(choice).encode().into(), None);
    }
}

/// A database that follows, with its disks.
pub struct Node {
    pub db: FaultyDisk,
    pub note: FaultyDisk,
    pub chain: Option<Chain>,
    pub kept: Kept,
}

impl Node {
    pub fn new(workload: &Workload, seed: u64, storage: Option<&KeptStorage>, kept: &Kept) -> Self {
        let db = FaultyDisk::new(seed);
        let chain = first(workload, &db, storage);
        Self {
            db,
            note: FaultyDisk::new(seed + 1),
            chain: Some(chain),
            kept: kept.clone(),
        }
    }

    pub fn follow<T>(&self, act: impl FnOnce(&mut FollowingDatabase<'_>) -> T) -> T {
        let peers: Vec<Box<dyn Peer>> = vec![Box::new(self.kept.clone())];
        self.follow_with(peers, Duration::from_millis(1), act)
    }

    pub fn follow_with<T>(
        &self,
        peers: Vec<Box<dyn Peer>>,
        patience: Duration,
        act: impl FnOnce(&mut FollowingDatabase<'_>) -> T,
    ) -> T {
        let chain = self.chain.as_ref().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(self.note.clone());
        let mut database = FollowingDatabase::new(chain, disk, keys(), peers, patience).unwrap();
        act(&mut database)
    }

    /// Follows the stream for so many records, or until none is left.
    pub fn read(&self, stream: &MemoryStream, count: u64) {
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

    pub fn crash(&mut self) {
        self.chain = None;
        (self.db, self.note) = (self.db.crash(), self.note.crash());
        let (chain, _) = Chain::open(Arc::new(self.db.clone()), options()).unwrap();
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
