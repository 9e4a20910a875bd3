//! The merge of one shard: walks the dirty trie bottom-up, and replaces the pages that the trie has
//! expanded. At the topmost branch of an old page it tries the fast path ([`Rewriter`]). Otherwise
//! it takes the old page apart, and assembles new pages from its unchanged leaves and the leaves of
//! the trie.

use super::{
    edit::{EditedIndex, IndexEdit, OldNode},
    old_pages::OldPages,
    result::MergedShard,
    rewrite::Rewriter,
    sizes::{
        DIGEST_BYTES, DIGEST_CHILD_LEAVES_MIN, DIGEST_LEAVES_MIN, DIGEST_SLOTS_MIN, PageSizes,
        SPLIT_ABOVE_BYTES,
    },
};
use crate::{
    base::{
        error::StateError,
        layout::{addr_of_place, addr_of_stub, decode_digests, decode_leaf, is_under, place},
    },
    dirty::HeldPages,
    index::PartRef,
    pages::{Pages, ReadCause},
};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, EntryValue, Path, SlotValue};
use cambium_store::{Page, PageAddr, PageBuilder, leaf_size_bytes};
use cambium_trie::{Link, Lookup, NodeKind, NodeRef, NodeView, PartialTrie, Place, Stub};
use rustc_hash::FxBuildHasher;
use std::{collections::HashSet, ops::Range, sync::Arc};

/// A node reference to be cached in a page.
struct Digest {
    path: Path,
    node: NodeRef,
    /// Whether to cache it only if the node is a child of the page's topmost branch.
    only_below_top: bool,
}

/// A leaf that is not in a page yet.
struct LooseLeaf {
    path: Path,
    /// Range of its encoded value in [`Merger::values`].
    value: Range<usize>,
}

/// State of a subtrie that the walk has passed.
enum Outcome {
    /// The subtrie has no leaves.
    Empty,
    /// The subtrie's root is a node of the new index.
    Resident(Link),
    /// The leaves from `from` on wait in [`Merger::leaves`] for a page.
    Loose {
        from: usize,
        /// Size of the leaves and digests in a page, in bytes.
        bytes: usize,
        /// Reference of the subtrie's root. `None` if it is unknown, as below a digest.
        node: Option<NodeRef>,
        kind: NodeKind,
    },
    /// The subtrie is a page on disk, unchanged or from the fast path.
    Page(Stub),
}

/// The merge of one shard.
pub(crate) struct Merger<'a> {
    /// The shard of the dirty trie.
    trie: &'a PartialTrie,
    pages: &'a Pages,
    old_pages: OldPages<'a>,
    /// The shard in the index.
    index: IndexEdit<'a>,
    /// Leaves not yet in a page, in path order.
    leaves: Vec<LooseLeaf>,
    /// The encoded values of those leaves, in the same order.
    values: Vec<u8>,
    /// Digests for the pages of those leaves.
    digests: Vec<Digest>,
    rewriter: Rewriter,
    sizes: PageSizes,
    /// Pages that this merge wrote and then replaced.
    dead: Vec<PageAddr>,
    /// Pages that this merge wrote. Their addresses may equal those of removed pages, since segment
    /// numbers are used again.
    written: HashSet<PageAddr, FxBuildHasher>,
    pages_written: u64,
    bytes_written: u64,
    /// Number of old pages whose root became a node of the index.
    split: u64,
    /// Number of pages written where the old index had an inner node.
    joined: u64,
}

impl<'a> Merger<'a> {
    /// Prepares the merge of the dirty `trie` above the index `old`, and reads the expanded pages
    /// that are neither in `held` nor cached.
    pub(crate) fn new(
        old: &'a PartialTrie,
        trie: &'a PartialTrie,
        held: &HeldPages,
        pages: &'a Pages,
        sizes: PageSizes,
    ) -> Result<Self, StateError> {
        Ok(Self {
            trie,
            pages,
            old_pages: OldPages::read(old, trie, held, pages)?,
            index: IndexEdit::new(old),
            leaves: Vec::new(),
            values: Vec::new(),
            digests: Vec::new(),
            rewriter: Rewriter::default(),
            sizes,
            dead: Vec::new(),
            written: HashSet::default(),
            pages_written: 0,
            bytes_written: 0,
            split: 0,
            joined: 0,
        })
    }

