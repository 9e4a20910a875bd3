//! Proofs of many keys of a binary trie, present or absent, and updates from them alone.
//!
//! A proof is the part of the trie that the look-ups of its keys pass, as a tree of four kinds of
//! nodes:
//!
//! ```text
//! inner      a node with two children, on the way to a key
//! leaf       key and hash of the value of the leaf at which a look-up ends
//! nothing    where a look-up ends without a leaf, or beside the way
//! blinded    the hash of a subtrie, or of a leaf, that no look-up enters
//! ```
//!
//! No hash that can be computed is in it, and nothing takes two bits. A lone leaf stands for its whole subtrie, so
//! a look-up of an absent key may end at another key's leaf.
//!
//! The proof of a range is the proof of all keys in it and of both of its ends: no subtrie that reaches into the
//! range is blinded. The proof of reads and writes is the proof of all their keys. A deletion needs
//! nothing else: the leaf beside it moves up whole, and the first bit of a blinded node says whether
//! it is a leaf.
//!
//! Nodes are in the order of their levels, from the root down. The children of the inner nodes of
//! one level are the whole next level, pair by pair, so each level is hashed in one batch. Walking
//! depth-first needs no more than the next node of each level.

mod error;
mod tree;
mod codec;
mod prove;
mod verify;
mod update;

pub use error::BinaryProofError;
pub use prove::ProofPart;
pub(crate) use prove::lone_leaves;
pub use tree::BinaryProof;
