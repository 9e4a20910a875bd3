//! Files of blocks: what they have in common.
//!
//! A chain file is a stranger's: it may be cut short, corrupt, or claim sizes meant to exhaust
//! memory. Every reader here streams, checks each claimed length against a limit and against what
//! is really there before it holds that much, and names the file, the byte and the block in its
//! errors.
//!
//! [`BlockSource::open`] tells the kinds apart by their first bytes:
//!
//! | first bytes | kind |
//! |---|---|
//! | `65 32` | era1 ([`Era1Reader`]) |
//! | `1f 8b` | gzip of concatenated RLP ([`ChainReader`]) |
//! | anything else | concatenated RLP, as `geth export` writes it ([`ChainReader`]) |

mod access_lists;
mod era1;
mod rlp;

pub use access_lists::{AccessListReader, AccessListWriter, WithAccessLists};
pub use era1::{ERA1_BLOCKS_MAX, Era1Reader};
pub use rlp::{ChainReader, ChainWriter};

use alloy_consensus::{Header, ReceiptEnvelope};
use alloy_primitives::{Bytes, U256};
use alloy_rlp::{Decodable, Encodable};
use cambium_evm::Block;
use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Read, Seek},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The longest encoding of one block (or of its receipts) that a reader takes: 64 MiB.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// The longest encoding of a header: ten times what one in use has.
const HEADER_BYTES_MAX: usize = 64 << 10;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ERA1_MAGIC: [u8; 2] = [0x65, 0x32];
const BUFFER_BYTES: usize = 256 << 10;

/// What kind of file a [`BlockSource`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Concatenated block RLP.
    Rlp,
    /// Gzip of concatenated block RLP.
    RlpGzip,
    /// An era1 archive.
    Era1,
}

/// Where a block, or an access list, was found: names it in errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What the file is a row of: `block` or `access list`.
    pub item: &'static str,
    /// The file, as it was named to the reader.
    pub file: Arc<str>,
    /// Bytes before the item; of the unpacked data if the file is compressed as a whole.
    pub offset: u64,
    /// Items of this file before it.
    pub index: u64,
    /// The number of the block before it, or of the list before it, if there is one and it could
    /// be read.
    pub after: Option<u64>,
    /// Whether `offset` counts unpacked bytes.
    pub unpacked: bool,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unpacked = if self.unpacked { "unpacked " } else { "" };
        let Self {
            file, item, offset, ..
        } = self;
        write!(f, "{file}: {item} at {unpacked}byte {offset}")?;
        match (self.after, self.index) {
            (Some(number), _) => write!(f, " (after block {number})"),
            (None, 0) => write!(f, " (the file's first)"),
            (None, index) => write!(f, " (after {index} {item}s)"),
        }
    }
}

/// Why a file of blocks can't be read on, or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file can't be opened or created.
    #[error("{file}: can't be opened: {source}")]
    Open {
        /// The file.
        file: Arc<str>,
        /// The system's reason.
        source: io::Error,
    },
    /// Reading failed, or the compressed data is corrupt.
    #[error("{place}: can't be read: {source}")]
    Read {
        /// The block being read.
        place: Box<Place>,
        /// The reason.
        source: io::Error,
    },
    /// The file ends within a block.
    #[error("{place}: cut short: header claims {claimed} bytes, {there} are there")]
    CutShort {
        /// The block being read.
        place: Box<Place>,
        /// Bytes claimed by its length prefix, the prefix included.
        claimed: u64,
        /// Bytes that are there.
        there: u64,
    },
    /// A length prefix over the limit.
    #[error("{place}: header claims {claimed} bytes, the limit is {limit}")]
    TooLong {
        /// The block being read.
        place: Box<Place>,
        /// Bytes claimed by its length prefix.
        claimed: u64,
        /// Bytes that the reader takes.
        limit: u64,
    },
    /// The bytes are no block.
    #[error("{place}: {what}")]
    Malformed {
        /// The block being read.
        place: Box<Place>,
        /// What is wrong.
        what: String,
    },
    /// The file as a whole is not what it says it is.
    #[error("{file}: {what}")]
    BadFile {
        /// The file.
        file: Arc<str>,
        /// What is wrong.
        what: String,
    },
    /// Writing failed.
    #[error("{file}: can't be written: {source}")]
    Write {
        /// The file.
        file: Arc<str>,
        /// The system's reason.
        source: io::Error,
    },
}

