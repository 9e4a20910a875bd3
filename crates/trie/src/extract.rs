//! Extraction of the part of a trie that proofs and witnesses of some leaves consist of.

use crate::{
    arena::{Key, Link, NodeId, nibble, shared_nibbles},
    binary_proof::lone_leaves,
    commitment::Commitment,
    error::{TrieError, UpdateError},
    node_ref::Stub,
    partial::{Lookup, PartialTrie},
    resolve::Resolve,
};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, AccountDiff, AccountUpdate, Path};

/// Proof targets: paths of accounts, each with paths of its slots, sorted and unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProofTargets(Vec<(B256, Vec<B256>)>);

impl ProofTargets {
    /// Creates targets from `(keccak(address), keccak(slot)..)` in any order. Accounts may repeat.
    pub fn new(mut accounts: Vec<(B256, Vec<B256>)>) -> Self {
        accounts.sort_by_key(|(account, _)| *account);
        accounts.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                first.1.append(&mut later.1);
            }
            same
        });
        for (_, slots) in &mut accounts {
            slots.sort_unstable();
            slots.dedup();
        }
        Self(accounts)
    }

    /// Returns the accounts and slots that `changes` change.
    pub fn of_changes(changes: &[AccountDiff]) -> Self {
        let slots = |change: &AccountDiff| change.slots.iter().map(|(slot, _)| *slot).collect();
        Self::new(
            changes
                .iter()
                .map(|change| (change.path, slots(change)))
                .collect(),
        )
    }

    /// Returns the accounts and slots that `changes` delete, if they are there.
    pub fn of_deletes(changes: &[AccountDiff]) -> Self {
        let deletes = changes.iter().filter_map(|change| {
            let zeros = change.slots.iter().filter(|(_, value)| value.is_zero());
            let slots: Vec<_> = zeros.map(|(slot, _)| *slot).collect();
            let is_deleted = change.account == AccountUpdate::Delete;
            (is_deleted || !slots.is_empty()).then_some((change.path, slots))
        });
        Self::new(deletes.collect())
    }

    /// Returns the targets, sorted by path.
    pub fn accounts(&self) -> &[(B256, Vec<B256>)] {
        &self.0
    }

    /// Returns the union of both.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        self.0.extend_from_slice(&others.0);
        Self::new(self.0)
    }
}

/// One target, an account or a slot.
pub(crate) trait Name {
    /// Depth at which the key begins: 0 for accounts, 64 for slots.
    const LEVEL: usize;

    fn key(&self) -> &Key;

    /// The path of the first `depth` nibbles of `key`.
    fn path(account: &B256, key: &Key, depth: usize) -> Path;

    /// The slots named below an account.
    fn slots(&self) -> &[B256];
}

impl Name for (B256, Vec<B256>) {
    const LEVEL: usize = 0;

    fn key(&self) -> &Key {
        &self.0.0
    }

    fn path(_account: &B256, key: &Key, depth: usize) -> Path {
        Path::account(&B256::from(*key)).prefix(depth)
    }

    fn slots(&self) -> &[B256] {
        &self.1
    }
}

impl Name for B256 {
    const LEVEL: usize = ACCOUNT_NIBBLES;

    fn key(&self) -> &Key {
        &self.0
    }

    fn path(account: &B256, key: &Key, depth: usize) -> Path {
        Path::slot(account, &Self::from(*key)).prefix(ACCOUNT_NIBBLES + depth)
    }

    fn slots(&self) -> &[B256] {
        &[]
    }
}

/// Returns the targets among `names` below an extension to `end` along `key`.
pub(crate) fn below<'a, N: Name>(names: &'a [N], key: &Key, end: usize) -> &'a [N] {
    let inside = |name: &N| shared_nibbles(name.key(), key) >= end;
    let start = names.partition_point(|name| !inside(name) && name.key() < key);
    let len = names[start..].partition_point(inside);
    &names[start..start + len]
}