    /// Writes all changed pages, and returns the shard of the new index.
    pub(crate) fn merge(mut self) -> Result<MergedShard, StateError> {
        let prefix = *self.trie.base();
        let old = self.index.root();
        let root = self.node(self.trie.root(), old, &prefix)?;
        let root = self.place_in_index(root, old, &prefix)?;
        let EditedIndex {
            mut index,
            touched,
            mut dead,
            unhashed,
        } = self.index.finish(root);
        let hashed = index.hash_nodes(unhashed, &mut Batch::new());
        self.pages.counters.node_hashes.add(hashed as u64);
        dead.append(&mut self.dead);
        debug_assert_eq!(index.counts(), reachable(&index, index.root()));
        Ok(MergedShard {
            named: index.counts().1 as u64,
            index: Arc::new(index),
            touched,
            dead,
            pages: self.pages_written,
            bytes: self.bytes_written,
            split: self.split,
            joined: self.joined,
        })
    }

    /// Records that the node of the index at `link` has taken the place of `old` at `path`.
    fn resident(&mut self, link: Link, old: OldNode, path: &Path) -> Outcome {
        let before = old.exactly_at(path);
        self.split += u64::from(before.is_some_and(Link::is_stub));
        Outcome::Resident(link)
    }

    /// Merges the subtrie of the dirty trie at `link`, whose path is `path`, where the old index has
    /// `old`. Edits the index there only if the outcome is [`Outcome::Resident`].
    fn node(&mut self, link: Link, old: OldNode, path: &Path) -> Result<Outcome, StateError> {
        if let Some(before) = self.same_as_before(link, old, path)? {
            return Ok(before);
        }
        match self.trie.visit(link) {
            NodeView::Empty => Ok(Outcome::Empty),
            NodeView::Stub(stub) => self.unchanged(stub, old, path),
            NodeView::Branch { children } => self.branch(link, children, old, path),
            NodeView::Extension { path: part, child } => {
                let to = path.join(&part);
                let node = self.trie.cached_ref(link);
                let below = self.index.below(old, &to);
                match self.node(child, below, &to)? {
                    Outcome::Loose { from, bytes, .. } => Ok(Outcome::Loose {
                        from,
                        bytes,
                        node,
                        kind: NodeKind::Extension,
                    }),
                    outcome => {
                        let child = self.place_in_index(outcome, below, &to)?;
                        let link = self.index.put_extension(old, path, &to, child, node);
                        Ok(self.resident(link, old, path))
                    }
                }
            }
            NodeView::Account {
                key,
                account,
                storage,
                ..
            } => self.account(link, old, path, (&key, &account), storage),
            NodeView::Slot {
                path: part, value, ..
            } => {
                let from = self.leaves.len();
                let value = SlotValue::new(value);
                let bytes = self.push_leaf(path, path.join(&part), value.as_bytes());
                Ok(self.loose_leaf(link, from, bytes))
            }
            NodeView::Entry {
                path: part, value, ..
            } => {
                let from = self.leaves.len();
                let mut encoded = Vec::with_capacity(value.encoded_len());
                value.encode_to(&mut encoded);
                let bytes = self.push_leaf(path, path.join(&part), &encoded);
                Ok(self.loose_leaf(link, from, bytes))
            }
        }
    }

    /// The leaf at `link`, which was added as the loose leaf `from` of `bytes` bytes.
    fn loose_leaf(&self, link: Link, from: usize, bytes: usize) -> Outcome {
        Outcome::Loose {
            from,
            bytes,
            node: self.trie.cached_ref(link),
            kind: NodeKind::Leaf,
        }
    }

    /// Returns the old subtrie at `path` if it is equal to the dirty trie's at `link`: pages that the
    /// dirty trie has expanded for a block which is not in the merge, or for a change to the same
    /// values, stay what they are.
    fn same_as_before(
        &mut self,
        link: Link,
        old: OldNode,
        path: &Path,
    ) -> Result<Option<Outcome>, StateError> {
        let Some(before) = old.exactly_at(path).filter(|_| !link.is_stub()) else {
            return Ok(None);
        };
        let new = self.trie.cached_ref(link);
        let old = self.index.old().as_stub(before);
        let is_same = new.is_some() && new == old.map(|old| old.node);
        // A leaf commits to the hash of its value, and not to where that is stored.
        let is_same =
            is_same && (!self.trie.has_stored_values() || self.are_stored_alike(link, path)?);
        Ok(is_same.then(|| self.before(before)))
    }

