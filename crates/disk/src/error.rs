//! Errors of disk operations, with the file, the offset and a hint for the operator.

use std::{ffi::OsStr, fmt, io, path::Path};

/// Folders beside a database, which can be opened without them, and how to restore each.
const BESIDE: [(&str, &str); 3] = [
    (
        "index",
        "the state does not need it. Remove the folder `index`, and `cambium index build` makes it again",
    ),
    (
        "history",
        "the database does not need it. Remove the folder `history`, and `cambium history build` makes it again",
    ),
    (
        "preimages",
        "the database does not need it. Restore the folder `preimages` from a backup, or remove it to go on \
         without preimages",
    ),
];

/// How the names of the database's own files begin.
const OF_DATABASE: [&str; 5] = [
    "cambium.db",
    "cambium.lock",
    "codes.dat",
    "blocks.idx",
    "checkpoint-",
];

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
    fn hint(&self) -> Option<String> {
        // The one kind without a name in the standard library: too many open files.
        let open_files = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
        if open_files
            .iter()
            .any(|e| self.source.raw_os_error() == Some(e.raw_os_error()))
        {
            return Some(
                "too many open files: raise the limit (`ulimit -n`) and run again".to_owned(),
            );
        }
        if self.is_unreadable() && self.op == "read" {
            let way_back = self.way_back(
                "`cambium db repair` goes on without what can't be read, as far as other files tell it",
            );
            return Some(format!(
                "the device failed: try again, and if it stays so, {way_back}"
            ));
        }
        let from_others = "`cambium db repair` brings back what other files tell";
        let hint = match self.source.kind() {
            io::ErrorKind::StorageFull => "disk full: free some space and run again",
            io::ErrorKind::FileTooLarge => {
                "a file may not be so large here: raise the limit (`ulimit -f`) and run again"
            }
            io::ErrorKind::QuotaExceeded => "quota used up: free some space and run again",
            io::ErrorKind::PermissionDenied => {
                "check the owner and the mode of the file and of its directories"
            }
            io::ErrorKind::ReadOnlyFilesystem => {
                "the file system is read-only: mount it for writing and run again"
            }
            io::ErrorKind::NotFound if self.op == "open" => {
                return Some(format!("a file is gone: {}", self.way_back(from_others)));
            }
            io::ErrorKind::UnexpectedEof => {
                let way_back = self.way_back(from_others);
                return Some(format!("the file is shorter than it should be: {way_back}"));
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    /// Returns the advice for a file that can't be read: `of_database`, unless the file is beside
    /// the database.
    fn way_back(&self, of_database: &'static str) -> &'static str {
        let path = Path::new(&self.path);
        let folder = path.parent().and_then(Path::file_name);
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // The database itself may be in a folder of such a name.
        let is_of_database = OF_DATABASE.iter().any(|name| file.starts_with(name));
        let beside = BESIDE
            .iter()
            .find(|(name, _)| !is_of_database && folder.is_some_and(|folder| folder == *name));
        beside.map_or(of_database, |(_, way_back)| way_back)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_repair_brings_back_has_the_advice_to_repair() {
        let cases = [
            ("log/00000001.log", "`cambium db repair`"),
            ("/data/codes.dat", "`cambium db repair`"),
            ("/data/index/00000001.run", "`cambium index build`"),
            ("/data/history/runs.list", "`cambium history build`"),
            ("preimages/00000001.run", "from a backup"),
            // A database may itself be in a folder of such a name.
            ("/data/history/cambium.db", "`cambium db repair`"),
            ("/data/index/codes.dat", "`cambium db repair`"),
            ("/data/preimages/blocks.idx", "`cambium db repair`"),
            ("history/checkpoint-00000007", "`cambium db repair`"),
            ("/data/history/log/00000001.log", "`cambium db repair`"),
        ];
        let unreadable = || io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
        for (path, advice) in cases {
            for error in [
                DiskError::at("read", path, 7, unreadable()),
                DiskError::at("read", path, 7, io::ErrorKind::UnexpectedEof.into()),
                DiskError::new("open", path, io::ErrorKind::NotFound.into()),
            ] {
                let told = error.to_string();
                assert!(told.contains(advice), "{told}");
                let is_of_database = advice.contains("repair");
                assert_eq!(told.contains("db repair"), is_of_database, "{told}");
            }
        }
    }
}
