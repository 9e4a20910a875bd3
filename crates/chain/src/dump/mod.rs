//! States as JSON: written from a view, and read into a new database.
//!
//! | field | value |
//! |---|---|
//! | `cambiumDump` | version of the form: 1 |
//! | `rules` | fork rules of the chain |
//! | `number`, `hash` | block whose state this is |
//! | `totalDifficulty` | that of the block, itself included |
//! | `block` | RLP of the block, whose state root is compared with that of the accounts when the dump is loaded |
//! | `blockAccessList` | RLP of its access list, if one is stored with it |
//! | `alloc` | accounts, as in a genesis file, by address or by keccak(address) |
//!
//! An account has `balance`, `nonce`, `code` and `storage`, as in a genesis file, or `hashedStorage`, by
//! keccak(slot). A dump has addresses and slots where the database keeps preimages, and hashes elsewhere. Reading takes both.
//!
//! `totalDifficulty`, `block` and `blockAccessList` are left out for a block that has left the log. No
//! database can be made of such a dump.

mod write;
mod read;

pub use write::{DumpProgress, DumpSummary};
