//! Value segments: append-only files of the values that are too long for their leaves.
//!
//! Leaves, log records, reverts and layers hold a reference of a value: its hash, its length and its
//! *place* here. The value itself is written once, before the log record of the block that brings
//! it, and no merge writes it again. Cleaning puts what is left of a sparse segment again, as the
//! next blocks do with values of their own: this crate lists the segments and their values
//! ([`Values::sparse`], [`Values::scan`]), and the engine decides.
//!
//! ```text
//!            append, append, ...  sync  | log record of the block, sync
//!                      |                |      (refers to durable values only)
//!                      v
//!  00000001.val  00000002.val  00000003.val [==synced==|==written==]
//!   live 0: removed    |                               ^ the next value
//!   once no kept       | sparse: its live values are appended anew
//!   block needs it
//! ```
//!
//! # The end of the newest segment
//!
//! Existing bytes are never overwritten, and no file is ever shortened: values appended after the checkpoint are kept,
//! because blocks of the log refer to them. After a crash some of them may be torn, but no block refers to those: the
//! log record that would is written only after the sync that makes the value whole.
//!
//! So the next value goes to the end of the newest file, if the heads of records form a chain from the checkpointed
//! length to there. Otherwise it begins a new segment. Where a crash cut a record off, the next one must not begin
//! within the space that the torn one claims, where a scan would not find it. Always beginning a new segment would make
//! one small file for each opening. A new segment begins also where the newest file has no intact header, is shorter
//! than it should be, or has a second name in a backup.
//!
//! # Access
//!
//! The newest segment is written and read through the page cache of the operating system, which
//! holds what blocks not yet merged refer to, and makes room for values of any length without
//! padding. A commit waits for the device once, in [`Values::sync`]. A complete segment is read
//! past the page cache, with one device read for a value.
//!
//! # When a segment may be removed
//!
//! Three things may refer to a value. Each has its own measure:
//!
//! | who | measure |
//! |---|---|
//! | the state at the newest merge | live bytes: [`Values::refer`], [`Values::release`] |
//! | reverts of kept blocks | the highest block whose reverts need the segment |
//! | blocks that are not merged yet | the first segment that such a block may refer to |
//!
//! The checkpoint stores all three ([`Values::encode_table`]). A file that is missing is an error if
//! the table says that it is needed.
//!
//! Deliberately absent: values are not compressed, and equal values are not shared.

mod place;
mod format;
mod segment;
mod table;
mod set;
mod read;
mod scan;
mod settle;
mod space;
mod shared;

pub(crate) use format::DIR;
pub(crate) use format::FORMAT;
pub use scan::ValueScan;
pub use segment::ValueSegment;
pub use set::{ValueOptions, Values, ValuesRecovery};
pub use space::{RemovedValues, ValueStats};

#[cfg(test)]
mod tests;
