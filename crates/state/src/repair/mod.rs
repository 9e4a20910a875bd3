//! Repairing a database: each damaged file is restored from the others.
//!
//! | damaged | restored from |
//! |---|---|
//! | manifest | the copy in a checkpoint |
//! | block log | nothing: whole records before and behind stay, the others have to be imported again |
//! | checkpoint | the one before it; or the pages, and the lists in other checkpoints |
//! | block index | the log |
//! | codes | readable codes, and the log |
//! | pages | the changes in the log, and older pages, if these have all leaves |
//!
//! Where old blocks have left the log, it can restore less.
//!
//! Bytes that the device can't read, even after retries, count as damaged. Everything that is cut
//! off or overwritten is copied first, to a file with `.damaged` in its name. A *trial* does the
//! whole repair in memory above the disk, up to opening the database, and changes nothing.

mod report;
mod log;
mod pages;
mod index;

pub use report::{RepairFinding, RepairProgress, RepairReport};

use crate::{
    db::{
        handle::Db,
        held,
        open::{genesis_of, without_lost},
        unfinished,
    },
    form,
    log::records::KIND_BLOCK,
    options::{LeafKind, Options},
};
use cambium_disk::{Disk, SalvageDisk, TrialDisk};
use cambium_snapshot::{CheckReport, StateError};
use cambium_store::{BlockLog, LogDamageKind, LogFindings, LogPosition};
use report::Repair;
use std::sync::Arc;

/// Checks the whole database on `disk`, which must not be open, and restores damaged files from the
/// others. If `is_trial`, only reports what it would do. `progress` is called for each step.
///
/// # Errors
///
/// If the database can't be opened even so, the error names what has to be imported again. A copy that was not
/// finished is not repaired: [`StateError::UnfinishedBackup`].
pub fn repair(
    disk: &Arc<dyn Disk>,
    options: Options,
    is_trial: bool,
    progress: &mut dyn FnMut(RepairProgress),
) -> Result<RepairReport, StateError> {
    options.check()?;
    unfinished::refuse(&**disk)?;
    let salvage = Arc::new(SalvageDisk::new(disk.clone()));
    let (worked_on, opened): (Arc<dyn Disk>, Arc<dyn Disk>) = match is_trial {
        true => {
            let trial = Arc::new(TrialDisk::new(salvage.clone(), options.memory_bytes));
            (trial.clone(), trial)
        }
        false => (salvage.clone(), disk.clone()),
    };
    let lock = held::lock(&*worked_on)?;
    let mut repair = Repair {
        disk: worked_on,
        salvage: salvage.clone(),
        options,
        progress,
        report: RepairReport {
            is_trial,
            ..RepairReport::default()
        },
    };
    repair.run()?;
    let mut report = repair.report;
    drop(lock);
    let (db, recovery) = Db::open(opened, options)?;
    report.head = db.head();
    report.notes = recovery.notes;
    // The records of a head far below may be among the lost ones.
    report.lost_blocks |= recovery.skipped_records > 0;
    report.missing = db.inner.missing_blocks();
    report.has_entries = db.inner.options.leaves == LeafKind::Entries;
    report.lost_blocks |= report.missing.is_some();
    let mut lost = lost_reads(&db);
    let has_lost = !lost.is_empty() || !salvage.unreadable().is_empty();
    if has_lost && !is_trial {
        // As a trial names it: what the device can't read counts as damaged. The database is repaired, so where this
        // is not possible, as the device names it.
        let _ = db.close();
        if let Ok((db, _)) = Db::open(salvage, options) {
            lost = lost_reads(&db);
        }
    }
    report.findings.extend(lost);
    Ok(report)
}

/// Finds what an opened database can't read in any way, although all of its files are repaired.
fn lost_reads(db: &Db) -> Vec<RepairFinding> {
    let mut findings = Vec::new();
    let root = db.view().and_then(|view| db.inner.layered_root_anew(&view));
    if let Err(error) = root
        && error.is_lost_record()
    {
        findings.push(RepairFinding {
            damage: format!(
                "no block can be added: its root needs a record that is lost ({error})"
            ),
            remedy: "in no other file: restore the directory from a backup, or make it anew"
                .to_owned(),
            is_repaired: false,
        });
    }
    let mut values = CheckReport::default();
    db.check_values(&mut values);
    let count = values.damage.len() as u64 + values.more_damage;
    findings.extend(values.damage.first().map(|first| {
        let damage = match count - 1 {
            0 => first.clone(),
            more => format!("{first}; and {more} more values can't be read"),
        };
        let remedy = "in no other file: put the value again, or restore `values` from a backup";
        RepairFinding {
            damage,
            remedy: remedy.to_owned(),
            is_repaired: false,
        }
    }));
    findings
}

impl Repair<'_> {
    /// Repairs the files in the order in which they depend on each other.
    fn run(&mut self) -> Result<(), StateError> {
        let manifest = self.manifest()?;
        self.options = form::of(&manifest, self.options)?;
        form::kept_storage(&manifest, &self.options)?;
        let genesis = genesis_of(&manifest)?;
        let LogFindings {
            damage: damaged,
            gaps,
        } = self.log(manifest.salt())?;
        let lacks_end = self.unreadable_ends(&damaged)?;
        let read = self.state(&manifest)?;
        let (log, _) = BlockLog::open(
            self.disk.clone(),
            self.options.files.log(manifest.salt()),
            read.meta.log.replay,
        )?;
        log.set_start(read.meta.log.kept.position);
        let index = self.block_index(&log, genesis, &read.meta)?;
        let replay = read.meta.log.replay;
        let lacks_blocks = damaged.iter().any(|damage| {
            let (file, offset) = (damage.position.file, damage.end);
            match damage.kind {
                LogDamageKind::Range => LogPosition { file, offset } > replay,
                LogDamageKind::File | LogDamageKind::Newest => file >= replay.file,
                LogDamageKind::Header | LogDamageKind::End => false,
            }
        });
        let base = read.meta.state.block;
        let (_, lower_head) = without_lost(&log, &index, base, read.meta.log.clone())?;
        let is_lower = lower_head.is_some();
        self.report.lost_blocks =
            lacks_end || lacks_blocks || is_lower || is_end_lost(&log, &gaps)?;
        self.lost_history(&index, genesis, &read.meta, &gaps)?;
        let (codes, missing_codes) = self.codes(&log, manifest.salt(), read.meta.codes_len)?;
        let state = pages::State {
            manifest: &manifest,
            log: &log,
            blocks: &index,
            genesis,
            codes,
            missing_codes,
            read,
        };
        self.segments(state)
    }
}

/// Whether the blocks that may have been in the newest gap are possibly lost: no block follows to show that they were
/// added again.
fn is_end_lost(log: &BlockLog, gaps: &[(LogPosition, u32)]) -> Result<bool, StateError> {
    // Older files may be there still, and their blocks are not kept.
    let newest = gaps.iter().max().filter(|(at, _)| *at >= log.start());
    let Some((newest, _)) = newest else {
        return Ok(false);
    };
    for record in log.scan_heads(*newest, 0) {
        if record?.1.kind == KIND_BLOCK {
            return Ok(false);
        }
    }
    Ok(true)
}
