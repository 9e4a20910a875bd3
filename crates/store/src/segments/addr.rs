//! Addresses of pages.

use std::num::NonZeroU64;

/// Alignment of pages, in bytes. Their space is a multiple of it, too.
pub(super) const UNIT_BYTES: u64 = 16;

const LEN_BITS: u32 = 16;
const OFFSET_BITS: u32 = 24;

/// Largest segment number that an address can hold.
pub(super) const SEGMENT_MAX: u32 = (1 << (63 - OFFSET_BITS - LEN_BITS)) - 1;
/// Limit of page offsets in bytes (exclusive): 256 MiB.
pub(super) const OFFSET_END: u64 = (1 << OFFSET_BITS) * UNIT_BYTES;

/// Address of a page: segment, offset and length in one word.
///
/// The number of a removed segment is reused. So an address is valid only while something keeps its
/// segment from being removed. A page is never mistaken for another, because its checksum depends
/// on its segment's *sequence number*, which is never reused.
// BITS      MEANING
// 63        zero, so that an index can use the bit to mark what is not a page
// 62 .. 40  number of the segment, from 1, so that no address is 0
// 39 .. 16  offset in the segment, in units of 16 bytes: to 256 MiB
// 15 .. 0   length in units of 16 bytes, less one: to 1 MiB
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageAddr(NonZeroU64);

impl PageAddr {
    /// Creates the address of `len` bytes at `offset` in a segment. Both must be multiples of 16.
    pub(super) fn new(segment: u32, offset: u64, len: u64) -> Self {
        assert!((1..=SEGMENT_MAX).contains(&segment), "segment {segment}");
        assert!(
            offset.is_multiple_of(UNIT_BYTES) && offset < OFFSET_END,
            "offset {offset}"
        );
        let units = len / UNIT_BYTES;
        assert!(
            len.is_multiple_of(UNIT_BYTES) && (1..=1 << LEN_BITS).contains(&units),
            "{len}"
        );
        let word = u64::from(segment) << (OFFSET_BITS + LEN_BITS)
            | (offset / UNIT_BYTES) << LEN_BITS
            | (units - 1);
        Self(NonZeroU64::new(word).expect("segments count from 1"))
    }

    /// Encodes the address as one number, for the index and for checkpoints.
    pub const fn to_u64(self) -> u64 {
        self.0.get()
    }

    /// Decodes a number written by [`PageAddr::to_u64`]. Returns `None` for 0. Whether a page
    /// exists there is checked when it is read.
    pub fn from_u64(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Self)
    }

    /// Number of the segment.
    pub const fn segment(self) -> u32 {
        (self.0.get() >> (OFFSET_BITS + LEN_BITS)) as u32
    }

    /// Offset of the page in the segment, in bytes.
    pub const fn offset(self) -> u64 {
        (self.0.get() >> LEN_BITS & ((1 << OFFSET_BITS) - 1)) * UNIT_BYTES
    }

    /// Space that the page takes in the segment: its length rounded up to 16 bytes.
    #[expect(clippy::len_without_is_empty, reason = "no page is empty")]
    pub const fn len(self) -> u64 {
        ((self.0.get() & ((1 << LEN_BITS) - 1)) + 1) * UNIT_BYTES
    }

    /// Returns the number that is XORed into the checksum of the page at `offset` in the segment
    /// `sequence` of the database with this salt. Each place has a different stamp. So a page that
    /// the disk wrote to another place, or a stale page where a write was lost, fails its checksum.
    pub(super) const fn stamp(salt: u64, sequence: u64, offset: u64) -> u64 {
        // `sequence` and the 28 bits of the offset don't overlap. The rest is the finaliser of
        // SplitMix64, which is a bijection.
        let mut mixed = (sequence << 28 ^ offset).wrapping_add(salt);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Offset in the segment at which the page's space ends, in bytes.
    pub(super) const fn end(self) -> u64 {
        self.offset() + self.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_keeps_its_parts_to_their_limits() {
        for segment in [1, 2, 0x2bcdef, SEGMENT_MAX] {
            for offset in [0, 16, 4096, OFFSET_END - 16] {
                for len in [16, 4096, 1 << 20] {
                    let addr = PageAddr::new(segment, offset, len);
                    assert_eq!(
                        (addr.segment(), addr.offset(), addr.len()),
                        (segment, offset, len)
                    );
                    assert_eq!(PageAddr::from_u64(addr.to_u64()), Some(addr));
                }
            }
        }
        assert_eq!(PageAddr::from_u64(0), None);
        assert_eq!(PageAddr::new(1, 16, 16).to_u64(), 0x0000_0100_0001_0000);
    }
}
