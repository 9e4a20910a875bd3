//! One shard of the index.

use super::{
    block::{Below, Block, Walked},
    part_ref::PartRef,
};
use crate::base::{error::StateError, layout::addr_of_place};
use cambium_primitives::Path;
use cambium_store::PageAddr;
use cambium_trie::{Link, NodeView, PartialTrie, Stub};
use std::sync::Arc;

/// One of the 256 shards of an index. Its top is a trie, and what is below that is in blocks in
/// memory, or in parts on disk.
#[derive(Clone)]
pub(super) struct Shard {
    /// The top. Its blinded nodes name pages, and blocks or parts.
    pub(super) trie: Arc<PartialTrie>,
    /// The blocks that the top names, by their numbers. None if the parts are on disk.
    pub(super) blocks: Arc<[Arc<Block>]>,
    /// Number of pages that the whole shard names.
    pub(super) pages: u64,
    /// Offset of its parts, which are contiguous, in the section of a checkpoint, in bytes. 0 if they are in the segments.
    pub(super) offset: u64,
    /// Length of its parts on disk, in bytes.
    pub(super) len: u64,
}

impl Shard {
    /// Returns where the part is that a stub of the top names, or `None` if the stub names a page.
    pub(super) fn part_of(&self, stub: &Stub) -> Option<PartRef> {
        Some(PartRef::of(stub)?.behind(self.offset))
    }

    /// Memory of top and blocks, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        memory_of(&self.trie, &self.blocks)
    }

    /// Returns the block that `stub` at depth `depth` names, which is a blinded node of the top of a
    /// shard in memory. `None` if it names a page.
    pub(super) fn block_of(&self, stub: &Stub, depth: usize) -> Option<Below<'_>> {
        let block = self.blocks.get(PartRef::of(stub)?.number())?;
        let stub = Stub {
            place: None,
            ..*stub
        };
        Some(Below { block, stub, depth })
    }

    /// Calls `visit` for each page that a whole shard in memory names.
    pub(super) fn each_page(&self, visit: &mut dyn FnMut(PageAddr)) {
        let mut todo = vec![self.trie.root()];
        while let Some(link) = todo.pop() {
            match self.trie.visit(link) {
                NodeView::Stub(stub) if PartRef::of(stub).is_none() => {
                    stub.place
                        .map(addr_of_place)
                        .into_iter()
                        .for_each(&mut *visit);
                }
                NodeView::Branch { children } => todo.extend(children),
                NodeView::Extension { child, .. } => todo.push(child),
                NodeView::Account { storage, .. } => todo.push(storage),
                NodeView::Stub(_)
                | NodeView::Slot { .. }
                | NodeView::Entry { .. }
                | NodeView::Empty => {}
            }
        }
        self.blocks.iter().for_each(|block| block.each_page(visit));
    }
}

/// Memory of a top and of the blocks that it names, in bytes.
pub(super) fn memory_of(top: &PartialTrie, blocks: &[Arc<Block>]) -> usize {
    let lower = blocks.iter().map(|block| block.memory_bytes());
    top.memory_bytes() + size_of_val(blocks) + lower.sum::<usize>()
}

/// Follows `path`, a node's or a leaf's as `is_leaf` says, from the block `at` down to the last block
/// on its way. Returns that, and where the walk ends in it.
pub(super) fn deepest<'a>(
    mut at: Below<'a>,
    path: &Path,
    is_leaf: bool,
) -> (Below<'a>, Walked<'a>) {
    loop {
        match at.block.walk(at.depth, path, is_leaf) {
            Walked::Below(below) => at = below,
            walked => return (at, walked),
        }
    }
}

/// Copies a whole shard without cached node references, so that hashing the copy computes all nodes
/// above the pages. The blinded nodes keep their references.
pub(crate) fn without_cached_refs(whole: &PartialTrie) -> Result<PartialTrie, StateError> {
    let mut bare = PartialTrie::new(*whole.base()).committed_by(whole.commitment());
    let (mut none, with_refs) = (|_: &mut _, _, _: &_| Ok(None), false);
    let root = copy_with(
        whole,
        whole.root(),
        whole.base(),
        &mut bare,
        with_refs,
        &mut none,
    )?;
    bare.set_root(root);
    Ok(bare)
}

/// Copies the subtrie at `link` of `from`, whose path is `at`, to `into`, with its cached node
/// references, and returns the link of the copy. Where `instead` returns a link, the copy has that
/// in place of the subtrie. Recursion is bounded by the path's 128 nibbles.
pub(super) fn copy(
    from: &PartialTrie,
    link: Link,
    at: &Path,
    into: &mut PartialTrie,
    instead: &mut impl FnMut(&mut PartialTrie, Link, &Path) -> Result<Option<Link>, StateError>,
) -> Result<Link, StateError> {
    copy_with(from, link, at, into, true, instead)
}

fn copy_with(
    from: &PartialTrie,
    link: Link,
    at: &Path,
    into: &mut PartialTrie,
    with_refs: bool,
    instead: &mut impl FnMut(&mut PartialTrie, Link, &Path) -> Result<Option<Link>, StateError>,
) -> Result<Link, StateError> {
    if let Some(link) = instead(into, link, at)? {
        return Ok(link);
    }
    let copied = match from.visit(link) {
        NodeView::Empty => return Ok(Link::EMPTY),
        NodeView::Stub(stub) => return Ok(into.push_stub(*stub)),
        NodeView::Branch { children } => {
            let mut copies = [Link::EMPTY; 16];
            for (nibble, child) in (0u8..).zip(children) {
                let at = at.child(nibble);
                copies[usize::from(nibble)] =
                    copy_with(from, *child, &at, into, with_refs, instead)?;
            }
            into.push_branch(copies)
        }
        NodeView::Extension { path, child } => {
            let to = at.join(&path);
            let child = copy_with(from, child, &to, into, with_refs, instead)?;
            into.push_extension(at.len(), &to, child)
        }
        NodeView::Account {
            key,
            account,
            storage,
            ..
        } => {
            let at_storage = Path::account(&key);
            let storage = copy_with(from, storage, &at_storage, into, with_refs, instead)?;
            into.push_account(at.len(), &key, &account, storage)
        }
        NodeView::Slot { key, value, .. } => into.push_slot(at.len(), &key, value),
        NodeView::Entry { key, value, .. } => into.push_entry(at.len(), &key, value.clone()),
    };
    if let Some(node) = from.cached_ref(link).filter(|_| with_refs) {
        into.set_cached_ref(copied, node);
    }
    Ok(copied)
}
