//! Blocks: the lower levels of an index in memory, encoded and shared by all snapshots that have them.
//!
//! ```text
//!   top of a shard                 (branch)                      a trie
//!                                 /   |    \
//!   blocks of up to 3 KiB     [   ] [   ]  [   ]                 encoded subtries
//!                             /   \    \
//!                        [   ]  [   ]   pages                    blocks below blocks
//! ```
//!
//! A block is immutable. A merge makes the blocks that it changes anew, and those above them; all
//! others belong to the old index and the new one. A blinded node takes 38 bytes in a block, and 48 in
//! a trie.
//!
//! Look-ups read the encoded bytes. An update of the trie decodes one block at a time. Blocks are
//! never on disk: checkpoints have tries, as `write.rs` says. So the bytes are always ones that
//! [`BlockBuilder`] has written, and a block that can't be decoded is a bug.

use super::part_ref::PartRef;
use crate::base::{error::StateError, layout::addr_of_place};
use alloy_primitives::{B256, U256};
use cambium_primitives::{
    ACCOUNT_NIBBLES, Account, DecodeError, EntryValue, Path, Reader, SlotValue, put_varint,
};
use cambium_store::PageAddr;
use cambium_trie::{Link, Lookup, NodeKind, NodeRef, NodeView, PartialTrie, Place, Stub};
use rustc_hash::FxBuildHasher;
use std::{collections::HashSet, sync::Arc};

/// A subtrie of more than this many encoded bytes gets blocks for those children of its root that are
/// large enough. So a block has at most sixteen children of [`BLOCK_BYTES_MIN`] beside leaves.
pub(super) const BLOCK_BYTES_MAX: usize = 3 * 1024;
/// Encoded size from which a subtrie may become a block, in bytes: a block takes about 100 bytes of
/// memory besides.
const BLOCK_BYTES_MIN: usize = 256;

// Node of a block. Nodes are in preorder. The root of a block has no reference, since the node that
// names the block has it.
//
// SIZE       MEANING
// 1          bits 0-3: type; bit 4: a reference follows; bit 5: it is an inlined node; bits 6-7, of a
//            blinded node: kind unknown, branch, extension, leaf
// 32, 1 + L  reference: a hash; or the length of an inlined node, and its RLP
//            by type:
//   0        nothing
//   1        branch: children by nibble, bit by bit (2); of each where it begins, from the end of this
//            table (2); children
//   2        branch of pages that are known by hashes, with short places: children by nibble (2); kinds,
//            2 bits each (4); hashes (32 each); places (6 each)
//   3        extension: number of nibbles (1); these, packed; child
//   4        account: key (32); compact account; storage
//   5        slot: key (32); length of the value (1); value
//   6        entry: key (32); length of the encoded value, LEB128; value
//   7        page: place (8)
//   8        blinded node without a place
//   9        block below: its number (2)
const TYPE: u8 = 0x0f;
const EMPTY: u8 = 0;
const BRANCH: u8 = 1;
const PAGES: u8 = 2;
const EXTENSION: u8 = 3;
const ACCOUNT: u8 = 4;
const SLOT: u8 = 5;
const ENTRY: u8 = 6;
const PAGE: u8 = 7;
const BARE: u8 = 8;
const BELOW: u8 = 9;
const HAS_REF: u8 = 0x10;
const IS_INLINE: u8 = 0x20;
const KIND_SHIFT: u8 = 6;
const HASH_BYTES: usize = 32;

// Short place.
//
// BITS      MEANING
// 47 .. 33  number of the segment
// 32 .. 9   offset in the segment, in units of 16 bytes
// 8 .. 0    length in units of 16 bytes, less one
const SHORT_PLACE_BYTES: usize = 6;
const SHORT_LEN_BITS: u32 = 9;
const SHORT_SEGMENT_BITS: u32 = 15;
/// Bits of a page's offset, and of its length, in a place that is not short.
const OFFSET_BITS: u32 = 24;
const LEN_BITS: u32 = 16;

