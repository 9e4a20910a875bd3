//! Storage of nodes: one slab for each type of node, and links that encode slab and index.
//!
//! Nodes hold *absolute* keys: a leaf all 64 nibbles of its account's or slot's path, an
//! extension all nibbles from the path's start to its child. A leaf that moves up or down only
//! changes the depth at which it sits, and a walk compares whole words instead of nibbles.

use crate::{
    node_ref::{NodeRef, Stub},
    prefetch::prefetch,
    slab::{INDEX_BITS, PARTS, Slab},
};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, EntryValue};
use core::fmt;

/// The 64 nibbles of an account's or of a slot's path, packed.
pub(crate) type Key = [u8; 32];

/// The nibble at `at`.
#[inline]
pub(crate) const fn nibble(key: &Key, at: usize) -> usize {
    let byte = key[at / 2];
    (if at.is_multiple_of(2) {
        byte >> 4
    } else {
        byte & 0x0f
    }) as usize
}

/// The first `len` nibbles of `key`, the rest zero.
pub(crate) fn truncated(key: &Key, len: usize) -> Key {
    let mut cut = [0; 32];
    cut[..len.div_ceil(2)].copy_from_slice(&key[..len.div_ceil(2)]);
    if !len.is_multiple_of(2) {
        cut[len / 2] &= 0xf0;
    }
    cut
}

/// The first `at` nibbles of `key`, then `nibble`, the rest zero.
pub(crate) fn with_nibble(key: &Key, at: usize, nibble: usize) -> Key {
    let mut key = truncated(key, at);
    key[at / 2] |= (if at.is_multiple_of(2) {
        nibble << 4
    } else {
        nibble
    }) as u8;
    key
}

/// Length of the common prefix of two keys, in nibbles.
#[inline]
pub(crate) fn shared_nibbles(a: &Key, b: &Key) -> usize {
    for at in (0..32).step_by(8) {
        let word = |key: &Key| u64::from_be_bytes(*key[at..].first_chunk().expect("in bounds"));
        let diff = word(a) ^ word(b);
        if diff != 0 {
            return at * 2 + diff.leading_zeros() as usize / 4;
        }
    }
    64
}

/// Positions of the bits that are set, in ascending order.
#[inline]
pub(crate) fn bits(mut set: u16) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        if set == 0 {
            return None;
        }
        let at = set.trailing_zeros() as usize;
        set &= set - 1;
        Some(at)
    })
}

/// A reference to a node within one arena.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link(u32);

const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// A decoded [`Link`]: the type of the node, and its index in the slab of that type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeId {
    Empty,
    Branch(u32),
    Extension(u32),
    Account(u32),
    Storage(u32),
    Stub(u32),
    Entry(u32),
}

impl Link {
    /// No node.
    pub const EMPTY: Self = Self(0);

    /// Returns whether the link is [`Self::EMPTY`].
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 >> INDEX_BITS == 0
    }

    /// Returns whether the link leads to a blinded node.
    #[inline]
    pub const fn is_stub(self) -> bool {
        self.0 >> INDEX_BITS == 5
    }

    #[inline]
    pub(crate) const fn id(self) -> NodeId {
        let index = self.0 & INDEX_MASK;
        match self.0 >> INDEX_BITS {
            0 => NodeId::Empty,
            1 => NodeId::Branch(index),
            2 => NodeId::Extension(index),
            3 => NodeId::Account(index),
            4 => NodeId::Storage(index),
            5 => NodeId::Stub(index),
            _ => NodeId::Entry(index),
        }
    }

    pub(crate) const fn tagged(tag: u32, index: u32) -> Self {
        Self(tag << INDEX_BITS | index)
    }

    pub(crate) const fn branch(index: u32) -> Self {
        Self::tagged(1, index)
    }

    pub(crate) const fn extension(index: u32) -> Self {
        Self::tagged(2, index)
    }

    pub(crate) const fn account(index: u32) -> Self {
        Self::tagged(3, index)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, index) = match self.id() {
            NodeId::Empty => return f.write_str("Link(empty)"),
            NodeId::Branch(index) => ("branch", index),
            NodeId::Extension(index) => ("extension", index),
            NodeId::Account(index) => ("account", index),
            NodeId::Storage(index) => ("slot", index),
            NodeId::Stub(index) => ("stub", index),
            NodeId::Entry(index) => ("entry", index),
        };
        write!(f, "Link({name} {index})")
    }
}

