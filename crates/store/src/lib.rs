//! Durable storage of the state engine: leaf pages, segments, block log, checkpoints and recovery.
//!
//! This crate stores leaves and cached node references as bytes under a path. It does not interpret
//! them and contains no trie code. All files are accessed through a [`cambium_disk::Disk`]:
//!
//! ```text
//! cambium.db             Manifest       identity and format of the database, written once
//! cambium.lock           lock_data_dir  held by the process that has the directory open
//! log/00000001.log ...   BlockLog       state changes of each block; a commit is one append and sync
//! segments/00000001.seg  Segments       leaf pages, appended by merges, never overwritten
//! codes.dat              Codes          contract code by hash
//! values/00000001.val    Values         values that are too long for their leaves, by place
//! readers/00000007-...   ReaderLock     one file per reader process, naming the checkpoint it reads
//! blocks.idx             BlockIndex     canonical block number -> log position; rebuilt from the log
//! checkpoint-00000007    Checkpoint     everything else needed to open; the last two are kept, with
//!                                       the checkpoints on which they are based
//! ```
//!
//! ```
//! use cambium_disk::{Disk, FaultyDisk};
//! use cambium_store::{BlockLog, LogOptions, LogPosition};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), cambium_store::StoreError> {
//! let machine = FaultyDisk::new(1);
//! let disk: Arc<dyn Disk> = Arc::new(machine.clone());
//! let (log, _) = BlockLog::open(disk, LogOptions::default(), LogPosition::START)?;
//! log.settle()?;
//! log.append(1, &[b"what block 1 changed"])?;
//! log.sync()?; // From here on block 1 is committed.
//! log.append(1, &[b"what block 2 changed"])?;
//!
//! let disk: Arc<dyn Disk> = Arc::new(machine.crash());
//! let (log, recovery) = BlockLog::open(disk, LogOptions::default(), LogPosition::START)?;
//! let (_, first) = log.scan(LogPosition::START).next().expect("block 1")?;
//! assert_eq!(first.payload, b"what block 1 changed");
//! println!("the log ends at {:?}, dropped: {:?}", recovery.end, recovery.torn_tail);
//! # Ok(())
//! # }
//! ```
//!
//! # Durability order
//!
//! 1. A commit appends to the log and syncs it. Nothing else is needed for the block to survive, but
//!    for the long values that it brings: they are synced before its record is written.
//! 2. A checkpoint first syncs segments, codes, values and block index, and is written only then: it refers
//!    to durable data only. It stores the log position at which replay starts.
//! 3. Files that a checkpoint makes obsolete (such as dead segments) are removed only after it is
//!    durable, and only if the previous checkpoint, the fallback for a damaged newest one, does not
//!    need them.
//!
//! A component whose write or sync failed is *poisoned*: it refuses further writes, because the
//! operating system may have dropped data that was not yet durable, and returns the first failure
//! to every later writer.

#![warn(clippy::missing_errors_doc)]

#[cfg(test)]
mod modelled;
mod sync;
mod log_position;
mod error;
mod poison;
mod files;
mod record;
mod block_log;
mod block_index;
mod page;
mod segments;
mod codes;
mod values;
mod checkpoint;
mod manifest;
mod readers;
mod backup;
mod formats;

pub use backup::{BackupSource, copy_files};
pub use block_index::{BlockEntry, BlockIndex, IndexState};
pub use block_log::{
    BlockLog, LOG_PAYLOAD_BYTES_MAX, LogDamage, LogDamageKind, LogFindings, LogOptions,
    LogRecovery, LogScan, Record, RemovedLogFile, TornTail,
};
pub use checkpoint::{
    Checkpoint, CheckpointId, CheckpointWriter, FinishedCheckpoint, FoundCheckpoints,
    PIECE_SUM_BYTES, SectionReader, load_latest_checkpoint, put_piece, quarantine,
};
pub use codes::{Codes, CodesRecovery};
pub use error::StoreError;
pub use formats::FORMATS;
pub use log_position::LogPosition;
pub use manifest::{DataDirLock, Manifest, lock_data_dir};
pub use page::{PAGE_BYTES_MAX, Page, PageBuilder, PageError, PageRewriter, leaf_size_bytes};
pub use readers::{ReaderLock, UnlinkedFiles, create_readers_dir, live_readers};
pub use segments::{
    FinishedPage, PART_HEAD_BYTES, PageAddr, PageQueue, RemovedSegment, SegmentOptions,
    SegmentScan, SegmentStats, Segments, SegmentsRecovery, StoredPart, encode_part,
};
pub use values::{
    RemovedValues, ValueOptions, ValueScan, ValueSegment, ValueStats, Values, ValuesRecovery,
};
