//! The nodes above the shards. With them a shard verifies by itself that its root is part of a block's state root.

use alloy_primitives::{B256, Bytes};
use cambium_primitives::Path;
use cambium_trie::{NodeRef, NodeView, PartialTrie, VersionView, WitnessError};

/// Most nodes above the shards: the root, and its sixteen children.
pub(crate) const NODES_MAX: usize = 17;

/// The top nodes of an update do not fit its header, or the shard's own root does not fit them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopError {
    /// There are more nodes than there can be.
    #[error("{0} nodes above the shards: there are at most {NODES_MAX}")]
    TooMany(usize),
    /// A node is malformed.
    #[error("the nodes above the shards: {0}")]
    Malformed(Box<WitnessError>),
    /// A node is missing, without which a shard can't find its own root.
    #[error("the nodes above the shards lack the one at {0}")]
    Missing(Box<Path>),
    /// The shard's root is another one than the state root has.
    #[error(transparent)]
    Root(Box<OtherRoot>),
}

/// A subtrie has another root than the block's state root has there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the subtrie at {path} has the root {}, and the block's state root has {} there",
    shown(got),
    shown(expected)
)]
pub struct OtherRoot {
    /// Path of the subtrie.
    pub path: Path,
    /// What the state root has there.
    pub expected: Option<NodeRef>,
    /// What the shard computed.
    pub got: Option<NodeRef>,
}

fn shown(node: &Option<NodeRef>) -> String {
    node.map_or_else(|| "nothing".to_owned(), |node| node.root_hash().to_string())
}

/// The nodes of a hashed state trie at depths below `depth`, parents first, for [`BlockUpdate`](crate::BlockUpdate).
pub fn top_nodes(trie: &PartialTrie, depth: usize) -> Vec<Bytes> {
    trie.nodes_above(depth as u8)
}

/// The nodes above the shards of one state, verified against its root.
#[derive(Debug)]
pub(crate) struct Top {
    trie: PartialTrie,
    /// Each node, with its depth.
    nodes: Vec<(u8, Bytes)>,
}

impl Top {
    /// `depth` is that of the shards' roots.
    pub(crate) fn new(root: B256, nodes: &[Bytes], depth: usize) -> Result<Self, TopError> {
        if nodes.len() > NODES_MAX {
            return Err(TopError::TooMany(nodes.len()));
        }
        let (trie, _) = PartialTrie::from_witness(root, nodes)
            .map_err(|error| TopError::Malformed(Box::new(error)))?;
        let mut top = Self {
            trie,
            nodes: Vec::new(),
        };
        for depth in 0..depth as u8 {
            let above = top.trie.nodes_above(depth + 1).into_iter();
            let own = above.skip(top.nodes.len());
            let own: Vec<_> = own.map(|node| (depth, node)).collect();
            top.nodes.extend(own);
        }
        Ok(top)
    }

    /// The nodes at this depth and below, with their bytes.
    pub(crate) fn nodes_from(&self, depth: u8) -> impl Iterator<Item = &Bytes> {
        let from = self.nodes.iter().filter(move |(at, _)| *at >= depth);
        from.map(|(_, node)| node)
    }

    /// Verifies that a subtrie is the one that the state has at `path`.
    pub(crate) fn check(&self, path: &Path, subtrie: VersionView<'_>) -> Result<(), TopError> {
        let (mut link, mut depth) = (self.trie.root(), 0);
        loop {
            let expected = self.trie.cached_ref(link);
            if depth == path.len() || link.is_empty() {
                return check_ref(path, expected, subtrie.root_ref());
            }
            let prefix = path.len() - depth;
            match self.trie.visit(link) {
                NodeView::Branch { children } => {
                    link = children[usize::from(path.nibble(depth))];
                    depth += 1;
                }
                NodeView::Extension { path: own, child } if own.len() < prefix => {
                    if path.suffix(depth).common_prefix_len(&own) < own.len() {
                        return check_ref(path, None, subtrie.root_ref());
                    }
                    (link, depth) = (child, depth + own.len());
                }
                // A node that reaches into a subtrie: all leaves below it are there.
                NodeView::Extension { path: own, .. } | NodeView::Account { path: own, .. } => {
                    return match own.prefix(prefix) == path.suffix(depth) {
                        true => check_ref(path, expected, subtrie.root_ref_with_prefix(prefix)),
                        false => check_ref(path, None, subtrie.root_ref()),
                    };
                }
                NodeView::Empty => return check_ref(path, None, subtrie.root_ref()),
                NodeView::Stub(_) | NodeView::Slot { .. } | NodeView::Entry { .. } => {
                    return Err(TopError::Missing(Box::new(path.prefix(depth))));
                }
            }
        }
    }
}

fn check_ref(path: &Path, expected: Option<NodeRef>, got: Option<NodeRef>) -> Result<(), TopError> {
    match expected == got {
        true => Ok(()),
        false => Err(TopError::Root(Box::new(OtherRoot {
            path: *path,
            expected,
            got,
        }))),
    }
}
