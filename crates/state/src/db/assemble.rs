//! Assembling an open database from its parts, for databases that are opened and for new ones.

use crate::{
    db::held,
    engine::{
        layers::Layers, merging::MergeControl, news::News, parts::Engine, past_states::PastStates,
    },
    health::Health,
    layered::{intervals::Intervals, parts::Layered},
    layers::{overlay::LayerId, tree::Tree},
    log::{
        access::Access,
        blocks::Blocks,
        journal::Journal,
        kept::{Keeping, Kept},
        log_state::LayeredRoots,
    },
    options::Options,
    store::Store,
    tries::{base::Base, delta::Delta},
    values::LongValues,
};
use cambium_disk::Disk;
use cambium_primitives::BlockId;
use cambium_snapshot::{
    Budget, CheckpointState, CodeCache, Counters, Index, KeptStorage, MemoryInUse, Pages,
    PartCache, Reclaimer, Snapshot, StateError, ValueCache, code_cache_bytes_max,
    value_cache_bytes_max,
};
use cambium_store::{BlockLog, Codes, Manifest, PageAddr, Segments};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// The parts of a database, from which it is assembled.
pub(crate) struct Parts {
    pub(crate) options: Options,
    /// The contracts whose storage is kept, if the database is partial.
    pub(crate) kept_storage: Option<KeptStorage>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) access: Access,
    pub(crate) manifest: Manifest,
    pub(crate) genesis: BlockId,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pages: Arc<Pages>,
    pub(crate) parts: Arc<PartCache>,
    pub(crate) codes: Codes,
    /// `None` if the leaves are accounts.
    pub(crate) values: Option<LongValues>,
    pub(crate) log: BlockLog,
    pub(crate) blocks: Blocks,
    /// Pages that only the checkpoint before the newest names.
    pub(crate) retired: Vec<PageAddr>,
    /// The block and the root of the index.
    pub(crate) state: CheckpointState,
    pub(crate) index: Index,
    /// From where on the log is kept.
    pub(crate) kept: Kept,
    /// Intervals and roots of the `layered` commitment, if the chain has it.
    pub(crate) layered: Option<(Intervals, LayeredRoots)>,
}

/// The pages of a database that is not open yet, with the cache that its options allow.
pub(crate) fn pages(segments: Segments, options: &Options, counters: &Arc<Counters>) -> Arc<Pages> {
    let budget = Budget::new(options.memory_bytes, MemoryInUse::default());
    Arc::new(Pages::new(segments, budget.cache_bytes, counters.clone()))
}

impl Parts {
    /// Assembles the engine at the state of its index, without layers.
    pub(crate) fn assemble(self) -> Result<Arc<Engine>, StateError> {
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
            value_cache: ValueCache::new(value_cache_bytes_max(memory), counters.clone()),
        });
        let index_memory = snapshot.index.reserved(options.index_bytes_max());
        let base = Arc::new(Base {
            snapshot,
            intermediate: None,
        });
        let root = LayerId(1);
        let delta = Delta::on(base.clone(), root, counters.clone())?;
        let intervals = self.layered.as_ref().map(|(intervals, _)| *intervals);
        let (state_root, layered) = match self.layered {
            None => (state.state_root, None),
            Some((intervals, roots)) => {
                let layered = Layered::new(intervals);
                for (block, root) in roots.snapshots {
                    layered.roots.put(block, root);
                }
                (roots.state_root, Some(layered))
            }
        };
        let tree = Tree::new(state.block, state.parent_hash, state_root, root);
        // A reader merges nothing.
        let is_writer = matches!(self.access, Access::Writer(_));
        let engine = Arc::new(Engine {
            options,
            kept_storage: self.kept_storage,
            health: Health::default(),
            store: Store {
                disk: self.disk,
                reclaim: Mutex::new(Reclaimer::new(self.retired, &pages.segments)),
                pages,
                parts: self.parts,
                codes: self.codes,
                values: self.values,
                code_cache: CodeCache::new(code_cache_bytes_max(memory), counters.clone()),
                counters,
            },
            journal: Journal {
                options,
                manifest: self.manifest,
                genesis: self.genesis,
                intervals,
                access: self.access,
                log: self.log,
                blocks: self.blocks,
                head_moves: Mutex::new(()),
                writer: Mutex::new(()),
                keeping: Mutex::new(Keeping::new(self.kept)),
                replaying: Mutex::new(None),
                target_head: Mutex::new(None),
                finality: Mutex::default(),
                kept_above: Mutex::default(),
            },
            layers: Layers::new(base, tree, delta, intervals.is_some()),
            merging: Arc::new(MergeControl::new(is_writer)),
            prover: RwLock::new(None),
            past: Arc::new(PastStates::default()),
            layered,
            news: News::default(),
        });
        engine.divide_budget(index_memory);
        if is_writer {
            held::note(&engine);
        }
        Ok(engine)
    }
}
