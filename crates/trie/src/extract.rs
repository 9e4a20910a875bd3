//! The part of a trie that some leaves need: what a proof or a witness is made of.

use crate::{
    arena::{Key, Link, Slot, nibble, shared_nibbles},
    error::{TrieError, UpdateError},
    node_ref::Stub,
    partial::{Lookup, PartialTrie},
    resolve::Resolve,
};
use alloc::{boxed::Box, vec::Vec};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, AccountChange, Path};

/// Names of leaves: accounts by path, each with slots by path, sorted and unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys(Vec<(B256, Vec<B256>)>);

impl Keys {
    /// Takes names in any order, an account any number of times.
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

    /// The leaves that changes name.
    pub fn of_changes(changes: &[AccountChange]) -> Self {
        let slots = |change: &AccountChange| change.slots.iter().map(|(slot, _)| *slot).collect();
        Self::new(
            changes
                .iter()
                .map(|change| (change.path, slots(change)))
                .collect(),
        )
    }

    /// The names, sorted.
    pub fn accounts(&self) -> &[(B256, Vec<B256>)] {
        &self.0
    }

    /// These and the others.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        self.0.extend_from_slice(&others.0);
        Self::new(self.0)
    }
}

/// One name, of an account or of a slot.
trait Name {
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

/// The names among `names` that are below an extension to `end` along `key`.
fn below<'a, N: Name>(names: &'a [N], key: &Key, end: usize) -> &'a [N] {
    let inside = |name: &N| shared_nibbles(name.key(), key) >= end;
    let start = names.partition_point(|name| !inside(name) && name.key() < key);
    let len = names[start..].partition_point(inside);
    &names[start..start + len]
}

/// Groups of names by their nibble at `depth`.
fn by_nibble<N: Name>(names: &[N], depth: usize) -> impl Iterator<Item = (usize, &[N])> {
    names
        .chunk_by(move |a, b| nibble(a.key(), depth) == nibble(b.key(), depth))
        .map(move |group| (nibble(group[0].key(), depth), group))
}

impl PartialTrie {
    /// Loads whatever absent subtries stand on the way to `keys`, so that afterwards none of them
    /// ends at a stub. On an error the trie is sound, and has what was loaded until then.
    pub fn load<R: Resolve>(
        &mut self,
        keys: &Keys,
        resolver: &mut R,
    ) -> Result<(), UpdateError<R::Error>> {
        let names = self.names_here(keys)?;
        let (root, depth) = (self.root, self.base.len());
        self.load_names(resolver, (Link::EMPTY, 0), root, &B256::ZERO, depth, names)
    }