    /// Whether the expanded entries of the subtrie at `link`, which is equal to the old one at `path`, have their
    /// values at the places in the old pages. A damaged page stays as it is.
    fn are_stored_alike(&mut self, link: Link, path: &Path) -> Result<bool, StateError> {
        match self.trie.visit(link) {
            NodeView::Branch { children } => {
                for (nibble, child) in (0u8..).zip(children) {
                    if !self.are_stored_alike(*child, &path.child(nibble))? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            NodeView::Extension { path: part, child } => {
                self.are_stored_alike(child, &path.join(&part))
            }
            NodeView::Entry { key, value, .. } if matches!(value, EntryValue::Stored(_)) => {
                let leaf = Path::account(&key);
                match self.old_pages.over(&leaf) {
                    Err(error) if error.is_damage() => Ok(true),
                    page => {
                        let mut encoded = Vec::with_capacity(value.encoded_len());
                        value.encode_to(&mut encoded);
                        Ok(page?.get(&leaf) == Some(&encoded[..]))
                    }
                }
            }
            NodeView::Empty
            | NodeView::Stub(_)
            | NodeView::Entry { .. }
            | NodeView::Account { .. }
            | NodeView::Slot { .. } => Ok(true),
        }
    }

    /// The node of the old index at `link`, unchanged.
    fn before(&self, link: Link) -> Outcome {
        match self.index.old().visit(link) {
            NodeView::Stub(page) if PartRef::of(page).is_none() => Outcome::Page(*page),
            _ => Outcome::Resident(link),
        }
    }

    /// Adds a loose leaf. Returns its size in a page with the given prefix, in bytes.
    fn push_leaf(&mut self, prefix: &Path, path: Path, value: &[u8]) -> usize {
        let start = self.values.len();
        self.values.extend_from_slice(value);
        let value = start..self.values.len();
        let bytes = leaf_size_bytes(prefix.len(), path.len(), value.len());
        self.leaves.push(LooseLeaf { path, value });
        bytes
    }

    /// Merges the branch at `link`. Tries the fast path if it is the topmost branch of an old page
    /// that was read ahead.
    fn branch(
        &mut self,
        link: Link,
        children: &[Link; 16],
        old: OldNode,
        path: &Path,
    ) -> Result<Outcome, StateError> {
        let page_bytes_max = self.sizes.split_above();
        if let Some(page) = self.old_pages.at(path)
            && let Some(node) = self.trie.cached_ref(link)
            && let Some(page) =
                (self.rewriter).rewrite(&page, self.trie, children, page_bytes_max)?
        {
            return Ok(Outcome::Page(Stub {
                node,
                kind: Some(NodeKind::Branch),
                place: Some(self.write_page(page, old)?),
            }));
        }
        let leaf_start = self.leaves.len();
        let mut outcomes = Vec::with_capacity(16);
        // Number of loose leaves below each child.
        let mut leaves = [0; 16];
        let (mut all_loose, mut any_loose, mut joinable, mut bytes_all) = (true, false, true, 0);
        for (nibble, &child) in children.iter().enumerate() {
            if child.is_empty() {
                outcomes.push(Outcome::Empty);
                continue;
            }
            let before = self.leaves.len();
            let below = self.index.child(old, path, nibble as u8);
            let outcome = self.node(child, below, &path.child(nibble as u8))?;
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
                        .map_or(0, |place| addr_of_place(place).len() as usize);
                }
                Outcome::Resident(_) => (all_loose, joinable) = (false, false),
            }
            outcomes.push(outcome);
        }
        let is_joined = !all_loose
            && any_loose
            && joinable
            && bytes_all <= self.sizes.join_below()
            && self.join(&mut outcomes, path, leaf_start)?;
        let node = self.trie.cached_ref(link);
        if is_joined || all_loose && !self.is_split(&outcomes, &leaves, bytes_all, old, path) {
            bytes_all += self.push_digests(&outcomes, &leaves, node, path, leaf_start);
            let kind = NodeKind::Branch;
            return Ok(Outcome::Loose {
                from: leaf_start,
                bytes: bytes_all,
                node,
                kind,
            });
        }
        if !self.is_branch(old, path) {
            let is_added = |outcome: &&Outcome| matches!(outcome, Outcome::Loose { .. });
            self.sizes.added(outcomes.iter().filter(is_added).count());
        }
        let mut links = [Link::EMPTY; 16];
        // Last children first, since each removes its leaves from the end.
        for (nibble, outcome) in outcomes.into_iter().enumerate().rev() {
            let below = self.index.child(old, path, nibble as u8);
            links[nibble] = self.place_in_index(outcome, below, &path.child(nibble as u8))?;
        }
        let link = self.index.put_branch(old, path, links, node);
        Ok(self.resident(link, old, path))
    }

