//! Repair of the checkpoint, the block index and the codes.

use super::pages;
use super::report::Repair;
use crate::{
    db::open::{FoundState, find_state},
    log::{
        block_index::{complete_index, is_lost_below, note_of, rebuild_index},
        log_state::{Meta, ReadCheckpoint},
        records::{BlockRecord, KIND_BLOCK},
    },
};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{B256, keccak256};
use cambium_primitives::{AccountUpdate, BlockId, BlockNumber};
use cambium_snapshot::{Counters, PartCache, StateError};
use cambium_store::{
    BlockIndex, BlockLog, Codes, LogPosition, Manifest, Segments, StoreError, quarantine,
};
use std::{collections::HashSet, ops::RangeInclusive, sync::Arc};

impl Repair<'_> {
    /// Finds the checkpoint from which the database can be opened, or rebuilds its index from the
    /// pages.
    pub(super) fn state(&mut self, manifest: &Manifest) -> Result<ReadCheckpoint, StateError> {
        self.report_step("checkpoints", 0, 0);
        let counters = Arc::new(Counters::default());
        let parts = PartCache::new(
            self.options.index_bytes_max(),
            self.options.commitment,
            counters,
        );
        let mut notes = Vec::new();
        let FoundState { read, aside, .. } = find_state(
            &self.disk,
            manifest,
            &self.options,
            &Arc::new(parts),
            true,
            &mut notes,
        )?;
        // Opening would fail on checkpoints that the device can't read, since that is not damage to
        // it.
        quarantine(&*self.disk, &aside)?;
        for note in notes {
            let (damage, remedy) = note.rsplit_once("; ").unwrap_or((&note, ""));
            self.add_finding(damage, remedy, true);
        }
        Ok(read)
    }

    /// Completes the block index, or rebuilds it from the log.
    pub(super) fn block_index(
        &mut self,
        log: &BlockLog,
        genesis: BlockId,
        meta: &Meta,
    ) -> Result<BlockIndex, StateError> {
        let base = meta.state.block;
        self.report_step("block index", 0, 0);
        let (index, found) = BlockIndex::open(self.disk.clone(), base.number + 1)?;
        let was_rebuilt = complete_index(&index, log, genesis, meta, None)?;
        if let Some(note) = note_of(found, was_rebuilt, base) {
            let (damage, remedy) = note
                .split_once(", the block index, ")
                .unwrap_or((&note, ""));
            self.add_finding(format!("{damage} is damaged"), remedy, true);
        }
        // Entries of older blocks can't be restored, and nothing needs them.
        let lowest = genesis.number.max(meta.log.kept.lowest);
        let first_bad = || {
            let mut numbers = lowest..=base.number;
            numbers.find_map(|number| index.expect(number).err())
        };
        if let Some(bad) = first_bad() {
            if !bad.is_corruption() {
                return Err(bad.into());
            }
            rebuild_index(&index, log, meta)?;
            let bad = bad.to_string();
            // Blocks missing because their records are lost are reported with those.
            if first_bad().is_none_or(|still| still.to_string() != bad) {
                self.add_finding(bad, "rebuilt from the log", true);
            }
        }
        index.sync()?;
        Ok(index)
    }

    /// Finds the blocks of the canonical chain whose records were removed from the log.
    pub(super) fn lost_history(
        &mut self,
        index: &BlockIndex,
        genesis: BlockId,
        meta: &Meta,
        gaps: &[(LogPosition, u32)],
    ) -> Result<(), StateError> {
        let is_lost = |position: LogPosition| {
            let mut gaps = gaps.iter();
            let is_in_gap = gaps.any(|(from, end)| {
                position.file == from.file && (from.offset..*end).contains(&position.offset)
            });
            is_in_gap || is_lost_below(position)
        };
        let mut lost: Vec<RangeInclusive<BlockNumber>> = Vec::new();
        let lowest = genesis.number.max(meta.log.kept.lowest);
        for number in lowest..=meta.state.block.number {
            // Without an entry, the record was not in the log from which the index was rebuilt.
            let entry = index.get(number)?;
            if entry.is_none_or(|entry| is_lost(entry.position)) {
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

    /// Writes the code file again if any code can't be read, from the readable codes and those in
    /// the log. Returns the file, and the hashes of codes that accounts had according to the
    /// log and that are still missing.
    pub(super) fn codes(
        &mut self,
        log: &BlockLog,
        salt: u64,
        checkpointed: u64,
    ) -> Result<(Codes, HashSet<B256>), StateError> {
        let (codes, found) = Codes::open(self.disk.clone(), salt, checkpointed)?;
        let mut damage: Vec<_> = found.damage.iter().map(ToString::to_string).collect();
        let mut unreadable = 0;
        let hashes = codes.hashes();
        for (done, hash) in hashes.iter().enumerate() {
            if done % 1000 == 0 {
                self.report_step("codes", done as u64, hashes.len() as u64);
            }
            match codes.get(hash) {
                Ok(Some(code)) if keccak256(&code) == *hash => {}
                Ok(_) => {
                    unreadable += 1;
                    damage.push(format!("code {hash} in codes.dat has another hash"));
                }
                Err(error) if error.is_corruption() => {
                    unreadable += 1;
                    damage.push(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        let Some(first) = damage.into_iter().next() else {
            return Ok((codes, HashSet::new()));
        };
        drop(codes);
        let copy = self.copy_name("codes.dat")?;
        let kept = Codes::rebuild_from(&self.disk, salt, checkpointed, &copy)?;
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
            self.report_step("codes in the log", position.to_u64(), 0);
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
            missing.extend(changed.filter_map(|change| match &change.account {
                AccountUpdate::Put(account) => Some(account.code_hash),
                _ => None,
            }));
            missing.retain(|hash| *hash != KECCAK256_EMPTY && !codes.contains(hash));
        }
        codes.sync()?;
        let others = match unreadable {
            0 => String::new(),
            more => format!(", and {more} codes can't be read"),
        };
        let remedy =
            format!("rewritten with {kept} readable codes, and {restored} codes from the log");
        self.add_finding(format!("{first}{others}"), remedy, true);
        Ok((codes, missing))
    }

    /// Checks all pages, and restores unreadable ones where possible.
    pub(super) fn segments(&mut self, state: pages::State<'_>) -> Result<(), StateError> {
        let (segments, _) = Segments::open(
            self.disk.clone(),
            self.options.files.segments(),
            state.manifest.salt(),
            Some(&state.read.segments),
            &state.read.retired,
        )?;
        for damage in segments.repair_headers()? {
            self.add_finding(damage, "the header was written again", true);
        }
        self.pages(&segments, state)
    }
}
