//! Runs of consecutive blocks that are made from the newest block to the oldest: each window of them
//! is as large as memory allows, and the nodes for the next window are read from what has been made.

use crate::{
    HistoryError,
    entry::entries_of,
    memory_run::MemoryRun,
    node::WholeNodes,
    nodes::NodeReader,
    old::Old,
    rewind::{RewoundTrie, Source},
    runs::{LiveRun, Runs},
    view::Present,
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber, Path};
use cambium_state::{CommittedBlock, Db, StateError};
use cambium_trie::{EMPTY_ROOT, NodeRef, PartialTrie, Stub};
use std::sync::Arc;

/// Blocks that are made into runs.
pub(crate) struct Span<'a> {
    db: &'a Db,
    nodes: Option<WholeNodes>,
    above: Above,
    /// The block whose state is reached.
    bottom: BlockId,
    limits: Limits,
}

/// Memory that a span takes, in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Entries of a window.
    pub(crate) entries_bytes: usize,
    /// The trie that is taken back. A larger one is begun anew, from what has been made.
    pub(crate) trie_bytes: usize,
}

/// What tells of the state above a span, at one moment.
#[derive(Clone)]
pub(crate) struct Above {
    /// The state after the newest block of the runs, or after the newest of the span, if there are none.
    pub(crate) present: Arc<Present>,
    /// The runs above the span.
    pub(crate) runs: Arc<Runs>,
}

impl Above {
    /// With a run below, which begins above the block `first`.
    pub(crate) fn with_run_below(&self, run: LiveRun, first: BlockId) -> Self {
        Self {
            present: self.present.clone(),
            runs: Arc::new(self.runs.with_file_below(run, first)),
        }
    }
}

/// What becomes of a span after a window.
pub(crate) enum Keep {
    /// It goes on below what is there now.
    GoOn(Above),
    /// It ends.
    End,
}

/// Takes a window, and what is above it.
pub(crate) type Keeping<'a> = &'a mut dyn FnMut(Window, &Above) -> Result<Keep, HistoryError>;

/// Consecutive blocks whose entries are in memory.
pub(crate) struct Window {
    pub(crate) run: MemoryRun,
    /// The blocks, oldest first.
    pub(crate) ids: Vec<BlockId>,
    /// The block before the first one.
    pub(crate) parent: BlockId,
}

impl<'a> Span<'a> {
    /// Begins at the block `bottom`, below what is above.
    pub(crate) const fn new(
        db: &'a Db,
        above: Above,
        nodes: Option<WholeNodes>,
        bottom: BlockId,
        limits: Limits,
    ) -> Self {
        Self {
            db,
            nodes,
            above,
            bottom,
            limits,
        }
    }

    /// Makes the entries of the blocks down to that above `low`, in windows as large as memory allows,
    /// and hands each window to `keep`. Calls `goes_on` before each block. False if one of them said no,
    /// or if the chain is another one meanwhile.
    pub(crate) fn make(
        &mut self,
        low: BlockNumber,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
        keep: Keeping<'_>,
    ) -> Result<bool, HistoryError> {
        // Each round has a trie of its own, which ends when it is too large.
        while self.bottom.number > low {
            let Above { present, runs } = self.above.clone();
            let block = self.bottom;
            let old = Old { runs, block };
            let mut nodes = match self.nodes {
                Some(whole) => Some(trie_at(&old, &present, whole)?),
                None => None,
            };
            loop {
                let Some(window) = self.window(low, nodes.as_mut(), goes_on)? else {
                    return Ok(false);
                };
                let parent = window.parent;
                match keep(window, &self.above)? {
                    Keep::GoOn(above) => self.above = above,
                    Keep::End => return Ok(false),
                }
                self.bottom = parent;
                let trie_bytes = nodes.as_ref().map_or(0, RewoundTrie::memory_bytes);
                if self.bottom.number <= low || trie_bytes >= self.limits.trie_bytes {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// The entries of the next blocks. `None` if `goes_on` said no, or if the chain is another one.
    fn window(
        &self,
        low: BlockNumber,
        mut nodes: Option<&mut RewoundTrie<'_>>,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<Option<Window>, HistoryError> {
        let mut entries = MemoryRun::empty(0..=0);
        let mut ids = Vec::new();
        let mut at = self.bottom;
        let mut next = self.block(at.number)?;
        let is_full = |entries: &MemoryRun, nodes: &Option<&mut RewoundTrie<'_>>| {
            let trie_bytes = nodes.as_ref().map_or(0, |nodes| nodes.memory_bytes());
            entries.bytes() >= self.limits.entries_bytes || trie_bytes >= self.limits.trie_bytes
        };
        while at.number > low && (ids.is_empty() || !is_full(&entries, &nodes)) {
            let Some(block) = next.take().filter(|block| block.meta.id == at) else {
                return Ok(None);
            };
            if !goes_on(at.number) {
                return Ok(None);
            }
            let parent = BlockId::new(at.number - 1, block.meta.parent);
            let root_before = match parent.number > low {
                true => {
                    next = self.block(parent.number)?;
                    next.as_ref().map(|block| block.meta.state_root)
                }
                false => self.root_of(parent)?,
            };
            entries_of(&block.changes, &block.reverts, |key, value| {
                entries.push(key.at(at.number).as_bytes(), value);
            });
            if let Some(nodes) = &mut nodes {
                nodes.undo(&block, root_before, &mut entries)?;
            }
            ids.push(at);
            at = parent;
        }
        ids.reverse();
        Ok(Some(Window {
            run: entries.sorted(at.number + 1..=self.bottom.number),
            ids,
            parent: at,
        }))
    }

    fn block(&self, number: BlockNumber) -> Result<Option<CommittedBlock>, HistoryError> {
        self.db
            .committed_block(number)
            .map_err(|error| match error {
                StateError::NotKept { .. } => HistoryError::LogEnds {
                    number,
                    cause: error.to_string(),
                },
                error => error.into(),
            })
    }

    /// The state root of a block, if the log has it.
    fn root_of(&self, id: BlockId) -> Result<Option<B256>, HistoryError> {
        match self.db.block(id.number) {
            Err(StateError::NotKept { .. }) => Ok(None),
            meta => Ok(meta?
                .filter(|meta| meta.id == id)
                .map(|meta| meta.state_root)),
        }
    }
}

/// The state trie at an old block, of which nothing but the root is known.
fn trie_at<'a>(
    old: &'a Old,
    present: &'a Present,
    whole: WholeNodes,
) -> Result<RewoundTrie<'a>, HistoryError> {
    let state = present.trie()?;
    if old.runs().next().is_some() {
        let mut reader = NodeReader::new(old, &present.view, state);
        let trie = reader.root()?;
        let source = Source::Past(Box::new(reader));
        return Ok(RewoundTrie::new(trie, state, source, whole));
    }
    let trie = match state.root() == EMPTY_ROOT {
        true => PartialTrie::new(Path::EMPTY),
        false => {
            let root = NodeRef::hash(state.root());
            PartialTrie::from_stub(Path::EMPTY, Stub::bare(root))
        }
    };
    let source = Source::Present(Box::new(state.reader()));
    Ok(RewoundTrie::new(trie, state, source, whole))
}
