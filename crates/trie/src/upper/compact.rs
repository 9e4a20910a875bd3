//! The compact encoding of a partial trie: its nodes from the root down, each before its children, without hashes that
//! can be computed from the others.
//!
//! Decoded bytes are untrusted. The caller hashes a decoded trie to verify its root; decoding makes sure that its nodes
//! have only one reading: an inlined node is exactly one node.

use super::leaf::{AccountLeaf, Fields};
use crate::{
    arena::{Key, Link, NodeId, bits, nibble, truncated},
    node_ref::{NodeKind, NodeRef, Stub},
    partial::PartialTrie,
    rlp::RawNode,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, DecodeError, Path, Reader, SlotValue};

/// First bytes of encoded nodes.
const EMPTY: u8 = 0;
const BRANCH: u8 = 1;
const EXTENSION: u8 = 2;
const LEAF: u8 = 3;
const HASHED: u8 = 4;
const INLINED: u8 = 5;

/// Which leaves a trie has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// Accounts and slots of a state.
    State,
    /// Marked leaves and tombstones of an upper trie.
    Upper,
}

/// Appends a hashed trie, based at the empty path.
///
/// | size | meaning |
/// |---|---|
/// | 1 | 0: no node. Only as the root of a trie or of a storage |
///
/// | size | meaning |
/// |---|---|
/// | 1 | 1: a branch |
/// | 2 | bit mask of the children, little-endian; at least two |
/// | | the children, by nibble |
///
/// | size | meaning |
/// |---|---|
/// | 1 | 2: an extension |
/// | 1 | number N of its nibbles |
/// | (N + 1) / 2 | nibbles, the high half of a byte first, then zero |
/// | | the child, a branch |
///
/// | size | meaning |
/// |---|---|
/// | 1 | 3: a leaf |
/// | (N + 1) / 2 | the N nibbles that remain of its path's 64, then zero |
/// | | a slot: length of the value (1), value, big-endian without leading zeros |
/// | | an account of a state: compact account, then the root of its storage |
/// | | an account of an upper trie: mark (1), compact account if put, root of the slots unless deleted |
///
/// | size | meaning |
/// |---|---|
/// | 1 | 4: a blinded node |
/// | 32 | hash |
///
/// | size | meaning |
/// |---|---|
/// | 1 | 5: a blinded node that is inlined in its parent |
/// | 1 | length L of its RLP, 1 to 31 |
/// | L | RLP |
pub(crate) fn encode(trie: &PartialTrie, leaves: Leaves, out: &mut Vec<u8>) {
    put_node(trie, leaves, trie.root, 0, out);
}

fn put_node(trie: &PartialTrie, leaves: Leaves, link: Link, depth: usize, out: &mut Vec<u8>) {
    match link.id() {
        NodeId::Empty => out.push(EMPTY),
        NodeId::Branch(index) => {
            let children = trie.arena.branches[index].children;
            let set = children
                .iter()
                .enumerate()
                .filter(|(_, link)| !link.is_empty());
            let mask = set.fold(0u16, |mask, (at, _)| mask | 1 << at);
            out.push(BRANCH);
            out.extend_from_slice(&mask.to_le_bytes());
            for at in bits(mask) {
                put_node(trie, leaves, children[at], depth + 1, out);
            }
        }
        NodeId::Extension(index) => {
            let node = &trie.arena.extensions[index];
            let end = usize::from(node.end) - node.level();
            out.extend_from_slice(&[EXTENSION, (end - depth) as u8]);
            put_nibbles(&node.key, depth, end, out);
            put_node(trie, leaves, node.child, end, out);
        }
        NodeId::Account(index) => {
            let node = &trie.arena.accounts[index];
            out.push(LEAF);
            put_nibbles(&node.key, depth, ACCOUNT_NIBBLES, out);
            let mut has_slots = true;
            match leaves {
                Leaves::State => trie.arena.account(index).encode_to(out),
                Leaves::Upper => {
                    let leaf = AccountLeaf::at(trie, index);
                    out.push(leaf.mark());
                    match leaf.fields() {
                        Fields::Kept => {}
                        Fields::Put(account) => account.encode_to(out),
                        Fields::Deleted => has_slots = false,
                    }
                }
            }
            if has_slots {
                put_node(trie, leaves, node.storage, 0, out);
            }
        }
        NodeId::Storage(index) => {
            let node = &trie.arena.slots[index];
            out.push(LEAF);
            put_nibbles(&node.key, depth, ACCOUNT_NIBBLES, out);
            let value = SlotValue::new(U256::from_be_bytes(node.value));
            out.push(value.as_bytes().len() as u8);
            out.extend_from_slice(value.as_bytes());
        }
        NodeId::Entry(_) => unreachable!("a trie of accounts has no entries"),
        NodeId::Stub(index) => {
            let node = &trie.arena.stubs[index].node;
            match node.is_inline() {
                true => out.extend_from_slice(&[INLINED, node.as_bytes().len() as u8]),
                false => out.push(HASHED),
            }
            out.extend_from_slice(node.as_bytes());
        }
    }
}

