//! Opening a database: the newest checkpoint, and a short replay of the log.
//!
//! ```text
//!   look     checkpoint, segments, codes, end of the log, block index  at most an index is rebuilt
//!   replay   the records of the log after the checkpoint become layers    replay.rs
//!   settle   remains of crashes and damage are set aside, cut off, removed
//! ```
//!
//! An opening that fails has deleted nothing that is needed, and can be tried again. It may have
//! added a checkpoint, if the index was rebuilt or is too large for the memory; begun to rebuild a
//! damaged block index; or settled and merged already, if the log moves the head very far down.
//! Only what is certainly damaged is skipped; an error that may be transient ends the opening.
//!
//! Replay does no trie work. The log has the changes and reverts of each block, so the layers are
//! there as soon as the records are read. The tries are updated when the next root is computed.

use super::recovery::{Recovery, Unsettled};
use crate::engine::parts::Engine;
use crate::{
    db::{
        assemble::{Parts, pages},
        handle::Db,
        held,
        leftovers::refuse_lost_checkpoints,
        replay::Replay,
        unfinished,
    },
    form,
    layered::intervals::Intervals,
    log::{
        access::{Access, ReadAccess},
        block_index::{MayRebuild, complete_index, note_of},
        blocks::Blocks,
        log_state::{LayeredRoots, LogState, Meta, ReadCheckpoint},
    },
    options::{LeafKind, Options},
    values::LongValues,
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_primitives::{BlockId, DecodeError};
use cambium_snapshot::{
    Counters, Index, LoadedIndex, PartCache, StateError, StoredIndex, checkpoint, pool, rebuild,
};
use cambium_store::{
    BlockIndex, BlockLog, Checkpoint, Codes, DataDirLock, LogOptions, LogPosition, Manifest,
    PageAddr, Segments, StoreError, load_latest_checkpoint,
};
use std::{collections::HashMap, sync::Arc};

/// Name of the manifest's property that holds the hash of the genesis block.
pub(crate) const GENESIS_HASH: &str = "genesis_hash";
/// Name of the manifest's property that holds the number of the genesis block.
pub(crate) const GENESIS_NUMBER: &str = "genesis_number";

/// The process that opens a database.
pub(crate) enum Opener {
    Writer(DataDirLock),
    /// A reader, with the disk that a writer may have open. The reader works on a disk above that
    /// one, which keeps changes in memory.
    Reader(Arc<dyn Disk>, MayRebuild),
}

impl Opener {
    /// Takes the locks of a database that is opened at checkpoint `sequence`. For a reader, also
    /// returns whether it may rebuild the index.
    fn at(self, sequence: u64) -> Result<(Access, Option<MayRebuild>), StateError> {
        Ok(match self {
            Self::Writer(lock) => (Access::Writer(lock), None),
            Self::Reader(disk, may_rebuild) => {
                let reading = ReadAccess::at(disk, sequence)?;
                (Access::Reader(reading), Some(may_rebuild))
            }
        })
    }
}

impl Db {
    /// Whether `disk` holds a database, whole or damaged.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the directory cannot be read, and [`StateError::UnfinishedBackup`] if it is an
    /// unfinished copy, where no other database may be created.
    pub fn exists(disk: &dyn Disk) -> Result<bool, StateError> {
        unfinished::refuse(disk)?;
        Ok(Manifest::exists(disk)? || Checkpoint::exists(disk)?)
    }

    /// Fails with [`StoreError::NotADatabase`] if there is none, and with [`StateError::UnfinishedBackup`] if it is a
    /// copy that was not finished.
    pub(crate) fn check_exists(disk: &dyn Disk) -> Result<(), StateError> {
        match Self::exists(disk)? {
            true => Ok(()),
            false => {
                let dir = disk.display_path("");
                Err(StoreError::NotADatabase { dir }.into())
            }
        }
    }

    /// Opens the database on `disk` for writing, at its newest committed block.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotADatabase`] if there is none, [`StateError::UnfinishedBackup`] if it is a copy that was not
    /// finished, and [`StoreError::InUse`] if it is open for writing already. Any other error names the file and what
    /// to do about it. Nothing that is needed was deleted, and opening can be tried again; an index that was rebuilt is
    /// kept, as a checkpoint.
    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, Recovery), StateError> {
        options.check()?;
        // Before anything is locked: the lock is a file.
        Self::check_exists(&*disk)?;
        let lock = held::lock(&*disk)?;
        Self::open_as(disk, options, Opener::Writer(lock))
    }

    /// Opens the database on `disk` for the given opener.
    pub(crate) fn open_as(
        disk: Arc<dyn Disk>,
        options: Options,
        opener: Opener,
    ) -> Result<(Self, Recovery), StateError> {
        let _span = tracing::debug_span!("open", disk = disk.display_path("")).entered();
        pool::start();
        let manifest = Manifest::open(&*disk)?;
        let options = form::of(&manifest, options)?;
        let kept_storage = form::kept_storage(&manifest, &options)?;
        let genesis = genesis_of(&manifest)?;
        let blocks = options.merge_interval_blocks;
        let intervals = blocks.and_then(|blocks| Intervals::new(genesis.number, blocks));
        if let Some(intervals) = intervals {
            intervals.check_memory(options.memory_bytes)?;
        }
        let salt = manifest.salt();
        let counters = Arc::new(Counters::default());
        let parts = Arc::new(PartCache::new(
            options.index_bytes_max(),
            options.commitment,
            counters.clone(),
        ));
        let mut notes = Vec::new();
        let may_make_index = !matches!(opener, Opener::Reader(_, MayRebuild(false)));
        let found = find_state(
            &disk,
            &manifest,
            &options,
            &parts,
            may_make_index,
            &mut notes,
        )?;
        let (aside, is_rebuilt) = (found.aside, found.is_rebuilt);
        let ReadCheckpoint {
            meta,
            segments: table,
            retired,
            index: found_index,
            sequence,
        } = found.read;
        let (access, may_rebuild) = opener.at(sequence)?;
        let sizes = options.files.segments();
        let opened = Segments::open(disk.clone(), sizes, salt, Some(&table), &retired);
        let (segments, damage) = opened?;
        if let Access::Reader(reading) = &access {
            segments.allow_truncation();
            if !is_rebuilt {
                reading.check_is_usable()?;
            }
        }
        notes.extend(damage.iter().map(ToString::to_string));
        let (codes, found) = Codes::open(disk.clone(), salt, meta.codes_len)?;
        notes.extend(found.damage.iter().map(ToString::to_string));
        let sizes = options.files.log(salt);
        let (block_log, torn) = open_log(&disk, sizes, &meta.log)?;
        let kept = meta.log.kept;
        let (values, damage) = open_values(&disk, &options, salt, &meta.log)?;
        if let (Access::Reader(_), Some(values)) = (&access, &values) {
            values.segments.allow_truncation();
        }
        notes.extend(damage);
        // A reader may see a record that is being written.
        if may_rebuild.is_none() {
            notes.extend(torn);
        }
        let base = meta.state.block;
        let (block_index, found) = BlockIndex::open(disk.clone(), base.number + 1)?;
        let was_rebuilt = complete_index(&block_index, &block_log, genesis, &meta, may_rebuild)?;
        notes.extend(note_of(found, was_rebuilt, base));
        let named = Named { table, retired };
        let pages = pages(segments, &options, &counters);
        let mut made = None;
        let index = match found_index {
            LoadedIndex::Index(index) => index,
            LoadedIndex::TooLarge(found) => {
                let index = whole_index(&disk, &parts, &manifest, &meta, &found, &named)?;
                made = Some(WrittenCheckpoint {
                    disk: disk.clone(),
                    sequence: index.files().sequence(),
                    is_kept: false,
                });
                index
            }
            LoadedIndex::InSegments(index) => {
                let (index, damage) = index.open(&pages, &parts)?;
                notes.extend(damage.map(|damage| format!("{damage}; the index stays on disk")));
                index
            }
        };
        let layered = layered_of(intervals, meta.log.layered.clone(), sequence)?;
        let Meta { state, log, .. } = meta;
        let (log_state, lost) = without_lost(&block_log, &block_index, state.block, log)?;
        notes.extend(lost);
        let blocks = Blocks::new(block_index, genesis.number, kept, base, log_state.recent)?;
        let inner = Parts {
            options,
            kept_storage,
            disk,
            access,
            manifest,
            genesis,
            pages,
            counters,
            parts,
            codes,
            values,
            log: block_log,
            blocks,
            retired: named.retired,
            state,
            kept,
            index,
            layered,
        }
        .assemble()?;
        // Dropped before the engine and its lock: whoever opens next must not find the checkpoint while it is removed.
        let mut written = made;
        *inner.journal.finality.lock() = log_state.finality;
        let start = (log_state.head, log_state.replay);
        let recovery = replay_from(&inner, sequence, start, aside, notes)?;
        inner.check_upper_memory()?;
        if was_rebuilt && !inner.journal.is_read_only() {
            // Without a sync the next opening would rebuild it again.
            inner.journal.blocks.index().sync()?;
        }
        if let Some(written) = &mut written {
            written.is_kept = true;
        }
        Ok((Self { inner }, recovery))
    }
}

