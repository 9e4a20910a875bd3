//! Applying the state changes of a block.
//!
//! The sorted changes are split over the children of each branch on the way down, so each node is
//! visited once, however many changes lie below it. Accounts and slots share all code above the
//! leaves.

use crate::{
    arena::{Key, Link, NodeId, nibble, shared_nibbles, with_nibble},
    error::{Mismatch, TrieError, UpdateError},
    node_ref::{NodeKind, NodeRef, Stub},
    partial::PartialTrie,
    resolve::Resolve,
    slots_job::SpreadSlots,
};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, AccountDiff, AccountUpdate, Path};

/// Most edits whose nodes are prefetched before they are applied: the nodes on their paths fit into
/// the second-level cache.
const AHEAD_EDITS: usize = 512;
/// Number of paths that are prefetched side by side.
const PATHS_AT_ONCE: usize = 32;

impl PartialTrie {
    /// Applies changes, which must be sorted by path and unique. Loads the absent subtries on their
    /// paths, and clears the cached references of all nodes above them.
    ///
    /// # Errors
    ///
    /// Returns an error if the changes are unsorted, outside the trie, or set slots of an account
    /// that does not exist, or if loading a subtrie fails. If it fails after the changes were
    /// checked, the trie is replaced by a single blinded node of unknown reference, and must be
    /// discarded.
    pub fn apply<R: Resolve>(
        &mut self,
        changes: &[AccountDiff],
        resolver: &mut R,
    ) -> Result<(), UpdateError<R::Error>> {
        self.apply_with(changes, resolver, None)
    }

    /// Like [`PartialTrie::apply`], but divides storage tries with many changed slots, and changes their parts on the
    /// threads of `spread`.
    ///
    /// # Errors
    ///
    /// As [`PartialTrie::apply`].
    pub fn apply_with<R: Resolve>(
        &mut self,
        changes: &[AccountDiff],
        resolver: &mut R,
        spread: Option<&dyn SpreadSlots<R>>,
    ) -> Result<(), UpdateError<R::Error>> {
        self.check_changes(changes)?;
        let edited = self.edit_root(changes, resolver, spread);
        if edited.is_err() {
            *self = Self::from_stub(self.base, Stub::bare(NodeRef::UNKNOWN));
        }
        edited
    }

    /// Applies changes that were checked. After an error the root is as before, and nodes may have been changed, or added
    /// that nothing links to.
    pub(crate) fn edit_root<R: Resolve>(
        &mut self,
        changes: &[AccountDiff],
        resolver: &mut R,
        spread: Option<&dyn SpreadSlots<R>>,
    ) -> Result<(), UpdateError<R::Error>> {
        let Some(first) = changes.first() else {
            return Ok(());
        };
        let mut cx = Context {
            resolver,
            account: first.path,
            spread,
        };
        let (root, depth) = (self.root, self.base.len());
        if changes.len() <= AHEAD_EDITS {
            self.prefetch_paths(root, depth, changes);
        }
        self.root = self.edit(&mut cx, root, depth, changes)?;
        Ok(())
    }

    pub(crate) fn check_changes(&self, changes: &[AccountDiff]) -> Result<(), TrieError> {
        for ends in [changes.first(), changes.last()].into_iter().flatten() {
            let path = Path::account(&ends.path);
            // A trie based at an account's path or below is one of slots alone.
            if !path.starts_with(&self.base) || self.base.len() >= ACCOUNT_NIBBLES {
                return Err(TrieError::Outside {
                    path,
                    under: Box::new(self.base),
                });
            }
        }
        for pair in changes.windows(2) {
            if pair[0].path >= pair[1].path {
                return Err(TrieError::Unsorted {
                    path: Path::account(&pair[1].path),
                });
            }
        }
        for change in changes {
            for pair in change.slots.windows(2) {
                if pair[0].0 >= pair[1].0 {
                    let path = Path::slot(&change.path, &pair[1].0);
                    return Err(TrieError::Unsorted { path });
                }
            }
        }
        Ok(())
    }

