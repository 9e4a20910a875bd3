//! The workload generator: a chain of payments, token transfers, swaps and slot reads, which any
//! client can import. The same parameters give the same chain to the byte.
//!
//! A [`Workload`] is a genesis state, streamed at any size, and an endless sequence of signed
//! transactions. Valid headers need execution, which the generator leaves to a [`BlockSealer`] (a
//! [`ChainSealer`](cambium_chain::ChainSealer), or a model in a test): [`Workload::generate`] drafts
//! one block after another, and the sealer executes each draft and fills in the fields that follow
//! from execution.
//!
//! ```
//! use cambium_workload::{Workload, WorkloadParams};
//!
//! let params = WorkloadParams { accounts: 100, senders: Some(10), ..WorkloadParams::default() };
//! let workload = Workload::new(params)?;
//! let mut json = Vec::new();
//! workload.write_genesis(&mut json)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All forks up to Prague, Osaka or Amsterdam are active from genesis, so the chain is past the
//! merge from its first block. Accounts below [`WorkloadParams::senders`] have keys, derived from
//! the seed. All others have addresses that are hashes, without a known key.
//!
//! | transactions | effect |
//! |---|---|
//! | payments | send ether from a sender to any account |
//! | token transfers | move units of one ERC-20 token from a sender to any account |
//! | swaps | exchange one token for another, through a router, in a pool like Uniswap V2's |
//! | slot reads | read one slot after another, each found by hashing, until their gas is used up |
//!
//! The contracts are written in Solidity, in `contracts/`.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod contracts;
mod keys;
mod spread;
mod kind;
mod params;
mod accounts;
mod genesis;
mod genesis_file;
mod transactions;
mod generate;
mod chain;

pub use accounts::{Pool, Workload};
pub use contracts::{ROUTER, SLOT_READER, TOKEN, token_balance_slot};
pub use generate::BlockSealer;
pub use params::{BlockSize, WorkloadError, WorkloadParams};
pub use spread::{NoSpread, Spread};
