//! Making the entries of nodes: a state trie is taken back block by block, by the reverts, and what
//! differs between two blocks is noted as it was before.
//!
//! So the roots of all blocks are computed a second time, from the newest to the oldest, and compared
//! with those in the log.

use crate::{
    HistoryError,
    entry::Key,
    memory_run::MemoryRun,
    node::{OldBranch, OldChild, OldNode, WholeNodes},
    nodes::{NodeReader, trie_error},
};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{BlockNumber, Path};
use cambium_state::{CommittedBlock, StateTrie, TrieReader};
use cambium_trie::{
    Link, Lookup, NodeKind, NodeRef, NodeView, PartialTrie, ProofTargets, Resolve, Stub, Traced,
    commit,
};
use std::{collections::HashMap, iter};

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

/// A state trie that is taken back.
pub(crate) struct RewoundTrie<'a> {
    trie: PartialTrie,
    present: &'a StateTrie,
    source: Source<'a>,
    whole: WholeNodes,
    batch: Batch,
}

/// The children of the branches on some paths, and the storage roots, as they are at one block.
#[derive(Default)]
struct Nodes {
    branches: HashMap<Path, [Option<NodeRef>; 16]>,
    storage: HashMap<B256, Option<NodeRef>>,
    root: Option<NodeRef>,
}

impl<'a> RewoundTrie<'a> {
    /// A trie of which nothing but the root may be known.
    pub(crate) fn new(
        trie: PartialTrie,
        present: &'a StateTrie,
        source: Source<'a>,
        whole: WholeNodes,
    ) -> Self {
        Self {
            trie,
            present,
            source,
            whole,
            batch: Batch::new(),
        }
    }

    /// Memory of the trie, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.trie.memory_bytes()
    }

    /// Takes back `block`, the newest one, and adds its entries. `root_before` is the state root of
    /// its parent, if it is known.
    pub(crate) fn undo(
        &mut self,
        block: &CommittedBlock,
        root_before: Option<B256>,
        entries: &mut MemoryRun,
    ) -> Result<(), HistoryError> {
        let number = block.meta.id.number;
        let reverts = block.reverts.accounts();
        let keys = ProofTargets::of_changes(block.changes.accounts())
            .and(&ProofTargets::of_changes(reverts));
        self.prefetch(&keys)?;
        let after = self.nodes_of(&keys)?;
        self.trie
            .apply(reverts, &mut self.source)
            .map_err(trie_error)?;
        commit(&mut [&mut self.trie], &mut self.batch);
        let root = self.trie.state_root();
        if root_before.is_some_and(|before| Some(before) != root) {
            return Err(HistoryError::BrokenNode {
                number,
                path: Path::EMPTY,
            });
        }
        let mut entries = Entries { entries, number };
        self.note(&keys, &after, &mut entries)
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
        for Traced { path, link } in self.trace(keys)? {
            match self.trie.visit(link) {
                NodeView::Branch { children } => {
                    let children = children.map(|child| self.trie.cached_ref(child));
                    nodes.branches.insert(path, children);
                }
                NodeView::Account { key, storage, .. } => {
                    nodes.storage.insert(key, self.trie.cached_ref(storage));
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
        let root = self.trie.root();
        if self.trie.cached_ref(root) != after.root {
            let root = self.old_child(entries.number, &Path::EMPTY, root)?;
            entries.push(&Key::state_root(), &root.encode_root());
        }
        let mut storage = HashMap::new();
        for Traced { path, link } in self.trace(keys)? {
            match self.trie.visit(link) {
                NodeView::Branch { children } => {
                    let children = *children;
                    let after = after.branches.get(&path);
                    self.note_branch(&path, &children, after, entries)?;
                }
                NodeView::Account {
                    key, storage: link, ..
                } => {
                    storage.insert(key, link);
                }
                _ => {}
            }
        }
        for (account, slots) in keys.accounts() {
            let before = storage.get(account).copied().unwrap_or(Link::EMPTY);
            let after = after.storage.get(account).copied().flatten();
            if !slots.is_empty() && self.trie.cached_ref(before) != after {
                let root = self.old_child(entries.number, &Path::account(account), before)?;
                entries.push(&Key::storage_root(account), &root.encode_root());
            }
        }
        Ok(())
    }

    fn note_branch(
        &mut self,
        path: &Path,
        children: &[Link; 16],
        after: Option<&[Option<NodeRef>; 16]>,
        entries: &mut Entries<'_>,
    ) -> Result<(), HistoryError> {
        let before = children.map(|child| self.trie.cached_ref(child));
        if after == Some(&before) {
            return Ok(());
        }
        let key = Key::branch(path);
        // What a later block does not have can't be read there.
        let after = after.filter(|_| !self.whole.has(key.at(entries.number).as_bytes()));
        let mut old = [None; 16];
        for at in 0..16 {
            if after.is_none_or(|after| after[at] != before[at]) {
                let child = path.child(at as u8);
                old[at] = Some(self.old_child(entries.number, &child, children[at])?);
            }
        }
        entries.push(&key, &OldBranch::new(|at| old[at]).encode());
        Ok(())
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
            NodeView::Account { path, .. } | NodeView::Slot { path, .. } => (NodeKind::Leaf, path),
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