    /// Applies `edits`, which are not empty, to the node at `link`, at depth `depth` of their keys.
    /// Returns the node that replaces it.
    pub(crate) fn edit<E: Edit, R: Resolve>(
        &mut self,
        cx: &mut Context<'_, R>,
        link: Link,
        depth: usize,
        edits: &[E],
    ) -> Result<Link, UpdateError<R::Error>> {
        match link.id() {
            NodeId::Branch(_) => match self.arena.own(link).id() {
                NodeId::Branch(index) => self.edit_branch(cx, index, depth, edits),
                _ => unreachable!("the copy of a branch"),
            },
            NodeId::Extension(_) => match self.arena.own(link).id() {
                NodeId::Extension(index) => self.edit_extension(cx, index, depth, edits),
                _ => unreachable!("the copy of an extension"),
            },
            NodeId::Stub(_) => {
                let path = E::path(&cx.account, edits[0].key(), depth);
                let link = self.expand(link, &path, cx.resolver)?;
                self.edit(cx, link, depth, edits)
            }
            NodeId::Empty | NodeId::Account(_) | NodeId::Storage(_) | NodeId::Entry(_) => {
                self.edit_leaf(cx, link, depth, edits)
            }
        }
    }

    fn edit_branch<E: Edit, R: Resolve>(
        &mut self,
        cx: &mut Context<'_, R>,
        index: u32,
        depth: usize,
        edits: &[E],
    ) -> Result<Link, UpdateError<R::Error>> {
        self.arena.branches[index].memo = NodeRef::UNKNOWN;
        let mut rest = edits;
        while let Some(first) = rest.first() {
            let at = nibble(first.key(), depth);
            let len = rest.partition_point(|edit| nibble(edit.key(), depth) == at);
            let (group, others) = rest.split_at(len);
            let child = self.arena.branches[index].children[at];
            if edits.len() > AHEAD_EDITS && group.len() <= AHEAD_EDITS {
                self.prefetch_paths(child, depth + 1, group);
            }
            let child = self.edit(cx, child, depth + 1, group)?;
            let node = &mut self.arena.branches[index];
            node.children[at] = child;
            node.unhashed |= 1 << at;
            rest = others;
        }
        self.collapse::<E, R>(cx, index, depth, edits[0].key())
    }

    /// Prefetches the nodes on the paths of `edits` from the node at `link` down, which is at depth `depth`
    /// of their keys: of many paths at a time, level by level.
    pub(crate) fn prefetch_paths<E: Edit>(&self, link: Link, depth: usize, edits: &[E]) {
        for edits in edits.chunks(PATHS_AT_ONCE) {
            let mut places = [(link, depth); PATHS_AT_ONCE];
            let mut goes_on = true;
            while core::mem::take(&mut goes_on) {
                for (edit, (link, depth)) in edits.iter().zip(&mut places) {
                    (*link, *depth) = match link.id() {
                        NodeId::Branch(index) => {
                            let at = nibble(edit.key(), *depth);
                            (self.arena.branches[index].children[at], *depth + 1)
                        }
                        NodeId::Extension(index) => {
                            let node = &self.arena.extensions[index];
                            (node.child, usize::from(node.end) - E::LEVEL)
                        }
                        _ => continue,
                    };
                    self.arena.prefetch(*link);
                    goes_on = true;
                }
            }
        }
    }

