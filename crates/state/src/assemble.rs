//! An open database is put together from its parts: by whoever opens one, and whoever makes one.

use crate::{
    base::Base,
    blocks::Blocks,
    budget::LayerLimit,
    db::{Current, Holds, Inner},
    delta::{Delta, DeltaLock},
    kept::{Keeping, Kept},
    options::Options,
    overlay::{LayerId, Overlay},
    past::PastStates,
    tree::Tree,
};
use cambium_disk::Disk;
use cambium_primitives::BlockId;
use cambium_snapshot::{
    Budget, CodeCache, Counters, Entries, Index, Pages, PartCache, Reclaim, Snapshot, StateError,
    Taken, checkpoint::CheckpointState, code_bytes, entry_bytes,
};
use cambium_store::{BlockLog, Codes, Manifest, PageAddr, Segments};
use parking_lot::{Mutex, RwLock};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize},
};

/// What an open database is made of.
pub(crate) struct Parts {
    pub(crate) options: Options,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) holds: Holds,
    pub(crate) manifest: Manifest,
    pub(crate) genesis: BlockId,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) parts: Arc<PartCache>,
    pub(crate) codes: Codes,
    pub(crate) log: BlockLog,
    pub(crate) blocks: Blocks,
    /// Pages that only the checkpoint before the newest names.
    pub(crate) retired: Vec<PageAddr>,
    /// What the index is of.
    pub(crate) state: CheckpointState,
    pub(crate) index: Index,
    /// From where on the log is kept.
    pub(crate) kept: Kept,
}

/// Pages of a database that is not open yet.
pub(crate) fn pages(segments: Segments, options: &Options, counters: &Arc<Counters>) -> Arc<Pages> {
    let budget = Budget::new(options.memory_bytes, Taken::default());
    Arc::new(Pages::new(segments, budget.cache_bytes, counters.clone()))
}

impl Parts {
    /// The engine at the state that its index is of, with no layers yet.
    pub(crate) fn assemble(self) -> Result<Arc<Inner>, StateError> {
        let Self {
            options,
            counters,
            pages,
            state,
            ..
        } = self;
        let memory = options.memory_bytes;
        let snapshot = Arc::new(Snapshot {
            block: state.block,
            state_root: state.state_root,
            index: self.index,
            pages: pages.clone(),
            entries: Entries::new(entry_bytes(memory), counters.clone()),
        });
        let index_bytes = snapshot.index.reserved_bytes(options.index_bytes_max());
        let base = Arc::new(Base {
            snapshot,
            intermediate: None,
        });
        let root = LayerId(1);
        let inner = Arc::new(Inner {
            options,
            layer_limit: LayerLimit::default(),
            index_reserved: AtomicU64::new(0),
            // Readers merge nothing.
            is_behind: AtomicBool::new(matches!(self.holds, Holds::Writer(_))),
            disk: self.disk,
            reclaim: Mutex::new(Reclaim::new(self.retired, &pages.segments)),
            pages,
            parts: self.parts,
            codes: self.codes,
            code_cache: CodeCache::new(code_bytes(memory), counters.clone()),
            log: self.log,
            blocks: self.blocks,
            catching_up: Mutex::new(()),
            head_moves: Mutex::new(()),
            delta: DeltaLock::new(Delta::on(base.clone(), root, counters.clone())?),
            writer: Mutex::new(()),
            current: RwLock::new(Current {
                base,
                overlay: Arc::new(Overlay::new()),
                tree: Tree::new(state.block, state.parent_hash, state.state_root, root),
            }),
            merging: Arc::default(),
            sealed_bytes: AtomicUsize::new(0),
            prover: Mutex::new(None),
            past: Arc::new(PastStates::default()),
            merged: Mutex::new(Vec::new()),
            keeping: Mutex::new(Keeping::new(self.kept)),
            replaying: Mutex::new(None),
            head_to_be: Mutex::new(None),
            poisoned: OnceLock::new(),
            genesis: self.genesis,
            manifest: self.manifest,
            counters,
            holds: self.holds,
        });
        inner.divide_budget(index_bytes);
        Ok(inner)
    }
}
