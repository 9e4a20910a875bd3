//! A chain: a database, its fork rules, and the blocks in it.

use crate::{
    Block, ChainError, ChainSpec,
    error::unreadable_spec,
    stored::{KnownBlock, StoredBlock},
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256};
use cambium_evm::BlockExecutor;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{Db, Disk, Options, Recovery};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Name of the database's property that holds the fork rules, as JSON.
pub(crate) const SPEC: &str = "chain_spec";
/// Headers kept in memory: what validation looks back at, and some more.
const RECENT_BLOCKS: usize = 64;

#[derive(Default)]
struct Recent {
    blocks: HashMap<B256, KnownBlock>,
    order: VecDeque<B256>,
}

/// A database of a chain's blocks and state.
pub struct Chain {
    db: Db,
    spec: ChainSpec,
    executor: BlockExecutor,
    applying: bool,
    batch: usize,
    recent: Mutex<Recent>,
}

impl Chain {
    pub(crate) fn new(db: Db, spec: ChainSpec) -> Self {
        Self {
            db,
            spec,
            executor: BlockExecutor::default(),
            applying: false,
            batch: 1,
            recent: Mutex::default(),
        }
    }

    /// Opens the database on `disk`.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, Recovery), ChainError> {
        let (db, recovery) = Db::open(disk, options)?;
        Ok((Self::of(db)?, recovery))
    }

    /// The chain of a database that is open: [`ChainError::NoRules`] if it has the state of none.
    pub fn of(db: Db) -> Result<Self, ChainError> {
        let spec = Self::rules_of(&db)?.ok_or(ChainError::NoRules)?;
        Ok(Self::new(db, spec))
    }

    /// The fork rules that a database has, if it is a chain's: one made with [`Db`] alone has none.
    pub fn rules_of(db: &Db) -> Result<Option<ChainSpec>, ChainError> {
        let read = |json| serde_json::from_slice(json);
        let spec = db.property(SPEC).map(read).transpose();
        spec.map_err(|error| unreadable_spec(error.to_string()))
    }

    /// The state engine.
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// Executes blocks that are imported with this executor; they give equal results.
    #[must_use]
    pub fn with_executor(self, executor: BlockExecutor) -> Self {
        Self { executor, ..self }
    }

    /// Whether blocks from Cancun on that come with their access lists are not executed: the state
    /// goes forward by what the lists say, and only the roots that result are held against the
    /// headers (and the lists' hashes, where headers name them). That is for catching up with a
    /// chain that others have executed. A block whose list leads to another root is executed.
    #[must_use]
    pub fn with_applying(self, applying: bool) -> Self {
        Self { applying, ..self }
    }

    /// Executes up to so many consecutive blocks at once when importing, if they come with their
    /// access lists, from Cancun on; each one in sequence, on as many threads as the executor has.
    /// They are compared with their headers, and sealed, one after another as always.
    #[must_use]
    pub fn with_batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    /// Blocks that may be executed at once.
    pub(crate) const fn batch(&self) -> usize {
        self.batch
    }

    /// Whether lists are believed.
    pub(crate) const fn is_applying(&self) -> bool {
        self.applying
    }

    /// What executes blocks that are imported.
    pub const fn executor(&self) -> &BlockExecutor {
        &self.executor
    }

    /// The fork rules.
    pub const fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// The canonical block of that height.
    pub fn block(&self, number: BlockNumber) -> Result<Block, ChainError> {
        self.stored(number)?.block()
    }

    /// The RLP of the canonical block of that height.
    pub fn block_rlp(&self, number: BlockNumber) -> Result<Bytes, ChainError> {
        Ok(self.stored(number)?.rlp)
    }

    /// The block's difficulty and that of all before it.
    pub fn total_difficulty(&self, number: BlockNumber) -> Result<U256, ChainError> {
        Ok(self.stored(number)?.total_difficulty)
    }

    /// What is kept of the canonical block of that height.
    pub(crate) fn stored(&self, number: BlockNumber) -> Result<StoredBlock, ChainError> {
        let head = self.db.head();
        let meta = self.db.block(number)?;
        StoredBlock::read(meta.ok_or(ChainError::NoSuchBlock { number, head })?)
    }

    /// Whether the block is here and can be built upon.
    pub fn has(&self, id: BlockId) -> Result<bool, ChainError> {
        Ok(self.db.has(id)?)
    }

    /// The parent that a header names. One in memory is found by its hash alone, so that a wrong
    /// number of the child is told as such.
    pub(crate) fn parent_of(&self, header: &Header) -> BlockId {
        let by_number = || BlockId::new(header.number.saturating_sub(1), header.parent_hash);
        self.db.find(&header.parent_hash).unwrap_or_else(by_number)
    }

    /// Checks that a genesis block is this database's.
    pub fn check_genesis(&self, given: B256) -> Result<(), ChainError> {
        let database = self.db.genesis().hash;
        if database == given {
            Ok(())
        } else {
            Err(ChainError::OtherGenesis { database, given })
        }
    }

    /// What is known of a block that is canonical, on a kept branch, or sealed.
    pub(crate) fn known(&self, id: BlockId) -> Result<Option<KnownBlock>, ChainError> {
        if let Some(known) = self.recent().blocks.get(&id.hash) {
            return Ok(Some(known.clone()));
        }
        let Some(meta) = self.db.block_by_id(id)? else {
            return Ok(None);
        };
        let stored = StoredBlock::read(meta)?;
        let known = KnownBlock::new(&stored.block()?, stored.total_difficulty);
        self.remember(id.hash, known.clone());
        Ok(Some(known))
    }

    pub(crate) fn remember(&self, hash: B256, known: KnownBlock) {
        let mut recent = self.recent();
        if recent.blocks.insert(hash, known).is_none() {
            recent.order.push_back(hash);
            if recent.order.len() > RECENT_BLOCKS
                && let Some(oldest) = recent.order.pop_front()
            {
                recent.blocks.remove(&oldest);
            }
        }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
