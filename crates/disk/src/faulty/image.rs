//! One file of the faulty disk: its bytes as read, as durable, and what lies between.

use super::{Fate, Random};

/// Writes are torn at any byte, and large ones also lose single sectors of this size.
const SECTOR_BYTES: usize = 512;

#[derive(Debug, Default)]
pub(super) struct FileImage {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

impl FileImage {
    pub(super) fn live(&self) -> &[u8] {
        &self.live
    }

    pub(super) fn write(&mut self, bytes: &[u8], offset: u64) {
        self.change(Change::Write {
            offset: offset as usize,
            bytes: bytes.to_vec(),
        });
    }

    pub(super) fn set_len(&mut self, len: usize) {
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

    /// A sync that fails: some changes reach the disk, some are dropped for good although they go
    /// on being read, some wait for the next sync.
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
        self.live[offset] ^= mask;
        if let Some(byte) = self.durable.get_mut(offset) {
            *byte ^= mask;
        }
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

    /// The file as the next start finds it.
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
        Self {
            live: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
        }
    }
}

impl Change {
    fn apply(&self, file: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => put(file, *offset, bytes),
            Self::SetLen(len) => file.resize(*len, 0),
        }
    }

    fn apply_partly(&self, file: &mut Vec<u8>, random: &mut Random) {
        let Self::Write { offset, bytes } = self else {
            if random.below(2) == 0 {
                self.apply(file);
            }
            return;
        };
        let cut = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(7) {
            0 | 1 => put(file, *offset, bytes),
            2 => {}
            3 => put(file, *offset, &bytes[..cut]),
            4 => put(file, offset + cut, &bytes[cut..]),
            5 => extend(file, offset + bytes.len()),
            _ => {
                for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if random.below(2) == 0 {
                        put(file, offset + at * SECTOR_BYTES, sector);
                    }
                }
            }
        }
    }
}

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    extend(file, offset + bytes.len());
    file[offset..offset + bytes.len()].copy_from_slice(bytes);
}

fn extend(file: &mut Vec<u8>, len: usize) {
    if file.len() < len {
        file.resize(len, 0);
    }
}