/// Appends the nibbles `from..to` of a key.
fn put_nibbles(key: &Key, from: usize, to: usize, out: &mut Vec<u8>) {
    for at in (from..to).step_by(2) {
        let low = if at + 1 < to { nibble(key, at + 1) } else { 0 };
        out.push((nibble(key, at) << 4 | low) as u8);
    }
}

/// Reads a trie, which is not hashed. Bytes after it stay unread.
///
/// # Errors
///
/// An error if no trie is encoded like that. Bytes that [`encode`] does not produce may be read as
/// well: the caller encodes the trie again and compares.
pub(crate) fn decode(reader: &mut Reader<'_>, leaves: Leaves) -> Result<PartialTrie, DecodeError> {
    let mut trie = PartialTrie::new(Path::EMPTY);
    let mut decoder = Decoder {
        reader,
        trie: &mut trie,
        leaves,
    };
    let root = decoder.root(Level::Accounts)?;
    trie.root = root;
    Ok(trie)
}

/// Which of the two tries of a path a node is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Accounts,
    Slots,
}

struct Decoder<'a, 'b> {
    reader: &'a mut Reader<'b>,
    trie: &'a mut PartialTrie,
    leaves: Leaves,
}

impl Decoder<'_, '_> {
    /// The root of the trie or of a storage, which may be empty.
    fn root(&mut self, level: Level) -> Result<Link, DecodeError> {
        match self.reader.u8()? {
            EMPTY => Ok(Link::EMPTY),
            kind => self.node(kind, level, &[0; 32], 0),
        }
    }

    /// A node at depth `depth` of `path`, which is zero from there on. Recursion is bounded by the 64
    /// nibbles of two paths.
    fn node(
        &mut self,
        kind: u8,
        level: Level,
        path: &Key,
        depth: usize,
    ) -> Result<Link, DecodeError> {
        match kind {
            BRANCH if depth < ACCOUNT_NIBBLES => self.branch(level, path, depth),
            EXTENSION => self.extension(level, path, depth),
            LEAF => self.leaf(level, path, depth),
            HASHED => {
                let node = NodeRef::hash(self.reader.b256()?);
                Ok(self.trie.push_stub(Stub::bare(node)))
            }
            INLINED => {
                let len = self.reader.u8()?;
                let rlp = self.reader.take(len.into())?;
                let node = NodeRef::inline(rlp).filter(|_| RawNode::decode(rlp).is_ok());
                let node = node.ok_or_else(|| self.reader.error("an inlined node"))?;
                Ok(self.trie.push_stub(Stub::bare(node)))
            }
            _ => Err(self.reader.error("a node of unknown kind, or too deep")),
        }
    }

    fn branch(&mut self, level: Level, path: &Key, depth: usize) -> Result<Link, DecodeError> {
        let mask = self.reader.u16()?;
        if mask.count_ones() < 2 {
            return Err(self.reader.error("a branch of less than two children"));
        }
        let mut children = [Link::EMPTY; 16];
        for at in bits(mask) {
            let mut path = *path;
            set_nibble(&mut path, depth, at as u8);
            let kind = self.reader.u8()?;
            children[at] = self.node(kind, level, &path, depth + 1)?;
        }
        Ok(self.trie.push_branch(children))
    }

