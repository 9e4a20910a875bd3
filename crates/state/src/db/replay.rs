//! Replaying the log after a checkpoint: blocks become layers, and the head moves as it did.
//!
//! A record that can't be decoded, or that makes a lost block the head, is skipped and reported. A
//! block whose parent's record was damaged and removed becomes an orphan: see
//! [`blocks`](crate::log::blocks). No record prevents a database from opening at its last good
//! block.
//!
//! Branches beside a finalized block are freed only at the end, by the finality at that point: a later record may undo
//! it, and return to a branch that is not an ancestor of this replay's base, though it was one of the writer's.

use crate::{
    db::recovery::{Recovery, Unsettled},
    engine::parts::Engine,
    log::{
        blocks::RecentBlock,
        finality::{CanonicalRecord, KIND_CANONICAL},
        records::{BlockRecord, KIND_BLOCK, KIND_HEAD, decode_new_head, describe},
        references::{KIND_BRANCH_REFERENCES, KIND_REFERENCES, References},
    },
};
use alloy_primitives::{B256, keccak256};
use cambium_primitives::{BlockId, Changes};
use cambium_snapshot::StateError;
use cambium_store::{LogPosition, Record, StoreError};
use std::{collections::HashSet, sync::Arc};

/// Most notes about skipped records. Further ones are counted in one note.
const NOTES_MAX: usize = 20;

/// A replay of the log.
pub(crate) struct Replay<'a> {
    inner: &'a Arc<Engine>,
    unsettled: Unsettled,
    recovery: Recovery,
    /// Number of skipped records.
    skipped: usize,
    /// Blocks that were the head in the log, and whose state can't be restored.
    unreachable: HashSet<B256>,
    /// Whether a reader continues from its position. It has freed branches meanwhile, so an unknown block is not
    /// damage: reopening finds it.
    goes_on: bool,
}

impl<'a> Replay<'a> {
    /// A replay that has read nothing yet. Its report begins with `notes`.
    pub(crate) fn new(inner: &'a Arc<Engine>, unsettled: Unsettled, notes: Vec<String>) -> Self {
        Self {
            inner,
            unsettled,
            recovery: Recovery {
                notes,
                ..Recovery::default()
            },
            skipped: 0,
            unreachable: HashSet::new(),
            goes_on: false,
        }
    }

    /// A replay of the records that a reader has not applied yet.
    pub(crate) fn going_on(inner: &'a Arc<Engine>) -> Self {
        Self {
            goes_on: true,
            ..Self::new(inner, Unsettled::default(), Vec::new())
        }
    }

    /// Makes `head`, which the checkpoint names, the head. Replay continues from `from`.
    pub(crate) fn start(&mut self, head: BlockId, from: LogPosition) -> Result<(), StateError> {
        self.follow(head, from).map(|_| ())
    }

    /// Replays the records from `from` on into layers.
    pub(crate) fn run(&mut self, from: LogPosition) -> Result<(), StateError> {
        let LogPosition { file, offset } = from;
        let _span = tracing::debug_span!("replay", file, offset).entered();
        for record in self.inner.journal.log.scan(from) {
            let (position, record) = record?;
            match record.kind {
                KIND_BLOCK => self.block(position, &record)?,
                KIND_HEAD => match decode_new_head(&record.payload) {
                    Ok(head) => {
                        self.head(position, head)?;
                    }
                    Err(error) => self.skip(position, &error.to_string()),
                },
                KIND_CANONICAL => match CanonicalRecord::decode(&record.payload) {
                    Ok(record) => self.canonical(position, record)?,
                    Err(error) => self.skip(position, &error.to_string()),
                },
                KIND_REFERENCES => match References::decode(&record.payload) {
                    Ok(references) => self.references(references),
                    Err(error) => self.skip(position, &error.to_string()),
                },
                KIND_BRANCH_REFERENCES => {}
                kind => self.skip(position, &format!("it is of the unknown kind {kind}")),
            }
        }
        *self.inner.journal.replaying.lock() = None;
        // A repair may have taken the head back.
        self.inner.journal.forget_uncanonical()?;
        self.inner.free_branches()
    }

    /// Settles the database, and reports what was replayed and skipped.
    pub(crate) fn finish(mut self) -> Result<Recovery, StateError> {
        self.inner.settle(&mut self.unsettled)?;
        self.recovery.skipped_records = self.skipped;
        if self.skipped > NOTES_MAX {
            let more = self.skipped - NOTES_MAX;
            let what = format!("{more} more records of the block log were skipped");
            self.recovery.notes.push(what);
        }
        if let Some(missing) = self.inner.missing_blocks() {
            self.recovery.notes.push(format!(
                "{} blocks of the log wait for a missing ancestor: import the blocks from {} on \
                 to use them again",
                self.inner.journal.blocks.orphans(),
                missing.start()
            ));
        }
        Ok(self.recovery)
    }

    /// Reports a record that can't be applied.
    fn skip(&mut self, position: LogPosition, why: &str) {
        self.skipped += 1;
        if self.skipped <= NOTES_MAX {
            let what = format!("{} was skipped: {why}", describe(position));
            self.recovery.notes.push(what);
        }
    }

