//! Opening the blocks of a shard in memory, and dividing a shard into blocks again.

use super::{
    block::{BLOCK_BYTES_MAX, Blinded, Block, Splitter},
    openings::{Openings, Turn},
    part_ref::PartRef,
    shard::{Shard, copy, memory_of},
};
use crate::base::error::StateError;
use cambium_primitives::Path;
use cambium_trie::{Link, NodeView, PartialTrie, Stub};
use std::sync::Arc;

/// Bytes of blocks that have their turn in a merge, for each expanded node of the dirty trie: about a quarter of a block for
/// each page that is written. The blocks that a merge changes anyway name most of the pages that it moves; by their turns come
/// those in which nothing changes, all of them while a few segments are written.
const BYTES_IN_TURN_PER_NODE: usize = 100;

/// The blocks of an opened shard that were not opened. Blinded nodes of its trie name them by number.
#[derive(Default)]
pub(crate) struct UnopenedBlocks<'a> {
    /// The blocks by their numbers, with the paths of their roots.
    blocks: Vec<(&'a Arc<Block>, Path)>,
    /// Number of the blocks that were opened.
    opened: u64,
}

/// What a walk of a shard meets, in path order.
enum Met<'a> {
    Page,
    Block(&'a Block),
}

impl<'a> UnopenedBlocks<'a> {
    /// Returns the blinded node for the block whose root is `root`, at `path`.
    fn add(&mut self, block: &'a Arc<Block>, root: &Stub, path: &Path) -> Stub {
        let number = self.blocks.len();
        self.blocks.push((block, *path));
        Stub {
            place: Some(PartRef::block(number).to_place()),
            ..*root
        }
    }

    /// Number of the blocks that were opened.
    pub(crate) const fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns `trie`, whose blinded nodes name these blocks, with all of them opened.
    pub(crate) fn joined(&self, trie: &PartialTrie) -> PartialTrie {
        let block_of = |number: usize| self.blocks[number].0;
        open(trie, &block_of, &mut |_, _| true, &mut Self::default())
    }

    /// Appends the encoded nodes of the block that `stub` names, and of all below it, to `out`, and
    /// returns true. Returns false if it names none.
    pub(crate) fn encode_nodes_to(&self, stub: &Stub, out: &mut Vec<u8>) -> bool {
        let Some(part) = PartRef::of(stub) else {
            return false;
        };
        let (block, path) = &self.blocks[part.number()];
        let mut trie = PartialTrie::part(*path);
        let none = &mut Self::default();
        let root = graft(&mut trie, block, stub, path, &mut |_, _| true, none);
        trie.encode_nodes_to(root, out);
        true
    }

    /// Divides `trie`, whose blinded nodes name these blocks, into its top and blocks. What was not
    /// opened is shared.
    ///
    /// # Errors
    ///
    /// [`StateError::Broken`] if a node is not hashed.
    pub(super) fn split(&self, trie: &PartialTrie) -> Result<SplitShard, StateError> {
        let splitter = Splitter::new(trie, &self.blocks)?;
        let (mut blocks, mut bytes) = (Vec::new(), Vec::new());
        let mut top = PartialTrie::new(*trie.base()).committed_by(trie.commitment());
        let mut cut = |top: &mut PartialTrie, link: Link, _: &Path| {
            let Some(block) = splitter.block_at(link, &mut bytes) else {
                return Ok(None);
            };
            let place = Some(PartRef::block(blocks.len()).to_place());
            blocks.push(block);
            let root = trie.as_stub(link);
            Ok(root.map(|root| top.push_stub(Stub { place, ..root })))
        };
        let root = copy(trie, trie.root(), trie.base(), &mut top, &mut cut)?;
        top.set_root(root);
        top.shrink_to_fit();
        Ok(SplitShard {
            top: Arc::new(top),
            blocks: blocks.into(),
        })
    }
}

/// A shard in memory that was divided.
#[derive(Clone)]
pub(super) struct SplitShard {
    pub(super) top: Arc<PartialTrie>,
    /// The blocks that the top names, by their numbers.
    pub(super) blocks: Arc<[Arc<Block>]>,
}

impl SplitShard {
    /// Memory of top and blocks, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        memory_of(&self.top, &self.blocks)
    }
}

/// Divides a whole shard into its top and blocks.
///
/// # Errors
///
/// [`StateError::Broken`] if a node is not hashed.
pub(super) fn split(whole: &PartialTrie) -> Result<SplitShard, StateError> {
    UnopenedBlocks::default().split(whole)
}

/// Returns a whole shard in memory as one trie.
pub(super) fn joined(shard: &Shard) -> PartialTrie {
    let none = &mut UnopenedBlocks::default();
    let block_of = |number: usize| &shard.blocks[number];
    open(&shard.trie, &block_of, &mut |_, _| true, none)
}

/// The blocks of a shard that have their turn: a range of their bytes, in the order in which a walk meets them.
struct BlocksInTurn<'a> {
    turn: &'a Turn<'a>,
    first: usize,
    len: usize,
    /// Bytes of all blocks.
    all: usize,
    /// Bytes of the blocks before the one that is met next.
    before: usize,
}

