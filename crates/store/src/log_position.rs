//! Positions of records in the block log.

/// Length of a log file's header in bytes. The file's first record follows it.
pub(crate) const HEADER_BYTES: u32 = 32;

/// Position of a record in the block log. Positions are ordered as the records are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPosition {
    /// Number of the log file, from 1.
    pub file: u32,
    /// Offset of the record in the file, in bytes.
    pub offset: u32,
}

impl LogPosition {
    /// Position of the first record of a log that has all its files.
    pub const START: Self = Self {
        file: 1,
        offset: HEADER_BYTES,
    };

    /// Encodes the position as one number with the same order. Never 0.
    pub const fn to_u64(self) -> u64 {
        (self.file as u64) << 32 | self.offset as u64
    }

    /// Decodes a number written by [`LogPosition::to_u64`].
    pub const fn from_u64(word: u64) -> Self {
        Self {
            file: (word >> 32) as u32,
            offset: word as u32,
        }
    }
}
