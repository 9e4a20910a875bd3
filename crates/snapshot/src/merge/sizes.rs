//! Sizes of pages, and of the subtries whose node references are cached in pages as digests.
//!
//! Small pages cost memory, large ones cost writes: a page takes [`INDEX_BYTES_PER_PAGE`] bytes of the index, and is
//! written as a whole with each account that changes. So the memory limit of the index decides. While the index is far
//! below it, subtries are split from a size on that is a fraction of the largest page; nearer to it, pages stay as
//! large as they are; and close to it, small neighbours are joined:
//!
//! ```text
//!   index, of its limit   0                2/3              15/16
//!   split above           | 2 KiB          | 8 KiB          | 8 KiB
//!   joined up to          | 512            | 2 KiB          | 6 KiB
//! ```
//!
//! Only what a merge writes anyway is split. So pages of many sizes are side by side, those that change often are
//! split first, and a database that is opened with other memory is not rewritten: with two thirds of the memory
//! its index still fits. Nothing that databases compare depends on where pages end.

use crate::index::Index;
use cambium_trie::SHARDS;

/// Maximum size of a page, in bytes: two blocks of a device. Larger subtries are split over several
/// pages.
pub(crate) const SPLIT_ABOVE_BYTES: usize = 8 * 1024;
/// Size from which a subtrie is split while the index takes less than [`SMALL_THIRDS`] says, in bytes: 46 accounts. Their index takes 16
/// bytes an account at most. With half of it pages of 16 accounts become such of one: as many more are written, read and moved.
const SPLIT_ABOVE_BYTES_SMALL: usize = 2 * 1024;
/// The index takes at most 2/3 of its limit while subtries are split that fit into one page. The rest is for growth, and
/// for openings with less memory.
const SMALL_THIRDS: u64 = 2;
/// Part of the limit, in sixteenths, from which on large pages are made of small ones.
const JOIN_SIXTEENTHS: u64 = 15;
/// Sibling pages that take at most this many bytes together are joined when one of them changes, while subtries are split
/// that fit into one page.
const JOIN_BELOW_BYTES_SMALL: usize = SPLIT_ABOVE_BYTES_SMALL / 4;
/// The same while none are split, and while the index is close to its limit.
const JOIN_BELOW_BYTES_MEDIUM: usize = SPLIT_ABOVE_BYTES / 4;
const JOIN_BELOW_BYTES_LARGE: usize = SPLIT_ABOVE_BYTES / 4 * 3;
/// Memory of the index for a page, in bytes: its blinded node in a block, and its share of blocks and branches above.
const INDEX_BYTES_PER_PAGE: u64 = 48;
/// Number of pages that a merge may read for joins in one shard, besides one for each page that it has written there.
const JOIN_READS_MIN: u64 = 16;
/// Pages that it may read for each one written, while the index is on disk: until it fits again, each look-up reads a part
/// of it.
const JOIN_READS_ON_DISK: u64 = 4;
/// Minimum number of leaves below an inner branch for its reference to be cached in the page.
pub(crate) const DIGEST_LEAVES_MIN: usize = 6;
/// Minimum number of leaves below a child of the page's topmost branch for its reference to be
/// cached. Any change in the page needs these references, and a cached one saves reading the leaves
/// below it. Hashing a single leaf is cheaper than the 36 bytes of a digest.
pub(crate) const DIGEST_CHILD_LEAVES_MIN: usize = 2;
/// Minimum number of an account's slots for its storage root to be cached in the page.
pub(crate) const DIGEST_SLOTS_MIN: usize = 3;
/// Approximate size of a digest in a page, in bytes.
pub(crate) const DIGEST_BYTES: usize = 40;

/// Decides in the merge of one shard which subtries are split over several pages, and which pages are joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageSizes {
    /// The largest subtrie that stays one page while there is room, in bytes.
    split_above: usize,
    /// Bytes by which the index may grow while subtries are split that fit into one page.
    room: u64,
    /// Bytes by which the index is to shrink.
    excess: u64,
    /// Number of pages read for joins.
    join_reads: u64,
    /// Number of pages that may be read for joins, for each page written.
    join_reads_max: u64,
}

