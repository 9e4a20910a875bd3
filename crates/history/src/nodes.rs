//! The nodes of the state trie at an old block.
//!
//! The branch at a path is put together from the entries above the block, until all sixteen children are known. A child
//! without an entry is as at present, with all nodes below it. Leaves have the values of accounts and slots at the
//! block. Every node is hashed, and compared with the reference in its parent: a damaged history never makes a wrong
//! proof.

use crate::{
    HistoryError,
    ahead::{PAGES_MAX, WantedPages},
    entry::{Key, decode_account, decode_slot},
    node::{OldBranch, OldChild, OldNode, OldRoot},
    old::Old,
    run::PagesAhead,
};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, DecodeError, Path, SLOT_NIBBLES};
use cambium_state::{StateTrie, TrieReader, View};
use cambium_trie::{
    EMPTY_ROOT, Link, NodeKind, NodeRef, NodeView, PartialTrie, Place, ProofTargets, Resolve, Stub,
};
use std::{
    collections::{BTreeSet, HashMap},
    ops::ControlFlow,
};

/// Marks blinded nodes that are as they are at present, with all below them.
const AS_AT_PRESENT: Place = match Place::new(1) {
    Some(place) => place,
    None => panic!("one is not zero"),
};

/// Roots of storage tries whose children are remembered until they are asked for. Those of others are
/// read again.
const ROOT_BRANCHES_MAX: usize = 1_024;

/// Batches that are read ahead for nodes of one level, at most. Of what is still open then each look-up reads
/// its own pages.
const ROUNDS_MAX: usize = 8;

/// Resolves the blinded nodes of the state trie at an old block.
pub(crate) struct NodeReader<'a> {
    old: &'a Old,
    view: &'a View,
    present: &'a StateTrie,
    reader: TrieReader<'a>,
    /// Leaves and extensions that are known by their references alone yet, by their paths.
    own_paths: HashMap<Path, (NodeKind, Path)>,
    /// Some roots that are branches, read from the entries of roots, by their paths.
    root_branches: HashMap<Path, OldBranch>,
    /// Branches from entries, read ahead for the next look-ups, by their paths.
    branches_ahead: HashMap<Path, OldBranch>,
    /// Subtries that are as at present. None is below another.
    unchanged: BTreeSet<Path>,
    ahead: PagesAhead,
    batch: Batch,
}

impl<'a> NodeReader<'a> {
    /// `view` and `present` are the state after the newest block of the runs.
    pub(crate) fn new(old: &'a Old, view: &'a View, present: &'a StateTrie) -> Self {
        Self {
            old,
            view,
            present,
            reader: present.reader(),
            own_paths: HashMap::new(),
            root_branches: HashMap::new(),
            branches_ahead: HashMap::new(),
            unchanged: BTreeSet::new(),
            ahead: PagesAhead::default(),
            batch: Batch::new(),
        }
    }

    /// Reads the known pages of runs for the paths to `keys`, in one batch.
    pub(crate) fn read_paths_ahead(&mut self, keys: &ProofTargets) {
        self.ahead = self.old.read_ahead(keys);
    }

    /// The state trie, of which nothing is known but the root.
    pub(crate) fn root(&mut self) -> Result<PartialTrie, HistoryError> {
        let stub = match self.old_root(&Path::EMPTY)? {
            Some(OldChild { node: None }) => return Ok(PartialTrie::new(Path::EMPTY)),
            Some(OldChild { node: Some(node) }) => self.old_stub(&Path::EMPTY, &node),
            None if self.present.root() == EMPTY_ROOT => return Ok(PartialTrie::new(Path::EMPTY)),
            None => present_stub(NodeRef::hash(self.present.root()), None),
        };
        Ok(PartialTrie::from_stub(Path::EMPTY, stub))
    }

