//! A chain: a state database with fork rules and blocks.

use crate::{
    Block, ChainError, ChainSpec, RawBlock,
    error::unreadable_spec,
    preimages::KeptPreimages,
    stored::{KnownBlock, StoredBlock},
};
use alloy_consensus::{Header, proofs::calculate_ommers_root};
use alloy_primitives::{B256, Bytes, U256};
use cambium_evm::{BlockExecutor, MeasuredChoice};
use cambium_index::{ChainIndex, IndexError};
use cambium_preimages::Preimages;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{BlockMeta, Db, Disk, Options, Recovery, StateError};
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Name of the database property with the fork rules, as JSON.
pub(crate) const SPEC: &str = "chain_spec";
/// Number of recent blocks kept in memory for validation: more than it looks back.
const RECENT_BLOCKS: usize = 64;

/// Blocks below one whose record is lost that are looked at for the total difficulty.
const SEARCHED_BELOW: u64 = 1024;

/// Default of [`Chain::with_read_ahead`]: at this depth devices have reached most of their rate.
pub const READ_AHEAD_DEFAULT: usize = 128;
/// Most blocks that are executed at once.
pub const BATCH_MAX: usize = 1024;

#[derive(Default)]
struct Recent {
    blocks: HashMap<B256, KnownBlock>,
    order: VecDeque<B256>,
}

/// A database of a chain's blocks and state, which validates and executes blocks.
pub struct Chain {
    db: Db,
    spec: ChainSpec,
    executor: BlockExecutor,
    choice: MeasuredChoice,
    applying: bool,
    batch: usize,
    read_ahead: usize,
    receipts: bool,
    index: Option<ChainIndex>,
    preimages: Option<KeptPreimages>,
    recent: Mutex<Recent>,
    /// Held while a block is inserted.
    pub(crate) inserting: Mutex<()>,
}

impl Chain {
    pub(crate) fn new(db: Db, spec: ChainSpec) -> Result<Self, ChainError> {
        let preimages = KeptPreimages::of(&db)?;
        Ok(Self {
            db,
            spec,
            executor: BlockExecutor::default(),
            choice: MeasuredChoice::default(),
            applying: false,
            batch: 1,
            read_ahead: READ_AHEAD_DEFAULT,
            receipts: false,
            index: None,
            preimages,
            recent: Mutex::default(),
            inserting: Mutex::default(),
        })
    }

