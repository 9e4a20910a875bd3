//! How the memory budget is divided.
//!
//! ```text
//!   | fixed | index | index being made | layers: delta, and intermediate | caches | slack |
//! ```
//!
//! The index is what it is, and there are two of it while a merge makes the next one. Of what is
//! left, layers get the most: the more changes a merge takes at once, the less it writes for each.
//! The cache of entries keeps the size that it has from the beginning. Codes that have run take
//! what they take, up to a limit of their own, which pages are told of after each merge: they get
//! the rest of the caches' part. What grows besides (places of codes, rings, layers that views keep)
//! is counted, and all others have less.

/// Buffers of segments and logs, blocks by hash, and the program itself.
const FIXED_BYTES: u64 = 40 << 20;
/// Of what is left, the part of layers, and of the pages that their tries have taken apart.
const LAYERS_PART: f64 = 0.5;
/// And that of the caches. The rest is the allocator's: what it has freed and not given back,
/// and what is between pieces of different sizes.
const CACHE_PART: f64 = 0.25;
/// Of all memory, the part of the cache of entries: at 1 GiB it takes up to 160,000 accounts.
const ENTRIES_PART: u64 = 128;
/// However much memory there is: as much is written when a database is opened.
const ENTRY_BYTES_MAX: u64 = 256 << 20;
/// And that of the cache of codes at most: at 1 GiB it takes some 600 of the largest contracts.
const CODES_PART: u64 = 64;
/// However much memory there is: ten thousand of the largest contracts.
const CODE_BYTES_MAX: u64 = 256 << 20;
/// However small the budget, a cache and layers of this size.
const BYTES_MIN: u64 = 256 << 10;
/// However little memory there is, what views of old blocks bring back may take so much.
const PAST_BYTES_MIN: u64 = 8 << 20;
/// What views of old blocks may take, of all memory.
const PAST_PART: u64 = 8;

/// Memory of the cache of entries.
pub fn entry_bytes(memory: u64) -> u64 {
    (memory / ENTRIES_PART).min(ENTRY_BYTES_MAX)
}

/// What the cache of codes may take.
pub fn code_bytes(memory: u64) -> u64 {
    (memory / CODES_PART).min(CODE_BYTES_MAX)
}

/// What all that views of old blocks bring back may take.
pub fn past_bytes(memory: u64) -> u64 {
    (memory / PAST_PART).max(PAST_BYTES_MIN)
}

/// What is taken already, or by others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// The index, twice while a merge makes the next one.
    pub index: u64,
    /// The cache of codes.
    pub codes: u64,
    /// What grows with the database and its use: places of codes, rings, layers that views keep.
    pub others: u64,
}

/// What each part may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Cached pages.
    pub cache_bytes: u64,
    /// Delta and intermediate together.
    pub layer_bytes: usize,
}

impl Budget {
    /// Divides `memory` bytes.
    pub fn new(memory: u64, taken: Taken) -> Self {
        let fixed = FIXED_BYTES.min(memory / 8) + taken.index + taken.others;
        let rest = memory.saturating_sub(fixed) as f64;
        let caches = (rest * CACHE_PART) as u64;
        Self {
            cache_bytes: caches
                .saturating_sub(entry_bytes(memory) + taken.codes)
                .max(BYTES_MIN),
            layer_bytes: ((rest * LAYERS_PART) as u64).max(BYTES_MIN) as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_budget_are_within_it() {
        for memory in [0, 1 << 20, 64 << 20, 1 << 30, 64 << 30] {
            for index in [0, 1 << 20, 128 << 20] {
                for others in [0, 40 << 20] {
                    let taken = Taken {
                        index,
                        codes: code_bytes(memory),
                        others,
                    };
                    let Budget {
                        cache_bytes,
                        layer_bytes,
                    } = Budget::new(memory, taken);
                    let caches = entry_bytes(memory) + code_bytes(memory);
                    let all = cache_bytes + caches + layer_bytes as u64;
                    let taken = index + others;
                    assert!(all + taken <= memory.max(2 * BYTES_MIN + caches + taken));
                }
            }
        }
        let taken = Taken {
            index: 128 << 20,
            codes: 4 << 20,
            others: 40 << 20,
        };
        let budget = Budget::new(1 << 30, taken);
        assert_eq!(
            (budget.cache_bytes >> 20, budget.layer_bytes >> 20),
            (192, 408)
        );
    }
}
