//! Opening a database: the newest checkpoint, and a short replay of the log.
//!
//! Replay does no trie work: the log has each block's changes both ways, so the layers above the
//! snapshot are there as soon as they are read. The trie follows when the next root is wanted.

use crate::{
    base::{Base, Snapshot},
    blocks::{Blocks, RecentBlock},
    budget::{Budget, LayerLimit, code_bytes, entry_bytes},
    checkpoint,
    codes::CodeCache,
    commit::describe,
    counters::Counters,
    db::{Current, Db, Inner, Options, Writer},
    delta::{Delta, DeltaLock},
    entries::Entries,
    error::StateError,
    index::{FoundIndex, PartCache},
    loader::{refuse_lost_checkpoints, remove_spilled},
    merger::Retired,
    overlay::{LayerId, Overlay},
    pages::Pages,
    records::{BlockMeta, BlockRecord, JumpRecord, KIND_BLOCK, KIND_HEAD, KIND_JUMP},
    tree::Tree,
};
use alloy_primitives::{B256, Bytes};
use cambium_disk::Disk;
use cambium_primitives::{BlockId, DecodeError};
use cambium_store::{
    BlockEntry, BlockIndex, BlockLog, Checkpoint, Codes, IndexState, LoadedCheckpoint, LogOptions,
    LogPosition, Manifest, Record, SegmentOptions, Segments, StoreError, load_latest_checkpoint,
    lock_data_dir,
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

/// Name of the manifest's property that holds the hash of the genesis block.
pub(crate) const GENESIS_HASH: &str = "genesis_hash";
/// Name of the manifest's property that holds the number of the genesis block.
pub(crate) const GENESIS_NUMBER: &str = "genesis_number";

/// What opening found that its owner should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Blocks taken from the log, which were not in the snapshot yet.
    pub replayed_blocks: usize,
    /// What was dropped, rebuilt or passed over, in words.
    pub notes: Vec<String>,
}

impl Db {
    /// Whether `disk` holds a database, good or bad.
    pub fn exists(disk: &dyn Disk) -> Result<bool, StateError> {
        Ok(Manifest::exists(disk)?)
    }

    /// Opens the database on `disk` at the newest block that was committed.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, Recovery), StateError> {
        let lock = lock_data_dir(&*disk)?;
        let manifest = Manifest::open(&*disk)?;
        let genesis = genesis_of(&manifest)?;
        let counters = Arc::new(Counters::default());
        let parts = Arc::new(PartCache::new(options.index_bytes_max(), counters.clone()));
        let found = newest_checkpoint(&disk, |found| checkpoint::read(found, &parts))?;
        remove_spilled(&*disk).map_err(StoreError::from)?;
        let mut recovery = Recovery::default();
        for damage in &found.damaged {
            let older = "an older checkpoint is used, with more of the log to replay";
            recovery.notes.push(format!("{damage}; {older}"));
        }
        let checkpoint::Read {
            meta,
            segments: table,
            retired,
            index: found_index,
        } = found.loaded;
        let state_index = match found_index {
            FoundIndex::Index(index) => index,
            FoundIndex::TooLarge(index) => {
                checkpoint::write_whole(&disk, &parts, &index, &meta, table.clone(), &retired)?
            }
        };
        let state = meta.state;
        let (segments, _) = Segments::open(disk.clone(), SegmentOptions::default(), Some(&table))?;
        let pages = Arc::new(Pages::new(
            segments,
            Budget::new(options.memory_bytes, 0, 0).cache_bytes,
            counters.clone(),
        ));
        let (codes, _) = Codes::open(disk.clone(), manifest.salt(), meta.codes_len)?;
        let log_options = LogOptions {
            salt: manifest.salt(),
            ..LogOptions::default()
        };
        let replay = meta.log.replay;
        let (log, found) = BlockLog::open(disk.clone(), log_options, replay)
            .map_err(|error| log_error(error, replay))?;
        if let Some(torn) = found.torn_tail {
            recovery.notes.push(format!(
                "{}: {} bytes after byte {} were never acknowledged and have been dropped",
                torn.file, torn.bytes, torn.offset
            ));
        }
        let (index, found) = BlockIndex::open(disk.clone(), state.block.number + 1)?;
        let was_remade = complete_index(&index, &log, genesis, state.block, &meta.log.recent)?;
        match found {
            IndexState::Rebuild { reason } => recovery.notes.push(format!(
                "blocks.idx, the block index, was made again from the log: {reason}"
            )),
            IndexState::Short { numbers } if was_remade => recovery.notes.push(format!(
                "blocks.idx, the block index, was made again from the log: it holds {numbers} of \
                 {} blocks",
                state.block.number + 1
            )),
            IndexState::Short { .. } | IndexState::Ready => {}
        }
        let snapshot = Arc::new(Snapshot {
            block: state.block,
            state_root: state.state_root,
            index: state_index,
            pages: pages.clone(),
            entries: Entries::new(entry_bytes(options.memory_bytes), counters.clone()),
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
            is_behind: AtomicBool::new(true),
            disk,
            counters: counters.clone(),
            pages,
            parts,
            codes,
            code_cache: CodeCache::new(code_bytes(options.memory_bytes), counters.clone()),
            retired: Mutex::new(Retired::with_pages(retired)),
            log,
            blocks: Blocks::new(index, state.block, meta.log.recent),
            writer: Mutex::new(Writer::default()),
            delta: DeltaLock::new(Delta::on(base.clone(), root, counters)?),
            prover: Mutex::new(None),
            current: RwLock::new(Current {
                base,
                overlay: Arc::new(Overlay::new()),
                tree: Tree::new(state.block, state.parent_hash, state.state_root, root),
                unlogged_jumps: HashSet::new(),
            }),
            poisoned: OnceLock::new(),
            genesis,
            manifest,
            _lock: lock,
        });
        inner.divide_budget(index_bytes);
        inner.restore_head(&meta.log.head)?;
        recovery.replayed_blocks = inner.replay(replay)?;
        Ok((Self { inner }, recovery))
    }
}

