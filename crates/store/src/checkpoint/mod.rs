//! Checkpoints: everything besides the log that is needed to open the database, in one file.
//!
//! A checkpoint consists of named sections of bytes. It is written under a temporary name, synced,
//! and renamed only then. So a file with a checkpoint's name is complete, unless it was damaged
//! later. The last two checkpoints are kept. If the newest is damaged, the database opens from the
//! one before and replays more of the log. Once the database is open, damaged checkpoints are set
//! aside under another name and no longer count as one of the two. A checkpoint that is unreadable
//! at the moment does not count as damaged: opening fails, and the caller may retry.
//!
//! A checkpoint may be *incremental*: it is based on an older one, stores only what has changed
//! since, and is useless without its base. All checkpoints that a kept one is based on are kept,
//! too.
//!
//! ```text
//!   7 <- 8 <- 9    10 <- 11 <- 12    7 and 10 have no base. 11 and 12 are the last two, and 10 is
//!                                    kept as their base. 7 to 9 have been removed.
//! ```
//!
//! A section may consist of *pieces*, each with its own checksum. Pieces can be read one by one for
//! as long as the section is open, even after the checkpoint was removed.
//!
//! Everything that a checkpoint refers to (pages in segments, codes) must be durable before it is
//! finished. Data that only the checkpoint before the last needs may be removed after that.

mod format;
mod names;
mod pieces;
mod reader;
mod latest;
mod writer;

pub use format::CheckpointId;
pub(crate) use format::FORMAT;
pub use latest::{FoundCheckpoints, load_latest_checkpoint, quarantine};
pub(crate) use names::{is_checkpoint, name_of};
pub use pieces::{PIECE_SUM_BYTES, SectionReader, put_piece};
pub use reader::Checkpoint;
pub use writer::{CheckpointWriter, FinishedCheckpoint};

#[cfg(test)]
mod tests;
