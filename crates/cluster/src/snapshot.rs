//! The state of a shard at one block, as bytes: what a shard starts from.
//!
//! ```text
//!   8         magic
//!   frames    1   kind
//!             4   length L, little-endian
//!             L   content
//!             8   xxh3 of kind, length and content, little-endian
//! ```
//!
//! | frame | content |
//! |---|---|
//! | head, first | RLP: number of the shard, of shards, the block's header, the nodes above the shards, a note |
//! | codes | RLP: a list of codes |
//! | accounts | changes as in the block log, in the order of paths; slots of a large account go on in the next frame |
//! | end, last | numbers of accounts and slots |
//!
//! The note is the state of the follower that made the snapshot, or empty: who starts from it goes on there.
//!
//! Checksums tell where a file or a stream is damaged. Whether the state is that of the block is verified by its root.

use crate::{
    message::{NODE_BYTES_MIN, decode_items, is_all, list, unlisted},
    range::ShardRange,
    shard::{ApplyError, Pin, Shard, ShardLimits, ShardLoader},
    top::NODES_MAX,
};
use alloy_consensus::Header;
use alloy_primitives::Bytes;
use alloy_rlp::{Decodable, Encodable};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes};
use std::io::{self, Read, Write};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"CMBSHRD1";
const HEAD: u8 = 1;
const CODES: u8 = 2;
const ACCOUNTS: u8 = 3;
const END: u8 = 4;
/// Most bytes of a frame's content. A writer ends frames at some part of it.
const FRAME_BYTES_MAX: usize = 16 << 20;
const FRAME_BYTES: usize = 1 << 20;
/// What a code takes beside its bytes.
const CODE_BYTES: usize = 128;
/// Leaves of a frame: about as many as [`FRAME_BYTES`] have.
const FRAME_LEAVES: usize = 10_000;

/// Why a shard can't be made of a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The bytes can't be read or written.
    #[error("a snapshot, at byte {at}: {source}")]
    Io {
        /// How many bytes came before.
        at: u64,
        /// What fails.
        source: io::Error,
    },
    /// The bytes are damaged, or of something else.
    #[error("a snapshot, at byte {at}: {what}: load another one")]
    Damaged {
        /// Where the frame begins.
        at: u64,
        /// What is wrong.
        what: String,
    },
    /// The snapshot is another shard's.
    #[error("a snapshot of shard {} of {}, and not of shard {} of {}", got.index(), got.count(), wanted.index(), wanted.count())]
    OtherShard {
        /// The shard that it is for.
        wanted: ShardRange,
        /// The shard that it is of.
        got: ShardRange,
    },
    /// Its state is not that of its block.
    #[error("a snapshot: {0}")]
    State(Box<ApplyError>),
}

/// Writes a snapshot: accounts and codes in any order of frames, accounts in the order of their paths.
#[derive(Debug)]
pub struct SnapshotWriter<W> {
    out: W,
    at: u64,
    accounts: u64,
    slots: u64,
    codes: Vec<Bytes>,
    code_bytes: usize,
}

