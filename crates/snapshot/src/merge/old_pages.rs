//! The pages of the old snapshot that the dirty trie has expanded.

use crate::{
    base::error::StateError,
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
    /// The pages of `index`, of which `ahead` are in memory.
    pub(crate) fn new(index: &'a PartialTrie, pages: &'a Pages, ahead: PrefetchedPages) -> Self {
        Self {
            index,
            pages,
            ahead,
            open: None,
        }
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