impl PageSizes {
    /// Sizes for the merge of each shard of `index`, which may take `bytes_max` bytes of memory.
    pub(crate) fn of_merge(index: &Index, bytes_max: u64) -> Self {
        match index.is_resident() {
            true => Self::of_index(index.memory_bytes() as u64, bytes_max, true),
            false => Self::of_index(index.pages() * INDEX_BYTES_PER_PAGE, bytes_max, false),
        }
    }

    /// Sizes for an index that takes `bytes` bytes. Only while it is in memory, pages become smaller than they need be.
    fn of_index(bytes: u64, bytes_max: u64, is_resident: bool) -> Self {
        let small_max = if is_resident {
            bytes_max / 3 * SMALL_THIRDS
        } else {
            0
        };
        let join_above = bytes_max / 16 * JOIN_SIXTEENTHS;
        Self {
            split_above: SPLIT_ABOVE_BYTES_SMALL,
            room: small_max.saturating_sub(bytes) / SHARDS as u64,
            excess: bytes.saturating_sub(join_above).div_ceil(SHARDS as u64),
            join_reads: 0,
            join_reads_max: if is_resident { 1 } else { JOIN_READS_ON_DISK },
        }
    }

    /// Sizes for all shards of a state that is loaded, whose leaves take `leaf_bytes` bytes in pages, where its index may
    /// take `bytes_max`. They depend on nothing else, so that a state is loaded alike in any order and by any number of
    /// threads. The index fits if all subtries are just large enough to be split.
    pub(crate) fn of_load(leaf_bytes: u64, bytes_max: u64) -> Self {
        let index = leaf_bytes.saturating_mul(16 * INDEX_BYTES_PER_PAGE);
        let small_max = (bytes_max / 3 * SMALL_THIRDS).max(1);
        let fitting = usize::try_from(index / small_max).unwrap_or(usize::MAX);
        let split_above = fitting.max(SPLIT_ABOVE_BYTES_SMALL);
        let is_small = split_above < SPLIT_ABOVE_BYTES;
        Self {
            split_above,
            room: if is_small { u64::MAX } else { 0 },
            excess: 0,
            join_reads: 0,
            join_reads_max: 1,
        }
    }

    /// The largest subtrie that stays one page, in bytes.
    pub(super) fn split_above(&self) -> usize {
        match self.room {
            0 => SPLIT_ABOVE_BYTES,
            _ => self.split_above,
        }
    }

    /// The most bytes that sibling pages have together to be joined.
    pub(super) fn join_below(&self) -> usize {
        match (self.room, self.excess) {
            (1.., _) => JOIN_BELOW_BYTES_SMALL,
            (0, 0) => JOIN_BELOW_BYTES_MEDIUM,
            (0, _) => JOIN_BELOW_BYTES_LARGE,
        }
    }

    /// Notes that the index names `pages` pages more.
    pub(super) fn added(&mut self, pages: usize) {
        if self.room < u64::MAX {
            let bytes = pages as u64 * INDEX_BYTES_PER_PAGE;
            self.room = self.room.saturating_sub(bytes);
        }
    }

    /// Whether `pages` pages may be read to be joined with others, after `written` pages were written; if so, notes that
    /// they are. In a database whose memory has become too small for its pages, each change would have up to fifteen of
    /// them read.
    pub(super) fn may_join(&mut self, pages: usize, written: u64) -> bool {
        let reads = self.join_reads + pages as u64;
        if reads > JOIN_READS_MIN + written * self.join_reads_max {
            return false;
        }
        self.join_reads = reads;
        self.excess = (self.excess).saturating_sub(pages as u64 * INDEX_BYTES_PER_PAGE);
        true
    }
}

