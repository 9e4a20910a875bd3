//! The runs of a history at one moment.

use crate::{memory_run::MemoryRun, run::reader::RunFile};
use cambium_primitives::{BlockId, BlockNumber};
use std::sync::Arc;

/// A run, in memory or in a file.
#[derive(Clone)]
pub(crate) enum Run {
    Memory(Arc<MemoryRun>),
    File(Arc<RunFile>),
}

/// A run, and the last block of it that is canonical.
#[derive(Clone)]
pub(crate) struct LiveRun {
    pub(crate) run: Run,
    /// Entries of later blocks are dead.
    pub(crate) last: BlockNumber,
}

/// The runs at one moment. They never change.
#[derive(Clone)]
pub(crate) struct Runs {
    pub(crate) first: BlockId,
    pub(crate) upto: BlockId,
    /// Whether there are entries of nodes.
    pub(crate) has_nodes: bool,
    pub(crate) files: Vec<LiveRun>,
    /// Runs in memory, above those in files.
    pub(crate) memory: Vec<Arc<MemoryRun>>,
}

impl Runs {
    /// All runs, oldest first.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = LiveRun> {
        let memory = self.memory.iter().map(|run| LiveRun {
            last: *run.blocks.end(),
            run: Run::Memory(run.clone()),
        });
        self.files.iter().cloned().chain(memory)
    }

    /// These runs, and one in a file below them, which begins above the block `first`.
    pub(crate) fn with_file_below(&self, run: LiveRun, first: BlockId) -> Self {
        let mut files = vec![run];
        files.extend(self.files.iter().cloned());
        Self {
            first,
            files,
            ..self.clone()
        }
    }

    /// Memory of the runs in memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory.iter().map(|run| run.bytes()).sum()
    }
}
