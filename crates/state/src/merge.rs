//! Merging: the dirty tries of the intermediate layer become pages, and the index takes their
//! addresses.
//!
//! A page is a whole subtrie. Walking the dirty trie bottom-up, subtries that fit into one page
//! stay *loose*; where a branch's loose children no longer fit together, each becomes a page of
//! its own and the branch becomes part of the index. What the trie did not expand is the
//! snapshot's still, and its part of the index is copied.
//!
//! ```text
//!            index:     (branch)             too large for a page
//!                      /   |    \
//!            pages:  [..] [..]  [..]         whole subtries of up to PAGE_BYTES_MAX
//! ```

use crate::{
    base::{Snapshot, is_under},
    clean::Cleaning,
    error::StateError,
    forest::{Forest, shard_prefix},
    index::IndexWriter,
    pages::{HeldPages, Pages, ReadFor, addr_of, decode_leaf, digests_of, page_addr, place},
    pool,
    rewrite::Rewriter,
};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, Path, SlotValue};
use cambium_store::{Page, PageAddr, PageBuilder, leaf_bytes};
use cambium_trie::{Link, NodeKind, NodeRef, NodeView, PartialTrie, Place, SHARDS, Stub};
use rayon::prelude::*;
use std::{ops::Range, sync::Arc};

/// Leaves of more bytes than this are split over several pages: two blocks of a device.
pub(crate) const PAGE_BYTES_MAX: usize = 8 * 1024;
/// Neighbouring pages of fewer bytes than this together become one when one of them changes.
const PAGE_BYTES_JOIN: usize = PAGE_BYTES_MAX / 4;
/// An inner branch over at least this many leaves has its hash cached in the page.
pub(crate) const DIGEST_LEAVES_MIN: usize = 6;
/// A child of the page's topmost branch over at least this many leaves has its hash cached:
/// whatever changes in the page, it is needed, and need not be looked at if nothing below changes.
/// For a single leaf its hash costs less than the 36 bytes.
pub(crate) const DIGEST_CHILD_LEAVES_MIN: usize = 2;
/// An account of at least this many slots has its storage root cached in the page.
const DIGEST_SLOTS_MIN: usize = 3;
/// What a digest takes in a page, about.
const DIGEST_BYTES: usize = 40;

/// What a merge made, besides the index.
#[derive(Default)]
pub(crate) struct Merged {
    pub(crate) dead: Vec<PageAddr>,
    pub(crate) pages_written: u64,
    pub(crate) bytes_written: u64,
    pub(crate) pages_split: u64,
    pub(crate) pages_joined: u64,
}

/// Writes the pages of all that `forest`, which is hashed, has expanded above `old`, moves pages
/// out of what `cleaning` has chosen, and puts the index of the new snapshot into `index`, shard by
/// shard.
pub(crate) fn merge(
    old: &Snapshot,
    forest: &Forest,
    cleaning: &Cleaning,
    index: &IndexWriter,
) -> Result<Merged, StateError> {
    let pages = &*old.pages;
    let one = |shard| -> Result<Merged, StateError> {
        let (trie, held) = (forest.shard(shard), forest.held(shard));
        let mut merged = merge_shard(shard, &old.index.whole(shard)?, trie, held, pages)?;
        cleaning.clean(&mut merged, pages)?;
        let named = places(&merged.index).len() as u64;
        index.put(shard, merged.index, named)?;
        pages.counters.merge_parts.add(1);
        Ok(Merged {
            dead: merged.dead,
            pages_written: merged.pages,
            bytes_written: merged.bytes,
            pages_split: merged.split,
            pages_joined: merged.joined,
        })
    };
    let shards: Vec<_> = pool::install_in_background(|| {
        (0..SHARDS)
            .into_par_iter()
            .map(one)
            .collect::<Result<_, _>>()
    })?;
    let mut all = Merged::default();
    for merged in shards {
        all.dead.extend(merged.dead);
        all.pages_written += merged.pages_written;
        all.bytes_written += merged.bytes_written;
        all.pages_split += merged.pages_split;
        all.pages_joined += merged.pages_joined;
    }
    Ok(all)
}