/// Returns the six low bytes of a short place, or `None` if the segment's number or the page's length
/// is too large for it.
fn short_place(place: Place) -> Option<[u8; SHORT_PLACE_BYTES]> {
    let word = place.get();
    let len = word & ((1 << LEN_BITS) - 1);
    let offset = word >> LEN_BITS & ((1 << OFFSET_BITS) - 1);
    let segment = word >> (LEN_BITS + OFFSET_BITS);
    let is_short = len < 1 << SHORT_LEN_BITS && segment < 1 << SHORT_SEGMENT_BITS;
    let short = segment << (OFFSET_BITS + SHORT_LEN_BITS) | offset << SHORT_LEN_BITS | len;
    is_short.then(|| {
        *short
            .to_le_bytes()
            .first_chunk()
            .expect("six of eight bytes")
    })
}

/// The reverse of [`short_place`].
fn place_of_short(bytes: [u8; SHORT_PLACE_BYTES]) -> Option<Place> {
    let mut word = [0; 8];
    word[..SHORT_PLACE_BYTES].copy_from_slice(&bytes);
    let short = u64::from_le_bytes(word);
    let len = short & ((1 << SHORT_LEN_BITS) - 1);
    let offset = short >> SHORT_LEN_BITS & ((1 << OFFSET_BITS) - 1);
    let segment = short >> (OFFSET_BITS + SHORT_LEN_BITS);
    Place::new(segment << (LEN_BITS + OFFSET_BITS) | offset << LEN_BITS | len)
}

const fn kind_bits(kind: Option<NodeKind>) -> u8 {
    match kind {
        None => 0,
        Some(NodeKind::Branch) => 1,
        Some(NodeKind::Extension) => 2,
        Some(NodeKind::Leaf) => 3,
    }
}

const fn kind_of_bits(bits: u8) -> Option<NodeKind> {
    match bits & 3 {
        0 => None,
        1 => Some(NodeKind::Branch),
        2 => Some(NodeKind::Extension),
        _ => Some(NodeKind::Leaf),
    }
}

/// A subtrie of the index, encoded, whose blinded nodes name pages and blocks below.
pub(crate) struct Block {
    bytes: Box<[u8]>,
    below: Box<[Arc<Self>]>,
    /// Memory of this block and of all below it, in bytes.
    memory_bytes: usize,
}

/// A block, with the node that names it.
#[derive(Clone, Copy)]
pub(crate) struct Below<'a> {
    pub(crate) block: &'a Arc<Block>,
    /// Reference and kind of the block's root, without a place.
    pub(crate) stub: Stub,
    /// Depth of the block's root, in nibbles.
    pub(crate) depth: usize,
}

/// Where a walk along a path ends in a block.
pub(crate) enum Walked<'a> {
    /// At the root of a block below.
    Below(Below<'a>),
    /// At the blinded node of a page, at this depth.
    Page(Stub, usize),
    /// At the leaf that was looked for, or where it would be.
    Leaf(Lookup<'static>),
    /// At the node that was looked for, or where it would be.
    Node,
}

/// A blinded node of a block that is copied to a trie.
pub(crate) enum Blinded<'a> {
    /// The node of a page, or one that names nothing.
    Page(Stub),
    /// The root of a block below.
    Below(Below<'a>),
}

/// The children of a branch that are all pages.
#[derive(Clone, Copy)]
struct PageNodes<'a> {
    mask: u16,
    kinds: u32,
    hashes: &'a [u8],
    places: &'a [u8],
}