    /// The root of the trie at `path`, if it has changed since.
    fn old_root(&mut self, path: &Path) -> Result<Option<OldChild>, HistoryError> {
        let mut root = None;
        let branch = self.old_branch(path, &mut root)?;
        if self.root_branches.len() < ROOT_BRANCHES_MAX && root.is_some_and(|root| root.is_branch())
        {
            self.root_branches.insert(*path, branch);
        }
        Ok(root)
    }

    /// The branch at `path` from entries. At the root of a trie, sets `root` to that of the first entry.
    fn old_branch(
        &self,
        path: &Path,
        root: &mut Option<OldChild>,
    ) -> Result<OldBranch, HistoryError> {
        let mut branch = OldBranch::default();
        let key = Key::node(path);
        self.old.each(&key, &self.ahead, &mut |bytes| {
            complete(path, &mut branch, root, bytes)
        })?;
        Ok(branch)
    }

    /// Reads the needed pages of runs, in batches: a look-up not answered by the first run continues in the next one,
    /// then two more, then four. Returns the paths of leaves that the present state has, or whose pages have the nodes
    /// that no entry has.
    fn read_needed(&mut self, mut needs: Vec<Need>) -> Result<Vec<Path>, HistoryError> {
        let mut of_present = Vec::new();
        for round in 0..ROUNDS_MAX {
            let (mut wanted, mut open) = (WantedPages::default(), Vec::new());
            for need in needs {
                match self.meet(&need, (&mut wanted, (1 << round) - 1))? {
                    Met::ByRuns => {}
                    Met::ByPresent(leaf) => of_present.push(leaf),
                    Met::NotYet => open.push(need),
                }
            }
            let before = self.ahead.len();
            self.ahead.append(wanted.read());
            needs = open;
            // A failed read is repeated, and its error returned, by the look-up that needs the page.
            if needs.is_empty() || self.ahead.len() == before {
                break;
            }
        }
        Ok(of_present)
    }

    /// Looks up what is needed in the pages at hand. See [`Old::each_at_hand`].
    fn meet(
        &mut self,
        need: &Need,
        wanted: (&mut WantedPages, usize),
    ) -> Result<Met, HistoryError> {
        let (mut branch, mut root, mut has_value) = (OldBranch::default(), None, false);
        let key = match need {
            Need::Branch(path) | Need::Root(path) => Some(Key::node(path)),
            Need::Value(leaf) => Key::of_leaf(leaf),
        };
        let Some(key) = key else {
            return Ok(Met::ByRuns);
        };
        let is_through =
            self.old
                .each_at_hand(&key, &self.ahead, wanted, &mut |bytes| match need {
                    Need::Branch(path) | Need::Root(path) => {
                        complete(path, &mut branch, &mut root, bytes)
                    }
                    Need::Value(_) => {
                        has_value = true;
                        Ok(ControlFlow::Break(()))
                    }
                })?;
        let is_met = match need {
            Need::Branch(_) => branch.is_whole(),
            Need::Root(_) => root.is_some(),
            Need::Value(_) => has_value,
        };
        if !is_through {
            return Ok(Met::NotYet);
        }
        if let Need::Branch(path) = need {
            self.branches_ahead.insert(*path, branch);
        }
        Ok(match (is_met, need) {
            (true, _) => Met::ByRuns,
            (false, Need::Branch(path)) => Met::ByPresent(path.first_leaf()),
            (false, Need::Value(leaf) | Need::Root(leaf)) => Met::ByPresent(*leaf),
        })
    }

    /// The accounts among leaves that are not what their parents say as long as they have no storage. The pages
    /// of all are at hand.
    fn with_storage(&mut self, leaves: &[OldLeaf]) -> Result<Vec<Need>, HistoryError> {
        let mut trie = PartialTrie::new(Path::EMPTY);
        let mut links = Vec::new();
        for leaf in leaves {
            let (Some(key), None) = (leaf.whole.account_part(), leaf.whole.slot_part()) else {
                continue;
            };
            if let Some(account) = self.old_account(&key)? {
                let link = trie.push_account(leaf.depth, &key, &account, Link::EMPTY);
                links.push((link, leaf));
            }
        }
        trie.hash_nodes(links.iter().map(|(link, _)| *link), &mut self.batch);
        let differs = |(link, leaf): &&(Link, &OldLeaf)| trie.cached_ref(*link) != Some(leaf.node);
        let differing = links.iter().filter(differs);
        Ok(differing.map(|(_, leaf)| Need::Root(leaf.whole)).collect())
    }

