//! Batched Keccak-256 of inputs of any length, in as many lanes as the processor has.
//!
//! A state root is tens of thousands of hashes with nothing to wait for between them. One
//! vector permutation hashes eight (AVX-512), four (AVX2) or two (SSE2, NEON) messages at once
//! for little more than the price of one, chosen at run time by `p3-keccak`. Its lanes advance
//! in step, and pad at the same byte: messages in one vector must be of *equal length*, so a
//! [`Batch`] sorts its inputs by length first. Trie nodes oblige: full branches are all of 532
//! bytes, others differ by multiples of 32, and account leaves spread over a dozen lengths.
//!
//! Without the feature `std` everything is hashed one at a time.
//!
//! ```
//! use cambium_keccak::{Batch, keccak256};
//!
//! let mut batch = Batch::new();
//! batch.push(b"first");
//! batch.push_with(|bytes| bytes.extend_from_slice(b"second"));
//! assert_eq!(batch.run(), [keccak256(b"first"), keccak256(b"second")]);
//! ```
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod batch;
mod lanes;

pub use batch::Batch;
pub use lanes::lanes;

use alloy_primitives::B256;

/// Keccak-256 of one input.
#[inline]
pub fn keccak256(bytes: &[u8]) -> B256 {
    alloy_primitives::keccak256(bytes)
}
