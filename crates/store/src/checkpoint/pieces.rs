//! Pieces of a checkpoint's section, each with its own checksum, so that it can be read alone.

use super::{
    format::{Section, find_section},
    names::name_of,
};
use crate::StoreError;
use cambium_disk::{Access, Disk, DiskFile, ReadRequest};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

// Piece.
//
// OFFSET  SIZE  MEANING
// 0       8     xxh3-64 of what follows, little-endian
// 8             the bytes
/// Bytes of a piece's checksum, which precedes its content.
pub const PIECE_SUM_BYTES: usize = 8;

/// Advice for a damaged piece. Opening the database verifies the whole checkpoint.
const OPEN_AGAIN: &str =
    "open the database again: it uses the previous checkpoint, and replays more of the log";

/// Appends a piece whose content `write` appends. Returns its length with the checksum, in bytes.
pub fn put_piece(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; PIECE_SUM_BYTES]);
    write(out);
    let sum = xxh3_64(&out[start + PIECE_SUM_BYTES..]);
    out[start..start + PIECE_SUM_BYTES].copy_from_slice(&sum.to_le_bytes());
    out.len() - start
}

/// Reader of a section's pieces. The file stays open and readable, even after its removal.
#[derive(Debug)]
pub struct SectionReader {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    path: String,
    sequence: u64,
    offset: u64,
    len: u64,
}

impl SectionReader {
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        sequence: u64,
        sections: &[Section],
        name: &str,
    ) -> Result<Self, StoreError> {
        let file_name = name_of(sequence);
        let path = disk.display_path(&file_name);
        let section = find_section(sections, name, &path)?;
        Ok(Self {
            file: disk.open_with(&file_name, Access::Direct)?,
            disk: disk.clone(),
            path,
            sequence,
            offset: section.offset,
            len: section.len,
        })
    }

    /// Sequence number of the checkpoint.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Reads a range of the section without verifying it. Pieces in it are verified by
    /// [`Self::check`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the range is outside of the section, and [`StoreError::Disk`] if
    /// the read fails.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, StoreError> {
        let mut bytes = self.room_for(offset, len)?;
        self.file.read_at(&mut bytes, self.offset + offset)?;
        Ok(bytes)
    }

    /// Reads many ranges, given as offset and length, all in flight at once if the disk supports
    /// that. The results are in the order of `ranges`, with errors as in [`Self::read`].
    pub fn read_batch(&self, ranges: &[(u64, u64)]) -> Vec<Result<Vec<u8>, StoreError>> {
        let room = ranges
            .iter()
            .map(|(offset, len)| self.room_for(*offset, *len));
        let mut read: Vec<_> = room.collect();
        let mut requests = Vec::with_capacity(ranges.len());
        let mut requested = Vec::with_capacity(ranges.len());
        for (at, bytes) in read.iter_mut().enumerate() {
            if let Ok(bytes) = bytes {
                let offset = self.offset + ranges[at].0;
                requests.push(ReadRequest::new(&*self.file, offset, bytes));
                requested.push(at);
            }
        }
        self.disk.read_batch(&mut requests);
        let outcomes = requests.into_iter().map(|request| request.outcome);
        let failed: Vec<_> = requested
            .into_iter()
            .zip(outcomes)
            .filter_map(|(at, outcome)| Some((at, outcome.err()?)))
            .collect();
        for (at, error) in failed {
            read[at] = Err(error.into());
        }
        read
    }

    /// Verifies a piece that was read from `offset`, and returns its content.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if the checksum does not match.
    pub fn check<'a>(&self, offset: u64, piece: &'a [u8]) -> Result<&'a [u8], StoreError> {
        match piece.split_first_chunk::<PIECE_SUM_BYTES>() {
            Some((sum, bytes)) if u64::from_le_bytes(*sum) == xxh3_64(bytes) => Ok(bytes),
            _ => Err(self.corrupt(offset, "the checksum of a part does not match")),
        }
    }

    /// Creates an error of damage at `offset` of the section.
    pub fn corrupt(&self, offset: u64, what: &str) -> StoreError {
        StoreError::Corrupt {
            file: self.path.clone(),
            offset: self.offset.saturating_add(offset),
            what: what.to_owned(),
            advice: OPEN_AGAIN,
        }
    }

    /// Allocates a buffer for a range, after checking that it is within the section.
    fn room_for(&self, offset: u64, len: u64) -> Result<Vec<u8>, StoreError> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        match end {
            Some(_) => Ok(vec![0; len as usize]),
            None => Err(self.corrupt(offset, "a part is outside of its section")),
        }
    }
}