impl<W: Write> SnapshotWriter<W> {
    /// Begins a snapshot of a shard's state after the block with this header. `top` are the nodes above the shards, and `note` is
    /// what who loads it gets with it.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn new(
        out: W,
        range: ShardRange,
        header: &Header,
        top: &[Bytes],
        note: &[u8],
    ) -> Result<Self, SnapshotError> {
        let mut writer = Self {
            out,
            at: 0,
            accounts: 0,
            slots: 0,
            codes: Vec::new(),
            code_bytes: 0,
        };
        writer.write(MAGIC)?;
        let mut content = Vec::new();
        let (index, count) = (range.index() as u64, range.count() as u64);
        let note = Bytes::copy_from_slice(note);
        list(
            &[&index, &count, header, &top.to_vec(), &note],
            &mut content,
        );
        writer.frame(HEAD, &content)?;
        Ok(writer)
    }

    /// Adds accounts with their slots, which come after those before. A change that keeps the account has more slots of the
    /// last one.
    ///
    /// # Errors
    ///
    /// If they can't be written.
    ///
    /// # Panics
    ///
    /// If accounts come twice, or slots do.
    pub fn accounts(&mut self, accounts: Vec<AccountDiff>) -> Result<(), SnapshotError> {
        let put = |change: &&AccountDiff| change.account != AccountUpdate::Keep;
        self.accounts += accounts.iter().filter(put).count() as u64;
        let changes = Changes::new(accounts);
        self.slots += changes.counts().1 as u64;
        self.frame(ACCOUNTS, &changes.encode())
    }

    /// Adds a code.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn code(&mut self, code: Bytes) -> Result<(), SnapshotError> {
        self.code_bytes += code.len();
        self.codes.push(code);
        match self.code_bytes < FRAME_BYTES {
            true => Ok(()),
            false => self.write_codes(),
        }
    }

    fn write_codes(&mut self) -> Result<(), SnapshotError> {
        let codes = std::mem::take(&mut self.codes);
        self.code_bytes = 0;
        if codes.is_empty() {
            return Ok(());
        }
        let mut content = Vec::new();
        codes.encode(&mut content);
        self.frame(CODES, &content)
    }

    /// Ends the snapshot.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    pub fn finish(mut self) -> Result<W, SnapshotError> {
        self.write_codes()?;
        let mut content = self.accounts.to_le_bytes().to_vec();
        content.extend(self.slots.to_le_bytes());
        self.frame(END, &content)?;
        let at = self.at;
        let flushed = self.out.flush();
        flushed.map_err(|source| SnapshotError::Io { at, source })?;
        Ok(self.out)
    }

    fn frame(&mut self, kind: u8, content: &[u8]) -> Result<(), SnapshotError> {
        let mut frame = Vec::with_capacity(content.len() + 13);
        frame.push(kind);
        frame.extend((content.len() as u32).to_le_bytes());
        frame.extend(content);
        frame.extend(xxh3_64(&frame).to_le_bytes());
        self.write(&frame)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        let at = self.at;
        let written = self.out.write_all(bytes);
        written.map_err(|source| SnapshotError::Io { at, source })?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

impl Shard {
    /// Writes a snapshot of the oldest block's state. Updates and reads go on meanwhile; what is finalized stays in memory until the
    /// end.
    ///
    /// # Errors
    ///
    /// If it can't be written.
    ///
    /// # Panics
    ///
    /// Never: the version is kept while it is read.
    pub fn write_snapshot<W: Write>(&self, out: W, note: &[u8]) -> Result<W, SnapshotError> {
        self.write_pinned(&self.pin(), out, note)
    }

    /// Writes a snapshot of a version that is kept.
    pub(crate) fn write_pinned<W: Write>(
        &self,
        pin: &Pin<'_>,
        out: W,
        note: &[u8],
    ) -> Result<W, SnapshotError> {
        let there = "a pinned version is there";
        let (header, top) = self.header(pin.block).expect(there);
        let mut writer = SnapshotWriter::new(out, self.range(), &header, &top, note)?;
        for hash in self.code_hashes() {
            // A code of a block that lost may have gone meanwhile.
            if let Some(code) = self.code(&hash) {
                writer.code(code)?;
            }
        }
        let mut next = Some(self.first_place());
        while let Some(place) = next {
            let (accounts, after) = self.leaves(pin.block, place, FRAME_LEAVES).expect(there);
            writer.accounts(accounts)?;
            next = after;
        }
        writer.finish()
    }

    /// Makes a shard of a snapshot, which is untrusted: its block is that with the hash of its header, and the caller decides
    /// whether it wants that one. Returns the note as well, of which nothing is verified.
    ///
    /// # Errors
    ///
    /// If the snapshot is damaged, another shard's, or not that of its block.
    pub fn read_snapshot(
        source: impl Read,
        wanted: ShardRange,
        limits: ShardLimits,
    ) -> Result<(Self, Vec<u8>), SnapshotError> {
        let mut reader = SnapshotReader { source, at: 0 };
        let head = reader.head()?;
        if head.range != wanted {
            let got = head.range;
            return Err(SnapshotError::OtherShard { wanted, got });
        }
        let mut loader = ShardLoader::new(wanted);
        let (mut accounts, mut slots, mut code_bytes) = (0, 0, 0);
        loop {
            let start = reader.at;
            // In memory it takes more than as a snapshot.
            if start > limits.bytes as u64 {
                let max = limits.bytes;
                let what = format!("it is longer than the {max} bytes that the shard may have");
                return Err(reader.damaged(start, &what));
            }
            let (kind, content) = reader.frame()?;
            match kind {
                CODES => {
                    let codes = decode_items(&mut &content[..], "codes", 1, FRAME_BYTES_MAX);
                    let codes = codes.map_err(|error| reader.damaged(start, &error.to_string()))?;
                    code_bytes += codes
                        .iter()
                        .map(|code| code.len() + CODE_BYTES)
                        .sum::<usize>();
                    if code_bytes > limits.bytes {
                        let max = limits.bytes;
                        let what =
                            format!("codes of more than the {max} bytes that the shard may have");
                        return Err(reader.damaged(start, &what));
                    }
                    codes.into_iter().for_each(|code| loader.put_code(code));
                }
                ACCOUNTS => {
                    let changes = Changes::decode(&content)
                        .map_err(|error| reader.damaged(start, &error.to_string()))?;
                    let own = changes.accounts();
                    let is_own = |change: &&AccountDiff| wanted.place(&change.path).is_none();
                    if let Some(other) = own.iter().find(is_own) {
                        let what = format!("account {} is another shard's", other.path);
                        return Err(reader.damaged(start, &what));
                    }
                    let put = |change: &&AccountDiff| change.account != AccountUpdate::Keep;
                    accounts += own.iter().filter(put).count() as u64;
                    slots += changes.counts().1 as u64;
                    let put = loader.put(own);
                    put.map_err(|error| reader.damaged(start, &error.to_string()))?;
                }
                END => {
                    let mut counts = accounts.to_le_bytes().to_vec();
                    counts.extend(u64::to_le_bytes(slots));
                    if content != counts {
                        let what = format!("it ends after {accounts} accounts and {slots} slots");
                        return Err(reader.damaged(start, &what));
                    }
                    break;
                }
                _ => {
                    let what = format!("a frame of the unknown kind {kind}");
                    return Err(reader.damaged(start, &what));
                }
            }
        }
        let shard = loader.finish(&head.header, &head.top, limits);
        let shard = shard.map_err(|error| SnapshotError::State(Box::new(error)))?;
        let (bytes, max) = (shard.stats().memory_bytes, limits.bytes);
        if bytes > max {
            let what =
                format!("its state takes {bytes} bytes of memory, and the shard may have {max}");
            return Err(reader.damaged(reader.at, &what));
        }
        Ok((shard, head.note))
    }
}

/// What a snapshot is of, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Which part of the state.
    pub range: ShardRange,
    /// The header of the block after which the state is.
    pub header: Header,
    /// What who loads it gets with it.
    pub note: Vec<u8>,
}