/// A branch node with sixteen children.
#[derive(Clone, Copy)]
pub(crate) struct BranchNode {
    pub(crate) children: [Link; 16],
    /// Bit mask of the children whose reference may be unknown. Hashing skips the others.
    pub(crate) unhashed: u16,
    pub(crate) memo: NodeRef,
    /// Whether versions share the node: see `versions.rs`.
    pub(crate) is_shared: bool,
}

/// An extension node: the nibbles `start..end` that all leaves below it share. The positions are
/// absolute: 0 to 64 in the account trie, 64 to 128 in a storage trie. The child is a branch.
#[derive(Clone, Copy)]
pub(crate) struct ExtensionNode {
    pub(crate) child: Link,
    /// Nibbles from the start of the account's or of the slot's path to the child, then zeros.
    pub(crate) key: Key,
    pub(crate) start: u8,
    pub(crate) end: u8,
    pub(crate) memo: NodeRef,
    pub(crate) is_shared: bool,
}

impl ExtensionNode {
    /// Nibbles of the path before `key` begins: 0, or an account's 64.
    pub(crate) const fn level(&self) -> usize {
        if (self.start as usize) < ACCOUNT_NIBBLES {
            0
        } else {
            ACCOUNT_NIBBLES
        }
    }
}

/// Balances under this many bytes need no [`Rare`] part: more ether than exists.
const BALANCE_BYTES: usize = 12;

/// An account's leaf. A code hash and a balance over 96 bits are stored separately, since most
/// accounts have neither.
#[derive(Clone, Copy)]
pub(crate) struct AccountNode {
    pub(crate) key: Key,
    pub(crate) memo: NodeRef,
    /// Number of nibbles above this leaf.
    pub(crate) depth: u8,
    /// Zero, or the mark of a leaf of an upper trie: see `upper/leaf.rs`.
    pub(crate) mark: u8,
    pub(crate) is_shared: bool,
    balance: [u8; BALANCE_BYTES],
    nonce: u64,
    pub(crate) storage: Link,
    /// Index of the [`Rare`] part plus one, or 0 if there is none.
    pub(crate) rare: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct Rare {
    balance: U256,
    code_hash: B256,
}

/// The leaf of a storage slot.
#[derive(Clone, Copy)]
pub(crate) struct StorageNode {
    pub(crate) key: Key,
    pub(crate) memo: NodeRef,
    /// Nibbles of the slot's own path above this leaf: 0 to 64.
    pub(crate) depth: u8,
    /// Big-endian.
    pub(crate) value: [u8; 32],
    pub(crate) is_shared: bool,
}

/// The leaf of an entry of a key-value database.
#[derive(Clone)]
pub(crate) struct EntryNode {
    pub(crate) key: Key,
    pub(crate) memo: NodeRef,
    /// Number of nibbles above this leaf.
    pub(crate) depth: u8,
    /// Whether this is a leaf of an upper trie that marks its entry as deleted: see
    /// `upper/leaf.rs`. The value is empty then.
    pub(crate) is_tombstone: bool,
    pub(crate) is_shared: bool,
    pub(crate) value: EntryValue,
}

const _: () = assert!(size_of::<BranchNode>() <= 112);
const _: () = assert!(size_of::<AccountNode>() <= 100);
const _: () = assert!(size_of::<StorageNode>() <= 100);
const _: () = assert!(size_of::<EntryNode>() <= 120);

/// Whether a value is stored apart from its leaf.
pub(crate) const fn is_stored(value: &EntryValue) -> bool {
    matches!(value, EntryValue::Stored(_))
}

/// Bytes of a value that is part of its leaf.
pub(crate) fn inline_bytes(value: &EntryValue) -> usize {
    match value {
        EntryValue::Inline(bytes) => bytes.len(),
        EntryValue::Stored(_) => 0,
    }
}

/// The nodes of one trie.
#[derive(Clone)]
pub(crate) struct Arena {
    pub(crate) branches: Slab<BranchNode>,
    pub(crate) extensions: Slab<ExtensionNode>,
    pub(crate) accounts: Slab<AccountNode>,
    pub(crate) rares: Slab<Rare>,
    pub(crate) slots: Slab<StorageNode>,
    pub(crate) stubs: Slab<Stub>,
    pub(crate) entries: Slab<EntryNode>,
    /// Bytes of inline values of entries.
    pub(crate) value_bytes: usize,
    /// Number of entries whose values are stored apart from their leaves.
    pub(crate) stored_values: usize,
    /// Accounts whose storage tries are divided: see `divide.rs`.
    pub(crate) divided: Vec<Key>,
    /// The nibble of the part that gets new nodes, if it is one of a divided storage trie.
    pub(crate) current: Option<usize>,
    /// What changes since the newest version did, if there are versions.
    pub(crate) sharing: Option<Box<Sharing>>,
}

/// Nodes that a version adds, and those of earlier versions that it does not have.
#[derive(Clone, Default)]
pub(crate) struct Sharing {
    /// Nodes added since the newest version. One that was freed again may be twice in the list.
    pub(crate) created: Vec<Link>,
    pub(crate) replaced: Vec<Link>,
}

impl Arena {
    pub(crate) const fn new() -> Self {
        Self {
            branches: Slab::new(),
            extensions: Slab::new(),
            accounts: Slab::new(),
            rares: Slab::new(),
            slots: Slab::new(),
            stubs: Slab::new(),
            entries: Slab::new(),
            value_bytes: 0,
            stored_values: 0,
            divided: Vec::new(),
            current: None,
            sharing: None,
        }
    }