fn newest_checkpoint<T>(
    disk: &Arc<dyn Disk>,
    load: impl FnMut(&Checkpoint) -> Result<T, StateError>,
) -> Result<LoadedCheckpoint<T, StateError>, StateError> {
    if let Some(loaded) = load_latest_checkpoint(disk, load)? {
        return Ok(loaded);
    }
    refuse_lost_checkpoints(disk)?;
    Err(StateError::Unfinished)
}

/// Sees to it that the index has `base` and its ancestors. A merge that was cut short may have left
/// it short, or with another branch: of both as much is amended as the recent blocks tell. If that
/// is not enough it is made anew from the whole log, and the answer is true.
///
/// Recent ancestors are set again even where they are right: what an opening before this one has
/// amended, and failed to sync, may be in the system's cache alone.
fn complete_index(
    index: &BlockIndex,
    log: &BlockLog,
    genesis: BlockId,
    base: BlockId,
    recent: &[RecentBlock],
) -> Result<bool, StateError> {
    let recent: HashMap<_, _> = recent.iter().map(|block| (block.id.hash, block)).collect();
    let mut set_again = Vec::new();
    let mut lowest_wrong = None;
    let mut next = base;
    loop {
        let is_there = match index.get(next.number) {
            Ok(entry) => entry.is_some_and(|entry| entry.hash == next.hash),
            Err(error) if error.is_corruption() => false,
            Err(error) => return Err(error.into()),
        };
        if !is_there {
            lowest_wrong = Some(next.number);
        }
        match recent.get(&next.hash) {
            Some(block) => set_again.push(**block),
            None if is_there => break,
            None => {
                remake_index(index, log, base)?;
                return Ok(true);
            }
        }
        if next == genesis {
            break;
        }
        next = BlockId::new(next.number - 1, recent[&next.hash].parent);
    }
    if let Some(lowest) = lowest_wrong {
        index.truncate(lowest)?;
    }
    for block in set_again.into_iter().rev() {
        index.set(
            block.id.number,
            BlockEntry {
                hash: block.id.hash,
                position: block.position,
            },
        )?;
    }
    Ok(false)
}

/// Makes the block index of the chain that ends in `base` anew, from the whole log.
fn remake_index(index: &BlockIndex, log: &BlockLog, base: BlockId) -> Result<(), StateError> {
    let mut known: HashMap<B256, (BlockId, B256, LogPosition)> = HashMap::new();
    for record in log.scan(LogPosition::START) {
        let (position, record) = record?;
        if record.kind == KIND_BLOCK {
            let meta = BlockRecord::decode_meta(&record.payload)
                .map_err(|source| damaged(position, source))?;
            known.insert(meta.id.hash, (meta.id, meta.parent, position));
        }
    }
    let mut chain = Vec::new();
    let mut next = base.hash;
    while let Some((id, parent, position)) = known.get(&next) {
        chain.push((id.number, *position, next));
        next = *parent;
    }
    // Not cut off alone: a power failure could bring back what another branch had there.
    index.clear()?;
    for (number, position, hash) in chain.into_iter().rev() {
        index.set(number, BlockEntry { hash, position })?;
    }
    Ok(())
}

