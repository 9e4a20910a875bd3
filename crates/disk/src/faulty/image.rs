//! One file of the faulty disk: its visible bytes, its durable bytes, and the pending changes
//! between them.

use super::{
    chance::{Fate, Random},
    content::Content,
};
use crate::BLOCK_BYTES;
use std::{collections::BTreeSet, ops::Range};

/// Writes are torn at any byte, and large ones also lose single sectors of this size.
const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
pub(super) struct FileImage {
    live: Content,
    durable: Content,
    pending: Vec<Change>,
    /// Blocks of `live` that take no space.
    holes: BTreeSet<usize>,
    /// Blocks that can't be read until they are overwritten.
    spoilt: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
enum Change {
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    Punch {
        offset: usize,
        len: usize,
    },
    SetLen(usize),
    /// Extends the file with zeros to this length, if it is shorter.
    Extend(usize),
}

impl FileImage {
    pub(super) const fn live(&self) -> &Content {
        &self.live
    }

    /// Returns the space that the file takes, in bytes.
    pub(super) fn used_bytes(&self) -> u64 {
        (self.live.len() - self.holes.len() * BLOCK_BYTES) as u64
    }

    /// Returns the bytes of holes that a write would fill.
    pub(super) fn filled_bytes(&self, len: usize, offset: u64) -> u64 {
        let filled = self.holes.range(blocks_touched(offset as usize, len));
        (filled.count() * BLOCK_BYTES) as u64
    }

    /// Makes the blocks that a range touches unreadable.
    pub(super) fn spoil(&mut self, offset: u64, len: usize) {
        self.spoilt.extend(blocks_touched(offset as usize, len));
    }

    /// Returns whether a whole range can be read.
    pub(super) fn is_readable(&self, offset: u64, len: usize) -> bool {
        let is_there = |block: &usize| {
            let start = (block * BLOCK_BYTES) as u64;
            start < offset.saturating_add(len as u64) && offset < start + BLOCK_BYTES as u64
        };
        !self.spoilt.iter().any(is_there)
    }

    /// Returns whether a range can be written. An unreadable block can be written only as a whole.
    pub(super) fn is_writable(&self, offset: u64, len: usize) -> bool {
        let (start, end) = (offset as usize, offset as usize + len);
        let is_whole =
            |block: usize| block * BLOCK_BYTES >= start && (block + 1) * BLOCK_BYTES <= end;
        let touched = blocks_touched(start, len);
        self.spoilt.range(touched).all(|block| {
            // The part of a block beyond the file's end need not be written.
            is_whole(*block) || (block * BLOCK_BYTES >= start && end >= self.live.len())
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        for block in blocks_touched(offset as usize, bytes.len()) {
            self.holes.remove(&block);
            self.spoilt.remove(&block);
        }
        self.change(Change::Write {
            offset: offset as usize,
            bytes: bytes.to_vec(),
        });
    }

    /// A write that is reported, but never happens: only the file's length changes. With `is_seen`,
    /// reads return it until the next crash.
    pub(super) fn lose(&mut self, bytes: &[u8], offset: u64, is_seen: bool) {
        let offset = offset as usize;
        let end = offset + bytes.len();
        self.live.extend(end);
        if is_seen {
            self.live.put(offset, bytes);
        }
        self.pending.push(Change::Extend(end));
    }

    /// Writes bytes intended for `offset` to another block of the file.
    pub(super) fn misdirect(&mut self, bytes: &[u8], offset: u64, random: &mut Random) {
        let blocks = (self.live.len() / BLOCK_BYTES) as u64;
        let wrong = random.below(blocks.max(1)) * BLOCK_BYTES as u64 + offset % BLOCK_BYTES as u64;
        if wrong == offset {
            return;
        }
        let room = self.live.len().saturating_sub(wrong as usize);
        self.write(&bytes[..bytes.len().min(room)], wrong);
    }

    /// Returns the same file with all its changes durable.
    pub(super) fn duplicate(&self) -> Self {
        Self {
            live: self.live.clone(),
            durable: self.live.clone(),
            pending: Vec::new(),
            holes: self.holes.clone(),
            spoilt: self.spoilt.clone(),
        }
    }

    pub(super) fn punch_hole(&mut self, offset: u64, len: u64) {
        let offset = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.live.len());
        let end = offset.saturating_add(len as usize).min(self.live.len());
        self.holes
            .extend(offset.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES);
        let len = end - offset;
        self.change(Change::Punch { offset, len });
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.holes.retain(|block| (block + 1) * BLOCK_BYTES <= len);
        self.spoilt.retain(|block| block * BLOCK_BYTES < len);
        self.change(Change::SetLen(len));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A failed sync: some changes become durable, some are lost permanently although reads still
    /// return them, and some wait for the next sync.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        for change in std::mem::take(&mut self.pending) {
            match random.below(3) {
                0 => change.apply(&mut self.durable),
                1 => {}
                _ => self.pending.push(change),
            }
        }
    }