    /// Makes the part of child `nibble` of a divided storage trie the place of new nodes, or none.
    pub(crate) fn enter(&mut self, nibble: Option<usize>) {
        self.current = nibble;
        self.branches.enter(nibble);
        self.extensions.enter(nibble);
        self.slots.enter(nibble);
        self.stubs.enter(nibble);
    }

    /// Takes out the parts of all divided storage tries.
    pub(crate) fn detach(&mut self) -> [Self; PARTS] {
        let mut branches = self.branches.detach();
        let mut extensions = self.extensions.detach();
        let mut slots = self.slots.detach();
        let mut stubs = self.stubs.detach();
        core::array::from_fn(|part| Self {
            branches: core::mem::replace(&mut branches[part], Slab::new()),
            extensions: core::mem::replace(&mut extensions[part], Slab::new()),
            slots: core::mem::replace(&mut slots[part], Slab::new()),
            stubs: core::mem::replace(&mut stubs[part], Slab::new()),
            ..Self::new()
        })
    }

    /// Puts back what [`Self::detach`] took out, in the same order.
    pub(crate) fn attach(&mut self, parts: Vec<Self>) {
        let (mut branches, mut extensions) = (Vec::new(), Vec::new());
        let (mut slots, mut stubs) = (Vec::new(), Vec::new());
        for part in parts {
            branches.push(part.branches);
            extensions.push(part.extensions);
            slots.push(part.slots);
            stubs.push(part.stubs);
        }
        self.branches.attach(branches.into_iter());
        self.extensions.attach(extensions.into_iter());
        self.slots.attach(slots.into_iter());
        self.stubs.attach(stubs.into_iter());
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.branches.memory_bytes()
            + self.extensions.memory_bytes()
            + self.accounts.memory_bytes()
            + self.rares.memory_bytes()
            + self.slots.memory_bytes()
            + self.stubs.memory_bytes()
            + self.entries.memory_bytes()
            + self.value_bytes
            + self.divided.capacity() * size_of::<Key>()
    }

    /// Returns whether there are entries whose values are stored apart from their leaves.
    pub(crate) const fn has_stored_values(&self) -> bool {
        self.stored_values > 0
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.branches.shrink_to_fit();
        self.extensions.shrink_to_fit();
        self.accounts.shrink_to_fit();
        self.rares.shrink_to_fit();
        self.slots.shrink_to_fit();
        self.stubs.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// The bytes of all nodes, and of freed ones.
    fn bytes(&self) -> (usize, usize) {
        let slabs = [
            self.branches.bytes(),
            self.extensions.bytes(),
            self.accounts.bytes(),
            self.rares.bytes(),
            self.slots.bytes(),
            self.stubs.bytes(),
            self.entries.bytes(),
        ];
        let sum = |(all, freed), (bytes, gone)| (all + bytes, freed + gone);
        slabs.into_iter().fold((0, 0), sum)
    }

    /// Returns whether freed nodes take more memory than all others.
    pub(crate) fn is_sparse(&self) -> bool {
        let (all, freed) = self.bytes();
        freed * 2 > all
    }

    /// Bytes of nodes that were not freed, and of their values.
    pub(crate) fn live_bytes(&self) -> usize {
        let (all, freed) = self.bytes();
        all - freed + self.value_bytes
    }

    /// Returns the number of expanded nodes and the number of blinded nodes.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let nodes = [
            self.branches.len(),
            self.extensions.len(),
            self.accounts.len(),
            self.entries.len(),
        ];
        (
            nodes.iter().sum::<usize>() + self.slots.len(),
            self.stubs.len(),
        )
    }