    /// A blinded node at `path`, from an entry.
    fn old_stub(&mut self, path: &Path, node: &OldNode) -> Stub {
        if node.kind != NodeKind::Branch {
            self.own_paths.insert(*path, (node.kind, node.own));
        }
        Stub {
            node: node.node,
            kind: Some(node.kind),
            place: None,
        }
    }

    /// Whether the node at `path` is within a subtrie that is as at present.
    fn is_unchanged(&mut self, path: &Path, stub: &Stub) -> bool {
        let before = self.unchanged.range(..=*path).next_back();
        if before.is_some_and(|before| path.starts_with(before)) {
            return true;
        }
        let is_marked = stub.place == Some(AS_AT_PRESENT);
        if is_marked {
            self.unchanged.insert(*path);
        }
        is_marked
    }

    /// Adds the branch at `path`.
    fn branch(&mut self, path: &Path, into: &mut PartialTrie) -> Result<Link, HistoryError> {
        let known = self.branches_ahead.remove(path);
        let branch = match known.or_else(|| self.root_branches.remove(path)) {
            Some(branch) => branch,
            None => self.old_branch(path, &mut None)?,
        };
        let present = match branch.is_whole() {
            true => [None; 16],
            false => self.present_children(path)?,
        };
        let mut children = [Link::EMPTY; 16];
        for (at, old) in branch.children().iter().enumerate() {
            let child = path.child(at as u8);
            if child.len() == ACCOUNT_NIBBLES {
                let node = match old {
                    Some(old) => old.node.map(|node| node.node),
                    None => present[at].map(|stub| stub.node),
                };
                if let Some(node) = node {
                    children[at] = self.last_leaf(&child, &node, into)?;
                }
                continue;
            }
            let stub = match old {
                Some(OldChild { node: None }) => continue,
                Some(OldChild { node: Some(node) }) => self.old_stub(&child, node),
                None => match present[at] {
                    Some(stub) => stub,
                    None => continue,
                },
            };
            children[at] = into.push_stub(stub);
        }
        Ok(into.push_branch(children))
    }

    /// The children of the branch that is at `path` at present.
    fn present_children(&mut self, path: &Path) -> Result<[Option<Stub>; 16], HistoryError> {
        let mut trie = PartialTrie::new(Path::EMPTY);
        let nothing = Stub::bare(NodeRef::hash(B256::ZERO));
        let link = self.reader.resolve(path, &nothing, &mut trie)?;
        let NodeView::Branch { children } = trie.visit(link) else {
            return Err(self.broken(path));
        };
        let children = *children;
        trie.hash_nodes(children, &mut self.batch);
        Ok(children.map(|child| {
            let stub = trie.as_stub(child)?;
            Some(present_stub(stub.node, stub.kind))
        }))
    }

    /// Adds the leaf of an account that shares all nibbles but the last with another. It is not blinded:
    /// a blinded node at its path is the root of its storage trie.
    fn last_leaf(
        &mut self,
        path: &Path,
        node: &NodeRef,
        into: &mut PartialTrie,
    ) -> Result<Link, HistoryError> {
        let key = path.account_part().ok_or_else(|| self.broken(path))?;
        let link = self.account(path, &key, node, into)?;
        into.hash_nodes([link], &mut self.batch);
        match into.cached_ref(link) == Some(*node) {
            true => Ok(link),
            false => Err(self.broken(path)),
        }
    }

