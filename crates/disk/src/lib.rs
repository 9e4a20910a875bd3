//! Disk access: directories of the file system, with io_uring and direct I/O where available, and a
//! seeded faulty disk for tests.
//!
//! All durable data goes through [`Disk`] and [`DiskFile`]: positioned reads, single, in batches
//! or through a queue, positioned writes, holes, an explicit sync of a file's data, and an explicit sync of a
//! directory's names. Names are relative to the root of the disk, with `/` between directories.
//!
//! ```
//! use cambium_disk::{Disk, FaultyDisk};
//!
//! # fn main() -> Result<(), cambium_disk::DiskError> {
//! let disk = FaultyDisk::new(7);
//! let file = disk.create("blocks.log")?;
//! file.write_at(b"one", 0)?;
//! file.sync()?;
//! disk.sync_dir("")?;
//! file.write_at(b"two", 3)?; // Never synced: a crash may keep it, lose it or tear it.
//!
//! let disk = disk.crash();
//! let mut bytes = [0; 3];
//! disk.open("blocks.log")?.read_at(&mut bytes, 0)?;
//! assert_eq!(&bytes, b"one");
//! # Ok(())
//! # }
//! ```
//!
//! # Assumptions about the disk
//!
//! - **Sync is honest.** When [`DiskFile::sync`] returns, the file's length and everything written
//!   to it before survive a power loss. A device that does not flush its cache breaks all guarantees
//!   of durability.
//! - **No write is atomic.** Until synced, each write may be kept, lost, or torn at any byte, in
//!   any order and independently of other writes. No sector size is assumed.
//! - **Synced bytes stay.** A write never damages bytes outside its own range, even when
//!   power is lost during it.
//! - **A failed sync may lose data permanently.** Unsynced writes may be lost even if later syncs
//!   succeed, so writing must stop after a failed sync.
//! - **A hole is a write of zeros.** Until synced, each of its blocks may be kept or lost.
//! - **Names are separate from content.** A created, renamed or removed name survives only once
//!   [`Disk::sync_dir`] has returned for its directory. They survive independently of each other.
//! - **Rename is atomic.** After a crash the target name is the old file or the new one.
//! - **Bytes can rot.** Everything read is checksummed by its reader.
//!
//! [`FaultyDisk`] does all of this, and injects errors.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[cfg(not(target_os = "linux"))]
compile_error!("Cambium runs on Linux: direct I/O, io_uring and locks are used as they are there");

mod error;
mod stats;
mod disk;
mod copy;
mod pace;
mod std_disk;
mod trial;
mod salvage;
mod faulty;

pub use copy::{BackupSizes, FileCopier, copy_range, name_in_original};
pub use disk::{
    Access, BLOCK_BYTES, Disk, DiskDescription, DiskFile, DiskLock, FinishedRead, QueuedRead,
    ReadQueue, ReadRequest, whole_blocks,
};
pub use error::{DiskError, LockError};
pub use faulty::{Fault, FaultyDisk};
pub use pace::WritePace;
pub use salvage::{SalvageDisk, UnreadableRange};
pub use stats::DiskStats;
pub use std_disk::{IoMethod, StdDisk, StdDiskOptions};
pub use trial::TrialDisk;
