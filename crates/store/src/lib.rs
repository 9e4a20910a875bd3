//! Durable parts of the state engine: leaf pages, segments, block log, checkpoints, recovery.
//!
//! To this crate leaves and cached digests are bytes under a path, whatever they mean; it knows no
//! trie. Everything goes through a [`cambium_disk::Disk`], under these names:
//!
//! ```text
//! cambium.db             Manifest       what the directory is, written once
//! cambium.lock           lock_data_dir  who has it open
//! log/00000001.log ...   BlockLog       each block's changes, in order: a commit is one append + sync
//! segments/00000001.seg  Segments       leaf pages, appended by merges, never overwritten
//! codes.dat              Codes          contract code by hash
//! readers/00000007-...   ReaderLock     who reads beside the process that writes, and at which checkpoint
//! blocks.idx             BlockIndex     canonical number -> place in the log; can be made again from it
//! checkpoint-00000007    Checkpoint     whatever else a start needs; the last two are kept, and what
//!                                       these are on
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
//! # The order in which things become durable
//!
//! 1. A commit appends to the log and syncs it. Nothing else is needed for the block to survive.
//! 2. A checkpoint syncs segments, codes and index *first*, and is then written itself: it speaks
//!    only of what is durable. It names the log position from which to replay.
//! 3. What a checkpoint made superfluous (dead segments) is removed only after it is durable, and
//!    only if the checkpoint before it, to which a damaged newest one falls back, does not need it.
//!
//! A part whose write or sync failed is *poisoned*: it takes no more writes, since the system may
//! have dropped what was not yet durable, and reports the first failure whenever asked.

#[cfg(all(test, feature = "shuttle"))]
mod modelled;
mod sync;
mod log_position;
mod error;
mod poison;
mod pace;
mod files;
mod record;
mod block_log;
mod block_index;
mod page;
mod segments;
mod codes;
mod checkpoint;
mod manifest;
mod readers;
mod backup;

pub use backup::{BackupOf, BackupSizes, copy_files};
pub use block_index::{BlockEntry, BlockIndex, IndexState};
pub use block_log::{
    BlockLog, LOG_PAYLOAD_BYTES_MAX, LogDamage, LogDamageKind, LogOptions, LogRecovery, LogScan,
    Record, RemovedLogFile, TornTail,
};
pub use checkpoint::{
    Checkpoint, CheckpointId, CheckpointWriter, FinishedCheckpoint, FoundCheckpoints,
    PIECE_SUM_BYTES, SectionReader, load_latest_checkpoint, put_piece, set_aside,
};
pub use codes::{Codes, CodesRecovery};
pub use error::StoreError;
pub use log_position::LogPosition;
pub use manifest::{DataDirLock, Manifest, lock_data_dir};
pub use pace::WritePace;
pub use page::{PAGE_BYTES_MAX, Page, PageBuilder, PageError, PageRewriter, leaf_bytes};
pub use readers::{LentFiles, ReaderLock, live_readers, make_room_for_readers};
pub use segments::{
    PageAddr, RemovedSegment, SegmentOptions, SegmentScan, SegmentStats, Segments, SegmentsRecovery,
};
