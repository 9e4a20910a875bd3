//! Division of the memory budget.
//!
//! ```text
//!   | fixed | index | what a merge replaces of it | layers: delta, and intermediate | caches | slack |
//! ```
//!
//! The size of the index follows from that of the state. A merge makes the parts of it that change anew, and holds
//! both until views have the new one. Layers get half of the rest, up
//! to the size from which merges benefit: the more changes a merge takes at once, the less it writes for each. The
//! slack is for the allocator. Caches get all else: the value cache has a fixed size, the code cache grows up to a
//! limit of its own, and cached pages get what the two leave, which is computed anew after each merge. Other memory
//! that grows (the code directory, io_uring rings, pages pinned for the next blocks, layers that views hold) is
//! subtracted before everything else is divided.

/// Buffers of segments and logs, the map of blocks by hash, and the program itself, in bytes: at
/// most an eighth of all memory.
const FIXED_BYTES: u64 = 40 << 20;
/// Share of layers, and of the pages that their tries have expanded, in the memory that is left.
const LAYERS_FRACTION: f64 = 0.6;
/// Upper limit of the layers, in bytes, unless [`LAYERS_DIVISOR`] allows more. A merge starts when a
/// part of this is in use. After a crash, the first root needs all pages that blocks since the newest
/// checkpoint have changed; 50,000 to 100,000 of them are read per second.
const LAYERS_BYTES_MAX: u64 = 480 << 20;
/// Layers may always take 1/10 of all memory. The more changes a merge takes at once, the fewer pages
/// it writes for each.
const LAYERS_DIVISOR: u64 = 10;
/// A merge replaces at most 1/3 as many bytes of the index as layers take: of each account that changed, they have
/// 1,450 bytes or more, its page included, and half of them are merged at a time; the index has a block and its share
/// of those above, 900 bytes.
const REPLACED_DIVISOR: u64 = 3;
/// Share of the slack in the memory that is left: the allocator's fragmentation.
const SLACK_FRACTION: f64 = 1.0 / 12.0;
/// Slack beside that share, in bytes, at most an eighth of all memory: for merges, and for freed memory that the
/// allocator has not returned yet.
const SLACK_BYTES: u64 = 64 << 20;
/// The value cache takes 1/128 of all memory: at 1 GiB it holds up to 160,000 accounts.
const VALUE_CACHE_DIVISOR: u64 = 128;
/// Upper limit of the value cache, in bytes: opening a database writes all of it.
const VALUE_CACHE_BYTES_MAX: u64 = 256 << 20;
/// The code cache may take 1/64 of all memory: at 1 GiB it holds some 600 of the largest contracts.
const CODE_CACHE_DIVISOR: u64 = 64;
/// Upper limit of the code cache, in bytes: ten thousand of the largest contracts.
const CODE_CACHE_BYTES_MAX: u64 = 256 << 20;
/// Lower limit of the page cache, and of the layers, in bytes.
const BYTES_MIN: u64 = 256 << 10;
/// Pages that are pinned for the next blocks may take 1/16 of all memory.
const PINNED_DIVISOR: u64 = 16;
/// Of little memory they may take 1/6: if a block's pages are not pinned until its root, they are
/// read twice.
const PINNED_DIVISOR_OF_LITTLE: u64 = 6;
/// Memory for pinned pages that is enough for two blocks of a thousand cold keys, in bytes.
const PINNED_BYTES_WANTED: u64 = 16 << 20;
/// Lower limit of the memory for pinned pages, in bytes.
const PINNED_BYTES_MIN: u64 = 1 << 20;
/// Upper limit of the memory for pinned pages, in bytes: those of some 4,000 cold transactions.
const PINNED_BYTES_MAX: u64 = 64 << 20;
/// Lower limit of the memory for views of old blocks, in bytes.
const PAST_BYTES_MIN: u64 = 8 << 20;
/// Views of old blocks may take 1/8 of all memory.
const PAST_DIVISOR: u64 = 8;
/// 1/4 of that is for blocks on which others can be built, so that readers don't keep a chain from changing its branch.
const PAST_RESERVE_DIVISOR: u64 = 4;

/// Size of the value cache, in bytes, for a budget of `memory` bytes.
pub fn value_cache_bytes_max(memory: u64) -> u64 {
    (memory / VALUE_CACHE_DIVISOR).min(VALUE_CACHE_BYTES_MAX)
}