/// What merging one shard made.
pub(crate) struct MergedShard {
    pub(crate) index: Arc<PartialTrie>,
    pub(crate) dead: Vec<PageAddr>,
    /// Pages written.
    pub(crate) pages: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// Pages of before that became several.
    pub(crate) split: u64,
    /// Pages written in place of several.
    pub(crate) joined: u64,
}

impl MergedShard {
    /// A shard that stays as it is.
    pub(crate) const fn unchanged(index: Arc<PartialTrie>) -> Self {
        Self {
            index,
            dead: Vec::new(),
            pages: 0,
            bytes: 0,
            split: 0,
            joined: 0,
        }
    }
}

/// Merges one shard: see [`merge`].
pub(crate) fn merge_shard(
    shard: usize,
    old: &Arc<PartialTrie>,
    trie: &PartialTrie,
    held: &HeldPages,
    pages: &Pages,
) -> Result<MergedShard, StateError> {
    if trie.root().is_stub() {
        return Ok(MergedShard::unchanged(old.clone()));
    }
    let prefix = shard_prefix(shard);
    let mut merger = Merger {
        old,
        trie,
        held,
        pages,
        index: PartialTrie::new(prefix),
        leaves: Vec::new(),
        values: Vec::new(),
        digests: Vec::new(),
        open: None,
        ahead: Vec::new(),
        passed: 0,
        rewriter: Rewriter::default(),
        dead: Vec::new(),
        unhashed: Vec::new(),
        first_written: None,
        pages_written: 0,
        bytes_written: 0,
        split: 0,
        joined: 0,
    };
    merger.read_ahead()?;
    let root = merger.node(trie.root(), &prefix)?;
    let root = merger.settle(root, &prefix)?;
    merger.index.set_root(root);
    let unhashed = std::mem::take(&mut merger.unhashed);
    let hashed = merger.index.hash_nodes(unhashed, &mut Batch::new());
    pages.counters.node_hashes.add(hashed as u64);
    let mut dead = dead_pages(old, &merger.index, merger.first_written);
    dead.append(&mut merger.dead);
    dead.iter().for_each(|addr| pages.forget(*addr));
    Ok(MergedShard {
        dead,
        pages: merger.pages_written,
        bytes: merger.bytes_written,
        split: merger.split,
        joined: merger.joined,
        index: Arc::new(merger.index),
    })
}

/// The pages that `old` names and `new` does not. Those written since are from `first_written`
/// on: addresses grow.
fn dead_pages(
    old: &PartialTrie,
    new: &PartialTrie,
    first_written: Option<PageAddr>,
) -> Vec<PageAddr> {
    let is_older = |addr: &PageAddr| first_written.is_none_or(|first| *addr < first);
    let addrs = |index| places(index).into_iter().map(|(addr, _)| addr);
    let mut kept = addrs(new).filter(is_older).peekable();
    // Both are in path order, and what is kept is at its old path.
    addrs(old)
        .filter(|addr| kept.next_if_eq(addr).is_none())
        .collect()
}

/// The pages that an index names, with its stubs, in path order.
pub(crate) fn places(index: &PartialTrie) -> Vec<(PageAddr, Link)> {
    let mut places = Vec::new();
    let mut todo = vec![index.root()];
    while let Some(link) = todo.pop() {
        match index.visit(link) {
            NodeView::Stub(stub) => {
                places.extend(stub.place.map(|place| (page_addr(place), link)));
            }
            NodeView::Branch { children } => todo.extend(children.iter().rev()),
            NodeView::Extension { child, .. } => todo.push(child),
            NodeView::Account { storage, .. } => todo.push(storage),
            NodeView::Slot { .. } | NodeView::Empty => {}
        }
    }
    places
}

/// A reference to be cached in a page.
struct Digest {
    path: Path,
    node: NodeRef,
    /// Only if the node is a child of the page's topmost branch.
    only_below_top: bool,
}

struct LooseLeaf {
    path: Path,
    /// Where its value is in the merger's `values`.
    value: Range<usize>,
}

/// What became of a subtrie.
enum Outcome {
    Empty,
    /// In the index already.
    Resident(Link),
    /// Leaves from `from` on wait in the merger to be put into a page.
    Loose {
        from: usize,
        bytes: usize,
        /// Not known of a node below a digest.
        node: Option<NodeRef>,
        kind: NodeKind,
    },
    /// A page that was there before and is as it was.
    Page(Stub),
}

