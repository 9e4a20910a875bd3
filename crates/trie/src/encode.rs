//! The structure of a trie, or of a subtrie, as bytes: for checkpoints of the index.
//!
//! Preorder: a node, then its children. Reading it back checks every rule that the structure
//! keeps; what it can't check is that memos are true.

use crate::{
    arena::{Arena, Link},
    node_ref::{NodeKind, NodeRef, Place, Stub},
    partial::{NodeView, PartialTrie},
};
use alloc::vec::Vec;
use cambium_primitives::{
    ACCOUNT_NIBBLES, Account, DecodeError, Path, Reader, SLOT_NIBBLES, SlotValue,
};

const VERSION: u8 = 1;

const TYPE: u8 = 0x07;
const EMPTY: u8 = 0;
const BRANCH: u8 = 1;
const EXTENSION: u8 = 2;
const ACCOUNT: u8 = 3;
const SLOT: u8 = 4;
const STUB: u8 = 5;
const HAS_REF: u8 = 0x08;
const REF_INLINE: u8 = 0x10;
const KIND_SHIFT: u8 = 5;
const HAS_PLACE: u8 = 0x80;

impl PartialTrie {
    /// Appends the structure.
    ///
    /// | size | meaning |
    /// |---|---|
    /// | 1 | version, 1 |
    /// | 1 | number B of nibbles above the root |
    /// | B/2, rounded up | these nibbles, packed |
    /// | | the root node |
    ///
    /// A node:
    ///
    /// | size | meaning |
    /// |---|---|
    /// | 1 | bits 0-2: 0 nothing, 1 branch, 2 extension, 3 account, 4 slot, 5 stub; bit 3: a reference follows (a memo; a stub always has one); bit 4: it is an inlined node; of a stub, bits 5-6: unknown, branch, extension, leaf; bit 7: has a place |
    /// | 32, or 1 + L | reference: a hash; or the length L of an inlined node, 1 to 31, and its RLP |
    /// | stub: 0 or 8 | place, little-endian, not zero |
    /// | branch: 2 | which of the children are there, bit by nibble, little-endian |
    /// | | these children |
    /// | extension: 1 | number N of nibbles |
    /// | N/2, rounded up | these nibbles, packed |
    /// | | the child |
    /// | account: N/2, rounded up | the N nibbles left of its 64, packed |
    /// | | compact account |
    /// | | root of its storage |
    /// | slot: N/2, rounded up | the N nibbles left of its 64, packed |
    /// | 1 + L | length and bytes of the value, big-endian, no leading zero |
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        self.encode_subtrie_to(self.root, &self.base, usize::MAX, out);
    }

    /// As [`Self::encode_to`], of the subtrie at `link`, which sits at `path`. If it takes more
    /// than `bytes_max` nothing is appended, and the answer is false. At 64 nibbles it must be the
    /// root of a storage.
    pub fn encode_subtrie_to(
        &self,
        link: Link,
        path: &Path,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        out.extend_from_slice(&[VERSION, path.len() as u8]);
        out.extend_from_slice(path.packed());
        let fits = self.encode_structure(link, start.saturating_add(bytes_max), out);
        if !fits {
            out.truncate(start);
        }
        fits
    }

    /// Gives up, with false, when `out` is longer than `len_max`. Recursion is bounded by the
    /// path's 128 nibbles.
    fn encode_structure(&self, link: Link, len_max: usize, out: &mut Vec<u8>) -> bool {
        let memo = self.memo(link);
        match self.visit(link) {
            NodeView::Empty => out.push(EMPTY),
            NodeView::Branch { children } => {
                put_head(out, BRANCH, memo);
                let present = (0..16).filter(|&at| !children[at].is_empty());
                let mask = present.fold(0u16, |mask, at| mask | 1 << at);
                out.extend_from_slice(&mask.to_le_bytes());
                for child in children.iter().filter(|child| !child.is_empty()) {
                    if !self.encode_structure(*child, len_max, out) {
                        return false;
                    }
                }
            }
            NodeView::Extension { path, child } => {
                put_head(out, EXTENSION, memo);
                out.push(path.len() as u8);
                out.extend_from_slice(path.packed());
                return self.encode_structure(child, len_max, out);
            }
            NodeView::Account {
                path,
                account,
                storage,
                ..
            } => {
                put_head(out, ACCOUNT, memo);
                out.extend_from_slice(path.packed());
                account.encode_to(out);
                return self.encode_structure(storage, len_max, out);
            }
            NodeView::Slot { path, value, .. } => {
                put_head(out, SLOT, memo);
                out.extend_from_slice(path.packed());
                let value = SlotValue::new(value);
                out.push(value.as_bytes().len() as u8);
                out.extend_from_slice(value.as_bytes());
            }
            NodeView::Stub(stub) => {
                let kind = match stub.kind {
                    None => 0,
                    Some(NodeKind::Branch) => 1,
                    Some(NodeKind::Extension) => 2,
                    Some(NodeKind::Leaf) => 3,
                };
                let place = if stub.place.is_some() { HAS_PLACE } else { 0 };
                put_head(out, STUB | kind << KIND_SHIFT | place, Some(stub.node));
                if let Some(place) = stub.place {
                    out.extend_from_slice(&place.get().to_le_bytes());
                }
            }
        }
        out.len() <= len_max
    }

    /// Reads a structure from all of `bytes`. It may be that of a part of a storage trie: what
    /// comes of that can be read and copied from, not changed.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let base = take_base(&mut reader)?;
        let mut trie = Self {
            base,
            root: Link::EMPTY,
            arena: Arena::new(),
        };
        trie.root = trie.decode_root(&mut reader, &base)?;
        Ok(trie)
    }

    /// Adds the subtrie that all of `bytes` are the structure of, and that must sit at `path`.
    /// Returns the link of its root, linked from nowhere yet.
    pub fn graft_encoded(&mut self, path: &Path, bytes: &[u8]) -> Result<Link, DecodeError> {
        let mut reader = Reader::new(bytes);
        if take_base(&mut reader)? != *path {
            return Err(reader.error("a subtrie of another place"));
        }
        self.decode_root(&mut reader, path)
    }

    fn decode_root(&mut self, reader: &mut Reader<'_>, at: &Path) -> Result<Link, DecodeError> {
        let root = self.decode_structure(reader, at, at.len() >= ACCOUNT_NIBBLES)?;
        reader.finish()?;
        Ok(root)
    }

    /// Reads the node that sits at `at`, in a storage trie or above. Recursion is bounded by
    /// the path's 128 nibbles: each level takes one at least, or enters a storage trie.
    fn decode_structure(
        &mut self,
        reader: &mut Reader<'_>,
        at: &Path,
        in_storage: bool,
    ) -> Result<Link, DecodeError> {
        let head = reader.u8()?;
        let kind = head & TYPE;
        let stub_bits = head & (3 << KIND_SHIFT | HAS_PLACE);
        if kind != STUB && stub_bits != 0 {
            return Err(reader.error("unknown bits in a node's head"));
        }
        let memo = take_ref(reader, head)?;
        let level_end = if in_storage {
            2 * ACCOUNT_NIBBLES
        } else {
            ACCOUNT_NIBBLES
        };
        let left = level_end - at.len();
        let link = match kind {
            EMPTY if head == EMPTY => return Ok(Link::EMPTY),
            STUB => return self.decode_stub(reader, head, memo),
            BRANCH if left > 0 => {
                let mask = reader.u16()?;
                if mask.count_ones() < 2 {
                    return Err(reader.error("a branch with less than two children"));
                }
                let mut children = [Link::EMPTY; 16];
                for nibble in (0..16).filter(|nibble| mask & 1 << nibble != 0) {
                    let child = self.decode_structure(reader, &at.child(nibble), in_storage)?;
                    if child.is_empty() {
                        return Err(reader.error("an empty child listed as present"));
                    }
                    children[usize::from(nibble)] = child;
                }
                self.push_branch(children)
            }
            EXTENSION => {
                let len = usize::from(reader.u8()?);
                if len == 0 || len >= left {
                    return Err(reader.error("an extension of impossible length"));
                }
                let to = at.join(&take_path(reader, len)?);
                let child = self.decode_structure(reader, &to, in_storage)?;
                if self.kind(child) != Some(NodeKind::Branch) {
                    return Err(reader.error("an extension to something other than a branch"));
                }
                self.push_extension(at.len(), &to, child)
            }
            ACCOUNT if !in_storage => {
                let path = at.join(&take_path(reader, left)?);
                let account = Account::decode_from(reader)?;
                let storage = self.decode_structure(reader, &path, true)?;
                let key = path.account_part().unwrap_or_default();
                self.push_account(at.len(), &key, &account, storage)
            }
            SLOT if in_storage => {
                let path = at.join(&take_path(reader, left)?);
                let len = usize::from(reader.u8()?);
                let value = reader.take(len)?;
                let value = if len > 32 {
                    Err(reader.error("value over 256 bits"))
                } else {
                    SlotValue::decode(value).map_err(|error| reader.error(error.what))
                }?;
                let key = path.slot_part().unwrap_or_default();
                self.push_slot(at.len(), &key, value)
            }
            _ => return Err(reader.error("a node where it can't be")),
        };
        if let Some(memo) = memo {
            self.set_memo(link, memo);
        }
        Ok(link)
    }

    fn decode_stub(
        &mut self,
        reader: &mut Reader<'_>,
        head: u8,
        node: Option<NodeRef>,
    ) -> Result<Link, DecodeError> {
        let Some(node) = node else {
            return Err(reader.error("a stub without a reference"));
        };
        let kind = match head >> KIND_SHIFT & 3 {
            0 => None,
            1 => Some(NodeKind::Branch),
            2 => Some(NodeKind::Extension),
            _ => Some(NodeKind::Leaf),
        };
        let mut place = None;
        if head & HAS_PLACE != 0 {
            place = Place::new(reader.u64()?);
            if place.is_none() {
                return Err(reader.error("a place of zero"));
            }
        }
        Ok(self.push_stub(Stub { node, kind, place }))
    }
}

