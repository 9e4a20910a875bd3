//! Options of [`StdDisk`](crate::StdDisk).

/// Method of batch reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMethod {
    /// io_uring if the system permits it, which containers often do not, else threads. Decided by
    /// the first read that needs it; [`Disk::describe`](crate::Disk::describe) returns the
    /// decision.
    #[default]
    Auto,
    /// io_uring. Creating the disk fails if the system does not permit it.
    Uring,
    /// Threads.
    Portable,
}

/// Options of a [`StdDisk`](crate::StdDisk).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StdDiskOptions {
    /// Method of batch reads.
    pub method: IoMethod,
    /// Whether files opened for [`Access::Direct`](crate::Access::Direct) bypass the page cache,
    /// where the file system supports it.
    pub direct: bool,
    /// Whether files are opened for reading only, and none are created or renamed, as for a
    /// directory without write permission. Lock files are still created and removed where
    /// permitted.
    pub read_only: bool,
}

impl Default for StdDiskOptions {
    fn default() -> Self {
        Self {
            method: IoMethod::Auto,
            direct: true,
            read_only: false,
        }
    }
}

impl StdDiskOptions {
    /// Returns the default options, changed by the environment variable `CAMBIUM_IO`: a list of
    /// words separated by commas. `portable` disables io_uring, `cached` disables direct access,
    /// and other words are ignored.
    pub fn from_env() -> Self {
        Self::without(&std::env::var("CAMBIUM_IO").unwrap_or_default())
    }

    fn without(words: &str) -> Self {
        let mut options = Self::default();
        for word in words.split(',') {
            match word.trim() {
                "portable" => options.method = IoMethod::Portable,
                "cached" => options.direct = false,
                _ => {}
            }
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_switch_things_off() {
        let of = |words| {
            let StdDiskOptions { method, direct, .. } = StdDiskOptions::without(words);
            (method, direct)
        };
        assert_eq!(of(""), (IoMethod::Auto, true));
        assert_eq!(of("portable"), (IoMethod::Portable, true));
        assert_eq!(of("cached, portable"), (IoMethod::Portable, false));
        assert_eq!(of("fast,cached"), (IoMethod::Auto, false));
    }
}
