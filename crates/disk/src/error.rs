//! Errors of disk operations, with the file, the offset and a hint for the operator.

use std::{fmt, io};

/// A failed disk operation.
#[derive(Debug)]
pub struct DiskError {
    /// The operation as a verb, such as "read", "write" or "sync".
    pub op: &'static str,
    /// The file or directory, in the form for messages.
    pub path: String,
    /// Offset in the file in bytes, if relevant.
    pub offset: Option<u64>,
    /// Error of the system.
    pub source: io::Error,
}

impl DiskError {
    /// Creates an error of `op` on the whole of `path`.
    pub fn new(op: &'static str, path: impl Into<String>, source: io::Error) -> Self {
        Self {
            op,
            path: path.into(),
            offset: None,
            source,
        }
    }

    /// Creates an error of `op` on `path` at byte `offset`.
    pub fn at(op: &'static str, path: impl Into<String>, offset: u64, source: io::Error) -> Self {
        Self {
            op,
            path: path.into(),
            offset: Some(offset),
            source,
        }
    }

    /// Returns whether the file or directory does not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Returns whether a directory was expected, and something else exists.
    pub fn is_not_a_directory(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotADirectory
    }

    /// Returns whether the file ends before the end of the read.
    pub fn is_end_of_file(&self) -> bool {
        self.source.kind() == io::ErrorKind::UnexpectedEof
    }

    /// Returns whether the device cannot read the data. Retries are expected to fail, too.
    pub fn is_unreadable(&self) -> bool {
        use rustix::io::Errno;
        let device = [
            Errno::IO,
            Errno::NODATA,
            Errno::BADMSG,
            Errno::ILSEQ,
            Errno::UCLEAN,
        ];
        let code = self.source.raw_os_error();
        device
            .iter()
            .any(|error| code == Some(error.raw_os_error()))
    }

    /// Returns whether the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    /// Returns whether the system or file system does not support the operation.
    pub fn is_unsupported(&self) -> bool {
        self.source.kind() == io::ErrorKind::Unsupported
            || self.source.raw_os_error() == Some(rustix::io::Errno::OPNOTSUPP.raw_os_error())
    }

    /// Returns a hint for the operator, if there is one.
    fn hint(&self) -> Option<&'static str> {
        // The one kind without a name in the standard library: too many open files.
        let open_files = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
        if open_files
            .iter()
            .any(|e| self.source.raw_os_error() == Some(e.raw_os_error()))
        {
            return Some("too many open files: raise the limit (`ulimit -n`) and run again");
        }
        if self.is_unreadable() && self.op == "read" {
            return Some(
                "the device failed: try again, and if it stays so, `cambium db repair` goes on \
                 without what can't be read, as far as other files tell it",
            );
        }
        match self.source.kind() {
            io::ErrorKind::StorageFull => Some("disk full: free some space and run again"),
            io::ErrorKind::QuotaExceeded => Some("quota used up: free some space and run again"),
            io::ErrorKind::PermissionDenied => {
                Some("check the owner and the mode of the file and of its directories")
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                Some("the file system is read-only: mount it for writing and run again")
            }
            io::ErrorKind::NotFound if self.op == "open" => {
                Some("a file is gone: `cambium db repair` brings back what other files tell")
            }
            io::ErrorKind::UnexpectedEof => Some(
                "the file is shorter than it should be: `cambium db repair` brings back what other \
                 files tell",
            ),
            _ => None,
        }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}", self.op, self.path)?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.source)?;
        self.hint().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

impl std::error::Error for DiskError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Error of [`Disk::lock`](crate::Disk::lock).
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process or handle has the lock.
    #[error("{path} is locked{}", .pid.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    Held {
        /// Name of the lock file.
        path: String,
        /// Process id of the holder, if the lock file has it.
        pid: Option<u32>,
    },
    /// The disk operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
}
