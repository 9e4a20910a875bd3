//! Segments: append-only files of leaf pages.
//!
//! Pages are gathered in a buffer and written in large sequential pieces, past the system's page
//! cache; a page can be read from the moment it was appended, out of the buffer if need be. Nothing
//! is ever overwritten: an address leads to the same page for as long as its segment exists.
//!
//! ```text
//!            readers                          appenders
//!               |  in the file already?  no        |
//!               v                        \         v
//!  000001.seg  000002.seg [======flushed====|==flushing==|==buffer==]
//!                                           ^            ^ at a block of the device
//!                                           | written with no lock held that others need
//! ```
//!
//! Only whole blocks are written, so a page may have its start in the file and its end in the
//! buffer. A sync fills the last block with zeros: bytes that are durable are never written again.
//!
//! Why past the cache: through it, a merge's writes reach the device in one burst when they are
//! synced, which the block log's sync then waits behind, and they drive out of memory what is worth
//! having there. Why in pieces: a sync of the log waits for what the device was given before it. On
//! the development machine the log's median sync beside such writing took 6.4 ms with pieces of 4
//! MiB, 1.7 ms with 1 MiB and 1.0 ms with 512 KiB, at the same 0.6 to 1 GB/s; see `docs/DISK.md`,
//! and [`WritePace`]. But each piece waits behind the reads that the device was given before it:
//! while there are many, or nobody else to be gentle to, all that was gathered is written at once.
//!
//! What is durable is decided by the checkpoint, which holds the table of segments and of their
//! lengths as of a sync. All that came later is dropped once the database is open: no index leads
//! there. A segment is never appended to again after that, so that a place is written once: a page
//! tells by its checksum where it belongs, and a write that the disk lost leaves nothing there
//! that could pass for it.
//!
//! A segment goes when nothing can lead to it any more. Its number in addresses is then used
//! again, and the sequence number in its file's name never.

mod addr;
mod segment;
mod table;
mod tail;
mod set;
mod beside;
mod read;
mod space;
mod scan;

pub use addr::PageAddr;
pub(crate) use beside::SegmentFile;
pub use scan::SegmentScan;
pub use segment::SegmentStats;
pub use set::{SegmentOptions, Segments, SegmentsRecovery};
pub use space::RemovedSegment;

#[cfg(all(test, feature = "shuttle"))]
mod model;
#[cfg(test)]
mod tests;
