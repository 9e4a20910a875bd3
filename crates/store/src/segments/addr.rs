//! Addresses of pages.

use std::num::NonZeroU64;

/// Pages begin at multiples of this, and take multiples of it.
pub(super) const UNIT_BYTES: u64 = 16;

const LEN_BITS: u32 = 16;
const OFFSET_BITS: u32 = 24;

/// Number of the last segment that an address can name.
pub(super) const SEGMENT_MAX: u32 = (1 << (63 - OFFSET_BITS - LEN_BITS)) - 1;
/// Offsets are below this.
pub(super) const OFFSET_END: u64 = (1 << OFFSET_BITS) * UNIT_BYTES;

/// Where a page is: segment, offset and length, in one word.
///
/// The number of a segment is used again once the segment is gone, so an address names a page only
/// as long as something keeps the page's segment. Pages themselves are never in doubt: their
/// checksum depends on the *sequence number* of their segment, which is never used again.
// BITS      MEANING
// 63        zero: an index marks with it what is no page
// 62 .. 40  number of the segment, from 1: so that no address is 0
// 39 .. 16  offset in the segment, in units of 16 bytes: to 256 MiB
// 15 .. 0   length in units of 16 bytes, less one: to 1 MiB
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageAddr(NonZeroU64);

impl PageAddr {
    /// The address of `len` bytes at `offset`, both multiples of 16, in a segment.
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

    /// The address as one number: for the index and for checkpoints.
    pub const fn to_u64(self) -> u64 {
        self.0.get()
    }

    /// The reverse of [`PageAddr::to_u64`]. `None` for 0; whether a page is there is found out
    /// when it is read.
    pub fn from_u64(word: u64) -> Option<Self> {
        NonZeroU64::new(word).map(Self)
    }

    /// Number of the segment.
    pub const fn segment(self) -> u32 {
        (self.0.get() >> (OFFSET_BITS + LEN_BITS)) as u32
    }

    /// Offset in the segment, in bytes.
    pub const fn offset(self) -> u64 {
        (self.0.get() >> LEN_BITS & ((1 << OFFSET_BITS) - 1)) * UNIT_BYTES
    }

    /// Space taken in the segment, in bytes: the page's length rounded up to 16.
    #[expect(clippy::len_without_is_empty, reason = "no page is empty")]
    pub const fn len(self) -> u64 {
        ((self.0.get() & ((1 << LEN_BITS) - 1)) + 1) * UNIT_BYTES
    }

    /// What the checksum of the page at `offset` of the segment `sequence` is combined with, in the
    /// database with this salt: other places have other stamps, so that a page which the disk put
    /// elsewhere, or never, is not taken for the one that belongs there.
    pub(super) const fn stamp(salt: u64, sequence: u64, offset: u64) -> u64 {
        // An offset has 28 bits. The rest is the finaliser of SplitMix64, which is one to one.
        let mut mixed = (sequence << 28 ^ offset).wrapping_add(salt);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Where the page ends in its segment, in bytes.
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