/// The pages that a checkpoint names besides those in its index.
struct Named {
    /// The encoded segment table.
    table: Vec<u8>,
    retired: Vec<PageAddr>,
}

/// A checkpoint that an opening has written. If the opening fails, the file is removed: what it was made of is still there.
struct WrittenCheckpoint {
    disk: Arc<dyn Disk>,
    sequence: u64,
    is_kept: bool,
}

impl Drop for WrittenCheckpoint {
    fn drop(&mut self) {
        // What was replayed may have been merged, and that checkpoint may be all that is left besides.
        let newest = Checkpoint::newest(&*self.disk).ok().flatten();
        if self.is_kept || newest != Some(self.sequence) {
            return;
        }
        if let Err(error) = Checkpoint::remove(&*self.disk, self.sequence) {
            tracing::warn!("a checkpoint that is not needed stays: {error}");
        }
    }
}

/// Writes an index that exceeds its memory, and is spread over several checkpoints, again as a whole, and returns it.
fn whole_index(
    disk: &Arc<dyn Disk>,
    parts: &Arc<PartCache>,
    manifest: &Manifest,
    meta: &Meta,
    found: &StoredIndex,
    named: &Named,
) -> Result<Index, StateError> {
    let writer = checkpoint::copy_index(disk, parts, found)?;
    let table = named.table.clone();
    checkpoint::write_whole(writer, meta, table, manifest, &named.retired)
}

