//! Framed records in append-only files, and the rule that separates torn records from damaged ones.
//!
//! After a power loss the end of an append-only file may hold anything: each unacknowledged record
//! may be intact, missing or torn, independently of the others. That is expected, and recovery
//! drops them. Damage to an *acknowledged* record must be reported instead. So each record stores
//! the position up to which everything was durable when it was written. A damaged record counts as
//! torn unless a later record proves that it had been durable.
//!
//! ```text
//!   A ok | B damaged | C ok, "durable to the end of A"   B and C were never acknowledged: drop both
//!   A ok | B damaged | C ok, "durable to the end of B"   B was acknowledged: report the damage
//! ```
//!
//! Checksums are seeded with a random number of the database (the salt). An attacker chooses payload data, and could
//! otherwise embed bytes in a block that pass for a record when the block's own record is torn.

use alloy_primitives::B256;
use cambium_disk::{DiskError, DiskFile, copy_range};
use cambium_primitives::Reader;
use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

// Record, at a multiple of 8. Numbers are little-endian.
//
// OFFSET  SIZE  MEANING
// 0       8     xxh3-64, seeded with the salt, of 8 .. 40 + n
// 8       4     "CbRc"
// 12      1     kind, the caller's
// 13      3     zeros
// 16      8     position of this record
// 24      8     position up to which all was durable when this record was written
// 32      4     length n of the payload
// 36      4     low half of xxh3-64, seeded with the salt, of 8 .. 36
// 40      n     payload
// 40 + n        zeros to a multiple of 8
const MAGIC: &[u8; 4] = b"CbRc";
/// Size of a record's frame in bytes.
pub(crate) const FRAME_BYTES: usize = 40;
const ALIGN_BYTES: u64 = 8;

/// Size in bytes of a key at the start of a payload, with a checksum of its own.
pub(crate) const KEY_BYTES: usize = 40;

/// Largest payload of a record in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = 1 << 30;

/// Bytes that a search reads at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) position: u64,
    pub(crate) durable_to: u64,
    pub(crate) len: u32,
    checksum: u64,
}

/// Result of reading at an offset where a record may begin.
#[derive(Debug)]
pub(crate) enum Found {
    Record(Frame, Vec<u8>),
    /// Zeros, or the end of the file: no record was written here.
    End,
    /// Bytes that are not an intact record, and the reason.
    Damage(&'static str),
}

/// A file of records, with the parameters for reading them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordFile<'a> {
    pub(crate) file: &'a dyn DiskFile,
    pub(crate) salt: u64,
    /// Position of the file's first byte. Positions are unique across all files of a kind.
    pub(crate) base: u64,
    /// End of the area that may hold records, in bytes.
    pub(crate) len: u64,
}

/// Returns the size in bytes of a record with a payload of this length.
pub(crate) const fn record_bytes(payload_len: u64) -> u64 {
    (FRAME_BYTES as u64 + payload_len).next_multiple_of(ALIGN_BYTES)
}

/// Appends a record to `out`, whose length must be a multiple of 8. The payload is the
/// concatenation of `parts`.
pub(crate) fn put_record(
    out: &mut Vec<u8>,
    salt: u64,
    kind: u8,
    position: u64,
    durable_to: u64,
    parts: &[&[u8]],
) {
    let start = out.len();
    let len: usize = parts.iter().map(|part| part.len()).sum();
    out.extend([0; 8]);
    out.extend(MAGIC);
    out.extend([kind, 0, 0, 0]);
    out.extend(position.to_le_bytes());
    out.extend(durable_to.to_le_bytes());
    out.extend(
        u32::try_from(len)
            .expect("a payload within its limit")
            .to_le_bytes(),
    );
    out.extend(frame_check(salt, &out[start + 8..]));
    parts.iter().for_each(|part| out.extend_from_slice(part));
    let checksum = xxh3_64_with_seed(&out[start + 8..], salt);
    out[start..start + 8].copy_from_slice(&checksum.to_le_bytes());
    out.resize(start + record_bytes(len as u64) as usize, 0);
}

/// Whether all bytes are zero, of which many are compared at once.
fn is_zero(bytes: &[u8]) -> bool {
    let (lines, rest) = bytes.as_chunks::<64>();
    let is_set = |line: &[u8]| line.iter().fold(0, |all, byte| all | byte) != 0;
    !lines.iter().any(|line| is_set(line)) && !is_set(rest)
}

