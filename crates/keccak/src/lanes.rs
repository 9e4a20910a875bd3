//! Messages of one length, hashed side by side.

use alloc::vec::Vec;
use alloy_primitives::B256;

/// How many messages of equal length are hashed at once on this processor.
#[cfg(feature = "std")]
pub fn lanes() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            8
        } else if std::arch::is_x86_feature_detected!("avx2") {
            4
        } else {
            2
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    2
}

/// How many messages of equal length are hashed at once: without `std`, one.
#[cfg(not(feature = "std"))]
pub fn lanes() -> usize {
    1
}

/// The fewest messages for which a vector that is not full beats hashing one by one.
#[cfg(feature = "std")]
const PARTIAL_VECTOR_MIN: usize = 2;

/// Hashes messages of one length that lie back to back in `messages`, one digest each.
#[cfg(feature = "std")]
pub(crate) fn hash_equal(messages: &[u8], len: usize, lanes: usize, out: &mut Vec<B256>) {
    use p3_keccak::Keccak256Hash;
    use p3_symmetric::CryptographicHasher;

    let count = messages.len() / len;
    let tail = count % lanes;
    let vectored = if tail < PARTIAL_VECTOR_MIN {
        count - tail
    } else {
        count
    };
    let (vectors, rest) = messages.split_at(vectored * len);
    let mut digests = [[0u8; 32]; GROUP_MAX];
    let digests = &mut digests[..vectored];
    Keccak256Hash.hash_many(vectors, digests);
    out.extend(digests.iter().map(|digest| B256::from(*digest)));
    out.extend(rest.chunks_exact(len).map(crate::keccak256));
}

/// Hashes messages of one length that lie back to back in `messages`, one digest each.
#[cfg(not(feature = "std"))]
pub(crate) fn hash_equal(messages: &[u8], len: usize, _lanes: usize, out: &mut Vec<B256>) {
    out.extend(messages.chunks_exact(len).map(crate::keccak256));
}

/// The most messages hashed by one call of [`hash_equal`]: a multiple of every lane count, and
/// small enough that their bytes are still in the first-level cache.
pub(crate) const GROUP_MAX: usize = 16;
