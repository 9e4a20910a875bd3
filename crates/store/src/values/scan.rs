//! Scan of all values in a segment, whether or not anything refers to them.

use super::{
    format::{HEADER_BYTES, RECORD_ALIGN_BYTES, VALUE_START},
    place::Place,
    segment::Segment,
    set::Values,
};
use crate::{
    StoreError,
    record::{FRAME_BYTES, Frame, KEY_BYTES, RecordFile, decode_key},
};
use alloy_primitives::B256;
use cambium_disk::BLOCK_BYTES;
use cambium_primitives::VALUE_BYTES_MAX;
use std::{
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering},
};

/// Bytes that are read at a time. Long values are skipped, short ones are read together.
const READ_BYTES: u64 = 64 << 10;

/// Iterator over the values in a segment, made by [`Values::scan`]: the key, place and length of
/// each.
pub struct ValueScan<'a> {
    values: &'a Values,
    segment: Arc<Segment>,
    /// Offset at which the next record may begin.
    at: u64,
    end: u64,
    /// Bytes of the file from `start` on.
    bytes: Vec<u8>,
    start: u64,
}

impl Values {
    /// Returns an iterator over all values in a segment, in order. The values themselves are neither
    /// read nor verified. Bytes that are not the beginning of an intact record are skipped: they may be torn, and
    /// damage is reported when the value is read. A range that can't be read yields an error, and the scan continues
    /// after it. Returns `None` if there is no such segment, or its file is missing.
    pub fn scan(&self, segment: u32) -> Option<ValueScan<'_>> {
        let segment = Arc::clone(self.segments().get(&segment)?);
        segment.file()?;
        Some(self.scan_at(segment, HEADER_BYTES))
    }

    /// Does the same as [`Values::scan`], from the value at `place` on.
    pub fn scan_from(&self, place: NonZeroU64) -> Option<ValueScan<'_>> {
        let place = Place::from_word(place);
        let segment = Arc::clone(self.segments().get(&place.segment)?);
        segment.file()?;
        Some(self.scan_at(segment, place.offset.into()))
    }

    /// Returns the offset to which records follow each other from the offset `from` on. Their values
    /// may be torn all the same.
    pub(super) fn chain_end(&self, segment: &Arc<Segment>, from: u64) -> Result<u64, StoreError> {
        let mut scan = self.scan_at(Arc::clone(segment), from);
        while let Some(head) = scan.head()?
            && let Some(frame) = scan.frame(&head)
        {
            scan.at += frame.size();
        }
        Ok(scan.at)
    }

    fn scan_at(&self, segment: Arc<Segment>, from: u64) -> ValueScan<'_> {
        let bytes = segment.bytes.load(Ordering::Acquire);
        ValueScan {
            values: self,
            at: from.next_multiple_of(RECORD_ALIGN_BYTES),
            end: segment.lost.map_or(bytes, |(from, _)| from),
            segment,
            bytes: Vec::new(),
            start: 0,
        }
    }
}

impl ValueScan<'_> {
    /// Returns the bytes of a frame and a key at the current offset, or `None` at the end.
    fn head(&mut self) -> Result<Option<[u8; VALUE_START]>, StoreError> {
        let needed = self.at + VALUE_START as u64;
        let Some(file) = self.segment.file().filter(|_| needed <= self.end) else {
            return Ok(None);
        };
        if self.at < self.start || needed > self.start + self.bytes.len() as u64 {
            let until = (self.at + READ_BYTES).min(self.end);
            self.bytes.clear();
            self.bytes.resize((until - self.at) as usize, 0);
            self.start = self.at;
            if let Err(error) = file.read_at(&mut self.bytes, self.at) {
                self.bytes.clear();
                return Err(self.values.read_error(self.segment.number, error));
            }
        }
        let from = (self.at - self.start) as usize;
        Ok(self.bytes[from..].first_chunk().copied())
    }

    /// Decodes the frame of the record at the current offset, if it is that of a value which ends
    /// within the file.
    fn frame(&self, head: &[u8; VALUE_START]) -> Option<Frame> {
        Frame::decode(head, self.values.salt).filter(|frame| {
            let len = (frame.len as usize).checked_sub(KEY_BYTES);
            frame.position == base_of(self.segment.number) + self.at
                && frame.size() <= self.end - self.at
                && len.is_some_and(|len| len <= VALUE_BYTES_MAX)
        })
    }

    /// Returns the next value, and moves behind it.
    fn step(&mut self) -> Result<Option<(B256, NonZeroU64, u32)>, StoreError> {
        while let Some(head) = self.head()? {
            let Some(frame) = self.frame(&head) else {
                self.skip()?;
                continue;
            };
            let place = Place {
                segment: self.segment.number,
                offset: self.at as u32,
            };
            self.at += frame.size();
            // The key alone may be damaged.
            if let Some(key) = decode_key(self.values.salt, &head[FRAME_BYTES..]) {
                return Ok(Some((key, place.to_word(), frame.len - KEY_BYTES as u32)));
            }
        }
        Ok(None)
    }

    /// Moves to the next intact record, because there is none at the current offset.
    fn skip(&mut self) -> Result<(), StoreError> {
        let Some(file) = self.segment.file() else {
            return Ok(());
        };
        let records = RecordFile {
            file: &*file,
            salt: self.values.salt,
            base: base_of(self.segment.number),
            len: self.end,
        };
        let next = records.find_record(self.at + RECORD_ALIGN_BYTES)?;
        self.at = next.unwrap_or(self.end);
        Ok(())
    }
}

/// Position of a segment's first byte, as its records state it.
const fn base_of(number: u32) -> u64 {
    (number as u64) << 32
}

impl Iterator for ValueScan<'_> {
    type Item = Result<(B256, NonZeroU64, u32), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.step() {
            Ok(found) => found.map(Ok),
            Err(error) => {
                // A device fails to read at least a whole block.
                self.at = (self.at + 1).next_multiple_of(BLOCK_BYTES as u64);
                Some(Err(error))
            }
        }
    }
}
