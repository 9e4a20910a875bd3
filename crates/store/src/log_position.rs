//! Where a record of the block log is.

/// Bytes of a log file's header, behind which its first record begins.
pub(crate) const HEADER_BYTES: u32 = 32;

/// The place of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPosition {
    /// Number of the file, from 1.
    pub file: u32,
    /// Offset of the record in it.
    pub offset: u32,
}

impl LogPosition {
    /// Where the first record of a log is.
    pub const START: Self = Self {
        file: 1,
        offset: HEADER_BYTES,
    };

    /// As one number, in the same order. Never 0.
    pub const fn to_u64(self) -> u64 {
        (self.file as u64) << 32 | self.offset as u64
    }

    /// The reverse of [`LogPosition::to_u64`].
    pub const fn from_u64(word: u64) -> Self {
        Self {
            file: (word >> 32) as u32,
            offset: word as u32,
        }
    }
}
