//! What can go wrong in the store, by consequence.

use crate::LogPosition;
use cambium_disk::{Disk, DiskError};

/// An error of the store. Messages name the file, the place and what to do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),

    /// Bytes are not what was written.
    #[error("{file} is damaged at byte {offset}: {what}; {advice}")]
    Corrupt {
        /// The file, as its owner may look it up.
        file: String,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
        /// What to do.
        advice: &'static str,
    },

    /// A record of the block log is damaged although it, or one after it, was durable.
    #[error(
        "{file} is damaged at byte {offset}: {what}; `cambium db repair` takes it out, and says which \
         blocks are to be imported again"
    )]
    CorruptLog {
        /// The log file, as its owner may look it up.
        file: String,
        /// Where in it.
        offset: u64,
        /// The same place.
        position: LogPosition,
        /// What is wrong.
        what: String,
    },

    /// An earlier write or sync of this part failed, and what it held may be lost.
    #[error(
        "no more writes to the {part} after an earlier failure ({cause}): remove its cause and \
         start again; what was committed before is safe"
    )]
    Poisoned {
        /// Which part.
        part: &'static str,
        /// The first failure.
        cause: String,
    },

    /// The directory holds no database.
    #[error("{dir} is not a Cambium database: initialise it first, or name another directory")]
    NotADatabase {
        /// The directory.
        dir: String,
    },

    /// There is already a database.
    #[error("{dir} already holds a Cambium database")]
    AlreadyADatabase {
        /// The directory.
        dir: String,
    },

    /// Written by a later version of Cambium.
    #[error(
        "{file} was written by a newer Cambium (format {found}, this one reads {supported}): upgrade"
    )]
    NewerFormat {
        /// The file, as its owner may look it up.
        file: String,
        /// The format found in it.
        found: u32,
        /// The newest format that this version reads.
        supported: u32,
    },

    /// Written by an earlier version of Cambium.
    #[error(
        "{file} was written by an older Cambium (format {found}, this one reads {supported}): \
         import the chain into a new directory"
    )]
    OlderFormat {
        /// The file, as its owner may look it up.
        file: String,
        /// The format found in it.
        found: u32,
        /// The format that this version reads.
        supported: u32,
    },

    /// Another process has the data directory.
    #[error(
        "{dir} is in use by another process{}: stop it, or name another directory",
        .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
    )]
    InUse {
        /// The directory.
        dir: String,
        /// The other process, if it left its id.
        pid: Option<u32>,
    },

    /// The process that writes the database has gone on, and what this reader wants is gone.
    #[error(
        "the process that writes the database has gone on, and {what} that this reader needs is not \
         there any more: catch up, or open it again"
    )]
    ReaderBehind {
        /// The page, checkpoint or chain that is gone, in words.
        what: String,
    },

    /// Blocks that are old, and not kept.
    #[error("{file} is not there any more: its blocks are older than those that are kept")]
    NotKept {
        /// The file of the block log.
        file: String,
    },

    /// More than the format holds.
    #[error("{what} of {bytes} bytes: at most {max} are possible")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
}

/// Advice where other files may tell what is lost.
pub(crate) const REPAIR: &str =
    "`cambium db repair` brings back what other files tell, and says what is to be imported again";
/// Advice where nothing less helps.
const START_AFRESH: &str = "restore the directory from a copy, or import the chain into a new one";

impl StoreError {
    /// Damage of a kind that can't be repaired from what else is in the directory.
    pub(crate) fn corrupt(file: String, offset: u64, what: impl ToString) -> Self {
        Self::Corrupt {
            file,
            offset,
            what: what.to_string(),
            advice: START_AFRESH,
        }
    }

    /// Damage to pages in the file `name`.
    pub(crate) fn damaged_pages(disk: &dyn Disk, name: &str, offset: u64, what: &str) -> Self {
        Self::Corrupt {
            file: disk.display_path(name),
            offset,
            what: what.to_owned(),
            advice: REPAIR,
        }
    }

    /// A file of another format than the one that this version reads.
    pub(crate) const fn other_format(file: String, found: u32, supported: u32) -> Self {
        match found > supported {
            true => Self::NewerFormat {
                file,
                found,
                supported,
            },
            false => Self::OlderFormat {
                file,
                found,
                supported,
            },
        }
    }

    /// Whether this says that bytes are not what was written, or gone for good: not that they can't
    /// be had now. Trying again does not help, and what is left of the file can be set aside.
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::CorruptLog { .. } => true,
            // A file that is gone, or ends before what is said to be in it.
            Self::Disk(error) => error.is_not_found() || error.is_end_of_file(),
            _ => false,
        }
    }
}
