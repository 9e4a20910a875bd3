//! Era1 archives: up to 8,192 blocks from before the merge, with receipts and total difficulties,
//! under one accumulator root.
//!
//! An era1 file is a sequence of e2store records:
//!
//! ```text
//! Version | (Header Body Receipts TotalDifficulty)* | Accumulator | BlockIndex
//! ```
//!
//! Records of other types are skipped. The index is read and checked first, and each block must be
//! at its indexed offset. The accumulator (an SSZ list of block hashes and total difficulties) can
//! be verified only after every header, so a wrong one is the error after the last block.

use super::{
    BLOCK_BYTES_MAX, FileError, FilePosition, Progress, RawBlock,
    input::{Counted, Opened, buffered, open_file, read_claimed},
    raw::HEADER_BYTES_MAX,
};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_rlp::Decodable;
use sha2::{Digest, Sha256};
use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
};

/// Maximum number of blocks in an era1 file.
pub const ERA1_BLOCKS_MAX: usize = 8192;

// An e2store record:
//
// | offset | size | meaning |
// |---|---|---|
// | 0 | 2 | type, little-endian |
// | 2 | 4 | length L of the data, little-endian |
// | 6 | 2 | reserved, zero |
// | 8 | L | data |
//
// Data by type (snappy: of the framing format; numbers little-endian):
//
// | type | meaning | data |
// |---|---|---|
// | 0x3265 | version | none |
// | 0x03 | header | snappy of its RLP |
// | 0x04 | body | snappy of the RLP list of transactions, ommers |
// | 0x05 | receipts | snappy of their RLP list |
// | 0x06 | total difficulty | 32 bytes |
// | 0x07 | accumulator | root, 32 bytes |
// | 0x3266 | block index | first number, 8; N offsets of headers from this record's start, 8N, signed; N, 8 |
const RECORD_HEAD: u64 = 8;
const VERSION: u16 = 0x3265;
const COMPRESSED_HEADER: u16 = 0x03;
const COMPRESSED_BODY: u16 = 0x04;
const COMPRESSED_RECEIPTS: u16 = 0x05;
const TOTAL_DIFFICULTY: u16 = 0x06;
const ACCUMULATOR: u16 = 0x07;
const BLOCK_INDEX: u16 = 0x3266;

/// Reads an era1 file block by block, holding one block in memory.
///
/// After an error the iterator ends.
#[derive(Debug)]
pub struct Era1Reader {
    file: Arc<str>,
    source: BufReader<Counted>,
    progress: Progress,
    /// Offset of the next record.
    position: u64,
    /// Offset of the last record that was not skipped.
    matched: u64,
    index: Index,
    /// Number of blocks read.
    read: u64,
    total_difficulty: Option<U256>,
    /// Root of each block's record in the accumulator.
    records: Vec<[u8; 32]>,
    accumulator: Option<B256>,
    done: bool,
}

#[derive(Debug)]
struct Index {
    first: u64,
    /// Where the index record starts.
    start: u64,
    /// Where each block's header record starts.
    offsets: Vec<u64>,
}

struct Record {
    kind: u16,
    data: Vec<u8>,
}

