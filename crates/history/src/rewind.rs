//! Making the entries of nodes: a state trie is taken back block by block, by the reverts, and what
//! differs between two blocks is noted as it was before.
//!
//! So the roots of all blocks are computed a second time, from the newest to the oldest, and compared
//! with those in the log.

use crate::{
    HistoryError,
    entry::Key,
    memory_run::MemoryRun,
    node::{OldChild, OldNode, OldRoot, WholeNodes, encode_branch},
    nodes::{NodeReader, trie_error},
};
use alloy_primitives::{B256, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, AccountDiff, BlockNumber, Changes, Path};
use cambium_state::{CommittedBlock, StateTrie, TrieReader};
use cambium_trie::{
    Link, Lookup, NodeKind, NodeRef, NodeView, PartialTrie, ProofTargets, Resolve, Stub, Traced,
    commit, encode_branch as encode_branch_rlp,
};
use rayon::prelude::*;
use std::{collections::HashMap, iter, mem, ops::RangeInclusive};

/// From where the nodes of the newest block are read.
pub(crate) enum Source<'a> {
    /// The state trie of the database.
    Present(Box<TrieReader<'a>>),
    /// The history, which has been made down to this block.
    Past(Box<NodeReader<'a>>),
}

impl Resolve for Source<'_> {
    type Error = HistoryError;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, HistoryError> {
        match self {
            Self::Present(reader) => Ok(reader.resolve(path, stub, into)?),
            Self::Past(reader) => reader.resolve(path, stub, into),
        }
    }
}

/// A state trie that is taken back. While its root is a branch of sixteen branches, the subtries of its children are
/// independent, so threads share them.
pub(crate) struct RewoundTrie<'a> {
    /// The trie, or one for each thread.
    parts: Vec<Part<'a>>,
    /// The root's children, if there are several parts.
    top: Option<[NodeRef; 16]>,
}

/// A state trie of which some children of the root are taken back.
struct Part<'a> {
    trie: PartialTrie,
    present: &'a StateTrie,
    source: Source<'a>,
    whole: WholeNodes,
    batch: Batch,
    /// The children; all if it is the only part.
    nibbles: RangeInclusive<u8>,
    /// Entries of the block that is taken back.
    entries: MemoryRun,
}

/// Nodes on the paths that may change, at one block.
#[derive(Default)]
struct Nodes {
    /// The branches, in the order of their paths.
    branches: Vec<KnownBranch>,
    /// The references of their children on the paths.
    children: Vec<Option<NodeRef>>,
    /// The storage roots of the accounts, in the order of their paths.
    storage: Vec<(B256, Option<NodeRef>)>,
    root: Option<NodeRef>,
}

/// A branch on some paths.
struct KnownBranch {
    path: Path,
    on_path: u16,
    /// Where its children begin.
    children: usize,
}

impl Nodes {
    fn storage_of(&self, account: &B256) -> Option<NodeRef> {
        let at = self.storage.binary_search_by_key(account, |(key, _)| *key);
        self.storage[at.ok()?].1
    }
}

impl<'a> RewoundTrie<'a> {
    /// A trie of which nothing but the root may be known. `make` makes it, for each of at most
    /// `parts_max` threads.
    pub(crate) fn new(
        make: impl Fn() -> Result<(PartialTrie, Source<'a>), HistoryError>,
        present: &'a StateTrie,
        whole: WholeNodes,
        parts_max: usize,
    ) -> Result<Self, HistoryError> {
        let part = |nibbles| {
            let (trie, source) = make()?;
            Ok::<_, HistoryError>(Part {
                trie,
                present,
                source,
                whole,
                batch: Batch::new(),
                nibbles,
                entries: MemoryRun::empty(0..=0),
            })
        };
        let mut first = part(0..=15)?;
        let top = match parts_max {
            0 | 1 => None,
            _ => first.load_top()?,
        };
        let mut parts = vec![first];
        if top.is_some() {
            let count = parts_max.min(16);
            let nibbles = |at: usize| (16 * at / count) as u8..=(16 * (at + 1) / count - 1) as u8;
            parts[0].nibbles = nibbles(0);
            for at in 1..count {
                let mut part = part(nibbles(at))?;
                part.load_top()?;
                parts.push(part);
            }
        }
        Ok(Self { parts, top })
    }

    /// Memory of the trie, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.parts.iter().map(|part| part.trie.memory_bytes()).sum()
    }

