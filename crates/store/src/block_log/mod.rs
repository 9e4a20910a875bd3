//! The block log: what makes a commit durable.
//!
//! One record for each step, appended to the newest of a row of files. A commit is an append and
//! a sync; everything else in the directory can lag behind, because it can be made again from
//! here. A file is whole and durable before anything is appended to the next one, so only the
//! newest can end in anything but whole records.
//!
//! ```text
//!   00000001.log  [header][block][mark][block][block][mark][end]
//!   00000002.log  [header][block][mark][block][mark]000000000000000
//!                                              ^ written when the sync before it had returned
//! ```
//!
//! Records of the log's own stand between those of its user. A *mark* follows each sync and tells
//! that all before it is durable: it is not synced itself, but reaches the disk with the next
//! record, or when the system writes it; so that even damage to the newest record is told from a
//! record that was never acknowledged. An *end* is the last record of each file but the newest,
//! and is written when the next file has a durable header: if that file is missing, blocks were
//! lost. A *gap* stands where a repair has taken out what was damaged.
//!
//! The newest file is longer than its content, and filled with zeros: a sync then has to write no
//! new length, and to wait for no journal. A log's first file grows in steps; once it is 16 MiB
//! long whoever has time makes the next file ready as a whole ([`BlockLog::prepare_next`]). What
//! that is worth is in `docs/DISK.md`.

mod format;
mod recovery;
mod log;
mod read;
mod retention;
mod ahead;
mod repair;

pub(crate) use format::name_of;
pub use log::{BlockLog, LOG_PAYLOAD_BYTES_MAX, LogOptions};
pub use read::{LogScan, Record};
pub use recovery::{LogRecovery, TornTail};
pub use repair::{LogDamage, LogDamageKind};
pub use retention::RemovedLogFile;

#[cfg(all(test, feature = "shuttle"))]
mod model;
#[cfg(test)]
mod tests;
