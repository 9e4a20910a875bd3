//! Patching: blocks in which a merge changes only references and places are copied, and the copy is changed, without being
//! decoded to a trie and encoded again.
//!
//! ```text
//!   dirty trie       (branch)*          block    [ branch  ref*                     ]
//!                   /    |    \                  [ ref  ref*  ref    of its pages   ]
//!             blinded  page*  blinded            [ place place* place               ]
//! ```
//!
//! A merge walks the dirty trie along the index, in memory, before it opens anything ([`Changes::of`]): so it finds the pages
//! that have changed, which it reads and rewrites where only leaves changed or were added. A block all of whose changed pages
//! are rewritten keeps its form ([`Changes::patched`]). All references above its pages are those of the dirty trie. Other
//! blocks are opened.

use super::{
    block::{
        Block, Children, HASH_BYTES, Node, PageNodes, ReadNode, SHORT_PLACE_BYTES, rank_of,
        short_place,
    },
    openings::Turn,
    part_ref::PartRef,
    shard::Shard,
};
use cambium_primitives::Path;
use cambium_trie::{ChangesEncoder, Link, NodeKind, NodeRef, NodeView, PartialTrie, Stub};
use rustc_hash::FxBuildHasher;
use std::{collections::HashMap, ops::Range, sync::Arc};

/// A page of the index that the dirty trie has expanded and changed.
pub(crate) struct ChangedPage {
    /// The blinded node that names it.
    pub(crate) stub: Stub,
    pub(crate) path: Path,
    /// The node of the dirty trie in its place.
    pub(crate) link: Link,
}

/// What a dirty trie changes of the pages of a shard.
#[derive(Default)]
pub(crate) struct Changes<'a> {
    /// The changed pages in path order, without those below accounts and extensions.
    pub(crate) pages: Vec<ChangedPage>,
    /// The topmost blocks in which something has changed.
    blocks: Vec<ChangedBlock<'a>>,
}

/// A block that the dirty trie has expanded.
struct ChangedBlock<'a> {
    block: &'a Arc<Block>,
    path: Path,
    /// The node of the dirty trie at its root.
    link: Link,
    /// Its changed pages, and those of the blocks below it, among all changed ones.
    pages: Range<usize>,
    patches: Vec<Patch>,
    /// The blocks below it in which something has changed.
    below: Vec<Self>,
    /// Whether all that changes is rewritten pages, as far as is known.
    keeps_form: bool,
}

/// What changes in a block whose form stays.
enum Patch {
    /// The reference at this offset: that of the dirty trie's node.
    Node(usize, Link),
    /// The reference and the place of a page, given its number among the changed ones.
    Page {
        hash: usize,
        place: usize,
        is_short: bool,
        page: usize,
    },
    /// A block below, of this number: the reference that names it, and which of those that have changed it is.
    Below {
        hash: usize,
        number: usize,
        link: Link,
        changed: usize,
    },
}

/// Blocks that were patched, by the paths of their roots.
pub(crate) type PatchedBlocks = HashMap<Path, PatchedBlock, FxBuildHasher>;

/// A block that was patched.
pub(crate) struct PatchedBlock {
    pub(super) block: Arc<Block>,
    /// Its changed pages, and those of the blocks below it, among all changed ones.
    pub(super) pages: Range<usize>,
}

impl<'a> Changes<'a> {
    /// Finds what `dirty` changes in `index`, which names no blocks.
    pub(crate) fn of_trie(index: &PartialTrie, dirty: &PartialTrie) -> Self {
        Self::find(index, &[], dirty, None)
    }

    /// Finds what `dirty` changes in a shard in memory. Blocks that name a page to be moved, as `turn` says, are not patched.
    pub(super) fn of(shard: &'a Shard, dirty: &PartialTrie, turn: Option<&Turn<'_>>) -> Self {
        Self::find(&shard.trie, &shard.blocks, dirty, turn)
    }

    fn find(
        top: &PartialTrie,
        blocks: &'a [Arc<Block>],
        dirty: &PartialTrie,
        turn: Option<&Turn<'_>>,
    ) -> Self {
        let mut finder = Finder {
            dirty,
            turn,
            pages: Vec::new(),
        };
        let mut found = Vec::new();
        let mut todo = vec![(top.root(), dirty.root(), *dirty.base())];
        while let Some((old, new, path)) = todo.pop() {
            match (top.visit(old), dirty.visit(new)) {
                (NodeView::Stub(stub), NodeView::Branch { .. } | NodeView::Extension { .. }) => {
                    match PartRef::of(stub) {
                        Some(part) => {
                            let block = blocks.get(part.number());
                            found.extend(block.map(|block| finder.block(block, new, path)));
                        }
                        None => _ = finder.page(stub, new, &path),
                    }
                }
                (NodeView::Branch { children: old }, NodeView::Branch { children: new }) => {
                    let pairs = old.iter().zip(new).zip(0u8..16).rev();
                    todo.extend(pairs.map(|((old, new), nibble)| (*old, *new, path.child(nibble))));
                }
                // What changes below accounts or extensions is found when it is merged.
                _ => {}
            }
        }
        Self {
            pages: finder.pages,
            blocks: found,
        }
    }

