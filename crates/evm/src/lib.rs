//! From a block to its state changes: block execution on revm.
//!
//! [`recover_senders`] finds who signed what, an [`Executor`] runs a block on its parent's state
//! (any [`StateRead`]) and gives its [`Outcome`]: receipts, gas,
//! requests, and the [`Changes`](cambium_primitives::Changes) for the state. What a header claims
//! of these is compared elsewhere.

mod access_list;
mod amsterdam;
mod batch;
mod block;
mod cache;
mod constantinople;
mod create;
mod dao;
mod env;
mod executor;
mod handler;
mod listed;
mod optimistic;
mod overlay;
mod read;
mod recorder;
mod results;
mod rules;
mod senders;
mod sequential;
mod step;
mod system;

pub use access_list::{AccessListSizes, listed_changes};
pub use amsterdam::new_slot_gas;
pub use batch::{BatchBlock, execute_batch};
pub use block::{
    Block, BlockInput, ExecutionError, Outcome, Receipt, Transaction, TransactionFault,
};
pub use executor::{
    BlockExecutor, ExecutionCounts, Executor, ExecutorKind, Foretold, Hooks, PARALLEL_GAS_MIN,
    RootAfter, Timed,
};
pub use listed::{ListReads, Listed};
pub use optimistic::Optimistic;
pub use read::{ManyRead, StateRead};
pub use recorder::{Recorder, Touched};
pub use rules::Rules;
pub use senders::{SignatureError, recover_senders};
pub use sequential::Sequential;
