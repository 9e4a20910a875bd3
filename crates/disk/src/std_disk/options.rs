//! How a disk of the file system is to do its work.

/// How batches are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMethod {
    /// By io_uring if the system lets us: containers often do not. Else by threads. Found out when
    /// first needed, by a read; [`Disk::describe`](crate::Disk::describe) says what came of it.
    #[default]
    Auto,
    /// By io_uring, or not at all.
    Uring,
    /// By threads.
    Portable,
}

/// How a [`StdDisk`](crate::StdDisk) is to do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StdDiskOptions {
    /// How batches are read.
    pub method: IoMethod,
    /// Whether files opened for [`Access::Direct`](crate::Access::Direct) are to bypass the page
    /// cache, where the file system can do that.
    pub direct: bool,
    /// Whether files are opened for reading alone, and none are made or renamed: of a directory that
    /// may not be written to, say. Lock files come and go as far as the directory allows.
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
    /// The default, less what the environment variable `CAMBIUM_IO` switches off: a list with
    /// commas of `portable` (no io_uring) and `cached` (no direct access). Other words are ignored.
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
