//! Execution of calls on the state after a block, which changes nothing.
//!
//! | file | content |
//! |---|---|
//! | `state` | the state of a block, with the changes that a caller wants to see in it |
//! | `precompiles` | the precompiled contracts, of which a caller may move some |
//! | `env` | block and transaction as the EVM gets them |
//! | `run` | one run, and what its end means |
//! | `methods` | `eth_call`, `eth_estimateGas`, `eth_createAccessList` |

mod precompiles;
mod state;
mod env;
mod run;
mod methods;

pub(super) use env::{CallEnv, checked_input, rules_of};
pub(super) use methods::{add, estimate_gas};
pub(super) use precompiles::CallPrecompiles;
pub(super) use run::{Failed, halted, inspect, system_call, transact};
pub(super) use state::{CallState, ChangedState, change, commit};