    /// Takes back `block`, the newest one, and adds its entries. `root_before` is the state root of
    /// its parent, if it is known. False if the trie has become so small that threads can't share it:
    /// then it is to be made anew for one, and the entries are incomplete.
    pub(crate) fn undo(
        &mut self,
        block: &CommittedBlock,
        root_before: Option<B256>,
        entries: &mut MemoryRun,
    ) -> Result<bool, HistoryError> {
        let number = block.meta.id.number;
        let root = match &mut self.top {
            None => {
                let part = &mut self.parts[0];
                part.undo(block)?;
                part.trie.state_root()
            }
            Some(top) => {
                let parts = self.parts.par_iter_mut();
                parts.try_for_each(|part| part.undo(block))?;
                let mut before = *top;
                for part in &self.parts {
                    let Some(refs) = part.top() else {
                        return Ok(false);
                    };
                    for at in part.nibbles.clone().map(usize::from) {
                        before[at] = refs[at];
                    }
                }
                let root = root_of(&before);
                let mut entries = Entries { entries, number };
                note_top(&before, top, &root, self.parts[0].whole, &mut entries)?;
                *top = before;
                Some(root)
            }
        };
        for part in &mut self.parts {
            entries.append(&mut part.entries);
        }
        match root_before.is_none_or(|before| Some(before) == root) {
            true => Ok(true),
            false => Err(HistoryError::BrokenNode {
                number,
                path: Path::EMPTY,
            }),
        }
    }
}

/// The hash of a branch of sixteen branches.
fn root_of(children: &[NodeRef; 16]) -> B256 {
    let mut rlp = Vec::new();
    encode_branch_rlp(&children.map(Some), &[], &mut rlp);
    keccak256(rlp)
}

/// Adds the entry of the state root, which was a branch of sixteen branches before a block and after it.
fn note_top(
    before: &[NodeRef; 16],
    after: &[NodeRef; 16],
    root: &B256,
    whole: WholeNodes,
    entries: &mut Entries<'_>,
) -> Result<(), HistoryError> {
    let is_changed = |at: usize| u16::from(before[at] != after[at]) << at;
    let mut changed = (0..16).map(is_changed).sum();
    if changed == 0 {
        return Ok(());
    }
    let key = Key::node(&Path::EMPTY);
    if whole.has(key.at(entries.number).as_bytes()) {
        changed = u16::MAX;
    }
    let branch_at = |node| OldChild {
        node: Some(OldNode {
            node,
            kind: NodeKind::Branch,
            own: Path::EMPTY,
        }),
    };
    let old = bits(changed).map(|at| Ok(branch_at(before[at])));
    let branch = encode_branch::<HistoryError>(changed, old)?;
    let root = branch_at(NodeRef::hash(*root));
    entries.push(&key, &OldRoot::encode(&root, &branch));
    Ok(())
}

