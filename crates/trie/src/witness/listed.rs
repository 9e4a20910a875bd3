//! The lists of a witness, and what is wrong with one.

use crate::{
    arena::{Link, NodeId},
    partial::PartialTrie,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::Path;
use hashbrown::HashSet;

/// Data to execute a block without a database, in the format of `debug_executionWitness`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Witness {
    /// RLP of nodes of the account trie and of storage tries, in any order.
    pub state: Vec<Bytes>,
    /// Contract codes.
    pub codes: Vec<Bytes>,
    /// Unhashed addresses and slots that the block accesses. Informational: execution ignores them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub keys: Vec<Bytes>,
    /// RLP of headers, the oldest first: those of the ancestors down to the oldest that `BLOCKHASH` reads, and
    /// that of the parent, which is the last.
    #[cfg_attr(feature = "serde", serde(default))]
    pub headers: Vec<Bytes>,
}

/// Error of [`PartialTrie::from_witness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WitnessError {
    /// A node is malformed.
    #[error("the node {hash} at path {path}: {what}")]
    Malformed {
        /// Hash of the node, or of the node that contains it if it is inlined.
        hash: B256,
        /// Path of the node.
        path: Path,
        /// Description of the fault.
        what: &'static str,
    },
    /// The trie would be far larger than the witness, since nodes refer to the same nodes repeatedly. The witness may
    /// be right: this is a limit of its reader.
    #[error("the nodes unfold to a trie of over {nodes_max} nodes, which is the reader's limit")]
    TooBig {
        /// Maximum number of nodes.
        nodes_max: usize,
    },
}

impl PartialTrie {
    /// Returns the RLP of every expanded node once, sorted by hash. Inlined nodes are part of their
    /// parents. All nodes must be hashed, as in a trie from [`Self::extract`].
    pub fn witness_nodes(&self) -> Vec<Bytes> {
        let (nodes, _) = self.counts();
        let mut nodes = Vec::with_capacity(nodes);
        let mut listed = HashSet::with_capacity(nodes.capacity());
        self.list_nodes(self.root, true, &mut listed, &mut nodes, &mut Vec::new());
        nodes.sort_unstable();
        nodes.into_iter().map(|(_, rlp)| rlp).collect()
    }

    fn list_nodes(
        &self,
        link: Link,
        is_root: bool,
        listed: &mut HashSet<B256>,
        nodes: &mut Vec<(B256, Bytes)>,
        rlp: &mut Vec<u8>,
    ) {
        if link.is_empty() || link.is_stub() {
            return;
        }
        let memo = self.arena.cached_ref(link);
        debug_assert!(memo.known().is_some(), "{link:?} is not hashed");
        if is_root || !memo.is_inline() {
            let hash = memo.root_hash();
            if listed.insert(hash) {
                rlp.clear();
                self.encode_node(link, rlp);
                nodes.push((hash, Bytes::copy_from_slice(rlp)));
            }
        }
        let child_is_root = matches!(link.id(), NodeId::Account(_));
        for child in self.children(link) {
            self.list_nodes(child, child_is_root, listed, nodes, rlp);
        }
    }
}