/// Opens the value segments of a database of entries, as its checkpoint lists them. The log must be
/// open: its records refer to values that were there before. Also returns notes about damage.
fn open_values(
    disk: &Arc<dyn Disk>,
    options: &Options,
    salt: u64,
    state: &LogState,
) -> Result<(Option<LongValues>, Vec<String>), StateError> {
    if options.leaves == LeafKind::Accounts {
        return Ok((None, Vec::new()));
    }
    let sizes = options.files.values();
    let (values, found) = LongValues::open(disk.clone(), salt, sizes, &state.values)?;
    let kept_from = state.kept.number.saturating_add(1);
    values.segments.check_kept(kept_from)?;
    values.segments.forget_lost();
    let notes = found.damage.iter().map(ToString::to_string).collect();
    Ok((Some(values), notes))
}

/// Opens the block log at the positions in a checkpoint. Returns a note if its end was torn.
fn open_log(
    disk: &Arc<dyn Disk>,
    sizes: LogOptions,
    state: &LogState,
) -> Result<(BlockLog, Option<String>), StateError> {
    let (log, found) = BlockLog::open(disk.clone(), sizes, state.replay)?;
    log.set_start(state.kept.position);
    let torn = found.torn_tail.map(|torn| {
        format!(
            "{}: {} bytes after byte {} were never acknowledged and have been dropped",
            torn.file, torn.bytes, torn.offset
        )
    });
    Ok((log, torn))
}

