//! Versions of a trie in one arena: each costs the nodes on its changed paths, and shares all others.
//!
//! ```text
//!   root of version 1      root of version 2, a child of 1
//!        /    \    \          /   |
//!       .      .    `--------'    .        a node that changes is copied, up to the root
//!      / \    / \                / \
//!     .   .  .   `--------------'   .
//! ```
//!
//! A node that belongs to a version never changes again ([`Arena::own`](crate::arena)). So reading a version needs nothing but its
//! root, whatever the number of versions.
//!
//! Nodes need no counts of references. Versions form a tree, from which only leaves are dropped (a branch of the chain that lost) and
//! the root is retired (what is final). The nodes that a version *added* are its own and those of versions above it: they go
//! with it if it is dropped. The nodes that it *replaced* belong to versions below it: once these are gone, and all
//! others that branched off there, nobody has them.

use crate::{
    arena::{Link, NodeId, Sharing, nibble, shared_nibbles},
    error::TrieError,
    graft::LeafValue,
    hash::{Spread, commit_with},
    node_ref::NodeRef,
    partial::{Lookup, PartialTrie},
    range::LeafRange,
    resolve::NoResolve,
};
use alloc::{boxed::Box, vec, vec::Vec};
use alloy_primitives::{B256, U256};
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, AccountDiff, Path};
use core::ops::ControlFlow;

/// Number of look-ups that go on side by side, so that each waits for memory while the others do.
const LOOKUPS_AT_ONCE: usize = 16;

/// A trie in several versions. It has no blinded nodes.
#[derive(Debug)]
pub struct VersionedTrie {
    trie: PartialTrie,
}

/// A version of a [`VersionedTrie`]. It ends by [`VersionedTrie::remove`] or [`VersionedTrie::retire`]; its nodes stay in
/// memory if it is just dropped.
#[derive(Debug)]
pub struct Version {
    root: Link,
    /// Nodes that it added to its parent, or nothing if it is the first version.
    created: Vec<Link>,
    /// Nodes of its parent that it lacks.
    replaced: Vec<Link>,
}

/// A version in the making. If it is dropped, everything is as before.
#[derive(Debug)]
pub struct Draft<'t> {
    versions: &'t mut VersionedTrie,
    is_ended: bool,
}

impl Draft<'_> {
    /// Applies sorted changes.
    ///
    /// # Errors
    ///
    /// If the changes are unsorted, outside the trie, or set slots of an account that does not exist. The draft must be dropped
    /// then.
    pub fn put(&mut self, changes: &[AccountDiff]) -> Result<(), TrieError> {
        let trie = &mut self.versions.trie;
        trie.check_changes(changes)?;
        Ok(trie.edit_root(changes, &mut NoResolve, None)?)
    }

    /// Hashes the draft, and makes it a version.
    pub fn end(mut self, spread: &dyn Spread) -> Version {
        self.is_ended = true;
        commit_with(&mut [&mut self.versions.trie], &mut Batch::new(), spread);
        self.versions.seal()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.versions.undo();
        }
    }
}

/// One version, to be read.
#[derive(Clone, Copy, Debug)]
pub struct VersionView<'t> {
    pub(crate) trie: &'t PartialTrie,
    pub(crate) root: Link,
}

impl VersionedTrie {
    /// Makes a hashed trie without blinded nodes the first version.
    ///
    /// # Errors
    ///
    /// [`TrieError::NotHashed`] if it is not hashed, and [`TrieError::NoNode`] if it has blinded nodes.
    pub fn new(mut trie: PartialTrie) -> Result<(Self, Version), TrieError> {
        let path = trie.base;
        if trie.counts().1 > 0 {
            return Err(TrieError::NoNode { path });
        }
        if !trie.root.is_empty() && trie.cached_ref(trie.root).is_none() {
            return Err(TrieError::NotHashed { path });
        }
        // Nodes that came with their references may be above others without.
        trie.hash_all(&mut Batch::new());
        trie.arena.divided.clear();
        trie.arena.share_all();
        trie.arena.sharing = Some(Box::default());
        let version = Version {
            root: trie.root,
            created: Vec::new(),
            replaced: Vec::new(),
        };
        Ok((Self { trie }, version))
    }

    /// Makes a version: `parent` with sorted `changes`. It is hashed. After an error, everything is as before.
    ///
    /// # Errors
    ///
    /// If the changes are unsorted, outside the trie, or set slots of an account that does not exist.
    pub fn child(
        &mut self,
        parent: &Version,
        changes: &[AccountDiff],
        spread: &dyn Spread,
    ) -> Result<Version, TrieError> {
        let mut draft = self.draft(parent);
        draft.put(changes)?;
        Ok(draft.end(spread))
    }