    /// Brings a branch into canonical form: unchanged if it has two children or more, removed if it
    /// has none, and replaced by its only child, moved up to `depth`, if it has one.
    pub(crate) fn collapse<E: Edit, R: Resolve>(
        &mut self,
        cx: &mut Context<'_, R>,
        index: u32,
        depth: usize,
        key: &Key,
    ) -> Result<Link, UpdateError<R::Error>> {
        let children = &self.arena.branches[index].children;
        let mut present = (0..16).filter(|&at| !children[at].is_empty());
        let (only, more) = (present.next(), present.next());
        let branch = Link::branch(index);
        if more.is_some() {
            return Ok(branch);
        }
        let Some(only) = only else {
            self.arena.free_node(branch);
            return Ok(Link::EMPTY);
        };
        let mut child = children[only];
        let key = with_nibble(key, depth, only);
        if child.is_stub() && self.kind(child) != Some(NodeKind::Branch) {
            let path = E::path(&cx.account, &key, depth + 1);
            child = self.expand(child, &path, cx.resolver)?;
        }
        self.arena.free_node(branch);
        Ok(self.lift(child, E::LEVEL, depth + 1, depth, &key))
    }

    fn edit_extension<E: Edit, R: Resolve>(
        &mut self,
        cx: &mut Context<'_, R>,
        index: u32,
        depth: usize,
        edits: &[E],
    ) -> Result<Link, UpdateError<R::Error>> {
        let node = &self.arena.extensions[index];
        let (key, child, end) = (node.key, node.child, usize::from(node.end) - E::LEVEL);
        let ends = [edits[0].key(), edits[edits.len() - 1].key()];
        let fork = ends
            .map(|edit| shared_nibbles(edit, &key))
            .into_iter()
            .min()
            .unwrap_or(end);
        self.arena.extensions[index].memo = NodeRef::UNKNOWN;
        if fork >= end {
            let child = self.edit(cx, child, end, edits)?;
            if self.kind(child) == Some(NodeKind::Branch) {
                self.arena.extensions[index].child = child;
                return Ok(Link::extension(index));
            }
            self.arena.free_node(Link::extension(index));
            return Ok(self.lift(child, E::LEVEL, end, depth, &key));
        }
        // Some edit leaves the extension at `fork`: a branch is needed there.
        let mut children = [Link::EMPTY; 16];
        children[nibble(&key, fork)] = if fork + 1 < end {
            self.arena.extensions[index].start = (E::LEVEL + fork + 1) as u8;
            Link::extension(index)
        } else {
            self.arena.free_node(Link::extension(index));
            child
        };
        let NodeId::Branch(branch) = self.arena.add_branch(children).id() else {
            unreachable!("a branch was added")
        };
        let forked = self.edit_branch(cx, branch, fork, edits)?;
        Ok(self.lift(forked, E::LEVEL, fork, depth, &key))
    }

    /// Applies edits to an empty subtrie or a single leaf.
    fn edit_leaf<E: Edit, R: Resolve>(
        &mut self,
        cx: &mut Context<'_, R>,
        link: Link,
        depth: usize,
        edits: &[E],
    ) -> Result<Link, UpdateError<R::Error>> {
        let mut there = Some(link).filter(|link| !link.is_empty());
        let key = there.map(|link| *self.leaf_key(link));
        if let [edit] = edits
            && key.is_none_or(|key| key == *edit.key())
        {
            let link = edit.settle(self, cx, link, depth)?;
            return Ok(self.set_leaf_depth(link, depth));
        }
        let mut leaves = Vec::with_capacity(edits.len() + 1);
        for edit in edits {
            if key.is_some_and(|key| key < *edit.key()) {
                leaves.extend(there.take());
            }
            let mine = if key == Some(*edit.key()) {
                there.take()
            } else {
                None
            };
            let leaf = edit.settle(self, cx, mine.unwrap_or(Link::EMPTY), depth)?;
            leaves.extend(Some(leaf).filter(|leaf| !leaf.is_empty()));
        }
        leaves.extend(there);
        Ok(self.join_leaves(E::LEVEL, depth, &leaves))
    }

