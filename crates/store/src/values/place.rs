//! Places of values.

use std::num::NonZeroU64;

/// Place of a value's record: a segment, and an offset in it.
// BITS      MEANING
// 63 .. 32  number of the segment, from 1, so that no place is 0
// 31 .. 0   offset of the record in the segment, in bytes
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

impl Place {
    /// Encodes the place as the number that references hold. It is also the position that the
    /// record itself states.
    pub(super) fn to_word(self) -> NonZeroU64 {
        let word = u64::from(self.segment) << 32 | u64::from(self.offset);
        NonZeroU64::new(word).expect("segments count from 1")
    }

    /// Decodes a number written by [`Place::to_word`]. Whether a value is there is checked when it
    /// is read.
    pub(super) const fn from_word(word: NonZeroU64) -> Self {
        Self {
            segment: (word.get() >> 32) as u32,
            offset: word.get() as u32,
        }
    }
}
