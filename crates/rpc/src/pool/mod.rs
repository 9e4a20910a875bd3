//! Transactions that wait for a block: a small pool without gossip.
//!
//! ```text
//!   transaction   bytes -> a transaction with its sender and, if it has blobs, their sidecar
//!   rules         checks that need the rules of the next block alone
//!   waiting       what waits, by sender and nonce: limits, replacement, order by price
//!   announced     what became executable, for those who ask for news
//!   shared        one lock around it, which follows the head of the chain
//! ```

mod limits;
mod transaction;
mod rules;
mod waiting;
mod announced;
mod shared;

pub use limits::PoolLimits;
pub use shared::Pool;
pub(crate) use transaction::PooledTransaction;