impl<'a> PageNodes<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (mask, kinds) = (reader.u16()?, reader.u32()?);
        let count = mask.count_ones() as usize;
        Ok(Self {
            mask,
            kinds,
            hashes: reader.take(count * HASH_BYTES)?,
            places: reader.take(count * SHORT_PLACE_BYTES)?,
        })
    }

    /// The blinded node at `nibble`, or `None` if there is none.
    fn at(&self, nibble: u8) -> Option<Stub> {
        let rank = rank_of(self.mask, nibble)?;
        let hash = self.hashes[rank * HASH_BYTES..].first_chunk::<HASH_BYTES>()?;
        Some(Stub {
            node: NodeRef::hash(B256::new(*hash)),
            kind: kind_of_bits((self.kinds >> (2 * nibble)) as u8),
            place: self.place(rank),
        })
    }

    fn place(&self, rank: usize) -> Option<Place> {
        place_of_short(*self.places[rank * SHORT_PLACE_BYTES..].first_chunk()?)
    }
}

/// Number of the children before `nibble`, or `None` if there is no child there.
const fn rank_of(mask: u16, nibble: u8) -> Option<usize> {
    let bit = 1 << nibble;
    if mask & bit == 0 {
        return None;
    }
    Some((mask & (bit - 1)).count_ones() as usize)
}

/// The children of another branch.
#[derive(Clone, Copy)]
struct Children<'a> {
    mask: u16,
    /// Where each begins, in bytes from the end of this table.
    starts: &'a [u8],
}

impl Children<'_> {
    /// Where the child at `nibble` begins, if there is one.
    fn at(&self, nibble: u8) -> Option<usize> {
        let rank = rank_of(self.mask, nibble)?;
        let start = self.starts[2 * rank..].first_chunk()?;
        Some(u16::from_le_bytes(*start).into())
    }
}

/// A node as it is encoded. Its child, or its children, begin where its own bytes end.
enum Node<'a> {
    Empty,
    Branch(Children<'a>),
    Pages(PageNodes<'a>),
    Extension(Path),
    Account(B256, Account),
    Slot(B256, U256),
    Entry(B256, EntryValue),
    Page(Stub),
    Below(Stub, usize),
}

/// A node that was read.
struct ReadNode<'a> {
    node: Node<'a>,
    /// The reference, unless the node is the block's root or blinded.
    cached: Option<NodeRef>,
    /// Where its own bytes end in the block.
    end: usize,
}

fn read_node<'a>(reader: &mut Reader<'a>) -> Result<(Node<'a>, Option<NodeRef>), DecodeError> {
    let head = reader.u8()?;
    let cached = match head & (HAS_REF | IS_INLINE) {
        0 => None,
        HAS_REF => Some(NodeRef::hash(reader.b256()?)),
        _ => {
            let len = reader.u8()?;
            NodeRef::inline(reader.take(len.into())?)
        }
    };
    let stub = |reader: &Reader<'_>, place: Option<Place>| -> Result<Stub, DecodeError> {
        let node = cached.ok_or_else(|| reader.error("a blinded node without a reference"))?;
        let kind = kind_of_bits(head >> KIND_SHIFT);
        Ok(Stub { node, kind, place })
    };
    let node = match head & TYPE {
        EMPTY => Node::Empty,
        BRANCH => {
            let mask = reader.u16()?;
            let starts = reader.take(2 * mask.count_ones() as usize)?;
            Node::Branch(Children { mask, starts })
        }
        PAGES => Node::Pages(PageNodes::read(reader)?),
        EXTENSION => {
            let len = usize::from(reader.u8()?);
            let path = Path::from_packed(reader.take(len.div_ceil(2))?, len);
            Node::Extension(path.ok_or_else(|| reader.error("a malformed path"))?)
        }
        ACCOUNT => Node::Account(reader.b256()?, Account::decode_from(reader)?),
        SLOT => {
            let (key, len) = (reader.b256()?, reader.u8()?);
            Node::Slot(key, SlotValue::decode(reader.take(len.into())?)?)
        }
        ENTRY => {
            let (key, len) = (reader.b256()?, reader.count(1)?);
            Node::Entry(key, EntryValue::decode(reader.take(len)?)?)
        }
        PAGE => {
            let place = Place::new(reader.u64()?);
            Node::Page(stub(reader, place)?)
        }
        BARE => Node::Page(stub(reader, None)?),
        BELOW => {
            let number = reader.u16()?;
            Node::Below(stub(reader, None)?, number.into())
        }
        _ => return Err(reader.error("a node of unknown type")),
    };
    Ok((node, cached))
}

