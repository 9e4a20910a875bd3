//! The pages of the old snapshot that the dirty trie has expanded.

use crate::{
    base::{error::StateError, layout::addr_of_stub},
    dirty::HeldPages,
    pages::{Pages, PrefetchedPages, ReadCause},
};
use cambium_primitives::Path;
use cambium_store::Page;
use cambium_trie::{NodeView, PartialTrie};
use std::sync::Arc;

/// Expanded pages of one shard, for look-ups in path order.
pub(crate) struct OldPages<'a> {
    index: &'a PartialTrie,
    pages: &'a Pages,
    ahead: PrefetchedPages,
    /// The page of the last look-up, since several parts of a page are looked up in a row.
    open: Option<Arc<Page>>,
}

impl<'a> OldPages<'a> {
    /// Finds the pages in `index` that `trie` has expanded and changed, except for those below
    /// accounts and extensions. Reads those that are neither held nor cached, all in flight at once.
    pub(crate) fn read(
        index: &'a PartialTrie,
        trie: &PartialTrie,
        held: &HeldPages,
        pages: &'a Pages,
    ) -> Result<Self, StateError> {
        let mut found = Vec::new();
        let mut todo = vec![(index.root(), trie.root(), *trie.base())];
        while let Some((old, new, path)) = todo.pop() {
            match (index.visit(old), trie.visit(new)) {
                // Expanded, but not changed.
                (NodeView::Stub(stub), _) if trie.cached_ref(new) == Some(stub.node) => {}
                (NodeView::Stub(stub), NodeView::Branch { .. } | NodeView::Extension { .. }) => {
                    let page = match held.get(addr_of_stub(stub, &path)?) {
                        Some(page) => Some(page.clone()),
                        None => pages.cached(stub, &path)?,
                    };
                    found.push((*stub, path, page));
                }
                (NodeView::Branch { children: old }, NodeView::Branch { children: new }) => {
                    let pairs = old.iter().zip(new).zip(0u8..16).rev();
                    todo.extend(pairs.map(|((old, new), nibble)| (*old, *new, path.child(nibble))));
                }
                // Expanded pages below accounts or extensions are read on demand.
                _ => {}
            }
        }
        Ok(Self {
            index,
            pages,
            ahead: pages.prefetch(found, ReadCause::Merge)?,
            open: None,
        })
    }

    /// Returns the page with the prefix `path`, if [`OldPages::read`] found it.
    pub(crate) fn at(&mut self, path: &Path) -> Option<Arc<Page>> {
        let (_, page) = self.ahead.over(path)?;
        (page.prefix() == *path).then(|| page.clone())
    }

    /// Returns the page that contains the subtrie at `path`.
    pub(crate) fn over(&mut self, path: &Path) -> Result<Arc<Page>, StateError> {
        if let Some(page) = &self.open
            && path.starts_with(&page.prefix())
        {
            return Ok(page.clone());
        }
        let page = match self.ahead.over(path) {
            Some((_, page)) => page.clone(),
            None => self.read_over(path)?,
        };
        Ok(self.open.insert(page).clone())
    }

    fn read_over(&self, path: &Path) -> Result<Arc<Page>, StateError> {
        let broken = || StateError::Broken {
            path: *path,
            what: "a node or a page in the index",
        };
        let (link, depth) = self.index.find_or_stub(path).ok_or_else(broken)?;
        let NodeView::Stub(stub) = self.index.visit(link) else {
            return Err(broken());
        };
        self.pages.read(stub, &path.prefix(depth), ReadCause::Merge)
    }
}
