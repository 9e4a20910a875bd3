//! A state on disk becomes a database: it gets its first block, and with it a name.

use crate::{
    base::{Base, Snapshot},
    blocks::{Blocks, RecentBlock},
    budget::{LayerLimit, code_bytes, entry_bytes},
    checkpoint::{self, CheckpointState, LogState},
    codes::CodeCache,
    counters::Counters,
    db::{Current, Db, Inner, Options, Writer},
    delta::{Delta, DeltaLock},
    entries::Entries,
    error::StateError,
    index::{PartCache, WrittenIndex},
    merger::Retired,
    open::{GENESIS_HASH, GENESIS_NUMBER},
    overlay::{LayerId, Overlay},
    pages::Pages,
    records::{BlockMeta, BlockRecord, KIND_BLOCK},
    tree::Tree,
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::Changes;
use cambium_store::{
    BlockEntry, BlockIndex, BlockLog, Codes, DataDirLock, LogOptions, LogPosition, Manifest,
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashSet,
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

/// A first state that is on disk, but not named yet.
pub struct Loaded {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) lock: DataDirLock,
    pub(super) options: Options,
    pub(super) counters: Arc<Counters>,
    pub(super) pages: Arc<Pages>,
    pub(super) parts: Arc<PartCache>,
    /// The first checkpoint, begun.
    pub(super) index: WrittenIndex,
    pub(super) codes: Codes,
    pub(super) salt: u64,
    pub(super) root: B256,
}

impl Loaded {
    /// The state root, which the first block's header needs.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// Names the first block and opens the database at it. `properties` are kept with the
    /// database and given back by [`Db::property`].
    pub fn create(
        self,
        meta: BlockMeta,
        properties: Vec<(String, Vec<u8>)>,
    ) -> Result<Db, StateError> {
        if meta.state_root != self.root {
            let (got, expected) = (self.root, meta.state_root);
            return Err(StateError::WrongRoot {
                block: meta.id,
                got,
                expected,
            });
        }
        let disk = self.disk;
        let own = [
            (
                GENESIS_NUMBER.to_owned(),
                meta.id.number.to_le_bytes().to_vec(),
            ),
            (GENESIS_HASH.to_owned(), meta.id.hash.to_vec()),
        ];
        let manifest = Manifest::create(&*disk, self.salt, own.into_iter().chain(properties))?;
        let log_options = LogOptions {
            salt: manifest.salt(),
            ..LogOptions::default()
        };
        let (log, _) = BlockLog::open(disk.clone(), log_options, LogPosition::START)?;
        let none = Changes::default();
        let record = BlockRecord::encode(&meta, &none, &none, &[]);
        let position = log.append(KIND_BLOCK, &[&record])?;
        log.sync()?;
        let (index, _) = BlockIndex::open(disk.clone(), 0)?;
        index.set(
            meta.id.number,
            BlockEntry {
                hash: meta.id.hash,
                position,
            },
        )?;
        index.sync()?;
        let recent = vec![RecentBlock {
            id: meta.id,
            parent: meta.parent,
            position,
        }];
        let state = LogState {
            head: meta.id.hash,
            replay: log.end(),
            recent: recent.clone(),
        };
        let of = CheckpointState {
            block: meta.id,
            parent_hash: meta.parent,
            state_root: self.root,
        };
        // Only with its first checkpoint does the directory hold a finished database.
        let (state_index, _) =
            checkpoint::write(self.index, &self.pages, &self.codes, of, state, &[])?;
        let snapshot = Arc::new(Snapshot {
            block: meta.id,
            state_root: self.root,
            index: state_index,
            pages: self.pages.clone(),
            entries: Entries::new(
                entry_bytes(self.options.memory_bytes),
                self.counters.clone(),
            ),
        });
        let index_bytes = snapshot
            .index
            .reserved_bytes(self.options.index_bytes_max());
        let layer = LayerId(1);
        let base = Arc::new(Base {
            snapshot,
            intermediate: None,
        });
        let inner = Arc::new(Inner {
            options: self.options,
            layer_limit: LayerLimit::default(),
            is_behind: AtomicBool::new(false),
            disk,
            counters: self.counters.clone(),
            pages: self.pages,
            parts: self.parts,
            codes: self.codes,
            code_cache: CodeCache::new(
                code_bytes(self.options.memory_bytes),
                self.counters.clone(),
            ),
            retired: Mutex::new(Retired::default()),
            log,
            blocks: Blocks::new(index, meta.id, recent),
            writer: Mutex::new(Writer::default()),
            delta: DeltaLock::new(Delta::on(base.clone(), layer, self.counters)?),
            prover: Mutex::new(None),
            current: RwLock::new(Current {
                base,
                overlay: Arc::new(Overlay::new()),
                tree: Tree::new(meta.id, meta.parent, self.root, layer),
                unlogged_jumps: HashSet::new(),
            }),
            poisoned: OnceLock::new(),
            genesis: meta.id,
            manifest,
            _lock: self.lock,
        });
        inner.divide_budget(index_bytes);
        Ok(Db { inner })
    }
}
