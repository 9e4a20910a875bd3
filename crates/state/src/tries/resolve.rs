//! Resolving the blinded nodes of tries above the base, from the intermediate layer, the index and
//! leaf pages.

use crate::tries::base::Base;
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, EntryValue, Path};
use cambium_snapshot::{
    HeldParts, PlacedPage, PrefetchedPages, ReadCause, StateError, addr_of_stub, decode_digest,
    decode_digests, decode_leaf, is_under, shard_of,
};
use cambium_store::Page;
use cambium_trie::{
    LeafHasher, LeafValue, Link, NodeKind, NodeView, PartialTrie, Resolve, Stub, TrieError,
};
use std::{sync::Arc, time::Duration};

/// A part of a page with fewer leaves than this has no cached node references worth reading.
const DIGEST_LEAVES_MIN: usize = 3;

/// Resolves blinded nodes by their paths, so that a blinded node stays valid when a merge moves its
/// page.
pub(crate) struct Resolver<'a> {
    base: &'a Base,
    why: ReadCause,
    /// The page that was read last: the next request is nearly always for another part of it.
    open: Option<Arc<Page>>,
    ahead: PrefetchedPages,
    /// Parts of the index that were read.
    parts: HeldParts,
    /// Pages of which a part was grafted.
    taken: Vec<PlacedPage>,
    /// Time that the thread of this resolver left its work to others.
    shared: Duration,
    hasher: LeafHasher,
}

impl<'a> Resolver<'a> {
    /// A resolver whose page reads are counted under `why`.
    pub(crate) fn new(base: &'a Base, why: ReadCause) -> Self {
        Self {
            base,
            why,
            open: None,
            ahead: PrefetchedPages::default(),
            parts: HeldParts::default(),
            taken: Vec::new(),
            shared: Duration::ZERO,
            hasher: LeafHasher::new(base.snapshot.index.commitment()),
        }
    }

    /// Sets the pages that will be needed next, and the parts of the index above them, in place of
    /// those that were set before.
    pub(crate) fn read_ahead(&mut self, (pages, parts): (PrefetchedPages, HeldParts)) {
        self.ahead = pages;
        self.parts = parts;
    }

    /// Reads the pages that the paths of leaves need, in one batch. They stay in the cache.
    pub(crate) fn prefetch(&self, leaves: impl Iterator<Item = Path>) -> Result<(), StateError> {
        self.base.snapshot.prefetch_pages(leaves, self.why)
    }

    /// Drains the pages of which a part was grafted since the last call.
    pub(crate) fn taken(&mut self) -> impl Iterator<Item = PlacedPage> {
        self.taken.drain(..)
    }

    /// The base that nodes are loaded from.
    pub(crate) fn base(&self) -> &'a Base {
        self.base
    }

    /// All pages of which a part was grafted.
    pub(crate) fn into_taken(self) -> Vec<PlacedPage> {
        self.taken
    }

    /// Adds pages that resolvers of other threads have taken, in a time in which this thread left its
    /// work to them.
    pub(crate) fn extend_taken(
        &mut self,
        pages: impl IntoIterator<Item = Vec<PlacedPage>>,
        shared: Duration,
    ) {
        self.taken.extend(pages.into_iter().flatten());
        self.shared += shared;
    }

    /// Time in which the thread of this resolver left its work to others.
    pub(crate) fn shared(&self) -> Duration {
        self.shared
    }

    /// The page over `path`, if it is already in memory here.
    fn at_hand(&mut self, path: &Path) -> Option<Arc<Page>> {
        if self
            .open
            .as_ref()
            .is_none_or(|page| !path.starts_with(page.prefix()))
        {
            let (addr, page) = self.ahead.over(path)?;
            self.taken.push((*addr, page.clone()));
            self.open = Some(page.clone());
        }
        self.open.clone()
    }
}

