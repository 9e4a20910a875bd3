//! Hashing of a single input.

use alloy_primitives::B256;

/// Returns the Keccak-256 hash of `bytes`.
#[inline]
pub fn keccak256(bytes: &[u8]) -> B256 {
    alloy_primitives::keccak256(bytes)
}