impl Era1Reader {
    /// Opens `path` and checks its index.
    ///
    /// # Errors
    ///
    /// If the file can't be read, is a pipe, or is not an era1 file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Self::from_opened(open_file(path.as_ref())?)
    }

    pub(super) fn from_opened(opened: Opened) -> Result<Self, FileError> {
        let Opened {
            name: file,
            file: mut handle,
            bytes,
            is_pipe,
            ..
        } = opened;
        let bad = |what: String| FileError::BadFile {
            file: file.clone(),
            what,
        };
        if is_pipe {
            return Err(bad("an era1 file can't be read from a pipe".into()));
        }
        let index = read_index(&mut handle, bytes)
            .map_err(|source| FileError::Open {
                file: file.clone(),
                source,
            })?
            .map_err(bad)?;
        let rewound = handle.rewind();
        rewound.map_err(|source| FileError::Open {
            file: file.clone(),
            source,
        })?;
        let progress = Progress::new(bytes);
        let mut reader = Self {
            source: buffered(handle, &progress),
            file,
            progress,
            position: 0,
            matched: 0,
            index,
            read: 0,
            total_difficulty: None,
            records: Vec::new(),
            accumulator: None,
            done: false,
        };
        let version = reader.record()?;
        if version.kind != VERSION || !version.data.is_empty() {
            return Err(reader.bad("not an era1 file: it does not begin with a version record"));
        }
        Ok(reader)
    }

    /// Number of the first block.
    pub const fn first_number(&self) -> u64 {
        self.index.first
    }

    /// Number of blocks in the file, according to its index.
    pub const fn blocks(&self) -> u64 {
        self.index.offsets.len() as u64
    }

    /// The accumulator root, once all blocks have been read and it has been verified.
    pub const fn accumulator(&self) -> Option<B256> {
        self.accumulator
    }

    /// Bytes of the archive read so far, and its length: a count that other threads can follow.
    pub const fn progress(&self) -> &Progress {
        &self.progress
    }

    fn place(&self) -> FilePosition {
        FilePosition {
            item: "block",
            file: self.file.clone(),
            offset: self.position,
            index: self.read,
            after: self
                .read
                .checked_sub(1)
                .map(|read| self.index.first.saturating_add(read)),
            unpacked: false,
        }
    }

    fn bad(&self, what: impl Into<String>) -> FileError {
        FileError::BadFile {
            file: self.file.clone(),
            what: what.into(),
        }
    }

    fn malformed(&self, what: impl Into<String>) -> FileError {
        FileError::Malformed {
            place: Box::new(self.place()),
            what: what.into(),
        }
    }

    /// The next record, of at most [`BLOCK_BYTES_MAX`] bytes of data.
    fn record(&mut self) -> Result<Record, FileError> {
        let found = self.place();
        let place = || Box::new(found.clone());
        let mut head = Vec::with_capacity(8);
        let read = |source| FileError::Read {
            place: place(),
            source,
        };
        read_claimed(&mut self.source, 8, &mut head).map_err(read)?;
        let Ok(head) = <[u8; 8]>::try_from(head.as_slice()) else {
            let there = head.len() as u64;
            return Err(FileError::CutShort {
                place: place(),
                claimed: RECORD_HEAD,
                there,
            });
        };
        let (kind, len) = record_head(head).map_err(|what| self.malformed(what))?;
        if len as usize > BLOCK_BYTES_MAX {
            let (claimed, limit) = (u64::from(len), BLOCK_BYTES_MAX as u64);
            return Err(FileError::TooLong {
                place: place(),
                claimed,
                limit,
            });
        }
        let mut data = Vec::new();
        read_claimed(&mut self.source, len as usize, &mut data).map_err(read)?;
        if data.len() < len as usize {
            let (claimed, there) = (u64::from(len), data.len() as u64);
            return Err(FileError::CutShort {
                place: place(),
                claimed,
                there,
            });
        }
        self.position += RECORD_HEAD + u64::from(len);
        Ok(Record { kind, data })
    }

    /// The data of the next record of a known type, which must be `kind`.
    fn expect(&mut self, kind: u16, what: &str) -> Result<Vec<u8>, FileError> {
        loop {
            let start = self.position;
            let record = self.record()?;
            if record.kind == kind {
                self.matched = start;
                return Ok(record.data);
            }
            if matches!(
                record.kind,
                COMPRESSED_HEADER..=ACCUMULATOR | VERSION | BLOCK_INDEX
            ) {
                let found = record.kind;
                return Err(self.malformed(format!("a record of type 0x{found:02x}, not a {what}")));
            }
        }
    }

    fn expect_snappy(
        &mut self,
        kind: u16,
        what: &str,
        bytes_max: usize,
    ) -> Result<Vec<u8>, FileError> {
        let packed = self.expect(kind, what)?;
        let mut unpacked = Vec::new();
        snap::read::FrameDecoder::new(packed.as_slice())
            .take(bytes_max as u64 + 1)
            .read_to_end(&mut unpacked)
            .map_err(|error| self.malformed(format!("{what} can't be unpacked: {error}")))?;
        if unpacked.len() > bytes_max {
            let limit = bytes_max as u64;
            let place = Box::new(self.place());
            return Err(FileError::TooLong {
                place,
                claimed: unpacked.len() as u64,
                limit,
            });
        }
        Ok(unpacked)
    }

    fn expect_32(&mut self, kind: u16, what: &str) -> Result<[u8; 32], FileError> {
        let data = self.expect(kind, what)?;
        let len = data.len();
        data.try_into()
            .map_err(|_| self.malformed(format!("{what} of {len} bytes, not 32")))
    }

    fn read_block(&mut self) -> Result<RawBlock, FileError> {
        let place = self.place();
        let number = self.index.first + self.read;
        let header_rlp = self.expect_snappy(COMPRESSED_HEADER, "header", HEADER_BYTES_MAX)?;
        // Skipped records may precede the block's first record.
        let (start, indexed) = (self.matched, self.index.offsets[self.read as usize]);
        if start != indexed {
            return Err(self.malformed(format!(
                "block {number} is at byte {start}, but the index has it at {indexed}"
            )));
        }
        let body_rlp = self.expect_snappy(COMPRESSED_BODY, "body", BLOCK_BYTES_MAX)?;
        let receipts =
            self.expect_snappy(COMPRESSED_RECEIPTS, "list of receipts", BLOCK_BYTES_MAX)?;
        // Snappy skips chunks of unknown types, so the unpacked data need not be a list.
        if whole_list(&receipts).is_none() {
            return Err(self.malformed("the receipts are not an RLP list"));
        }
        let total = U256::from_le_bytes(self.expect_32(TOTAL_DIFFICULTY, "total difficulty")?);

        let header = whole_header(&header_rlp).map_err(|error| self.malformed(error))?;
        if header.number != number {
            let found = header.number;
            return Err(self.malformed(format!("the header has number {found}, expected {number}")));
        }
        let before = match self.total_difficulty {
            None if number == 0 => Some(U256::ZERO),
            before => before,
        };
        if let Some(before) = before
            && before.checked_add(header.difficulty) != Some(total)
        {
            let added = header.difficulty;
            return Err(self.malformed(format!(
                "block {number} has difficulty {added}, but the total goes from {before} to {total}"
            )));
        }
        let rlp = join(&header_rlp, &body_rlp)
            .ok_or_else(|| self.malformed("the body is not an RLP list"))?;

        self.records
            .push(hash_pair(&keccak256(&header_rlp).0, &total.to_le_bytes()));
        self.total_difficulty = Some(total);
        self.read += 1;
        Ok(RawBlock {
            rlp,
            receipts: Some(receipts.into()),
            total_difficulty: Some(total),
            access_list: None,
            update: None,
            place,
        })
    }

    fn read_end(&mut self) -> Result<(), FileError> {
        let claimed = B256::from(self.expect_32(ACCUMULATOR, "accumulator root")?);
        while self.position < self.index.start {
            let record = self.record()?;
            if matches!(record.kind, COMPRESSED_HEADER..=ACCUMULATOR) {
                return Err(self.bad("it has more blocks than its index"));
            }
        }
        if self.position != self.index.start {
            return Err(self.bad("its last records overlap the index"));
        }
        let root = accumulator_root(std::mem::take(&mut self.records));
        if root != claimed {
            return Err(self.bad(format!(
                "its accumulator root is {claimed}, but its blocks have {root}: it is corrupt"
            )));
        }
        self.accumulator = Some(root);
        Ok(())
    }
}

