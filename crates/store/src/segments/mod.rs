//! Segments: append-only files of leaf pages, and of parts of an index.
//!
//! Appended pages gather in a buffer, which is written in large sequential pieces that bypass the
//! page cache. A page can be read as soon as it is appended, from the buffer if necessary. Nothing
//! is ever overwritten: an address refers to the same page for as long as its segment exists.
//!
//! ```text
//!            readers                          appenders
//!               |  in the file already?  no        |
//!               v                        \         v
//!  000001.seg  000002.seg [======flushed====|==flushing==|==buffer==]
//!                                           ^            ^ block boundary of the device
//!                                           | written without blocking readers or appenders
//! ```
//!
//! Only whole blocks are written, so a page may start in the file and end in the buffer. A sync
//! pads the last block with zeros, and durable bytes are never written again.
//!
//! Writes bypass the page cache because cached writes reach the device in one burst at the sync.
//! The block log's next sync would wait for that burst, and the cache would lose data worth
//! keeping. Writes come in pieces because a sync of the log waits for everything the device has
//! queued. On the development machine the median sync of the log shared such writes took 6.4 ms
//! with pieces of 4 MiB, 1.7 ms with 1 MiB and 1.0 ms with 512 KiB, at the same rate of 0.6 to 1
//! GB/s (see `docs/DISK.md` and [`WritePace`]). Each piece also waits for the reads that are queued
//! before it. So with many reads in flight, or with throttling off, the whole buffer is written at
//! once.
//!
//! The checkpoint decides what is durable: it stores the table of segments with their lengths at a
//! sync. Everything appended later is dropped once the database is open, because no index refers to
//! it. The remaining segments are never appended to again, so each place is written only once. A
//! page's checksum depends on its place. A stale or misplaced page therefore never passes for the
//! page that a lost write should have put there.
//!
//! Beside pages there may be parts of an index that does not fit into memory (`part.rs`). They are appended,
//! counted and removed as pages are.
//!
//! A segment is removed when nothing refers to it any more. Its number in addresses is reused. The
//! sequence number in its file name is not.
//!
//! [`WritePace`]: cambium_disk::WritePace

mod addr;
mod segment;
mod table;
mod tail;
mod set;
mod shared;
mod read;
mod part;
mod queue;
mod space;
mod scan;

pub use addr::PageAddr;
pub use part::{PART_HEAD_BYTES, StoredPart, encode_part};
pub use queue::{FinishedPage, PageQueue};
pub use scan::SegmentScan;
pub(crate) use segment::FORMAT;
pub use segment::SegmentStats;
pub use set::{SegmentOptions, Segments, SegmentsRecovery};
pub(crate) use shared::SegmentFile;
pub use space::RemovedSegment;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