/// Limit of the code cache, in bytes, for a budget of `memory` bytes.
pub fn code_cache_bytes_max(memory: u64) -> u64 {
    (memory / CODE_CACHE_DIVISOR).min(CODE_CACHE_BYTES_MAX)
}

/// Limit of all layers restored for views of old blocks, in bytes, for a budget of `memory` bytes.
pub fn restored_bytes_max(memory: u64) -> u64 {
    (memory / PAST_DIVISOR).max(PAST_BYTES_MIN)
}

/// Part of that, in bytes, reserved for blocks on which others can be built.
pub fn restored_bytes_reserved(memory: u64) -> u64 {
    restored_bytes_max(memory) / PAST_RESERVE_DIVISOR
}

/// Limit of the pages that are pinned for blocks, in bytes, for a budget of `memory` bytes.
pub fn pinned_bytes_max(memory: u64) -> u64 {
    let of_little = (memory / PINNED_DIVISOR_OF_LITTLE).min(PINNED_BYTES_WANTED);
    (memory / PINNED_DIVISOR)
        .max(of_little)
        .clamp(PINNED_BYTES_MIN, PINNED_BYTES_MAX)
}

/// Memory of an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct IndexMemory {
    /// What it takes between merges, and its cache at most, in bytes.
    pub held: u64,
    /// What a merge that changes all of it holds besides, in bytes.
    pub replaced_max: u64,
}

/// Memory in use that [`Budget::new`] can't assign, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryInUse {
    /// The index, in bytes.
    pub index: IndexMemory,
    /// The code cache, in bytes.
    pub codes: u64,
    /// Other memory that grows: the code directory, io_uring rings, layers held by views, in bytes.
    pub others: u64,
}

/// Memory limits of the page cache and of the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Limit of cached pages, in bytes.
    pub cache_bytes: u64,
    /// Limit of delta and intermediate layer together, in bytes.
    pub layer_bytes: usize,
}

impl Budget {
    /// Divides a budget of `memory` bytes, of which `taken` is in use.
    pub fn new(memory: u64, taken: MemoryInUse) -> Self {
        let fixed = FIXED_BYTES.min(memory / 8) + taken.index.held + taken.others;
        let rest = memory.saturating_sub(fixed + SLACK_BYTES.min(memory / 8)) as f64;
        let layers_max = LAYERS_BYTES_MAX.max(memory / LAYERS_DIVISOR);
        let layers = ((rest * LAYERS_FRACTION) as u64).min(layers_max);
        let slack = (rest * SLACK_FRACTION) as u64;
        let replaced = taken.index.replaced_max.min(layers / REPLACED_DIVISOR);
        let caches = (rest as u64).saturating_sub(layers + slack + replaced);
        Self {
            cache_bytes: caches
                .saturating_sub(value_cache_bytes_max(memory) + taken.codes)
                .max(BYTES_MIN),
            layer_bytes: layers.max(BYTES_MIN) as usize,
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
                    let taken = MemoryInUse {
                        index: IndexMemory {
                            held: index,
                            replaced_max: index,
                        },
                        codes: code_cache_bytes_max(memory),
                        others,
                    };
                    let Budget {
                        cache_bytes,
                        layer_bytes,
                    } = Budget::new(memory, taken);
                    let caches = value_cache_bytes_max(memory) + code_cache_bytes_max(memory);
                    let all = cache_bytes + caches + layer_bytes as u64;
                    let taken = index + others;
                    assert!(all + taken <= memory.max(2 * BYTES_MIN + caches + taken));
                }
            }
        }
        let index = IndexMemory {
            held: 128 << 20,
            replaced_max: 128 << 20,
        };
        let taken = MemoryInUse {
            index,
            codes: 4 << 20,
            others: 40 << 20,
        };
        let budget = Budget::new(1 << 30, taken);
        assert_eq!(
            (budget.cache_bytes >> 20, budget.layer_bytes >> 20),
            (98, 451)
        );
        let budget = Budget::new(8 << 30, taken);
        assert_eq!(
            (budget.cache_bytes >> 20, budget.layer_bytes >> 20),
            (6244, 819)
        );
    }
}
