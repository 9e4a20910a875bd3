//! Hashing of one input by itself.

use alloy_primitives::B256;

/// Keccak-256 of one input.
#[inline]
pub fn keccak256(bytes: &[u8]) -> B256 {
    alloy_primitives::keccak256(bytes)
}