    /// Adds the leaf at `path`, whose reference is `node`.
    fn leaf(
        &mut self,
        path: &Path,
        own: &Path,
        node: &NodeRef,
        into: &mut PartialTrie,
    ) -> Result<Link, HistoryError> {
        let whole = self.below(path, own, NodeKind::Leaf)?;
        if let (Some(account), Some(slot)) = (whole.account_part(), whole.slot_part()) {
            let value =
                match self
                    .old
                    .find(&Key::slot(&account, &slot), &self.ahead, decode_slot)?
                {
                    Some(value) => value,
                    None => self.view.slot(&account, &slot)?,
                };
            return match value.is_zero() {
                true => Err(self.broken(path)),
                false => Ok(into.push_slot(path.len(), &slot, value)),
            };
        }
        let key = whole.account_part().ok_or_else(|| self.broken(path))?;
        self.account(path, &key, node, into)
    }

    /// Adds the leaf of an account at `path`, whose reference is `node`.
    fn account(
        &mut self,
        path: &Path,
        key: &B256,
        node: &NodeRef,
        into: &mut PartialTrie,
    ) -> Result<Link, HistoryError> {
        let account = self.old_account(key)?;
        let account = account.ok_or_else(|| self.broken(path))?;
        // Most accounts have no storage, and the leaf's hash shows it.
        let leaf = into.push_account(path.len(), key, &account, Link::EMPTY);
        into.hash_nodes([leaf], &mut self.batch);
        if into.cached_ref(leaf) == Some(*node) {
            return Ok(leaf);
        }
        into.free(leaf);
        let storage = match self.old_root(&Path::account(key))? {
            Some(OldChild { node: None }) => None,
            Some(OldChild { node: Some(node) }) => Some(self.old_stub(&Path::account(key), &node)),
            None => self.present_storage(key)?,
        };
        let storage = storage.map_or(Link::EMPTY, |stub| into.push_stub(stub));
        Ok(into.push_account(path.len(), key, &account, storage))
    }

    /// The account at a path, as it was.
    fn old_account(&self, key: &B256) -> Result<Option<Account>, HistoryError> {
        let old = self
            .old
            .find(&Key::account(key), &self.ahead, decode_account)?;
        match old {
            Some(account) => Ok(account),
            None => Ok(self.view.account(key)?),
        }
    }

    /// The storage root that an account has at present.
    fn present_storage(&mut self, account: &B256) -> Result<Option<Stub>, HistoryError> {
        let path = Path::account(account);
        let root = Stub::bare(NodeRef::hash(self.present.root()));
        let mut trie = PartialTrie::from_stub(Path::EMPTY, root);
        trie.load_leaf(&path, &mut self.reader)
            .map_err(trie_error)?;
        let Some(storage) = trie.find(&path) else {
            return Ok(None);
        };
        trie.hash_nodes([storage], &mut self.batch);
        let stub = trie.as_stub(storage);
        Ok(stub.map(|stub| present_stub(stub.node, stub.kind)))
    }

    /// The path of a leaf or of an extension's child.
    fn below(&self, path: &Path, own: &Path, kind: NodeKind) -> Result<Path, HistoryError> {
        let end = match path.len() < ACCOUNT_NIBBLES {
            true => ACCOUNT_NIBBLES,
            false => SLOT_NIBBLES,
        };
        let len = path.len() + own.len();
        let is_possible = match kind {
            NodeKind::Leaf => len == end,
            NodeKind::Branch | NodeKind::Extension => !own.is_empty() && len < end,
        };
        match is_possible {
            true => Ok(path.join(own)),
            false => Err(self.broken(path)),
        }
    }

    fn broken(&self, path: &Path) -> HistoryError {
        HistoryError::BrokenNode {
            number: self.old.block.number + 1,
            path: *path,
        }
    }
}

