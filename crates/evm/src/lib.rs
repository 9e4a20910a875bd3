//! From a block to its state changes: block execution on revm.
//!
//! [`recover_senders`] finds who signed what, an [`Executor`] runs a block on its parent's state
//! (any [`StateRead`]) and gives its [`Outcome`]: receipts, gas,
//! requests, and the [`Changes`](cambium_primitives::Changes) for the state. What a header claims
//! of these is compared elsewhere.

mod access_list;
mod block;
mod constantinople;
mod create;
mod dao;
mod env;
mod overlay;
mod read;
mod recorder;
mod rules;
mod senders;
mod sequential;
mod system;

pub use access_list::AccessListSizes;
pub use block::{
    Block, BlockInput, ExecutionError, Outcome, Receipt, RootAfter, Transaction, TransactionFault,
};
pub use read::StateRead;
pub use recorder::{Recorder, Touched};
pub use rules::Rules;
pub use senders::{SignatureError, recover_senders};
pub use sequential::{Executor, Sequential};
