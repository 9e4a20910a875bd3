//! What can go wrong with a trie, and with what is loaded into it.

use crate::node_ref::NodeRef;
use alloc::boxed::Box;
use cambium_primitives::Path;

/// A node that is needed is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no node at path {path}: only its reference {node} is known")]
pub struct Missing {
    /// Where the node would sit.
    pub path: Path,
    /// What is known of it.
    pub node: NodeRef,
}

/// What was loaded is not what the trie commits to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node at path {path} should be {expected}, but is {got}")]
pub struct Mismatch {
    /// Where the node sits.
    pub path: Path,
    /// The reference that its stub has.
    pub expected: NodeRef,
    /// The reference of what was loaded.
    pub got: NodeRef,
}

/// What is wrong with a trie, or with what was asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrieError {
    /// What was loaded is not what the trie commits to.
    #[error(transparent)]
    Mismatch(Box<Mismatch>),
    /// What was loaded can't sit where its stub sits.
    #[error("what was loaded for path {path} is of another kind or place")]
    Misplaced {
        /// Where the stub sits.
        path: Path,
    },
    /// Slots are set on an account that doesn't exist.
    #[error("slots are set on account {path}, which does not exist")]
    NoAccount {
        /// The account.
        path: Path,
    },
    /// Paths are not sorted and unique.
    #[error("path {path} is not above the one before it")]
    Unsorted {
        /// The path out of order.
        path: Path,
    },
    /// A path is not below the trie's or the subtrie's root, or not that of a leaf.
    #[error("path {path} does not belong below {under}")]
    Outside {
        /// The path.
        path: Path,
        /// Where the root sits.
        under: Box<Path>,
    },
    /// A slot comes without its account.
    #[error("slot {path} does not follow its account")]
    Orphan {
        /// The slot.
        path: Path,
    },
    /// A slot of value zero is no leaf.
    #[error("slot {path} is a leaf of value zero")]
    ZeroSlot {
        /// The slot.
        path: Path,
    },
    /// No node sits at a path.
    #[error("no node sits at path {path}")]
    NoNode {
        /// The path.
        path: Path,
    },
    /// A node's reference is needed, but the node has not been hashed.
    #[error("the node at path {path} is not hashed")]
    NotHashed {
        /// The path.
        path: Path,
    },
}

/// Why changes could not be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError<E> {
    /// A subtrie could not be loaded.
    #[error("{0}")]
    Resolve(E),
    /// The trie, or what was loaded into it, is wrong.
    #[error(transparent)]
    Trie(#[from] TrieError),
}
