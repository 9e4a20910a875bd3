//! Batched Keccak-256 of inputs of any length, in as many lanes as the processor has.
//!
//! A state root is tens of thousands of hashes with nothing to wait for between them. One
//! vector permutation hashes eight (AVX-512), four (AVX2) or two (SSE2) inputs at once for
//! little more than the price of one. The width is chosen at run time, and the results are the
//! same on all. Lanes advance in step, so the inputs in one vector are of equally many *blocks*
//! of 136 bytes: a [`Batch`] pads each input when it is added, and groups them by counting.
//! Leaves are nearly all of one block, full branches of four.
//!
//! All widths run one permutation, generic over a vector type. Without the feature `std`, and on
//! processors other than x86-64, inputs are hashed one after another: on ARM without the SHA-3
//! instructions, two lanes take more instructions than twice one.
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