/// Replays the log after checkpoint `sequence`, which names the head `head` and the log position
/// `from`, and then settles the database.
fn replay_from(
    inner: &Arc<Engine>,
    sequence: u64,
    (head, from): (BlockId, LogPosition),
    aside: Vec<u64>,
    notes: Vec<String>,
) -> Result<Recovery, StateError> {
    let unsettled = Unsettled {
        aside,
        ..Unsettled::default()
    };
    let mut replay = Replay::new(inner, unsettled, notes);
    replay
        .start(head, from)
        .map_err(|error| no_head(sequence, error))?;
    replay.run(from)?;
    replay.finish()
}

/// Reports an unknown head as damage to the checkpoint that names it, since it is not the caller's
/// mistake.
fn no_head(sequence: u64, error: StateError) -> StateError {
    match error {
        StateError::UnknownBlock(_) | StateError::NoSuchBlock { .. } => StateError::Damaged {
            what: format!("section meta of checkpoint {sequence}"),
            source: DecodeError {
                what: "a head that is not in the log",
                offset: 0,
            },
        },
        error => error,
    }
}

/// Adapts a checkpoint's view of the log to records that a repair has removed. Removes recent blocks without a record;
/// the head becomes the newest block below the old one whose ancestors all have records. Returns a note if the head has
/// changed.
pub(crate) fn without_lost(
    log: &BlockLog,
    index: &BlockIndex,
    base: BlockId,
    mut log_state: LogState,
) -> Result<(LogState, Option<String>), StateError> {
    // Unreadable records are reported when they are needed.
    let is_there = |position| log.has_record(position).unwrap_or(true);
    let mut recent = HashMap::new();
    for block in &log_state.recent {
        let is_there = is_there(block.position);
        recent.insert(block.id.hash, (*block, is_there));
    }
    let on_base = |id: BlockId| -> Result<bool, StateError> {
        let is_above = id.number > base.number;
        let entry = if is_above {
            None
        } else {
            index.get(id.number)?
        };
        Ok(entry.is_some_and(|entry| entry.hash == id.hash))
    };
    let (mut next, mut head) = (log_state.head, log_state.head);
    while !on_base(next)? {
        // An unknown head is reported when its layer is looked up.
        let Some((block, is_there)) = recent.get(&next.hash) else {
            return Ok((log_state, None));
        };
        next = BlockId::new(next.number.saturating_sub(1), block.parent);
        if !is_there {
            head = next;
        }
    }
    // Below the base, the head is reached by the reverts of these records.
    for number in next.number + 1..=base.number {
        if let Some(entry) = index.get(number)?
            && !is_there(entry.position)
        {
            head = base;
        }
    }
    let note = (head != log_state.head).then(|| {
        format!(
            "the head is block {head} instead of block {}: records before the latter were damaged \
             and removed from the block log",
            log_state.head
        )
    });
    log_state.head = head;
    log_state.recent.retain(|block| {
        recent
            .get(&block.id.hash)
            .is_some_and(|(_, is_there)| *is_there)
    });
    Ok((log_state, note))
}

/// The checkpoint from which a database is opened.
pub(crate) struct FoundState {
    pub(crate) read: ReadCheckpoint,
    /// Damaged checkpoints, which are to be set aside.
    pub(crate) aside: Vec<u64>,
    /// Whether the checkpoint is a new one, with an index that was rebuilt from the pages.
    pub(crate) is_rebuilt: bool,
}

/// Advice if neither of the last two checkpoints can be read, nor the index be rebuilt.
const NO_CHECKPOINT: &str = "the checkpoint before it is damaged, too, and the pages alone don't \
     tell which of them count: `cambium db repair` restores what can be restored; otherwise restore \
     the directory from a backup, or import the chain into a new one";

