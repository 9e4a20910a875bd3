//! The state engine under random blocks, branches, unwinds, merges and crashes, beside the model.
//!
//! The driver knows for every block what the model says of it, and which blocks and heads were
//! acknowledged. After a crash the engine must be at the head acknowledged last, or at the one
//! that was being made when the power went; and it must have every acknowledged block of the
//! newest heights, whatever its branch.

mod fault_kinds;
mod heights;
mod first_state;
mod driver;
mod checks;
mod operations;
mod mistakes;
mod faults;
mod run;

pub use driver::{EngineDriver, EngineParams};
pub use fault_kinds::FaultKinds;

pub(crate) use first_state::FirstState;
pub(crate) use heights::{WINDOW, is_near, meta};
