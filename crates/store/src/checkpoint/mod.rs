//! Checkpoints: whatever a start needs besides the log, in one file.
//!
//! A checkpoint is named sections of bytes. It is written under a temporary name, synced, and only
//! then given its own, so that a file with a checkpoint's name is whole unless it has rotted since.
//! The last two are kept: a start that finds the newest damaged takes the one before, and replays
//! more of the log. One found damaged is set aside under another name once the database is open,
//! and does not count as one of the two. One that can't be read now is not damaged: whoever opens
//! the database tries again.
//!
//! A checkpoint may be *on* an older one: it has only what has changed since, and is good for
//! nothing without it. Those that a kept one needs are kept, too.
//!
//! ```text
//!   7 <- 8 <- 9    10 <- 11 <- 12    7 and 10 are on none; 11 and 12 are the last two: 10 is
//!                                    kept for them, 7 to 9 are gone
//! ```
//!
//! A section may be made of *pieces*, each with a checksum of its own, to be read one by one for as
//! long as somebody has the section open: even after its file was removed.
//!
//! Everything that a checkpoint speaks of (pages in segments, codes) must be durable before it is
//! finished; whatever only the one before the last needs may be removed once it is.

mod format;
mod names;
mod pieces;
mod reader;
mod latest;
mod writer;

pub use format::CheckpointId;
pub use latest::{FoundCheckpoints, load_latest_checkpoint, set_aside};
pub(crate) use names::{is_checkpoint, name_of};
pub use pieces::{PIECE_SUM_BYTES, SectionReader, put_piece};
pub use reader::Checkpoint;
pub use writer::{CheckpointWriter, FinishedCheckpoint};

#[cfg(test)]
mod tests;
