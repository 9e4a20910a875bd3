//! Errors of preimages: damaged files, by name.

use alloy_primitives::B256;
use cambium_disk::DiskError;
use cambium_runs::RunError;
use cambium_store::StoreError;

/// Advice for a damaged file.
fn way_back(file: &str) -> &'static str {
    match file.ends_with(".run") {
        true => {
            "Put that file back from a backup: it never changes. Or put the whole folder `preimages` back, as long as \
             the log has the blocks since then, or remove it to go on without preimages"
        }
        false => {
            "Put the folder `preimages` back from a backup, as long as the log has the blocks since then, or remove it \
             to go on without preimages"
        }
    }
}

/// Error of reading or writing preimages. The database itself is sound after any of them.
#[derive(Debug, thiserror::Error)]
pub enum PreimagesError {
    /// An operation of the disk failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another process writes preimages, or its lock can't be taken.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bytes in a file of preimages are not those that were written.
    #[error(
        "{file} is damaged at byte {offset}: {what}; the state does not need it. {}",
        way_back(file)
    )]
    Damaged {
        /// The file's path for display.
        file: String,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// Description of the fault.
        what: String,
    },
    /// A file of preimages is missing, or is not the one that the list of runs names.
    #[error(
        "{file} is missing, or another file is in its place; the state does not need it. {}",
        way_back(file)
    )]
    Missing {
        /// The file's path for display.
        file: String,
    },
    /// The directory has no preimages.
    #[error("{dir} has no preimages: `cambium init --preimages` makes a database that keeps them")]
    None {
        /// The database's directory for display.
        dir: String,
    },
    /// There are preimages already.
    #[error(
        "{dir} has preimages already: name another directory, or remove its folder `preimages`"
    )]
    Exists {
        /// The database's directory for display.
        dir: String,
    },
    /// Those of the first state were not all added.
    #[error(
        "{file} is of preimages whose first state was not added whole: remove the folder `preimages` to go on \
         without them"
    )]
    Unfinished {
        /// The list of runs, for display.
        file: String,
    },
    /// The preimages belong to another database.
    #[error(
        "{file} belongs to the database whose first block is {found}, and this one's is {genesis}: remove the \
         folder `preimages` to go on without them"
    )]
    OtherDatabase {
        /// The list of runs, for display.
        file: String,
        /// The first block of the database that they were made for.
        found: B256,
        /// The first block of this database.
        genesis: B256,
    },
    /// The preimages were written by a newer version.
    #[error("{file} was written by a newer Cambium (format {found}, this one reads {supported})")]
    NewerFormat {
        /// The file's path for display.
        file: String,
        /// Format number in the file.
        found: u32,
        /// Format number that this version reads.
        supported: u32,
    },
    /// The list of runs could not be replaced: whether a crash would leave it or the one before is not
    /// known.
    #[error(
        "no more writes of preimages after an earlier failure ({cause}): remove its cause and start again; the \
         database itself is sound"
    )]
    Poisoned {
        /// Message of the first failure.
        cause: String,
    },
    /// A reader has no memory for more.
    #[error(
        "a reader has no memory for the preimages of all blocks that are not in files yet: open the chain for \
         writing once, as `cambium import` does"
    )]
    ReaderFull,
    /// The preimages were opened for reading alone.
    #[error("the preimages are open for reading alone")]
    ReadOnly,
}

impl PreimagesError {
    /// Whether it is an error of the disk, which may pass.
    #[must_use]
    pub const fn is_of_disk(&self) -> bool {
        matches!(self, Self::Disk(_) | Self::Store(StoreError::Disk(_)))
    }
}

impl From<RunError> for PreimagesError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Disk(error) => Self::Disk(error),
            RunError::Damaged { file, offset, what } => Self::Damaged { file, offset, what },
            RunError::Missing { file } => Self::Missing { file },
            RunError::NewerFormat {
                file,
                found,
                supported,
            } => Self::NewerFormat {
                file,
                found,
                supported,
            },
            RunError::InUse { dir, pid } => Self::Store(StoreError::InUse {
                dir,
                pid,
                users: None,
            }),
            RunError::Poisoned { cause } => Self::Poisoned { cause },
            RunError::ReadOnly => Self::ReadOnly,
        }
    }
}