fn genesis_of(manifest: &Manifest) -> Result<BlockId, StateError> {
    let number = manifest
        .property(GENESIS_NUMBER)
        .and_then(|bytes| bytes.try_into().ok());
    let hash = manifest
        .property(GENESIS_HASH)
        .and_then(|bytes| B256::try_from(bytes).ok());
    match (number, hash) {
        (Some(number), Some(hash)) => Ok(BlockId::new(u64::from_le_bytes(number), hash)),
        _ => Err(StateError::Damaged {
            what: "the manifest".to_owned(),
            source: DecodeError {
                what: "no genesis block",
                offset: 0,
            },
        }),
    }
}

fn damaged(position: LogPosition, source: DecodeError) -> StateError {
    StateError::Damaged {
        what: describe(position),
        source,
    }
}

impl Inner {
    /// Makes the block of that hash the head again, which was above the snapshot's when the
    /// checkpoint was made.
    fn restore_head(&self, hash: &B256) -> Result<(), StateError> {
        let head = self.find(hash)?;
        self.layer_of(head)?;
        self.move_head(head)
    }

    /// Takes what the log has from `from` on into layers. Returns the number of blocks.
    fn replay(&self, from: LogPosition) -> Result<usize, StateError> {
        let mut replayed = 0;
        for record in self.log.scan(from) {
            let (position, record) = record?;
            self.replay_record(position, &record)?;
            replayed += usize::from(record.kind == KIND_BLOCK);
        }
        Ok(replayed)
    }

    fn replay_record(&self, position: LogPosition, record: &Record) -> Result<(), StateError> {
        let damaged = |source| damaged(position, source);
        let head = match record.kind {
            KIND_BLOCK => {
                let block = BlockRecord::decode(&record.payload).map_err(damaged)?;
                let id = block.meta.id;
                for (hash, code) in &block.codes {
                    self.codes.put(*hash, code)?;
                }
                self.blocks.insert(RecentBlock {
                    id,
                    parent: block.meta.parent,
                    position,
                });
                let mut current = self.current.write();
                // On a branch that is not in memory it is brought back with it, when needed.
                let parent = current.tree.by_hash(&block.meta.parent).cloned();
                if let Some(parent) = parent {
                    current.add(&parent, &block.meta, block.changes, block.reverts);
                }
                if !block.head {
                    return Ok(());
                }
                id
            }
            KIND_JUMP => {
                let jump = JumpRecord::decode(&record.payload).map_err(damaged)?;
                let mut current = self.current.write();
                let base = current.tree.by_hash(&jump.base).cloned();
                if let Some(base) = base
                    && current.tree.by_hash(&jump.target.hash).is_none()
                {
                    let target = BlockMeta {
                        id: jump.target,
                        parent: jump.parent,
                        state_root: jump.state_root,
                        body: Bytes::new(),
                    };
                    current.add(&base, &target, jump.changes, jump.reverts);
                }
                return Ok(());
            }
            KIND_HEAD => {
                let wrong = DecodeError {
                    what: "not a hash of 32 bytes",
                    offset: 0,
                };
                let hash = B256::try_from(&*record.payload).map_err(|_| damaged(wrong))?;
                self.find(&hash)?
            }
            _ => {
                return Err(damaged(DecodeError {
                    what: "unknown kind of record",
                    offset: 0,
                }));
            }
        };
        self.layer_of(head)?;
        self.move_head(head)
    }
}

/// Drops a damaged record of the block log and all after it, so that the database opens again
/// at the last good block. Returns where the log was cut, or `None` if it is whole.
///
/// The blocks after it must be imported again.
pub fn repair(disk: &Arc<dyn Disk>) -> Result<Option<LogPosition>, StateError> {
    let _lock = lock_data_dir(&**disk)?;
    let manifest = Manifest::open(&**disk)?;
    let found = newest_checkpoint(disk, |found| {
        found.verify()?;
        checkpoint::read_meta(found)
    })?;
    let meta = found.loaded;
    let options = LogOptions {
        salt: manifest.salt(),
        ..LogOptions::default()
    };
    let replay = meta.log.replay;
    match BlockLog::open(disk.clone(), options, replay) {
        Err(StoreError::CorruptLog { position, .. }) if position >= replay => {
            BlockLog::truncate_from(&**disk, position)?;
            Ok(Some(position))
        }
        Err(error) => Err(log_error(error, replay)),
        Ok(_) => Ok(None),
    }
}

/// Only what is replayed can be cut off and imported again.
fn log_error(error: StoreError, replay: LogPosition) -> StateError {
    match error {
        StoreError::CorruptLog { position, .. } if position < replay => {
            StateError::beyond_repair(error.into())
        }
        error => error.into(),
    }
}
