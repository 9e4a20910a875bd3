//! The whole state at one block, read from shards that nobody trusts.
//!
//! A reader has the state trie from its root down, pruned. What it lacks it asks for, and takes a node only where its trie has
//! a blinded node with that hash. So every value that it returns follows from the state root, whoever answered.

mod error;
mod trie;
mod state;
mod view;
mod held;
mod storage;

pub use error::ReaderError;
pub use state::Reader;
pub use storage::ShardStorage;
pub use view::ReaderView;
