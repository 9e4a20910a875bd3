//! The `layered` commitment: a root that is computed from the changes of recent blocks.
//!
//! ```text
//!   delta          what blocks (qI, n] changed         an upper trie   q = floor((n - 1) / I)
//!   intermediate   what blocks ((q-1)I, qI] changed    an upper trie
//!   snapshot       the state after block (q-1)I        an ordinary trie
//!
//!   root(n) = keccak(root(delta) ++ root(intermediate) ++ root(snapshot))
//! ```
//!
//! An *upper trie* has a leaf for each account that its blocks changed, and a slot for each slot that they changed. It
//! has nothing else, so that nothing below it has to be read for its root:
//!
//! - A leaf has a *mark*. The account's fields are *kept* (only slots changed), *put* or *deleted*.
//! - A *wipe* voids the slots of lower layers without listing them.
//! - A slot of value zero is a *tombstone*: the slot was removed.
//! - The leaf commits to the slots of its own layer.
//!
//! In a key-value database it has a leaf for each entry that was changed instead: the entry as it is, or
//! a *tombstone* for one that was deleted, a value that no entry has. `entry_proof/` proves these.
//!
//! A key that returns to the value that it had before stays in the trie: the root commits to membership, too, and
//! [`UpperTrie::revert`] restores it.

mod net;
mod leaf;
mod layer;
mod compact;
mod descent;
mod roots;
mod parts;
mod proof;

pub(crate) use layer::MergeError;
pub(crate) use leaf::UpperKind;
pub(crate) use roots::{DELTA, INTERMEDIATE, SNAPSHOT};

pub use layer::{UpperReverts, UpperTrie};
pub use net::net_changes;
pub use parts::{LayeredGap, LayeredParts, LayeredUpdateError};
pub use proof::{LayeredProof, LayeredProofError, LayeredProver};
pub use roots::{LayeredRoots, layered_root};
