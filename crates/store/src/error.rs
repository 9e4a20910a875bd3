//! Errors of the store, classified by what the caller has to do about them.

use crate::LogPosition;
use cambium_disk::{Disk, DiskError};

/// An error of the store. Its message names the file, the offset and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An operation of the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),

    /// The bytes in a file are not those that were written.
    #[error("{file} is damaged at byte {offset}: {what}; {advice}")]
    Corrupt {
        /// The file's path for display.
        file: String,
        /// Offset of the damage in the file, in bytes.
        offset: u64,
        /// Description of the damage.
        what: String,
        /// What the user can do.
        advice: &'static str,
    },

    /// A block log record is damaged that was durable, or that durable records follow.
    #[error(
        "{file} is damaged at byte {offset}: {what}; `cambium db repair` cuts it out, and lists the \
         blocks to import again"
    )]
    CorruptLog {
        /// The log file's path for display.
        file: String,
        /// Offset of the damage in the file, in bytes.
        offset: u64,
        /// The same place as a log position.
        position: LogPosition,
        /// Description of the damage.
        what: String,
    },

    /// A record of the block log that a repair has cut out.
    #[error(
        "{file} has lost the record that was at byte {offset}: it was damaged, and a repair has cut it out. \
         Only a backup, or an import of the chain into a new directory, has it again"
    )]
    LostRecord {
        /// The log file's path for display.
        file: String,
        /// Where the record was in the file, in bytes.
        offset: u64,
    },

    /// An earlier write or sync of this component failed. Unsynced data may be lost, so it refuses
    /// to write.
    #[error(
        "no more writes to the {part} after an earlier failure ({cause}): remove its cause and \
         start again; what was committed before is safe"
    )]
    Poisoned {
        /// The component that failed.
        part: &'static str,
        /// Message of the first failure.
        cause: String,
    },

    /// The directory holds no database.
    #[error(
        "there is no database in {dir}: `Chain::init`, `Loader` and `kv::Store::create` make one"
    )]
    NotADatabase {
        /// The directory's path for display.
        dir: String,
    },

    /// A database cannot be created in a directory that already holds one.
    #[error("{dir} already holds a Cambium database")]
    AlreadyADatabase {
        /// The directory's path for display.
        dir: String,
    },

    /// The file was written by a newer version of Cambium, in a format that this version can't
    /// read.
    #[error(
        "{file} was written by a newer Cambium (format {found}, this one reads {supported}): upgrade"
    )]
    NewerFormat {
        /// The file's path for display.
        file: String,
        /// Format number in the file.
        found: u32,
        /// Format number that this version reads.
        supported: u32,
    },

    /// The file was written by an older version of Cambium, in a format that is no longer
    /// supported.
    #[error(
        "{file} was written by an older Cambium (format {found}, this one reads {supported}): \
         import the chain into a new directory"
    )]
    OlderFormat {
        /// The file's path for display.
        file: String,
        /// Format number in the file.
        found: u32,
        /// Format number that this version reads.
        supported: u32,
    },

    /// Another process, or another handle of this one, holds the lock on the data directory.
    #[error("{}", in_use(.dir, *.pid, *.users))]
    InUse {
        /// The directory's path for display.
        dir: String,
        /// Process id of the lock's holder, if it is known.
        pid: Option<u32>,
        /// Number of handles, views, sessions and blocks of this process that keep it open, if it is this
        /// process and the number is known.
        users: Option<usize>,
    },

    /// A reader asked for data that the writing process has since removed. Opening the database
    /// again gives the reader a newer checkpoint.
    #[error(
        "the process that writes the database has removed {what}, which this reader needs: catch up, \
         or open the database again"
    )]
    ReaderBehind {
        /// The page, checkpoint or chain that was removed, in words.
        what: String,
    },

    /// The requested log file was removed because its blocks are older than the retention limit.
    #[error("{file} was removed: its blocks are older than those that are kept")]
    NotKept {
        /// The log file's path for display.
        file: String,
    },

    /// A value exceeds a limit of its format.
    #[error("{what}: size {bytes} exceeds the limit of {max}")]
    TooLarge {
        /// Name of the value.
        what: &'static str,
        /// Size of the value.
        bytes: u64,
        /// Largest size that is allowed.
        max: u64,
    },
}

/// Advice for damage that a repair can fix from other files.
pub(crate) const REPAIR: &str =
    "`cambium db repair` restores what other files hold, and lists what to import again";
/// Advice for damage that a repair can't fix.
const START_AFRESH: &str =
    "restore the directory from a backup, or import the chain into a new one";

/// Names the holder of a lock.
fn in_use(dir: &str, pid: Option<u32>, users: Option<usize>) -> String {
    match (pid, users) {
        (Some(pid), users) if pid == std::process::id() => {
            let by = match users {
                None => "a handle or view of it is".to_owned(),
                Some(1) => "one handle, view, session or block of it is".to_owned(),
                Some(users) => format!("{users} handles, views, sessions or blocks of it are"),
            };
            format!(
                "{dir} is open in this process already: {by} still in use, and it closes when the last one is \
                 dropped"
            )
        }
        (pid, _) => {
            let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
            format!("{dir} is in use by another process{pid}: stop it, or name another directory")
        }
    }
}

impl StoreError {
    /// Creates the error of damage that a repair can't fix.
    pub(crate) fn corrupt(file: String, offset: u64, what: impl ToString) -> Self {
        Self::Corrupt {
            file,
            offset,
            what: what.to_string(),
            advice: START_AFRESH,
        }
    }

    /// Creates the error of damaged pages in the file `name`, at the given offset.
    pub(crate) fn damaged_pages(disk: &dyn Disk, name: &str, offset: u64, what: &str) -> Self {
        Self::Corrupt {
            file: disk.display_path(name),
            offset,
            what: what.to_owned(),
            advice: REPAIR,
        }
    }

    /// Creates the error of a file in format `found`, where this version reads only `supported`.
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

    /// Returns whether the data is damaged or permanently gone, as opposed to temporarily
    /// unreadable. A retry does not help then, and the damaged file can be set aside.
    pub fn is_corruption(&self) -> bool {
        match self {
            Self::Corrupt { .. } | Self::CorruptLog { .. } | Self::LostRecord { .. } => true,
            // The file is missing, or shorter than the data that is expected in it.
            Self::Disk(error) => error.is_not_found() || error.is_end_of_file(),
            _ => false,
        }
    }
}