    /// Begins a version that starts as `parent` is. Nothing is hashed before it ends.
    pub fn draft(&mut self, parent: &Version) -> Draft<'_> {
        // Of a draft that was forgotten.
        self.undo();
        self.trie.root = parent.root;
        Draft {
            versions: self,
            is_ended: false,
        }
    }

    /// Frees what was added since the newest version: nothing links to it.
    fn undo(&mut self) {
        let Sharing { created, .. } = self.take_sharing();
        for link in created {
            // A node that was freed counts as shared.
            if !self.trie.arena.share(link) {
                self.trie.arena.free_all([link]);
            }
        }
        self.take_sharing();
    }

    /// Ends the changes that make a version.
    fn seal(&mut self) -> Version {
        let Sharing { created, replaced } = self.take_sharing();
        // A node that was freed counts as shared, and one that was added at its place afterwards counts once.
        let mut own = Vec::new();
        for link in created {
            if !self.trie.arena.share(link) {
                own.push(link);
            }
        }
        own.shrink_to_fit();
        Version {
            root: self.trie.root,
            created: own,
            replaced,
        }
    }

    fn take_sharing(&mut self) -> Sharing {
        let sharing = self.trie.arena.sharing.as_deref_mut();
        sharing.map(core::mem::take).unwrap_or_default()
    }

    /// Removes a version that has no children.
    pub fn remove(&mut self, version: Version) {
        self.undo();
        self.trie.arena.free_all(version.created);
        self.take_sharing();
    }

    /// Removes the oldest version, of which `child` is the only child that is left.
    pub fn retire(&mut self, oldest: Version, child: &mut Version) {
        drop(oldest);
        self.trie
            .arena
            .free_all(core::mem::take(&mut child.replaced));
        child.created = Vec::new();
        self.take_sharing();
    }

    /// A version, to be read.
    pub fn at(&self, version: &Version) -> VersionView<'_> {
        VersionView {
            trie: &self.trie,
            root: version.root,
        }
    }

    /// Bytes of memory of all versions, without the lists that [`Version::memory_bytes`] tells.
    pub fn memory_bytes(&self) -> usize {
        self.trie.memory_bytes()
    }

    /// Bytes of the nodes of all versions. Memory that was freed is used again, and not counted.
    pub fn live_bytes(&self) -> usize {
        self.trie.arena.live_bytes()
    }

    /// Number of nodes of all versions.
    pub fn nodes(&self) -> usize {
        self.trie.counts().0
    }
}

impl Version {
    /// Bytes of the lists of nodes that it has added and replaced.
    pub fn memory_bytes(&self) -> usize {
        (self.created.capacity() + self.replaced.capacity()) * size_of::<Link>()
    }
}

impl<'t> VersionView<'t> {
    /// The reference to the root, at the depth of the trie's base; `None` if the version is empty.
    pub fn root_ref(&self) -> Option<NodeRef> {
        self.trie.cached_ref(self.root)
    }

    /// The reference that the root would have if the version's leaves were the only ones below the first nibbles of
    /// the base, without its last `prefix_nibbles`.
    pub fn root_ref_with_prefix(&self, prefix_nibbles: usize) -> Option<NodeRef> {
        self.trie.root_ref_with_prefix_at(self.root, prefix_nibbles)
    }

    /// Returns the account at `path`, with its storage root; `None` if it does not exist.
    pub fn account(&self, path: &B256) -> Option<(Account, B256)> {
        match self.trie.walk(self.root, &path.0, self.trie.base.len()).0 {
            NodeId::Account(index) => Some(self.account_at(index)),
            _ => None,
        }
    }

    fn account_at(&self, index: u32) -> (Account, B256) {
        let storage = self.trie.arena.accounts[index].storage;
        let root = self.trie.storage_root_at(storage);
        let root = root.expect("versions are hashed");
        (self.trie.arena.account(index), root)
    }

    /// Returns many accounts, in the order of `paths`. Their look-ups wait for memory together.
    pub fn accounts(&self, paths: &[B256]) -> Vec<Option<(Account, B256)>> {
        let depth = self.trie.base.len();
        let mut found = vec![None; paths.len()];
        for (paths, found) in paths
            .chunks(LOOKUPS_AT_ONCE)
            .zip(found.chunks_mut(LOOKUPS_AT_ONCE))
        {
            let mut places = [(self.root, depth); LOOKUPS_AT_ONCE];
            self.descend_together(paths, &mut places);
            for ((path, (link, _)), found) in paths.iter().zip(places).zip(found) {
                if let NodeId::Account(index) = link.id()
                    && self.trie.arena.accounts[index].key == path.0
                {
                    *found = Some(self.account_at(index));
                }
            }
        }
        found
    }

