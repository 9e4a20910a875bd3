//! Runs of consecutive blocks that are made from the newest block to the oldest: each window of them is as large as
//! memory allows, and the nodes for the next window are read from the runs made so far.

use crate::{
    HistoryError,
    entry::entries_of,
    memory_run::MemoryRun,
    node::WholeNodes,
    nodes::NodeReader,
    old::Old,
    rewind::{RewoundTrie, Source},
    runs::{LiveRun, Runs},
    state_at::Present,
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber, Path};
use cambium_state::{CommittedBlock, Db};
use cambium_trie::{EMPTY_ROOT, NodeRef, PartialTrie, Stub};
use std::{panic::resume_unwind, sync::Arc, thread};

/// Blocks that are made into runs.
pub(crate) struct Span<'a> {
    db: &'a Db,
    nodes: Option<WholeNodes>,
    above: Above,
    /// The block whose state is reached.
    bottom: BlockId,
    limits: Limits,
}

/// The memory and the threads that a span takes.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Entries of a window, in bytes. Two windows are in memory at once.
    pub(crate) entries_bytes: usize,
    /// Blocks of a window whose newest block is above `few_above`.
    pub(crate) blocks_max: u64,
    /// Blocks up to this one leave the history as soon as all are there.
    pub(crate) few_above: BlockNumber,
    /// The trie that is taken back, in bytes. A larger one is begun anew, from the runs made so far.
    pub(crate) trie_bytes: usize,
    /// Threads that share the trie, at most.
    pub(crate) threads: usize,
}

/// The state above a span and the runs above it, at one moment.
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

/// How making a window ended.
enum Outcome {
    Window(Window),
    /// `goes_on` said no, or the chain is another one.
    End,
    /// The trie has become so small that threads can't share it.
    NotShared,
}

/// Continuation of a span after a window.
pub(crate) enum Keep {
    /// It goes on below what is there now.
    GoOn(Above),
    /// It ends with this window.
    End,
}

/// Takes a window, and what is above it.
pub(crate) type Keeping<'a> =
    &'a mut (dyn FnMut(Window, &Above) -> Result<Keep, HistoryError> + Send);

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
    /// and hands each window to `keep`, in another thread, while it makes the next one. Calls `goes_on`
    /// before each block. False if one of them said no, or if the chain is another one meanwhile.
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
                Some(whole) => Some(trie_at(&old, &present, whole, self.limits.threads)?),
                None => None,
            };
            let mut made = None;
            loop {
                let trie_bytes = nodes.as_ref().map_or(0, RewoundTrie::memory_bytes);
                let is_over = self.bottom.number <= low
                    || (self.bottom != block && trie_bytes >= self.limits.trie_bytes);
                let mut next = || self.window(low, nodes.as_mut(), goes_on);
                let (kept, next) = match (made.take(), is_over) {
                    (None, true) => break,
                    (Some(window), true) => (Some(keep(window, &self.above)), None),
                    (None, false) => (None, Some(next())),
                    (Some(window), false) => {
                        let (kept, next) = at_once(|| keep(window, &self.above), next);
                        (Some(kept), Some(next))
                    }
                };
                match kept.transpose()? {
                    Some(Keep::GoOn(above)) => self.above = above,
                    Some(Keep::End) => return Ok(false),
                    None => {}
                }
                match next.transpose()? {
                    Some(Outcome::Window(window)) => {
                        self.bottom = window.parent;
                        made = Some(window);
                    }
                    Some(Outcome::End) => return Ok(false),
                    Some(Outcome::NotShared) => {
                        self.limits.threads = 1;
                        break;
                    }
                    None => break,
                }
            }
        }
        Ok(true)
    }

    /// The entries of the next blocks.
    fn window(
        &self,
        low: BlockNumber,
        mut nodes: Option<&mut RewoundTrie<'_>>,
        goes_on: &mut dyn FnMut(BlockNumber) -> bool,
    ) -> Result<Outcome, HistoryError> {
        let mut entries = MemoryRun::empty(0..=0);
        let mut ids = Vec::new();
        let mut at = self.bottom;
        let mut next = self.block(at.number)?;
        let blocks_max = match self.bottom.number > self.limits.few_above {
            true => self.limits.blocks_max,
            false => u64::MAX,
        };
        let is_full =
            |ids: &[BlockId], entries: &MemoryRun, nodes: &Option<&mut RewoundTrie<'_>>| {
                let trie_bytes = nodes.as_ref().map_or(0, |nodes| nodes.memory_bytes());
                ids.len() as u64 >= blocks_max
                    || entries.bytes() >= self.limits.entries_bytes
                    || trie_bytes >= self.limits.trie_bytes
            };
        while at.number > low && (ids.is_empty() || !is_full(&ids, &entries, &nodes)) {
            let Some(block) = next.take().filter(|block| block.meta.id == at) else {
                return Ok(Outcome::End);
            };
            if !goes_on(at.number) {
                return Ok(Outcome::End);
            }
            let parent = BlockId::new(at.number - 1, block.meta.parent);
            let root_before = match parent.number > low {
                true => {
                    // The chain may be another one by now: then the span ends at the next block.
                    next = self.block(parent.number)?;
                    next.take_if(|block| block.meta.id != parent);
                    next.as_ref().map(|block| block.meta.state_root)
                }
                false => self.root_of(parent)?,
            };
            entries_of(&block.changes, &block.reverts, |key, value| {
                entries.push(key.at(at.number).as_bytes(), value);
            });
            if let Some(nodes) = &mut nodes
                && !nodes.undo(&block, root_before, &mut entries)?
            {
                return Ok(Outcome::NotShared);
            }
            ids.push(at);
            at = parent;
        }
        ids.reverse();
        Ok(Outcome::Window(Window {
            run: entries.sorted(at.number + 1..=self.bottom.number),
            ids,
            parent: at,
        }))
    }

    fn block(&self, number: BlockNumber) -> Result<Option<CommittedBlock>, HistoryError> {
        self.db
            .committed_block(number)
            .map_err(|error| match error.has_left_log() {
                true => HistoryError::LogEnds {
                    number,
                    cause: error.to_string(),
                },
                false => error.into(),
            })
    }

    /// The state root of a block, if the log has it.
    fn root_of(&self, id: BlockId) -> Result<Option<B256>, HistoryError> {
        match self.db.block(id.number) {
            Err(error) if error.has_left_log() => Ok(None),
            meta => Ok(meta?
                .filter(|meta| meta.id == id)
                .map(|meta| meta.state_root)),
        }
    }
}

/// Runs both, the first in another thread.
fn at_once<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        let first = first.join();
        (first.unwrap_or_else(|panic| resume_unwind(panic)), second)
    })
}

/// The state trie at an old block, of which nothing but the root is known.
fn trie_at<'a>(
    old: &'a Old,
    present: &'a Present,
    whole: WholeNodes,
    threads: usize,
) -> Result<RewoundTrie<'a>, HistoryError> {
    let state = present.trie()?;
    let is_past = old.runs().next().is_some();
    let make = || {
        if is_past {
            let mut reader = NodeReader::new(old, &present.view, state);
            let trie = reader.root()?;
            return Ok((trie, Source::Past(Box::new(reader))));
        }
        let trie = match state.root() == EMPTY_ROOT {
            true => PartialTrie::new(Path::EMPTY),
            false => {
                let root = NodeRef::hash(state.root());
                PartialTrie::from_stub(Path::EMPTY, Stub::bare(root))
            }
        };
        Ok((trie, Source::Present(Box::new(state.reader()))))
    };
    RewoundTrie::new(make, state, whole, threads)
}
