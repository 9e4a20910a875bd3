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
    block::{Block, Children, HASH_BYTES, Node, PageNodes, PlaceAt, ReadNode, rank_of},
    openings::Turn,
    part_ref::PartRef,
    shard::Shard,
};
use cambium_primitives::Path;
use cambium_store::PageAddr;
use cambium_trie::{ChangesEncoder, Link, NodeKind, NodeRef, NodeView, PartialTrie, Place, Stub};
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
    /// Pages that it names itself, that do not change and that are to be moved.
    movable: Vec<MovablePage>,
    /// Whether all that changes is rewritten pages, as far as is known.
    keeps_form: bool,
}

/// A page to be moved, which a block names that can be patched.
#[derive(Clone, Copy)]
pub(crate) struct MovablePage {
    pub(crate) addr: PageAddr,
    at: PlaceAt,
}

impl MovablePage {
    /// Whether the block can name the page at `place`.
    pub(crate) fn can_be_at(&self, place: Place) -> bool {
        self.at.takes(place)
    }
}

/// Where pages have been moved to, by their addresses before.
pub(crate) type MovedPages = HashMap<PageAddr, Place, FxBuildHasher>;

/// What changes in a block whose form stays.
enum Patch {
    /// The reference at this offset: that of the dirty trie's node.
    Node(usize, Link),
    /// The reference and the place of a page, given its number among the changed ones.
    Page {
        hash: usize,
        place: PlaceAt,
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
    /// Whether places of moved pages changed in the block itself.
    pub(super) has_moves: bool,
}

impl<'a> Changes<'a> {
    /// Finds what `dirty` changes in `index`, which names no blocks.
    pub(crate) fn of_trie(index: &PartialTrie, dirty: &PartialTrie) -> Self {
        Self::find(index, &[], dirty, None)
    }

    /// Finds what `dirty` changes in a shard in memory, and which pages that changed blocks name are to be moved, as `turn` says.
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

    /// Decides which blocks can be patched, given what became of the changed pages: `None` where a page was not rewritten. Returns
    /// the pages to be moved that these blocks name.
    pub(crate) fn decide(
        &mut self,
        dirty: &PartialTrie,
        rewritten: &[Option<Stub>],
    ) -> Vec<MovablePage> {
        let mut movable = Vec::new();
        for changed in &mut self.blocks {
            changed.decide(dirty, rewritten, &mut movable);
        }
        movable
    }