    /// Walks along the keys from their places to leaves or nothing.
    fn descend_together(&self, keys: &[B256], places: &mut [(Link, usize)]) {
        let arena = &self.trie.arena;
        let mut goes_on = true;
        while core::mem::take(&mut goes_on) {
            for (key, (link, depth)) in keys.iter().zip(&mut *places) {
                (*link, *depth) = match link.id() {
                    NodeId::Branch(index) => {
                        let children = &arena.branches[index].children;
                        (children[nibble(&key.0, *depth)], *depth + 1)
                    }
                    NodeId::Extension(index) => {
                        let node = &arena.extensions[index];
                        let end = usize::from(node.end) - node.level();
                        match shared_nibbles(&node.key, &key.0) < end {
                            true => (Link::EMPTY, end),
                            false => (node.child, end),
                        }
                    }
                    _ => continue,
                };
                arena.prefetch(*link);
                goes_on = true;
            }
        }
    }

    /// Returns the value of a slot; zero if there is none.
    pub fn slot(&self, account: &B256, slot: &B256) -> U256 {
        self.slots(account, core::slice::from_ref(slot))[0]
    }

    /// Returns the values of slots of one account, in the order of `slots`.
    pub fn slots(&self, account: &B256, slots: &[B256]) -> Vec<U256> {
        let depth = self.trie.base.len();
        let storage = match self.trie.walk(self.root, &account.0, depth).0 {
            NodeId::Account(index) => self.trie.arena.accounts[index].storage,
            _ => Link::EMPTY,
        };
        let mut values = vec![U256::ZERO; slots.len()];
        for (slots, values) in slots
            .chunks(LOOKUPS_AT_ONCE)
            .zip(values.chunks_mut(LOOKUPS_AT_ONCE))
        {
            let mut places = [(storage, 0); LOOKUPS_AT_ONCE];
            self.descend_together(slots, &mut places);
            for ((slot, (link, _)), value) in slots.iter().zip(places).zip(values) {
                if let NodeId::Storage(index) = link.id()
                    && self.trie.arena.slots[index].key == slot.0
                {
                    *value = U256::from_be_bytes(self.trie.arena.slots[index].value);
                }
            }
        }
        values
    }

    /// Visits the leaves of a range in the order of their paths, until `visit` breaks.
    ///
    /// # Panics
    ///
    /// Never: versions have no blinded nodes.
    pub fn visit_range(
        &self,
        range: &LeafRange,
        visit: &mut dyn FnMut(&B256, LeafValue) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let visited = self.trie.visit_range_from(self.root, range, visit);
        visited.expect("versions have no blinded nodes")
    }

    /// Looks up the account (64 nibbles) or slot (128 nibbles) at a path below the base.
    pub fn lookup(&self, full: &Path) -> Lookup<'t> {
        self.trie.lookup_from(self.root, full)
    }

    /// A copy of the nodes at depths below `accounts`, above blinded nodes: what a reader keeps. Those of storage tries are blinded.
    pub fn to_trie_above(&self, accounts: u8) -> PartialTrie {
        let mut copy = PartialTrie::new(self.trie.base).committed_by(self.trie.commitment);
        copy.root = self.copy_above(&mut copy, self.root, self.trie.base.len(), accounts.into());
        copy
    }

    fn copy_above(&self, copy: &mut PartialTrie, link: Link, depth: usize, level: usize) -> Link {
        let node = *self.trie.arena.cached_ref(link);
        if link.is_empty() || depth >= level && node.as_hash().is_some() && depth < ACCOUNT_NIBBLES
        {
            return match self.trie.as_stub(link) {
                Some(stub) => copy.push_stub(stub),
                None => Link::EMPTY,
            };
        }
        let copied = match link.id() {
            NodeId::Branch(index) => {
                let children = self.trie.arena.branches[index].children;
                let children = children.map(|child| self.copy_above(copy, child, depth + 1, level));
                copy.push_branch(children)
            }
            NodeId::Extension(index) => {
                let node = &self.trie.arena.extensions[index];
                let (start, end) = (usize::from(node.start), usize::from(node.end));
                let child = self.copy_above(copy, node.child, end, level);
                copy.arena.add_extension(start, end, node.key, child)
            }
            _ => return copy.graft_node(self.trie, link).unwrap_or(Link::EMPTY),
        };
        copy.arena.set_cached_ref(copied, node);
        copied
    }

    /// A copy of the version with nodes of its own.
    pub fn to_trie(&self) -> PartialTrie {
        let mut copy = PartialTrie::new(self.trie.base).committed_by(self.trie.commitment);
        copy.root = copy.graft_subtrie(self.trie, self.root);
        copy
    }
}
