//! A chain: a database, its fork rules, and the blocks in it.

use crate::{Block, ChainSpec, FileError, GenesisError, execute::BlockFault};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256};
use alloy_rlp::Decodable;
use cambium_evm::BlockExecutor;
use cambium_primitives::{AccessList, BlockId, BlockNumber};
use cambium_state::{BlockMeta, Db, Disk, Options, Recovery, StateError};
use std::{
    collections::{HashMap, VecDeque},
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Name of the database's property that holds the fork rules, as JSON.
pub(crate) const SPEC: &str = "chain_spec";
/// Headers kept in memory: what validation looks back at, and some more.
const RECENT_BLOCKS: usize = 64;

/// Why something could not be done with a chain.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The database.
    #[error(transparent)]
    State(#[from] StateError),
    /// The genesis file.
    #[error(transparent)]
    Genesis(#[from] GenesisError),
    /// A file of blocks.
    #[error(transparent)]
    File(#[from] FileError),
    /// Bytes that are no block's.
    #[error("the bytes given as a block: {0}")]
    NotABlock(String),
    /// A block that is not valid.
    #[error("block {id} is invalid: {fault}")]
    Block {
        /// The block.
        id: BlockId,
        /// What is wrong with it.
        fault: Box<BlockFault>,
    },
    /// A genesis block that is not the database's.
    #[error(
        "the database is of the chain with genesis {database}, and this is of the one with \
         {given}: use a data directory of its own for each chain"
    )]
    OtherGenesis {
        /// Genesis hash in the database.
        database: B256,
        /// Genesis hash given.
        given: B256,
    },
    /// A database that has state and no chain's rules.
    #[error(
        "the database has no chain's fork rules: it was made with the library, and this needs them"
    )]
    NoRules,
    /// What the database has of a block or of the rules can't be read.
    #[error("{what} in the database can't be read: {why}")]
    Unreadable {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
    /// No such block.
    #[error("no block {number}: the head is {head}")]
    NoSuchBlock {
        /// What was asked for.
        number: BlockNumber,
        /// The head.
        head: BlockId,
    },
}

impl ChainError {
    pub(crate) fn invalid(id: BlockId, fault: impl Into<BlockFault>) -> Self {
        let fault = Box::new(fault.into());
        Self::Block { id, fault }
    }
}

/// What validation looks at of earlier blocks.
#[derive(Clone, Debug)]
pub(crate) struct KnownBlock {
    pub(crate) header: Header,
    pub(crate) total_difficulty: U256,
    pub(crate) ommers: Vec<B256>,
}

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
        let block = stored.block()?;
        let ommers = block.body.ommers.iter().map(Header::hash_slow).collect();
        let known = KnownBlock {
            header: block.header,
            total_difficulty: stored.total_difficulty,
            ommers,
        };
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

pub(crate) fn unreadable_spec(why: String) -> ChainError {
    ChainError::Unreadable {
        what: "the chain's fork rules".to_owned(),
        why,
    }
}

/// What the engine keeps of a block. The body:
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 32 | total difficulty up to and with this block, big-endian |
/// | 32 | | the block's RLP |
/// | then | | the RLP of its access list, if its header names one |
pub(crate) fn meta(
    known: &KnownBlock,
    hash: B256,
    rlp: &[u8],
    access_list: Option<&AccessList>,
) -> BlockMeta {
    let header = &known.header;
    let difficulty = known.total_difficulty.to_be_bytes::<32>();
    let access_list = access_list.map(AccessList::encode).unwrap_or_default();
    BlockMeta {
        id: BlockId::new(header.number, hash),
        parent: header.parent_hash,
        state_root: header.state_root,
        body: [&difficulty[..], rlp, &access_list].concat().into(),
    }
}

/// The reverse of [`meta`], with nothing decoded.
pub(crate) struct StoredBlock {
    pub(crate) id: BlockId,
    pub(crate) total_difficulty: U256,
    pub(crate) rlp: Bytes,
    /// Empty if none was kept.
    pub(crate) access_list: Bytes,
}

impl StoredBlock {
    fn read(meta: BlockMeta) -> Result<Self, ChainError> {
        let BlockMeta { id, body, .. } = meta;
        let Some((difficulty, mut rest)) = body.split_at_checked(32) else {
            return Err(unreadable(id, "it is too short"));
        };
        let block = alloy_rlp::Header::decode_bytes(&mut rest, true);
        block.map_err(|error| unreadable(id, error))?;
        let end = body.len() - rest.len();
        Ok(Self {
            id,
            total_difficulty: U256::from_be_slice(difficulty),
            rlp: body.slice(32..end),
            access_list: body.slice(end..),
        })
    }

    /// The block.
    pub(crate) fn block(&self) -> Result<Block, ChainError> {
        Block::decode(&mut &self.rlp[..]).map_err(|error| unreadable(self.id, error))
    }
}

/// An error of a block that is in the database and should not have been.
pub(crate) fn unreadable(id: BlockId, why: impl Display) -> ChainError {
    ChainError::Unreadable {
        what: format!("block {id}"),
        why: why.to_string(),
    }
}
