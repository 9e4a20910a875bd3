//! The disk as Cambium sees it: the system's, with io_uring and direct access where it has them,
//! and a seeded faulty one for tests.
//!
//! Everything durable goes through [`Disk`] and [`DiskFile`]: positioned reads, alone or many at
//! once, positioned writes and holes, an explicit sync of a file's data, an explicit sync of a
//! directory's names, and nothing else. Names are relative to the disk's root, with `/` between
//! directories.
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
//! # What is assumed of the disk
//!
//! - **Sync is honest.** When [`DiskFile::sync`] returns, all that was written to the file before,
//!   and its length, survive a power loss. A device that lies about flushing its cache breaks every
//!   promise that is built on this one.
//! - **No write is atomic.** Until synced, each write may be kept, lost, or torn at any byte, in
//!   any order and independently of other writes. No sector size is relied on.
//! - **Synced bytes stay put.** A write never damages bytes outside its own range, even when
//!   power is lost during it.
//! - **A failed sync may have lost data for good.** The unsynced writes may be gone although later
//!   syncs succeed; so nothing may go on writing after one.
//! - **A hole is a write of zeros.** Until synced it may be there, or not, block by block.
//! - **Names are separate from content.** A created, renamed or removed name survives only once
//!   [`Disk::sync_dir`] has returned for its directory. Several of them may survive independently.
//! - **Rename is atomic.** After a crash the target name is the old file or the new one.
//! - **Bytes can rot.** Everything read is checksummed by its reader.
//!
//! The faulty disk does all of these, and injects errors besides.

#[cfg(not(target_os = "linux"))]
compile_error!("Cambium runs on Linux: direct I/O, io_uring and locks are used as they are there");

mod error;
mod stats;
mod disk;
mod std_disk;
mod trial;
mod salvage;
mod faulty;

pub use disk::{Access, BLOCK_BYTES, Disk, DiskDescription, DiskFile, DiskLock, ReadRequest};
pub use error::{DiskError, LockError};
pub use faulty::{Fault, FaultyDisk};
pub use salvage::{SalvageDisk, UnreadableRange};
pub use stats::DiskStats;
pub use std_disk::{IoMethod, StdDisk, StdDiskOptions};
pub use trial::TrialDisk;