fn frame_check(salt: u64, bytes: &[u8]) -> [u8; 4] {
    (xxh3_64_with_seed(bytes, salt) as u32).to_le_bytes()
}

/// Encodes a key (32 bytes) with its checksum (8). With it a payload's key is known without reading
/// the rest.
pub(crate) fn encode_key(salt: u64, key: &B256) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes[..32].copy_from_slice(key.as_slice());
    let check = xxh3_64_with_seed(key.as_slice(), salt);
    bytes[32..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Decodes the key at the start of a payload. Returns `None` if its checksum does not match.
pub(crate) fn decode_key(salt: u64, payload: &[u8]) -> Option<B256> {
    let bytes = payload.get(..KEY_BYTES)?;
    let key = B256::from_slice(&bytes[..32]);
    (bytes == encode_key(salt, &key)).then_some(key)
}

/// Verifies that `bytes` are the whole record at `position`. Returns its frame and its payload, or a description of the
/// fault.
pub(crate) fn verify_record(
    bytes: &[u8],
    salt: u64,
    position: u64,
) -> Result<(Frame, &[u8]), &'static str> {
    let frame = Frame::decode(bytes, salt)
        .filter(|frame| frame.position == position && frame.size() == bytes.len() as u64)
        .ok_or("there is no intact record")?;
    let (content, padding) = bytes.split_at(FRAME_BYTES + frame.len as usize);
    let is_intact = xxh3_64_with_seed(&content[8..], salt) == frame.checksum;
    if !is_intact || padding.iter().any(|&byte| byte != 0) {
        return Err("the checksum of a record does not match");
    }
    Ok((frame, &content[FRAME_BYTES..]))
}

impl Frame {
    /// Decodes the frame at the start of `bytes`. Returns `None` if it is not intact.
    pub(crate) fn decode(bytes: &[u8], salt: u64) -> Option<Self> {
        let mut reader = Reader::new(bytes.get(..FRAME_BYTES)?);
        let checksum = reader.u64().ok()?;
        let magic = reader.take(4).ok()?;
        let kind = reader.u8().ok()?;
        let zeros = reader.take(3).ok()?;
        let (position, durable_to) = (reader.u64().ok()?, reader.u64().ok()?);
        let len = reader.u32().ok()?;
        let sound = magic == MAGIC && zeros == [0; 3] && durable_to <= position;
        (sound && bytes[36..40] == frame_check(salt, &bytes[8..36])).then_some(Self {
            kind,
            position,
            durable_to,
            len,
            checksum,
        })
    }

    /// Returns the size of the whole record in bytes.
    pub(crate) const fn size(&self) -> u64 {
        record_bytes(self.len as u64)
    }
}

