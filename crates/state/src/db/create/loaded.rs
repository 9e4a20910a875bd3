//! From a loaded state to a database: its first block is named and written to the log.

use crate::{
    db::{
        assemble::Parts,
        handle::Db,
        open::{GENESIS_HASH, GENESIS_NUMBER},
    },
    form,
    layered::intervals::Intervals,
    log::{
        access::Access,
        blocks::{Blocks, RecentBlock},
        finality::Finality,
        kept::Kept,
        log_state::{LayeredRoots, LogState},
        records::{BlockMeta, BlockRecord, KIND_BLOCK},
    },
    options::Options,
    values::LongValues,
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::{
    Counters, KeptStorage, Pages, PartCache, StateError, WrittenIndex, checkpoint,
    checkpoint::{CheckpointState, RetiredPages},
};
use cambium_store::{
    BlockEntry, BlockIndex, BlockLog, Checkpoint, Codes, DataDirLock, LogPosition, Manifest,
    create_readers_dir,
};
use cambium_trie::{EMPTY_ROOT, layered_root};
use std::sync::{Arc, atomic::Ordering};

/// Highest number of a first block. The block index has room for each number from 0 on: 13 TB at
/// this number, nearly all of it a hole.
const FIRST_NUMBER_MAX: u64 = 1 << 38;

/// A first state on disk, whose block is not named yet.
pub struct Loaded {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) lock: DataDirLock,
    pub(super) options: Options,
    pub(super) kept: Option<KeptStorage>,
    pub(super) counters: Arc<Counters>,
    pub(super) pages: Arc<Pages>,
    pub(super) parts: Arc<PartCache>,
    /// The first checkpoint, which has the index and no metadata yet.
    pub(super) index: WrittenIndex,
    pub(super) codes: Codes,
    pub(super) values: Option<LongValues>,
    pub(super) salt: u64,
    pub(super) root: B256,
}

impl Loaded {
    /// The state root, which the first block's header needs.
    pub fn root(&self) -> B256 {
        match self.options.merge_interval_blocks {
            // Nothing has changed since the first block.
            Some(_) => layered_root(EMPTY_ROOT, EMPTY_ROOT, self.root),
            None => self.root,
        }
    }

    /// Names the first block and opens the database at it. `properties` are stored with the
    /// database; [`Db::property`] returns them.
    ///
    /// # Errors
    ///
    /// [`StateError::WrongRoot`] if `meta` has another root than the loaded state, and
    /// [`StateError::BadStart`] for a number above 2^38, a property named `genesis_number`,
    /// `genesis_hash`, `commitment`, `leaves`, `merge_interval_blocks` or `kept_storage`, and for an interval of no
    /// or too many blocks. [`StateError::BadOptions`] if the memory is too little for the changes of
    /// two intervals.
    pub fn create(
        self,
        meta: BlockMeta,
        properties: Vec<(String, Vec<u8>)>,
    ) -> Result<Db, StateError> {
        self.check_first(&meta, &properties)?;
        let intervals = self.intervals(meta.id)?;
        let disk = self.disk;
        let own = [
            (
                GENESIS_NUMBER.to_owned(),
                meta.id.number.to_le_bytes().to_vec(),
            ),
            (GENESIS_HASH.to_owned(), meta.id.hash.to_vec()),
        ];
        let own = own.into_iter().chain(form::properties(&self.options));
        let list = self.kept.as_ref().map(KeptStorage::encode);
        let own = own.chain(list.map(|list| (form::KEPT_STORAGE.to_owned(), list)));
        let manifest = Manifest::create(&*disk, self.salt, own.chain(properties))?;
        let log_options = self.options.files.log(manifest.salt());
        let (log, _) = BlockLog::open(disk.clone(), log_options, LogPosition::START)?;
        log.settle()?;
        let (position, replay, index) = put_first_block(&disk, &log, &meta)?;
        let recent = vec![RecentBlock {
            id: meta.id,
            parent: meta.parent,
            position,
        }];
        let values = match &self.values {
            Some(values) => {
                values.segments.sync()?;
                values.plan_checkpoint(values.first_pinned())
            }
            None => Vec::new(),
        };
        let log_state = LogState {
            head: meta.id,
            replay,
            recent: recent.clone(),
            kept: Kept::ALL,
            finality: Finality::default(),
            values,
            layered: intervals.map(|_| LayeredRoots {
                state_root: meta.state_root,
                snapshots: vec![(meta.id, self.root)],
            }),
        };
        let layered = log_state.layered.clone();
        let state = CheckpointState {
            block: meta.id,
            parent_hash: meta.parent,
            state_root: self.root,
        };
        let nothing = RetiredPages {
            now: &[],
            before: &[],
        };
        let put = |index, log: LogState| {
            let (pages, codes) = (&self.pages, &self.codes);
            checkpoint::write(index, pages, codes, &manifest, state, log, nothing)
        };
        // The first checkpoint completes the database. With a second one, either of them may be
        // lost.
        let put_both = || {
            let (first, _) = put(self.index, log_state.clone())?;
            let fits = first.fits(self.options.index_bytes_max());
            put(first.write_again(&disk, &self.parts, fits)?, log_state)
        };
        let (state_index, _) = put_both().inspect_err(|_| {
            // Nothing was made then, as the error says, and it can be made again.
            let _ = Checkpoint::remove_all(&disk);
        })?;
        create_readers_dir(&*disk);
        let inner = Parts {
            options: self.options,
            kept_storage: self.kept,
            disk,
            access: Access::Writer(self.lock),
            manifest,
            genesis: meta.id,
            counters: self.counters,
            pages: self.pages,
            parts: self.parts,
            codes: self.codes,
            values: self.values,
            log,
            blocks: Blocks::new(index, meta.id.number, Kept::ALL, meta.id, recent)?,
            retired: Vec::new(),
            state,
            kept: Kept::ALL,
            index: state_index,
            layered: intervals.zip(layered),
        }
        .assemble()?;
        inner.merging.is_behind.store(false, Ordering::Release);
        Ok(Db { inner })
    }

