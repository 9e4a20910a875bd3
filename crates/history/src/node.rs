//! Old nodes: the content of entries of branches and of roots.
//!
//! An entry of a branch has those of its sixteen children that a block changed, as they were before it. Some entries
//! are *whole*: they have all sixteen. A child that no entry above block N has is unchanged since. Numbers are
//! little-endian:
//!
//! ```text
//! branch  2       which children follow, one bit for each, the lowest for the first
//!                 these children
//! root    one child, and if it is a branch, an entry of that branch
//!
//! child   1       kind: 0 none, 1 branch, 2 leaf, 3 extension; plus 4 times the length of a node that
//!                 is inlined in its parent
//!         32      hash, or the inlined node's RLP
//!         1       of leaves and extensions: number of nibbles of its own path
//!                 these nibbles, two in a byte
//! ```
//!
//! A leaf's path is there because a hash does not show whose leaf it is: a proof of absence needs it.

use cambium_primitives::{DecodeError, Path, Reader};
use cambium_trie::{NodeKind, NodeRef};
use std::num::NonZeroU32;
use xxhash_rust::xxh3::xxh3_64;

/// Which entries of branches are whole, chosen by their positions. The fewer, the smaller is the history, and the more
/// entries a proof reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeNodes {
    /// One entry out of this many is whole.
    pub one_of: NonZeroU32,
}

impl WholeNodes {
    /// All entries are whole.
    pub const ALL: Self = Self {
        one_of: NonZeroU32::MIN,
    };

    /// The number in files; 0 if there are no nodes.
    pub(crate) fn to_number(nodes: Option<Self>) -> u32 {
        nodes.map_or(0, |nodes| nodes.one_of.get())
    }

    /// Decodes the number in a file.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(|one_of| Self { one_of })
    }

    /// Whether the entry at a position is whole. It depends on nothing else, so a history that is
    /// made twice is the same.
    pub(crate) fn has(self, position: &[u8]) -> bool {
        xxh3_64(position).is_multiple_of(self.one_of.get().into())
    }
}

impl Default for WholeNodes {
    /// One of eight.
    fn default() -> Self {
        Self {
            one_of: NonZeroU32::MIN.saturating_add(7),
        }
    }
}

/// Bits of a whole entry.
const ALL: u16 = u16::MAX;

/// A child of a branch, or the root of a trie, as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldChild {
    /// `None` if there was no node.
    pub(crate) node: Option<OldNode>,
}

/// A node as its parent knew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OldNode {
    pub(crate) node: NodeRef,
    pub(crate) kind: NodeKind,
    /// The nibbles of a leaf or an extension itself; none of a branch.
    pub(crate) own: Path,
}

impl OldChild {
    fn encode_to(&self, out: &mut Vec<u8>) {
        let Some(OldNode { node, kind, own }) = &self.node else {
            return out.push(0);
        };
        let kind = match kind {
            NodeKind::Branch => 1,
            NodeKind::Leaf => 2,
            NodeKind::Extension => 3,
        };
        let bytes = node.as_bytes();
        let inline = if node.is_inline() { bytes.len() } else { 0 };
        out.push(kind | (inline as u8) << 2);
        out.extend_from_slice(bytes);
        if kind != 1 {
            out.push(own.len() as u8);
            out.extend_from_slice(own.packed());
        }
    }

    /// Whether it is a branch.
    pub(crate) fn is_branch(&self) -> bool {
        self.node.is_some_and(|node| node.kind == NodeKind::Branch)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = reader.u8()?;
        let kind = match tag & 3 {
            0 if tag == 0 => return Ok(Self { node: None }),
            1 => NodeKind::Branch,
            2 => NodeKind::Leaf,
            3 => NodeKind::Extension,
            _ => return Err(reader.error("a node of an unknown kind")),
        };
        let node = match usize::from(tag >> 2) {
            0 => NodeRef::hash(reader.b256()?),
            len => NodeRef::inline(reader.take(len)?)
                .ok_or_else(|| reader.error("an inlined node of over 31 bytes"))?,
        };
        let own = match kind {
            NodeKind::Branch => Path::EMPTY,
            NodeKind::Leaf | NodeKind::Extension => {
                let len = usize::from(reader.u8()?);
                let packed = reader.take(len.div_ceil(2))?;
                Path::from_packed(packed, len)
                    .filter(|own| own.len() <= 64)
                    .ok_or_else(|| reader.error("a node with an impossible path"))?
            }
        };
        Ok(Self {
            node: Some(OldNode { node, kind, own }),
        })
    }
}

/// The root of a trie, as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OldRoot {
    pub(crate) child: OldChild,
    /// Children of the root, if it was a branch.
    pub(crate) branch: Option<OldBranch>,
}