    fn extension(&mut self, level: Level, path: &Key, depth: usize) -> Result<Link, DecodeError> {
        let end = depth + usize::from(self.reader.u8()?);
        if end == depth || end >= ACCOUNT_NIBBLES {
            return Err(self.reader.error("an extension of no or too many nibbles"));
        }
        let path = self.nibbles(path, depth, end)?;
        let kind = self.reader.u8()?;
        if !matches!(kind, BRANCH | HASHED | INLINED) {
            return Err(self
                .reader
                .error("an extension to something other than a branch"));
        }
        let child = self.node(kind, level, &path, end)?;
        if let NodeId::Stub(index) = child.id() {
            self.trie.arena.stubs[index].kind = Some(NodeKind::Branch);
        }
        let from = match level {
            Level::Accounts => 0,
            Level::Slots => ACCOUNT_NIBBLES,
        };
        let arena = &mut self.trie.arena;
        Ok(arena.add_extension(from + depth, from + end, path, child))
    }

    fn leaf(&mut self, level: Level, path: &Key, depth: usize) -> Result<Link, DecodeError> {
        let key = self.nibbles(path, depth, ACCOUNT_NIBBLES)?;
        match level {
            Level::Slots => self.slot(key, depth),
            Level::Accounts => match self.leaves {
                Leaves::State => {
                    let account = Account::decode_from(self.reader)?;
                    let storage = self.root(Level::Slots)?;
                    Ok(self.trie.arena.add_account(depth, key, &account, storage))
                }
                Leaves::Upper => self.upper_leaf(key, depth),
            },
        }
    }

    fn upper_leaf(&mut self, key: Key, depth: usize) -> Result<Link, DecodeError> {
        let mark = self.reader.u8()?;
        let mut fields = Ok(Account::default());
        let leaf = AccountLeaf::of_mark(mark, || {
            fields = Account::decode_from(self.reader);
            fields.clone().ok()
        });
        fields?;
        let leaf = leaf.ok_or_else(|| self.reader.error("an unknown mark"))?;
        let slots = match leaf.fields() {
            Fields::Deleted => Link::EMPTY,
            _ => self.root(Level::Slots)?,
        };
        if leaf.fields() == Fields::Kept && !leaf.is_wiped() && slots.is_empty() {
            return Err(self.reader.error("a leaf that changes nothing"));
        }
        Ok(leaf.push(self.trie, depth, key, slots))
    }

    fn slot(&mut self, key: Key, depth: usize) -> Result<Link, DecodeError> {
        let len = self.reader.u8()?;
        let bytes = self.reader.take(len.into())?;
        let value = match (bytes, self.leaves) {
            ([], Leaves::Upper) => U256::ZERO,
            _ => SlotValue::decode(bytes)?,
        };
        Ok(self.trie.arena.add_slot(depth, key, value))
    }

    /// Reads the nibbles `from..to` of a key that begins like `path`.
    fn nibbles(&mut self, path: &Key, from: usize, to: usize) -> Result<Key, DecodeError> {
        let packed = self.reader.take((to - from).div_ceil(2))?;
        let mut key = truncated(path, from);
        for at in from..to {
            let byte = packed[(at - from) / 2];
            let nibble = match (at - from).is_multiple_of(2) {
                true => byte >> 4,
                false => byte & 0x0f,
            };
            set_nibble(&mut key, at, nibble);
        }
        Ok(key)
    }
}

/// Sets a nibble that is zero.
fn set_nibble(key: &mut Key, at: usize, nibble: u8) {
    key[at / 2] |= match at.is_multiple_of(2) {
        true => nibble << 4,
        false => nibble,
    };
}

/// Returns the root of a decoded trie, hashing it.
pub(crate) fn root_of(trie: &mut PartialTrie) -> B256 {
    crate::hash::commit(&mut [trie], &mut cambium_keccak::Batch::new());
    trie.state_root().expect("just hashed")
}