    /// Whether the old index has a branch at `path`, where it has `old`.
    fn is_branch(&self, old: OldNode, path: &Path) -> bool {
        let before = old
            .exactly_at(path)
            .map(|link| self.index.old().visit(link));
        matches!(before, Some(NodeView::Branch { .. }))
    }

    /// Whether the loose children of the branch at `path`, which take `bytes` bytes together, become pages of their own.
    fn is_split(
        &self,
        outcomes: &[Outcome],
        leaves: &[usize; 16],
        bytes: usize,
        old: OldNode,
        path: &Path,
    ) -> bool {
        // Leaves that share all nibbles but the last stay in one page: a path of 64 nibbles is that of
        // a storage. There are sixteen of them at most.
        if path.len() + 1 == ACCOUNT_NIBBLES {
            return false;
        }
        if bytes > SPLIT_ABOVE_BYTES {
            return true;
        }
        if self.is_branch(old, path) {
            return bytes > self.sizes.join_below();
        }
        // A storage that fits into the page of its account stays there: its account would become part of the index.
        if path.len() == ACCOUNT_NIBBLES {
            return false;
        }
        let split_above = self.sizes.split_above();
        if split_above == SPLIT_ABOVE_BYTES {
            return false;
        }
        let (mut largest, mut with_digests) = (0, bytes);
        for (outcome, leaves) in outcomes.iter().zip(leaves) {
            if let Outcome::Loose { bytes, .. } = outcome {
                largest = largest.max(*bytes);
                if *leaves >= DIGEST_CHILD_LEAVES_MIN {
                    with_digests += DIGEST_BYTES;
                }
            }
        }
        with_digests > split_above && 2 * largest <= bytes
    }

    /// Adds digests for a loose branch at `path` and for those of its children that have enough leaves. Returns the
    /// size of the digests, in bytes.
    fn push_digests(
        &mut self,
        outcomes: &[Outcome],
        leaves: &[usize; 16],
        node: Option<NodeRef>,
        path: &Path,
        leaf_start: usize,
    ) -> usize {
        let mut bytes = 0;
        for ((nibble, outcome), leaves) in (0u8..).zip(outcomes).zip(leaves) {
            // A digest at 64 nibbles is a storage root, never an account's leaf.
            if let Outcome::Loose {
                node: Some(node), ..
            } = outcome
                && *leaves >= DIGEST_CHILD_LEAVES_MIN
                && path.len() + 1 != ACCOUNT_NIBBLES
            {
                self.push_digest(path.child(nibble), *node, true);
                bytes += DIGEST_BYTES;
            }
        }
        if let Some(node) = node
            && self.leaves.len() - leaf_start >= DIGEST_LEAVES_MIN
        {
            self.push_digest(*path, node, false);
            bytes += DIGEST_BYTES;
        }
        bytes
    }

    /// Makes the leaves of small pages among the children of a branch loose, so that they go into
    /// one page with their loose siblings. Returns false, without any change, if one of the pages
    /// can't be read, or there would be too many of them to read.
    fn join(
        &mut self,
        outcomes: &mut [Outcome],
        path: &Path,
        leaf_start: usize,
    ) -> Result<bool, StateError> {
        let is_page = |outcome: &&Outcome| matches!(outcome, Outcome::Page(_));
        let pages = outcomes.iter().filter(is_page).count();
        if !self.sizes.may_join(pages, self.pages_written) {
            return Ok(false);
        }
        let mut read = Vec::new();
        for (nibble, outcome) in (0u8..).zip(&*outcomes) {
            if let Outcome::Page(stub) = outcome {
                let prefix = path.child(nibble);
                let Ok(page) = self.pages.read(stub, &prefix, ReadCause::Merge) else {
                    return Ok(false);
                };
                read.push((addr_of_stub(stub, &prefix)?, page));
            }
        }
        let mut read = read.into_iter();
        let mut loose = self.leaves.split_off(leaf_start).into_iter().peekable();
        for (nibble, outcome) in outcomes.iter_mut().enumerate() {
            let prefix = path.child(nibble as u8);
            if let Outcome::Page(Stub { node, .. }) = *outcome
                && let Some((addr, page)) = read.next()
            {
                if self.written.contains(&addr) {
                    self.dead.push(addr);
                }
                for (path, value) in page.leaves() {
                    self.push_leaf(&prefix, path, value);
                }
                for (path, node) in decode_digests(&page)? {
                    self.push_digest(path, node, false);
                }
                if page.entries() >= DIGEST_CHILD_LEAVES_MIN && prefix.len() != ACCOUNT_NIBBLES {
                    self.push_digest(prefix, node, true);
                }
                *outcome = Outcome::Empty;
            } else {
                while let Some(leaf) = loose.next_if(|leaf| leaf.path.starts_with(&prefix)) {
                    // The value is copied, so that values stay in the order of their leaves.
                    let value = self.values[leaf.value].to_vec();
                    self.push_leaf(&prefix, leaf.path, &value);
                }
            }
        }
        Ok(true)
    }