    /// Applies the record of a block.
    fn block(&mut self, position: LogPosition, record: &Record) -> Result<(), StateError> {
        let inner = self.inner;
        let block = match BlockRecord::decode(&record.payload) {
            Ok(block) => block,
            Err(error) => {
                self.skip(position, &error.to_string());
                return Ok(());
            }
        };
        let (id, parent) = (block.meta.id, block.meta.parent);
        let known = RecentBlock {
            id,
            parent,
            position,
        };
        if inner.find(&id.hash).is_some_and(|other| other != id) || id.hash == parent {
            self.skip(
                position,
                &format!("block {id} has the hash of another block"),
            );
            return Ok(());
        }
        for (hash, code) in block.codes {
            match keccak256(&code) == hash {
                true => self.unsettled.codes.push((hash, code)),
                false => self.skip(position, &format!("its code {hash} has another hash")),
            }
        }
        self.recovery.replayed_blocks += 1;
        if inner.journal.blocks.position_of(id)?.is_none() {
            if !inner.journal.blocks.is_parent_known(id.number, &parent)? {
                self.refuse_unknown(position)?;
                self.keep_values(id, &block.changes, &block.reverts);
                inner.journal.blocks.insert_orphan(known);
                return Ok(());
            }
            inner.journal.blocks.insert(known);
            let mut current = inner.layers.current.write();
            // A block on a branch that is not in memory is restored with its branch when needed.
            let below = current.tree.by_hash(&parent).cloned();
            if let Some(below) = below.filter(|below| below.block.number + 1 == id.number) {
                current.add(&below, &block.meta, block.changes, block.reverts);
            } else {
                drop(current);
                self.keep_values(id, &block.changes, &block.reverts);
            }
        }
        match block.head {
            true if self.unreachable.contains(&parent) => {
                self.unreachable.insert(id.hash);
                self.skip(
                    position,
                    &format!("the state of block {id} can't be restored"),
                );
                Ok(())
            }
            true => self.follow(id, position).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Keeps references for the first root, if their block has a layer. A reader computes no root.
    fn references(&self, references: References) {
        let inner = self.inner;
        let hash = references.block.hash;
        let current = inner.layers.current.read();
        let layer = current.tree.by_hash(&hash);
        if let Some(layer) = layer.filter(|layer| layer.block == references.block)
            && !inner.journal.is_read_only()
        {
            layer.set_leaves_since_references(0);
            inner.merging.references.lock().insert(hash, references);
        }
    }

    /// Keeps the values of a block that has no layer, for as long as it is kept.
    fn keep_values(&self, block: BlockId, changes: &Changes, reverts: &Changes) {
        if let Some(values) = &self.inner.store.values {
            values.keep_for(changes, reverts, block.number);
        }
    }

    /// Applies a record that moves the head and says which blocks are safe and finalized.
    fn canonical(
        &mut self,
        position: LogPosition,
        record: CanonicalRecord,
    ) -> Result<(), StateError> {
        if self.head(position, record.head)? {
            *self.inner.journal.finality.lock() = record.finality;
        }
        Ok(())
    }

    /// Fails if a reader that goes on has to open again to know a block.
    fn refuse_unknown(&self, position: LogPosition) -> Result<(), StateError> {
        match self.goes_on {
            true => Err(StoreError::ReaderBehind {
                what: describe(position),
            }
            .into()),
            false => Ok(()),
        }
    }

    /// Applies a record that moves the head. Returns false if its block, or the state of it, is not there.
    fn head(&mut self, position: LogPosition, head: BlockId) -> Result<bool, StateError> {
        if self.inner.journal.blocks.position_of(head)?.is_none() {
            self.refuse_unknown(position)?;
            self.skip(
                position,
                &format!("it makes block {head} the head, which is not in the log"),
            );
            return Ok(false);
        }
        self.follow(head, position)
    }

    /// Makes a block the head, as the record at `position` says. Returns false if its state can't be restored, since a
    /// record on the way was lost: the head stays the newest one that is there.
    fn follow(&mut self, head: BlockId, position: LogPosition) -> Result<bool, StateError> {
        let inner = self.inner;
        let followed = match inner.layer_of(head) {
            Ok(_) => inner.follow_head(head),
            // Only the writer merges on the way; a reader can't.
            Err(error @ StateError::TooFar { .. }) if inner.journal.is_read_only() => Err(error),
            Err(StateError::TooFar { .. }) => {
                // Merges on the way write checkpoints, whose replay must begin at this record.
                *inner.journal.replaying.lock() = Some(position);
                inner.settle(&mut self.unsettled)?;
                inner.descend_to(head)
            }
            Err(error) => Err(error),
        };
        match followed {
            Err(error) if error.is_lost_record() => {
                *inner.journal.target_head.lock() = None;
                self.unreachable.insert(head.hash);
                self.skip(
                    position,
                    &format!(
                        "it makes block {head} the head, whose state can't be restored: {error}"
                    ),
                );
                Ok(false)
            }
            followed => followed.map(|()| true),
        }
    }
}
