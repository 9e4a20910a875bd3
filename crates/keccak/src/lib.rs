//! Batched Keccak-256 of inputs of any length, with vector instructions.
//!
//! A state root needs tens of thousands of independent hashes. One vector permutation hashes eight
//! (AVX-512), four (AVX2) or two (SSE2) inputs in little more time than one. The width is chosen at
//! run time and does not change the results. All inputs of a vector have the same number of
//! *blocks* of 136 bytes: a [`Batch`] pads each input when it is added, and groups inputs by
//! length. Nearly all leaves have one block, full branches have four.
//!
//! All widths share one permutation, generic over a vector type. Without the feature `std`, and on
//! processors other than x86-64, inputs are hashed one after another: on ARM without the SHA-3
//! instructions, two lanes are slower than two single hashes.
//!
//! ```
//! use cambium_keccak::{Batch, keccak256};
//!
//! let mut batch = Batch::new();
//! batch.push(b"first");
//! batch.push_with(|bytes| bytes.extend_from_slice(b"second"));
//! assert_eq!(batch.run(), [keccak256(b"first"), keccak256(b"second")]);
//! ```
#![warn(clippy::missing_errors_doc)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod block;
mod single;
#[cfg(any(test, all(feature = "std", target_arch = "x86_64")))]
mod vector;
#[cfg(all(feature = "std", target_arch = "x86_64"))]
mod x86;
#[cfg(test)]
mod portable;
mod lanes;
mod batch;

pub use batch::{Batch, keccak256_each};
pub use lanes::lanes;
pub use single::keccak256;