impl Resolve for Resolver<'_> {
    type Error = StateError;

    fn resolve(
        &mut self,
        path: &Path,
        _stub: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, StateError> {
        let shard = shard_of(path);
        if let Some(middle) = &self.base.intermediate {
            let trie = middle.tries.shard(shard);
            if let Some(link) = trie.find(path)
                && let Some(grafted) = graft_hashed(into, trie, link)?
            {
                return Ok(grafted);
            }
        }
        if let Some(page) = self.at_hand(path) {
            return graft_page(&page, path, into, &mut self.hasher);
        }
        let node = self.base.snapshot.index.node_at(path, &mut self.parts)?;
        let node = node.ok_or(StateError::Broken {
            path: *path,
            what: "a node or a page in the index",
        })?;
        let NodeView::Stub(stub) = node.trie.visit(node.link) else {
            return Ok(into.graft_node(&node.trie, node.link)?);
        };
        let pages = &self.base.snapshot.pages;
        let prefix = path.prefix(node.depth);
        let page = pages.read(stub, &prefix, self.why)?;
        self.taken
            .push((addr_of_stub(stub, &prefix)?, page.clone()));
        let page = self.open.insert(page);
        graft_page(page, path, into, &mut self.hasher)
    }
}

/// Grafts the part of a page that is the subtrie at `path`.
fn graft_page(
    page: &Page,
    path: &Path,
    into: &mut PartialTrie,
    hasher: &mut LeafHasher,
) -> Result<Link, StateError> {
    if path == page.prefix()
        && let Some(root) = graft_top(page, into, hasher)?
    {
        return Ok(root);
    }
    let entries = page.entries_under(path);
    if entries.len() == 1
        && path.len() != ACCOUNT_NIBBLES
        && let Some(leaf) = only_leaf(page, entries.start)?
    {
        return Ok(match leaf {
            OnlyLeaf::Account(key, account) => {
                into.push_account(path.len(), &key, &account, Link::EMPTY)
            }
            OnlyLeaf::Slot(key, value) => into.push_slot(path.len(), &key, value),
            OnlyLeaf::Entry(key, value) => into.push_entry(path.len(), &key, value),
        });
    }
    let leaves = page
        .leaves_of(entries)
        .filter(|(leaf, _)| is_under(leaf, path))
        .map(|(leaf, bytes)| Ok((leaf, decode_leaf(&leaf, bytes)?)))
        .collect::<Result<Vec<_>, StateError>>()?;
    let mut digests = Vec::new();
    if leaves.len() >= DIGEST_LEAVES_MIN {
        digests = decode_digests(page)?;
        digests.retain(|(digest, _)| digest.starts_with(path) && digest != path);
    }
    Ok(into.graft_leaves(path, leaves.into_iter(), digests.into_iter())?)
}