    pub(super) fn flip(&mut self, offset: usize, mask: u8) {
        assert!(offset < self.live.len(), "no byte at {offset}");
        self.live.flip(offset, mask);
        self.durable.flip(offset, mask);
        for change in &mut self.pending {
            if let Change::Write {
                offset: start,
                bytes,
            } = change
                && let Some(byte) = offset.checked_sub(*start).and_then(|at| bytes.get_mut(at))
            {
                *byte ^= mask;
            }
        }
    }

    /// Returns the file as it is after a crash.
    pub(super) fn crash(&self, fate: &Fate, random: &mut Random) -> Self {
        let mut bytes = self.durable.clone();
        let mut pending: Vec<&Change> = self.pending.iter().collect();
        if *fate == Fate::Mixed {
            for at in (1..pending.len()).rev() {
                pending.swap(at, random.below(at as u64 + 1) as usize);
            }
        }
        for change in pending {
            match fate {
                Fate::AllKept => change.apply(&mut bytes),
                Fate::AllLost => {}
                Fate::Mixed => change.apply_partly(&mut bytes, random),
            }
        }
        let is_zero = |block: &usize| bytes.is_zero(*block);
        Self {
            holes: self.holes.iter().copied().filter(is_zero).collect(),
            live: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
            spoilt: self.spoilt.clone(),
        }
    }
}

impl Change {
    fn apply(&self, file: &mut Content) {
        match self {
            Self::Write { offset, bytes } => file.put(*offset, bytes),
            Self::Punch { offset, len } => file.clear(*offset..offset + len),
            Self::SetLen(len) => file.resize(*len),
            Self::Extend(len) => file.extend(*len),
        }
    }

    fn apply_partly(&self, file: &mut Content, random: &mut Random) {
        let (offset, bytes) = match self {
            Self::Write { offset, bytes } => (offset, bytes),
            Self::Punch { offset, len } => {
                // Each block is kept or lost independently: punching a hole is not atomic either.
                for start in (*offset..offset + len).step_by(BLOCK_BYTES) {
                    if random.below(2) == 0 {
                        file.clear(start..(offset + len).min(start + BLOCK_BYTES));
                    }
                }
                return;
            }
            Self::SetLen(_) | Self::Extend(_) => {
                if random.below(2) == 0 {
                    self.apply(file);
                }
                return;
            }
        };
        let cut = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(7) {
            0 | 1 => file.put(*offset, bytes),
            2 => {}
            3 => file.put(*offset, &bytes[..cut]),
            4 => file.put(offset + cut, &bytes[cut..]),
            5 => file.extend(offset + bytes.len()),
            _ => {
                for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if random.below(2) == 0 {
                        file.put(offset + at * SECTOR_BYTES, sector);
                    }
                }
            }
        }
    }
}

/// Returns the blocks that a write touches.
fn blocks_touched(offset: usize, len: usize) -> Range<usize> {
    if len == 0 {
        return 0..0;
    }
    offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES)
}
