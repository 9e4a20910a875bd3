//! Making blocks durable, and moving the head: everything that appends to the block log.

use crate::{
    db::Inner,
    error::StateError,
    merger::MergeJob,
    overlay::LayerId,
    records::{BlockRecord, KIND_BLOCK, KIND_HEAD, KIND_REWIND, RewindRecord},
    session::Sealed,
    tree::{Layer, fold},
};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use cambium_store::{BlockEntry, BlockIndex, BlockLog, LogPosition};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

/// The block log, and where blocks are in it.
///
/// The index on disk has the base and its ancestors and changes only when the base does, so that
/// a crash finds it whole. Whatever the head's chain has above the base is kept in memory; it may
/// begin below the base, at a block that was brought back.
pub(crate) struct LogWriter {
    pub(crate) log: Arc<BlockLog>,
    /// The base and its ancestors.
    pub(crate) blocks: BlockIndex,
    /// The head's chain above the base.
    pub(crate) head_chain: BTreeMap<BlockNumber, BlockEntry>,
    /// Where the blocks of the tree are in the log.
    pub(crate) positions: HashMap<B256, LogPosition>,
    /// Blocks brought back from below the base, which the log does not say yet.
    pub(crate) rewound: HashMap<B256, RewindRecord>,
    pub(crate) merge: Option<MergeJob>,
}

impl LogWriter {
    /// The entry of the canonical block of that height.
    pub(crate) fn canonical(&self, number: BlockNumber) -> Result<Option<BlockEntry>, StateError> {
        match self.head_chain.first_key_value() {
            Some((lowest, _)) if number >= *lowest => Ok(self.head_chain.get(&number).copied()),
            _ => Ok(self.blocks.get(number)?),
        }
    }

    /// The record of the canonical block of that height.
    pub(crate) fn block_record(
        &self,
        number: BlockNumber,
    ) -> Result<Option<BlockRecord>, StateError> {
        let entry = self.canonical(number)?;
        entry
            .map(|entry| self.record_at(entry.position))
            .transpose()
    }

    fn record_at(&self, position: LogPosition) -> Result<BlockRecord, StateError> {
        let record = self.log.read(position)?;
        BlockRecord::decode(&record.payload).map_err(|source| StateError::Damaged {
            what: describe(position),
            source,
        })
    }

    /// Where a block is that can be built upon: in the tree, canonical, or an ancestor of the
    /// base.
    pub(crate) fn position_of(&self, id: BlockId) -> Result<Option<LogPosition>, StateError> {
        if let Some(position) = self.positions.get(&id.hash) {
            return Ok(Some(*position));
        }
        let entry = self
            .blocks
            .get(id.number)?
            .filter(|entry| entry.hash == id.hash);
        Ok(entry.map(|entry| entry.position))
    }

    /// Takes the blocks of the base's new chain into the index, and makes that durable.
    pub(crate) fn extend_index(&mut self, chain: &[BlockId]) -> Result<(), StateError> {
        let mut first = true;
        for id in chain {
            let Some(position) = self.positions.get(&id.hash) else {
                continue;
            };
            if first && id.number < self.blocks.numbers() {
                // Blocks of another branch go, durably, before any of this one comes: a crash
                // in between must not find both.
                self.blocks.truncate(id.number)?;
                self.blocks.sync()?;
            }
            first = false;
            self.blocks.set(
                id.number,
                BlockEntry {
                    hash: id.hash,
                    position: *position,
                },
            )?;
        }
        Ok(self.blocks.sync()?)
    }
}

impl Inner {
    /// Appends blocks to the log with one sync; if `head`, the last of them is the head then.
    pub(crate) fn commit(
        self: Arc<Self>,
        mut sealed: Vec<Sealed>,
        head: bool,
    ) -> Result<(), StateError> {
        self.check_sound()?;
        let Some(newest) = sealed.last().map(|sealed| sealed.layer().clone()) else {
            return Ok(());
        };
        let start = Instant::now();
        let mut log = self.log.lock();
        // All is checked before anything is appended: what is refused leaves no trace.
        let mut parents = Vec::with_capacity(sealed.len());
        for layer in sealed.iter().map(Sealed::layer) {
            if self.current.read().tree.get(layer.id).is_none() {
                return Err(StateError::UnknownBlock(layer.block.hash));
            }
            let in_group = parents.contains(&layer.parent_hash);
            if !in_group && !self.ensure_logged(&mut log, &layer.parent_hash)? {
                return Err(StateError::ParentNotCommitted(layer.block));
            }
            parents.push(layer.block.hash);
        }
        let mut positions: Vec<(B256, LogPosition)> = Vec::with_capacity(sealed.len());
        for block in &mut sealed {
            let hash = block.id().hash;
            let Some(record) = block.record() else {
                continue;
            };
            BlockRecord::set_head(record, head);
            self.counters.log_bytes_written.add(record.len() as u64);
            let position = self.poison(log.log.append(KIND_BLOCK, &[record]))?;
            positions.push((hash, position));
        }
        self.sync_log(&log)?;
        sealed.iter_mut().for_each(Sealed::is_committed);
        self.counters.blocks_committed.add(positions.len() as u64);
        log.positions.extend(positions);
        if head {
            self.move_head(&mut log, newest.id);
        }
        self.counters
            .commit_ns
            .add(start.elapsed().as_nanos() as u64);
        self.freeze_if_large(&mut log)
    }