    pub(crate) fn add_branch(&mut self, children: [Link; 16]) -> Link {
        let index = self.branches.insert(BranchNode {
            children,
            unhashed: u16::MAX,
            memo: NodeRef::UNKNOWN,
            is_shared: false,
        });
        self.created(Link::branch(index))
    }

    /// Adds an extension from `start` to `end` (absolute positions) along `key`.
    pub(crate) fn add_extension(
        &mut self,
        start: usize,
        end: usize,
        key: Key,
        child: Link,
    ) -> Link {
        debug_assert!(start < end && end <= 2 * ACCOUNT_NIBBLES);
        let (start, end) = (start as u8, end as u8);
        let node = ExtensionNode {
            child,
            key,
            start,
            end,
            memo: NodeRef::UNKNOWN,
            is_shared: false,
        };
        let index = self.extensions.insert(node);
        self.created(Link::extension(index))
    }

    pub(crate) fn add_account(
        &mut self,
        depth: usize,
        key: Key,
        account: &Account,
        storage: Link,
    ) -> Link {
        let index = self.accounts.insert(AccountNode {
            key,
            memo: NodeRef::UNKNOWN,
            depth: depth as u8,
            mark: 0,
            is_shared: false,
            balance: [0; BALANCE_BYTES],
            nonce: 0,
            storage,
            rare: 0,
        });
        self.set_account(index, account);
        self.created(Link::account(index))
    }

    /// Sets the mark of the account behind `link`, which was just added.
    pub(crate) fn marked(&mut self, link: Link, mark: u8) -> Link {
        if let NodeId::Account(index) = link.id() {
            self.accounts[index].mark = mark;
        }
        link
    }

    pub(crate) fn add_slot(&mut self, depth: usize, key: Key, value: U256) -> Link {
        let (depth, value) = (depth as u8, value.to_be_bytes());
        let node = StorageNode {
            key,
            memo: NodeRef::UNKNOWN,
            depth,
            value,
            is_shared: false,
        };
        let index = self.slots.insert(node);
        self.created(Link::tagged(4, index))
    }

    /// Adds a copy of a slot's leaf.
    pub(crate) fn copy_slot(&mut self, index: u32) -> Link {
        let node = self.slots[index];
        Link::tagged(4, self.slots.insert(node))
    }

    pub(crate) fn add_stub(&mut self, stub: Stub) -> Link {
        Link::tagged(5, self.stubs.insert(stub))
    }

    pub(crate) fn add_entry(&mut self, depth: usize, key: Key, value: EntryValue) -> Link {
        self.value_bytes += inline_bytes(&value);
        self.stored_values += usize::from(is_stored(&value));
        let node = EntryNode {
            key,
            memo: NodeRef::UNKNOWN,
            depth: depth as u8,
            is_tombstone: false,
            is_shared: false,
            value,
        };
        let index = self.entries.insert(node);
        self.created(Link::tagged(6, index))
    }

    /// Adds a tombstone: see [`EntryNode::is_tombstone`].
    pub(crate) fn add_tombstone(&mut self, depth: usize, key: Key) -> Link {
        let link = self.add_entry(depth, key, EntryValue::Inline(Bytes::new()));
        if let NodeId::Entry(index) = link.id() {
            self.entries[index].is_tombstone = true;
        }
        link
    }

    /// Sets the value of the entry at `index`. The caller clears its cached reference.
    pub(crate) fn set_entry(&mut self, index: u32, value: EntryValue) {
        let node = &mut self.entries[index];
        self.value_bytes -= inline_bytes(&node.value);
        self.value_bytes += inline_bytes(&value);
        self.stored_values -= usize::from(is_stored(&node.value));
        self.stored_values += usize::from(is_stored(&value));
        node.value = value;
        node.is_tombstone = false;
    }

