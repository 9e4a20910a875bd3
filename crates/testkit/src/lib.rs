//! Reference models, public fixtures and crash drivers, for Cambium's own tests.

mod access_lists;
mod backend;
mod blockchain_test;
mod chain_file;
mod engine;
mod engine_chain;
mod fixtures;
mod genesis_files;
mod mainnet_blocks;
mod mainnet_proofs;
mod mainnet_replays;
mod model;
mod naive_chain;
mod networks;
pub mod plain;
mod proof_cases;
mod unanimous;
mod witnesses;

pub use access_lists::{FalseList, changes_of_list, false_lists};
pub use backend::Backend;
pub use blockchain_test::{Alloc, AllocAccount, BlockchainCase, BlockchainSuite, alloc_changes};
pub use chain_file::{EXECUTION_APIS_BLOCKS, import_execution_apis_chain};
pub use engine::{EngineDriver, EngineParams, Random};
pub use engine_chain::EngineChain;
pub use fixtures::{Case, Pack, Report, Suite, Verdict, json_files, run_suite, say};
pub use genesis_files::{GenesisFile, GenesisFiles};
pub use mainnet_blocks::{MainnetBlock, MainnetBlocks};
pub use mainnet_proofs::{MainnetProof, MainnetProofs, ProvedBlock};
pub use mainnet_replays::{MainnetReplay, MainnetReplays};
pub use model::{Model, ModelAccount, ModelError};
pub use naive_chain::NaiveChain;
pub use networks::{blob_schedule, network};
pub use proof_cases::{ProofCase, ProofCases};
pub use unanimous::Unanimous;
pub use witnesses::{Tampering, execute_from_json, tamper};
