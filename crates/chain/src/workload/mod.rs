//! The workload generator: a chain of payments, token transfers, swaps, and transactions that do
//! nothing but read slots, the same to the byte for the same parameters, that other clients import
//! too.
//!
//! A [`Workload`] is the genesis state, streamed at any size, and an endless row of signed
//! transactions. Valid headers need execution, which is not the generator's: [`Workload::generate`] drafts
//! block after block, and a [`BlockSealer`] (the state engine, or a model in a test) executes each
//! draft and fills in what only execution tells.
//!
//! ```
//! use cambium_chain::{Workload, WorkloadParams};
//!
//! let params = WorkloadParams { accounts: 100, senders: Some(10), ..WorkloadParams::default() };
//! let workload = Workload::new(params)?;
//! let mut json = Vec::new();
//! workload.write_genesis(&mut json)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! All forks up to Prague, Osaka or Amsterdam are in force from genesis, so the chain is past the
//! merge from its first block. Accounts below [`WorkloadParams::senders`] have keys, derived from
//! the seed; all others have addresses straight from a hash, which nobody has a key to.
//!
//! | transactions | what they do, from what the genesis has |
//! |---|---|
//! | payments | send ether |
//! | token transfers | move units of one ERC-20 token, from a sender to anybody |
//! | swaps | one token for another, through a router, in a pool like Uniswap V2's |
//! | slot reads | read slot after slot, each found by hashing, until their gas is used up |
//!
//! The contracts are Solidity's, in `contracts/`.

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

pub use accounts::{Pool, Workload};
pub use contracts::{ROUTER, SLOT_READER, TOKEN, token_balance_slot};
pub use generate::BlockSealer;
pub use params::{BlockSize, WorkloadError, WorkloadParams};
pub use spread::{NoSpread, Spread};