/// Groups targets by their nibble at `depth`.
pub(crate) fn by_nibble<N: Name>(names: &[N], depth: usize) -> impl Iterator<Item = (usize, &[N])> {
    names
        .chunk_by(move |a, b| nibble(a.key(), depth) == nibble(b.key(), depth))
        .map(move |group| (nibble(group[0].key(), depth), group))
}

/// Whether a change may remove slots.
pub(crate) fn removes_slots(change: &AccountDiff) -> bool {
    change.wipe || change.slots.iter().any(|(_, value)| value.is_zero())
}

/// Whether applying a change, which always fits, needs no other nodes than those on its paths.
pub(crate) fn stays_on_its_paths(commitment: Commitment, change: &AccountDiff) -> bool {
    let is_binary = matches!(commitment, Commitment::Binary(_));
    let removes = removes_slots(change);
    match &change.account {
        AccountUpdate::Entry(_) => change.slots.is_empty(),
        AccountUpdate::Put(_) => !is_binary && !removes,
        // The kind of a binary trie's node is in its hash, so what remains beside is known.
        AccountUpdate::Delete => is_binary && change.slots.is_empty(),
        // There may be no such account.
        AccountUpdate::Keep => false,
    }
}

impl PartialTrie {
    /// Loads the absent subtries on the paths of `keys`, so that no lookup of them ends at a
    /// blinded node.
    ///
    /// # Errors
    ///
    /// Returns an error if a target is outside the trie or loading fails. The trie stays valid, and
    /// keeps the subtries loaded so far.
    pub fn load<R: Resolve>(
        &mut self,
        keys: &ProofTargets,
        resolver: &mut R,
    ) -> Result<(), UpdateError<R::Error>> {
        let names = self.names_here(keys)?;
        let (root, depth) = (self.root, self.base.len());
        let root = (root, depth);
        self.load_names(resolver, (Link::EMPTY, 0), root, &B256::ZERO, names, false)?;
        Ok(())
    }

    /// As [`Self::load`], but goes on where the resolver fails. Returns the number of accounts and slots among `keys` whose
    /// paths end at blinded nodes. Slots count without their account where its path does, and the account alone
    /// where it has none.
    ///
    /// # Errors
    ///
    /// Returns an error if a target is outside the trie, or if what was loaded does not belong there. The trie stays valid.
    pub fn load_known<R: Resolve>(
        &mut self,
        keys: &ProofTargets,
        resolver: &mut R,
    ) -> Result<usize, UpdateError<R::Error>> {
        let names = self.names_here(keys)?;
        let root = (self.root, self.base.len());
        self.load_names(resolver, (Link::EMPTY, 0), root, &B256::ZERO, names, true)
    }