impl Block {
    fn new(bytes: &[u8], below: Vec<Arc<Self>>) -> Self {
        let (bytes, below): (Box<[u8]>, _) = (bytes.into(), below.into_boxed_slice());
        // Of its own allocation, two counts.
        let own = size_of::<Self>() + 2 * size_of::<usize>();
        let lower = below.iter().map(|block| block.memory_bytes);
        let memory_bytes = own + bytes.len() + size_of_val(&*below) + lower.sum::<usize>();
        Self {
            bytes,
            below,
            memory_bytes,
        }
    }

    /// Memory of the block and of all below it, in bytes.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Memory of the block alone, in bytes.
    pub(super) fn own_memory_bytes(&self) -> usize {
        let lower = self.below.iter().map(|block| block.memory_bytes);
        self.memory_bytes - lower.sum::<usize>()
    }

    /// Whether the block names blocks below, or a page for which `is_wanted` is true.
    pub(super) fn may_lead_to(&self, is_wanted: &dyn Fn(&PageAddr) -> bool) -> bool {
        let mut is_named = !self.below.is_empty();
        if !is_named {
            self.each_page(&mut |addr| is_named |= is_wanted(&addr));
        }
        is_named
    }

    /// The blocks that its blinded nodes name, by their numbers.
    #[cfg(test)]
    pub(crate) fn below(&self) -> &[Arc<Self>] {
        &self.below
    }