impl RecordFile<'_> {
    /// Decodes the frame in `bytes`. Returns `None` unless it belongs to the record at `offset` and
    /// the record fits into the file.
    fn decode(&self, bytes: &[u8], offset: u64) -> Option<Frame> {
        let room = self.len.saturating_sub(offset);
        Frame::decode(bytes, self.salt)
            .filter(|frame| frame.position == self.base + offset && frame.size() <= room)
    }

    /// Reads the record at `offset` and verifies its checksum. The claimed length is checked before
    /// memory is allocated for it.
    pub(crate) fn record(&self, offset: u64) -> Result<Found, DiskError> {
        let room = self.len.saturating_sub(offset);
        let mut head = [0; FRAME_BYTES];
        let there = room.min(FRAME_BYTES as u64) as usize;
        self.file.read_at(&mut head[..there], offset)?;
        if head == [0; FRAME_BYTES] {
            return Ok(Found::End);
        }
        let Some(frame) = self.decode(&head, offset) else {
            return Ok(Found::Damage("there is no intact record"));
        };
        let mut payload = vec![0; frame.size() as usize - FRAME_BYTES];
        self.file
            .read_at(&mut payload, offset + FRAME_BYTES as u64)?;
        let mut hasher = Xxh3::with_seed(self.salt);
        hasher.update(&head[8..]);
        hasher.update(&payload[..frame.len as usize]);
        let padding = &payload[frame.len as usize..];
        if hasher.digest() != frame.checksum || padding.iter().any(|&byte| byte != 0) {
            return Ok(Found::Damage("the checksum of a record does not match"));
        }
        payload.truncate(frame.len as usize);
        Ok(Found::Record(frame, payload))
    }

    /// Reads the record at `offset` with at most the first `head` bytes of its payload. The payload
    /// is not verified.
    pub(crate) fn record_head(&self, offset: u64, head: usize) -> Result<Found, DiskError> {
        let room = self.len.saturating_sub(offset);
        let take = room.min((FRAME_BYTES + head) as u64) as usize;
        let mut bytes = vec![0; take.max(FRAME_BYTES)];
        self.file.read_at(&mut bytes[..take], offset)?;
        if bytes[..FRAME_BYTES] == [0; FRAME_BYTES] {
            return Ok(Found::End);
        }
        let Some(frame) = self.decode(&bytes, offset) else {
            return Ok(Found::Damage("there is no intact record"));
        };
        bytes.drain(..FRAME_BYTES);
        bytes.truncate(frame.len as usize);
        Ok(Found::Record(frame, bytes))
    }

    /// Reads the frame of the record at `offset`, and fills `head` with the start of its payload,
    /// which is not verified. Returns `None` if there is no frame, or the payload is shorter than
    /// `head`.
    pub(crate) fn frame(&self, offset: u64, head: &mut [u8]) -> Result<Option<Frame>, DiskError> {
        let size = (FRAME_BYTES + head.len()) as u64;
        let room = self.len.saturating_sub(offset);
        if room < size {
            return Ok(None);
        }
        let mut bytes = vec![0; size as usize];
        self.file.read_at(&mut bytes, offset)?;
        head.copy_from_slice(&bytes[FRAME_BYTES..]);
        Ok(self
            .decode(&bytes, offset)
            .filter(|frame| frame.size() >= size))
    }

    /// Searches from `from` on for an intact record that proves the byte at `position` durable.
    /// Returns the record's offset.
    pub(crate) fn find_durability_proof(
        &self,
        from: u64,
        position: u64,
    ) -> Result<Option<u64>, DiskError> {
        let mut at = from.next_multiple_of(ALIGN_BYTES);
        let mut piece = vec![0; PIECE_BYTES];
        while at + (FRAME_BYTES as u64) <= self.len {
            let take = (self.len - at).min(PIECE_BYTES as u64) as usize;
            self.file.read_at(&mut piece[..take], at)?;
            let last = take - FRAME_BYTES;
            for start in (0..=last).step_by(ALIGN_BYTES as usize) {
                if piece[start + 8..start + 12] == *MAGIC
                    && let Some(frame) = Frame::decode(&piece[start..], self.salt)
                    && frame.durable_to > position
                    && matches!(self.record(at + start as u64)?, Found::Record(..))
                {
                    return Ok(Some(at + start as u64));
                }
            }
            at += (last as u64 / ALIGN_BYTES + 1) * ALIGN_BYTES;
        }
        Ok(None)
    }

    /// Searches from `from` on for an intact record, and returns its offset. Skips records that state
    /// nothing to be durable.
    pub(crate) fn find_record(&self, from: u64) -> Result<Option<u64>, DiskError> {
        self.find_durability_proof(from, 0)
    }

    /// Writes the bytes `from .. to` again, unchanged. After a failed sync the operating system may
    /// hold bytes that it considers written although they never reached the disk. Reading them
    /// proves nothing; only rewriting them makes the next sync write them.
    pub(crate) fn rewrite(&self, from: u64, to: u64) -> Result<(), DiskError> {
        copy_range(self.file, from..to, self.file, from, |_| ())
    }

    /// Returns the end of the last byte from `from` on that is not zero, or `None` if all are zero.
    pub(crate) fn content_end(&self, from: u64) -> Result<Option<u64>, DiskError> {
        let mut end = None;
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = from;
        while at < self.len {
            let take = (self.len - at).min(PIECE_BYTES as u64) as usize;
            self.file.read_at(&mut piece[..take], at)?;
            // A log ends in zeros that are looked at again and again, so they are passed over many at a time.
            if !is_zero(&piece[..take])
                && let Some(last) = piece[..take].iter().rposition(|&byte| byte != 0)
            {
                end = Some(at + last as u64 + 1);
            }
            at += take as u64;
        }
        Ok(end)
    }
}