    /// Like [`PartialTrie::lookup`], but loads absent subtries on the path. Never returns
    /// [`Lookup::Stub`].
    ///
    /// # Errors
    ///
    /// Returns an error if loading fails. The trie stays valid.
    pub fn load_leaf<R: Resolve>(
        &mut self,
        full: &Path,
        resolver: &mut R,
    ) -> Result<Lookup<'static>, UpdateError<R::Error>> {
        loop {
            let depth = match self.lookup(full) {
                Lookup::Absent => return Ok(Lookup::Absent),
                Lookup::Account(account) => return Ok(Lookup::Account(account)),
                Lookup::Slot(value) => return Ok(Lookup::Slot(value)),
                Lookup::Entry(value) => return Ok(Lookup::Entry(value)),
                Lookup::Stub { depth, .. } => depth,
            };
            self.load_node(&full.prefix(depth), resolver)?;
        }
    }

    pub(crate) fn names_here<'a>(
        &self,
        keys: &'a ProofTargets,
    ) -> Result<&'a [(B256, Vec<B256>)], TrieError> {
        for (account, _) in [keys.0.first(), keys.0.last()].into_iter().flatten() {
            let path = Path::account(account);
            if !path.starts_with(&self.base) {
                return Err(TrieError::Outside {
                    path,
                    under: Box::new(self.base),
                });
            }
        }
        Ok(&keys.0)
    }

    /// Loads the absent subtries between the node at `at`, with its depth, and the targets. `held` is its parent, empty for
    /// the root, and its nibble there. If it `goes_on`, a failure to load a node is none. Returns the number of targets
    /// below nodes that were not loaded.
    fn load_names<N: Name, R: Resolve>(
        &mut self,
        resolver: &mut R,
        held: (Link, u8),
        (mut link, depth): (Link, usize),
        account: &B256,
        names: &[N],
        goes_on: bool,
    ) -> Result<usize, UpdateError<R::Error>> {
        let Some(first) = names.first() else {
            return Ok(0);
        };
        if link.is_stub() {
            let path = N::path(account, first.key(), depth);
            link = match self.expand(link, &path, resolver) {
                Err(UpdateError::Resolve(_)) if goes_on => {
                    return Ok(names.iter().map(|name| name.slots().len().max(1)).sum());
                }
                loaded => loaded?,
            };
            match held {
                (parent, _) if parent.is_empty() => self.root = link,
                (parent, nibble) => self.link_child(parent, nibble, link),
            }
        }
        match link.id() {
            NodeId::Branch(index) => {
                let mut missing = 0;
                for (at, group) in by_nibble(names, depth) {
                    let child = (self.arena.branches[index].children[at], depth + 1);
                    let held = (link, at as u8);
                    missing += self.load_names(resolver, held, child, account, group, goes_on)?;
                }
                Ok(missing)
            }
            NodeId::Extension(index) => {
                let node = &self.arena.extensions[index];
                let (child, end) = (node.child, usize::from(node.end) - N::LEVEL);
                let names = below(names, &node.key, end);
                self.load_names(resolver, (link, 0), (child, end), account, names, goes_on)
            }
            NodeId::Account(index) => {
                let node = &self.arena.accounts[index];
                let (storage, key) = (node.storage, node.key.into());
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                self.load_names(resolver, (link, 0), (storage, 0), &key, slots, goes_on)
            }
            NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => Ok(0),
        }
    }

    /// Loads the subtrie at `path` if it is blinded. Returns the node there.
    ///
    /// # Errors
    ///
    /// [`TrieError::NoNode`] if there is no node at `path`, or an error if loading fails.
    pub fn load_node<R: Resolve>(
        &mut self,
        path: &Path,
        resolver: &mut R,
    ) -> Result<Link, UpdateError<R::Error>> {
        let found = self.find_parent(self.root, self.base.len(), path);
        let (parent, link) = found.ok_or(TrieError::NoNode { path: *path })?;
        if !link.is_stub() {
            return Ok(link);
        }
        let link = self.expand(link, path, resolver)?;
        self.hang(parent, path, link);
        Ok(link)
    }

    /// Loads the absent subtries on the paths of `keys`, and hashes all nodes beside them.
    fn load_hashed<R: Resolve>(
        &mut self,
        keys: &ProofTargets,
        resolver: &mut R,
    ) -> Result<(), UpdateError<R::Error>> {
        self.load(keys, resolver)?;
        let mut on_the_way = Vec::new();
        self.list_names(self.root, self.base.len(), &keys.0, &mut on_the_way);
        let mut batch = Batch::new();
        self.hash_nodes([self.root], &mut batch);
        self.hash_to_graft(&on_the_way, &mut batch);
        Ok(())
    }

    /// Loads and hashes everything that a proof of `keys`, sorted and unique, needs of a binary trie.
    pub(crate) fn load_entries<R: Resolve>(
        &mut self,
        keys: &[B256],
        resolver: &mut R,
    ) -> Result<(), UpdateError<R::Error>> {
        let targets = ProofTargets(keys.iter().map(|key| (*key, Vec::new())).collect());
        self.load_hashed(&targets, resolver)?;
        for path in lone_leaves(self, keys) {
            self.load_node(&path, resolver)?;
        }
        Ok(())
    }

    /// Returns a new trie with the same root and only the nodes on the paths of `keys`. All other
    /// nodes are blinded, without a place. In a binary trie, a lone leaf that stands for a subtrie on the
    /// path of an absent key is on its path. Loads absent subtries.
    ///
    /// # Errors
    ///
    /// Returns an error if a target is outside the trie or loading fails.
    pub fn extract<R: Resolve>(
        &mut self,
        keys: &ProofTargets,
        resolver: &mut R,
    ) -> Result<Self, UpdateError<R::Error>> {
        self.load_hashed(keys, resolver)?;
        let mut extract = Self::new(self.base).committed_by(self.commitment);
        extract.root = if keys.0.is_empty() {
            extract.stub_of(self, self.root)?
        } else {
            extract.copy_names(self, self.root, self.base.len(), &keys.0)?
        };
        if let Commitment::Binary(_) = self.commitment {
            let keys: Vec<_> = keys.0.iter().map(|(key, _)| *key).collect();
            for path in lone_leaves(&extract, &keys) {
                self.load_node(&path, resolver)?;
                extract.copy_node(self, &path)?;
            }
        }
        extract.arena.forget_places();
        Ok(extract)
    }

    /// Returns a new trie with all nodes that reading `keys` and applying `changes` need. Unlike
    /// [`Self::extract`], it includes the sibling that remains where a deletion leaves a branch
    /// with one child: the type of that sibling decides how the branch collapses, and a hash alone
    /// does not show it. Loads absent subtries.
    ///
    /// # Errors
    ///
    /// Returns an error if a key is outside the trie, the changes cannot be applied, or loading
    /// fails.
    pub fn extract_for_changes<R: Resolve>(
        &mut self,
        keys: &ProofTargets,
        changes: &[AccountDiff],
        resolver: &mut R,
    ) -> Result<Self, UpdateError<R::Error>> {
        self.check_changes(changes)?;
        let keys = keys.clone().and(&ProofTargets::of_changes(changes));
        let mut extract = self.extract(&keys, resolver)?;
        let commitment = self.commitment;
        if changes
            .iter()
            .all(|change| stays_on_its_paths(commitment, change))
        {
            return Ok(extract);
        }
        let mut rehearsal = extract.clone();
        rehearsal.forget_kinds(rehearsal.root);
        let mut recorder = Recorder {
            whole: self,
            resolver,
            loaded: Vec::new(),
        };
        rehearsal
            .apply(changes, &mut recorder)
            .map_err(|error| match error {
                UpdateError::Resolve(error) => error,
                UpdateError::Trie(error) => error.into(),
            })?;
        for path in recorder.loaded {
            extract.copy_node(self, &path)?;
        }
        extract.arena.forget_places();
        Ok(extract)
    }

    /// Replaces the blinded node at `path` by a copy of the node of `from` there.
    fn copy_node(&mut self, from: &Self, path: &Path) -> Result<(), TrieError> {
        let no_node = TrieError::NoNode { path: *path };
        let held = self.find_parent(self.root, self.base.len(), path);
        let ((parent, stub), link) = held.zip(from.find(path)).ok_or(no_node)?;
        let node = self.graft_node(from, link)?;
        self.free(stub);
        self.hang(parent, path, node);
        Ok(())
    }

    /// Removes from blinded nodes at `link` and below the types that a list of nodes does not show.
    fn forget_kinds(&mut self, link: Link) {
        let below_extension = matches!(link.id(), NodeId::Extension(_));
        for child in self.children(link) {
            match child.id() {
                NodeId::Stub(index) if !below_extension => self.arena.stubs[index].kind = None,
                NodeId::Empty | NodeId::Stub(_) => {}
                _ => self.forget_kinds(child),
            }
        }
    }

    /// Lists the expanded nodes on the paths of the targets.
    fn list_names<N: Name>(&self, link: Link, depth: usize, names: &[N], out: &mut Vec<Link>) {
        if names.is_empty() || link.is_empty() || link.is_stub() {
            return;
        }
        out.push(link);
        match link.id() {
            NodeId::Branch(index) => {
                for (at, group) in by_nibble(names, depth) {
                    let child = self.arena.branches[index].children[at];
                    self.list_names(child, depth + 1, group, out);
                }
            }
            NodeId::Extension(index) => {
                let node = &self.arena.extensions[index];
                let end = usize::from(node.end) - N::LEVEL;
                self.list_names(node.child, end, below(names, &node.key, end), out);
            }
            NodeId::Account(index) => {
                let node = &self.arena.accounts[index];
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                self.list_names(node.storage, 0, slots, out);
            }
            NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => {}
        }
    }

    /// Copies the nodes of `from` on the paths of the targets, which are not empty.
    fn copy_names<N: Name>(
        &mut self,
        from: &Self,
        link: Link,
        depth: usize,
        names: &[N],
    ) -> Result<Link, TrieError> {
        let copy = self.graft_node(from, link)?;
        match link.id() {
            NodeId::Branch(index) => {
                for (at, group) in by_nibble(names, depth) {
                    let child = from.arena.branches[index].children[at];
                    let child = self.copy_names(from, child, depth + 1, group)?;
                    self.replace_child(copy, at as u8, child);
                }
            }
            NodeId::Extension(index) => {
                let node = &from.arena.extensions[index];
                let end = usize::from(node.end) - N::LEVEL;
                let names = below(names, &node.key, end);
                if !names.is_empty() {
                    let child = self.copy_names(from, node.child, end, names)?;
                    self.replace_child(copy, 0, child);
                }
            }
            NodeId::Account(index) => {
                let node = &from.arena.accounts[index];
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                if !slots.is_empty() {
                    let storage = self.copy_names(from, node.storage, 0, slots)?;
                    self.replace_child(copy, 0, storage);
                }
            }
            NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => {}
        }
        Ok(copy)
    }

    fn replace_child(&mut self, parent: Link, nibble: u8, child: Link) {
        let before = self.children(parent)[usize::from(nibble)];
        self.arena.free_subtrie(before);
        self.set_child(parent, nibble, child);
    }

    /// Returns the children of a node: sixteen of a branch, the first of an extension or account.
    pub(crate) fn children(&self, link: Link) -> [Link; 16] {
        let mut children = [Link::EMPTY; 16];
        match link.id() {
            NodeId::Branch(index) => children = self.arena.branches[index].children,
            NodeId::Extension(index) => children[0] = self.arena.extensions[index].child,
            NodeId::Account(index) => children[0] = self.arena.accounts[index].storage,
            NodeId::Empty | NodeId::Storage(_) | NodeId::Entry(_) | NodeId::Stub(_) => {}
        }
        children
    }
}

/// Returns the target with exactly this key, if there is one.
pub(crate) fn names_of<'a, N: Name>(names: &'a [N], key: &Key) -> Option<&'a N> {
    names
        .binary_search_by_key(&key, |name| name.key())
        .ok()
        .map(|at| &names[at])
}

/// A resolver that reads from a whole trie, and records which nodes were needed.
struct Recorder<'a, R> {
    whole: &'a mut PartialTrie,
    resolver: &'a mut R,
    loaded: Vec<Path>,
}

impl<R: Resolve> Resolve for Recorder<'_, R> {
    type Error = UpdateError<R::Error>;

    fn resolve(
        &mut self,
        path: &Path,
        _stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, Self::Error> {
        self.loaded.push(*path);
        let link = self.whole.load_node(path, self.resolver)?;
        self.whole.hash_to_graft(&[link], &mut Batch::new());
        Ok(into.graft_node(self.whole, link)?)
    }
}
