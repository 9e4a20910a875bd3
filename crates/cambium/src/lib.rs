//! Cambium: a state engine for EVM blockchains, to embed.
//!
//! A node: its genesis, blocks executed on revm, a choice of the head, reads, a proof, and events.
//!
//! ```
//! use cambium::revm::{Context, ExecuteCommitEvm, MainBuilder, MainContext, context::TxEnv};
//! use cambium::revm::primitives::TxKind;
//! use cambium::*;
//! use std::{error::Error, sync::Arc};
//!
//! const ALICE: Address = Address::repeat_byte(0xa1);
//! const BOB: Address = Address::repeat_byte(0xb0);
//!
//! /// Executes a payment on the state after `parent`. The block is durable, and not the head yet.
//! fn build(db: &Db, parent: BlockId, wei: u64) -> Result<BlockId, Box<dyn Error>> {
//!     let session = EvmSession::new(db.view_of(parent)?);
//!     let mut evm = Context::mainnet().with_db(session).build_mainnet();
//!     let payment = TxEnv::builder().caller(ALICE).kind(TxKind::Call(BOB)).value(U256::from(wei));
//!     evm.transact_commit(payment.gas_limit(21_000).build().unwrap())?;
//!     let staged = evm.ctx.journaled_state.database.finish()?;
//!     let state_root = staged.root(); // Ethereum's, to the byte
//!     let id = BlockId::new(parent.number + 1, keccak256([parent.hash, state_root].concat()));
//!     let body = Bytes::new(); // the transactions, in an encoding of yours
//!     let block = BlockMeta { id, parent: parent.hash, state_root, body };
//!     Ok(staged.seal(block)?.commit_side_branch()?.id())
//! }
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     let disk = Arc::new(FaultyDisk::new(1)); // in memory; `StdDisk::new("directory")` has files
//!     let mut genesis = Loader::new(disk, Options::default())?;
//!     let rich = Account { balance: U256::from(1_000_000), ..Account::default() };
//!     genesis.account(keccak256(ALICE), &rich, [])?;
//!     let genesis = genesis.finish(&mut |_| {})?;
//!     let (id, state_root) = (BlockId::new(0, keccak256("genesis")), genesis.root());
//!     let block = BlockMeta { id, parent: B256::ZERO, state_root, body: Bytes::new() };
//!     let db = genesis.create(block, vec![])?;
//!     let mut events = db.subscribe(id);
//!
//!     let (one, two) = (build(&db, id, 1)?, build(&db, id, 2)?); // two blocks that compete
//!     db.set_canonical(two, None, Some(two))?; // head, safe, finalized: block `one` is gone
//!     assert!(!db.has(one)?);
//!     let view = db.view()?;
//!     assert_eq!(view.account_at(BOB)?.unwrap().balance, U256::from(2));
//!     assert_eq!(db.view_at(0)?.account_at(BOB)?, None);
//!
//!     let targets = ProofTargets::new(vec![(keccak256(BOB), vec![])]);
//!     let proof = view.extract(&targets)?.prove_account(BOB, &[], &mut NoResolve)?;
//!     let proved = verify_account_proof(view.state_root(), &proof)?; // by whoever has the root alone
//!     assert_eq!(proved.account.unwrap().balance, U256::from(2));
//!
//!     assert!(matches!(events.try_next()?, Some(ChainEvent::Committed(block)) if block.meta.id == two));
//!     assert!(matches!(events.try_next()?, Some(ChainEvent::Finalized(block)) if block == two));
//!     Ok(())
//! }
//! ```
//!
//! There are two entry points. [`Chain`] validates and executes Ethereum's blocks, verifies every root
//! against the header, and makes blocks durable. [`Db`] is the engine below it, for callers with their own
//! execution: a [`View`] is the state at a block (and a database for revm), and the changes of a
//! block go through `View -> Session -> Staged -> Sealed -> Committed`.
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
//! | to | use |
//! |---|---|
//! | insert blocks and choose the head, as a consensus client asks | [`Chain::insert`], [`Chain::set_canonical`] |
//! | execute with revm by oneself | [`EvmSession`] |
//! | commit changes from elsewhere | [`View::session`], [`Changes`] |
//! | read states of old blocks | [`Db::view_at`] near the head; at any distance a [`History`]; [`Node::state_at`] chooses |
//! | follow the chain: committed, reverted and finalized blocks with their changes | [`Db::subscribe`] |
//! | find blocks, transactions, receipts and logs | [`Node`], [`Chain::with_index`] |
//! | know addresses and slots, not their hashes alone | [`InitOptions::preimages`], [`Chain::preimages`] |
//! | read beside a process that writes | [`Node::open`] |
//! | verify without a database | [`verify_account_proof`], [`BlockWitness::execute`] |
//! | keep keys and values under a root | [`kv`] |
//! | copy a database beside a process that writes | [`db::backup_with_parts`] |
//!
//! The names of a first program are at the root. Modules have all of them, by subject: [`db`], [`chain`], [`execution`],
//! [`access_list`], [`proof`], [`history`], [`index`], [`preimages`], [`node`](mod@node), [`disk`], [`kv`] and [`trie`]. The crates that appear in
//! signatures are re-exported.
//!
//! `examples/` has an embedded node, a rollup's node, an indexer and a proof server.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod backup;
mod error_class;
mod formats;