struct Merger<'a> {
    old: &'a PartialTrie,
    trie: &'a PartialTrie,
    held: &'a HeldPages,
    pages: &'a Pages,
    index: PartialTrie,
    /// Leaves not yet in a page, in path order.
    leaves: Vec<LooseLeaf>,
    /// The values of those leaves, in the same order.
    values: Vec<u8>,
    /// References of nodes over those leaves.
    digests: Vec<Digest>,
    /// The page of the old snapshot of which a part was taken last.
    open: Option<Arc<Page>>,
    /// Pages of the old snapshot that were read ahead, in the order of their prefixes, and how
    /// many of these have been passed.
    ahead: Vec<Arc<Page>>,
    passed: usize,
    rewriter: Rewriter,
    /// Pages that were written and joined with others at once.
    dead: Vec<PageAddr>,
    /// Nodes of the index whose reference is not known yet.
    unhashed: Vec<Link>,
    first_written: Option<PageAddr>,
    pages_written: u64,
    bytes_written: u64,
    /// Pages of before that became part of the index.
    split: u64,
    /// Pages written where the index had more than one.
    joined: u64,
}

impl Merger<'_> {
    /// A node that is in the index now, at `path`. Sets what is known of its reference; the rest
    /// is hashed at the end.
    fn resident(&mut self, link: Link, memo: Option<NodeRef>, path: &Path) -> Outcome {
        match memo {
            Some(memo) => self.index.set_memo(link, memo),
            None => self.unhashed.push(link),
        }
        let before = self.old.find(path);
        self.split += u64::from(before.is_some_and(Link::is_stub));
        Outcome::Resident(link)
    }

    fn node(&mut self, link: Link, path: &Path) -> Result<Outcome, StateError> {
        match self.trie.visit(link) {
            NodeView::Empty => Ok(Outcome::Empty),
            NodeView::Stub(stub) => self.unchanged(stub, path),
            NodeView::Branch { children } => self.branch(link, children, path),
            NodeView::Extension { path: part, child } => {
                let to = path.join(&part);
                let node = self.trie.memo(link);
                match self.node(child, &to)? {
                    Outcome::Loose { from, bytes, .. } => Ok(Outcome::Loose {
                        from,
                        bytes,
                        node,
                        kind: NodeKind::Extension,
                    }),
                    outcome => {
                        let child = self.settle(outcome, &to)?;
                        let extension = self.index.push_extension(path.len(), &to, child);
                        Ok(self.resident(extension, node, path))
                    }
                }
            }
            NodeView::Account {
                key,
                account,
                storage,
                ..
            } => self.account(link, path, &key, &account, storage),
            NodeView::Slot {
                path: part, value, ..
            } => {
                let from = self.leaves.len();
                let value = SlotValue::new(value);
                let bytes = self.push_leaf(path, path.join(&part), value.as_bytes());
                let node = self.trie.memo(link);
                Ok(Outcome::Loose {
                    from,
                    bytes,
                    node,
                    kind: NodeKind::Leaf,
                })
            }
        }
    }

    /// Adds a loose leaf. Returns what it takes in a page at `prefix`.
    fn push_leaf(&mut self, prefix: &Path, path: Path, value: &[u8]) -> usize {
        let start = self.values.len();
        self.values.extend_from_slice(value);
        let value = start..self.values.len();
        let bytes = leaf_bytes(prefix.len(), path.len(), value.len());
        self.leaves.push(LooseLeaf { path, value });
        bytes
    }

    fn branch(
        &mut self,
        link: Link,
        children: &[Link; 16],
        path: &Path,
    ) -> Result<Outcome, StateError> {
        if let Some(page) = self.page_ahead(path).filter(|page| page.prefix() == path)
            && let Some(node) = self.trie.memo(link)
            && let Some(page) = self.rewriter.rewrite(&page, self.trie, children)
        {
            return Ok(Outcome::Page(Stub {
                node,
                kind: Some(NodeKind::Branch),
                place: Some(self.put(page)?),
            }));
        }
        let leaf_start = self.leaves.len();
        let mut outcomes = Vec::with_capacity(16);
        // Leaves below each child.
        let mut leaves = [0; 16];
        let (mut all_loose, mut any_loose, mut joinable, mut bytes_all) = (true, false, true, 0);
        for (nibble, &child) in children.iter().enumerate() {
            if child.is_empty() {
                outcomes.push(Outcome::Empty);
                continue;
            }
            let before = self.leaves.len();
            let outcome = self.node(child, &path.child(nibble as u8))?;
            leaves[nibble] = self.leaves.len() - before;
            match &outcome {
                Outcome::Empty => {}
                Outcome::Loose { bytes, .. } => {
                    any_loose = true;
                    bytes_all += bytes;
                }
                Outcome::Page(stub) => {
                    all_loose = false;
                    bytes_all += stub
                        .place
                        .map_or(0, |place| page_addr(place).len() as usize);
                }
                Outcome::Resident(_) => (all_loose, joinable) = (false, false),
            }
            outcomes.push(outcome);
        }
        if !all_loose && any_loose && joinable && bytes_all <= PAGE_BYTES_JOIN {
            self.join(&mut outcomes, path, leaf_start)?;
            all_loose = true;
        }
        let node = self.trie.memo(link);
        if all_loose && bytes_all <= PAGE_BYTES_MAX {
            for (nibble, outcome) in (0u8..).zip(&outcomes) {
                // At 64 nibbles a digest is a storage root's, never an account's.
                if let Outcome::Loose {
                    node: Some(node), ..
                } = outcome
                    && leaves[usize::from(nibble)] >= DIGEST_CHILD_LEAVES_MIN
                    && path.len() + 1 != ACCOUNT_NIBBLES
                {
                    self.push_digest(path.child(nibble), *node, true);
                    bytes_all += DIGEST_BYTES;
                }
            }
            if let Some(node) = node
                && self.leaves.len() - leaf_start >= DIGEST_LEAVES_MIN
            {
                self.push_digest(*path, node, false);
                bytes_all += DIGEST_BYTES;
            }
            let kind = NodeKind::Branch;
            return Ok(Outcome::Loose {
                from: leaf_start,
                bytes: bytes_all,
                node,
                kind,
            });
        }
        let mut links = [Link::EMPTY; 16];
        // Later children first: each takes its leaves off the end.
        for (nibble, outcome) in outcomes.into_iter().enumerate().rev() {
            if !matches!(outcome, Outcome::Empty) {
                links[nibble] = self.settle(outcome, &path.child(nibble as u8))?;
            }
        }
        let branch = self.index.push_branch(links);
        Ok(self.resident(branch, node, path))
    }

    /// Reads small unchanged pages so that they go into one page with their loose neighbours.
    fn join(
        &mut self,
        outcomes: &mut [Outcome],
        path: &Path,
        leaf_start: usize,
    ) -> Result<(), StateError> {
        let mut loose = self.leaves.split_off(leaf_start).into_iter().peekable();
        for (nibble, outcome) in outcomes.iter_mut().enumerate() {
            let prefix = path.child(nibble as u8);
            if let Outcome::Page(stub) = outcome {
                let page = self.pages.read(stub, &prefix, ReadFor::Merge)?;
                let addr = addr_of(stub, &prefix)?;
                if self.first_written.is_some_and(|first| addr >= first) {
                    self.dead.push(addr);
                }
                for (path, value) in page.leaves() {
                    self.push_leaf(&prefix, path, value);
                }
                for (path, node) in digests_of(&page)? {
                    self.push_digest(path, node, false);
                }
                *outcome = Outcome::Empty;
            } else {
                while let Some(leaf) = loose.next_if(|leaf| leaf.path.starts_with(&prefix)) {
                    // Copied, so that values stay in the order of their leaves.
                    let value = self.values[leaf.value].to_vec();
                    self.push_leaf(&prefix, leaf.path, &value);
                }
            }
        }
        Ok(())
    }

    fn account(
        &mut self,
        link: Link,
        prefix: &Path,
        key: &B256,
        account: &Account,
        storage: Link,
    ) -> Result<Outcome, StateError> {
        let path = Path::account(key);
        let node = self.trie.memo(link);
        let kind = NodeKind::Leaf;
        let from = self.leaves.len();
        let mut value = Vec::with_capacity(48);
        account.encode_to(&mut value);
        let bytes = self.push_leaf(prefix, path, &value);
        let storage = self.node(storage, &path)?;
        let more = match &storage {
            Outcome::Empty => Some(0),
            Outcome::Loose { bytes: slots, .. } if bytes + slots <= PAGE_BYTES_MAX => Some(*slots),
            _ => None,
        };
        if let Some(more) = more {
            let mut bytes = bytes + more;
            if let Outcome::Loose {
                node: Some(root), ..
            } = storage
                && self.leaves.len() - from > DIGEST_SLOTS_MIN
            {
                self.push_digest(path, root, false);
                bytes += DIGEST_BYTES;
            }
            return Ok(Outcome::Loose {
                from,
                bytes,
                node,
                kind,
            });
        }
        let storage = self.settle(storage, &path)?;
        // Its slots are in pages of their own: the account's leaf stays in the index.
        self.leaves.truncate(from);
        let leaf = self.index.push_account(prefix.len(), key, account, storage);
        Ok(self.resident(leaf, node, prefix))
    }

    /// What the trie left a stub is as the snapshot has it.
    fn unchanged(&mut self, stub: &Stub, path: &Path) -> Result<Outcome, StateError> {
        if let Some(link) = self.old.find(path) {
            return Ok(match self.old.visit(link) {
                NodeView::Stub(page) => Outcome::Page(*page),
                _ => Outcome::Resident(self.index.graft_subtrie(self.old, link)),
            });
        }
        // Part of a page of which something else has changed.
        let page = match self.open.take() {
            Some(page) if path.starts_with(page.prefix()) => page,
            _ => self.page_over(path)?,
        };
        let from = self.leaves.len();
        let mut bytes = 0;
        let leaves = page.leaves_of(page.entries_under(path));
        for (leaf, value) in leaves.filter(|(leaf, _)| is_under(leaf, path)) {
            bytes += self.push_leaf(path, leaf, value);
        }
        self.open = Some(page);
        let kind = stub.kind.unwrap_or(NodeKind::Branch);
        Ok(Outcome::Loose {
            from,
            bytes,
            node: Some(stub.node),
            kind,
        })
    }

    /// Writes `page` in place of the one at its prefix.
    fn put(&mut self, page: Page) -> Result<Place, StateError> {
        let addr = self.append(&page)?;
        match self
            .old
            .find(page.prefix())
            .map(|link| self.old.visit(link))
        {
            Some(NodeView::Stub(before)) => {
                if let Some(before) = before.place {
                    self.pages.replace(page_addr(before), addr, page);
                }
            }
            Some(_) => self.joined += 1,
            None => {}
        }
        Ok(place(addr))
    }

    fn append(&mut self, page: &Page) -> Result<PageAddr, StateError> {
        self.pages_written += 1;
        self.bytes_written += page.as_bytes().len() as u64;
        let addr = self.pages.segments.append(page.as_bytes())?;
        self.first_written.get_or_insert(addr);
        Ok(addr)
    }

    /// The page read ahead of which the subtrie at `path` is a part, if there is one.
    fn page_ahead(&mut self, path: &Path) -> Option<Arc<Page>> {
        let later = |page: &Arc<Page>| path.starts_with(page.prefix()) || page.prefix() > path;
        let ahead = &self.ahead[self.passed..];
        self.passed += ahead.iter().position(later).unwrap_or(ahead.len());
        let page = self.ahead.get(self.passed);
        page.filter(|page| path.starts_with(page.prefix())).cloned()
    }

    /// The page of the old snapshot of which the subtrie at `path` is a part.
    fn page_over(&mut self, path: &Path) -> Result<Arc<Page>, StateError> {
        if let Some(page) = self.page_ahead(path) {
            return Ok(page);
        }
        let broken = || StateError::Broken {
            path: *path,
            what: "a node or a page in the index",
        };
        let (link, depth) = self.old.find_or_stub(path).ok_or_else(broken)?;
        let NodeView::Stub(stub) = self.old.visit(link) else {
            return Err(broken());
        };
        self.pages.read(stub, &path.prefix(depth), ReadFor::Merge)
    }

    /// Reads the pages of the old snapshot that the trie has taken apart, all at once.
    fn read_ahead(&mut self) -> Result<(), StateError> {
        let (mut found, mut wanted) = (Vec::new(), Vec::new());
        let mut todo = vec![(
            self.old.root(),
            self.trie.root(),
            self.trie.base().to_owned(),
        )];
        while let Some((old, new, path)) = todo.pop() {
            match (self.old.visit(old), self.trie.visit(new)) {
                (NodeView::Stub(stub), NodeView::Branch { .. } | NodeView::Extension { .. }) => {
                    let held = self.held.get(addr_of(stub, &path)?).cloned();
                    let page = match held {
                        None => self.pages.cached(stub, &path)?,
                        held => held,
                    };
                    if page.is_none() {
                        wanted.push((stub, path));
                    }
                    found.push(page);
                }
                (NodeView::Branch { children: old }, NodeView::Branch { children: new }) => {
                    let pairs = old.iter().zip(new).zip(0u8..16).rev();
                    todo.extend(pairs.map(|((old, new), nibble)| (*old, *new, path.child(nibble))));
                }
                // Few: these are read when they are needed.
                _ => {}
            }
        }
        let mut read = self.pages.read_batch(&wanted, ReadFor::Merge).into_iter();
        let pages = found.into_iter().filter_map(|page| match page {
            Some(page) => Some(Ok(page)),
            None => read.next(),
        });
        self.ahead = pages.collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Puts what is loose into a page, and gives the link for the index.
    fn settle(&mut self, outcome: Outcome, prefix: &Path) -> Result<Link, StateError> {
        match outcome {
            Outcome::Empty => Ok(Link::EMPTY),
            Outcome::Resident(link) => Ok(link),
            Outcome::Page(stub) => Ok(self.index.push_stub(stub)),
            Outcome::Loose {
                from, node, kind, ..
            } => {
                let node = match node {
                    Some(node) => node,
                    None => self.hash_leaves(from, prefix)?,
                };
                let mut page = PageBuilder::new(prefix);
                for leaf in &self.leaves[from..] {
                    page.leaf(&leaf.path, &self.values[leaf.value.clone()]);
                }
                for digest in self.take_digests(prefix, from) {
                    page.digest(&digest.path, digest.node.as_bytes());
                }
                self.leaves.truncate(from);
                let end = self.leaves.last().map_or(0, |leaf| leaf.value.end);
                self.values.truncate(end);
                let page = page.build();
                let place = Some(self.put(page)?);
                Ok(self.index.push_stub(Stub {
                    node,
                    kind: Some(kind),
                    place,
                }))
            }
        }
    }

    fn push_digest(&mut self, path: Path, node: NodeRef, only_below_top: bool) {
        self.digests.push(Digest {
            path,
            node,
            only_below_top,
        });
    }

    /// Takes out the digests for the page at `prefix`. That of its own root is in the index.
    fn take_digests(&mut self, prefix: &Path, from: usize) -> Vec<Digest> {
        let top = match &self.leaves[from..] {
            [first, .., last] => first.path.common_prefix_len(&last.path),
            _ => 0,
        };
        let own = |digest: &Digest| digest.path.starts_with(prefix);
        let start = self.digests.iter().position(own);
        let mut digests = self.digests.split_off(start.unwrap_or(self.digests.len()));
        digests.retain(|digest| {
            let wanted = !digest.only_below_top || digest.path.len() == top + 1;
            wanted && digest.path != *prefix
        });
        digests.sort_by_key(|digest| digest.path);
        digests.dedup_by_key(|digest| digest.path);
        digests
    }

    /// The reference of the subtrie at `prefix` whose leaves are the loose ones from `from` on.
    fn hash_leaves(&self, from: usize, prefix: &Path) -> Result<NodeRef, StateError> {
        let leaves = self.leaves[from..].iter();
        let leaves = leaves.map(|leaf| {
            let value = &self.values[leaf.value.clone()];
            Ok((leaf.path, decode_leaf(&leaf.path, value)?))
        });
        let leaves: Vec<_> = leaves.collect::<Result<_, StateError>>()?;
        let mut trie = PartialTrie::new(*self.index.base());
        let root = trie.graft_leaves(prefix, leaves.into_iter(), std::iter::empty())?;
        let hashed = trie.hash_nodes([root], &mut Batch::new());
        self.pages.counters.node_hashes.add(hashed as u64);
        let what = "a loose leaf";
        trie.memo(root).ok_or(StateError::Broken {
            path: *prefix,
            what,
        })
    }
}