    /// Merges an account's leaf with its storage. The leaf becomes part of the index if the storage
    /// does not fit into one page with it.
    fn account(
        &mut self,
        link: Link,
        old: OldNode,
        prefix: &Path,
        (key, account): (&B256, &Account),
        storage: Link,
    ) -> Result<Outcome, StateError> {
        let path = Path::account(key);
        let below = self.index.below(old, &path);
        let node = self.trie.cached_ref(link);
        let kind = NodeKind::Leaf;
        let from = self.leaves.len();
        let mut value = Vec::with_capacity(48);
        account.encode_to(&mut value);
        let bytes = self.push_leaf(prefix, path, &value);
        let storage = self.node(storage, below, &path)?;
        let more = match &storage {
            Outcome::Empty => Some(0),
            Outcome::Loose { bytes: slots, .. } if bytes + slots <= SPLIT_ABOVE_BYTES => {
                Some(*slots)
            }
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
        let storage = self.place_in_index(storage, below, &path)?;
        // The slots are in pages of their own, so the account's leaf belongs to the index.
        self.leaves.truncate(from);
        self.stamp_owner(storage, &path, account, &value)?;
        let leaf = (key, account);
        let link = self.index.put_account(old, prefix, leaf, storage, node);
        Ok(self.resident(link, old, prefix))
    }

    /// Ensures that the first page of an account's storage contains a copy of the account's leaf
    /// (its *owner*), so that the index can be rebuilt from pages. Skips a page that can't be
    /// read.
    fn stamp_owner(
        &mut self,
        storage: Link,
        path: &Path,
        account: &Account,
        value: &[u8],
    ) -> Result<(), StateError> {
        let Some((link, prefix)) = first_page(self.index.edited(), storage, path) else {
            return Ok(());
        };
        let Some(stub) = self.index.edited().as_stub(link) else {
            return Ok(());
        };
        let old = self.index.old();
        let before = old.find(path);
        let before = before.and_then(|before| first_page(old, before, path));
        let is_same_page = before.is_some_and(|(before, _)| {
            let before = old.as_stub(before).and_then(|before| before.place);
            before == stub.place
        });
        if is_same_page && old.lookup(path) == Lookup::Account(*account) {
            return Ok(());
        }
        let Ok(page) = self.pages.read(&stub, &prefix, ReadCause::Merge) else {
            return Ok(());
        };
        if page.owner() == Some(value) {
            return Ok(());
        }
        let addr = addr_of_stub(&stub, &prefix)?;
        let stamped = page.with_owner(value);
        let stamped_addr = self.append_page(&stamped)?;
        self.pages.replace(addr, stamped_addr, stamped);
        self.index.move_first_page(storage, place(stamped_addr));
        Ok(())
    }

    /// Takes over a blinded subtrie of the dirty trie, which is unchanged, from the old snapshot.
    fn unchanged(&mut self, stub: &Stub, old: OldNode, path: &Path) -> Result<Outcome, StateError> {
        if let Some(link) = old.exactly_at(path) {
            return Ok(self.before(link));
        }
        // The subtrie is part of an expanded page.
        let page = self.old_pages.over(path)?;
        let from = self.leaves.len();
        let mut bytes = 0;
        let leaves = page.leaves_of(page.entries_under(path));
        for (leaf, value) in leaves.filter(|(leaf, _)| is_under(leaf, path)) {
            bytes += self.push_leaf(path, leaf, value);
        }
        let kind = stub.kind.unwrap_or(NodeKind::Branch);
        Ok(Outcome::Loose {
            from,
            bytes,
            node: Some(stub.node),
            kind,
        })
    }

    /// Writes `page`, and caches it in place of the page that the old index has there.
    fn write_page(&mut self, page: Page, old: OldNode) -> Result<Place, StateError> {
        let addr = self.append_page(&page)?;
        let before = old.exactly_at(&page.prefix());
        match before.map(|link| self.index.old().visit(link)) {
            Some(NodeView::Stub(before)) => {
                if let Some(before) = before.place {
                    self.pages.replace(addr_of_place(before), addr, page);
                }
            }
            Some(_) => self.joined += 1,
            None => {}
        }
        Ok(place(addr))
    }

    /// Appends a page to the segments.
    fn append_page(&mut self, page: &Page) -> Result<PageAddr, StateError> {
        self.pages_written += 1;
        self.bytes_written += page.as_bytes().len() as u64;
        let addr = self.pages.segments.append(page.as_bytes())?;
        self.written.insert(addr);
        Ok(addr)
    }

    /// Puts a subtrie into the new index in place of `old`, and returns its link. Writes loose
    /// leaves to a page first.
    fn place_in_index(
        &mut self,
        outcome: Outcome,
        old: OldNode,
        prefix: &Path,
    ) -> Result<Link, StateError> {
        match outcome {
            Outcome::Empty => {
                self.index.remove(old);
                Ok(Link::EMPTY)
            }
            Outcome::Resident(link) => Ok(link),
            Outcome::Page(stub) => Ok(self.index.put_stub(old, prefix, stub)),
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
                let place = Some(self.write_page(page, old)?);
                let kind = Some(kind);
                let stub = Stub { node, kind, place };
                Ok(self.index.put_stub(old, prefix, stub))
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

    /// Removes and returns the digests for the page at `prefix`, sorted by path. The reference of
    /// its root is left out, since the index has it.
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

    /// Hashes the subtrie at `prefix` that consists of the loose leaves from `from` on.
    fn hash_leaves(&self, from: usize, prefix: &Path) -> Result<NodeRef, StateError> {
        let leaves = self.leaves[from..].iter();
        let leaves = leaves.map(|leaf| {
            let value = &self.values[leaf.value.clone()];
            Ok((leaf.path, decode_leaf(&leaf.path, value)?))
        });
        let leaves: Vec<_> = leaves.collect::<Result<_, StateError>>()?;
        let mut trie = PartialTrie::new(*self.trie.base()).committed_by(self.trie.commitment());
        let root = trie.graft_leaves(prefix, leaves.into_iter(), std::iter::empty())?;
        let hashed = trie.hash_nodes([root], &mut Batch::new());
        self.pages.counters.node_hashes.add(hashed as u64);
        let what = "a loose leaf";
        trie.cached_ref(root).ok_or(StateError::Broken {
            path: *prefix,
            what,
        })
    }
}

/// Returns the numbers of expanded and of blinded nodes of the subtrie at `link`.
fn reachable(trie: &PartialTrie, link: Link) -> (usize, usize) {
    let below: Vec<Link> = match trie.visit(link) {
        NodeView::Empty => return (0, 0),
        NodeView::Stub(_) => return (0, 1),
        NodeView::Branch { children } => children.to_vec(),
        NodeView::Extension { child, .. } => vec![child],
        NodeView::Account { storage, .. } => vec![storage],
        NodeView::Slot { .. } | NodeView::Entry { .. } => Vec::new(),
    };
    let below = below.into_iter().map(|link| reachable(trie, link));
    below.fold((1, 0), |a, b| (a.0 + b.0, a.1 + b.1))
}

/// Returns the blinded node of the first page, in path order, of the subtrie at `link`, whose path
/// is `at`; and the page's prefix. `None` if the subtrie begins with a slot or is empty.
pub(super) fn first_page(trie: &PartialTrie, link: Link, at: &Path) -> Option<(Link, Path)> {
    let (mut link, mut at) = (link, *at);
    loop {
        match trie.visit(link) {
            NodeView::Stub(_) => return Some((link, at)),
            NodeView::Branch { children } => {
                let mut there = (0u8..).zip(children).filter(|(_, child)| !child.is_empty());
                let (nibble, child) = there.next()?;
                (link, at) = (*child, at.child(nibble));
            }
            NodeView::Extension { path, child } => (link, at) = (child, at.join(&path)),
            NodeView::Account { key, storage, .. } => (link, at) = (storage, Path::account(&key)),
            NodeView::Slot { .. } | NodeView::Entry { .. } | NodeView::Empty => return None,
        }
    }
}
