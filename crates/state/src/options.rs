//! Options with which a database is opened: memory, retention of old blocks, and sizes of files.

use cambium_snapshot::StateError;
use cambium_store::{LogOptions, SegmentOptions, ValueOptions};
use cambium_trie::Commitment;
use std::time::Duration;

/// Upper limit of [`FileSizes::segments_max`].
const SEGMENTS_MAX: u32 = (1 << 23) - 1;

/// Options with which a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Memory budget of the whole engine, in bytes: index, layers and caches.
    pub memory_bytes: u64,
    /// Number of newest heights whose blocks can be built upon and made the head, on any branch: at most 64 blocks per
    /// height on average, the newest first. After the head has moved back, blocks that [`Options::keep_blocks`] has
    /// removed stay unavailable.
    pub unfinalized_blocks: usize,
    /// Number of blocks below the highest head so far that the head can go back to; a few hundred
    /// more can be read, unless it is a key-value database. Older blocks leave the block log in whole
    /// files, with their changes and access lists. `None` keeps all blocks, and with them every value
    /// of a key-value database that was ever replaced, since a view of an old block may read it. The
    /// branches of the newest heights are kept even if this number is smaller.
    pub keep_blocks: Option<u64>,
    /// Limit of the index in memory, in bytes; `None` for a third of [`Options::memory_bytes`]. Up to two thirds of the limit
    /// merges and loaders make smaller pages than they need to, so that less is written for each change. The lower levels
    /// of an index above the limit stay on disk, and a cold read then takes two device reads.
    pub index_bytes_max: Option<u64>,
    /// Number of checkpoints that a reader in another process may be behind the newest one. Until then the space of
    /// files that it reads is kept after their removal. A reader that is further behind gets an error when it reads a
    /// removed file, and has to catch up.
    pub reader_lag: u64,
    /// Longest time that a block waits for memory while only sealed blocks, which wait for their commit, take it: if none
    /// of them is committed or dropped for as long, the block is refused with [`StateError::NoRoom`].
    pub room_wait: Duration,
    /// Sizes of files. A database can be opened with other sizes than before.
    pub files: FileSizes,
    /// Commitment of a new database. An existing one stores the name of its own; if that is not one of this library's,
    /// the commitment is looked for here. [`Commitment::Layered`] needs
    /// [`Options::merge_interval_blocks`]: see [`Options::layered`].
    pub commitment: Commitment,
    /// Kind of leaves of a new database. An existing one stores its own.
    pub leaves: LeafKind,
    /// Number of blocks of an interval, under [`Commitment::Layered`] and no other commitment: a
    /// parameter of the chain, which an existing database knows.
    pub merge_interval_blocks: Option<u64>,
}

/// Kind of a database's leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeafKind {
    /// Accounts with their slots, by keccak(address) and keccak(slot).
    #[default]
    Accounts,
    /// Entries of a key-value database, by keys of 32 bytes.
    Entries,
}

/// Sizes of a database's files. The defaults are fast by measurement. With tiny sizes, files are
/// begun, cleaned and removed often, which tests need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSizes {
    /// Largest size of a segment of pages, in bytes, at most 256 MiB. A page that would exceed it
    /// begins another segment.
    pub segment_bytes_max: u64,
    /// Bytes of pages that are gathered before they are written.
    pub segment_buffer_bytes: usize,
    /// Largest number of segments at a time: 2 to 2^23 - 1.
    pub segments_max: u32,
    /// Size at which the block log begins another file, in bytes, at most 2 GiB.
    pub log_file_bytes_max: u32,
    /// Bytes by which a file of the block log is extended at a time, at most 2 GiB; 0 to never
    /// extend ahead of writes.
    pub log_extend_bytes: u64,
    /// Number of changed accounts and slots after which the log gets references of the subtries that they are in, about 35 bytes
    /// for each page with some of them: the first root after a crash reads the pages of fewer changes than this. 0 for
    /// no references.
    pub log_reference_leaves: u64,
    /// Number of blocks whose records are kept below the oldest block of [`Options::keep_blocks`].
    /// Executing a block on that one needs the hashes of 256 ancestors, and the ommers of some.
    pub log_spare_blocks: u64,
    /// Size at which another segment of long values begins, in bytes, at most 2 GiB. A longer value
    /// has a segment of its own. A merge begins when as many bytes of values were written since the
    /// one before, because only merges find out what can be removed.
    pub value_segment_bytes_max: u64,
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
            log_reference_leaves: 8192,
            log_spare_blocks: 256,
            value_segment_bytes_max: ValueOptions::default().segment_bytes_max,
        }
    }
}

impl FileSizes {
    /// The store's options for segments.
    pub(crate) const fn segments(&self) -> SegmentOptions {
        SegmentOptions {
            segment_bytes_max: self.segment_bytes_max,
            buffer_bytes: self.segment_buffer_bytes,
            segments_max: self.segments_max,
        }
    }

    /// The store's options for value segments.
    pub(crate) const fn values(&self) -> ValueOptions {
        ValueOptions {
            segment_bytes_max: self.value_segment_bytes_max,
        }
    }

    /// The store's options for the block log, whose checksums begin with `salt`.
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
            room_wait: Duration::from_secs(10),
            files: FileSizes::default(),
            commitment: Commitment::Mpt,
            leaves: LeafKind::Accounts,
            merge_interval_blocks: None,
        }
    }
}

impl Options {
    /// Returns the options for a new database under [`Commitment::Layered`], with intervals of `blocks`
    /// blocks.
    #[must_use]
    pub const fn layered(self, blocks: u64) -> Self {
        Self {
            commitment: Commitment::Layered,
            merge_interval_blocks: Some(blocks),
            ..self
        }
    }

    /// Checks that all options are within their limits, and fit each other.
    ///
    /// # Errors
    ///
    /// [`StateError::BadOptions`] names the option and its limits.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        if self.leaves == LeafKind::Accounts && matches!(self.commitment, Commitment::Binary(_)) {
            let name = self.commitment.name();
            let what = format!("the commitment {name} has no accounts: it is one of entries");
            return Err(StateError::BadOptions(what));
        }
        let is_partial = self.commitment == Commitment::PartialMpt;
        if self.leaves == LeafKind::Entries && is_partial {
            let what = "a partial database keeps the storage of contracts: it has no entries";
            return Err(StateError::BadOptions(what.to_owned()));
        }
        let name = self.commitment.name();
        let what = match (self.commitment, self.merge_interval_blocks) {
            (Commitment::Layered, Some(_)) => None,
            (Commitment::Layered, None) => {
                Some(format!("the commitment {name} needs a merge interval"))
            }
            (_, Some(blocks)) => Some(format!(
                "the commitment {name} has no intervals, and one of {blocks} blocks is given: they are \
                 for layered"
            )),
            (_, None) => None,
        };
        if let Some(what) = what {
            return Err(StateError::BadOptions(what));
        }
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
            (
                "value_segment_bytes_max",
                files.value_segment_bytes_max,
                0..=1 << 31,
            ),
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

    /// Limit of the index in memory, in bytes.
    pub(crate) const fn index_bytes_max(&self) -> u64 {
        match self.index_bytes_max {
            Some(bytes) => bytes,
            None => self.memory_bytes / 3,
        }
    }
}