impl OldRoot {
    /// Encodes a root. `branch` is the encoded entry of the branch if it is one, and empty if not.
    pub(crate) fn encode(child: &OldChild, branch: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(34 + branch.len());
        child.encode_to(&mut out);
        out.extend_from_slice(branch);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let child = OldChild::read(&mut reader)?;
        let branch = match child.is_branch() {
            true => Some(OldBranch::read(&mut reader)?),
            false => None,
        };
        reader.finish()?;
        Ok(Self { child, branch })
    }
}

/// Encodes the children of a branch that `mask` names, in their order.
pub(crate) fn encode_branch<E>(
    mask: u16,
    children: impl IntoIterator<Item = Result<OldChild, E>>,
) -> Result<Vec<u8>, E> {
    let mut out = Vec::with_capacity(2 + 64 * mask.count_ones() as usize);
    out.extend_from_slice(&mask.to_le_bytes());
    for child in children {
        child?.encode_to(&mut out);
    }
    Ok(out)
}

/// Children of a branch, as they were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OldBranch {
    /// `None` for those that are not known.
    children: [Option<OldChild>; 16],
}

impl OldBranch {
    /// The children, by nibble.
    pub(crate) const fn children(&self) -> &[Option<OldChild>; 16] {
        &self.children
    }

    /// Whether all children are known.
    pub(crate) fn is_whole(&self) -> bool {
        self.children.iter().all(Option::is_some)
    }

    /// Takes the children that are not known here from a later entry.
    pub(crate) fn complete(&mut self, later: &Self) {
        for (child, later) in self.children.iter_mut().zip(&later.children) {
            *child = child.or(*later);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let branch = Self::read(&mut reader)?;
        reader.finish()?;
        Ok(branch)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mask = reader.u16()?;
        if mask == 0 {
            return Err(reader.error("an entry of a branch without children"));
        }
        let mut children = [None; 16];
        for (at, child) in children.iter_mut().enumerate() {
            if mask & (1 << at) != 0 {
                *child = Some(OldChild::read(reader)?);
            }
        }
        let there = |child: &Option<OldChild>| child.is_some_and(|child| child.node.is_some());
        if mask == ALL && children.iter().filter(|child| there(child)).count() < 2 {
            return Err(reader.error("a branch with less than two children"));
        }
        Ok(Self { children })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::B256;
    use std::array;

    fn node(kind: NodeKind, own: Path, node: NodeRef) -> Option<OldChild> {
        Some(OldChild {
            node: Some(OldNode { node, kind, own }),
        })
    }

    fn branch(children: [Option<OldChild>; 16]) -> Vec<u8> {
        let there = (0..16).filter(|at| children[*at].is_some());
        let mask = there.map(|at| 1 << at).sum();
        let children = children.into_iter().flatten().map(Ok::<_, ()>);
        encode_branch(mask, children).unwrap()
    }

    fn sample() -> OldBranch {
        let hash = |byte| NodeRef::hash(B256::repeat_byte(byte));
        let own = Path::from_nibbles(&[1, 2, 3]);
        let children = array::from_fn(|at| match at {
            1 => node(NodeKind::Branch, Path::EMPTY, hash(1)),
            4 => node(NodeKind::Leaf, own, hash(2)),
            5 => Some(OldChild { node: None }),
            9 => node(NodeKind::Extension, own, hash(3)),
            15 => node(NodeKind::Leaf, own, NodeRef::inline(&[0xc2, 1, 2]).unwrap()),
            _ => None,
        });
        OldBranch { children }
    }

    #[test]
    fn branches_and_roots_survive_their_bytes() {
        let sample = sample();
        let bytes = branch(sample.children);
        assert_eq!(OldBranch::decode(&bytes), Ok(sample.clone()));
        assert!((0..bytes.len()).all(|end| OldBranch::decode(&bytes[..end]).is_err()));
        for child in sample.children().iter().flatten() {
            let branch = child.is_branch().then(|| sample.clone());
            let encoded = if child.is_branch() { &bytes[..] } else { &[] };
            let root = OldRoot::encode(child, encoded);
            let child = *child;
            assert_eq!(OldRoot::decode(&root), Ok(OldRoot { child, branch }));
            assert!((0..root.len()).all(|end| OldRoot::decode(&root[..end]).is_err()));
        }
        assert!(OldBranch::decode(&[0, 0]).is_err());
        assert!(OldRoot::decode(&[4, 0]).is_err());
        assert!(OldRoot::decode(&[1 | 32 << 2]).is_err());
    }

    #[test]
    fn later_entries_add_what_earlier_ones_lack() {
        let children = array::from_fn(|at| (at == 1).then_some(OldChild { node: None }));
        let mut branch = OldBranch { children };
        branch.complete(&sample());
        assert_eq!(branch.children()[1], Some(OldChild { node: None }));
        assert_eq!(branch.children()[4], sample().children()[4]);
        assert!(!branch.is_whole());
        let children = [Some(OldChild { node: None }); 16];
        branch.complete(&OldBranch { children });
        assert!(branch.is_whole());
    }
}