    /// Opens the database on `disk`.
    ///
    /// # Errors
    ///
    /// [`ChainError::State`] as [`Db::open`], [`ChainError::NoRules`] if the database is not a chain's, and
    /// [`ChainError::Unreadable`] if its fork rules can't be decoded.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, Recovery), ChainError> {
        let (db, recovery) = Db::open(disk, options)?;
        Ok((Self::of(db)?, recovery))
    }

    /// The chain of an open database.
    ///
    /// # Errors
    ///
    /// [`ChainError::NoRules`] if the database is not a chain's, [`ChainError::Unreadable`] if its fork
    /// rules can't be decoded, and [`ChainError::Preimages`] if the disk fails.
    pub fn of(db: Db) -> Result<Self, ChainError> {
        let spec = Self::rules_of(&db)?.ok_or(ChainError::NoRules)?;
        Self::new(db, spec)
    }

    /// The fork rules in a database. A database made with [`Db`] alone has none.
    ///
    /// # Errors
    ///
    /// [`ChainError::Unreadable`] if they can't be decoded.
    pub fn rules_of(db: &Db) -> Result<Option<ChainSpec>, ChainError> {
        let read = |json| serde_json::from_slice(json);
        let spec = db.property(SPEC).map(read).transpose();
        spec.map_err(|error| unreadable_spec(error.to_string()))
    }

    /// Writes the preimages that are in memory to a file, if the chain keeps any, waits for merges that are under
    /// way, and closes the database: its directory can be opened again at once. Dropping the chain closes it, too, once
    /// its merges have ended.
    ///
    /// # Errors
    ///
    /// [`StateError::StillUsed`] if there are other handles or views of the database, which is closed when the last
    /// of them is dropped. Any other error reports an earlier failure, and the database is closed.
    pub fn close(self) -> Result<(), ChainError> {
        let Self { db, preimages, .. } = self;
        let ended = preimages.map_or(Ok(()), |mut preimages| preimages.end());
        db.close()?;
        ended
    }

    /// The state engine.
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// Sets the executor of imported blocks. All executors give the same results.
    #[must_use]
    pub fn with_executor(self, executor: BlockExecutor) -> Self {
        Self { executor, ..self }
    }

    /// Sets whether to apply access lists instead of executing blocks, for blocks from Cancun on
    /// that come with their lists. Only the resulting state roots are verified, and the lists'
    /// hashes if the headers have them. This is meant for catching up with a chain that others have
    /// executed. A block whose list gives a different state root is executed.
    #[must_use]
    pub fn with_applying(self, applying: bool) -> Self {
        Self { applying, ..self }
    }

    /// Sets the maximum number of consecutive blocks that an import executes at once, for blocks
    /// from Cancun on that come with their access lists. The steps of all these blocks are shared by the
    /// executor's threads. Blocks are sealed and then verified in order. If the executor has only one
    /// thread, blocks are executed one by one, which takes less time then. More than [`BATCH_MAX`] are as
    /// many.
    #[must_use]
    pub fn with_batch(self, batch: usize) -> Self {
        let batch = batch.min(BATCH_MAX);
        Self { batch, ..self }
    }

    /// Sets the number of device reads that are in flight at once for the next blocks, while earlier
    /// ones are executed. Zero turns reading ahead off. It changes no result.
    #[must_use]
    pub fn with_read_ahead(self, read_ahead: usize) -> Self {
        Self { read_ahead, ..self }
    }

    /// Sets whether blocks are stored with their receipts, which are not known otherwise without executing
    /// them again. Blocks that are applied without execution have none.
    #[must_use]
    pub fn with_receipts(self, receipts: bool) -> Self {
        Self { receipts, ..self }
    }

    /// Sets the index in which blocks, transactions, receipts and logs are looked up, and stores blocks with
    /// their receipts. It is that of this database. An [`IndexFollower`](cambium_index::IndexFollower) keeps
    /// it at the head; without one, a look-up adds the newest blocks.
    #[must_use]
    pub fn with_index(self, index: ChainIndex) -> Self {
        let index = Some(index);
        let receipts = true;
        Self {
            index,
            receipts,
            ..self
        }
    }

    /// The index, if there is one.
    pub const fn index(&self) -> Option<&ChainIndex> {
        self.index.as_ref()
    }

    /// Whether the chain keeps the addresses and the keys of slots behind the hashes in its state: those of the
    /// first state ([`InitOptions::preimages`](crate::InitOptions)), and what each block creates. A thread adds those
    /// of new blocks while the chain is open for writing.
    pub const fn keeps_preimages(&self) -> bool {
        self.preimages.is_some()
    }

    /// The preimages, with those of all blocks up to the head. `None` if the chain keeps none.
    ///
    /// # Errors
    ///
    /// [`ChainError::Preimages`] names the file that is damaged or missing, or says that another process has
    /// them; and errors of the block log.
    pub fn preimages(&self) -> Result<Option<Preimages>, ChainError> {
        let kept = self.preimages.as_ref();
        kept.map(KeptPreimages::up_to_head).transpose()
    }

    /// Whether blocks are stored with their receipts.
    pub(crate) const fn keeps_receipts(&self) -> bool {
        self.receipts
    }

    /// Number of device reads in flight ahead of execution.
    pub(crate) const fn read_ahead(&self) -> usize {
        self.read_ahead
    }

    /// Maximum number of blocks that are executed at once.
    pub(crate) fn batch(&self) -> usize {
        match self.executor.threads.get() {
            1 => 1,
            _ if self.db.kept_storage().is_some() => 1,
            _ => self.batch,
        }
    }

    /// Whether access lists are applied instead of executing blocks.
    pub(crate) const fn is_applying(&self) -> bool {
        self.applying
    }

    /// The executor of imported blocks.
    pub const fn executor(&self) -> &BlockExecutor {
        &self.executor
    }

    /// The choice between executors for blocks without access lists, if the executor is `auto`.
    pub(crate) const fn choice(&self) -> &MeasuredChoice {
        &self.choice
    }

    /// The fork rules.
    pub const fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// The canonical block with this number.
    ///
    /// # Errors
    ///
    /// [`ChainError::NoSuchBlock`] if there is none, [`ChainError::State`] if it has left the log or can't be read, and
    /// [`ChainError::Unreadable`] if its bytes don't decode as a block.
    pub fn block(&self, number: BlockNumber) -> Result<Block, ChainError> {
        self.stored(number)?.block()
    }

    /// A block of any branch, if the database has it, with its total difficulty.
    ///
    /// # Errors
    ///
    /// [`ChainError::State`] if the block can't be read, and [`ChainError::Unreadable`] if its bytes are no
    /// block.
    pub fn block_of(&self, id: BlockId) -> Result<Option<(Block, U256)>, ChainError> {
        match self.stored_of(id)? {
            Some(stored) => Ok(Some((stored.block()?, stored.body.total_difficulty))),
            None => Ok(None),
        }
    }

    /// The RLP of the canonical block with this number.
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block).
    pub fn block_rlp(&self, number: BlockNumber) -> Result<Bytes, ChainError> {
        Ok(self.stored(number)?.body.rlp)
    }

    /// Total difficulty of the canonical block with this number, including its own.
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block).
    pub fn total_difficulty(&self, number: BlockNumber) -> Result<U256, ChainError> {
        Ok(self.stored(number)?.body.total_difficulty)
    }

    /// The stored data of the canonical block with this number.
    pub(crate) fn stored(&self, number: BlockNumber) -> Result<StoredBlock, ChainError> {
        let indexed = self.indexed(number);
        if let Ok(Some(stored)) = indexed {
            return Ok(stored);
        }
        let head = self.db.head();
        let meta = of_log(self.db.block(number), indexed)?;
        StoredBlock::read(meta.ok_or(ChainError::NoSuchBlock { number, head })?)
    }

    /// A block of any branch as it is stored, if the database or the index has it.
    ///
    /// # Errors
    ///
    /// [`ChainError::State`] and [`ChainError::Index`] if the block can't be read.
    pub fn stored_of(&self, id: BlockId) -> Result<Option<StoredBlock>, ChainError> {
        let indexed = self.indexed(id.number);
        match indexed {
            Ok(Some(stored)) if stored.id == id => Ok(Some(stored)),
            indexed => {
                let meta = of_log(self.db.block_by_id(id), indexed)?;
                meta.map(StoredBlock::read).transpose()
            }
        }
    }

    /// A canonical block from the index, if it is there: a read that does not get its changes as well, and
    /// has blocks that the log no longer keeps.
    fn indexed(&self, number: BlockNumber) -> Result<Option<StoredBlock>, IndexError> {
        let Some(index) = &self.index else {
            return Ok(None);
        };
        match index.block(&self.db, number) {
            Err(IndexError::NotIndexed { .. } | IndexError::Behind { .. }) => Ok(None),
            block => Ok(block?.map(StoredBlock::from)),
        }
    }

    /// Whether the database has the block, so that a child can be executed on it.
    ///
    /// # Errors
    ///
    /// [`ChainError::State`] as [`Db::has`].
    pub fn has(&self, id: BlockId) -> Result<bool, ChainError> {
        Ok(self.db.has(id)?)
    }

    /// The id of a header's parent. A parent in memory is found by its hash alone, so that a wrong
    /// number in the child is reported as such.
    pub fn parent_of(&self, header: &Header) -> BlockId {
        let by_number = || BlockId::new(header.number.saturating_sub(1), header.parent_hash);
        self.db.find(&header.parent_hash).unwrap_or_else(by_number)
    }

    /// Checks that a genesis hash is that of the database.
    ///
    /// # Errors
    ///
    /// [`ChainError::OtherGenesis`] if it is not.
    pub fn check_genesis(&self, given: B256) -> Result<(), ChainError> {
        let database = self.db.genesis().hash;
        if database == given {
            Ok(())
        } else {
            Err(ChainError::OtherGenesis { database, given })
        }
    }

    /// Data of a block that is canonical, on a stored branch, or sealed.
    pub(crate) fn known(&self, id: BlockId) -> Result<Option<KnownBlock>, ChainError> {
        if let Some(known) = self.recent().blocks.get(&id.hash) {
            return Ok(Some(known.clone()));
        }
        let meta = match self.db.block_by_id(id) {
            Err(error) if error.is_damage() && id == self.db.head() => {
                tracing::warn!(%error, "the head's record can't be read");
                return Err(ChainError::HeadLost(id));
            }
            meta => meta?,
        };
        let Some(meta) = meta else {
            return Ok(None);
        };
        let stored = StoredBlock::read(meta)?;
        let known = KnownBlock::new(&stored.block()?, stored.body.total_difficulty);
        self.remember(id.hash, known.clone());
        Ok(Some(known))
    }

    /// Whether the head's record is lost, so that nothing can be built on it until it is given again: see
    /// [`Self::recall`].
    pub(crate) fn is_head_lost(&self) -> Result<bool, ChainError> {
        match self.known(self.db.head()) {
            Err(ChainError::HeadLost(_)) => Ok(true),
            known => known.map(|_| false),
        }
    }

    /// Remembers the data that children need of a block whose record is lost: the caller has the block, and the
    /// database has its hash. Remembers nothing of a block whose total difficulty is unknown.
    ///
    /// # Errors
    ///
    /// [`ChainError::TotalDifficultyLost`] if that is the head, and those of decoding the block.
    pub(crate) fn recall(&self, id: BlockId, raw: &RawBlock) -> Result<(), ChainError> {
        if !matches!(self.known(id), Err(error) if error.is_lost_record()) {
            return Ok(());
        }
        let block = raw.decode()?;
        let header = &block.header;
        let parent = BlockId::new(id.number.saturating_sub(1), header.parent_hash);
        let of_parent = match self.known(parent) {
            Ok(Some(parent)) => Some(parent.total_difficulty),
            _ if header.difficulty.is_zero() => self.final_total_difficulty(id),
            _ => None,
        };
        let Some(before) = of_parent else {
            return match id == self.db.head() {
                true => Err(ChainError::TotalDifficultyLost(id)),
                false => Ok(()),
            };
        };
        if calculate_ommers_root(&block.body.ommers) == header.ommers_hash {
            let total_difficulty = before.saturating_add(header.difficulty);
            self.remember(id.hash, KnownBlock::new(&block, total_difficulty));
        }
        Ok(())
    }

    /// The total difficulty of the blocks after the merge, from the newest one of them below `id` whose record is there.
    fn final_total_difficulty(&self, id: BlockId) -> Option<U256> {
        let lowest = id.number.saturating_sub(SEARCHED_BELOW).max(1);
        let below = (lowest..id.number).rev();
        let known = below.filter_map(|number| {
            let id = self.db.block_id(number).ok().flatten()?;
            self.known(id).ok().flatten()
        });
        let mut after = known.filter(|known| known.header.difficulty.is_zero());
        after.next().map(|known| known.total_difficulty)
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

/// Block in the log, for a block that the index lacks. An unreadable index does not affect a block that the log has;
/// for one that has left the log, the error is the index's.
fn of_log(
    block: Result<Option<BlockMeta>, StateError>,
    indexed: Result<Option<StoredBlock>, IndexError>,
) -> Result<Option<BlockMeta>, ChainError> {
    match (block, indexed) {
        (Err(StateError::NotKept { .. }), Err(error)) => Err(error.into()),
        (block, Err(error)) => {
            tracing::warn!(%error, "a block was read from the log instead of the index");
            Ok(block?)
        }
        (block, Ok(_)) => Ok(block?),
    }
}