impl Resolve for NodeReader<'_> {
    type Error = HistoryError;

    fn resolve(
        &mut self,
        path: &Path,
        stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, HistoryError> {
        if self.is_unchanged(path, stub) {
            return Ok(self.reader.resolve(path, stub, into)?);
        }
        let link = match self.own_paths.remove(path) {
            None => self.branch(path, into)?,
            Some((NodeKind::Leaf, own)) => self.leaf(path, &own, &stub.node, into)?,
            Some((_, own)) => {
                let to = self.below(path, &own, NodeKind::Extension)?;
                let branch = self.branch(&to, into)?;
                into.push_extension(path.len(), &to, branch)
            }
        };
        into.hash_nodes([link], &mut self.batch);
        match into.cached_ref(link) == Some(stub.node) {
            true => Ok(link),
            false => Err(self.broken(path)),
        }
    }

    /// Reads pages of the runs in batches, and then those of the present state.
    fn read_ahead(&mut self, nodes: &[(Path, Stub)]) -> Result<(), HistoryError> {
        self.branches_ahead.clear();
        if self.ahead.len() > PAGES_MAX {
            self.ahead = PagesAhead::default();
        }
        let (mut needs, mut leaves, mut of_present) = (Vec::new(), Vec::new(), Vec::new());
        for (path, stub) in nodes {
            if self.is_unchanged(path, stub) {
                of_present.push(path.first_leaf());
                continue;
            }
            match self.own_paths.get(path).copied() {
                None => needs.push(Need::Branch(*path)),
                Some((NodeKind::Leaf, own)) => {
                    let whole = self.below(path, &own, NodeKind::Leaf)?;
                    needs.push(Need::Value(whole));
                    leaves.push(OldLeaf {
                        whole,
                        depth: path.len(),
                        node: stub.node,
                    });
                }
                Some((kind, own)) => needs.push(Need::Branch(self.below(path, &own, kind)?)),
            }
        }
        of_present.extend(self.read_needed(needs)?);
        if nodes.len() > 1 {
            // A read error is returned to the lookup that needs the page.
            _ = self.present.prefetch(of_present.into_iter());
        }
        let roots = self.with_storage(&leaves)?;
        let of_present = self.read_needed(roots)?;
        if of_present.len() > 1 {
            _ = self.present.prefetch(of_present.into_iter());
        }
        Ok(())
    }
}

/// Data of the runs that resolving a node needs.
enum Need {
    /// The children of the branch at a path.
    Branch(Path),
    /// The value of a leaf.
    Value(Path),
    /// The root of an account's storage trie.
    Root(Path),
}

/// Where what is needed was found.
enum Met {
    ByRuns,
    /// In the present state, below or at the path of a leaf.
    ByPresent(Path),
    /// A page has to be read before.
    NotYet,
}

/// A leaf of which its parent is known.
struct OldLeaf {
    whole: Path,
    depth: usize,
    node: NodeRef,
}

/// Completes the branch at `path` from an entry. At the root of a trie, sets `root` to that of the first entry. Breaks
/// when no later entry is needed.
fn complete(
    path: &Path,
    branch: &mut OldBranch,
    root: &mut Option<OldChild>,
    bytes: &[u8],
) -> Result<ControlFlow<()>, DecodeError> {
    let is_root = path.is_empty() || path.len() == ACCOUNT_NIBBLES;
    let more = match is_root {
        false => Some(OldBranch::decode(bytes)?),
        true => {
            let older = OldRoot::decode(bytes)?;
            root.get_or_insert(older.child);
            older.branch
        }
    };
    // While a root is a branch, all its entries have children, from that on which made it one.
    let Some(more) = more else {
        return Ok(ControlFlow::Break(()));
    };
    branch.complete(&more);
    Ok(match branch.is_whole() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
}

/// A blinded node that is as at present, with all below it.
fn present_stub(node: NodeRef, kind: Option<NodeKind>) -> Stub {
    Stub {
        node,
        kind,
        place: Some(AS_AT_PRESENT),
    }
}

/// The error of loading nodes.
pub(crate) fn trie_error<E: Into<HistoryError>>(
    error: cambium_trie::UpdateError<E>,
) -> HistoryError {
    match error {
        cambium_trie::UpdateError::Resolve(error) => error.into(),
        cambium_trie::UpdateError::Trie(error) => cambium_state::StateError::from(error).into(),
    }
}