    /// Sets the fields of the account at `index`. The caller clears its cached reference.
    pub(crate) fn set_account(&mut self, index: u32, account: &Account) {
        let wide = account.balance.byte_len() > BALANCE_BYTES;
        let rare = wide || account.code_hash != KECCAK256_EMPTY;
        let node = &mut self.accounts[index];
        node.nonce = account.nonce;
        let balance = account.balance.to_be_bytes::<32>();
        node.balance = *balance.last_chunk().expect("12 of 32 bytes");
        let part = Rare {
            balance: account.balance,
            code_hash: account.code_hash,
        };
        match (node.rare.checked_sub(1), rare) {
            (None, false) => {}
            (None, true) => node.rare = self.rares.insert(part) + 1,
            (Some(at), true) => self.rares[at] = part,
            (Some(at), false) => {
                self.rares.remove(at);
                node.rare = 0;
            }
        }
    }

    /// Returns the fields of the account at `index`.
    pub(crate) fn account(&self, index: u32) -> Account {
        let node = &self.accounts[index];
        match node.rare.checked_sub(1) {
            Some(at) => {
                let Rare { balance, code_hash } = self.rares[at];
                Account {
                    nonce: node.nonce,
                    balance,
                    code_hash,
                }
            }
            None => Account {
                nonce: node.nonce,
                balance: U256::from_be_slice(&node.balance),
                code_hash: KECCAK256_EMPTY,
            },
        }
    }

    /// Removes the places from all blinded nodes.
    pub(crate) fn forget_places(&mut self) {
        self.stubs.iter_mut().for_each(|stub| stub.place = None);
    }

    /// Frees one node, but not its children. One that versions share is only noted.
    pub(crate) fn free_node(&mut self, link: Link) {
        if self.sharing.is_some() {
            // Of nodes that are not shared, so that the list of those that were added shows that this one is gone.
            let is_shared = self.share(link);
            if let (true, Some(sharing)) = (is_shared, &mut self.sharing) {
                sharing.replaced.push(link);
                return;
            }
        }
        match link.id() {
            NodeId::Empty => {}
            NodeId::Branch(index) => self.branches.remove(index),
            NodeId::Extension(index) => self.extensions.remove(index),
            NodeId::Account(index) => {
                if let Some(rare) = self.accounts[index].rare.checked_sub(1) {
                    self.rares.remove(rare);
                }
                self.accounts.remove(index);
            }
            NodeId::Storage(index) => self.slots.remove(index),
            NodeId::Stub(index) => self.stubs.remove(index),
            NodeId::Entry(index) => {
                // A freed node keeps no value.
                self.set_entry(index, EntryValue::Inline(Bytes::new()));
                self.entries.remove(index);
            }
        }
    }

    /// Frees a subtrie. Recursion is bounded by the path's 128 nibbles.
    pub(crate) fn free_subtrie(&mut self, link: Link) {
        match link.id() {
            NodeId::Branch(index) => {
                for child in self.branches[index].children {
                    self.free_subtrie(child);
                }
            }
            NodeId::Extension(index) => self.free_subtrie(self.extensions[index].child),
            NodeId::Account(index) => self.free_subtrie(self.accounts[index].storage),
            NodeId::Empty | NodeId::Storage(_) | NodeId::Stub(_) | NodeId::Entry(_) => {}
        }
        self.free_node(link);
    }

    /// Returns the cached reference of a node, or [`NodeRef::UNKNOWN`] if it has none or the link
    /// is empty.
    #[inline(always)]
    pub(crate) fn cached_ref(&self, link: Link) -> &NodeRef {
        match link.id() {
            NodeId::Empty => &NodeRef::UNKNOWN,
            NodeId::Branch(index) => &self.branches[index].memo,
            NodeId::Extension(index) => &self.extensions[index].memo,
            NodeId::Account(index) => &self.accounts[index].memo,
            NodeId::Storage(index) => &self.slots[index].memo,
            NodeId::Stub(index) => &self.stubs[index].node,
            NodeId::Entry(index) => &self.entries[index].memo,
        }
    }

