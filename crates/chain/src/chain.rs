//! A chain: a database, its fork rules, and the blocks in it.

use crate::{
    Block, ChainSpec, FileError, Genesis, GenesisAccount, GenesisError, execute::BlockFault,
    workload::Workload,
};
use alloy_consensus::{BlockBody, Header};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rlp::{Decodable, Encodable};
use cambium_primitives::{Account, BlockId, BlockNumber, Path as StatePath};
use cambium_state::{BlockMeta, Db, Disk, Loader, Options, Recovery, StateError};
use cambium_trie::TrieError;
use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Name of the database's property that holds the fork rules, as JSON.
const SPEC: &str = "chain_spec";
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
    recent: Mutex<Recent>,
}

impl Chain {
    /// Makes a database on `disk` from a genesis file.
    pub fn init(
        disk: Arc<dyn Disk>,
        genesis: impl AsRef<Path>,
        options: Options,
    ) -> Result<Self, ChainError> {
        let path = genesis.as_ref();
        let (genesis, loader) = load(path)?;
        Self::create(disk, options, loader, |root| {
            let spec = genesis.spec(root)?;
            let header = genesis.header(&spec, root);
            Ok((spec, header))
        })
        .map_err(|error| given_twice(path, error))
    }

    /// Makes a database on `disk` from a workload's genesis block, without a file between.
    pub fn init_workload(
        disk: Arc<dyn Disk>,
        workload: &Workload,
        options: Options,
    ) -> Result<Self, ChainError> {
        let mut loader = Loader::new();
        let filled: Result<(), Infallible> = workload.for_each_account(|address, account| {
            take_account(&mut loader, address, account);
            Ok(())
        });
        match filled {
            Ok(()) => {}
        }
        let genesis = workload.genesis();
        Self::create(disk, options, loader, |root| {
            let spec = genesis.spec(root)?;
            let header = genesis.header(&spec, root);
            Ok((spec, header))
        })
    }

    /// Makes a database on `disk` from the accounts in `loader`; `genesis` gives the fork rules
    /// and the first block's header, once it is told the state root.
    pub fn create(
        disk: Arc<dyn Disk>,
        options: Options,
        loader: Loader,
        genesis: impl FnOnce(B256) -> Result<(ChainSpec, Header), ChainError>,
    ) -> Result<Self, ChainError> {
        let loaded = loader.load(disk, options)?;
        let (spec, header) = genesis(loaded.root())?;
        let withdrawals = header.withdrawals_root.is_some().then(Default::default);
        let body = BlockBody {
            transactions: vec![],
            ommers: vec![],
            withdrawals,
        };
        let block = Block::new(header, body);
        let hash = block.header.hash_slow();
        let mut rlp = Vec::new();
        block.encode(&mut rlp);
        let total_difficulty = block.header.difficulty;
        let known = KnownBlock {
            header: block.header,
            total_difficulty,
            ommers: vec![],
        };
        let json = serde_json::to_vec(&spec).map_err(|error| unreadable_spec(error.to_string()))?;
        let db = loaded.create(meta(&known, hash, &rlp), vec![(SPEC.to_owned(), json)])?;
        Ok(Self {
            db,
            spec,
            recent: Mutex::default(),
        })
    }

