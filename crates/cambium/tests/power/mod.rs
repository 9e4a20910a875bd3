//! Loss of power under a real kernel: block devices whose writes and flushes are recorded, and the
//! subsets of these that may be on the disk when the power goes.
//!
//! ```text
//!   engine -> ext4 -> /dev/loopN -> FUSE, one file (fuse.rs)  -> recording.rs
//!   engine -> ext4 -> dm-log-writes (device_mapper.rs)        -> recording.rs
//!                                          what a cut leaves <-
//!   engine <- ext4 <- /dev/loopM <- a file (device.rs)       <-
//! ```
//!
//! The kernel's file system does all that it does on a device: a flush by it is what a drive would
//! have seen, and mounting what is left replays its journal.

mod device;
mod device_mapper;
mod fuse;
mod recording;

pub(crate) use device::{Ext4, LoopDevice, missing_for_mounts, run};
pub(crate) use device_mapper::{LogWrites, missing_for_log_writes, parse_log};
pub(crate) use fuse::{FuseDrive, missing_for_fuse};
pub(crate) use recording::{Cut, Event, Image, Mark, Random, Recording};