    /// Reads the node at offset `at`.
    fn node(&self, at: usize) -> ReadNode<'_> {
        let mut reader = Reader::new(&self.bytes[at..]);
        let (node, cached) = read_node(&mut reader).expect("a node that was encoded here");
        ReadNode {
            node,
            cached,
            end: at + reader.offset(),
        }
    }

    /// Walks along `path` from the block's root, which is at depth `depth` of it: to the leaf at the
    /// path if `is_leaf`, else to the node at the path, where 64 nibbles name a storage.
    pub(crate) fn walk(&self, mut depth: usize, path: &Path, is_leaf: bool) -> Walked<'_> {
        let mut in_storage = depth >= ACCOUNT_NIBBLES;
        let mut at = 0;
        let nothing = || match is_leaf {
            true => Walked::Leaf(Lookup::Absent),
            false => Walked::Node,
        };
        loop {
            let ReadNode { node, end, .. } = self.node(at);
            if let Node::Below(stub, number) = node {
                let block = &self.below[number];
                return Walked::Below(Below { block, stub, depth });
            }
            // An account's leaf may be at 64 nibbles itself: its storage is there.
            let is_above_storage =
                depth == ACCOUNT_NIBBLES && !in_storage && matches!(node, Node::Account(..));
            if !is_leaf && depth == path.len() && !is_above_storage {
                return Walked::Node;
            }
            match node {
                Node::Branch(children) => {
                    let Some(start) = children.at(path.nibble(depth)) else {
                        return nothing();
                    };
                    (at, depth) = (end + start, depth + 1);
                }
                Node::Pages(pages) => {
                    return match pages.at(path.nibble(depth)) {
                        Some(stub) => Walked::Page(stub, depth + 1),
                        None => nothing(),
                    };
                }
                Node::Extension(by) => {
                    if !path.suffix(depth).starts_with(&by) {
                        return nothing();
                    }
                    (at, depth) = (end, depth + by.len());
                }
                Node::Account(key, account) => {
                    if path.account_part() != Some(key) {
                        return nothing();
                    }
                    if is_leaf && path.len() == ACCOUNT_NIBBLES {
                        return Walked::Leaf(Lookup::Account(account));
                    }
                    (at, depth, in_storage) = (end, ACCOUNT_NIBBLES, true);
                }
                Node::Slot(key, value) => {
                    let is_it = is_leaf && path.slot_part() == Some(key);
                    return match is_it {
                        true => Walked::Leaf(Lookup::Slot(value)),
                        false => nothing(),
                    };
                }
                Node::Entry(key, value) => {
                    let is_key = path.len() == ACCOUNT_NIBBLES && path.account_part() == Some(key);
                    return match is_leaf && is_key {
                        true => Walked::Leaf(Lookup::Entry(value)),
                        false => nothing(),
                    };
                }
                Node::Page(stub) => return Walked::Page(stub, depth),
                Node::Empty | Node::Below(..) => return nothing(),
            }
        }
    }

    /// Copies the block's nodes to `into`, with their references. The root is at `path`, and `root` is
    /// its reference. `blinded` adds the blinded nodes, which are shown to it in path order. Returns
    /// the link of the root, which no node links to yet.
    pub(crate) fn graft<'a>(
        &'a self,
        into: &mut PartialTrie,
        root: &Stub,
        path: &Path,
        blinded: &mut dyn FnMut(&mut PartialTrie, Blinded<'a>, &Path) -> Link,
    ) -> Link {
        let link = self.graft_node(into, 0, path, blinded);
        if !link.is_empty() && !link.is_stub() {
            into.set_cached_ref(link, root.node);
        }
        link
    }

    /// Copies the subtrie at offset `at`. Recursion is bounded by the path's 128 nibbles.
    fn graft_node<'a>(
        &'a self,
        into: &mut PartialTrie,
        at: usize,
        path: &Path,
        blinded: &mut dyn FnMut(&mut PartialTrie, Blinded<'a>, &Path) -> Link,
    ) -> Link {
        let ReadNode { node, cached, end } = self.node(at);
        let link = match node {
            Node::Empty => return Link::EMPTY,
            Node::Page(stub) => return blinded(into, Blinded::Page(stub), path),
            Node::Below(stub, number) => {
                let (block, depth) = (&self.below[number], path.len());
                let below = Below { block, stub, depth };
                return blinded(into, Blinded::Below(below), path);
            }
            Node::Branch(children) => {
                let mut links = [Link::EMPTY; 16];
                for nibble in 0u8..16 {
                    if let Some(start) = children.at(nibble) {
                        let (at, path) = (end + start, path.child(nibble));
                        let child = self.graft_node(into, at, &path, blinded);
                        links[usize::from(nibble)] = child;
                    }
                }
                into.push_branch(links)
            }
            Node::Pages(pages) => {
                let mut links = [Link::EMPTY; 16];
                for nibble in 0u8..16 {
                    if let Some(stub) = pages.at(nibble) {
                        let child = blinded(into, Blinded::Page(stub), &path.child(nibble));
                        links[usize::from(nibble)] = child;
                    }
                }
                into.push_branch(links)
            }
            Node::Extension(by) => {
                let to = path.join(&by);
                let child = self.graft_node(into, end, &to, blinded);
                into.push_extension(path.len(), &to, child)
            }
            Node::Account(key, account) => {
                let at_storage = Path::account(&key);
                let storage = self.graft_node(into, end, &at_storage, blinded);
                into.push_account(path.len(), &key, &account, storage)
            }
            Node::Slot(key, value) => into.push_slot(path.len(), &key, value),
            Node::Entry(key, value) => into.push_entry(path.len(), &key, value),
        };
        if let Some(node) = cached {
            into.set_cached_ref(link, node);
        }
        link
    }

    /// Calls `visit` for each page that the block and those below it name.
    pub(crate) fn each_page(&self, visit: &mut dyn FnMut(PageAddr)) {
        let mut at = 0;
        while at < self.bytes.len() {
            let ReadNode { node, end, .. } = self.node(at);
            match node {
                Node::Page(stub) => {
                    stub.place
                        .map(addr_of_place)
                        .into_iter()
                        .for_each(&mut *visit);
                }
                Node::Pages(pages) => {
                    let count = pages.mask.count_ones() as usize;
                    let places = (0..count).filter_map(|rank| pages.place(rank));
                    places.map(addr_of_place).for_each(&mut *visit);
                }
                _ => {}
            }
            at = end;
        }
        self.below.iter().for_each(|block| block.each_page(visit));
    }
}

