//! External merge sort of a bucket: sorts its leaves by path with bounded memory. A bucket that
//! fits is sorted in memory; a larger one is sorted in runs, which are spilled and then merged.

use super::leaf_bucket::{LeafBucket, Piece, Record, SpillFile, is_slot_next, read_record};
use crate::base::error::StateError;
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, EntryValue, Reader};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

/// Minimum and maximum size of the pieces in which a run is read back, in bytes.
const RUN_PIECE_BYTES: (usize, usize) = (16 << 10, 1 << 20);

/// Receiver of leaves in path order. It must reject duplicates, which sorting keeps.
pub(crate) trait LeafSink {
    /// Receives an account, by keccak(address).
    fn account(&mut self, path: B256, account: Account) -> Result<(), StateError>;
    /// Receives an entry of a key-value database.
    fn entry(&mut self, key: B256, value: EntryValue) -> Result<(), StateError>;
    /// Receives a slot of `account`, by keccak(slot).
    fn slot(&mut self, account: &B256, slot: B256, value: U256) -> Result<(), StateError>;
}

/// A sink that writes a sorted run.
struct RunWriter<'a> {
    bucket: LeafBucket,
    spill: &'a SpillFile,
}

impl LeafSink for RunWriter<'_> {
    fn account(&mut self, path: B256, account: Account) -> Result<(), StateError> {
        self.bucket.account(&path, &account, self.spill)
    }

    fn entry(&mut self, key: B256, value: EntryValue) -> Result<(), StateError> {
        self.bucket.entry(&key, &value, self.spill)
    }

    fn slot(&mut self, account: &B256, slot: B256, value: U256) -> Result<(), StateError> {
        self.bucket.slot(account, &slot, value, self.spill)
    }
}

/// Passes the leaves of `bucket` to `sink` in path order, using about `bytes_max` bytes of memory.
pub(crate) fn sort_into(
    bucket: LeafBucket,
    spill: &SpillFile,
    bytes_max: usize,
    sink: &mut impl LeafSink,
) -> Result<(), StateError> {
    // A record takes at least 36 bytes, and its sort key 16.
    let (len, chunk_max) = (bucket.len(), bytes_max / 3 * 2);
    if len <= chunk_max as u64 {
        let mut bytes = bucket.bytes;
        bytes.reserve_exact((len - bytes.len() as u64) as usize);
        for piece in &bucket.pieces {
            spill.read(piece, &mut bytes)?;
        }
        return sort_in_memory(&bytes, sink);
    }
    let LeafBucket {
        bytes: newest,
        pieces,
        ..
    } = bucket;
    let mut runs = Vec::new();
    let piece_bytes = bytes_max / (len as usize / chunk_max + 2);
    let piece_bytes = piece_bytes.clamp(RUN_PIECE_BYTES.0, RUN_PIECE_BYTES.1);
    let mut end_run = |chunk: &mut Vec<u8>| {
        let mut run = RunWriter {
            bucket: LeafBucket::new(piece_bytes),
            spill,
        };
        sort_in_memory(chunk, &mut run)?;
        chunk.clear();
        run.bucket.spill(spill)?;
        runs.push(run.bucket.pieces);
        Ok::<_, StateError>(())
    };
    let mut chunk = newest;
    for piece in &pieces {
        if chunk.len() + piece.len() > chunk_max && !chunk.is_empty() {
            end_run(&mut chunk)?;
        }
        spill.read(piece, &mut chunk)?;
    }
    end_run(&mut chunk)?;
    drop(chunk);
    merge_runs(runs, spill, sink)
}

/// Sort key of a record: the start of its path, and the offset of the record.
#[derive(Clone, Copy)]
struct SortKey {
    start: u64,
    at: u32,
}

impl SortKey {
    fn new(path: &B256, from: usize, at: usize) -> Self {
        let start = path[from..].first_chunk().expect("32 bytes");
        Self {
            start: u64::from_be_bytes(*start),
            at: at as u32,
        }
    }

    /// The hash that follows the record's first byte: keccak(address) or keccak(slot).
    fn path<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.at as usize + 1..][..32]
    }
}

fn sort_keys(keys: &mut [SortKey], bytes: &[u8]) {
    keys.sort_unstable_by(|a, b| {
        let paths = || a.path(bytes).cmp(b.path(bytes));
        // An account sorts before the slots that were added apart from it.
        let firsts = || bytes[a.at as usize].cmp(&bytes[b.at as usize]);
        a.start.cmp(&b.start).then_with(paths).then_with(firsts)
    });
}