    /// Returns the blocks that can be patched, as [`Changes::decide`] has decided, with the places that pages have been `moved`
    /// to.
    pub(crate) fn patched(
        &self,
        dirty: &PartialTrie,
        rewritten: &[Option<Stub>],
        moved: &MovedPages,
    ) -> PatchedBlocks {
        let mut patched = PatchedBlocks::default();
        for changed in &self.blocks {
            changed.patch(dirty, rewritten, moved, &mut patched);
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
        let mut changed = ChangedBlock {
            block,
            path,
            link,
            pages: first..first,
            patches: Vec::new(),
            below: Vec::new(),
            movable: Vec::new(),
            keeps_form: true,
        };
        self.node(0, link, &path, &mut changed);
        if let Some(turn) = self.turn {
            let ChangedBlock {
                patches, movable, ..
            } = &mut changed;
            block.each_own_place(&mut |addr, at| {
                let is_place =
                    |patch: &Patch| matches!(patch, Patch::Page { place, .. } if *place == at);
                if (turn.is_moved)(&addr) && !patches.iter().any(is_place) {
                    movable.push(MovablePage { addr, at });
                }
            });
            // Of others, changes of places can't be encoded ([`Block::encode_changes_to`]).
            changed.keeps_form &= changed.movable.is_empty() || block.has_only_branches();
        }
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
                    match self.page(&stub, *child, &path.child(nibble)) {
                        PageChange::None => {}
                        PageChange::Other => to.keeps_form = false,
                        PageChange::Changed(page) => to.patches.push(Patch::Page {
                            hash: old.hashes_at(end) + HASH_BYTES * rank,
                            place: PlaceAt::short(end, old.mask, rank),
                            page,
                        }),
                    }
                }
            }
            (Node::Page(stub), _) => match self.page(&stub, link, path) {
                PageChange::None => {}
                PageChange::Changed(page) if stub.place.is_some() => {
                    let place = PlaceAt::long(end);
                    to.patches.push(Patch::Page { hash, place, page });
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
    /// Decides whether the block can be patched, and those below it. Adds the pages to be moved that these name. Returns whether
    /// this one can be.
    fn decide(
        &mut self,
        dirty: &PartialTrie,
        rewritten: &[Option<Stub>],
        movable: &mut Vec<MovablePage>,
    ) -> bool {
        // A block below may be patched where this one is not.
        for below in &mut self.below {
            self.keeps_form &= below.decide(dirty, rewritten, movable);
        }
        let has_hash = |link| {
            dirty
                .cached_ref(link)
                .and_then(|node: NodeRef| node.as_hash())
        };
        // What names the block has its reference.
        self.keeps_form &= dirty.cached_ref(self.link).is_some();
        self.keeps_form &= self.patches.iter().all(|patch| match patch {
            Patch::Node(_, link) | Patch::Below { link, .. } => has_hash(*link).is_some(),
            Patch::Page { place, page, .. } => rewritten[*page].is_some_and(|stub| {
                stub.node.as_hash().is_some() && stub.place.is_some_and(|to| place.takes(to))
            }),
        });
        if self.keeps_form {
            movable.extend(&self.movable);
        }
        self.keeps_form
    }

    /// Patches the block and those below it that can be, and adds them to `patched`. Returns the block, if it
    /// is among them.
    fn patch(
        &self,
        dirty: &PartialTrie,
        rewritten: &[Option<Stub>],
        moved: &MovedPages,
        patched: &mut PatchedBlocks,
    ) -> Option<Arc<Block>> {
        let below = self.below.iter();
        let below: Vec<_> = below
            .map(|block| block.patch(dirty, rewritten, moved, patched))
            .collect();
        if !self.keeps_form {
            return None;
        }
        let (mut bytes, mut names): (Box<[u8]>, Box<[_]>) =
            (self.block.bytes().into(), self.block.below().into());
        for patch in &self.patches {
            let (hash, node) = match *patch {
                Patch::Node(hash, link) => (hash, dirty.cached_ref(link)?),
                Patch::Page { hash, place, page } => {
                    let stub = rewritten[page]?;
                    place.put(&mut bytes, stub.place?)?;
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
            bytes[hash..][..HASH_BYTES].copy_from_slice(node.as_hash()?.as_slice());
        }
        let mut has_moves = false;
        for page in &self.movable {
            if let Some(to) = moved.get(&page.addr) {
                page.at.put(&mut bytes, *to)?;
                has_moves = true;
            }
        }
        let block = Arc::new(self.block.patched(bytes, names));
        let one = PatchedBlock {
            block: block.clone(),
            pages: self.pages.clone(),
            has_moves,
        };
        patched.insert(self.path, one);
        Some(block)
    }
}

impl Block {
    /// Appends the encoded changes from `before`, of which this block is a patched copy, for
    /// [`PartialTrie::decode_changes`]. The block's root has the reference `root`.
    pub(super) fn encode_changes_to(&self, before: &Self, root: NodeRef, out: &mut Vec<u8>) {
        let all = 0..self.bytes().len();
        self.encode_node_changes(before, all, Some(root), &mut ChangesEncoder(out));
    }

    /// Encodes the changes of the subtrie whose nodes take the bytes `at`, and whose reference is `node`. The form is the same:
    /// where bytes are as before, so are the blocks that they name, since those would have other references.
    fn encode_node_changes(
        &self,
        before: &Self,
        at: Range<usize>,
        node: Option<NodeRef>,
        to: &mut ChangesEncoder<'_>,
    ) {
        let (new, old) = (self.node(at.start), before.node(at.start));
        match (new.node, old.node) {
            (Node::Branch(children), Node::Branch(_)) => {
                to.branch(node, children.mask);
                let starts = (0..16).filter_map(|nibble| children.at(nibble));
                let mut starts = starts.map(|start| new.end + start).peekable();
                while let Some(start) = starts.next() {
                    let child = start..starts.peek().copied().unwrap_or(at.end);
                    match self.bytes()[child.clone()] == before.bytes()[child.clone()] {
                        true => to.as_before(),
                        false => {
                            let node = self.node(start).cached;
                            self.encode_node_changes(before, child, node, to);
                        }
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