    /// Calls `visit` with the index and the cached reference of each child of a branch. Visits the
    /// children type by type, since the processor can't predict the type of the next child.
    #[inline(always)]
    pub(crate) fn for_each_memo<'a>(
        &'a self,
        children: &[Link; 16],
        mut visit: impl FnMut(usize, &'a NodeRef),
    ) {
        // Sixteen bits for each type.
        let (mut low, mut high) = (0u64, 0u64);
        for (at, child) in children.iter().enumerate() {
            let tag = child.0 >> INDEX_BITS;
            let bit = 1 << ((tag & 3) * 16 + at as u32);
            low |= if tag < 4 { bit } else { 0 };
            high |= if tag < 4 { 0 } else { bit };
        }
        let index = |at: usize| children[at].0 & INDEX_MASK;
        bits((low >> 16) as u16).for_each(|at| visit(at, &self.branches[index(at)].memo));
        bits((low >> 32) as u16).for_each(|at| visit(at, &self.extensions[index(at)].memo));
        bits((low >> 48) as u16).for_each(|at| visit(at, &self.accounts[index(at)].memo));
        bits(high as u16).for_each(|at| visit(at, &self.slots[index(at)].memo));
        bits((high >> 16) as u16).for_each(|at| visit(at, &self.stubs[index(at)].node));
        bits((high >> 32) as u16).for_each(|at| visit(at, &self.entries[index(at)].memo));
    }

    /// Prefetches the references of a branch's children, and the whole nodes of those in `whole`.
    #[inline]
    pub(crate) fn prefetch_children(&self, children: &[Link; 16], whole: u16) {
        self.for_each_memo(children, |_, memo| prefetch(memo));
        bits(whole).for_each(|at| self.prefetch(children[at]));
    }

    /// Prefetches a whole node.
    #[inline]
    pub(crate) fn prefetch(&self, link: Link) {
        match link.id() {
            NodeId::Branch(index) => prefetch(&self.branches[index]),
            NodeId::Extension(index) => prefetch(&self.extensions[index]),
            NodeId::Account(index) => prefetch(&self.accounts[index]),
            NodeId::Storage(index) => prefetch(&self.slots[index]),
            NodeId::Entry(index) => prefetch(&self.entries[index]),
            NodeId::Empty | NodeId::Stub(_) => {}
        }
    }

    /// Sets the cached reference of an expanded node.
    pub(crate) fn set_cached_ref(&mut self, link: Link, memo: NodeRef) {
        match link.id() {
            NodeId::Branch(index) => self.branches[index].memo = memo,
            NodeId::Extension(index) => self.extensions[index].memo = memo,
            NodeId::Account(index) => self.accounts[index].memo = memo,
            NodeId::Storage(index) => self.slots[index].memo = memo,
            NodeId::Entry(index) => self.entries[index].memo = memo,
            NodeId::Empty | NodeId::Stub(_) => panic!("{link:?} has no memo to set"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn shared_nibbles_counts_to_the_first_difference() {
        let base = [0x11; 32];
        for at in 0..64 {
            let other = with_nibble(&base, at, 2);
            let cut = truncated(&base, at + 1);
            assert_eq!(shared_nibbles(&other, &base), at);
            assert_eq!(
                shared_nibbles(&cut, &base),
                if at == 63 { 64 } else { at + 1 }
            );
            assert_eq!((nibble(&base, at), nibble(&other, at)), (1, 2));
        }
    }

    #[test]
    fn an_account_keeps_its_fields_through_rare_and_common_forms() {
        let mut arena = Arena::new();
        let link = arena.add_account(0, [1; 32], &Account::default(), Link::EMPTY);
        let NodeId::Account(index) = link.id() else {
            panic!("not an account")
        };
        for account in [
            Account {
                nonce: u64::MAX,
                balance: (U256::ONE << 96) - U256::ONE,
                ..Account::default()
            },
            Account {
                nonce: 1,
                balance: U256::ONE << 96,
                ..Account::default()
            },
            Account {
                nonce: 2,
                balance: U256::MAX,
                code_hash: B256::repeat_byte(7),
            },
            Account::default(),
        ] {
            arena.set_account(index, &account);
            assert_eq!(arena.account(index), account);
        }
        assert_eq!(arena.rares.len(), 0);
        let stubs = vec![arena.add_stub(Stub::bare(NodeRef::hash(B256::ZERO))), link];
        stubs.into_iter().for_each(|link| arena.free_subtrie(link));
        assert_eq!(arena.counts(), (0, 0));
    }
}
