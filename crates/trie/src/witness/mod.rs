//! Witnesses: the nodes that a block's execution needs, from which its state transition is run
//! again with no database.
//!
//! A witness lists the RLP of nodes in any order. The state root authenticates them: a node is used
//! only where its parent, or the root, refers to its hash. Nodes that are missing stay blinded, and
//! executing the block fails with "no node at path .." if it needs them.
//!
//! A listed node may occur at a million places, since accounts with equal storage share its nodes. So reading a witness
//! does not unfold it to a trie with a node for each place:
//!
//! ```text
//!   listed   the lists, and errors
//!   unfold   a trie of all nodes, or of those on the paths to some keys, of limited size
//!   nodes    the nodes by their hashes: look-ups and ranges walk from hash to hash, and updates unfold the nodes
//!            on the paths of what they change
//!   bag      the nodes of many reads below a retention level, made of a trie and unfolded into another
//! ```

mod listed;
mod unfold;
mod nodes;
mod bag;

pub use bag::{BagError, BagLevels, BagMaker, BagNodes, Deletes, HashedNodes};
pub use listed::{Witness, WitnessError};
pub use nodes::{UnfoldError, Unfolder, WitnessNodes};
pub use unfold::NodesByHash;
pub(crate) use unfold::Wanted;