    /// Loads the subtrie of the blinded node at `link`, and frees the blinded node. The caller sets
    /// the link of its parent.
    pub(crate) fn expand<R: Resolve>(
        &mut self,
        link: Link,
        path: &Path,
        resolver: &mut R,
    ) -> Result<Link, UpdateError<R::Error>> {
        let NodeId::Stub(index) = link.id() else {
            unreachable!("{link:?} is no stub")
        };
        let stub = self.arena.stubs[index];
        let part = match path.account_part() {
            Some(account) if path.len() > ACCOUNT_NIBBLES && self.is_divided(&account.0) => {
                Some(path.nibble(ACCOUNT_NIBBLES).into())
            }
            _ => None,
        };
        let around = self.arena.current;
        if part.is_some() {
            self.arena.enter(part);
        }
        let loaded = resolver.resolve(path, &stub, self);
        if part.is_some() {
            self.arena.enter(around);
        }
        let loaded = loaded.map_err(UpdateError::Resolve)?;
        self.check_loaded(loaded, path, &stub)?;
        self.arena.free_node(link);
        Ok(loaded)
    }

    fn check_loaded(&mut self, loaded: Link, path: &Path, stub: &Stub) -> Result<(), TrieError> {
        let depth = match loaded.id() {
            NodeId::Branch(_) => path.len(),
            NodeId::Extension(index) => self.arena.extensions[index].start.into(),
            NodeId::Account(index) => self.arena.accounts[index].depth.into(),
            NodeId::Entry(index) => self.arena.entries[index].depth.into(),
            NodeId::Storage(index) => ACCOUNT_NIBBLES + usize::from(self.arena.slots[index].depth),
            NodeId::Empty | NodeId::Stub(_) => return Err(TrieError::Misplaced { path: *path }),
        };
        let kind_known = stub.kind.is_none() || stub.kind == self.kind(loaded);
        // A path of 64 nibbles is a storage root's.
        let is_leaf_at_64 = depth == ACCOUNT_NIBBLES
            && matches!(loaded.id(), NodeId::Account(_) | NodeId::Entry(_));
        if depth != path.len() || !kind_known || is_leaf_at_64 {
            return Err(TrieError::Misplaced { path: *path });
        }
        match self.cached_ref(loaded) {
            None => {
                self.set_cached_ref(loaded, stub.node);
                Ok(())
            }
            Some(got) if got == stub.node => Ok(()),
            Some(got) => {
                let mismatch = Mismatch {
                    path: *path,
                    expected: stub.node,
                    got,
                };
                Err(TrieError::Mismatch(Box::new(mismatch)))
            }
        }
    }
}

/// Context of an update, constant on the way down.
pub(crate) struct Context<'a, R> {
    pub(crate) resolver: &'a mut R,
    /// The account whose slots are being edited.
    pub(crate) account: B256,
    /// The threads for large storage tries.
    pub(crate) spread: Option<&'a dyn SpreadSlots<R>>,
}

/// A change of one leaf.
pub(crate) trait Edit {
    /// Depth at which the leaf's key begins: 0 for accounts, 64 for slots.
    const LEVEL: usize;

    fn key(&self) -> &Key;

    /// The path of the first `depth` nibbles of `key`.
    fn path(account: &B256, key: &Key, depth: usize) -> Path;

    /// Applies the change to the leaf at `leaf`, which may be empty. Returns the new leaf, or an
    /// empty link.
    fn settle<R: Resolve>(
        &self,
        trie: &mut PartialTrie,
        cx: &mut Context<'_, R>,
        leaf: Link,
        depth: usize,
    ) -> Result<Link, UpdateError<R::Error>>;
}

impl Edit for (B256, U256) {
    const LEVEL: usize = ACCOUNT_NIBBLES;

    fn key(&self) -> &Key {
        &self.0.0
    }

    fn path(account: &B256, key: &Key, depth: usize) -> Path {
        Path::slot(account, &B256::from(*key)).prefix(ACCOUNT_NIBBLES + depth)
    }