impl<'a> BlocksInTurn<'a> {
    fn of(turn: &'a Turn<'a>, shard: &Shard, dirty: &PartialTrie) -> Self {
        let all = shard.blocks.iter().map(|block| block.memory_bytes()).sum();
        let changed = dirty.counts().0 * BYTES_IN_TURN_PER_NODE;
        Self {
            turn,
            first: turn.first(all),
            len: changed + BLOCK_BYTES_MAX,
            all,
            before: 0,
        }
    }

    /// Whether to open a block that is met, which a merge changes if `is_changed`.
    fn opens(&mut self, block: &Block, is_changed: bool) -> bool {
        let (start, end) = (self.before, self.before + block.memory_bytes());
        let last = self.first + self.len;
        // At the end it goes on at the beginning.
        let is_in_range = start < last && self.first < end || start < last.saturating_sub(self.all);
        let opens = is_changed || is_in_range && block.may_lead_to(self.turn.is_moved);
        self.before = match opens {
            true => start + block.own_memory_bytes(),
            false => end,
        };
        opens
    }
}

/// Returns a shard in memory for a merge of the dirty trie `dirty`, with those blocks opened that the
/// merge may change, and the others. With `turn`, blocks are opened too that have this turn and may lead to a page to be moved.
pub(super) fn opened<'a>(
    shard: &'a Shard,
    dirty: &PartialTrie,
    turn: Option<&Turn<'_>>,
) -> (PartialTrie, UnopenedBlocks<'a>) {
    let (mut openings, mut unopened) = (Openings::of(dirty), UnopenedBlocks::default());
    let mut in_turn = turn.map(|turn| BlocksInTurn::of(turn, shard, dirty));
    let mut opens = |met: Met<'_>, at: &Path| match met {
        Met::Page => {
            openings.reached(at);
            false
        }
        Met::Block(block) => {
            let is_changed = openings.opens(at);
            let in_turn = in_turn.as_mut();
            in_turn.map_or(is_changed, |turn| turn.opens(block, is_changed))
        }
    };
    let block_of = |number: usize| &shard.blocks[number];
    let trie = open(&shard.trie, &block_of, &mut opens, &mut unopened);
    (trie, unopened)
}

/// Returns one block as a trie, whose blinded nodes name pages and, by their numbers in it, blocks
/// below.
pub(super) fn block_as_trie(
    block: &Block,
    root: &Stub,
    like: &PartialTrie,
    path: Path,
) -> PartialTrie {
    let mut trie = PartialTrie::part(path).committed_by(like.commitment());
    let mut unopened = UnopenedBlocks::default();
    let root = graft(
        &mut trie,
        block,
        root,
        &path,
        &mut |_, _| false,
        &mut unopened,
    );
    trie.set_root(root);
    trie
}

/// Copies `trie`, whose blinded nodes name pages and, by their numbers, blocks, with those blocks opened that `opens`
/// says. The others go to `unopened`.
fn open<'a>(
    trie: &PartialTrie,
    block_of: &dyn Fn(usize) -> &'a Arc<Block>,
    opens: &mut dyn FnMut(Met<'_>, &Path) -> bool,
    unopened: &mut UnopenedBlocks<'a>,
) -> PartialTrie {
    let mut whole = PartialTrie::new(*trie.base()).committed_by(trie.commitment());
    let mut blinded = |whole: &mut PartialTrie, link: Link, at: &Path| {
        let NodeView::Stub(stub) = trie.visit(link) else {
            return Ok(None);
        };
        let Some(part) = PartRef::of(stub) else {
            opens(Met::Page, at);
            return Ok(None);
        };
        let block = block_of(part.number());
        Ok(Some(graft_or_name(whole, block, stub, at, opens, unopened)))
    };
    let root = copy(trie, trie.root(), trie.base(), &mut whole, &mut blinded);
    whole.set_root(root.expect("copying from memory does not fail"));
    whole
}

/// Adds the block at `path` to `trie`: its nodes if `opens` says so, else a blinded node that names it.
fn graft_or_name<'a>(
    trie: &mut PartialTrie,
    block: &'a Arc<Block>,
    root: &Stub,
    path: &Path,
    opens: &mut dyn FnMut(Met<'_>, &Path) -> bool,
    unopened: &mut UnopenedBlocks<'a>,
) -> Link {
    if opens(Met::Block(block), path) {
        unopened.opened += 1;
        return graft(trie, block, root, path, opens, unopened);
    }
    trie.push_stub(unopened.add(block, root, path))
}

/// Adds the nodes of a block at `path` to `trie`, and those of the blocks below it that `opens` says.
fn graft<'a>(
    trie: &mut PartialTrie,
    block: &'a Block,
    root: &Stub,
    path: &Path,
    opens: &mut dyn FnMut(Met<'_>, &Path) -> bool,
    unopened: &mut UnopenedBlocks<'a>,
) -> Link {
    block.graft(trie, root, path, &mut |trie, blinded, at| match blinded {
        Blinded::Page(stub) => {
            opens(Met::Page, at);
            trie.push_stub(stub)
        }
        Blinded::Below(below) => graft_or_name(trie, below.block, &below.stub, at, opens, unopened),
    })
}
