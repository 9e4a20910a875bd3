//! Serialization of tries and subtries, for checkpoints of the index. A trie can also be encoded as
//! a difference to an older one, in which each unchanged subtrie takes one byte.
//!
//! Nodes are in preorder: a node, then its children. Decoding checks every rule of the structure,
//! but not that cached references are correct.

use crate::{
    arena::{Arena, Link},
    commitment::Commitment,
    node_ref::{NodeKind, NodeRef, Place, Stub},
    partial::{NodeView, PartialTrie},
};
use alloc::vec::Vec;
use alloy_primitives::{B256, U256};
use cambium_primitives::{
    ACCOUNT_NIBBLES, Account, DecodeError, EntryValue, Path, Reader, SLOT_NIBBLES, SlotValue,
    put_varint,
};

const VERSION: u8 = 1;

const TYPE: u8 = 0x07;
const EMPTY: u8 = 0;
const BRANCH: u8 = 1;
const EXTENSION: u8 = 2;
const ACCOUNT: u8 = 3;
const SLOT: u8 = 4;
const STUB: u8 = 5;
const AS_BEFORE: u8 = 6;
const ENTRY: u8 = 7;
const HAS_REF: u8 = 0x08;
const REF_INLINE: u8 = 0x10;
const KIND_SHIFT: u8 = 5;
const HAS_PLACE: u8 = 0x80;

/// The subtrie of an older trie at the same path as a subtrie of the newer one.
#[derive(Clone, Copy)]
struct Before<'a> {
    trie: &'a PartialTrie,
    link: Link,
    /// Whether an expanded node of an edited copy of the older trie, or anything below it, may
    /// differ from the node that the older trie has at the same link.
    is_touched: &'a dyn Fn(Link) -> bool,
}

impl<'a> Before<'a> {
    /// The whole of `trie`, of which nothing is known.
    fn root(trie: &'a PartialTrie) -> Self {
        Self {
            trie,
            link: trie.root,
            is_touched: &|_| true,
        }
    }

    fn at(self, link: Link) -> Self {
        Self { link, ..self }
    }

    fn child(self, nibble: usize) -> Option<Self> {
        match self.trie.visit(self.link) {
            NodeView::Branch { children } => Some(self.at(children[nibble])),
            _ => None,
        }
    }

    /// Returns the child of an extension with exactly this path.
    fn below(self, by: &Path) -> Option<Self> {
        match self.trie.visit(self.link) {
            NodeView::Extension { path, child } if path == *by => Some(self.at(child)),
            _ => None,
        }
    }

    /// Returns the storage of the account if it is account `of`.
    fn storage(self, of: &B256) -> Option<Self> {
        match self.trie.visit(self.link) {
            NodeView::Account { key, storage, .. } if key == *of => Some(self.at(storage)),
            _ => None,
        }
    }
}

/// How a trie is encoded.
struct Encoding<'a> {
    /// Length of the output, in bytes, at which encoding stops.
    len_max: usize,
    /// Appends the nodes of the subtrie that a blinded node stands for, and returns whether it did.
    unfolds: &'a dyn Fn(&Stub, &mut Vec<u8>) -> bool,
}

impl Encoding<'_> {
    /// Everything, with blinded nodes as they are.
    const WHOLE: Encoding<'static> = Encoding {
        len_max: usize::MAX,
        unfolds: &|_, _| false,
    };
}

