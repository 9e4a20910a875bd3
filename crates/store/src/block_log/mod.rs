//! The block log: a write-ahead log of state changes, and the only thing a commit makes durable.
//!
//! A commit appends one record to the newest of a series of files, and syncs it. All other files of
//! the database may lag behind, because they can be rebuilt from here. A file is complete and
//! durable before anything is appended to the next one, so only the newest file can have a torn
//! end.
//!
//! ```text
//!   00000001.log  [header][block][mark][block][block][mark][end]
//!   00000002.log  [header][block][mark][block][mark]000000000000000
//!                                              ^ written after the sync before it returned
//! ```
//!
//! The log has records of its own between those of its user:
//!
//! - A *sync mark* follows each sync, and states that everything before it is durable. It is not
//!   synced itself: it reaches the disk with the next record or by the system's write-back. It
//!   makes damage to the newest block distinguishable from a record that was never acknowledged.
//! - An *end* is the last record of every file but the newest. It is written once the next file has
//!   a durable header, so that a missing next file is detected as lost blocks.
//! - A *gap* replaces a damaged range that a repair has cut out.
//!
//! The newest file is preallocated with zeros, so that a sync changes no file length and does not
//! wait for the file system's journal. The first file of a log grows in steps. Once it is 16 MiB
//! long, a background thread prepares the next file as a whole ([`BlockLog::preallocate_next`]).
//! `docs/DISK.md` has the measurements.

mod format;
mod recovery;
mod log;
mod read;
mod retention;
mod ahead;
mod repair;

pub(crate) use format::FORMAT;
pub(crate) use format::name_of;
pub use log::{BlockLog, LOG_PAYLOAD_BYTES_MAX, LogOptions};
pub use read::{LogScan, Record};
pub use recovery::{LogRecovery, TornTail};
pub use repair::{LogDamage, LogDamageKind, LogFindings};
pub use retention::RemovedLogFile;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
