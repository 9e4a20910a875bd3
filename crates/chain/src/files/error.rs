//! Errors of files of blocks, with their location.

use cambium_primitives::BlockId;
use std::{fmt, io, sync::Arc};

/// Location of a block or an access list in a file, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// Kind of item: `block` or `access list`.
    pub item: &'static str,
    /// Name of the file as it was given to the reader.
    pub file: Arc<str>,
    /// Offset of the item in bytes; in the unpacked data if the file is compressed as a whole.
    pub offset: u64,
    /// Number of items before this one in the file.
    pub index: u64,
    /// Block number of the previous item, if there is one and its number could be read.
    pub after: Option<u64>,
    /// Whether `offset` counts unpacked bytes.
    pub unpacked: bool,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unpacked = if self.unpacked { "unpacked " } else { "" };
        let Self {
            file, item, offset, ..
        } = self;
        write!(f, "{file}: {item} at {unpacked}byte {offset}")?;
        match (self.after, self.index) {
            (Some(number), _) => write!(f, " (after block {number})"),
            (None, 0) => write!(f, " (the file's first)"),
            (None, index) => write!(f, " (after {index} {item}s)"),
        }
    }
}

/// Why a file of blocks or access lists can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file can't be opened or created.
    #[error("{file}: can't be opened: {source}")]
    Open {
        /// Path of the file, as it was given.
        file: Arc<str>,
        /// The operating system's error.
        source: io::Error,
    },
    /// Reading failed, or the compressed data is corrupt.
    #[error("{place}: can't be read: {source}")]
    Read {
        /// Location of the item being read.
        place: Box<FilePosition>,
        /// The cause.
        source: io::Error,
    },
    /// The file ends within an item.
    #[error("{place}: cut short: its header claims {claimed} bytes, but the file has {there}")]
    CutShort {
        /// Location of the item being read.
        place: Box<FilePosition>,
        /// Bytes claimed by the item's length prefix, including the prefix.
        claimed: u64,
        /// Bytes available.
        there: u64,
    },
    /// A length prefix exceeds the limit.
    #[error("{place}: its header claims {claimed} bytes, over the limit of {limit}")]
    TooLong {
        /// Location of the item being read.
        place: Box<FilePosition>,
        /// Bytes claimed by the item's length prefix.
        claimed: u64,
        /// Maximum size that the reader accepts, in bytes.
        limit: u64,
    },
    /// The bytes do not encode an item.
    #[error("{place}: {what}")]
    Malformed {
        /// Location of the item being read.
        place: Box<FilePosition>,
        /// Description of the fault.
        what: String,
    },
    /// The file as a whole is malformed or inconsistent.
    #[error("{file}: {what}")]
    BadFile {
        /// Path of the file, as it was given.
        file: Arc<str>,
        /// Description of the fault.
        what: String,
    },
    /// The file has other content than blocks or access lists: JSON, text, a program.
    #[error("{file}: {what}, and {expected} were expected, in RLP")]
    OtherContent {
        /// Path of the file, as it was given.
        file: Arc<str>,
        /// Description of the content.
        what: String,
        /// The expected content: `blocks` or `access lists`.
        expected: &'static str,
    },
    /// A file of access lists has one of a block that is not among the blocks.
    #[error(
        "{file}: its next access list is that of block {list}, and the blocks have block {block}: the lists are of other blocks"
    )]
    OtherBlocks {
        /// Name of the file of access lists.
        file: Arc<str>,
        /// The block of the list.
        list: BlockId,
        /// The block that was reached meanwhile.
        block: BlockId,
    },
    /// Writing failed.
    #[error("{file}: can't be written: {source}")]
    Write {
        /// Path of the file, as it was given.
        file: Arc<str>,
        /// The operating system's error.
        source: io::Error,
    },
}
