//! The number of lanes: inputs that are hashed in parallel, depending on the processor.

use crate::block::{Block, Entry};
use alloy_primitives::B256;
use core::fmt;

/// A function that hashes padded inputs with equal numbers of blocks.
// SAFETY: only on a processor with the function's instructions may it be called.
type Hash = unsafe fn(&[Block], usize, &[Entry], &mut [B256]);

/// A number of lanes that the processor has.
#[derive(Clone, Copy)]
pub(crate) struct Width {
    lanes: usize,
    /// `None` to hash one input after another.
    hash: Option<Hash>,
}

impl Width {
    /// A single lane: hashes one input after another.
    const ONE: Self = Self {
        lanes: 1,
        hash: None,
    };

    /// Returns the largest number of lanes that the processor has.
    pub(crate) fn widest() -> Self {
        let widths = [8, 4, 2].into_iter().find_map(Self::of_lanes);
        widths.unwrap_or(Self::ONE)
    }

    /// Returns a width of `lanes`, or `None` if the processor does not have it.
    pub(crate) fn of_lanes(lanes: usize) -> Option<Self> {
        match lanes {
            1 => Some(Self::ONE),
            _ => vectors(lanes).map(|hash| Self {
                lanes,
                hash: Some(hash),
            }),
        }
    }

    #[cfg(test)]
    pub(crate) fn portable(lanes: usize) -> Self {
        use crate::portable::hash_portable;
        let hash: Hash = match lanes {
            2 => hash_portable::<2>,
            4 => hash_portable::<4>,
            8 => hash_portable::<8>,
            _ => hash_portable::<1>,
        };
        Self {
            lanes,
            hash: Some(hash),
        }
    }

    pub(crate) const fn lanes(self) -> usize {
        self.lanes
    }

    /// Hashes `entries`, padded inputs of `count` blocks each, with vectors. Returns the entries
    /// left out: at most one, since a vector for a single input is slower than scalar code.
    pub(crate) fn hash<'a>(
        self,
        blocks: &[Block],
        count: usize,
        entries: &'a [Entry],
        digests: &mut [B256],
    ) -> &'a [Entry] {
        let Some(hash) = self.hash else {
            return entries;
        };
        let single = usize::from(entries.len() % self.lanes == 1);
        let (vectors, rest) = entries.split_at(entries.len() - single);
        // SAFETY: `vectors` gives a function only where the processor has its instructions.
        #[allow(unsafe_code)]
        unsafe {
            hash(blocks, count, vectors, digests)
        };
        rest
    }
}

impl fmt::Debug for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Width({})", self.lanes)
    }
}

#[cfg(all(feature = "std", target_arch = "x86_64"))]
fn vectors(lanes: usize) -> Option<Hash> {
    use crate::x86::{hash_avx2, hash_avx512, hash_sse2};
    use std::arch::is_x86_feature_detected;
    match lanes {
        8 if is_x86_feature_detected!("avx512f") => Some(hash_avx512),
        4 if is_x86_feature_detected!("avx2") => Some(hash_avx2),
        2 if is_x86_feature_detected!("sse2") => Some(hash_sse2),
        _ => None,
    }
}

#[cfg(not(all(feature = "std", target_arch = "x86_64")))]
fn vectors(_lanes: usize) -> Option<Hash> {
    None
}

/// Returns the number of inputs that a batch hashes in parallel on this processor: 1, 2, 4 or 8.
pub fn lanes() -> usize {
    Width::widest().lanes()
}