/// Divides a trie of the index into its top and blocks.
pub(crate) struct Splitter<'a> {
    trie: &'a PartialTrie,
    /// Blocks that the trie's blinded nodes name, by their numbers, with their paths.
    unopened: &'a [(&'a Arc<Block>, Path)],
    /// Roots of the subtries that become blocks.
    cuts: HashSet<Link, FxBuildHasher>,
}

impl<'a> Splitter<'a> {
    /// Decides which subtries of `trie` become blocks.
    ///
    /// # Errors
    ///
    /// [`StateError::Broken`] if a node is not hashed, or names a block that is not there.
    pub(crate) fn new(
        trie: &'a PartialTrie,
        unopened: &'a [(&'a Arc<Block>, Path)],
    ) -> Result<Self, StateError> {
        let mut splitter = Self {
            trie,
            unopened,
            cuts: HashSet::default(),
        };
        splitter.measure(trie.root(), trie.base().len(), false)?;
        Ok(splitter)
    }

    /// Returns the block at `link`, if there is one: a new one, or one that was not opened. It is built behind what `bytes`
    /// has, which stays.
    pub(crate) fn block_at(&self, link: Link, bytes: &mut Vec<u8>) -> Option<Arc<Block>> {
        if let NodeView::Stub(stub) = self.trie.visit(link) {
            let number = PartRef::of(stub)?.number();
            return Some(self.unopened[number].0.clone());
        }
        if !self.cuts.contains(&link) {
            return None;
        }
        let start = bytes.len();
        let mut builder = BlockBuilder {
            splitter: self,
            bytes,
            below: Vec::new(),
        };
        builder.put_root(link);
        let block = Block::new(&builder.bytes[start..], builder.below);
        bytes.truncate(start);
        Some(Arc::new(block))
    }

    /// Returns the size of the subtrie at `link`, at depth `depth`, as a part of its parent's block, in
    /// bytes, and cuts off what is too large for that. Recursion is bounded by the path's 128 nibbles.
    fn measure(&mut self, link: Link, depth: usize, in_storage: bool) -> Result<usize, StateError> {
        const HEAD: usize = 1 + HASH_BYTES;
        const KEY: usize = 32;
        let trie = self.trie;
        if !link.is_empty() && trie.cached_ref(link).is_none() {
            return Err(StateError::Broken {
                path: *trie.base(),
                what: "a hashed node in the index",
            });
        }
        Ok(match trie.visit(link) {
            NodeView::Empty => 1,
            NodeView::Stub(stub) => match PartRef::of(stub) {
                None => HEAD + SHORT_PLACE_BYTES,
                // As if it were opened, so that a shard is divided alike whatever is open.
                Some(part) => match self.unopened.get(part.number()) {
                    Some((block, _)) => HEAD + block.bytes.len(),
                    None => {
                        return Err(StateError::Broken {
                            path: *trie.base(),
                            what: "a page in the index",
                        });
                    }
                },
            },
            NodeView::Extension { path, child } => {
                let below = self.measure(child, depth + path.len(), in_storage)?;
                HEAD + 1 + path.packed().len() + below
            }
            NodeView::Account { storage, .. } => {
                let mut below = self.measure(storage, ACCOUNT_NIBBLES, true)?;
                // Where the account's leaf can't become a block, its storage can.
                if depth == ACCOUNT_NIBBLES && below >= BLOCK_BYTES_MIN && !storage.is_stub() {
                    self.cuts.insert(storage);
                    below = HEAD + 2;
                }
                HEAD + KEY + KEY + below
            }
            NodeView::Slot { .. } => HEAD + KEY + KEY,
            NodeView::Entry { value, .. } => HEAD + KEY + value.encoded_len(),
            NodeView::Branch { children } => {
                let mut sizes = [0; 16];
                for (child, size) in children.iter().zip(&mut sizes) {
                    if !child.is_empty() {
                        *size = 2 + self.measure(*child, depth + 1, in_storage)?;
                    }
                }
                let is_large = sizes.iter().sum::<usize>() > BLOCK_BYTES_MAX;
                // A block at an account's path would be taken for the account's storage.
                let is_at_leaf = depth + 1 == ACCOUNT_NIBBLES && !in_storage;
                for (child, size) in children.iter().zip(&mut sizes) {
                    if let NodeView::Stub(stub) = trie.visit(*child) {
                        if PartRef::of(stub).is_some() {
                            *size = HEAD + 2;
                        }
                    } else if is_large && *size >= BLOCK_BYTES_MIN && !is_at_leaf {
                        self.cuts.insert(*child);
                        *size = HEAD + 2;
                    }
                }
                HEAD + 2 + sizes.iter().sum::<usize>()
            }
        })
    }
}

