//! The end of the active segment that has not been written to its file.

use super::segment::{Segment, header_of};
use crate::sync::RwLock;
use cambium_disk::BLOCK_BYTES;
use std::sync::{Arc, atomic::Ordering};

/// Bytes that were appended but not written: a piece that is being written, followed by the buffer.
#[derive(Debug)]
pub(super) struct Tail {
    pieces: RwLock<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// The active segment. `None` before the first append.
    segment: Option<Arc<Segment>>,
    /// Whole blocks that are being written to the file.
    flushing: Arc<Vec<u8>>,
    /// Offset of `flushing` in the segment, at a block boundary. The buffer follows it.
    start: u64,
    buffer: Vec<u8>,
}

/// Whole blocks to be written to a segment's file.
pub(super) struct Flush {
    pub(super) segment: Arc<Segment>,
    pub(super) start: u64,
    pub(super) bytes: Arc<Vec<u8>>,
}

impl Tail {
    /// Creates an empty tail without a segment.
    pub(super) fn new() -> Self {
        Self {
            pieces: RwLock::default(),
        }
    }

    /// Switches to a new segment. The previous one must be flushed.
    pub(super) fn begin(&self, segment: Arc<Segment>) {
        let mut pieces = self.pieces.write();
        assert!(
            pieces.flushing.is_empty() && pieces.buffer.is_empty(),
            "tail not flushed"
        );
        pieces
            .buffer
            .extend_from_slice(&header_of(segment.sequence));
        (pieces.segment, pieces.start) = (Some(segment), 0);
    }

    /// Appends `bytes`, padded with zeros to `len`. The first eight bytes are XORed with `stamp`.
    /// Returns the number of buffered bytes.
    pub(super) fn append(&self, bytes: &[u8], stamp: u64, len: usize) -> usize {
        let mut pieces = self.pieces.write();
        let start = pieces.buffer.len();
        pieces.buffer.extend_from_slice(bytes);
        pieces.buffer.resize(start + len, 0);
        apply_stamp(&mut pieces.buffer[start..], stamp);
        start + len
    }

    /// Number of buffered bytes.
    pub(super) fn buffered(&self) -> usize {
        self.pieces.read().buffer.len()
    }

    /// Takes the whole blocks out of the buffer for writing. They remain readable here. With `pad`,
    /// zeros fill up the last block, and the next page follows them; nothing may be appended
    /// meanwhile.
    pub(super) fn begin_flush(&self, pad: bool) -> Option<Flush> {
        let mut pieces = self.pieces.write();
        assert!(pieces.flushing.is_empty(), "one flush at a time");
        let segment = pieces.segment.clone()?;
        if pad {
            let whole = pieces.buffer.len().next_multiple_of(BLOCK_BYTES);
            pieces.buffer.resize(whole, 0);
            let end = pieces.start + whole as u64;
            segment.bytes.store(end, Ordering::Release);
        }
        let whole = pieces.buffer.len() / BLOCK_BYTES * BLOCK_BYTES;
        if whole == 0 {
            return None;
        }
        let mut rest = Vec::with_capacity(pieces.buffer.capacity());
        rest.extend_from_slice(&pieces.buffer[whole..]);
        let mut blocks = std::mem::replace(&mut pieces.buffer, rest);
        blocks.truncate(whole);
        pieces.flushing = Arc::new(blocks);
        Some(Flush {
            segment,
            start: pieces.start,
            bytes: Arc::clone(&pieces.flushing),
        })
    }

    /// Drops the blocks of the flush. They must be in the file.
    pub(super) fn end_flush(&self) {
        let mut pieces = self.pieces.write();
        pieces.start += pieces.flushing.len() as u64;
        pieces.flushing = Arc::default();
    }

    /// Copies to `out`, which stands for the bytes at `offset` of `segment`, those that are in the
    /// tail. Returns how many bytes at its start are in the file instead.
    pub(super) fn read(&self, segment: &Segment, offset: u64, out: &mut [u8]) -> usize {
        let pieces = self.pieces.read();
        let is_active = |active: &Arc<Segment>| active.sequence == segment.sequence;
        if !pieces.segment.as_ref().is_some_and(is_active) {
            return out.len();
        }
        let buffer_start = pieces.start + pieces.flushing.len() as u64;
        copy_part(out, offset, &pieces.flushing, pieces.start);
        copy_part(out, offset, &pieces.buffer, buffer_start);
        pieces.start.saturating_sub(offset).min(out.len() as u64) as usize
    }
}

/// XORs the first eight bytes with `stamp`. Doing it twice restores them.
pub(super) fn apply_stamp(bytes: &mut [u8], stamp: u64) {
    if let Some(sum) = bytes.first_chunk_mut::<8>() {
        *sum = (u64::from_le_bytes(*sum) ^ stamp).to_le_bytes();
    }
}

/// Copies to `out`, which stands for the bytes at `offset`, its overlap with `piece`, which is at
/// `start`.
fn copy_part(out: &mut [u8], offset: u64, piece: &[u8], start: u64) {
    let from = offset.max(start);
    let to = (offset + out.len() as u64).min(start + piece.len() as u64);
    if from < to {
        let part = &piece[(from - start) as usize..(to - start) as usize];
        out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
    }
}