/// A block's bytes, not looked into beyond their length.
#[derive(Clone, Debug)]
pub struct RawBlock {
    /// RLP of the block: a list of header, transactions, uncles and, from Shanghai, withdrawals.
    pub rlp: Bytes,
    /// RLP of the list of its receipts, where the file has them.
    pub receipts: Option<Bytes>,
    /// Total difficulty up to and with it, where the file has it.
    pub total_difficulty: Option<U256>,
    /// RLP of its access list, where that came with it.
    pub access_list: Option<Bytes>,
    /// Where it was found.
    pub place: Place,
}

impl RawBlock {
    /// The block's number, read from its header without decoding the rest.
    pub fn number(&self) -> Option<u64> {
        peek_number(&self.rlp)
    }

    /// Decodes the block, accepting only its one canonical encoding.
    pub fn decode(&self) -> Result<Block, FileError> {
        decode_block(&self.rlp).map_err(|what| self.malformed(what))
    }

    /// Decodes the block's header, and nothing else of it.
    pub fn header(&self) -> Result<Header, FileError> {
        decode_header(&self.rlp).map_err(|what| self.malformed(what))
    }

    /// Decodes the receipts, if the file has any.
    pub fn decode_receipts(&self) -> Result<Option<Vec<ReceiptEnvelope>>, FileError> {
        let Some(receipts) = &self.receipts else {
            return Ok(None);
        };
        let decoded = decode_whole(receipts, "no valid receipts");
        decoded.map(Some).map_err(|what| self.malformed(what))
    }

    fn malformed(&self, what: String) -> FileError {
        FileError::Malformed {
            place: Box::new(self.place.clone()),
            what,
        }
    }
}

/// Decodes a block, accepting only its one canonical encoding. An error says what is wrong.
pub(crate) fn decode_block(rlp: &[u8]) -> Result<Block, String> {
    let block: Block = decode_whole(rlp, "no valid block")?;
    // Decoding alone would let pass what the peer-to-peer network tolerates, such as a typed
    // transaction without its string header.
    let mut again = Vec::with_capacity(rlp.len());
    block.encode(&mut again);
    if again != rlp {
        return Err("no valid block: not in its canonical encoding".to_owned());
    }
    Ok(block)
}

/// Decodes the header of a block's RLP, and nothing else of it.
pub(crate) fn decode_header(mut rlp: &[u8]) -> Result<Header, String> {
    let no_block = |error: alloy_rlp::Error| format!("no valid block: {error}");
    let mut block = alloy_rlp::Header::decode_bytes(&mut rlp, true).map_err(no_block)?;
    let whole = block;
    let no_header = |error: alloy_rlp::Error| format!("no valid header: {error}");
    alloy_rlp::Header::decode_bytes(&mut block, true).map_err(no_header)?;
    let got = whole.len() - block.len();
    if got > HEADER_BYTES_MAX {
        let max = HEADER_BYTES_MAX;
        return Err(format!(
            "no valid header: it has {got} bytes, over the {max} allowed"
        ));
    }
    decode_whole(&whole[..got], "no valid header")
}

fn decode_whole<T: Decodable>(mut rlp: &[u8], what: &str) -> Result<T, String> {
    let value = T::decode(&mut rlp).map_err(|error| format!("{what}: {error}"))?;
    match rlp.len() {
        0 => Ok(value),
        surplus => Err(format!("{what}: {surplus} surplus bytes")),
    }
}

/// The number in the header of a block's RLP.
fn peek_number(mut rlp: &[u8]) -> Option<u64> {
    const FIELDS_BEFORE_NUMBER: usize = 8;
    let mut block = alloy_rlp::Header::decode_bytes(&mut rlp, true).ok()?;
    let mut header = alloy_rlp::Header::decode_bytes(&mut block, true).ok()?;
    for _ in 0..FIELDS_BEFORE_NUMBER {
        let field = alloy_rlp::Header::decode(&mut header).ok()?;
        header = header.get(field.payload_length..)?;
    }
    u64::decode(&mut header).ok()
}

