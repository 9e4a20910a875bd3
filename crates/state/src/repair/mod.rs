//! Repairing a database: each file from what the others still tell.
//!
//! | damaged | brought back from |
//! |---|---|
//! | manifest | the copy in a checkpoint |
//! | block log | nothing: what is whole before and behind stays, the rest is to be imported again |
//! | checkpoint | the one before it; or the pages, and the lists in other checkpoints |
//! | block index | the log |
//! | codes | what can be read of them, and the log |
//! | pages | the changes that the log has, and older pages, if these tell all of them |
//!
//! Where old blocks have left the log, it tells less.
//!
//! What the device can't read, however often it is asked, counts as damaged. Whatever is cut off or
//! overwritten is copied first, to a file with `.damaged` in its name. A repair can be *tried*: all
//! is done in memory, above the disk, up to the opening of the database, and nothing is changed.

mod pages;

use crate::{
    block_index::{complete_index, note_of, remake_index},
    db::Db,
    log_state::{LogState, Meta, ReadCheckpoint},
    open::{FoundState, find_state, genesis_of, without_lost},
    options::Options,
    records::{BlockRecord, KIND_BLOCK},
};
use alloy_primitives::{B256, keccak256};
use cambium_disk::{BLOCK_BYTES, Disk, DiskError, SalvageDisk, TrialDisk};
use cambium_primitives::{AccountUpdate, BlockId, BlockNumber, KECCAK_EMPTY};
use cambium_snapshot::{
    Counters, FoundIndex, PartCache, StateError,
    checkpoint::{read_manifest, read_meta},
};
use cambium_store::{
    BlockIndex, BlockLog, Checkpoint, Codes, LogDamage, LogDamageKind, LogPosition, Manifest,
    Segments, StoreError, lock_data_dir, set_aside,
};
use std::{collections::HashSet, ops::RangeInclusive, sync::Arc};

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

/// Looks at all of the database on `disk`, which must not be open, and brings back what the rest
/// still tells; or, as a trial, only says what it would do.
///
/// # Errors
///
/// Where no start is possible, the error says what is to be imported again.
pub fn repair(
    disk: &Arc<dyn Disk>,
    options: Options,
    is_trial: bool,
    progress: &mut dyn FnMut(RepairProgress),
) -> Result<RepairReport, StateError> {
    options.check()?;
    let salvage = Arc::new(SalvageDisk::new(disk.clone()));
    let (worked_on, opened): (Arc<dyn Disk>, Arc<dyn Disk>) = match is_trial {
        true => {
            let trial = Arc::new(TrialDisk::new(salvage.clone(), options.memory_bytes));
            (trial.clone(), trial)
        }
        false => (salvage.clone(), disk.clone()),
    };
    let lock = lock_data_dir(&*worked_on)?;
    let mut repair = Repair {
        disk: worked_on,
        salvage,
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
    // The head may have been made one whose record, far below, is what was lost.
    report.lost_blocks |= recovery.passed_over > 0;
    report.missing = db.inner.missing_blocks();
    report.lost_blocks |= report.missing.is_some();
    Ok(report)
}

/// A repair under way.
struct Repair<'a> {
    /// Reads what it can, and gives zeros for the rest.
    disk: Arc<dyn Disk>,
    /// What it reads from: tells what could not be read.
    salvage: Arc<SalvageDisk>,
    options: Options,
    progress: &'a mut dyn FnMut(RepairProgress),
    report: RepairReport,
}

