//! Format of a checkpoint file, and the identity of a checkpoint and its base.

use crate::StoreError;
use cambium_disk::WritePace;
use cambium_primitives::{DecodeError, Reader};
use xxhash_rust::xxh3::Xxh3;

// Checkpoint. Numbers are little-endian.
//
// OFFSET    SIZE  MEANING
// 0         8     "CambiCkp"
// 8         4     format: 5
// 12        4     zeros
// 16        8     sequence number
// 24              sections, back to back; the first of an incremental checkpoint is "on":
//           8     sequence number of its base
//           8     sequence number of the first checkpoint in its chain of bases
// d               directory: of each section, in order,
//           1     length of its name
//                 name
//           8     length of the section
//           8     xxh3-64 of the section
// end - 24  8     d
// end - 16  8     number of sections
// end - 8   8     xxh3-64 of the first 24 bytes, the directory, and the 16 bytes before this
pub(super) const MAGIC: &[u8; 8] = b"CambiCkp";
pub(crate) const FORMAT: u32 = 5;
pub(super) const HEADER_BYTES: u64 = 24;
pub(super) const TRAILER_BYTES: u64 = 24;
pub(super) const DIRECTORY_BYTES_MAX: u64 = 1 << 20;

/// Name of the section that names the checkpoint's base.
pub(super) const BASE_SECTION: &str = "on";
pub(super) const BASE_SECTION_BYTES: u64 = 16;

/// Bytes that are written past the page cache at a time, and verified at a time.
pub(super) const FLUSH_BYTES: usize = WritePace::PIECE_BYTES;

/// Identity of a checkpoint and of those on which it is based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointId {
    /// Sequence number of the checkpoint. Each is greater than all before.
    pub sequence: u64,
    /// Sequence number of the base. Without one it is the checkpoint's own.
    pub(super) before: u64,
    /// Sequence number of the first checkpoint in the chain of bases. Without a base it is the
    /// checkpoint's own.
    pub(super) first: u64,
}

impl CheckpointId {
    /// Creates the identity of a checkpoint based on `before`.
    pub(super) const fn new(sequence: u64, before: Option<Self>) -> Self {
        let (before, first) = match before {
            None => (sequence, sequence),
            Some(before) => (before.sequence, before.first),
        };
        Self {
            sequence,
            before,
            first,
        }
    }

    /// Returns the sequence number of the base, if there is one.
    pub fn before(&self) -> Option<u64> {
        (self.before != self.sequence).then_some(self.before)
    }

    pub(super) fn encode(&self) -> [u8; BASE_SECTION_BYTES as usize] {
        let mut bytes = [0; BASE_SECTION_BYTES as usize];
        bytes[..8].copy_from_slice(&self.before.to_le_bytes());
        bytes[8..].copy_from_slice(&self.first.to_le_bytes());
        bytes
    }

    /// Decodes the section [`BASE_SECTION`]. Returns `None` if the numbers are impossible.
    pub(super) fn decode(sequence: u64, bytes: &[u8]) -> Option<Self> {
        let (before, first) = bytes.split_first_chunk()?;
        let before = u64::from_le_bytes(*before);
        let first = u64::from_le_bytes(first.try_into().ok()?);
        (first <= before && before < sequence).then_some(Self {
            sequence,
            before,
            first,
        })
    }
}

#[derive(Debug)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) checksum: u64,
}

/// Finds the section `name` of the checkpoint at `path`, or returns an error.
pub(super) fn find_section<'a>(
    sections: &'a [Section],
    name: &str,
    path: &str,
) -> Result<&'a Section, StoreError> {
    let found = sections.iter().find(|section| section.name == name);
    found.ok_or_else(|| {
        StoreError::corrupt(path.to_owned(), 0, format!("section {name} is missing"))
    })
}

/// Returns the length of the section `name` in bytes, if there is one.
pub(super) fn len_of(sections: &[Section], name: &str) -> Option<u64> {
    let found = sections.iter().find(|section| section.name == name);
    found.map(|section| section.len)
}

/// Encodes the header of a checkpoint.
pub(super) fn header_of(sequence: u64, format: u32) -> [u8; HEADER_BYTES as usize] {
    let mut header = [0; HEADER_BYTES as usize];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&format.to_le_bytes());
    header[16..].copy_from_slice(&sequence.to_le_bytes());
    header
}

/// Encodes the directory, which begins at offset `start`, and the trailer.
pub(super) fn encode_directory(sequence: u64, sections: &[Section], start: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for section in sections {
        bytes.push(section.name.len() as u8);
        bytes.extend(section.name.as_bytes());
        bytes.extend(section.len.to_le_bytes());
        bytes.extend(section.checksum.to_le_bytes());
    }
    bytes.extend(start.to_le_bytes());
    bytes.extend((sections.len() as u64).to_le_bytes());
    bytes.extend(directory_checksum(sequence, FORMAT, &bytes).to_le_bytes());
    bytes
}

/// Computes the checksum of the header, the directory and the trailer.
pub(super) fn directory_checksum(sequence: u64, format: u32, bytes: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&header_of(sequence, format));
    hasher.update(bytes);
    hasher.digest()
}

/// Decodes the directory and the trailer written by [`encode_directory`].
pub(super) fn decode_directory(
    sequence: u64,
    format: u32,
    bytes: &[u8],
    start: u64,
) -> Result<Vec<Section>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let Some((content, sum)) = bytes.split_last_chunk::<8>() else {
        return Err(reader.error("cut short"));
    };
    if u64::from_le_bytes(*sum) != directory_checksum(sequence, format, content) {
        return Err(reader.error("the checksum of its directory does not match"));
    }
    let mut sections = Vec::new();
    let mut offset = HEADER_BYTES;
    while reader.remaining() > TRAILER_BYTES as usize {
        let name_len = usize::from(reader.u8()?);
        let name = String::from_utf8(reader.take(name_len)?.to_vec())
            .map_err(|_| reader.error("a name is not UTF-8"))?;
        let (len, checksum) = (reader.u64()?, reader.u64()?);
        sections.push(Section {
            name,
            offset,
            len,
            checksum,
        });
        offset = offset
            .checked_add(len)
            .ok_or_else(|| reader.error("impossible length"))?;
    }
    if reader.remaining() != TRAILER_BYTES as usize
        || offset != start
        || reader.u64()? != start
        || reader.u64()? != sections.len() as u64
    {
        return Err(reader.error("impossible directory"));
    }
    Ok(sections)
}
