//! Reference models, drivers of the engine, and chains of both, for Cambium's own tests.

mod say;
mod counting_allocator;
mod backend;
mod networks;
mod genesis_state;
mod model;
mod layered_model;
mod access_lists;
mod list_mutations;
mod random;
pub mod plain;
mod engine;
mod concurrent;
mod scouted;
mod unanimous;
mod naive_chain;
mod engine_chain;
mod random_blocks;

pub use access_lists::{FalseList, changes_of_list, false_lists};
pub use backend::Backend;
pub use cambium_seeds::{Random, is_long};
pub use concurrent::{ConcurrentDriver, ConcurrentParams, RoundFaults};
pub use counting_allocator::{CountingAllocator, most_during};
pub use engine::{EngineDriver, EngineParams, FaultKinds, TestedCommitment};
pub use engine_chain::EngineChain;
pub use genesis_state::genesis_state;
pub use layered_model::{LayeredBlock, layered_model_root, wiped_by};
pub use list_mutations::mutated;
pub use model::{Model, ModelAccount, ModelError};
pub use naive_chain::NaiveChain;
pub use networks::{blob_schedule, network};
pub use plain::TINY_FILES;
pub use random_blocks::{RandomBlock, RandomBlocks};
pub use say::say;
pub use unanimous::{Unanimous, assert_same_outcome};