/// Block access lists (EIP-7928), and the pre-state values that executors use with them.
pub mod access_list {
    pub use cambium_chain::AccessListSizes;
    pub use cambium_primitives::{
        AccessField, AccessList, AccessListCounts, AccessListDifference, AccessListError,
        AccessListLimits, AccessValue, AccountChanges, BalanceChange, BlockAccessIndex, CodeChange,
        NonceChange, PreStateAccount, PreStateError, PreStateValues, SlotChanges, StorageChange,
    };
}

/// Chains: genesis, fork rules, files of blocks, import and insertion of blocks.
pub mod chain {
    pub use cambium_chain::{
        AccessListReader, AccessListWriter, AmsterdamRules, BlobSchedule, Block, BlockFault,
        BlockSource, BodyError, Chain, ChainError, ChainSealer, ChainSpec, ChainWriter, ContractAt,
        DraftAttributes, DumpProgress, DumpSummary, ExecutedBlock, ExtendError, Extended,
        FileError, FileKind, FilePosition, Fork, Genesis, GenesisAccount, GenesisError,
        GenesisPart, HeaderError, ImportProgress, ImportSummary, InitOptions, InitProgress,
        InputFile, InsertedBlock, PreparedBlock, Progress, READ_AHEAD_DEFAULT, RawBlock,
        StateUpdate, StateUpdates, StorageSource, StoredBlock, Timings, Transaction, UpdateReader,
        UpdateWriter, VerifyError, WithAccessLists, WithUpdates, brief_json_error, complete_header,
        keep_transactions,
    };
}

/// The state engine: databases, views, sessions and commits; subscriptions, backups and repairs.
pub mod db {
    pub use crate::{
        backup::{BackupParts, WholeBackup, backup_with_parts},
        error_class::ErrorClass,
        formats::FORMATS,
    };
    pub use cambium_primitives::{
        Account, AccountDiff, AccountUpdate, BlockId, BlockNumber, Changes, ChangesError,
        DecodeError, EntryValue, HashedPostState, HashedStorage, Path, Reader, STORAGE_ROOT_KEY,
        StoredValue,
    };
    pub use cambium_state::{
        BackupReport, BackupSizes, BlockMeta, ChainEvent, CheckProgress, CheckReport, Committed,
        CommittedBlock, CounterValues, Db, FileSizes, Finality, KeptStorage, LastMerge, Latency,
        LayerOfBlock, Layering, LeafKind, LoadProgress, Loaded, Loader, MapPage, Merging, Metrics,
        Options, PageAddr, PagePin, ReadAhead, ReadStep, ReadWay, Recovery, RepairFinding,
        RepairProgress, RepairReport, RootLoader, Sealed, SegmentStats, Session, SideBranch,
        Staged, StateError, Stats, Subscription, ValueStats, View, WithoutBody, backup,
        follower_bytes, repair, storage_root_of,
    };
    pub use cambium_store::{LogPosition, StoreError};
}

/// Disks: files, and a faulty one in memory for tests.
pub mod disk {
    pub use cambium_disk::{
        Access, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats, Fault, FaultyDisk,
        FinishedRead, IoMethod, LockError, QueuedRead, ReadQueue, ReadRequest, StdDisk,
        StdDiskOptions,
    };
    pub use cambium_node::existing_disk;
}