/// Finds the newest whole checkpoint among the last two. If both are damaged and `may_rebuild`,
/// rebuilds the index from the pages and writes a new checkpoint.
pub(crate) fn find_state(
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    options: &Options,
    parts: &Arc<PartCache>,
    may_rebuild: bool,
    notes: &mut Vec<String>,
) -> Result<FoundState, StateError> {
    let found = load_latest_checkpoint(disk, StateError::is_damage, |found| {
        checkpoint::read(found, parts)
    })?;
    let aside: Vec<_> = found
        .damaged
        .iter()
        .map(|(sequence, _)| *sequence)
        .collect();
    if let Some(read) = found.loaded {
        for (_, damage) in &found.damaged {
            let older = "an older checkpoint is used, with more of the log to replay";
            let damage = damage.to_string();
            // Nothing is lost with it.
            let damage = damage.split("; ").next().unwrap_or(&damage);
            notes.push(format!("{damage}; {older}"));
        }
        return Ok(FoundState {
            read,
            aside,
            is_rebuilt: false,
        });
    }
    let Some((_, damage)) = found.damaged.into_iter().next() else {
        refuse_lost_checkpoints(disk)?;
        return Err(StateError::Unfinished);
    };
    if !may_rebuild {
        return Err(damage);
    }
    // The newest checkpoint lists the pages in use, even if a checkpoint below it is damaged.
    match rebuild(
        disk,
        manifest,
        &options.files.segments(),
        options.memory_bytes,
        parts,
    ) {
        Ok(read) => {
            notes.push(format!(
                "{damage}; the index was made again from the pages, and is in checkpoint {}",
                read.sequence
            ));
            Ok(FoundState {
                read,
                aside: Vec::new(),
                is_rebuilt: true,
            })
        }
        Err(error) if error.is_damage() => Err(damage.with_advice(NO_CHECKPOINT)),
        Err(error) => Err(error),
    }
}

/// The genesis block that a manifest names.
pub(crate) fn genesis_of(manifest: &Manifest) -> Result<BlockId, StateError> {
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

/// The roots in checkpoint `sequence`, which has them if and only if the chain has intervals.
fn layered_of(
    intervals: Option<Intervals>,
    roots: Option<LayeredRoots>,
    sequence: u64,
) -> Result<Option<(Intervals, LayeredRoots)>, StateError> {
    match (intervals, roots) {
        (None, None) => Ok(None),
        (Some(intervals), Some(roots)) => Ok(Some((intervals, roots))),
        _ => Err(StateError::Damaged {
            what: format!("checkpoint {sequence}"),
            source: DecodeError {
                what: "it is of another commitment than the manifest",
                offset: 0,
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockMeta, Loader};
    use alloy_primitives::Bytes;
    use cambium_disk::FaultyDisk;
    use cambium_store::CheckpointWriter;

    /// An empty database whose checkpoint is replaced by one with another head.
    fn with_head(head: BlockId) -> Arc<dyn Disk> {
        let disk: Arc<dyn Disk> = Arc::new(FaultyDisk::new(1));
        let loaded = Loader::new(disk.clone(), Options::default()).unwrap();
        let loaded = loaded.finish(&mut |_| {}).unwrap();
        let genesis = BlockMeta {
            id: BlockId::new(0, B256::with_last_byte(1)),
            parent: B256::ZERO,
            state_root: loaded.root(),
            body: Bytes::new(),
        };
        drop(loaded.create(genesis, vec![]).unwrap());
        let checkpoint = Checkpoint::open(&disk, 1).unwrap();
        let mut writer = CheckpointWriter::create(disk.clone(), None).unwrap();
        for name in checkpoint.sections() {
            let mut bytes = checkpoint.read_section(name).unwrap();
            if name == "meta" {
                bytes[112..120].copy_from_slice(&head.number.to_le_bytes());
                bytes[120..152].copy_from_slice(head.hash.as_slice());
            }
            writer.section(name).unwrap();
            writer.write(&bytes).unwrap();
        }
        writer.finish().unwrap();
        disk
    }

    #[test]
    fn a_checkpoint_with_a_head_that_nobody_knows_is_damage_and_is_named() {
        let open = |head| Db::open(with_head(head), Options::default());
        assert!(open(BlockId::new(0, B256::with_last_byte(1))).is_ok());
        for head in [
            BlockId::new(0, B256::ZERO),
            BlockId::new(9, B256::with_last_byte(1)),
            BlockId::new(9, B256::repeat_byte(9)),
            BlockId::new(u64::MAX, B256::repeat_byte(9)),
        ] {
            let error = open(head).map(|_| ()).unwrap_err();
            assert!(error.is_damage(), "{error}");
            assert!(error.to_string().contains("checkpoint 3"), "{error}");
        }
    }
}
