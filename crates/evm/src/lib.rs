//! Block execution on revm: from a block to its state changes.
//!
//! [`recover_senders`] recovers the signer of each transaction. An [`Executor`] runs a block on its
//! parent's state (any [`StateRead`]) and returns the [`Outcome`]: receipts, gas, requests, and the
//! [`Changes`](cambium_primitives::Changes) to the state. Comparing the outcome with the block's
//! header is left to the caller.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod helpers;
mod rules;
mod read;
mod account;
mod envelopes;
mod senders;
mod block;
mod recorder;
mod cache;
mod access_list;
mod effects;
mod overlay;
mod block_state;
mod dao;
mod constantinople;
mod state_gas;
mod context;
mod balances;
mod amsterdam;
mod env;
mod create;
mod handler;
mod system;
mod step;
mod call;
mod results;
mod ahead;
mod executor;
mod sequential;
mod candidates;
mod listed;
mod optimistic;
mod batch;
mod block_executor;
mod auto;

pub use access_list::{AccessListSizes, ListedChanges, listed_changes};
pub use account::{account, account_info};
pub use ahead::{AheadState, KnownKeys, Scouts, may_run_code};
pub use amsterdam::new_slot_gas;
pub use auto::MeasuredChoice;
pub use batch::{BatchBlock, execute_batch};
pub use block::{BlockInput, ExecutionError, Outcome, TransactionFault};
pub use block_executor::{BlockExecutor, ExecutorKind, OPTIMISTIC_THREADS_MIN, PARALLEL_GAS_MIN};
pub use block_state::{BlockChanges, BlockState};
pub use call::{CallContext, CallDatabase, Called, Calls, StepAccessRecorder};
pub use candidates::{Chosen, execute_candidates};
pub use env::{block_env, config_env, transaction_env};
pub use envelopes::{Block, Receipt, Transaction};
pub use executor::{ClaimedChanges, ExecutionCounts, Executor, Hooks, RootAfter, Timed};
pub use listed::{ListReads, Listed};
pub use optimistic::Optimistic;
pub use read::{ManyRead, StateRead};
pub use recorder::{Recorder, Touched};
pub use rules::Rules;
pub use senders::{
    RecoveredMeanwhile, SignatureError, recover_part, recover_sender, recover_senders,
};
pub use sequential::Sequential;
pub use step::BlockGas;
pub use system::deposits;
