//! The end of the active segment that is not in its file yet.

use super::segment::{Segment, header_of};
use crate::sync::RwLock;
use cambium_disk::BLOCK_BYTES;
use std::sync::{Arc, atomic::Ordering};

/// What was appended and not yet written: a piece on its way to the file, then the buffer.
#[derive(Debug)]
pub(super) struct Tail {
    pieces: RwLock<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    /// The active segment. None before the first.
    segment: Option<Arc<Segment>>,
    /// Whole blocks.
    flushing: Arc<Vec<u8>>,
    /// Where `flushing` starts in the segment, at a block; the buffer starts where it ends.
    start: u64,
    buffer: Vec<u8>,
}

/// Whole blocks on their way to a file.
pub(super) struct Flush {
    pub(super) segment: Arc<Segment>,
    pub(super) start: u64,
    pub(super) bytes: Arc<Vec<u8>>,
}

impl Tail {
    /// The tail of no segment.
    pub(super) fn new() -> Self {
        Self {
            pieces: RwLock::default(),
        }
    }

    /// Turns to a new segment. All before has been flushed.
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

    /// Appends `bytes`, of which the first eight are combined with `stamp`, and zeros, `len` in
    /// all. Returns how much the buffer holds.
    pub(super) fn append(&self, bytes: &[u8], stamp: u64, len: usize) -> usize {
        let mut pieces = self.pieces.write();
        let start = pieces.buffer.len();
        pieces.buffer.extend_from_slice(bytes);
        pieces.buffer.resize(start + len, 0);
        combine(&mut pieces.buffer[start..], stamp);
        start + len
    }

    /// Bytes in the buffer.
    pub(super) fn buffered(&self) -> usize {
        self.pieces.read().buffer.len()
    }

    /// Sets the whole blocks of the buffer aside for writing; they go on being read. With `pad`,
    /// zeros make the last one whole, and the next page goes after it: no appending meanwhile.
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

    /// Lets go of what was set aside: it is in the file.
    pub(super) fn end_flush(&self) {
        let mut pieces = self.pieces.write();
        pieces.start += pieces.flushing.len() as u64;
        pieces.flushing = Arc::default();
    }

    /// Fills `out`, which is what is at `offset` of a segment, with the part of it that is here.
    /// Returns how much of its start is not, so is in the file.
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

/// Combines the first eight bytes with `stamp`. Done twice, they are what they were.
pub(super) fn combine(bytes: &mut [u8], stamp: u64) {
    if let Some(sum) = bytes.first_chunk_mut::<8>() {
        *sum = (u64::from_le_bytes(*sum) ^ stamp).to_le_bytes();
    }
}

/// Copies into `out`, which is at `offset`, what it has in common with `piece`, which is at
/// `start`.
fn copy_part(out: &mut [u8], offset: u64, piece: &[u8], start: u64) {
    let from = offset.max(start);
    let to = (offset + out.len() as u64).min(start + piece.len() as u64);
    if from < to {
        let part = &piece[(from - start) as usize..(to - start) as usize];
        out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
    }
}
