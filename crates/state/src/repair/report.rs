//! The report of a repair, and its progress.

use crate::options::Options;
use cambium_disk::{Disk, SalvageDisk};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::{LoadedIndex, StateError};
use cambium_store::{Segments, StoreError};
use std::{ops::RangeInclusive, sync::Arc};

/// Progress of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairProgress {
    /// Name of the step, such as the files being checked.
    pub step: &'static str,
    /// Amount that is done, in the step's own unit.
    pub done: u64,
    /// The whole amount; 0 if it is not known.
    pub of: u64,
}

/// One damaged thing, and what the repair did about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairFinding {
    /// Description of the damage, with the file.
    pub damage: String,
    /// Action taken, or advice to the user.
    pub remedy: String,
    /// Whether it was restored completely.
    pub is_repaired: bool,
}

/// Findings of a repair, and its actions, done or planned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Whether this was a trial, which changes nothing.
    pub is_trial: bool,
    /// All damage that was found.
    pub findings: Vec<RepairFinding>,
    /// The head of the database when it was opened after the repair.
    pub head: BlockId,
    /// Notes of that opening.
    pub notes: Vec<String>,
    /// Heights of lost blocks below blocks that are still there, on the head's branch or on
    /// another. The later blocks are used once the missing ones have been imported.
    pub missing: Option<RangeInclusive<BlockNumber>>,
    /// Whether blocks above the head or of other branches may be lost, also since an earlier repair: no block was
    /// added after what that cut out. Import continues from [`Self::import_from`].
    pub lost_blocks: bool,
    /// Blocks below the head whose records are lost. The state does not need them, but their bodies
    /// and the states before them are not available.
    pub lost_history: Vec<RangeInclusive<BlockNumber>>,
    /// Files with copies of bytes that were cut off or overwritten.
    pub copies: Vec<String>,
    /// Whether it is a database of entries, whose blocks are built without the headers of those before.
    pub has_entries: bool,
}

impl RepairReport {
    /// Whether no damage was found.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether all damage was restored, and no block is missing, also of an earlier repair.
    pub fn is_whole(&self) -> bool {
        let is_there = self.missing.is_none() && self.lost_history.is_empty() && !self.lost_blocks;
        is_there && self.findings.iter().all(|finding| finding.is_repaired)
    }

    /// The first block that has to be imported again, where `lost_blocks`.
    pub fn import_from(&self) -> Option<BlockNumber> {
        let next = match (&self.missing, self.is_head_lost()) {
            (Some(missing), false) => *missing.start(),
            (_, true) => self.head.number,
            (None, false) => self.head.number.saturating_add(1),
        };
        (self.lost_blocks || self.is_head_lost()).then_some(next)
    }

    /// Whether the record of the head is lost: a chain is imported from that block on then, and not from the next one.
    pub fn is_head_lost(&self) -> bool {
        let last = self.lost_history.last();
        !self.has_entries && last.is_some_and(|range| *range.end() == self.head.number)
    }
}

/// A repair under way.
pub(super) struct Repair<'a> {
    /// The disk being repaired. Unreadable bytes are read as zeros.
    pub(super) disk: Arc<dyn Disk>,
    /// The disk below, which records the bytes that could not be read.
    pub(super) salvage: Arc<SalvageDisk>,
    pub(super) options: Options,
    pub(super) progress: &'a mut dyn FnMut(RepairProgress),
    pub(super) report: RepairReport,
}

impl Repair<'_> {
    /// Reports progress.
    pub(super) fn report_step(&mut self, step: &'static str, done: u64, of: u64) {
        (self.progress)(RepairProgress { step, done, of });
    }

    /// Adds a finding to the report.
    pub(super) fn add_finding(
        &mut self,
        damage: impl ToString,
        remedy: impl ToString,
        is_repaired: bool,
    ) {
        self.report.findings.push(RepairFinding {
            damage: damage.to_string(),
            remedy: remedy.to_string(),
            is_repaired,
        });
    }

    /// A new name for a copy of a part of the file `name`.
    pub(super) fn copy_name(&mut self, name: &str) -> Result<String, StateError> {
        let mut number = 1;
        loop {
            let copy = match number {
                1 => format!("{name}.damaged"),
                _ => format!("{name}.{number}.damaged"),
            };
            if !self.disk.exists(&copy).map_err(StoreError::from)? {
                self.report.copies.push(self.disk.display_path(&copy));
                return Ok(copy);
            }
            number += 1;
        }
    }
}

/// A shard of the index, wholly in memory, and the number of its pages.
pub(super) fn whole(
    index: &LoadedIndex,
    shard: usize,
    segments: &Segments,
) -> Result<(Arc<cambium_trie::PartialTrie>, u64), StateError> {
    match index {
        LoadedIndex::Index(index) => Ok((index.whole(shard)?, index.pages_of(shard))),
        LoadedIndex::TooLarge(index) => {
            let (trie, pages) = index.whole(shard)?;
            Ok((Arc::new(trie), pages))
        }
        LoadedIndex::InSegments(index) => {
            let (trie, pages) = index.whole(shard, segments)?;
            Ok((Arc::new(trie), pages))
        }
    }
}