impl Part<'_> {
    /// Loads the root, and returns its children, if it is a branch of sixteen branches.
    fn load_top(&mut self) -> Result<Option<[NodeRef; 16]>, HistoryError> {
        if self.trie.root().is_stub() {
            self.trie
                .load_node(&Path::EMPTY, &mut self.source)
                .map_err(trie_error)?;
        }
        if let NodeView::Branch { children } = self.trie.visit(self.trie.root()) {
            let children = *children;
            self.trie.hash_nodes(children, &mut self.batch);
        }
        Ok(self.top())
    }

    /// The root's children, if it is a branch of sixteen, and those of the part are branches.
    fn top(&self) -> Option<[NodeRef; 16]> {
        let NodeView::Branch { children } = self.trie.visit(self.trie.root()) else {
            return None;
        };
        let mut own = self.nibbles.clone().map(usize::from);
        let is_branch = |at| self.trie.kind(children[at]) == Some(NodeKind::Branch);
        let refs = children.map(|child| self.trie.cached_ref(child));
        let first = refs[0]?;
        match own.all(is_branch) && refs.iter().all(Option::is_some) {
            true => Some(refs.map(|node| node.unwrap_or(first))),
            false => None,
        }
    }

    /// The changes of accounts of the part.
    fn own<'c>(&self, changes: &'c Changes) -> &'c [AccountDiff] {
        let accounts = changes.accounts();
        let is_below = |nibble: u8| move |diff: &AccountDiff| diff.path[0] >> 4 < nibble;
        let first = accounts.partition_point(is_below(*self.nibbles.start()));
        let end = accounts.partition_point(is_below(*self.nibbles.end() + 1));
        &accounts[first..end]
    }

    fn is_alone(&self) -> bool {
        self.nibbles == (0..=15)
    }

    /// Takes back its part of `block`, and notes the entries.
    fn undo(&mut self, block: &CommittedBlock) -> Result<(), HistoryError> {
        let reverts = self.own(&block.reverts);
        let keys = ProofTargets::of_changes(self.own(&block.changes))
            .and(&ProofTargets::of_changes(reverts));
        self.prefetch(&keys)?;
        let after = self.nodes_of(&keys)?;
        self.trie
            .apply(reverts, &mut self.source)
            .map_err(trie_error)?;
        commit(&mut [&mut self.trie], &mut self.batch);
        let mut entries = mem::replace(&mut self.entries, MemoryRun::empty(0..=0));
        let noted = self.note(
            &keys,
            &after,
            &mut Entries {
                entries: &mut entries,
                number: block.meta.id.number,
            },
        );
        self.entries = entries;
        noted
    }

    /// Reads the pages of the present state that the paths of `keys` need, in one batch.
    fn prefetch(&self, keys: &ProofTargets) -> Result<(), HistoryError> {
        let leaves = keys.accounts().iter().flat_map(|(account, slots)| {
            let slots = slots.iter().map(|slot| Path::slot(account, slot));
            iter::once(Path::account(account)).chain(slots)
        });
        let is_absent = |path: &Path| matches!(self.trie.lookup(path), Lookup::Stub { .. });
        Ok(self.present.prefetch(leaves.filter(is_absent))?)
    }

    fn trace(&mut self, keys: &ProofTargets) -> Result<Vec<Traced>, HistoryError> {
        self.trie
            .trace(keys, &mut self.source, &mut self.batch)
            .map_err(trie_error)
    }

    fn nodes_of(&mut self, keys: &ProofTargets) -> Result<Nodes, HistoryError> {
        let mut nodes = Nodes::default();
        for Traced {
            path,
            link,
            on_path,
        } in self.trace(keys)?
        {
            match self.trie.visit(link) {
                NodeView::Branch { children } => {
                    nodes.branches.push(KnownBranch {
                        path,
                        on_path,
                        children: nodes.children.len(),
                    });
                    let refs = bits(on_path).map(|at| self.trie.cached_ref(children[at]));
                    nodes.children.extend(refs);
                }
                NodeView::Account { key, storage, .. } => {
                    nodes.storage.push((key, self.trie.cached_ref(storage)));
                }
                _ => {}
            }
        }
        nodes.root = self.trie.cached_ref(self.trie.root());
        Ok(nodes)
    }

    /// Adds entries of the nodes that are not as in `after`, the state that was taken back.
    fn note(
        &mut self,
        keys: &ProofTargets,
        after: &Nodes,
        entries: &mut Entries<'_>,
    ) -> Result<(), HistoryError> {
        let mut storage = HashMap::new();
        // The entries of branches that are roots, by their paths.
        let mut roots = HashMap::new();
        let mut known = after.branches.iter().peekable();
        for traced in self.trace(keys)? {
            match self.trie.visit(traced.link) {
                NodeView::Branch { .. } => {
                    while known.next_if(|known| known.path < traced.path).is_some() {}
                    let known = known.next_if(|known| known.path == traced.path);
                    let known = known.map(|known| (known, after));
                    let Some(value) = self.old_branch(&traced, known, entries.number)? else {
                        continue;
                    };
                    match traced.path.len() {
                        0 | ACCOUNT_NIBBLES => _ = roots.insert(traced.path, value),
                        _ => entries.push(&Key::node(&traced.path), &value),
                    }
                }
                NodeView::Account {
                    key, storage: link, ..
                } => {
                    storage.insert(key, link);
                }
                _ => {}
            }
        }
        if self.is_alone() {
            let root = self.trie.root();
            let branch = roots.remove(&Path::EMPTY);
            self.note_root(&Path::EMPTY, root, after.root, branch, entries)?;
        }
        for (account, slots) in keys.accounts() {
            if !slots.is_empty() {
                let path = Path::account(account);
                let before = storage.get(account).copied().unwrap_or(Link::EMPTY);
                let branch = roots.remove(&path);
                self.note_root(&path, before, after.storage_of(account), branch, entries)?;
            }
        }
        Ok(())
    }

    /// Adds the entry of the root of a trie, if it was not `after`. `branch` is the entry of the branch
    /// that it was.
    fn note_root(
        &mut self,
        path: &Path,
        link: Link,
        after: Option<NodeRef>,
        branch: Option<Vec<u8>>,
        entries: &mut Entries<'_>,
    ) -> Result<(), HistoryError> {
        if self.trie.cached_ref(link) != after {
            let child = self.old_child(entries.number, path, link)?;
            let branch = branch.unwrap_or_default();
            entries.push(&Key::node(path), &OldRoot::encode(&child, &branch));
        }
        Ok(())
    }

    /// The entry of a branch, if it has changed. `after` is the branch at that path in the state
    /// that was taken back, if there is one: then no child that is not on the paths has changed.
    fn old_branch(
        &mut self,
        traced: &Traced,
        after: Option<(&KnownBranch, &Nodes)>,
        number: BlockNumber,
    ) -> Result<Option<Vec<u8>>, HistoryError> {
        let NodeView::Branch { children } = self.trie.visit(traced.link) else {
            return Ok(None);
        };
        let children = *children;
        let mut changed = u16::MAX;
        if let Some((known, nodes)) = after {
            let refs = &nodes.children[known.children..];
            changed = 0;
            for (at, after) in bits(known.on_path).zip(refs) {
                let is_changed = self.trie.cached_ref(children[at]) != *after;
                changed |= u16::from(is_changed) << at;
            }
            if changed == 0 {
                return Ok(None);
            }
        }
        let key = Key::node(&traced.path);
        if self.whole.has(key.at(number).as_bytes()) {
            changed = u16::MAX;
        }
        let old = bits(changed)
            .map(|at| self.old_child(number, &traced.path.child(at as u8), children[at]));
        encode_branch(changed, old).map(Some)
    }

    /// The hashed node at `path`. Loads it if its kind or its own path are not known otherwise.
    fn old_child(
        &mut self,
        number: BlockNumber,
        path: &Path,
        mut link: Link,
    ) -> Result<OldChild, HistoryError> {
        if link.is_stub() && self.trie.kind(link) != Some(NodeKind::Branch) {
            link = self
                .trie
                .load_node(path, &mut self.source)
                .map_err(trie_error)?;
        }
        let (kind, own) = match self.trie.visit(link) {
            NodeView::Account { path, .. }
            | NodeView::Slot { path, .. }
            | NodeView::Entry { path, .. } => (NodeKind::Leaf, path),
            NodeView::Extension { path, .. } => (NodeKind::Extension, path),
            NodeView::Empty => return Ok(OldChild { node: None }),
            NodeView::Branch { .. } | NodeView::Stub(_) => (NodeKind::Branch, Path::EMPTY),
        };
        let node = self.trie.cached_ref(link).ok_or(HistoryError::BrokenNode {
            number,
            path: *path,
        })?;
        Ok(OldChild {
            node: Some(OldNode { node, kind, own }),
        })
    }
}

/// The entries of one block.
struct Entries<'a> {
    entries: &'a mut MemoryRun,
    number: BlockNumber,
}

impl Entries<'_> {
    fn push(&mut self, key: &Key, value: &[u8]) {
        self.entries.push(key.at(self.number).as_bytes(), value);
    }
}

/// The bits that are set, lowest first.
fn bits(mask: u16) -> impl Iterator<Item = usize> {
    (0..16).filter(move |at| mask & (1 << at) != 0)
}