/// Passes the leaves in `bytes`, whose paths start with the same byte, to `sink` in path order.
fn sort_in_memory(bytes: &[u8], sink: &mut impl LeafSink) -> Result<(), StateError> {
    assert!(
        u32::try_from(bytes.len()).is_ok(),
        "{} bytes to sort at once",
        bytes.len()
    );
    let mut heads = Vec::new();
    let mut reader = Reader::new(bytes);
    while reader.remaining() > 0 {
        let at = reader.offset();
        match read_record(&mut reader)? {
            Record::Account(path, _) | Record::Entry(path, _) | Record::PathOnly(path) => {
                heads.push(SortKey::new(&path, 1, at))
            }
            Record::Slot(..) => {}
        }
    }
    sort_keys(&mut heads, bytes);
    let mut slots = Vec::new();
    let same = |a: &SortKey, b: &SortKey| a.start == b.start && a.path(bytes) == b.path(bytes);
    for heads in heads.chunk_by(same) {
        let owner = B256::from_slice(heads[0].path(bytes));
        slots.clear();
        for head in heads {
            let from = &bytes[head.at as usize..];
            let mut reader = Reader::new(from);
            match read_record(&mut reader)? {
                Record::Account(path, account) => sink.account(path, account)?,
                Record::Entry(key, value) => sink.entry(key, value)?,
                Record::PathOnly(_) | Record::Slot(..) => {}
            }
            while is_slot_next(from, &reader) {
                let at = head.at as usize + reader.offset();
                if let Record::Slot(slot, _) = read_record(&mut reader)? {
                    slots.push(SortKey::new(&slot, 0, at));
                }
            }
        }
        sort_keys(&mut slots, bytes);
        for slot in &slots {
            let mut reader = Reader::new(&bytes[slot.at as usize..]);
            if let Record::Slot(slot, value) = read_record(&mut reader)? {
                sink.slot(&owner, slot, value)?;
            }
        }
    }
    Ok(())
}

/// Reads a sorted run back, piece by piece.
struct RunReader<'a> {
    spill: &'a SpillFile,
    pieces: std::vec::IntoIter<Piece>,
    /// The piece that was read last.
    bytes: Vec<u8>,
    /// Offset of the next record in `bytes`.
    at: usize,
    /// Account that the next slot belongs to.
    owner: B256,
}

/// keccak(address), and keccak(slot) for a slot. An account sorts before its slots.
type LeafPath = (B256, Option<B256>);

impl RunReader<'_> {
    /// Returns the path of the next leaf, or `None` at the end of the run.
    fn peek(&mut self) -> Result<Option<LeafPath>, StateError> {
        loop {
            if self.at == self.bytes.len() {
                let Some(piece) = self.pieces.next() else {
                    return Ok(None);
                };
                self.bytes.clear();
                self.at = 0;
                self.spill.read(&piece, &mut self.bytes)?;
            }
            let mut reader = Reader::new(&self.bytes[self.at..]);
            match read_record(&mut reader)? {
                Record::PathOnly(path) => {
                    self.owner = path;
                    self.at += reader.offset();
                }
                Record::Account(path, _) | Record::Entry(path, _) => {
                    return Ok(Some((path, None)));
                }
                Record::Slot(slot, _) => return Ok(Some((self.owner, Some(slot)))),
            }
        }
    }

    /// Passes the leaf that [`RunReader::peek`] returned to `sink`.
    fn take(&mut self, sink: &mut impl LeafSink) -> Result<(), StateError> {
        let mut reader = Reader::new(&self.bytes[self.at..]);
        let record = read_record(&mut reader)?;
        self.at += reader.offset();
        match record {
            Record::Account(path, account) => {
                self.owner = path;
                sink.account(path, account)
            }
            Record::Entry(key, value) => sink.entry(key, value),
            Record::Slot(slot, value) => sink.slot(&self.owner, slot, value),
            Record::PathOnly(_) => Ok(()),
        }
    }
}

/// Merges sorted runs, and passes their leaves to `sink` in path order.
fn merge_runs(
    runs: Vec<Vec<Piece>>,
    spill: &SpillFile,
    sink: &mut impl LeafSink,
) -> Result<(), StateError> {
    let mut readers: Vec<_> = runs
        .into_iter()
        .map(|pieces| RunReader {
            spill,
            pieces: pieces.into_iter(),
            bytes: Vec::new(),
            at: 0,
            owner: B256::ZERO,
        })
        .collect();
    let mut next = BinaryHeap::with_capacity(readers.len());
    for (run, reader) in readers.iter_mut().enumerate() {
        next.extend(reader.peek()?.map(|path| Reverse((path, run))));
    }
    while let Some(mut least) = next.peek_mut() {
        let run = least.0.1;
        let reader = &mut readers[run];
        reader.take(sink)?;
        match reader.peek()? {
            Some(path) => *least = Reverse((path, run)),
            None => drop(PeekMut::pop(least)),
        }
    }
    Ok(())
}
