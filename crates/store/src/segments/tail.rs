//! The end of the active segment that is not in its file yet.

use parking_lot::RwLock;
use std::sync::Arc;

/// What was appended and not yet written: a piece on its way to the file, then the buffer.
#[derive(Debug)]
pub(super) struct Tail {
    pieces: RwLock<Pieces>,
}

#[derive(Debug)]
struct Pieces {
    segment: u32,
    flushing: Arc<Vec<u8>>,
    /// Where `flushing` starts in the segment; the buffer starts where it ends.
    start: u64,
    buffer: Vec<u8>,
}

impl Tail {
    pub(super) fn new(segment: u32, start: u64) -> Self {
        let (flushing, buffer) = (Arc::default(), Vec::new());
        Self {
            pieces: RwLock::new(Pieces {
                segment,
                flushing,
                start,
                buffer,
            }),
        }
    }

    /// Turns to a new segment, whose first bytes are `header`. All before has been flushed.
    pub(super) fn begin(&self, segment: u32, header: &[u8]) {
        let mut pieces = self.pieces.write();
        assert!(
            pieces.flushing.is_empty() && pieces.buffer.is_empty(),
            "tail not flushed"
        );
        (pieces.segment, pieces.start) = (segment, 0);
        pieces.buffer.extend_from_slice(header);
    }

    /// Appends `bytes` and zeros, `len` in all. Returns how much the buffer holds.
    pub(super) fn append(&self, bytes: &[u8], len: usize) -> usize {
        let mut pieces = self.pieces.write();
        let end = pieces.buffer.len() + len;
        pieces.buffer.extend_from_slice(bytes);
        pieces.buffer.resize(end, 0);
        end
    }

    /// Sets the buffer aside for writing, and says where it belongs. It goes on being read.
    pub(super) fn begin_flush(&self) -> (u64, Arc<Vec<u8>>) {
        let mut pieces = self.pieces.write();
        assert!(pieces.flushing.is_empty(), "one flush at a time");
        pieces.flushing = Arc::new(std::mem::take(&mut pieces.buffer));
        (pieces.start, Arc::clone(&pieces.flushing))
    }

    /// Lets go of what was set aside: it is in the file.
    pub(super) fn end_flush(&self) {
        let mut pieces = self.pieces.write();
        pieces.start += pieces.flushing.len() as u64;
        pieces.flushing = Arc::default();
    }

    /// Fills `out` with what is at `offset` of a segment. False if that is not here, so in the
    /// file.
    pub(super) fn read(&self, segment: u32, offset: u64, out: &mut [u8]) -> bool {
        let pieces = self.pieces.read();
        let Some(at) = offset
            .checked_sub(pieces.start)
            .filter(|_| segment == pieces.segment)
        else {
            return false;
        };
        let at = at as usize;
        let from = match at.checked_sub(pieces.flushing.len()) {
            None => pieces.flushing.get(at..at + out.len()),
            Some(at) => pieces.buffer.get(at..at + out.len()),
        };
        from.map(|bytes| out.copy_from_slice(bytes)).is_some()
    }
}