/// Grafts the topmost branch of a page with blinded children, which are resolved only if something
/// below them changes. The page caches the references of the children, except for those of single
/// leaves, which are hashed here: a leaf takes twice the memory of a blinded node, and most leaves
/// are never needed. `None` if the page has no such branch.
fn graft_top(
    page: &Page,
    into: &mut PartialTrie,
    hasher: &mut LeafHasher,
) -> Result<Option<Link>, StateError> {
    let entries = page.entries();
    let Some(last) = entries.checked_sub(1).filter(|last| *last > 0) else {
        return Ok(None);
    };
    let first = page.entry_path(0);
    let fork = first.common_prefix_len(&page.entry_path(last));
    // A digest at an account's depth is that of its storage.
    if fork + 1 == ACCOUNT_NIBBLES {
        return Ok(None);
    }
    let mut digests = [None; 16];
    for (nibble, bytes) in page.digests_at(fork + 1) {
        digests[usize::from(nibble)] = Some(bytes);
    }
    let stub = |node, kind| Stub {
        node,
        kind: Some(kind),
        place: None,
    };
    let mut children = [Link::EMPTY; 16];
    let (mut hashed, mut hashed_len) = ([0; 16], 0);
    let mut start = 0;
    while start < entries {
        let nibble = page.entry_nibble(start, fork);
        let same = |at: &usize| page.entry_nibble(*at, fork) == nibble;
        let end = start + 1 + (start + 1..entries).take_while(same).count();
        let child = &mut children[usize::from(nibble)];
        if let Some(bytes) = digests[usize::from(nibble)] {
            let below = |at| page.entry_nibble(at, fork + 1);
            let kind = match end - start {
                1 => NodeKind::Leaf,
                _ if below(start) == below(end - 1) => NodeKind::Extension,
                _ => NodeKind::Branch,
            };
            let node = decode_digest(&first.prefix(fork).child(nibble), bytes)?;
            *child = into.push_stub(stub(node, kind));
        } else if end == start + 1
            && let Some(leaf) = only_leaf(page, start)?
        {
            match leaf {
                OnlyLeaf::Account(key, account) => hasher.account(fork + 1, &key, &account),
                OnlyLeaf::Slot(key, value) => hasher.slot(fork + 1, &key, value),
                OnlyLeaf::Entry(key, value) => hasher.entry(fork + 1, &key, &value),
            }
            hashed[hashed_len] = nibble;
            hashed_len += 1;
        } else {
            let path = first.prefix(fork).child(nibble);
            let leaves = page
                .leaves_of(start..end)
                .map(|(leaf, bytes)| Ok((leaf, decode_leaf(&leaf, bytes)?)))
                .collect::<Result<Vec<_>, StateError>>()?;
            *child = into.graft_leaves(&path, leaves.into_iter(), std::iter::empty())?;
        }
        start = end;
    }
    for (nibble, node) in hashed[..hashed_len].iter().zip(hasher.finish()) {
        children[usize::from(*nibble)] = into.push_stub(stub(node, NodeKind::Leaf));
    }
    let branch = into.push_branch(children);
    if fork == page.prefix().len() {
        return Ok(Some(branch));
    }
    let to = first.prefix(fork);
    Ok(Some(into.push_extension(page.prefix().len(), &to, branch)))
}

/// A leaf that is the only one of its entry.
enum OnlyLeaf {
    /// An account without slots in the page, by its path.
    Account(B256, Account),
    /// A slot, by its path within the account.
    Slot(B256, U256),
    /// An entry, by its key.
    Entry(B256, EntryValue),
}

/// The leaf of an entry of a page's outermost run; `None` if the entry has several leaves, or is a
/// slot below an account of the page.
fn only_leaf(page: &Page, entry: usize) -> Result<Option<OnlyLeaf>, StateError> {
    let mut leaves = page.leaves_of(entry..entry + 1);
    let (Some((path, bytes)), None) = (leaves.next(), leaves.next()) else {
        return Ok(None);
    };
    let value = decode_leaf(&path, bytes)?;
    Ok(match (value, path.account_part(), path.slot_part()) {
        (LeafValue::Account(account), Some(key), None) => Some(OnlyLeaf::Account(key, account)),
        (LeafValue::Entry(value), Some(key), None) => Some(OnlyLeaf::Entry(key, value)),
        (LeafValue::Slot(value), _, Some(key)) if page.prefix().len() > ACCOUNT_NIBBLES => {
            Some(OnlyLeaf::Slot(key, value))
        }
        _ => None,
    })
}

/// Copies a node of another trie. `None` for a blinded node, and for a node whose children are not
/// hashed: such a node lies below a cached reference of its page, so that the page has the same
/// node.
pub(crate) fn graft_hashed(
    into: &mut PartialTrie,
    from: &PartialTrie,
    link: Link,
) -> Result<Option<Link>, StateError> {
    if link.is_stub() {
        return Ok(None);
    }
    match into.graft_node(from, link) {
        Ok(grafted) => Ok(Some(grafted)),
        Err(TrieError::NotHashed { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
