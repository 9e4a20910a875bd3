//! Reference models, public fixtures and crash drivers, for Cambium's own tests.

mod backend;
mod networks;
mod model;
mod layered_model;
mod access_lists;
mod random;
pub mod plain;
mod engine;
mod concurrent;
mod scouted;
mod unanimous;
mod naive_chain;
mod engine_chain;
mod random_blocks;
mod fixtures;
mod refusals;
mod known_failures;
mod genesis_files;
mod chain_file;
mod blockchain_test;
mod execution_witnesses;
mod mainnet_data;
mod mainnet_blocks;
mod mainnet_replays;
mod mainnet_proofs;
mod bridged_batch;
mod proof_cases;
mod list_mutations;
mod witnesses;
mod hostile;

pub use access_lists::{FalseList, changes_of_list, false_lists};
pub use backend::Backend;
pub use blockchain_test::{Alloc, AllocAccount, BlockchainCase, BlockchainSuite, alloc_changes};
pub use bridged_batch::BridgedBatch;
pub use cambium_seeds::{Random, is_long};
pub use chain_file::{
    EXECUTION_APIS_BLOCKS, genesis_state, import_client_chains, import_execution_apis_chain,
};
pub use concurrent::{ConcurrentDriver, ConcurrentParams, RoundFaults};
pub use engine::{EngineDriver, EngineParams, FaultKinds, TestedCommitment};
pub use engine_chain::EngineChain;
pub use execution_witnesses::{ExecutionWitnessCase, ExecutionWitnesses, WitnessCounts};
pub use fixtures::{Case, Pack, Report, Suite, Verdict, json_files, run_suite, say};
pub use genesis_files::{GenesisFile, GenesisFiles};
pub use hostile::{
    ByteChange, ChangedBytes, ChangedJson, Json, Watchdog, all_or, byte_changes, json_changes,
    mend_header,
};
pub use known_failures::{KnownFailure, KnownFailures};
pub use layered_model::{LayeredBlock, layered_model_root, wiped_by};
pub use list_mutations::mutated;
pub use mainnet_blocks::{MainnetBlock, MainnetBlocks};
pub use mainnet_data::{MainnetData, SparseBlock};
pub use mainnet_proofs::{MainnetProof, MainnetProofs, ProvedBlock};
pub use mainnet_replays::{MainnetReplay, MainnetReplays};
pub use model::{Model, ModelAccount, ModelError};
pub use naive_chain::NaiveChain;
pub use networks::{blob_schedule, network};
pub use plain::TINY_FILES;
pub use proof_cases::{ProofCase, ProofCases};
pub use random_blocks::{RandomBlock, RandomBlocks};
pub use unanimous::{Unanimous, assert_same_outcome};
pub use witnesses::{Tampering, execute_from_json, tamper};
