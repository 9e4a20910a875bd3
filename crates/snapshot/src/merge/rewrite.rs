//! Fast path of a merge: copies a page around the leaves that have changed or are new.
//!
//! All other changes (accounts with storage, leaves that no longer fit, a page that loses leaves)
//! take the slow path in `walk.rs`, which takes the page apart.

use super::sizes::{DIGEST_CHILD_LEAVES_MIN, DIGEST_LEAVES_MIN};
use crate::{
    base::{
        error::StateError,
        layout::{addr_of_place, addr_of_stub, decode_digests, place},
    },
    dirty::HeldPages,
    index::ChangedPage,
    pages::{Pages, PrefetchedPages, ReadCause},
};
use cambium_primitives::{ACCOUNT_NIBBLES, Path, SlotValue};
use cambium_store::{Page, PageAddr, PageRewriter};
use cambium_trie::{Link, NodeKind, NodeRef, NodeView, PartialTrie, Stub};
use rustc_hash::FxBuildHasher;
use std::{collections::HashSet, ops::Range};

/// The changed pages of a shard, and what became of them by the fast path.
#[derive(Default)]
pub(super) struct RewrittenPages {
    changed: Vec<ChangedPage>,
    /// The pages as they were, in the same order.
    pub(super) old: PrefetchedPages,
    /// The blinded nodes of the new pages, in the same order. `None` where the slow path is needed.
    pub(super) stubs: Vec<Option<Stub>>,
    /// Addresses of the new pages.
    pub(super) written: HashSet<PageAddr, FxBuildHasher>,
    /// Size of the new pages, in bytes.
    pub(super) bytes: u64,
}

impl RewrittenPages {
    /// Rewrites those of the `changed` pages that the fast path can, up to `bytes_max` bytes each, and caches the new ones in
    /// place of the old.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if reading or writing fails.
    pub(super) fn new(
        changed: Vec<ChangedPage>,
        trie: &PartialTrie,
        held: &HeldPages,
        bytes_max: usize,
        pages: &Pages,
    ) -> Result<Self, StateError> {
        let mut all = Self {
            old: read_changed(&changed, held, pages)?,
            stubs: Vec::with_capacity(changed.len()),
            changed,
            ..Self::default()
        };
        let mut rewriter = Rewriter::default();
        for (ChangedPage { stub, path, link }, (_, old)) in all.changed.iter().zip(all.old.all()) {
            let new = match (trie.visit(*link), trie.cached_ref(*link)) {
                (NodeView::Branch { children }, Some(node)) if old.prefix() == *path => rewriter
                    .rewrite(old, trie, children, bytes_max)?
                    .map(|page| (page, node)),
                _ => None,
            };
            let Some((page, node)) = new else {
                all.stubs.push(None);
                continue;
            };
            let addr = pages.segments.append(page.as_bytes())?;
            all.written.insert(addr);
            all.bytes += page.as_bytes().len() as u64;
            pages.replace(addr_of_stub(stub, path)?, addr, page);
            let (kind, place) = (Some(NodeKind::Branch), Some(place(addr)));
            all.stubs.push(Some(Stub { node, kind, place }));
        }
        Ok(all)
    }

    /// Returns the blinded node of the page at `path`, if that was rewritten.
    pub(super) fn at(&self, path: &Path) -> Option<Stub> {
        let found = self.changed.binary_search_by_key(path, |page| page.path);
        self.stubs[found.ok()?]
    }

    /// Returns the addresses of the rewritten pages as they were, given their numbers.
    pub(super) fn replaced(&self, numbers: Range<usize>) -> impl Iterator<Item = PageAddr> {
        let pages = self.changed[numbers.clone()]
            .iter()
            .zip(&self.stubs[numbers]);
        let rewritten = pages.filter(|(_, stub)| stub.is_some());
        rewritten.filter_map(|(page, _)| page.stub.place.map(addr_of_place))
    }
}

/// Returns the pages that have changed, in the order of `changed`. Reads those that are neither held nor cached, all in flight
/// at once.
fn read_changed(
    changed: &[ChangedPage],
    held: &HeldPages,
    pages: &Pages,
) -> Result<PrefetchedPages, StateError> {
    let mut found = Vec::with_capacity(changed.len());
    for ChangedPage { stub, path, .. } in changed {
        let page = match held.get(addr_of_stub(stub, path)?) {
            Some(page) => Some(page.clone()),
            None => pages.cached(stub, path)?,
        };
        found.push((*stub, *path, page));
    }
    pages.prefetch(found, ReadCause::Merge)
}