impl Repair<'_> {
    fn run(&mut self) -> Result<(), StateError> {
        let manifest = self.manifest()?;
        let genesis = genesis_of(&manifest)?;
        let damaged = self.log(manifest.salt())?;
        let lacks_end = self.unreadable_ends(&damaged)?;
        let read = self.state(&manifest)?;
        let (log, _) = BlockLog::open(
            self.disk.clone(),
            self.options.files.log(manifest.salt()),
            read.meta.log.replay,
        )?;
        log.begin_at(read.meta.log.kept.position);
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
        self.report.lost_blocks = lacks_end || lacks_blocks || lower_head.is_some();
        self.lost_history(&index, genesis, &read.meta, &damaged)?;
        let codes = self.codes(&log, manifest.salt(), read.meta.codes_len)?;
        let (codes, missing_codes) = codes.unzip();
        let state = pages::State {
            manifest: &manifest,
            log: &log,
            blocks: &index,
            genesis,
            codes,
            missing_codes: missing_codes.unwrap_or_default(),
            read,
        };
        self.segments(state)
    }

    fn tell(&mut self, step: &'static str, done: u64, of: u64) {
        (self.progress)(RepairProgress { step, done, of });
    }

    fn found(&mut self, damage: impl ToString, remedy: impl ToString, is_mended: bool) {
        self.report.findings.push(RepairFinding {
            damage: damage.to_string(),
            remedy: remedy.to_string(),
            is_mended,
        });
    }

    /// A name that no file has, for a copy of a part of the file `name`.
    fn copy_name(&mut self, name: &str) -> Result<String, StateError> {
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

    fn manifest(&mut self) -> Result<Manifest, StateError> {
        let damage = match Manifest::open(&*self.disk) {
            Err(error) if error.is_corruption() => error,
            opened => return Ok(opened?),
        };
        for sequence in Checkpoint::all(&self.disk)?.into_iter().rev() {
            let copy = Checkpoint::open(&self.disk, sequence)
                .map_err(StateError::from)
                .and_then(|found| Ok((read_manifest(&found)?, found.sequence())));
            let Ok((copy, sequence)) = copy else {
                continue;
            };
            let exists = self.disk.exists("cambium.db").map_err(StoreError::from)?;
            if exists {
                let aside = self.copy_name("cambium.db")?;
                let renamed = self.disk.rename("cambium.db", &aside);
                renamed.map_err(StoreError::from)?;
            }
            let manifest = Manifest::restore(&*self.disk, &copy)?;
            let remedy = format!("written again from the copy in checkpoint {sequence}");
            self.found(damage, remedy, true);
            return Ok(manifest);
        }
        Err(damage.into())
    }

    /// Takes out what is damaged of the log. Returns what that was.
    fn log(&mut self, salt: u64) -> Result<Vec<LogDamage>, StateError> {
        self.tell("block log", 0, 0);
        let (boundaries, start) = self.known_positions()?;
        let mut all: Vec<LogDamage> = Vec::new();
        loop {
            let found = BlockLog::find_damage(&*self.disk, salt, start, &boundaries)?;
            let new: Vec<_> = found.into_iter().filter(|one| !all.contains(one)).collect();
            if new.is_empty() {
                return Ok(all);
            }
            for damage in new {
                self.take_out(salt, &boundaries, &damage)?;
                all.push(damage);
            }
        }
    }

    /// Writes again what the device can't read of the log: zeros, but for what was put there when damage was
    /// taken out. Whether there was a place of which no damage tells: the last blocks may have been in it.
    fn unreadable_ends(&mut self, damaged: &[LogDamage]) -> Result<bool, StateError> {
        let block_bytes = BLOCK_BYTES as u64;
        let mut is_any = false;
        for range in self.salvage.unreadable() {
            if !range.file.starts_with("log/") {
                continue;
            }
            let file = self.disk.display_path(&range.file);
            let told_to = |block: u64| {
                let here = damaged.iter().filter(|damage| damage.file == file);
                let ends = here.filter_map(|damage| {
                    let (offset, end) = (u64::from(damage.position.offset), damage.end.into());
                    let is_here = offset < block + block_bytes && block < end;
                    match damage.kind {
                        LogDamageKind::Header | LogDamageKind::Range => is_here.then_some(end),
                        // Nothing comes after it.
                        LogDamageKind::End => is_here.then_some(u64::MAX),
                        LogDamageKind::File | LogDamageKind::Newest => Some(u64::MAX),
                    }
                });
                ends.max().unwrap_or(block)
            };
            let blocks = (range.offset..range.offset + range.len).step_by(BLOCK_BYTES);
            let ends = blocks.clone().filter_map(|block| {
                let (from, to) = (told_to(block), block + block_bytes);
                (from < to).then_some((from, to))
            });
            let ends: Vec<_> = ends.collect();
            let write = |disk: &dyn Disk| -> Result<(), DiskError> {
                let log = disk.open(&range.file)?;
                let len = log.len()?;
                for block in blocks {
                    let mut bytes = [0; BLOCK_BYTES];
                    let there = len.saturating_sub(block).min(block_bytes) as usize;
                    log.read_at(&mut bytes[..there], block)?;
                    log.write_at(&bytes[..there], block)?;
                }
                log.sync()
            };
            write(&*self.disk).map_err(StoreError::from)?;
            if let (Some((first, _)), Some((_, last))) = (ends.first(), ends.last()) {
                self.found(
                    format!("{file} can't be read from byte {first} to byte {last}"),
                    "zeros were written there: the last blocks may be lost",
                    false,
                );
                is_any = true;
            }
        }
        Ok(is_any)
    }

    /// Where checkpoints say that records begin, or the log ended; and from where on those say that all
    /// is kept which can be opened.
    fn known_positions(&self) -> Result<(Vec<LogPosition>, Option<LogPosition>), StateError> {
        let usable = Checkpoint::usable(&self.disk)?;
        let (mut known, mut start) = (Vec::new(), None);
        for sequence in Checkpoint::all(&self.disk)? {
            let checkpoint = Checkpoint::open(&self.disk, sequence).map_err(StateError::from);
            match checkpoint.and_then(|found| read_meta::<LogState>(&found)) {
                Ok(meta) => {
                    known.push(meta.log.replay);
                    if usable.contains(&sequence) {
                        let kept = meta.log.kept.position;
                        start = Some(start.map_or(kept, |start| kept.min(start)));
                    }
                    known.extend(meta.log.recent.iter().map(|block| block.position));
                }
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        known.sort_unstable();
        known.dedup();
        Ok((known, start))
    }

    fn take_out(
        &mut self,
        salt: u64,
        boundaries: &[LogPosition],
        damage: &LogDamage,
    ) -> Result<(), StateError> {
        let LogDamage {
            kind,
            position,
            end,
            file,
        } = damage;
        let LogPosition {
            file: number,
            offset,
        } = position;
        let copy = self.copy_name(&format!("log-{number:08}-{offset}"))?;
        let to = self.disk.create(&copy).map_err(StoreError::from)?;
        BlockLog::take_out(&*self.disk, salt, boundaries, damage, &*to)?;
        self.drop_if_empty(&copy)?;
        let (what, remedy, is_mended) = match kind {
            LogDamageKind::Range => (
                format!("{file} is damaged from byte {offset} to byte {end}"),
                "what was there is taken out, and what is whole behind it kept",
                false,
            ),
            LogDamageKind::Header => (
                format!("{file} has a bad header"),
                "the header was written again",
                true,
            ),
            LogDamageKind::End => (
                format!("{file} lacks its end, at byte {offset}"),
                "the end was written again",
                true,
            ),
            LogDamageKind::File => (
                format!("{file} is missing"),
                "put in its place is one without blocks",
                false,
            ),
            LogDamageKind::Newest => (
                format!("{file}, the newest file of the log, is missing"),
                "the one before it is the newest now",
                false,
            ),
        };
        self.found(what, remedy, is_mended);
        Ok(())
    }

    fn drop_if_empty(&mut self, copy: &str) -> Result<(), StateError> {
        let empty = |disk: &dyn Disk| -> Result<bool, DiskError> {
            let is_empty = disk.open(copy)?.is_empty()?;
            match is_empty {
                true => disk.remove(copy)?,
                false => disk.sync_dir("")?,
            }
            Ok(is_empty)
        };
        if empty(&*self.disk).map_err(StoreError::from)? {
            self.report.copies.pop();
        }
        Ok(())
    }

    /// The state that a start goes by.
    fn state(&mut self, manifest: &Manifest) -> Result<ReadCheckpoint, StateError> {
        self.tell("checkpoints", 0, 0);
        let counters = Arc::new(Counters::default());
        let parts = PartCache::new(self.options.index_bytes_max(), counters);
        let mut notes = Vec::new();
        let FoundState { read, aside, .. } = find_state(
            &self.disk,
            manifest,
            &self.options,
            &Arc::new(parts),
            true,
            &mut notes,
        )?;
        // What the device can't read would be an error for the opening, and no damage.
        set_aside(&*self.disk, &aside)?;
        for note in notes {
            let (damage, remedy) = note.rsplit_once("; ").unwrap_or((&note, ""));
            self.found(damage, remedy, true);
        }
        Ok(read)
    }

    /// The block index, complete.
    fn block_index(
        &mut self,
        log: &BlockLog,
        genesis: BlockId,
        meta: &Meta,
    ) -> Result<BlockIndex, StateError> {
        let base = meta.state.block;
        self.tell("block index", 0, 0);
        let (index, found) = BlockIndex::open(self.disk.clone(), base.number + 1)?;
        let was_remade = complete_index(&index, log, genesis, meta, None)?;
        if let Some(note) = note_of(found, was_remade, base) {
            let (damage, remedy) = note
                .split_once(", the block index, ")
                .unwrap_or((&note, ""));
            self.found(format!("{damage} is damaged"), remedy, true);
        }
        // Older ones can't be set again, and are missed by nobody.
        let lowest = genesis.number.max(meta.log.kept.lowest);
        let mut numbers = lowest..=base.number;
        if let Some(bad) = numbers.find_map(|number| index.expect(number).err()) {
            if !bad.is_corruption() {
                return Err(bad.into());
            }
            remake_index(&index, log, meta)?;
            self.found(bad, "made again from the log", true);
        }
        index.sync()?;
        Ok(index)
    }

    /// Which blocks of the canonical chain are in what was taken out of the log.
    fn lost_history(
        &mut self,
        index: &BlockIndex,
        genesis: BlockId,
        meta: &Meta,
        damaged: &[LogDamage],
    ) -> Result<(), StateError> {
        let is_lost = |position: LogPosition| {
            damaged.iter().any(|damage| {
                let whole_file = damage.kind == LogDamageKind::File;
                let range = damage.position.offset..damage.end;
                position.file == damage.position.file
                    && (whole_file || range.contains(&position.offset))
            })
        };
        let is_history = |damage: &LogDamage| damage.position < meta.log.replay;
        if !damaged.iter().any(is_history) {
            return Ok(());
        }
        let mut lost: Vec<RangeInclusive<BlockNumber>> = Vec::new();
        let lowest = genesis.number.max(meta.log.kept.lowest);
        for number in lowest..=meta.state.block.number {
            if index
                .get(number)?
                .is_some_and(|entry| is_lost(entry.position))
            {
                match lost.last_mut() {
                    Some(range) if *range.end() + 1 == number => {
                        *range = *range.start()..=number;
                    }
                    _ => lost.push(number..=number),
                }
            }
        }
        self.report.lost_history = lost;
        Ok(())
    }

    /// Writes the codes anew if any of them can't be read, with those that the log has, and gives
    /// these, and the hashes of those that accounts had by the log and that are in neither.
    fn codes(
        &mut self,
        log: &BlockLog,
        salt: u64,
        checkpointed: u64,
    ) -> Result<Option<(Codes, HashSet<B256>)>, StateError> {
        let (codes, found) = Codes::open(self.disk.clone(), salt, checkpointed)?;
        let mut damage: Vec<_> = found.damage.iter().map(ToString::to_string).collect();
        let mut unreadable = 0;
        let hashes = codes.hashes();
        for (done, hash) in hashes.iter().enumerate() {
            if done % 1000 == 0 {
                self.tell("codes", done as u64, hashes.len() as u64);
            }
            match codes.get(hash) {
                Ok(Some(code)) if keccak256(&code) == *hash => {}
                Ok(_) => {
                    unreadable += 1;
                    damage.push(format!("code {hash} in codes.dat is of another hash"));
                }
                Err(error) if error.is_corruption() => {
                    unreadable += 1;
                    damage.push(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        drop(codes);
        let Some(first) = damage.into_iter().next() else {
            return Ok(None);
        };
        let copy = self.copy_name("codes.dat")?;
        let kept = Codes::begin_anew(&self.disk, salt, checkpointed, &copy)?;
        if !self.disk.exists(&copy).map_err(StoreError::from)? {
            self.report.copies.pop();
        }
        let (codes, _) = Codes::open(self.disk.clone(), salt, checkpointed)?;
        codes.settle()?;
        let (mut restored, mut missing) = (0, HashSet::new());
        for record in log.scan(log.start()) {
            let (position, record) = record?;
            if record.kind != KIND_BLOCK {
                continue;
            }
            self.tell("codes in the log", position.to_u64(), 0);
            let Ok(block) = BlockRecord::decode(&record.payload) else {
                continue;
            };
            for (hash, code) in block.codes {
                if !codes.contains(&hash) && keccak256(&code) == hash {
                    codes.restore(hash, &code)?;
                    restored += 1;
                }
            }
            let changes = [&block.changes, &block.reverts];
            let changed = changes.into_iter().flat_map(|changes| changes.accounts());
            missing.extend(changed.filter_map(|change| match change.account {
                AccountUpdate::Put(account) => Some(account.code_hash),
                _ => None,
            }));
            missing.retain(|hash| *hash != KECCAK_EMPTY && !codes.contains(hash));
        }
        codes.sync()?;
        let others = match unreadable {
            0 => String::new(),
            more => format!(", and {more} codes can't be read"),
        };
        let remedy = format!(
            "written anew with {kept} codes that could be read, and {restored} that the log has"
        );
        self.found(format!("{first}{others}"), remedy, true);
        Ok(Some((codes, missing)))
    }

    /// Looks at all pages, and brings back those that can't be read, where that can be.
    fn segments(&mut self, state: pages::State<'_>) -> Result<(), StateError> {
        let (segments, _) = Segments::open(
            self.disk.clone(),
            self.options.files.segments(),
            state.manifest.salt(),
            Some(&state.read.segments),
            &state.read.retired,
        )?;
        for damage in segments.mend_headers()? {
            self.found(damage, "the header was written again", true);
        }
        self.pages(&segments, state)
    }
}

/// The index, whole, shard by shard, wherever it is.
fn whole(
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