/// One block that is being encoded.
struct BlockBuilder<'a, 'b> {
    splitter: &'a Splitter<'b>,
    /// Its bytes are the last ones. Those of blocks above it, which are not complete, come before.
    bytes: &'a mut Vec<u8>,
    below: Vec<Arc<Block>>,
}

impl BlockBuilder<'_, '_> {
    fn put_head(&mut self, head: u8, node: Option<NodeRef>) {
        let Some(node) = node else {
            return self.bytes.push(head);
        };
        self.bytes.push(match node.is_inline() {
            true => head | HAS_REF | IS_INLINE,
            false => head | HAS_REF,
        });
        if node.is_inline() {
            self.bytes.push(node.as_bytes().len() as u8);
        }
        self.bytes.extend_from_slice(node.as_bytes());
    }

    /// Adds the node that is the block's root, with all below it. Its parent has its reference.
    fn put_root(&mut self, link: Link) {
        self.put_expanded(link, None);
    }

    /// Adds the subtrie at `link`, or the number of its block.
    fn put(&mut self, link: Link) {
        let trie = self.splitter.trie;
        let blinded = |kind| kind_bits(kind) << KIND_SHIFT;
        if let Some(block) = self.splitter.block_at(link, self.bytes) {
            let number = u16::try_from(self.below.len()).expect("a block has few others below it");
            self.put_head(BELOW | blinded(trie.kind(link)), trie.cached_ref(link));
            self.bytes.extend_from_slice(&number.to_le_bytes());
            self.below.push(block);
        } else if let NodeView::Stub(stub) = trie.visit(link) {
            let head = if stub.place.is_some() { PAGE } else { BARE };
            self.put_head(head | blinded(stub.kind), Some(stub.node));
            if let Some(place) = stub.place {
                self.bytes.extend_from_slice(&place.get().to_le_bytes());
            }
        } else {
            self.put_expanded(link, trie.cached_ref(link));
        }
    }

