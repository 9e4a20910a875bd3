//! Finding what the stubs of dirty tries stand for.

use crate::{
    base::{Base, is_under},
    error::StateError,
    forest::shard_of,
    index::Held,
    pages::{ReadFor, decode_leaf, digests_of, node_of},
};
use cambium_primitives::{ACCOUNT_NIBBLES, Path};
use cambium_store::Page;
use cambium_trie::{LeafValue, Link, NodeKind, NodeView, PartialTrie, Resolve, Stub, TrieError};
use std::{iter::empty, ops::Range, sync::Arc};

/// Part of a page of fewer leaves than this has no digest worth looking for.
const DIGEST_LEAVES_MIN: usize = 3;

/// Finds what a stub of a trie above the base stands for: by path, so that a stub stays good
/// when pages move.
pub(crate) struct Resolver<'a> {
    base: &'a Base,
    why: ReadFor,
    /// The page that was read last: a part of it is nearly always asked for next.
    open: Option<Arc<Page>>,
    /// Pages that were read ahead, in the order of their prefixes.
    ahead: Vec<Arc<Page>>,
    /// How many of these have been passed.
    passed: usize,
    /// Parts of the index.
    parts: Held,
}

impl<'a> Resolver<'a> {
    /// Counts the pages that it reads as read for `why`.
    pub(crate) fn new(base: &'a Base, why: ReadFor) -> Self {
        Self {
            base,
            why,
            open: None,
            ahead: Vec::new(),
            passed: 0,
            parts: Held::default(),
        }
    }

    /// Takes pages that will be asked for, in the order of their prefixes.
    pub(crate) fn read_ahead(&mut self, pages: Vec<Arc<Page>>) {
        self.ahead = pages;
        self.passed = 0;
    }

    /// Takes parts of the index that will be asked for.
    pub(crate) fn hold(&mut self, parts: Held) {
        self.parts = parts;
    }

    /// The page over `path`, if it is at hand.
    fn at_hand(&mut self, path: &Path) -> Option<&Page> {
        if self
            .open
            .as_ref()
            .is_none_or(|page| !path.starts_with(page.prefix()))
        {
            let later = |page: &Arc<Page>| path.starts_with(page.prefix()) || page.prefix() > path;
            let ahead = self.ahead.get(self.passed..).unwrap_or_default();
            self.passed += ahead.iter().position(later).unwrap_or(ahead.len());
            let page = self.ahead.get(self.passed)?;
            if !path.starts_with(page.prefix()) {
                return None;
            }
            self.open = Some(page.clone());
        }
        self.open.as_deref()
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
            let trie = middle.forest.shard(shard);
            if let Some(link) = trie.find(path)
                && let Some(grafted) = graft_hashed(into, trie, link)?
            {
                return Ok(grafted);
            }
        }
        if let Some(page) = self.at_hand(path) {
            return graft_page(page, path, into);
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
        let page = pages.read(stub, &path.prefix(node.depth), self.why)?;
        let page = self.open.insert(page);
        graft_page(page, path, into)
    }
}

/// Grafts the part of a page that is the subtrie at `path`.
fn graft_page(page: &Page, path: &Path, into: &mut PartialTrie) -> Result<Link, StateError> {
    if path == page.prefix()
        && let Some(root) = graft_top(page, into)?
    {
        return Ok(root);
    }
    let leaves = page
        .leaves_of(page.entries_under(path))
        .filter(|(leaf, _)| is_under(leaf, path))
        .map(|(leaf, bytes)| Ok((leaf, decode_leaf(&leaf, bytes)?)))
        .collect::<Result<Vec<_>, StateError>>()?;
    let mut digests = Vec::new();
    if leaves.len() >= DIGEST_LEAVES_MIN {
        digests = digests_of(page)?;
        digests.retain(|(digest, _)| digest.starts_with(path) && digest != path);
    }
    Ok(into.graft_leaves(path, leaves.into_iter(), digests.into_iter())?)
}

/// Grafts the topmost branch of a page: of its children, those whose references are cached as
/// stubs, to be asked for if something below them changes. Most of the page, for most changes, is
/// neither looked at nor hashed. `None` if there is no such child.
fn graft_top(page: &Page, into: &mut PartialTrie) -> Result<Option<Link>, StateError> {
    let entries = page.entries();
    let Some(last) = entries.checked_sub(1).filter(|last| *last > 0) else {
        return Ok(None);
    };
    let first = page.entry_path(0);
    let fork = first.common_prefix_len(&page.entry_path(last));
    let mut digests = [None; 16];
    for (nibble, bytes) in page.digests_at(fork + 1) {
        digests[usize::from(nibble)] = Some(bytes);
    }
    // At an account's depth a digest is that of its storage.
    if fork + 1 == ACCOUNT_NIBBLES || digests.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut children = [Link::EMPTY; 16];
    let mut start = 0;
    while start < entries {
        let nibble = page.entry_nibble(start, fork);
        let same = |at: &usize| page.entry_nibble(*at, fork) == nibble;
        let end = start + 1 + (start + 1..entries).take_while(same).count();
        children[usize::from(nibble)] = match digests[usize::from(nibble)] {
            Some(bytes) => {
                let below = |at| page.entry_nibble(at, fork + 1);
                into.push_stub(Stub {
                    node: node_of(&first.prefix(fork).child(nibble), bytes)?,
                    kind: Some(match end - start {
                        1 => NodeKind::Leaf,
                        _ if below(start) == below(end - 1) => NodeKind::Extension,
                        _ => NodeKind::Branch,
                    }),
                    place: None,
                })
            }
            None => graft_entries(page, start..end, fork + 1, into)?,
        };
        start = end;
    }
    let branch = into.push_branch(children);
    if fork == page.prefix().len() {
        return Ok(Some(branch));
    }
    let to = first.prefix(fork);
    Ok(Some(into.push_extension(page.prefix().len(), &to, branch)))
}

/// Grafts some entries of a page, which share all nibbles above `depth` and no digest.
fn graft_entries(
    page: &Page,
    entries: Range<usize>,
    depth: usize,
    into: &mut PartialTrie,
) -> Result<Link, StateError> {
    let mut leaves = page
        .leaves_of(entries)
        .map(|(leaf, bytes)| Ok((leaf, decode_leaf(&leaf, bytes)?)));
    let Some(first) = leaves.next().transpose()? else {
        return Ok(Link::EMPTY);
    };
    let (path, value) = first;
    let Some(second) = leaves.next() else {
        // By far the most.
        match (value, path.account_part(), path.slot_part()) {
            (LeafValue::Account(account), Some(key), None) => {
                return Ok(into.push_account(depth, &key, &account, Link::EMPTY));
            }
            (LeafValue::Slot(value), _, Some(key)) => {
                return Ok(into.push_slot(depth, &key, value));
            }
            _ => {}
        }
        return Ok(into.graft_leaves(&path.prefix(depth), [first].into_iter(), empty())?);
    };
    let all = [Ok(first), second].into_iter().chain(leaves);
    let all = all.collect::<Result<Vec<_>, StateError>>()?;
    Ok(into.graft_leaves(&path.prefix(depth), all.into_iter(), empty())?)
}

/// Copies a node of another trie. `None` for a stub, and for a node whose children are not
/// hashed: it lies below a digest of its page, so that it is what the page has.
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
