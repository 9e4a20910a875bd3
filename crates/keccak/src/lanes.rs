//! How many inputs are hashed side by side, chosen by what the processor has.

use crate::block::{Block, Entry};
use alloy_primitives::B256;
use core::fmt;

/// Hashes padded inputs of equally many blocks.
// SAFETY: only on a processor with the function's instructions may it be called.
type Hash = unsafe fn(&[Block], usize, &[Entry], &mut [B256]);

/// A number of lanes that this processor has.
#[derive(Clone, Copy)]
pub(crate) struct Width {
    lanes: usize,
    /// `None`: one input after another.
    hash: Option<Hash>,
}

impl Width {
    /// One input after another.
    const ONE: Self = Self {
        lanes: 1,
        hash: None,
    };

    /// The most lanes that this processor has.
    pub(crate) fn widest() -> Self {
        let widths = [8, 4, 2].into_iter().find_map(Self::of_lanes);
        widths.unwrap_or(Self::ONE)
    }

    /// So many lanes, if this processor has them.
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

    /// Hashes those of `entries`, padded inputs of `count` blocks each, that vectors are good
    /// for. Returns the others: a vector for a single input is slower than none.
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

/// How many inputs are hashed at once on this processor.
pub fn lanes() -> usize {
    Width::widest().lanes()
}
