//! A chain on top of the state engine: genesis, headers, fork rules, chain files, block import,
//! building of blocks and stateless execution.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod json;
mod spec;
mod networks;
mod difficulty;
mod header;
mod body;
mod verify;
mod files;
mod genesis;
mod error;
mod stored;
mod reads;
mod preimages;
mod chain;
mod init;
mod dump;
mod extend;
mod prepare;
mod evm_session;
mod ahead;
mod execute;
mod unchecked;
mod stages;
mod batch;
mod again;
mod updates;
mod insert;
mod preparing;
mod import;
mod dry_run;
mod draft;
mod access_list;
mod sealer;
mod stateless;
mod witness_json;

pub use body::{
    Ancestor, BLOCK_RLP_BYTES_MAX, BodyError, OMMER_ANCESTORS, validate_access_list, validate_body,
    validate_ommers, validate_size,
};
pub use cambium_evm::{
    AccessListSizes, Block, BlockChanges, BlockExecutor, BlockInput, BlockState, Chosen,
    ClaimedChanges, ExecutionCounts, ExecutionError, Executor, ExecutorKind, Hooks, ManyRead,
    OPTIMISTIC_THREADS_MIN, Outcome, Receipt, RecoveredMeanwhile, RootAfter, Rules, SignatureError,
    StateRead, Timed, Transaction, TransactionFault, block_env, config_env, recover_sender,
    recover_senders, transaction_env,
};
pub use chain::{BATCH_MAX, Chain, READ_AHEAD_DEFAULT};
pub use draft::{DraftAttributes, complete_header, keep_transactions};
pub use dry_run::{DryRun, DryRunError};
pub use dump::{DumpProgress, DumpSummary};
pub use error::{BlockFault, ChainError, ExtendError};
pub use evm_session::EvmSession;
pub use execute::{ExecutedBlock, Timings};
pub use extend::{ContractAt, Extended, StorageSource};
pub use files::{
    AccessListReader, AccessListWriter, BLOCK_BYTES_MAX, BlockSource, ChainReader, ChainWriter,
    ERA1_BLOCKS_MAX, Era1Reader, FileError, FileKind, FilePosition, InputFile, Progress, RawBlock,
    StateUpdate, UpdateReader, UpdateWriter, WithAccessLists, WithUpdates,
};
pub use genesis::{Genesis, GenesisAccount, GenesisError, GenesisPart};
pub use header::{DAO_EXTRA_DATA, HeaderError, validate_header};
pub use import::{ImportProgress, ImportSummary};
pub use init::{InitOptions, InitProgress};
pub use insert::InsertedBlock;
pub use json::brief_json_error;
pub use prepare::PreparedBlock;
pub use reads::TimedReads;
pub use sealer::ChainSealer;
pub use spec::{
    AmsterdamRules, BPO_FORKS, BlobSchedule, ChainSpec, Fork, MAINNET_DEPOSIT_CONTRACT,
};
pub use stateless::{
    BlockWitness, LayeredWitness, STATELESS_GAS_LIMIT_MAX, StatelessError, StatelessReport,
    StatelessRules, Strictness, WitnessForm, WitnessGap,
};
pub use stored::{StoredBlock, packed_receipts};
pub use updates::StateUpdates;
pub use verify::{VerifiedOutcome, VerifyError, verify_outcome, verify_state_root};