/// How far a file has been read; clones count together, so that a progress bar can watch from
/// another thread.
#[derive(Clone, Debug)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: u64,
}

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            read: Arc::default(),
            total,
        }
    }

    /// Bytes of the file read so far, compressed if it is.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The file's size; 0 if it is a pipe.
    pub const fn bytes_total(&self) -> u64 {
        self.total
    }
}

/// A file that counts what is read of it.
#[derive(Debug)]
pub(crate) struct Counted {
    file: File,
    progress: Progress,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read(buffer)?;
        self.progress.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// An opened file whose first bytes have been looked at.
struct Opened {
    name: Arc<str>,
    /// The first two bytes, or as many as there are.
    magic: Vec<u8>,
    file: File,
    /// Its size; of a pipe 0, which can't be read twice: there `magic` is gone from `file`.
    bytes: u64,
    is_pipe: bool,
}

impl Opened {
    /// What must be read before `file`.
    fn unread(&self) -> Vec<u8> {
        if self.is_pipe {
            self.magic.clone()
        } else {
            Vec::new()
        }
    }
}

fn open_file(path: &Path) -> Result<Opened, FileError> {
    let name: Arc<str> = path.display().to_string().into();
    let open = || -> io::Result<Opened> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut magic = Vec::new();
        (&mut file).take(2).read_to_end(&mut magic)?;
        let is_pipe = !metadata.is_file();
        if !is_pipe {
            file.rewind()?;
        }
        let bytes = if is_pipe { 0 } else { metadata.len() };
        Ok(Opened {
            name: name.clone(),
            magic,
            file,
            bytes,
            is_pipe,
        })
    };
    open().map_err(|source| FileError::Open {
        file: name.clone(),
        source,
    })
}

/// Blocks out of a file of any kind that is known here.
///
/// After an error the iterator ends.
#[derive(Debug)]
pub struct BlockSource {
    kind: FileKind,
    reader: Reader,
}

#[derive(Debug)]
enum Reader {
    Rlp(ChainReader),
    Era1(Box<Era1Reader>),
}

impl BlockSource {
    /// Opens `path`, telling its kind by its first bytes.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let opened = open_file(path.as_ref())?;
        if opened.magic == ERA1_MAGIC {
            let reader = Reader::Era1(Box::new(Era1Reader::from_opened(opened)?));
            return Ok(Self {
                kind: FileKind::Era1,
                reader,
            });
        }
        let reader = ChainReader::from_opened(opened);
        let kind = if reader.is_gzip() {
            FileKind::RlpGzip
        } else {
            FileKind::Rlp
        };
        Ok(Self {
            kind,
            reader: Reader::Rlp(reader),
        })
    }

    /// What the file turned out to be.
    pub const fn kind(&self) -> FileKind {
        self.kind
    }

    /// How far it has been read.
    pub fn progress(&self) -> &Progress {
        match &self.reader {
            Reader::Rlp(reader) => reader.progress(),
            Reader::Era1(reader) => reader.progress(),
        }
    }
}

impl Iterator for BlockSource {
    type Item = Result<RawBlock, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.reader {
            Reader::Rlp(reader) => reader.next(),
            Reader::Era1(reader) => reader.next(),
        }
    }
}

pub(crate) fn buffered(file: File, progress: &Progress) -> BufReader<Counted> {
    BufReader::with_capacity(
        BUFFER_BYTES,
        Counted {
            file,
            progress: progress.clone(),
        },
    )
}

/// Reads exactly `len` bytes if they are there, else what is there; grows with what it reads, so
/// that a claim alone costs no memory.
fn read_claimed(source: &mut impl Read, len: usize, out: &mut Vec<u8>) -> io::Result<usize> {
    const STEP: usize = 1 << 20;
    out.reserve(len.min(STEP));
    source.take(len as u64).read_to_end(out)
}
