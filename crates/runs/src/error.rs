//! Errors of runs. The crates above say what brings a file back.

use cambium_disk::DiskError;

/// Error of reading or writing runs.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An operation of the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The bytes in a file are not those that were written.
    #[error("{file} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The file's path for display.
        file: String,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// Description of the fault.
        what: String,
    },
    /// A file is missing, or is not the one that the list of runs names.
    #[error("{file} is missing, or another file is in its place")]
    Missing {
        /// The file's path for display.
        file: String,
    },
    /// A file was written by a newer version.
    #[error("{file} was written by a newer Cambium (format {found}, this one reads {supported})")]
    NewerFormat {
        /// The file's path for display.
        file: String,
        /// Format number in the file.
        found: u32,
        /// Format number that this version reads.
        supported: u32,
    },
    /// Another process holds the lock of the folder.
    #[error("{dir} is in use")]
    InUse {
        /// The folder's path for display.
        dir: String,
        /// The process that holds the lock, if known.
        pid: Option<u32>,
    },
    /// The list could not be replaced: whether a crash would leave it or the one before is not known.
    #[error("no more writes after an earlier failure ({cause})")]
    Poisoned {
        /// Message of the first failure.
        cause: String,
    },
    /// The folder is open for reading alone.
    #[error("open for reading alone")]
    ReadOnly,
}
