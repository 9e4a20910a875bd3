//! Opening a database: the newest checkpoint, and a short replay of the log.
//!
//! Replay does no trie work: the log has each block's changes both ways, so the layers above the
//! snapshot are there as soon as they are read. The trie follows when the next root is wanted.

use crate::{
    base::Base,
    checkpoint,
    commit::{LogWriter, describe, rebuild_block_index},
    counters::Counters,
    db::{Current, Db, Inner, Options},
    delta::Delta,
    error::StateError,
    loader::{refuse_lost_checkpoints, remove_spilled},
    merger::Retired,
    overlay::{LayerId, Overlay},
    pages::Pages,
    records::{BlockRecord, KIND_BLOCK, KIND_HEAD, KIND_REWIND, RewindRecord},
    tree::Tree,
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, DecodeError};
use cambium_store::{
    BlockIndex, BlockLog, Codes, IndexState, LoadedCheckpoint, LogOptions, LogPosition, Manifest,
    Record, SegmentOptions, Segments, StoreError, load_latest_checkpoint, lock_data_dir,
};
use parking_lot::{Mutex, RwLock};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
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
        let loaded = newest_checkpoint(&disk)?;
        remove_spilled(&*disk).map_err(StoreError::from)?;
        let mut recovery = Recovery::default();
        for damage in &loaded.damaged {
            let older = "an older checkpoint is used, with more of the log to replay";
            recovery.notes.push(format!("{damage}; {older}"));
        }
        let checkpoint = loaded.checkpoint;
        let meta = checkpoint::read_meta(&checkpoint)?;
        let counters = Arc::new(Counters::default());
        let table = checkpoint::read_segments(&checkpoint)?;
        let (segments, _) = Segments::open(disk.clone(), SegmentOptions::default(), Some(&table))?;
        let pages = Arc::new(Pages::new(
            segments,
            options.cache_bytes(),
            counters.clone(),
        ));
        let (codes, _) = Codes::open(disk.clone(), manifest.salt(), meta.codes_len)?;
        let log_options = LogOptions {
            salt: manifest.salt(),
            ..LogOptions::default()
        };
        let (log, found) = BlockLog::open(disk.clone(), log_options, meta.position)
            .map_err(|error| log_error(error, meta.position))?;
        if let Some(torn) = found.torn_tail {
            recovery.notes.push(format!(
                "{}: {} bytes after byte {} were never acknowledged and have been dropped",
                torn.file, torn.bytes, torn.offset
            ));
        }
        let (blocks, index_state) = BlockIndex::open(disk.clone(), meta.block.number + 1)?;
        let snapshot = Arc::new(checkpoint::read_snapshot(
            &checkpoint,
            &meta,
            pages.clone(),
        )?);
        let retired = checkpoint::read_retired(&checkpoint)?;
        let base = Arc::new(Base {
            snapshot,
            intermediate: None,
        });
        let root = LayerId(1);
        let inner = Arc::new(Inner {
            options,
            disk,
            counters: counters.clone(),
            pages,
            codes,
            retired: Mutex::new(Retired {
                pages: retired,
                snapshots: Vec::new(),
            }),
            log: Mutex::new(LogWriter {
                log: Arc::new(log),
                blocks,
                positions: HashMap::from([(meta.block.hash, meta.position)]),
                head_chain: BTreeMap::new(),
                rewound: HashMap::new(),
                merge: None,
            }),
            delta: Mutex::new(Delta::on(base.clone(), root, counters)?),
            prover: Mutex::new(None),
            current: RwLock::new(Current {
                base,
                overlay: Arc::new(Overlay::new()),
                tree: Tree::new(meta.block, meta.parent_hash, meta.state_root, root),
            }),
            poisoned: OnceLock::new(),
            genesis,
            manifest,
            _lock: lock,
        });
        let mut log = inner.log.lock();
        let newest = log
            .blocks
            .get(meta.block.number)
            .ok()
            .flatten()
            .map(|entry| entry.hash);
        if index_state != IndexState::Ready || newest != Some(meta.block.hash) {
            if let IndexState::Rebuild { reason } = index_state {
                recovery.notes.push(format!(
                    "blocks.idx, the block index, was made again from the log: {reason}"
                ));
            }
            rebuild_block_index(&log, meta.block)?;
        }
        recovery.replayed_blocks = inner.replay(&mut log, meta.position)?;
        drop(log);
        Ok((Self { inner }, recovery))
    }
}