    /// The intervals of the `layered` commitment, if the chain has it.
    fn intervals(&self, first: BlockId) -> Result<Option<Intervals>, StateError> {
        let Some(blocks) = self.options.merge_interval_blocks else {
            return Ok(None);
        };
        let intervals = Intervals::new(first.number, blocks).ok_or_else(|| {
            let what = format!("its merge interval can't be {blocks} blocks");
            StateError::BadStart(what)
        })?;
        intervals.check_memory(self.options.memory_bytes)?;
        Ok(Some(intervals))
    }

    /// Rejects a first block or a property that no database can begin with.
    fn check_first(
        &self,
        meta: &BlockMeta,
        properties: &[(String, Vec<u8>)],
    ) -> Result<(), StateError> {
        if meta.state_root != self.root() {
            let (got, expected) = (self.root(), meta.state_root);
            return Err(StateError::WrongRoot {
                block: meta.id,
                got,
                expected,
            });
        }
        if meta.id.number > FIRST_NUMBER_MAX {
            let what = format!(
                "its first block is {}, and the number can be at most {FIRST_NUMBER_MAX}",
                meta.id
            );
            return Err(StateError::BadStart(what));
        }
        let own = [
            GENESIS_NUMBER,
            GENESIS_HASH,
            form::COMMITMENT,
            form::LEAVES,
            form::MERGE_INTERVAL,
            form::KEPT_STORAGE,
        ];
        let is_own = |name: &str| own.contains(&name);
        if let Some((name, _)) = properties.iter().find(|(name, _)| is_own(name)) {
            let what = format!("the property name {name} is reserved");
            return Err(StateError::BadStart(what));
        }
        Ok(())
    }
}

/// Appends the first block to the log and syncs it, and creates the block index with its entry.
/// Returns the position of its record, and the end of the log.
fn put_first_block(
    disk: &Arc<dyn Disk>,
    log: &BlockLog,
    meta: &BlockMeta,
) -> Result<(LogPosition, LogPosition, BlockIndex), StateError> {
    let none = Changes::default();
    let record = BlockRecord::encode(meta, &none, &none, &[]);
    let position = log.append(KIND_BLOCK, &[&record])?;
    let end = log.sync()?;
    let (index, _) = BlockIndex::open(disk.clone(), 0)?;
    index.set(
        meta.id.number,
        BlockEntry {
            hash: meta.id.hash,
            position,
        },
    )?;
    index.sync()?;
    Ok((position, end, index))
}
