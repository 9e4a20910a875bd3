//! What a repair finds and does.

use crate::options::Options;
use cambium_disk::{Disk, SalvageDisk};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_snapshot::{FoundIndex, StateError};
use cambium_store::StoreError;
use std::{ops::RangeInclusive, sync::Arc};

/// How far a repair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairProgress {
    /// What is being looked through.
    pub step: &'static str,
    /// How much of it is done.
    pub done: u64,
    /// All of it; 0 if that is not known.
    pub of: u64,
}

/// One thing that was wrong, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairFinding {
    /// What is wrong, and with which file.
    pub damage: String,
    /// What was done about it, or is to be done.
    pub remedy: String,
    /// Whether all of it was brought back.
    pub is_mended: bool,
}

/// What a repair found and did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Whether it was only tried.
    pub is_trial: bool,
    /// What was wrong.
    pub findings: Vec<RepairFinding>,
    /// The head of the database when it is opened afterwards.
    pub head: BlockId,
    /// What that opening had to tell.
    pub notes: Vec<String>,
    /// Blocks that are lost, if later ones are there, of the head's branch or of another: these are
    /// used once the missing ones have been imported.
    pub missing: Option<RangeInclusive<BlockNumber>>,
    /// Whether blocks above the head, or of another branch, may have been lost: import goes on from
    /// the head, or from the first of the missing ones.
    pub lost_blocks: bool,
    /// Blocks below the head whose records are lost. The state does not need them; views before
    /// them, and their bodies, can't be had.
    pub lost_history: Vec<RangeInclusive<BlockNumber>>,
    /// Files with copies of what was cut off or overwritten.
    pub copies: Vec<String>,
}

impl RepairReport {
    /// Whether nothing was wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether all that was wrong was brought back.
    pub fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.is_mended)
    }
}

/// A repair under way.
pub(super) struct Repair<'a> {
    /// Reads what it can, and gives zeros for the rest.
    pub(super) disk: Arc<dyn Disk>,
    /// What it reads from: tells what could not be read.
    pub(super) salvage: Arc<SalvageDisk>,
    pub(super) options: Options,
    pub(super) progress: &'a mut dyn FnMut(RepairProgress),
    pub(super) report: RepairReport,
}

impl Repair<'_> {
    pub(super) fn report_step(&mut self, step: &'static str, done: u64, of: u64) {
        (self.progress)(RepairProgress { step, done, of });
    }

    pub(super) fn add_finding(
        &mut self,
        damage: impl ToString,
        remedy: impl ToString,
        is_mended: bool,
    ) {
        self.report.findings.push(RepairFinding {
            damage: damage.to_string(),
            remedy: remedy.to_string(),
            is_mended,
        });
    }

    /// A name that no file has, for a copy of a part of the file `name`.
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

/// The index, whole, shard by shard, wherever it is.
pub(super) fn whole(
    index: &FoundIndex,
    shard: usize,
) -> Result<(Arc<cambium_trie::PartialTrie>, u64), StateError> {
    match index {
        FoundIndex::Index(index) => Ok((index.whole(shard)?, index.pages_of(shard))),
        FoundIndex::TooLarge(index) => {
            let (trie, pages) = index.whole(shard)?;
            Ok((Arc::new(trie), pages))
        }
    }
}