    fn put_expanded(&mut self, link: Link, node: Option<NodeRef>) {
        let trie = self.splitter.trie;
        match trie.visit(link) {
            NodeView::Branch { children } => {
                if !self.put_pages(children, node) {
                    self.put_children(children, node);
                }
            }
            NodeView::Extension { path, child } => {
                self.put_head(EXTENSION, node);
                self.bytes.push(path.len() as u8);
                self.bytes.extend_from_slice(path.packed());
                self.put(child);
            }
            NodeView::Account {
                key,
                account,
                storage,
                ..
            } => {
                self.put_head(ACCOUNT, node);
                self.bytes.extend_from_slice(key.as_slice());
                account.encode_to(self.bytes);
                self.put(storage);
            }
            NodeView::Slot { key, value, .. } => {
                self.put_head(SLOT, node);
                self.bytes.extend_from_slice(key.as_slice());
                let value = SlotValue::new(value);
                self.bytes.push(value.as_bytes().len() as u8);
                self.bytes.extend_from_slice(value.as_bytes());
            }
            NodeView::Entry { key, value, .. } => {
                self.put_head(ENTRY, node);
                self.bytes.extend_from_slice(key.as_slice());
                put_varint(self.bytes, value.encoded_len() as u64);
                value.encode_to(self.bytes);
            }
            NodeView::Empty | NodeView::Stub(_) => self.bytes.push(EMPTY),
        }
    }

    /// Adds a branch if its children are pages that are known by hashes, with short places. Returns
    /// whether it did.
    fn put_pages(&mut self, children: &[Link; 16], node: Option<NodeRef>) -> bool {
        let trie = self.splitter.trie;
        let (mut mask, mut kinds) = (0u16, 0u32);
        let mut short = [(B256::ZERO, [0; SHORT_PLACE_BYTES]); 16];
        for (nibble, child) in children
            .iter()
            .enumerate()
            .filter(|(_, child)| !child.is_empty())
        {
            let NodeView::Stub(stub) = trie.visit(*child) else {
                return false;
            };
            let is_page = PartRef::of(stub).is_none();
            let place = stub.place.filter(|_| is_page).and_then(short_place);
            let (Some(hash), Some(place)) = (stub.node.as_hash(), place) else {
                return false;
            };
            short[mask.count_ones() as usize] = (hash, place);
            mask |= 1 << nibble;
            kinds |= u32::from(kind_bits(stub.kind)) << (2 * nibble);
        }
        let short = &short[..mask.count_ones() as usize];
        self.put_head(PAGES, node);
        self.bytes.extend_from_slice(&mask.to_le_bytes());
        self.bytes.extend_from_slice(&kinds.to_le_bytes());
        for (hash, _) in short {
            self.bytes.extend_from_slice(hash.as_slice());
        }
        for (_, place) in short {
            self.bytes.extend_from_slice(place);
        }
        true
    }

    fn put_children(&mut self, children: &[Link; 16], node: Option<NodeRef>) {
        self.put_head(BRANCH, node);
        let there = children
            .iter()
            .enumerate()
            .filter(|(_, child)| !child.is_empty());
        let mask = there
            .clone()
            .fold(0u16, |mask, (nibble, _)| mask | 1 << nibble);
        self.bytes.extend_from_slice(&mask.to_le_bytes());
        let table = self.bytes.len();
        let end = table + 2 * mask.count_ones() as usize;
        self.bytes.resize(end, 0);
        for (rank, (_, child)) in there.enumerate() {
            let start = u16::try_from(self.bytes.len() - end).expect("a block has under 64 KiB");
            self.bytes[table + 2 * rank..][..2].copy_from_slice(&start.to_le_bytes());
            self.put(*child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_place_is_what_it_was_and_a_long_one_has_none() {
        let word = |segment: u64, offset: u64, len: u64| segment << 40 | offset << 16 | len;
        let words = [
            word(1, 0, 0),
            word(1, (1 << 24) - 1, 511),
            word((1 << 15) - 1, 5, 300),
        ];
        for place in words.map(|word| Place::new(word).unwrap()) {
            assert_eq!(short_place(place).and_then(place_of_short), Some(place));
        }
        for word in [word(1, 7, 512), word(1 << 15, 7, 9), 1 << 63 | 5] {
            assert_eq!(short_place(Place::new(word).unwrap()), None);
        }
    }
}