fn newest_checkpoint(disk: &Arc<dyn Disk>) -> Result<LoadedCheckpoint, StateError> {
    if let Some(loaded) = load_latest_checkpoint(disk)? {
        return Ok(loaded);
    }
    refuse_lost_checkpoints(disk)?;
    Err(StateError::Unfinished)
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
    /// Takes what the log has after the snapshot's block into layers. Returns their number.
    fn replay(
        self: &Arc<Self>,
        log: &mut LogWriter,
        snapshot: LogPosition,
    ) -> Result<usize, StateError> {
        let mut replayed = 0;
        let records = log.log.clone();
        for record in records.scan(snapshot) {
            let (position, record) = record?;
            // The snapshot's own block is where the scan starts.
            if position > snapshot {
                replayed += usize::from(self.replay_record(log, position, &record)?);
            }
        }
        Ok(replayed)
    }

    /// Returns whether the record was a block that is part of the tree now.
    fn replay_record(
        self: &Arc<Self>,
        log: &mut LogWriter,
        position: LogPosition,
        record: &Record,
    ) -> Result<bool, StateError> {
        match record.kind {
            KIND_BLOCK => {
                let block = BlockRecord::decode(&record.payload)
                    .map_err(|source| damaged(position, source))?;
                let layer = {
                    let mut current = self.current.write();
                    // Of a branch that was given up before the checkpoint.
                    let parent = current.tree.by_hash(&block.meta.parent).cloned();
                    let Some(parent) = parent else {
                        return Ok(false);
                    };
                    current.add(&parent, &block.meta, block.changes, block.reverts)
                };
                for (hash, code) in &block.codes {
                    self.codes.put(*hash, code)?;
                }
                log.positions.insert(block.meta.id.hash, position);
                if block.head {
                    self.move_head(log, layer.id);
                }
                Ok(true)
            }
            KIND_REWIND => {
                let rewind = RewindRecord::decode(&record.payload)
                    .map_err(|source| damaged(position, source))?;
                let base = self.current.read().tree.by_hash(&rewind.base).cloned();
                let Some(base) = base else { return Ok(false) };
                let target = rewind.target.id;
                self.add_rewound(&base, &rewind)?;
                if let Some(entry) = log.blocks.get(target.number)? {
                    log.positions.insert(target.hash, entry.position);
                }
                Ok(false)
            }
            KIND_HEAD => {
                let wrong = DecodeError {
                    what: "not a hash of 32 bytes",
                    offset: 0,
                };
                let hash = B256::try_from(&*record.payload);
                let hash = hash.map_err(|_| damaged(position, wrong))?;
                let layer = self
                    .current
                    .read()
                    .tree
                    .by_hash(&hash)
                    .map(|layer| layer.id);
                if let Some(layer) = layer {
                    self.move_head(log, layer);
                }
                Ok(false)
            }
            _ => Err(damaged(
                position,
                DecodeError {
                    what: "unknown kind of record",
                    offset: 0,
                },
            )),
        }
    }
}

/// Drops a damaged record of the block log and all after it, so that the database opens again
/// at the last good block. Returns where the log was cut, or `None` if it is whole.
///
/// The blocks after it must be imported again.
pub fn repair(disk: &Arc<dyn Disk>) -> Result<Option<LogPosition>, StateError> {
    let _lock = lock_data_dir(&**disk)?;
    let manifest = Manifest::open(&**disk)?;
    let loaded = newest_checkpoint(disk)?;
    let meta = checkpoint::read_meta(&loaded.checkpoint)?;
    let options = LogOptions {
        salt: manifest.salt(),
        ..LogOptions::default()
    };
    match BlockLog::open(disk.clone(), options, meta.position) {
        Err(StoreError::CorruptLog { position, .. }) if position > meta.position => {
            BlockLog::truncate_from(&**disk, position)?;
            Ok(Some(position))
        }
        Err(error) => Err(log_error(error, meta.position)),
        Ok(_) => Ok(None),
    }
}

/// Only what comes after the snapshot's block can be cut off and imported again.
fn log_error(error: StoreError, snapshot: LogPosition) -> StateError {
    match error {
        StoreError::CorruptLog { position, .. } if position <= snapshot => {
            StateError::beyond_repair(error.into())
        }
        error => error.into(),
    }
}