/// The largest subtrie that stays one page when a state is loaded, in bytes: its leaves take `leaf_bytes` bytes, and its index
/// may take `index_bytes_max`.
pub fn split_above_bytes(leaf_bytes: u64, index_bytes_max: u64) -> usize {
    PageSizes::of_load(leaf_bytes, index_bytes_max).split_above()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_more_of_its_memory_the_index_takes_the_larger_pages_become() {
        let sizes = |bytes| PageSizes::of_index(bytes * MIB, 256 * MIB, true);
        let limits = |bytes| (sizes(bytes).split_above(), sizes(bytes).join_below());
        assert_eq!(limits(0), (2048, 512));
        assert_eq!(limits(170), (2048, 512));
        assert_eq!(limits(171), (8192, 2048));
        assert_eq!(limits(240), (8192, 2048));
        assert_eq!(limits(241), (8192, 6144));
        // Nothing that was just split is joined, and nothing that was just joined is split.
        for bytes in 0..300 {
            assert!(sizes(bytes).join_below() < sizes(bytes).split_above());
        }
        let on_disk = PageSizes::of_index(0, 256 * MIB, false);
        assert_eq!((on_disk.split_above(), on_disk.join_below()), (8192, 2048));
    }

    #[test]
    fn a_shard_has_its_share_of_the_room() {
        let mut sizes = PageSizes::of_index(0, 256 * MIB, true);
        let mut pages = 0;
        let mut split_until = |above: usize, sizes: &mut PageSizes| {
            while sizes.split_above() == above {
                sizes.added(16);
                pages += 16;
            }
            pages * INDEX_BYTES_PER_PAGE * SHARDS as u64 / MIB
        };
        assert_eq!(split_until(SPLIT_ABOVE_BYTES_SMALL, &mut sizes), 170);
        assert_eq!(sizes.split_above(), SPLIT_ABOVE_BYTES);
    }

    #[test]
    fn joins_read_about_as_many_pages_as_are_written_until_the_index_fits() {
        let mut sizes = PageSizes::of_index(256 * MIB, 256 * MIB, true);
        assert_eq!(sizes.join_below(), JOIN_BELOW_BYTES_LARGE);
        assert!(sizes.may_join(15, 0));
        assert!(!sizes.may_join(15, 0) && !sizes.may_join(15, 13) && sizes.may_join(15, 14));
        let mut written = 30;
        while sizes.join_below() == JOIN_BELOW_BYTES_LARGE {
            assert!(sizes.may_join(15, written));
            written += 15;
        }
        let freed = sizes.join_reads * INDEX_BYTES_PER_PAGE * SHARDS as u64 / MIB;
        assert_eq!(freed, 16);
    }

    #[test]
    fn what_is_loaded_fits_if_all_subtries_are_just_large_enough_to_be_split() {
        let split_above = |accounts: u64, memory: u64| {
            PageSizes::of_load(44 * accounts, memory / 3).split_above()
        };
        let gib = 1 << 30;
        assert_eq!(split_above(1 << 20, gib), 2048);
        assert_eq!(split_above(4 << 20, gib), 2048);
        assert_eq!(split_above(16 << 20, gib), 2376);
        assert_eq!(split_above(64 << 20, gib), 8192);
        assert_eq!(split_above(64 << 20, 4 * gib), 2376);
        assert_eq!(split_above(1 << 27, 4 * gib), 4752);
        assert_eq!(split_above(1 << 30, 1024 * gib), 2048);
        for accounts in (0..40).map(|power| 1 << power) {
            for bytes_max in (0..40).map(|power| 1 << power) {
                let sizes = PageSizes::of_load(44 * accounts, bytes_max);
                let (above, below) = (sizes.split_above(), sizes.join_below());
                assert!(below < above && (2048..=8192).contains(&above));
                let index = 44 * accounts / above as u64 * 16 * INDEX_BYTES_PER_PAGE;
                assert!(above == SPLIT_ABOVE_BYTES || index <= bytes_max);
            }
        }
        assert_eq!(PageSizes::of_load(u64::MAX, 0).split_above(), 8192);
    }
}