impl PartialTrie {
    /// Appends the encoded trie to `out`.
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
    /// | 1 | bits 0-2: 0 nothing, 1 branch, 2 extension, 3 account, 4 slot, 5 stub, 6 as before (alone; see [`Self::encode_changes_to`]), 7 entry; bit 3: a reference follows (a stub always has one); bit 4: it is an inlined node; of a stub, bits 5-6: unknown, branch, extension, leaf; bit 7: has a place |
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
    /// | entry: N/2, rounded up | the N nibbles left of its 64, packed |
    /// | 1-10 | length L of the encoded value, LEB128 |
    /// | L | value, as [`EntryValue::encode_to`] encodes it |
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        self.encode_subtrie_to(self.root, &self.base, usize::MAX, out);
    }

    /// Appends the encoded subtrie at `link`, which is at `path`, and returns true. If it takes
    /// more than `bytes_max` bytes, appends nothing and returns false. A path of 64 nibbles must be
    /// that of a storage root.
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
        let encoding = Encoding {
            len_max: start.saturating_add(bytes_max),
            ..Encoding::WHOLE
        };
        let fits = self.encode_structure(link, None, &encoding, out);
        if !fits {
            out.truncate(start);
        }
        fits
    }

    /// Appends the encoded nodes of the subtrie at `link`, without version and path.
    pub fn encode_nodes_to(&self, link: Link, out: &mut Vec<u8>) {
        self.encode_structure(link, None, &Encoding::WHOLE, out);
    }

    /// Appends the encoded difference to `before`, for [`Self::decode_changes`]. A subtrie that is
    /// equal in both tries, including cached references and places, takes one byte. Walks each trie
    /// once.
    ///
    /// # Panics
    ///
    /// Panics if the tries do not have the same base.
    pub fn encode_changes_to(&self, before: &Self, out: &mut Vec<u8>) {
        self.encode_edits_to(before, &|_| true, &|_, _| false, out);
    }

    /// Like [`Self::encode_changes_to`], for a trie that is an edited copy of `before`. `is_touched`
    /// returns false for links of expanded nodes which, with all that is below them, are the same in
    /// both tries. They are not walked. `unfolds` is called for each blinded node that `before` does
    /// not have at its place: it may append the nodes of its subtrie ([`Self::encode_nodes_to`]), and
    /// returns whether it did.
    ///
    /// # Panics
    ///
    /// Panics if the tries do not have the same base.
    pub fn encode_edits_to(
        &self,
        before: &Self,
        is_touched: &dyn Fn(Link) -> bool,
        unfolds: &dyn Fn(&Stub, &mut Vec<u8>) -> bool,
        out: &mut Vec<u8>,
    ) {
        assert_eq!(self.base, before.base, "tries of the same place");
        out.extend_from_slice(&[VERSION, self.base.len() as u8]);
        out.extend_from_slice(self.base.packed());
        let before = Before {
            is_touched,
            ..Before::root(before)
        };
        let encoding = Encoding {
            unfolds,
            ..Encoding::WHOLE
        };
        self.encode_structure(self.root, Some(before), &encoding, out);
    }

    /// Returns whether the subtrie at `link` is unchanged, given the encoding `below` of its
    /// children.
    fn is_as_before(&self, link: Link, before: Before<'_>, below: &[u8]) -> bool {
        let nodes = (self.visit(link), before.trie.visit(before.link));
        let are_same = match nodes {
            (NodeView::Stub(new), NodeView::Stub(old)) => return new == old,
            (NodeView::Empty, NodeView::Empty) => return true,
            (NodeView::Branch { children: new }, NodeView::Branch { children: old }) => {
                let mut both = new.iter().zip(old);
                both.all(|(new, old)| new.is_empty() == old.is_empty())
            }
            (NodeView::Extension { path: new, .. }, NodeView::Extension { path: old, .. }) => {
                new == old
            }
            (
                NodeView::Account { key, account, .. },
                NodeView::Account {
                    key: old_key,
                    account: old,
                    ..
                },
            ) => (key, account) == (old_key, old),
            (
                NodeView::Slot { key, value, .. },
                NodeView::Slot {
                    key: old_key,
                    value: old,
                    ..
                },
            ) => (key, value) == (old_key, old),
            (
                NodeView::Entry { key, value, .. },
                NodeView::Entry {
                    key: old_key,
                    value: old,
                    ..
                },
            ) => (key, value) == (old_key, old),
            _ => false,
        };
        are_same
            && below.iter().all(|byte| *byte == AS_BEFORE)
            && self.cached_ref(link) == before.trie.cached_ref(before.link)
    }

    /// Stops and returns false when `out` is longer than the limit. Recursion is bounded by the 128
    /// nibbles of a path.
    fn encode_structure(
        &self,
        link: Link,
        before: Option<Before<'_>>,
        encoding: &Encoding<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        let is_copy = |before: Before<'_>| {
            let is_expanded = !link.is_empty() && !link.is_stub();
            is_expanded && before.link == link && !(before.is_touched)(link)
        };
        if before.is_some_and(is_copy) {
            out.push(AS_BEFORE);
            return out.len() <= encoding.len_max;
        }
        let memo = self.cached_ref(link);
        let start = out.len();
        let mut below = start;
        match self.visit(link) {
            NodeView::Empty => out.push(EMPTY),
            NodeView::Branch { children } => {
                put_head(out, BRANCH, memo);
                let present = (0..16).filter(|&at| !children[at].is_empty());
                let mask = present.clone().fold(0u16, |mask, at| mask | 1 << at);
                out.extend_from_slice(&mask.to_le_bytes());
                below = out.len();
                for at in present {
                    let before = before.and_then(|before| before.child(at));
                    if !self.encode_structure(children[at], before, encoding, out) {
                        return false;
                    }
                }
            }
            NodeView::Extension { path, child } => {
                put_head(out, EXTENSION, memo);
                out.push(path.len() as u8);
                out.extend_from_slice(path.packed());
                below = out.len();
                let before = before.and_then(|before| before.below(&path));
                if !self.encode_structure(child, before, encoding, out) {
                    return false;
                }
            }
            NodeView::Account {
                path,
                key,
                account,
                storage,
            } => {
                put_head(out, ACCOUNT, memo);
                out.extend_from_slice(path.packed());
                account.encode_to(out);
                below = out.len();
                let before = before.and_then(|before| before.storage(&key));
                if !self.encode_structure(storage, before, encoding, out) {
                    return false;
                }
            }
            NodeView::Slot { path, value, .. } => {
                put_head(out, SLOT, memo);
                out.extend_from_slice(path.packed());
                let value = SlotValue::new(value);
                out.push(value.as_bytes().len() as u8);
                out.extend_from_slice(value.as_bytes());
                below = out.len();
            }
            NodeView::Entry { path, value, .. } => {
                put_head(out, ENTRY, memo);
                out.extend_from_slice(path.packed());
                put_varint(out, value.encoded_len() as u64);
                value.encode_to(out);
                below = out.len();
            }
            NodeView::Stub(stub)
                if !before.is_some_and(|before| self.is_as_before(link, before, &[]))
                    && (encoding.unfolds)(stub, out) => {}
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
        if before.is_some_and(|before| self.is_as_before(link, before, &out[below..])) {
            out.truncate(start);
            out.push(AS_BEFORE);
        }
        out.len() <= encoding.len_max
    }

    /// Decodes a trie from exactly `bytes`. A part of a storage trie can be read and copied from,
    /// but not changed.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are not the encoding of a valid trie.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_on(bytes, None)
    }

    /// Decodes a trie from the difference to `before` that [`Self::encode_changes_to`] wrote.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are not the encoding of a valid difference to `before`.
    pub fn decode_changes(before: &Self, bytes: &[u8]) -> Result<Self, DecodeError> {
        Self::decode_on(bytes, Some(before))
    }

    fn decode_on(bytes: &[u8], before: Option<&Self>) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let base = take_base(&mut reader)?;
        if before.is_some_and(|before| before.base != base) {
            return Err(reader.error("changes of a trie of another place"));
        }
        let mut trie = Self {
            base,
            root: Link::EMPTY,
            arena: Arena::new(),
            commitment: before.map_or(Commitment::Mpt, |before| before.commitment),
        };
        trie.root = trie.decode_root(&mut reader, &base, before.map(Before::root))?;
        Ok(trie)
    }

    /// Decodes the subtrie at `path` from exactly `bytes`. Returns the link of its root, which no
    /// node links to yet.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are not the encoding of a valid subtrie at `path`.
    pub fn graft_encoded(&mut self, path: &Path, bytes: &[u8]) -> Result<Link, DecodeError> {
        let mut reader = Reader::new(bytes);
        if take_base(&mut reader)? != *path {
            return Err(reader.error("a subtrie of another place"));
        }
        self.decode_root(&mut reader, path, None)
    }

    fn decode_root(
        &mut self,
        reader: &mut Reader<'_>,
        at: &Path,
        before: Option<Before<'_>>,
    ) -> Result<Link, DecodeError> {
        let in_storage = at.len() >= ACCOUNT_NIBBLES;
        let root = self.decode_structure(reader, at, in_storage, before)?;
        reader.finish()?;
        Ok(root)
    }

    /// Decodes the node at path `at`, of a storage trie or of the account trie. Recursion is
    /// bounded by the path's 128 nibbles: each level takes one at least, or enters a storage trie.
    fn decode_structure(
        &mut self,
        reader: &mut Reader<'_>,
        at: &Path,
        in_storage: bool,
        before: Option<Before<'_>>,
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
            AS_BEFORE if head == AS_BEFORE => {
                let before = before.ok_or_else(|| reader.error("nothing there before"))?;
                return Ok(self.graft_subtrie(before.trie, before.link));
            }
            STUB => return self.decode_stub(reader, head, memo),
            BRANCH if left > 0 => {
                let mask = reader.u16()?;
                if mask.count_ones() < 2 {
                    return Err(reader.error("a branch with less than two children"));
                }
                let mut children = [Link::EMPTY; 16];
                for nibble in (0..16).filter(|nibble| mask & 1 << nibble != 0) {
                    let before = before.and_then(|before| before.child(usize::from(nibble)));
                    let at = at.child(nibble);
                    let child = self.decode_structure(reader, &at, in_storage, before)?;
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
                let by = take_path(reader, len)?;
                let to = at.join(&by);
                let before = before.and_then(|before| before.below(&by));
                let child = self.decode_structure(reader, &to, in_storage, before)?;
                if self.kind(child) != Some(NodeKind::Branch) {
                    return Err(reader.error("an extension to something other than a branch"));
                }
                self.push_extension(at.len(), &to, child)
            }
            ACCOUNT if !in_storage => {
                let path = at.join(&take_path(reader, left)?);
                let account = Account::decode_from(reader)?;
                let key = path.account_part().unwrap_or_default();
                let before = before.and_then(|before| before.storage(&key));
                let storage = self.decode_structure(reader, &path, true, before)?;
                self.push_account(at.len(), &key, &account, storage)
            }
            SLOT if in_storage => {
                let path = at.join(&take_path(reader, left)?);
                let value = take_slot_value(reader)?;
                let key = path.slot_part().unwrap_or_default();
                self.push_slot(at.len(), &key, value)
            }
            ENTRY if !in_storage => {
                let path = at.join(&take_path(reader, left)?);
                let len = reader.count(1)?;
                let value = EntryValue::decode(reader.take(len)?);
                let value = value.map_err(|error| reader.error(error.what))?;
                let key = path.account_part().unwrap_or_default();
                self.push_entry(at.len(), &key, value)
            }
            _ => return Err(reader.error("a node where it can't be")),
        };
        if let Some(memo) = memo {
            self.set_cached_ref(link, memo);
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

fn take_slot_value(reader: &mut Reader<'_>) -> Result<U256, DecodeError> {
    let len = usize::from(reader.u8()?);
    let value = reader.take(len)?;
    if len > 32 {
        return Err(reader.error("value over 256 bits"));
    }
    SlotValue::decode(value).map_err(|error| reader.error(error.what))
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

/// Decodes the version and the path of the root.
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
