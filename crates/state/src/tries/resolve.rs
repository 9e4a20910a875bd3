//! Resolving the blinded nodes of tries above the base, from the intermediate layer, the index and
//! leaf pages.

use crate::tries::{base::Base, unread::Unread};
use alloy_primitives::{B256, U256};
use cambium_primitives::{ACCOUNT_NIBBLES, Account, EntryValue, Path};
use cambium_snapshot::{
    HeldParts, PlacedPage, PrefetchedPages, ReadCause, StateError, addr_of_stub, decode_digest,
    decode_digests, decode_leaf, is_under, shard_of, update_error,
};
use cambium_store::Page;
use cambium_trie::{
    Batch, LeafHasher, LeafValue, Link, NodeKind, NodeView, PartialTrie, Resolve, SHARD_NIBBLES,
    Stub, TrieError, commit,
};
use std::{sync::Arc, time::Duration};

/// A part of a page with fewer leaves than this has no cached node references worth reading.
const DIGEST_LEAVES_MIN: usize = 3;

/// Resolves blinded nodes by their paths, so that a blinded node stays valid when a merge moves its
/// page.
pub(crate) struct Resolver<'a> {
    base: &'a Base,
    /// Unread subtries of the tries whose nodes are resolved, which stand above the base.
    unread: Option<&'a Unread>,
    why: ReadCause,
    /// The unread subtrie that was made last, by the path of its root.
    made: Option<(Path, PartialTrie)>,
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
    /// A resolver of the base's nodes, whose page reads are counted under `why`.
    pub(crate) fn new(base: &'a Base, why: ReadCause) -> Self {
        Self {
            base,
            unread: None,
            why,
            made: None,
            open: None,
            ahead: PrefetchedPages::default(),
            parts: HeldParts::default(),
            taken: Vec::new(),
            shared: Duration::ZERO,
            hasher: LeafHasher::new(base.snapshot.index.commitment()),
        }
    }

    /// A resolver for tries above the base that have these unread subtries.
    pub(crate) fn above(self, unread: Option<&'a Unread>) -> Self {
        Self { unread, ..self }
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

    /// The unread subtries of the tries above the base.
    pub(crate) fn unread(&self) -> Option<&'a Unread> {
        self.unread
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
            .is_none_or(|page| !path.starts_with(&page.prefix()))
        {
            let (addr, page) = self.ahead.over(path)?;
            self.taken.push((*addr, page.clone()));
            self.open = Some(page.clone());
        }
        self.open.clone()
    }

    /// The node at `path`, if it is in an unread subtrie and was changed there, or is the subtrie's root.
    fn resolve_unread(
        &mut self,
        unread: &Unread,
        path: &Path,
        into: &mut PartialTrie,
    ) -> Result<Option<Link>, StateError> {
        let Some(root) = unread.over(path) else {
            return Ok(None);
        };
        let trie = match self.made.take() {
            Some((made, trie)) if made == *root => trie,
            _ => self.make_unread(unread, root)?,
        };
        let (_, trie) = self.made.insert((*root, trie));
        let found = match trie.find(path) {
            Some(link) => graft_hashed(into, trie, link)?,
            None => None,
        };
        match found {
            // Anything else that is not in it is what the snapshot has.
            None if path == root => Err(StateError::Broken {
                path: *path,
                what: "the node that the block log has a reference of",
            }),
            found => Ok(found),
        }
    }

    /// Makes an unread subtrie: the snapshot's, with the changes. The trie's root is at `root`, or above where that is in a storage trie.
    fn make_unread(&mut self, unread: &Unread, root: &Path) -> Result<PartialTrie, StateError> {
        let base = Base {
            snapshot: unread.snapshot.clone(),
            intermediate: None,
        };
        let mut below = Resolver::new(&base, self.why);
        below.open = self.at_hand(root);
        let index = &base.snapshot.index;
        let node = index.node_at(root, &mut below.parts)?;
        let stub = node.and_then(|node| node.trie.as_stub(node.link));
        let stub = Stub {
            place: None,
            ..stub.ok_or(StateError::Broken {
                path: *root,
                what: "a node of the index where a subtrie has changed",
            })?
        };
        let base_path = match root.len() {
            ACCOUNT_NIBBLES.. => root.prefix(SHARD_NIBBLES),
            _ => *root,
        };
        let mut trie = PartialTrie::from_stub(base_path, stub).committed_by(index.commitment());
        if let Some(account) = root.account_part() {
            // A storage trie is changed from its account on, which has no other slots here.
            let storage = match root.len() {
                ACCOUNT_NIBBLES => trie.root(),
                _ => trie.push_extension(ACCOUNT_NIBBLES, root, trie.root()),
            };
            let none = Account::default();
            let leaf = trie.push_account(SHARD_NIBBLES, &account, &none, storage);
            trie.set_root(leaf);
        }
        let changes = unread.changes_under(root);
        trie.apply(&changes, &mut below).map_err(update_error)?;
        self.taken.append(&mut below.taken);
        commit(&mut [&mut trie], &mut Batch::new());
        Ok(trie)
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
        let (base, unread) = (self.base, self.unread);
        if let Some(unread) = unread
            && let Some(grafted) = self.resolve_unread(unread, path, into)?
        {
            return Ok(grafted);
        }
        if let Some(middle) = &base.intermediate {
            let trie = middle.tries.shard(shard_of(path));
            if let Some(link) = trie.find(path)
                && let Some(grafted) = graft_hashed(into, trie, link)?
            {
                return Ok(grafted);
            }
            if let Some(unread) = middle.tries.unread()
                && let Some(grafted) = self.resolve_unread(unread, path, into)?
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
    if *path == page.prefix()
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
