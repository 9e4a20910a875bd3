//! Random tests of the state engine against the model: blocks, branches, unwinds, merges, crashes.
//!
//! The driver keeps the model of every block, and which blocks and heads were acknowledged. After a
//! crash the engine must be at the last acknowledged head, or at the one that was being committed.
//! It must have every acknowledged block of the newest heights, on any branch.

mod fault_kinds;
mod heights;
mod commitment;
mod first_state;
mod subscriber;
mod driver;
mod checks;
mod following;
mod operations;
mod finality;
mod mistakes;
mod faults;
mod entries;
mod run;

pub use commitment::TestedCommitment;
pub use driver::{EngineDriver, EngineParams};
pub use fault_kinds::FaultKinds;

pub(crate) use first_state::FirstState;
pub(crate) use heights::{WINDOW, is_near, meta};
