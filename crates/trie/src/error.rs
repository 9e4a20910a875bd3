//! Errors of tries, and of subtries loaded into them.

use crate::node_ref::NodeRef;
use alloc::boxed::Box;
use cambium_primitives::Path;

/// A node that an operation needs is blinded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no node at path {path}: only its reference {node} is known")]
pub struct Missing {
    /// Path of the node.
    pub path: Path,
    /// Reference of the node.
    pub node: NodeRef,
}

/// A loaded node does not have the reference that the trie commits to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node at path {path} should be {expected}, but is {got}")]
pub struct Mismatch {
    /// Path of the node.
    pub path: Path,
    /// Reference of the blinded node.
    pub expected: NodeRef,
    /// Reference of the loaded node.
    pub got: NodeRef,
}

/// Error of an operation on a trie.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrieError {
    /// A loaded node does not have the reference that the trie commits to.
    #[error(transparent)]
    Mismatch(Box<Mismatch>),
    /// A loaded node is of another type than the blinded node, or belongs to another path.
    #[error("what was loaded for path {path} is of another kind or place")]
    Misplaced {
        /// Path of the blinded node.
        path: Path,
    },
    /// A change sets slots of an account that does not exist.
    #[error("slots are set on account {path}, which does not exist")]
    NoAccount {
        /// Path of the account.
        path: Path,
    },
    /// Paths are not in strictly ascending order.
    #[error("path {path} is not above the one before it")]
    Unsorted {
        /// The first path that is not greater than the one before it.
        path: Path,
    },
    /// A path is not below the root of the trie or subtrie, or is not the path of a leaf.
    #[error("path {path} does not belong below {under}")]
    Outside {
        /// Path of the node or leaf in the state trie, in nibbles.
        path: Path,
        /// Path of the root.
        under: Box<Path>,
    },
    /// A slot does not follow its account.
    #[error("slot {path} does not follow its account")]
    Orphan {
        /// Path of the slot.
        path: Path,
    },
    /// A leaf of a slot has the value zero.
    #[error("slot {path} is a leaf of value zero")]
    ZeroSlot {
        /// Path of the slot.
        path: Path,
    },
    /// There is no node at a path.
    #[error("no node sits at path {path}")]
    NoNode {
        /// Path of the node or leaf in the state trie, in nibbles.
        path: Path,
    },
    /// An operation needs the reference of a node that is not hashed.
    #[error("the node at path {path} is not hashed")]
    NotHashed {
        /// Path of the node or leaf in the state trie, in nibbles.
        path: Path,
    },
}

/// The errors of operations without a resolver: a node that is missing is none of the trie's.
impl From<UpdateError<Missing>> for TrieError {
    fn from(error: UpdateError<Missing>) -> Self {
        match error {
            UpdateError::Trie(error) => error,
            UpdateError::Resolve(Missing { path, .. }) => Self::NoNode { path },
        }
    }
}

/// Error of an operation that may load absent subtries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError<E> {
    /// Loading a subtrie failed.
    #[error("{0}")]
    Resolve(E),
    /// The operation is invalid, or a loaded subtrie does not fit.
    #[error(transparent)]
    Trie(#[from] TrieError),
}