    /// Returns the blocks that can be patched, given what became of the changed pages: `None` where a page was not rewritten.
    pub(crate) fn patched(&self, dirty: &PartialTrie, rewritten: &[Option<Stub>]) -> PatchedBlocks {
        let mut patched = PatchedBlocks::default();
        for changed in &self.blocks {
            changed.patch(dirty, rewritten, &mut patched);
        }
        patched
    }
}

/// Walks a dirty trie along an index.
struct Finder<'a> {
    dirty: &'a PartialTrie,
    turn: Option<&'a Turn<'a>>,
    pages: Vec<ChangedPage>,
}

/// What became of a page.
enum PageChange {
    /// Nothing.
    None,
    /// The changed page of this number.
    Changed(usize),
    /// It may be no page any longer.
    Other,
}

impl Finder<'_> {
    /// Compares the page that `stub` names, at `path`, with the node of the dirty trie at `link`, which is there.
    fn page(&mut self, stub: &Stub, link: Link, path: &Path) -> PageChange {
        match self.dirty.visit(link) {
            NodeView::Stub(_) => PageChange::None,
            // Expanded, but not changed: an entry commits to the hash of its value, which may be stored elsewhere.
            _ if self.dirty.cached_ref(link) == Some(stub.node) => {
                match self.dirty.has_stored_values() {
                    true => PageChange::Other,
                    false => PageChange::None,
                }
            }
            NodeView::Branch { .. } | NodeView::Extension { .. } => {
                let (page, kind) = (self.pages.len(), stub.kind);
                let (stub, path) = (*stub, *path);
                self.pages.push(ChangedPage { stub, path, link });
                // A rewritten page has a branch for its root.
                match kind {
                    Some(NodeKind::Branch) => PageChange::Changed(page),
                    _ => PageChange::Other,
                }
            }
            _ => PageChange::Other,
        }
    }

    /// Finds what changes in a block, whose root is at `path` as the node of the dirty trie at `link` is.
    fn block<'b>(&mut self, block: &'b Arc<Block>, link: Link, path: Path) -> ChangedBlock<'b> {
        let first = self.pages.len();
        let names_moved = self.turn.is_some_and(|turn| block.names(turn.is_moved));
        let mut changed = ChangedBlock {
            block,
            path,
            link,
            pages: first..first,
            patches: Vec::new(),
            below: Vec::new(),
            keeps_form: !names_moved,
        };
        self.node(0, link, &path, &mut changed);
        changed.pages.end = self.pages.len();
        changed
    }

    /// Finds what changes at offset `at` of a block, where the dirty trie has `link`. Recursion is bounded by the path's 128
    /// nibbles.
    fn node<'b>(&mut self, at: usize, link: Link, path: &Path, to: &mut ChangedBlock<'b>) {
        let dirty = self.dirty;
        if link.is_stub() {
            return;
        }
        let block: &'b Arc<Block> = to.block;
        let ReadNode { node, cached, end } = block.node(at);
        // Nothing precedes the reference but the node's type, if it is a hash.
        let hash = at + 1;
        to.keeps_form &= cached.is_none_or(|node| node.as_hash().is_some());
        let mask = match &node {
            Node::Branch(Children { mask, .. }) | Node::Pages(PageNodes { mask, .. }) => *mask,
            _ => 0,
        };
        if let NodeView::Branch { children } = dirty.visit(link) {
            to.keeps_form &= mask == 0 || mask == mask_of(children);
        }
        match (node, dirty.visit(link)) {
            (Node::Branch(old), NodeView::Branch { children }) => {
                to.patches.extend(cached.map(|_| Patch::Node(hash, link)));
                for (nibble, child) in (0u8..).zip(children) {
                    if let Some(start) = old.at(nibble) {
                        self.node(end + start, *child, &path.child(nibble), to);
                    }
                }
            }
            (Node::Pages(old), NodeView::Branch { children }) => {
                to.patches.extend(cached.map(|_| Patch::Node(hash, link)));
                for (nibble, child) in (0u8..).zip(children) {
                    let Some(rank) = rank_of(old.mask, nibble).filter(|_| !child.is_stub()) else {
                        continue;
                    };
                    let Some(stub) = old.at(nibble) else { continue };
                    let (places, count) = (end - SHORT_PLACE_BYTES * old.count(), old.count());
                    match self.page(&stub, *child, &path.child(nibble)) {
                        PageChange::None => {}
                        PageChange::Other => to.keeps_form = false,
                        PageChange::Changed(page) => to.patches.push(Patch::Page {
                            hash: places - HASH_BYTES * (count - rank),
                            place: places + SHORT_PLACE_BYTES * rank,
                            is_short: true,
                            page,
                        }),
                    }
                }
            }
            (Node::Page(stub), _) => match self.page(&stub, link, path) {
                PageChange::None => {}
                PageChange::Changed(page) if stub.place.is_some() => {
                    let place = end - size_of::<u64>();
                    to.patches.push(Patch::Page {
                        hash,
                        place,
                        is_short: false,
                        page,
                    });
                }
                PageChange::Changed(_) | PageChange::Other => to.keeps_form = false,
            },
            (Node::Below(_, number), NodeView::Branch { .. }) => {
                let below = self.block(&block.below()[number], link, *path);
                let changed = to.below.len();
                to.patches.push(Patch::Below {
                    hash,
                    number,
                    link,
                    changed,
                });
                to.below.push(below);
            }
            _ => to.keeps_form = false,
        }
    }
}