/// Rewrites pages with changed leaves. It reuses its buffers.
#[derive(Default)]
struct Rewriter {
    page: PageRewriter,
    /// Digests of the new page.
    digests: Vec<(Path, NodeRef)>,
    /// Buffer for an encoded account.
    value: Vec<u8>,
}

impl Rewriter {
    /// Returns the page that replaces `old`. It contains the subtrie of `trie` whose topmost branch
    /// has `children`, and in which blinded nodes stand for unchanged leaves of `old`. Returns
    /// `None` if the slow path is needed, which a page of more than `bytes_max` bytes takes to be split.
    fn rewrite(
        &mut self,
        old: &Page,
        trie: &PartialTrie,
        children: &[Link; 16],
        bytes_max: usize,
    ) -> Result<Option<Page>, StateError> {
        let prefix = old.prefix();
        if old.as_bytes().len() > bytes_max {
            return Ok(None);
        }
        if (ACCOUNT_NIBBLES - 1..=ACCOUNT_NIBBLES).contains(&prefix.len()) {
            return Ok(None);
        }
        self.page.begin(old);
        self.digests.clear();
        let mut walk = Walk {
            old,
            old_digests: decode_digests(old)?,
            trie,
            to: self,
        };
        if walk
            .branch(children, &prefix, 0..old.entries(), true)
            .is_none()
        {
            return Ok(None);
        }
        self.digests.sort_unstable_by_key(|(path, _)| *path);
        for (path, node) in &self.digests {
            self.page.digest(path, node.as_bytes());
        }
        let fits = self.page.bytes() <= bytes_max && self.page.entries() >= old.entries();
        Ok(fits.then(|| self.page.finish()))
    }
}

/// One rewrite of a page.
struct Walk<'a> {
    old: &'a Page,
    /// Digests of the old page, in path order.
    old_digests: Vec<(Path, NodeRef)>,
    trie: &'a PartialTrie,
    to: &'a mut Rewriter,
}

impl Walk<'_> {
    /// Adds the leaves below the branch at `path`, where the old page has `entries`. Returns their
    /// number, or `None` if the slow path is needed.
    fn branch(
        &mut self,
        children: &[Link; 16],
        path: &Path,
        entries: Range<usize>,
        is_top: bool,
    ) -> Option<usize> {
        let mut leaves = 0;
        let mut start = entries.start;
        for (child, nibble) in children.iter().zip(0u8..) {
            let same = |at: &usize| self.old.entry_nibble(*at, path.len()) == nibble;
            let end = start + (start..entries.end).take_while(same).count();
            if !child.is_empty() {
                let at = path.child(nibble);
                let below = self.node(*child, &at, start..end)?;
                let enough = match is_top {
                    true => DIGEST_CHILD_LEAVES_MIN,
                    false => DIGEST_LEAVES_MIN,
                };
                if below >= enough {
                    let node = self.trie.cached_ref(*child);
                    self.to.digests.extend(node.map(|node| (at, node)));
                }
                leaves += below;
            }
            start = end;
        }
        Some(leaves)
    }

    /// Adds the leaves of the subtrie at `link`, like [`Walk::branch`].
    fn node(&mut self, link: Link, path: &Path, entries: Range<usize>) -> Option<usize> {
        match self.trie.visit(link) {
            NodeView::Stub(_) => {
                let leaves = self.to.page.copy(self.old, entries)?;
                let first = self.old_digests.partition_point(|(at, _)| at <= path);
                let below = self.old_digests[first..].iter();
                let below = below.take_while(|(at, _)| at.starts_with(path));
                self.to.digests.extend(below);
                (leaves > 0).then_some(leaves)
            }
            NodeView::Branch { children } => self.branch(children, path, entries, false),
            NodeView::Extension { path: part, child } => {
                let to = path.join(&part);
                let under = self.old.entries_under(&to);
                self.node(child, &to, under)
            }
            NodeView::Account {
                key,
                account,
                storage,
                ..
            } if storage.is_empty() => {
                let value = &mut self.to.value;
                value.clear();
                account.encode_to(value);
                self.to.page.leaf(key.as_slice(), value)?;
                Some(1)
            }
            NodeView::Slot { key, value, .. } => {
                let slot = Path::slot(&path.account_part()?, &key);
                let value = SlotValue::new(value);
                self.to.page.leaf(slot.packed(), value.as_bytes())?;
                Some(1)
            }
            NodeView::Entry { key, value, .. } => {
                let bytes = &mut self.to.value;
                bytes.clear();
                value.encode_to(bytes);
                self.to.page.leaf(key.as_slice(), bytes)?;
                Some(1)
            }
            NodeView::Account { .. } | NodeView::Empty => None,
        }
    }
}
