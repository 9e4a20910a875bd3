//! Fast path of a merge: copies a page around the leaves that have changed or are new.
//!
//! All other changes (accounts with storage, leaves that no longer fit, a page that loses leaves)
//! take the slow path in `walk.rs`, which takes the page apart.

use super::sizes::{DIGEST_CHILD_LEAVES_MIN, DIGEST_LEAVES_MIN};
use crate::base::{error::StateError, layout::decode_digests};
use cambium_primitives::{ACCOUNT_NIBBLES, Path, SlotValue};
use cambium_store::{Page, PageRewriter};
use cambium_trie::{Link, NodeRef, NodeView, PartialTrie};
use std::ops::Range;

/// Rewrites pages with changed leaves. It reuses its buffers.
#[derive(Default)]
pub(super) struct Rewriter {
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
    pub(super) fn rewrite(
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
