//! Runs of consecutive blocks that are made from the newest block to the oldest: each window of them
//! is as large as memory allows, and the nodes for the next window are read from what has been made.

use crate::{
    HistoryError,
    list::ListedRun,
    memory_run::MemoryRun,
    node::WholeNodes,
    nodes::NodeReader,
    old::Old,
    rewind::{Rewind, RewoundTrie, Source},
    runs::{LiveRun, Run, Runs},
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
    present: Arc<Present>,
    nodes: Option<WholeNodes>,
    /// What is there above `bottom`.
    runs: Arc<Runs>,
    /// The block whose state is reached.
    bottom: BlockId,
    /// Memory of the entries and of the trie of a window, in bytes.
    window_bytes: usize,
}

/// Consecutive blocks whose entries are in memory.
pub(crate) struct Window {
    pub(crate) run: MemoryRun,
    /// The blocks, oldest first.
    pub(crate) ids: Vec<BlockId>,
    /// The block before the first one.
    pub(crate) parent: BlockId,
}

/// A run of a window: in memory, or in a file that is not listed yet.
pub(crate) enum Made {
    Memory(Arc<MemoryRun>, Vec<BlockId>),
    File(ListedRun, LiveRun),
}

impl Made {
    /// The run, as views and merges take it.
    pub(crate) fn live(&self) -> LiveRun {
        match self {
            Self::Memory(run, _) => LiveRun {
                last: *run.blocks.end(),
                run: Run::Memory(run.clone()),
            },
            Self::File(_, run) => run.clone(),
        }
    }
}

impl<'a> Span<'a> {
    /// Begins below `runs`, at the block `bottom`. `present` is the state after the newest block of the
    /// runs, or after `bottom` if there are none.
    pub(crate) const fn new(
        db: &'a Db,
        present: Arc<Present>,
        nodes: Option<WholeNodes>,
        runs: Arc<Runs>,
        bottom: BlockId,
        window_bytes: usize,
    ) -> Self {
        Self {
            db,
            present,
            nodes,
            runs,
            bottom,
            window_bytes,
        }
    }

    /// The block whose state is reached.
    pub(crate) const fn bottom(&self) -> BlockId {
        self.bottom
    }

    /// The window was kept as `run`: the next one begins below it.
    pub(crate) fn went_on(&mut self, run: LiveRun, parent: BlockId) {
        let mut files = vec![run];
        files.extend(self.runs.files.iter().cloned());
        self.runs = Arc::new(Runs {
            first: parent,
            upto: self.present.view.block(),
            has_nodes: self.nodes.is_some(),
            files,
            memory: self.runs.memory.clone(),
        });
        self.bottom = parent;
    }

    /// Makes the entries of the next blocks, down to that above `low`, as far as memory allows. Calls
    /// `goes_on` before each block. `None` if it said no, or if the chain is another one meanwhile.
    pub(crate) fn window(
        &self,
        low: BlockNumber,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<Option<Window>, HistoryError> {
        let old = Old {
            runs: self.runs.clone(),
            block: self.bottom,
        };
        let trie = match self.nodes {
            Some(whole) => Some(self.trie(&old, whole)?),
            None => None,
        };
        let mut rewind = Rewind::new(trie);
        let mut at = self.bottom;
        let mut next = self.block(at.number)?;
        while at.number > low {
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
            rewind.undo(&block, root_before)?;
            at = parent;
            let is_full = rewind.entries_bytes() >= self.window_bytes
                || rewind.trie_bytes() >= self.window_bytes;
            if is_full {
                break;
            }
        }
        Ok(rewind.finish().map(|(run, ids)| Window {
            run,
            ids,
            parent: at,
        }))
    }

    /// The state trie at the bottom.
    fn trie<'b>(
        &'b self,
        old: &'b Old,
        whole: WholeNodes,
    ) -> Result<RewoundTrie<'b>, HistoryError> {
        let present = self.present.trie()?;
        if old.runs().next().is_none() {
            let root = Stub::bare(NodeRef::hash(present.root()));
            let trie = match present.root() == EMPTY_ROOT {
                true => PartialTrie::new(Path::EMPTY),
                false => PartialTrie::from_stub(Path::EMPTY, root),
            };
            return Ok(RewoundTrie::new(
                trie,
                Source::Present(Box::new(present.reader())),
                whole,
            ));
        }
        let mut reader = NodeReader::new(old, &self.present.view, present);
        let trie = reader.root()?;
        Ok(RewoundTrie::new(
            trie,
            Source::Past(Box::new(reader)),
            whole,
        ))
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