fn put_head(out: &mut Vec<u8>, head: u8, node: Option<NodeRef>) {
    let Some(node) = node else {
        return out.push(head);
    };
    if node.is_inline() {
        out.extend_from_slice(&[head | HAS_REF | REF_INLINE, node.as_bytes().len() as u8]);
    } else {
        out.push(head | HAS_REF);
    }
    out.extend_from_slice(node.as_bytes());
}

fn take_ref(reader: &mut Reader<'_>, head: u8) -> Result<Option<NodeRef>, DecodeError> {
    match (head & HAS_REF != 0, head & REF_INLINE != 0) {
        (false, false) => Ok(None),
        (true, false) => Ok(Some(NodeRef::hash(reader.b256()?))),
        (true, true) => {
            let len = usize::from(reader.u8()?);
            let node = NodeRef::inline(reader.take(len)?);
            node.map(Some)
                .ok_or_else(|| reader.error("an inlined node not of 1 to 31 bytes"))
        }
        (false, true) => Err(reader.error("an inlined reference that is none")),
    }
}

/// The path of the root, after the version.
fn take_base(reader: &mut Reader<'_>) -> Result<Path, DecodeError> {
    if reader.u8()? != VERSION {
        return Err(reader.error("unknown version of a trie's structure"));
    }
    let base = usize::from(reader.u8()?);
    if base >= SLOT_NIBBLES {
        return Err(reader.error("a trie based at a slot or below"));
    }
    take_path(reader, base)
}

fn take_path(reader: &mut Reader<'_>, nibbles: usize) -> Result<Path, DecodeError> {
    let packed = reader.take(nibbles.div_ceil(2))?;
    Path::from_packed(packed, nibbles).ok_or_else(|| reader.error("a path that is malformed"))
}
