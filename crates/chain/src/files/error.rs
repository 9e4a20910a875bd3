//! What goes wrong with files of blocks, and where.

use std::{fmt, io, sync::Arc};

/// Where a block, or an access list, was found: names it in errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the file is a row of: `block` or `access list`.
    pub item: &'static str,
    /// The file, as it was named to the reader.
    pub file: Arc<str>,
    /// Bytes before the item; of the unpacked data if the file is compressed as a whole.
    pub offset: u64,
    /// Items of this file before it.
    pub index: u64,
    /// The number of the block before it, or of the list before it, if there is one and it could
    /// be read.
    pub after: Option<u64>,
    /// Whether `offset` counts unpacked bytes.
    pub unpacked: bool,
}

impl fmt::Display for Place {
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

/// Why a file of blocks can't be read on, or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file can't be opened or created.
    #[error("{file}: can't be opened: {source}")]
    Open {
        /// The file.
        file: Arc<str>,
        /// The system's reason.
        source: io::Error,
    },
    /// Reading failed, or the compressed data is corrupt.
    #[error("{place}: can't be read: {source}")]
    Read {
        /// The block being read.
        place: Box<Place>,
        /// The reason.
        source: io::Error,
    },
    /// The file ends within a block.
    #[error("{place}: cut short: header claims {claimed} bytes, {there} are there")]
    CutShort {
        /// The block being read.
        place: Box<Place>,
        /// Bytes claimed by its length prefix, the prefix included.
        claimed: u64,
        /// Bytes that are there.
        there: u64,
    },
    /// A length prefix over the limit.
    #[error("{place}: header claims {claimed} bytes, the limit is {limit}")]
    TooLong {
        /// The block being read.
        place: Box<Place>,
        /// Bytes claimed by its length prefix.
        claimed: u64,
        /// Bytes that the reader takes.
        limit: u64,
    },
    /// The bytes are no block.
    #[error("{place}: {what}")]
    Malformed {
        /// The block being read.
        place: Box<Place>,
        /// What is wrong.
        what: String,
    },
    /// The file as a whole is not what it says it is.
    #[error("{file}: {what}")]
    BadFile {
        /// The file.
        file: Arc<str>,
        /// What is wrong.
        what: String,
    },
    /// Writing failed.
    #[error("{file}: can't be written: {source}")]
    Write {
        /// The file.
        file: Arc<str>,
        /// The system's reason.
        source: io::Error,
    },
}