/// The children that are there, bit by nibble.
fn mask_of(children: &[Link; 16]) -> u16 {
    let there = (0u8..16).filter(|nibble| !children[usize::from(*nibble)].is_empty());
    there.fold(0, |mask, nibble| mask | 1 << nibble)
}

impl ChangedBlock<'_> {
    /// Patches the block and those below it, as far as that is possible, and adds them to `patched`. Returns the block, if it
    /// is among them.
    fn patch(
        &self,
        dirty: &PartialTrie,
        rewritten: &[Option<Stub>],
        patched: &mut PatchedBlocks,
    ) -> Option<Arc<Block>> {
        // A block below may be patched where this one is not.
        let below = self.below.iter();
        let below: Vec<_> = below
            .map(|block| block.patch(dirty, rewritten, patched))
            .collect();
        // What names the block has its reference.
        if !self.keeps_form || dirty.cached_ref(self.link).is_none() {
            return None;
        }
        let (mut bytes, mut names): (Box<[u8]>, Box<[_]>) =
            (self.block.bytes().into(), self.block.below().into());
        for patch in &self.patches {
            let (hash, node) = match *patch {
                Patch::Node(hash, link) => (hash, dirty.cached_ref(link)?),
                Patch::Page {
                    hash,
                    place,
                    is_short,
                    page,
                } => {
                    let stub = rewritten[page]?;
                    match is_short {
                        true => put(&mut bytes, place, &short_place(stub.place?)?),
                        false => put(&mut bytes, place, &stub.place?.get().to_le_bytes()),
                    }
                    (hash, stub.node)
                }
                Patch::Below {
                    hash,
                    number,
                    link,
                    changed,
                } => {
                    names[number] = below[changed].clone()?;
                    (hash, dirty.cached_ref(link)?)
                }
            };
            put(&mut bytes, hash, node.as_hash()?.as_slice());
        }
        let block = Arc::new(self.block.patched(bytes, names));
        let pages = self.pages.clone();
        let one = PatchedBlock {
            block: block.clone(),
            pages,
        };
        patched.insert(self.path, one);
        Some(block)
    }
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    bytes[at..][..new.len()].copy_from_slice(new);
}

impl Block {
    /// Appends the encoded changes from `before`, of which this block is a patched copy, for
    /// [`PartialTrie::decode_changes`]. The block's root has the reference `root`.
    pub(super) fn encode_changes_to(&self, before: &Self, root: NodeRef, out: &mut Vec<u8>) {
        self.encode_node_changes(before, 0, Some(root), &mut ChangesEncoder(out));
    }

    /// Encodes the changes of the subtrie at offset `at`, whose reference is `node`. The form is the same: where a reference
    /// is as before, so is all that is below it.
    fn encode_node_changes(
        &self,
        before: &Self,
        at: usize,
        node: Option<NodeRef>,
        to: &mut ChangesEncoder<'_>,
    ) {
        let (new, old) = (self.node(at), before.node(at));
        match (new.node, old.node) {
            (Node::Branch(children), Node::Branch(_)) => {
                to.branch(node, children.mask);
                for start in (0..16).filter_map(|nibble| children.at(nibble)) {
                    let at = new.end + start;
                    let node = self.node(at).cached;
                    match node == before.node(at).cached {
                        true => to.as_before(),
                        false => self.encode_node_changes(before, at, node, to),
                    }
                }
            }
            (Node::Pages(pages), Node::Pages(old)) => {
                to.branch(node, pages.mask);
                for nibble in 0..16 {
                    match (pages.at(nibble), old.at(nibble)) {
                        (Some(page), Some(old)) if page != old => to.stub(&page),
                        (Some(_), _) => to.as_before(),
                        (None, _) => {}
                    }
                }
            }
            (Node::Page(page), _) => to.stub(&page),
            (Node::Below(stub, number), _) => {
                let (below, before) = (&self.below()[number], &before.below()[number]);
                below.encode_changes_to(before, stub.node, to.0);
            }
            _ => to.as_before(),
        }
    }
}