/// Execution of blocks on revm, on any state.
pub mod execution {
    pub use cambium_chain::{
        BlockChanges, BlockExecutor, BlockInput, BlockState, Chosen, ClaimedChanges, DryRun,
        DryRunError, EvmSession, ExecutionCounts, ExecutionError, Executor, ExecutorKind, Hooks,
        ManyRead, OPTIMISTIC_THREADS_MIN, Outcome, Receipt, RecoveredMeanwhile, RootAfter, Rules,
        SignatureError, StateRead, Timed, TransactionFault, block_env, config_env, recover_sender,
        recover_senders, transaction_env,
    };
}

/// States of old blocks, at any distance from the head.
pub mod history {
    pub use cambium_history::{
        CatchUp, CheckedHistory, History, HistoryCopy, HistoryError, HistoryFollower,
        HistoryOptions, HistoryStats, StateNodes, WholeNodes, backup_with_history,
    };
}

/// Blocks, transactions, receipts and logs, found by hash, address and topic.
pub mod index {
    pub use cambium_index::{
        BlockPreimages, ChainIndex, CheckedIndex, FoundHash, IndexCopy, IndexError, IndexFollower,
        IndexOptions, IndexProgress, IndexStats, IndexedBlock, LogBlocks, LogFilter, ReceiptsOf,
        StoredBody, StoredBodyError, copy_index, pack_receipts,
    };
}

/// Every question of a chain: blocks by name, states, transactions, receipts, logs and witnesses.
pub mod node {
    pub use cambium_node::{
        BlockRef, FoundBlock, FoundLog, FoundReceipt, FoundTransaction, Logs, Node, NodeError,
        StateAt,
    };
}

/// Addresses and keys of slots behind the hashes in a state.
pub mod preimages {
    pub use cambium_preimages::{
        Preimages, PreimagesError, PreimagesLookup, PreimagesOptions, PreimagesStats,
        copy_preimages,
    };
}

/// Proofs and witnesses, which are verified without a database.
pub mod proof {
    pub use cambium_chain::{
        BlockWitness, LayeredWitness, STATELESS_GAS_LIMIT_MAX, StatelessError, StatelessReport,
        StatelessRules, Strictness, WitnessForm, WitnessGap,
    };
    pub use cambium_trie::{
        AccountProof, EMPTY_ROOT, ExtractedRange, LayeredProof, LayeredProofError, LayeredRoots,
        LeafRange, LeafValue, Missing, MultiProof, NoResolve, PartialTrie, ProofError,
        ProofTargets, ProvedPage, RangeProof, RangeProofError, StorageKey, StorageProof, TrieError,
        UpdateError, VerifiedAccount, Witness, WitnessError, verify_account_proof,
    };
    #[cfg(feature = "rpc")]
    pub use cambium_trie::{EIP1186AccountProofResponse, EIP1186StorageProof};
}

/// The key-value store: entries with a root, and serializable transactions.
pub use cambium_kv as kv;
/// The partial trie with its nodes, proofs and witnesses.
pub use cambium_trie as trie;
/// The crates whose types are in signatures here, in the versions that fit.
pub use {
    alloy_consensus, alloy_eip7928, alloy_eips, alloy_genesis, alloy_primitives, alloy_rlp, revm,
    serde_json,
};

pub use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
pub use chain::{BlockSource, Chain, ChainError, ChainSpec, Genesis, InitOptions};
pub use db::{
    Account, BlockId, BlockMeta, ChainEvent, Changes, Committed, Db, Loader, Options, Sealed,
    Session, Staged, StateError, Subscription, View,
};
pub use disk::{Disk, FaultyDisk, StdDisk};
pub use execution::EvmSession;
pub use history::{History, HistoryError, HistoryOptions};
pub use index::{ChainIndex, IndexOptions};
pub use node::{BlockRef, Node, StateAt};
pub use proof::{
    AccountProof, BlockWitness, NoResolve, ProofTargets, StorageKey, verify_account_proof,
};

/// Compiles the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the example there.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/PREIMAGES.md")]
struct PreimagesExample;