impl SnapshotInfo {
    /// Reads the beginning of a snapshot.
    ///
    /// # Errors
    ///
    /// If it is damaged.
    pub fn read(source: impl Read) -> Result<Self, SnapshotError> {
        let mut reader = SnapshotReader { source, at: 0 };
        let Head {
            range,
            header,
            note,
            ..
        } = reader.head()?;
        Ok(Self {
            range,
            header,
            note,
        })
    }
}

struct Head {
    range: ShardRange,
    header: Header,
    top: Vec<Bytes>,
    note: Vec<u8>,
}

impl Head {
    fn decode(mut bytes: &[u8]) -> Result<Self, String> {
        let malformed = |error: alloy_rlp::Error| format!("its head is malformed: {error}");
        let mut parts = unlisted(&mut bytes).map_err(malformed)?;
        is_all(bytes).map_err(malformed)?;
        let index = usize::decode(&mut parts).map_err(malformed)?;
        let count = usize::decode(&mut parts).map_err(malformed)?;
        let header = Header::decode(&mut parts).map_err(malformed)?;
        let top = decode_items(
            &mut parts,
            "nodes above the shards",
            NODE_BYTES_MIN,
            NODES_MAX,
        );
        let top = top.map_err(|error| format!("its head: {error}"))?;
        let note = Bytes::decode(&mut parts).map_err(malformed)?.to_vec();
        is_all(parts).map_err(malformed)?;
        let range = ShardRange::new(index, count).map_err(|error| error.to_string())?;
        Ok(Self {
            range,
            header,
            top,
            note,
        })
    }
}

struct SnapshotReader<R> {
    source: R,
    at: u64,
}

impl<R: Read> SnapshotReader<R> {
    /// The magic and the first frame.
    fn head(&mut self) -> Result<Head, SnapshotError> {
        let mut magic = [0; MAGIC.len()];
        self.fill(&mut magic)?;
        if magic != *MAGIC {
            return Err(self.damaged(0, "it does not begin as a snapshot of a shard does"));
        }
        let start = self.at;
        let (kind, content) = self.frame()?;
        if kind != HEAD {
            return Err(self.damaged(start, "the first frame is not its head"));
        }
        Head::decode(&content).map_err(|what| self.damaged(start, &what))
    }

    /// The next frame's kind and content.
    fn frame(&mut self) -> Result<(u8, Vec<u8>), SnapshotError> {
        let start = self.at;
        let mut head = [0; 5];
        self.fill(&mut head)?;
        let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(self.damaged(start, &format!("a frame of {length} bytes")));
        }
        let mut frame = head.to_vec();
        frame.resize(head.len() + length, 0);
        self.fill(&mut frame[head.len()..])?;
        let mut sum = [0; 8];
        self.fill(&mut sum)?;
        if xxh3_64(&frame) != u64::from_le_bytes(sum) {
            return Err(self.damaged(start, "a frame has another checksum"));
        }
        frame.drain(..head.len());
        Ok((head[0], frame))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SnapshotError> {
        let at = self.at;
        match self.source.read_exact(bytes) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.damaged(at, "it ends early"))
            }
            Err(source) => Err(SnapshotError::Io { at, source }),
        }
    }

    fn damaged(&self, at: u64, what: &str) -> SnapshotError {
        let what = what.to_owned();
        SnapshotError::Damaged { at, what }
    }
}