    fn sync_log(&self, log: &LogWriter) -> Result<(), StateError> {
        self.counters.log_syncs.add(1);
        self.poison(log.log.sync())
    }

    /// Makes a committed block the head.
    pub(crate) fn set_head(self: &Arc<Self>, hash: &B256) -> Result<BlockId, StateError> {
        self.check_sound()?;
        let mut log = self.log.lock();
        let known = self.current.read().tree.by_hash(hash).cloned();
        let layer = match known {
            Some(layer) => layer,
            None => self.rewind_to(&mut log, hash)?,
        };
        if !self.ensure_logged(&mut log, hash)? {
            return Err(StateError::UnknownBlock(*hash));
        }
        self.poison(log.log.append(KIND_HEAD, &[hash.as_slice()]))?;
        self.sync_log(&log)?;
        self.move_head(&mut log, layer.id);
        self.freeze_if_large(&mut log)?;
        Ok(layer.block)
    }

    /// Makes a layer the head, in memory. The log must say so already.
    pub(crate) fn move_head(&self, log: &mut LogWriter, to: LayerId) {
        let mut current = self.current.write();
        let tree = &mut current.tree;
        let from = tree.head().id;
        tree.set_head(to);
        let head = tree.head();
        let hash = head.block.hash;
        if head.parent == from
            && let Some(position) = log.positions.get(&hash).copied()
        {
            // A block that was brought back takes the place of those above it.
            log.head_chain.split_off(&head.block.number);
            log.head_chain
                .insert(head.block.number, BlockEntry { hash, position });
            return;
        }
        log.head_chain.clear();
        for id in tree.blocks_above_root(to) {
            if let Some(position) = log.positions.get(&id.hash).copied() {
                log.head_chain.insert(
                    id.number,
                    BlockEntry {
                        hash: id.hash,
                        position,
                    },
                );
            }
        }
    }

    /// Brings a canonical block below the base back as a layer above it.
    pub(crate) fn rewind_to(
        self: &Arc<Self>,
        log: &mut LogWriter,
        hash: &B256,
    ) -> Result<Arc<Layer>, StateError> {
        let base = self.current.read().tree.root().clone();
        let unknown = || StateError::UnknownBlock(*hash);
        // Newest first, so that it is found soon where it is near.
        let mut way = Vec::new();
        let mut number = base.block.number;
        let target = loop {
            let entry = log.blocks.get(number)?.ok_or_else(unknown)?;
            let record = log.record_at(entry.position)?;
            if record.meta.id.hash == *hash {
                break record.meta;
            }
            if number == self.genesis.number {
                return Err(unknown());
            }
            way.push(record.reverts);
            number -= 1;
        };
        let record = RewindRecord {
            target,
            base: base.block.hash,
            changes: fold(way),
        };
        let layer = self.add_rewound(&base, &record)?;
        log.rewound.insert(*hash, record);
        Ok(layer)
    }

    /// Adds the layer of a rewind record, whose base is `base`.
    pub(crate) fn add_rewound(
        self: &Arc<Self>,
        base: &Arc<Layer>,
        record: &RewindRecord,
    ) -> Result<Arc<Layer>, StateError> {
        let way_back = self.view_of(base)?.reverts_of(&record.changes)?;
        let changes = record.changes.clone();
        Ok(self
            .current
            .write()
            .add(base, &record.target, changes, way_back))
    }

    /// Whether a block is in the log; one brought back from below the base is put there now that
    /// it matters.
    fn ensure_logged(&self, log: &mut LogWriter, hash: &B256) -> Result<bool, StateError> {
        if let Some(record) = log.rewound.remove(hash) {
            let payload = record.encode();
            self.poison(log.log.append(KIND_REWIND, &[&payload]))?;
            if let Some(entry) = log.blocks.get(record.target.id.number)? {
                log.positions.insert(*hash, entry.position);
            }
        }
        Ok(log.positions.contains_key(hash))
    }
}

/// Makes the block index of the chain that ends in `head` anew, from the whole log.
pub(crate) fn rebuild_block_index(log: &LogWriter, head: BlockId) -> Result<(), StateError> {
    let mut known: HashMap<B256, (BlockId, B256, LogPosition)> = HashMap::new();
    for record in log.log.scan(LogPosition::START) {
        let (position, record) = record?;
        if record.kind == KIND_BLOCK {
            let meta = BlockRecord::decode_meta(&record.payload).map_err(|source| {
                StateError::Damaged {
                    what: describe(position),
                    source,
                }
            })?;
            known.insert(meta.id.hash, (meta.id, meta.parent, position));
        }
    }
    let mut chain = Vec::new();
    let mut next = head.hash;
    while let Some((id, parent, position)) = known.get(&next) {
        chain.push((id, *position));
        next = *parent;
    }
    let lowest = chain.last().map_or(0, |(id, _)| id.number);
    log.blocks.truncate(lowest)?;
    for (id, position) in chain.into_iter().rev() {
        log.blocks.set(
            id.number,
            BlockEntry {
                hash: id.hash,
                position,
            },
        )?;
    }
    Ok(())
}

/// A record's place, for messages.
pub(crate) fn describe(position: LogPosition) -> String {
    let LogPosition { file, offset } = position;
    format!("the record at byte {offset} of block log file {file}")
}