impl Iterator for Era1Reader {
    type Item = Result<RawBlock, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = if self.read < self.blocks() {
            Some(self.read_block())
        } else {
            self.read_end().err().map(Err)
        };
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

fn record_head(head: [u8; 8]) -> Result<(u16, u32), String> {
    let [k0, k1, l0, l1, l2, l3, reserved @ ..] = head;
    if reserved != [0; 2] {
        return Err("not an e2store record: its reserved bytes are not zero".into());
    }
    Ok((
        u16::from_le_bytes([k0, k1]),
        u32::from_le_bytes([l0, l1, l2, l3]),
    ))
}

/// Reads the index at the end of the file. The outer error is that of reading, the inner one describes the fault of the
/// file.
fn read_index(file: &mut File, bytes: u64) -> io::Result<Result<Index, String>> {
    let truncated = || "not a complete era1 file: it does not end with a block index".to_string();
    let mut number = [0; 8];
    if bytes < 2 * RECORD_HEAD + 16 {
        return Ok(Err(truncated()));
    }
    file.seek(SeekFrom::Start(bytes - 8))?;
    file.read_exact(&mut number)?;
    let count = u64::from_le_bytes(number);
    if count == 0 || count > ERA1_BLOCKS_MAX as u64 {
        return Ok(Err(truncated()));
    }
    let data_bytes = 16 + 8 * count;
    let Some(start) = bytes.checked_sub(RECORD_HEAD + data_bytes) else {
        return Ok(Err(truncated()));
    };
    file.seek(SeekFrom::Start(start))?;
    let mut record = vec![0; (RECORD_HEAD + data_bytes) as usize];
    file.read_exact(&mut record)?;
    let mut words = record.chunks_exact(8).map(|word| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(word);
        bytes
    });
    let head = words.next().map(record_head);
    if head != Some(Ok((BLOCK_INDEX, data_bytes as u32))) {
        return Ok(Err(truncated()));
    }
    let first = words.next().map_or(0, u64::from_le_bytes);
    if first.checked_add(count).is_none() {
        return Ok(Err(format!("its index begins at block {first}")));
    }
    let mut offsets = Vec::with_capacity(count as usize);
    for (number, word) in (first..first + count).zip(words) {
        let relative = i64::from_le_bytes(word);
        match start.checked_add_signed(relative) {
            Some(offset) if offset < start => offsets.push(offset),
            _ => {
                return Ok(Err(format!(
                    "its index has block {number} outside the file"
                )));
            }
        }
    }
    Ok(Ok(Index {
        first,
        start,
        offsets,
    }))
}