    /// Opens the database on `disk`.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, Recovery), ChainError> {
        let (db, recovery) = Db::open(disk, options)?;
        let json = db
            .property(SPEC)
            .ok_or_else(|| unreadable_spec("there are none".to_owned()))?;
        let spec =
            serde_json::from_slice(json).map_err(|error| unreadable_spec(error.to_string()))?;
        Ok((
            Self {
                db,
                spec,
                recent: Mutex::default(),
            },
            recovery,
        ))
    }

    /// The state engine.
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// The fork rules.
    pub const fn spec(&self) -> &ChainSpec {
        &self.spec
    }

    /// The canonical block of that height.
    pub fn block(&self, number: BlockNumber) -> Result<Block, ChainError> {
        Ok(decode_body(&self.stored(number)?)?.0)
    }

    /// The RLP of the canonical block of that height.
    pub fn block_rlp(&self, number: BlockNumber) -> Result<Bytes, ChainError> {
        let meta = self.stored(number)?;
        Ok(meta.body.slice(32.min(meta.body.len())..))
    }

    /// The block's difficulty and that of all before it.
    pub fn total_difficulty(&self, number: BlockNumber) -> Result<U256, ChainError> {
        Ok(decode_body(&self.stored(number)?)?.1)
    }

    fn stored(&self, number: BlockNumber) -> Result<BlockMeta, ChainError> {
        let head = self.db.head();
        self.db
            .block(number)?
            .ok_or(ChainError::NoSuchBlock { number, head })
    }

    /// Whether the block is here and can be built upon.
    pub fn has(&self, id: BlockId) -> Result<bool, ChainError> {
        Ok(self.db.has(id)?)
    }

    /// Checks that a genesis file is of this database's chain: computes its state root and header,
    /// about as much work as making a database from it.
    pub fn check_genesis_file(&self, genesis: impl AsRef<Path>) -> Result<(), ChainError> {
        let path = genesis.as_ref();
        let (genesis, loader) = load(path)?;
        let root = loader.root();
        let root = root.map_err(|error| given_twice(path, error.into()))?;
        let header = genesis.header(&genesis.spec(root)?, root);
        self.check_genesis(header.hash_slow())
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
        let Some(stored) = self.db.block_by_id(id)? else {
            return Ok(None);
        };
        let (block, total_difficulty) = decode_body(&stored)?;
        let ommers = block.body.ommers.iter().map(Header::hash_slow).collect();
        let known = KnownBlock {
            header: block.header,
            total_difficulty,
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

/// Reads a genesis file, its accounts into a loader.
fn load(genesis: &Path) -> Result<(Genesis, Loader), ChainError> {
    let mut loader = Loader::new();
    let genesis = Genesis::stream(genesis, |address, account| {
        take_account(&mut loader, address, account);
        Ok::<_, ChainError>(())
    })?;
    Ok((genesis, loader))
}

/// Whatever a genesis file gives twice is found when its paths are sorted. Whose they are takes
/// another look into the file.
fn given_twice(genesis: &Path, error: ChainError) -> ChainError {
    let ChainError::State(StateError::Trie(TrieError::Unsorted { path })) = &error else {
        return error;
    };
    let mut twice = None;
    let read = Genesis::stream(genesis, |address, _| {
        if path.starts_with(&StatePath::account(&keccak256(address))) {
            twice = Some(address);
        }
        Ok::<_, GenesisError>(())
    });
    let (Ok(Genesis { file, .. }), Some(address)) = (read, twice) else {
        return error;
    };
    let is_slot = path.len() > StatePath::account(&B256::ZERO).len();
    ChainError::Genesis(match is_slot {
        true => GenesisError::SlotTwice { file, address },
        false => GenesisError::Twice { file, address },
    })
}

fn take_account(loader: &mut Loader, address: Address, account: GenesisAccount) {
    let code_hash = keccak256(&account.code);
    let slots = account.storage.iter();
    let slots: Vec<_> = slots
        .map(|(slot, value)| (keccak256(slot), *value))
        .collect();
    let fields = Account {
        nonce: account.nonce,
        balance: account.balance,
        code_hash,
    };
    loader.account(keccak256(address), &fields, &slots);
    if !account.code.is_empty() {
        loader.code(code_hash, account.code);
    }
}

fn unreadable_spec(why: String) -> ChainError {
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
pub(crate) fn meta(known: &KnownBlock, hash: B256, rlp: &[u8]) -> BlockMeta {
    let header = &known.header;
    let body = [&known.total_difficulty.to_be_bytes::<32>()[..], rlp].concat();
    BlockMeta {
        id: BlockId::new(header.number, hash),
        parent: header.parent_hash,
        state_root: header.state_root,
        body: body.into(),
    }
}

fn decode_body(meta: &BlockMeta) -> Result<(Block, U256), ChainError> {
    let what = || format!("block {}", meta.id);
    let unreadable = |why: String| ChainError::Unreadable { what: what(), why };
    let Some((difficulty, mut rlp)) = meta.body.split_at_checked(32) else {
        return Err(unreadable("it is too short".to_owned()));
    };
    let block = Block::decode(&mut rlp).map_err(|error| unreadable(error.to_string()))?;
    Ok((block, U256::from_be_slice(difficulty)))
}
