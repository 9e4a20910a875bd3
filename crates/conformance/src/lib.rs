//! Public fixtures and real mainnet data, and suites that run them: Ethereum's conformance tests, genesis files, chains
//! of other clients, and mainnet blocks with states, access lists and proofs. For Cambium's own tests.

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

pub use blockchain_test::{Alloc, AllocAccount, BlockchainCase, BlockchainSuite, alloc_changes};
pub use bridged_batch::BridgedBatch;
pub use chain_file::{EXECUTION_APIS_BLOCKS, import_client_chains, import_execution_apis_chain};
pub use execution_witnesses::{ExecutionWitnessCase, ExecutionWitnesses, WitnessCounts};
pub use fixtures::{Case, Pack, Report, Suite, Verdict, json_files, run_suite};
pub use genesis_files::{GenesisFile, GenesisFiles};
pub use known_failures::{KnownFailure, KnownFailures};
pub use mainnet_blocks::{MainnetBlock, MainnetBlocks};
pub use mainnet_data::{MainnetData, SparseBlock};
pub use mainnet_proofs::{MainnetProof, MainnetProofs, ProvedBlock};
pub use mainnet_replays::{MainnetReplay, MainnetReplays};
pub use proof_cases::{ProofCase, ProofCases};