    fn settle<R: Resolve>(
        &self,
        trie: &mut PartialTrie,
        _cx: &mut Context<'_, R>,
        leaf: Link,
        depth: usize,
    ) -> Result<Link, UpdateError<R::Error>> {
        let (key, value) = self;
        if value.is_zero() {
            trie.arena.free_node(leaf);
            return Ok(Link::EMPTY);
        }
        let leaf = trie.arena.own(leaf);
        let NodeId::Storage(index) = leaf.id() else {
            return Ok(trie.arena.add_slot(depth, key.0, *value));
        };
        let node = &mut trie.arena.slots[index];
        node.value = value.to_be_bytes();
        node.memo = NodeRef::UNKNOWN;
        Ok(leaf)
    }
}

impl Edit for AccountDiff {
    const LEVEL: usize = 0;

    fn key(&self) -> &Key {
        &self.path.0
    }

    fn path(_account: &B256, key: &Key, depth: usize) -> Path {
        Path::account(&B256::from(*key)).prefix(depth)
    }

    fn settle<R: Resolve>(
        &self,
        trie: &mut PartialTrie,
        cx: &mut Context<'_, R>,
        leaf: Link,
        depth: usize,
    ) -> Result<Link, UpdateError<R::Error>> {
        let keeps_storage = matches!(
            (leaf.id(), &self.account),
            (
                NodeId::Account(_),
                AccountUpdate::Keep | AccountUpdate::Put(_)
            )
        );
        if self.wipe || !keeps_storage {
            trie.end_division(&self.path.0);
        }
        let changes = match &self.account {
            AccountUpdate::Delete => false,
            AccountUpdate::Keep => keeps_storage,
            AccountUpdate::Put(_) | AccountUpdate::Entry(_) => true,
        };
        let leaf = match changes {
            true => trie.arena.own(leaf),
            false => leaf,
        };
        let index = match (leaf.id(), &self.account) {
            (_, AccountUpdate::Delete) => {
                trie.arena.free_subtrie(leaf);
                return Ok(Link::EMPTY);
            }
            (NodeId::Entry(index), AccountUpdate::Entry(value)) => {
                trie.arena.set_entry(index, value.clone());
                trie.arena.entries[index].memo = NodeRef::UNKNOWN;
                return Ok(leaf);
            }
            (_, AccountUpdate::Entry(value)) => {
                trie.arena.free_subtrie(leaf);
                return Ok(trie.arena.add_entry(depth, self.path.0, value.clone()));
            }
            (NodeId::Entry(_), AccountUpdate::Keep) if self.slots.is_empty() => return Ok(leaf),
            (NodeId::Account(index), AccountUpdate::Keep) => index,
            (NodeId::Account(index), AccountUpdate::Put(account)) => {
                trie.arena.set_account(index, account);
                index
            }
            (_, AccountUpdate::Keep) => {
                if self.slots.iter().any(|(_, value)| !value.is_zero()) {
                    let path = Path::account(&self.path);
                    return Err(TrieError::NoAccount { path }.into());
                }
                return Ok(Link::EMPTY);
            }
            (_, AccountUpdate::Put(account)) => {
                trie.arena.free_subtrie(leaf);
                let added = trie
                    .arena
                    .add_account(depth, self.path.0, account, Link::EMPTY);
                let NodeId::Account(index) = added.id() else {
                    unreachable!("an account was added")
                };
                index
            }
        };
        let node = &mut trie.arena.accounts[index];
        node.memo = NodeRef::UNKNOWN;
        let mut storage = node.storage;
        if self.wipe {
            trie.arena.free_subtrie(storage);
            storage = Link::EMPTY;
        }
        if !self.slots.is_empty() {
            cx.account = self.path;
            storage = trie.edit_storage(cx, storage, &self.slots)?;
        }
        trie.arena.accounts[index].storage = storage;
        Ok(Link::account(index))
    }
}