fn whole_header(mut rlp: &[u8]) -> Result<Header, String> {
    let header = Header::decode(&mut rlp).map_err(|error| format!("invalid header: {error}"))?;
    if rlp.is_empty() {
        Ok(header)
    } else {
        Err("invalid header: surplus bytes".into())
    }
}

/// The payload of an RLP list. `None` if the bytes are not exactly one list.
fn whole_list(mut rlp: &[u8]) -> Option<&[u8]> {
    let inside = alloy_rlp::Header::decode_bytes(&mut rlp, true).ok()?;
    rlp.is_empty().then_some(inside)
}

/// Joins the RLP of a header and of a body to that of a block.
fn join(header: &[u8], body: &[u8]) -> Option<Bytes> {
    let fields = whole_list(body)?;
    let payload_length = header.len() + fields.len();
    let mut rlp = Vec::with_capacity(payload_length + 9);
    alloy_rlp::Header {
        list: true,
        payload_length,
    }
    .encode(&mut rlp);
    rlp.extend_from_slice(header);
    rlp.extend_from_slice(fields);
    Some(rlp.into())
}

fn hash_pair(left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
    Sha256::new()
        .chain_update(left)
        .chain_update(right)
        .finalize()
        .into()
}

/// SSZ's `hash_tree_root` of a list of at most [`ERA1_BLOCKS_MAX`] records of these roots.
fn accumulator_root(mut nodes: Vec<[u8; 32]>) -> B256 {
    let mut length = [0; 32];
    length[..8].copy_from_slice(&(nodes.len() as u64).to_le_bytes());
    let mut zero = [0; 32];
    for _ in 0..ERA1_BLOCKS_MAX.ilog2() {
        nodes = nodes
            .chunks(2)
            .map(|pair| hash_pair(&pair[0], pair.get(1).unwrap_or(&zero)))
            .collect();
        zero = hash_pair(&zero, &zero);
    }
    hash_pair(nodes.first().unwrap_or(&zero), &length).into()
}
