//! Cambium: a state engine for EVM blockchains, to embed.
//!
//! There are two entry points. [`Chain`] validates and executes blocks, verifies every root against
//! the header, and makes blocks durable. [`Db`] is the engine below it, for callers with their own
//! execution: a [`View`] is the state at a block (and a database for revm), and the changes of a
//! block go through `View -> Session -> Staged -> Sealed -> Committed`.
//!
//! ```
//! use cambium::{Account, AccountDiff, AccountUpdate, B256, BlockId, BlockMeta, Bytes, Changes};
//! use cambium::{FaultyDisk, Loader, Options, StateError, U256, keccak256};
//! use std::sync::Arc;
//!
//! # fn meta(number: u64, state_root: B256, parent: B256) -> BlockMeta {
//! #     let id = BlockId::new(number, B256::with_last_byte(number as u8 + 1));
//! #     BlockMeta { id, parent, state_root, body: Bytes::new() }
//! # }
//! let alice = keccak256([0xa1; 20]);
//! let mut loader = Loader::new(Arc::new(FaultyDisk::new(1)), Options::default())?;
//! loader.account(alice, &Account { balance: U256::from(100), ..Default::default() }, [])?;
//! let genesis = loader.finish(&mut |_| {})?;
//! let header = meta(0, genesis.root(), B256::ZERO); // number, hash, parent, state root
//! let db = genesis.create(header.clone(), vec![])?;
//!
//! let spent = Account { nonce: 1, balance: U256::from(90), ..Default::default() };
//! let update = AccountUpdate::Put(spent);
//! let change = AccountDiff { path: alice, account: update, wipe: false, slots: vec![] };
//! let staged = db.view()?.session().finish(Changes::new(vec![change]), vec![])?;
//! let block = meta(1, staged.root(), header.id.hash); // the root is Ethereum's, to the byte
//! staged.seal(block)?.commit()?; // durable from here on
//! assert_eq!(db.view()?.account(&alice)?.unwrap().nonce, 1);
//! assert_eq!(db.view_at(0)?.account(&alice)?.unwrap().nonce, 0);
//! # Ok::<(), StateError>(())
//! ```
//!
//! [`FaultyDisk`] is a disk in memory; [`StdDisk`] is a directory of the file system.
//!
//! A whole chain, from a genesis file and a file of blocks as `geth export` writes it:
//!
//! ```no_run
//! use cambium::{BlockSource, Chain, ChainError, Options, StdDisk};
//! use std::sync::Arc;
//!
//! let (disk, options) = (Arc::new(StdDisk::new("data")), Options::default());
//! let chain = Chain::init(disk, "genesis.json", options, &mut |_| {})?;
//! let summary = chain.import(BlockSource::open("chain.rlp")?, &mut |_| {})?;
//! println!("{} blocks, head {}", summary.done.blocks, summary.done.head);
//! # Ok::<(), ChainError>(())
//! ```
//!
//! States of old blocks are near the head restored from the block log ([`Db::view_at`]), and at any
//! distance read from a history ([`History`]).
//!
//! A [`ChainReader`] reads states and proofs of a chain that another process writes.
//!
//! [`verify_account_proof`] verifies proofs and [`BlockWitness::execute`] verifies witnesses, both
//! without a database.

mod reader;

pub use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
pub use cambium_chain::{
    AccessListReader, AccessListSizes, AccessListWriter, Block, BlockChanges, BlockExecutor,
    BlockFault, BlockSealer, BlockSize, BlockSource, BlockState, BlockWitness, Chain, ChainError,
    ChainSealer, ChainSpec, ChainWriter, EvmSession, ExecutedBlock, ExecutionCounts, ExecutorKind,
    FileError, FileKind, FilePosition, Fork, Genesis, GenesisAccount, GenesisError, GenesisPart,
    ImportProgress, ImportSummary, InitProgress, InputFile, InsertedBlock, LayeredWitness,
    NoSpread, OPTIMISTIC_THREADS_MIN, Outcome, Pool, PreparedBlock, Progress, READ_AHEAD_DEFAULT,
    ROUTER, RawBlock, Receipt, Rules, SLOT_READER, STATELESS_GAS_LIMIT_MAX, Spread, StateRead,
    StatelessError, StatelessReport, StatelessRules, TOKEN, Timings, Transaction, WithAccessLists,
    WitnessForm, WitnessGap, Workload, WorkloadError, WorkloadParams, block_env, brief_json_error,
    config_env, token_balance_slot, transaction_env,
};
pub use cambium_disk::{
    Access, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats, Fault, FaultyDisk,
    IoMethod, LockError, ReadRequest, StdDisk, StdDiskOptions,
};
pub use cambium_history::{
    CatchUp, CheckedHistory, Follower, History, HistoryCopy, HistoryError, HistoryOptions,
    HistoryStats, HistoryView, WholeNodes, backup_with_history,
};
/// The key-value store: entries with a root, and serializable transactions.
pub use cambium_kv as kv;
pub use cambium_primitives::{
    AccessField, AccessList, AccessListCounts, AccessListDifference, AccessListError,
    AccessListLimits, AccessValue, Account, AccountChanges, AccountDiff, AccountUpdate,
    BalanceChange, BlockAccessIndex, BlockId, BlockNumber, Changes, CodeChange, NonceChange,
    PreStateAccount, PreStateError, PreStateValues, SlotChanges, StorageChange,
};
pub use cambium_state::{
    BackupReport, BackupSizes, BlockMeta, CheckProgress, CheckReport, Committed, CommittedBlock,
    CounterValues, Db, FileSizes, Finality, Latency, LeafKind, LoadProgress, Loaded, Loader,
    Options, Recovery, RepairFinding, RepairProgress, RepairReport, RootLoader, Sealed, Session,
    SideBranch, Staged, StateError, Stats, View, backup, repair,
};
pub use cambium_store::{FORMATS, LogPosition, StoreError};
pub use cambium_trie::{
    AccountProof, EMPTY_ROOT, ExtractedRange, LayeredProof, LayeredProofError, LayeredRoots,
    LeafRange, LeafValue, Missing, MultiProof, NoResolve, PartialTrie, ProofError, ProofTargets,
    StorageKey, StorageProof, TrieError, UpdateError, VerifiedAccount, Witness, WitnessError,
    verify_account_proof,
};
pub use reader::{ChainReader, existing_disk};
pub use revm;

/// Compiles the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
