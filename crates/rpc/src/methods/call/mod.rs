//! Execution of calls on the state after a block, which changes nothing.
//!
//! | file | content |
//! |---|---|
//! | `state` | the state of a block, with the changes that a caller wants to see in it |
//! | `env` | block and transaction as the EVM gets them |
//! | `run` | one run, and what its end means |
//! | `methods` | `eth_call`, `eth_estimateGas`, `eth_createAccessList` |

mod state;
mod env;
mod run;
mod methods;

pub(super) use env::{CallEnv, rules_of};
pub(super) use methods::add;
pub(super) use state::{CallState, ChangedState, change};
