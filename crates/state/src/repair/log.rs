//! Repair of the manifest and of the block log: damaged parts of the log are removed.

use super::report::Repair;
use crate::log::log_state::LogState;
use cambium_disk::{BLOCK_BYTES, Disk, DiskError};
use cambium_snapshot::{
    StateError,
    checkpoint::{read_manifest, read_meta},
};
use cambium_store::{
    BlockLog, Checkpoint, LogDamage, LogDamageKind, LogFindings, LogPosition, Manifest, StoreError,
};

impl Repair<'_> {
    /// Opens the manifest, or restores it from the copy in a checkpoint.
    pub(super) fn manifest(&mut self) -> Result<Manifest, StateError> {
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
            self.add_finding(damage, remedy, true);
            return Ok(manifest);
        }
        Err(damage.into())
    }

    /// Removes the damaged parts of the log, and returns them, and the gaps of this and of earlier repairs.
    pub(super) fn log(&mut self, salt: u64) -> Result<LogFindings, StateError> {
        self.report_step("block log", 0, 0);
        let (boundaries, start) = self.known_positions()?;
        let mut all: Vec<LogDamage> = Vec::new();
        loop {
            let LogFindings { damage, gaps } =
                BlockLog::find_damage(&*self.disk, salt, start, &boundaries)?;
            let new: Vec<_> = damage
                .into_iter()
                .filter(|one| !all.contains(one))
                .collect();
            if new.is_empty() {
                return Ok(LogFindings { damage: all, gaps });
            }
            for damage in new {
                self.cut_out(salt, &boundaries, &damage)?;
                all.push(damage);
            }
        }
    }

    /// Rewrites the blocks of the log that the device can't read: zeros, except for the bytes that the removal of
    /// damage has written there. Returns whether such a block was outside all known damage, so that the newest blocks
    /// may be lost.
    pub(super) fn unreadable_ends(&mut self, damaged: &[LogDamage]) -> Result<bool, StateError> {
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
                        // The end of a file has no successor.
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
                self.add_finding(
                    format!("{file} can't be read from byte {first} to byte {last}"),
                    "zeros were written there: the last blocks may be lost",
                    false,
                );
                is_any = true;
            }
        }
        Ok(is_any)
    }

    /// Positions at which, according to the checkpoints, a record begins or the log ended; and the
    /// position from which on both usable checkpoints keep the log.
    pub(super) fn known_positions(
        &self,
    ) -> Result<(Vec<LogPosition>, Option<LogPosition>), StateError> {
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

    /// Copies a damaged part of the log to a file of its own, and removes it from the log.
    pub(super) fn cut_out(
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
        let cut = BlockLog::cut_out(&*self.disk, salt, boundaries, damage, &*to);
        let copied = self.drop_if_empty(&copy);
        cut?;
        copied?;
        let (what, remedy, is_repaired) = match kind {
            LogDamageKind::Range => (
                format!("{file} is damaged from byte {offset} to byte {end}"),
                "the damaged range was removed, and whole records behind it are kept",
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
                "a file without blocks was put in its place",
                false,
            ),
            LogDamageKind::Newest => (
                format!("{file}, the newest file of the log, is missing"),
                "the file before it is the newest now",
                false,
            ),
        };
        self.add_finding(what, remedy, is_repaired);
        Ok(())
    }

    /// Removes the copy `copy` if it is empty; syncs the directory otherwise.
    pub(super) fn drop_if_empty(&mut self, copy: &str) -> Result<(), StateError> {
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
}
