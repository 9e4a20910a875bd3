//! How a database is opened.

use cambium_snapshot::StateError;
use cambium_store::{LogOptions, SegmentOptions};

/// Most segments that there can be at a time.
const SEGMENTS_MAX: u32 = (1 << 23) - 1;

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory for all of the engine, in bytes: index, layers and caches.
    pub memory_bytes: u64,
    /// Blocks of so many of the newest heights can be built upon and made the head, whatever
    /// their branch; of each height 64 on average, the newest first. Not below what
    /// [`Options::keep_blocks`] has let go, after the head went back.
    pub unfinalized_blocks: usize,
    /// So many blocks below the highest head so far can be gone back to, and a few hundred more be read: older ones
    /// leave the block log as whole files, with their changes and access lists. `None` for all. Never
    /// fewer than what branches of the newest heights need.
    pub keep_blocks: Option<u64>,
    /// Of this memory, so much for the index, in bytes; `None` for a quarter. If the index is
    /// larger, its lower levels stay on disk: a cold read then takes two device reads.
    pub index_bytes_max: Option<u64>,
    /// Other processes may read beside the one that writes. So many checkpoints behind the newest
    /// they may be and still keep the space of files that are removed: those that are further behind
    /// are told to catch up when they read what is gone.
    pub reader_lag: u64,
    /// How large files get. A database can be opened with other sizes than before.
    pub files: FileSizes,
}

/// How large the files of a database get. The defaults are what was measured to be fast; with tiny
/// ones all that happens to files (begun, cleaned, removed) happens often, which tests are after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSizes {
    /// Another segment of pages is begun when one would take more bytes than this. At most 256 MiB.
    pub segment_bytes_max: u64,
    /// Pages are written when so many bytes of them have gathered.
    pub segment_buffer_bytes: usize,
    /// Segments that there can be at a time: 2 to 2^23 - 1.
    pub segments_max: u32,
    /// Another file of the block log is begun when one has so many bytes. At most 2 GiB.
    pub log_file_bytes_max: u32,
    /// A file of the block log is extended by so many bytes at a time, or by none. At most 2 GiB.
    pub log_extend_bytes: u64,
    /// Below the oldest block that [`Options::keep_blocks`] is about, the records of so many more are
    /// kept: executing a block on it asks for the hashes of 256 ancestors, and the uncles of some.
    pub log_spare_blocks: u64,
}

impl Default for FileSizes {
    fn default() -> Self {
        let (segments, log) = (SegmentOptions::default(), LogOptions::default());
        Self {
            segment_bytes_max: segments.segment_bytes_max,
            segment_buffer_bytes: segments.buffer_bytes,
            segments_max: segments.segments_max,
            log_file_bytes_max: log.file_bytes_max,
            log_extend_bytes: log.extend_bytes,
            log_spare_blocks: 256,
        }
    }
}

impl FileSizes {
    pub(crate) const fn segments(&self) -> SegmentOptions {
        SegmentOptions {
            segment_bytes_max: self.segment_bytes_max,
            buffer_bytes: self.segment_buffer_bytes,
            segments_max: self.segments_max,
        }
    }

    pub(crate) const fn log(&self, salt: u64) -> LogOptions {
        LogOptions {
            file_bytes_max: self.log_file_bytes_max,
            extend_bytes: self.log_extend_bytes,
            salt,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 1 << 30,
            unfinalized_blocks: 64,
            keep_blocks: None,
            index_bytes_max: None,
            reader_lag: 16,
            files: FileSizes::default(),
        }
    }
}

impl Options {
    /// Refuses what is outside the limits.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        let files = &self.files;
        let segments_max = u64::from(files.segments_max);
        let refused = [
            ("segments_max", segments_max, 2..=u64::from(SEGMENTS_MAX)),
            (
                "log_file_bytes_max",
                files.log_file_bytes_max.into(),
                0..=1 << 31,
            ),
            ("log_extend_bytes", files.log_extend_bytes, 0..=1 << 31),
        ];
        match refused
            .iter()
            .find(|(_, value, limits)| !limits.contains(value))
        {
            Some((name, value, limits)) => {
                let (least, most) = (limits.start(), limits.end());
                let what = format!("{name} is {value}: it can be {least} to {most}");
                Err(StateError::BadOptions(what))
            }
            None => Ok(()),
        }
    }

    pub(crate) const fn index_bytes_max(&self) -> u64 {
        match self.index_bytes_max {
            Some(bytes) => bytes,
            None => self.memory_bytes / 4,
        }
    }
}