    /// As [`PartialTrie::lookup`], but loads what stands in the way: never ends at a stub. On an
    /// error the trie is sound.
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
                Lookup::Stub { depth, .. } => depth,
            };
            self.load_at(&full.prefix(depth), resolver)?;
        }
    }

    fn names_here<'a>(&self, keys: &'a Keys) -> Result<&'a [(B256, Vec<B256>)], TrieError> {
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

    /// Loads what stands between the node at `link`, which sits at `depth` and hangs at `held`
    /// (a parent, none for the root, and a nibble), and the leaves named.
    fn load_names<N: Name, R: Resolve>(
        &mut self,
        resolver: &mut R,
        held: (Link, u8),
        mut link: Link,
        account: &B256,
        depth: usize,
        names: &[N],
    ) -> Result<(), UpdateError<R::Error>> {
        let Some(first) = names.first() else {
            return Ok(());
        };
        if link.is_stub() {
            let path = N::path(account, first.key(), depth);
            link = self.expand(link, &path, resolver)?;
            match held {
                (parent, _) if parent.is_empty() => self.root = link,
                (parent, nibble) => self.set_child(parent, nibble, link),
            }
        }
        match link.slot() {
            Slot::Branch(index) => {
                for (at, group) in by_nibble(names, depth) {
                    let child = self.arena.branches[index].children[at];
                    let held = (link, at as u8);
                    self.load_names(resolver, held, child, account, depth + 1, group)?;
                }
                Ok(())
            }
            Slot::Extension(index) => {
                let node = &self.arena.extensions[index];
                let (child, end) = (node.child, usize::from(node.end) - N::LEVEL);
                let names = below(names, &node.key, end);
                self.load_names(resolver, (link, 0), child, account, end, names)
            }
            Slot::Account(index) => {
                let node = &self.arena.accounts[index];
                let (storage, key) = (node.storage, node.key);
                let slots = names_of(names, &key).map_or(&[][..], N::slots);
                self.load_names(resolver, (link, 0), storage, &key.into(), 0, slots)
            }
            Slot::Empty | Slot::Storage(_) | Slot::Stub(_) => Ok(()),
        }
    }

    /// Loads what stands at `path`, if it is absent, and returns the node there.
    fn load_at<R: Resolve>(
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

    /// A new trie of only the nodes on the way to `keys`, all else stubs without a place; with
    /// the same root. Loads what is absent.
    pub fn extract<R: Resolve>(
        &mut self,
        keys: &Keys,
        resolver: &mut R,
    ) -> Result<Self, UpdateError<R::Error>> {
        self.load(keys, resolver)?;
        let mut on_the_way = Vec::new();
        self.list_names(self.root, self.base.len(), &keys.0, &mut on_the_way);
        let mut batch = Batch::new();
        self.hash_nodes([self.root], &mut batch);
        self.hash_to_graft(&on_the_way, &mut batch);
        let mut extract = Self::new(self.base);
        extract.root = if keys.0.is_empty() {
            extract.stub_of(self, self.root)?
        } else {
            extract.copy_names(self, self.root, self.base.len(), &keys.0)?
        };
        extract.arena.forget_places();
        Ok(extract)
    }

    /// A new trie from which `changes` can be applied and `keys` be read with nothing else at
    /// hand: also the siblings that stay alone where a deletion leaves a branch with one child,
    /// since a witness of bare nodes can't tell whether such a one moves up. Loads what is
    /// absent.
    pub fn extract_for_changes<R: Resolve>(
        &mut self,
        keys: &Keys,
        changes: &[AccountChange],
        resolver: &mut R,
    ) -> Result<Self, UpdateError<R::Error>> {
        let keys = keys.clone().and(&Keys::of_changes(changes));
        let mut extract = self.extract(&keys, resolver)?;
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
            let held = extract.find_parent(extract.root, extract.base.len(), &path);
            let (parent, stub) = held.ok_or(TrieError::NoNode { path })?;
            let link = self.find(&path).ok_or(TrieError::NoNode { path })?;
            let node = extract.graft_node(self, link)?;
            extract.free(stub);
            extract.hang(parent, &path, node);
        }
        extract.arena.forget_places();
        Ok(extract)
    }

    /// Takes from the stubs at `link` and below what a list of nodes doesn't tell.
    fn forget_kinds(&mut self, link: Link) {
        let below_extension = matches!(link.slot(), Slot::Extension(_));
        for child in self.children(link) {
            match child.slot() {
                Slot::Stub(index) if !below_extension => self.arena.stubs[index].kind = None,
                Slot::Empty | Slot::Stub(_) => {}
                _ => self.forget_kinds(child),
            }
        }
    }

    /// Lists the expanded nodes on the way to the leaves named.
    fn list_names<N: Name>(&self, link: Link, depth: usize, names: &[N], out: &mut Vec<Link>) {
        if names.is_empty() || link.is_empty() || link.is_stub() {
            return;
        }
        out.push(link);
        match link.slot() {
            Slot::Branch(index) => {
                for (at, group) in by_nibble(names, depth) {
                    let child = self.arena.branches[index].children[at];
                    self.list_names(child, depth + 1, group, out);
                }
            }
            Slot::Extension(index) => {
                let node = &self.arena.extensions[index];
                let end = usize::from(node.end) - N::LEVEL;
                self.list_names(node.child, end, below(names, &node.key, end), out);
            }
            Slot::Account(index) => {
                let node = &self.arena.accounts[index];
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                self.list_names(node.storage, 0, slots, out);
            }
            Slot::Empty | Slot::Storage(_) | Slot::Stub(_) => {}
        }
    }

    /// Copies the nodes of `from` on the way to the leaves named, of which there is at least one.
    fn copy_names<N: Name>(
        &mut self,
        from: &Self,
        link: Link,
        depth: usize,
        names: &[N],
    ) -> Result<Link, TrieError> {
        let copy = self.graft_node(from, link)?;
        match link.slot() {
            Slot::Branch(index) => {
                for (at, group) in by_nibble(names, depth) {
                    let child = from.arena.branches[index].children[at];
                    let child = self.copy_names(from, child, depth + 1, group)?;
                    self.replace_child(copy, at as u8, child);
                }
            }
            Slot::Extension(index) => {
                let node = &from.arena.extensions[index];
                let end = usize::from(node.end) - N::LEVEL;
                let names = below(names, &node.key, end);
                if !names.is_empty() {
                    let child = self.copy_names(from, node.child, end, names)?;
                    self.replace_child(copy, 0, child);
                }
            }
            Slot::Account(index) => {
                let node = &from.arena.accounts[index];
                let slots = names_of(names, &node.key).map_or(&[][..], N::slots);
                if !slots.is_empty() {
                    let storage = self.copy_names(from, node.storage, 0, slots)?;
                    self.replace_child(copy, 0, storage);
                }
            }
            Slot::Empty | Slot::Storage(_) | Slot::Stub(_) => {}
        }
        Ok(copy)
    }

    fn replace_child(&mut self, parent: Link, nibble: u8, child: Link) {
        let before = self.children(parent)[usize::from(nibble)];
        self.arena.free_subtrie(before);
        self.set_child(parent, nibble, child);
    }

    /// The links that a node holds: sixteen, or only the first, or none.
    pub(crate) fn children(&self, link: Link) -> [Link; 16] {
        let mut children = [Link::EMPTY; 16];
        match link.slot() {
            Slot::Branch(index) => children = self.arena.branches[index].children,
            Slot::Extension(index) => children[0] = self.arena.extensions[index].child,
            Slot::Account(index) => children[0] = self.arena.accounts[index].storage,
            Slot::Empty | Slot::Storage(_) | Slot::Stub(_) => {}
        }
        children
    }
}

/// The name of exactly `key`, if it is among `names`.
fn names_of<'a, N: Name>(names: &'a [N], key: &Key) -> Option<&'a N> {
    names
        .binary_search_by_key(&key, |name| name.key())
        .ok()
        .map(|at| &names[at])
}

/// Loads from a whole trie, and writes down what was asked for.
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
        let link = self.whole.load_at(path, self.resolver)?;
        self.whole.hash_to_graft(&[link], &mut Batch::new());
        Ok(into.graft_node(self.whole, link)?)
    }
}
