//! Blocks, transactions, receipts and logs: kept apart from the state, found by hash, address and topic.
//!
//! ```text
//! block log --> blocks in memory --> data files     what the chain stores with each block
//!                                    runs in files  entries of hashes and logs, merged geometrically
//! ```
//!
//! The block log has a block and its changes in one record, and may drop old ones. An *index* has the
//! blocks alone, for as long as it is there, and two kinds of sorted entries: of the hashes of blocks and
//! transactions, and of the addresses and topics of logs. A *run* has the entries of consecutive blocks. A
//! look-up reads one page of it, and none of most runs that lack the hash, since they have filters; a second
//! read gets the block. The whole hash is compared with the block's or the transaction's.
//!
//! The index is made from the block log, whether the block was committed a moment ago or long ago. So it is never
//! needed to open a database, and can be rebuilt from the log. It has canonical blocks alone: those that leave the
//! chain are taken back, and a look-up makes sure of that first.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod error;
mod body;
mod counters;
mod entry;
mod extents;
mod run;
mod list;
mod data;
mod recent;
mod keeper;
mod merge;
mod upkeep;
mod extend;
mod index;
mod logs;
mod check;
mod follower;
mod backup;

pub use backup::{IndexCopy, copy_index};
pub use body::{BlockPreimages, StoredBody, StoredBodyError, pack_receipts};
pub use check::CheckedIndex;
pub use data::IndexedBlock;
pub use error::IndexError;
pub use extend::{IndexProgress, ReceiptsOf};
pub use follower::IndexFollower;
pub use index::{ChainIndex, FoundHash, IndexStats};
pub use keeper::IndexOptions;
pub use logs::{LogBlocks, LogFilter};

/// Number of the format of each kind of file that this version writes, by the name of the kind.
pub const FORMATS: [(&str, u32); 2] = [
    ("index list", list::FORMAT),
    ("index runs", run::format::FORMAT),
];
