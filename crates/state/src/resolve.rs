//! Finding what the stubs of dirty tries stand for.

use crate::{
    base::{Base, is_under, page_over},
    error::StateError,
    forest::shard_of,
    pages::{ReadFor, decode_leaf, digests_of, node_of},
};
use cambium_primitives::{ACCOUNT_NIBBLES, Path};
use cambium_store::Page;
use cambium_trie::{Link, NodeKind, NodeView, PartialTrie, Resolve, Stub, TrieError};
use std::sync::Arc;

/// Part of a page of fewer leaves than this has no digest worth looking for.
const DIGEST_LEAVES_MIN: usize = 3;

/// Finds what a stub of a trie above the base stands for: by path, so that a stub stays good
/// when pages move.
pub(crate) struct Resolver<'a> {
    base: &'a Base,
    why: ReadFor,
    /// The page that was read last: a part of it is nearly always asked for next.
    open: Option<Arc<Page>>,
}

impl<'a> Resolver<'a> {
    /// Counts the pages that it reads as read for `why`.
    pub(crate) const fn new(base: &'a Base, why: ReadFor) -> Self {
        Self {
            base,
            why,
            open: None,
        }
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
        if let Some(page) = &self.open
            && path.starts_with(page.prefix())
        {
            return graft_page(page, path, into);
        }
        let index = &self.base.snapshot.index[shard];
        let (stub, depth) = match index.find(path).map(|link| (link, index.visit(link))) {
            Some((_, NodeView::Stub(stub))) => (stub, path.len()),
            Some((link, _)) => return Ok(into.graft_node(index, link)?),
            None => page_over(index, path).ok_or(StateError::Broken {
                path: *path,
                what: "a node or a page in the index",
            })?,
        };
        let pages = &self.base.snapshot.pages;
        let page = pages.read(stub, &path.prefix(depth), self.why)?;
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
    let (mut start, mut next) = (0, first);
    while start < entries {
        let (from, nibble) = (next, next.nibble(fork));
        let (mut to, mut end) = (from, start + 1);
        while end < entries {
            next = page.entry_path(end);
            if next.nibble(fork) != nibble {
                break;
            }
            (to, end) = (next, end + 1);
        }
        let path = from.prefix(fork + 1);
        children[usize::from(nibble)] = match digests[usize::from(nibble)] {
            Some(bytes) => into.push_stub(Stub {
                node: node_of(&path, bytes)?,
                kind: Some(match from.common_prefix_len(&to) {
                    _ if end == start + 1 => NodeKind::Leaf,
                    shared if shared > path.len() => NodeKind::Extension,
                    _ => NodeKind::Branch,
                }),
                place: None,
            }),
            None => {
                let leaves = page
                    .leaves_of(start..end)
                    .map(|(leaf, bytes)| Ok((leaf, decode_leaf(&leaf, bytes)?)))
                    .collect::<Result<Vec<_>, StateError>>()?;
                into.graft_leaves(&path, leaves.into_iter(), std::iter::empty())?
            }
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
