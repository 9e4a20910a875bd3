//! Reading the parts of an index that are on disk, and a cache of them.

use super::{
    openings::Openings,
    part_ref::PartRef,
    shard::{Shard, copy},
};
use crate::base::{counters::Counters, error::StateError};
use cambium_primitives::{DecodeError, Path};
use cambium_store::SectionReader;
use cambium_trie::{Commitment, Link, NodeView, PartialTrie};
use parking_lot::Mutex;
use quick_cache::{Weighter, sync::Cache};
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// Weighs a part by the memory of its trie plus the overheads of the allocator, whose blocks are a quarter larger than
/// requested, and of the cache, in bytes.
#[derive(Clone)]
struct PartWeight;

impl Weighter<(u64, u64), Arc<PartialTrie>> for PartWeight {
    fn weight(&self, _: &(u64, u64), part: &Arc<PartialTrie>) -> u64 {
        (part.memory_bytes() * 5 / 4) as u64 + 256
    }
}

/// Cache of index parts, shared by all snapshots, and the memory limit of the index.
pub struct PartCache {
    /// Parts by sequence number of the checkpoint and offset in its section.
    parts: Cache<(u64, u64), Arc<PartialTrie>, PartWeight>,
    /// Parts that are held, in the cache or not, so that none is read twice meanwhile.
    resident: Mutex<ResidentParts>,
    /// Memory limit of the index, in bytes.
    bytes_max: u64,
    /// How the nodes of the trie are hashed.
    commitment: Commitment,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct ResidentParts {
    parts: HashMap<(u64, u64), Weak<PartialTrie>>,
    /// Number of entries at which dropped ones are removed.
    sweep_at: usize,
}

/// Number of entries below which dropped ones are not searched for.
const SWEEP_MIN: usize = 1024;

impl ResidentParts {
    fn add(&mut self, key: (u64, u64), part: &Arc<PartialTrie>) {
        self.parts.insert(key, Arc::downgrade(part));
        if self.parts.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.parts.retain(|_, part| part.strong_count() > 0);
            self.sweep_at = 2 * self.parts.len();
        }
    }
}

impl PartCache {
    /// Creates the cache. An index that takes more than `bytes_max` bytes in memory keeps its parts
    /// on disk; its tops and this cache share that limit.
    pub fn new(bytes_max: u64, commitment: Commitment, counters: Arc<Counters>) -> Self {
        let entries = (bytes_max / 4096).max(16) as usize;
        Self {
            parts: Cache::with_weighter(entries, bytes_max, PartWeight),
            resident: Mutex::default(),
            bytes_max,
            commitment,
            counters,
        }
    }

    /// How the nodes of the trie are hashed.
    pub const fn commitment(&self) -> Commitment {
        self.commitment
    }

    /// Memory limit of the index, in bytes.
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }
}

/// The parts of one snapshot's index, in the section of its checkpoint.
pub(crate) struct PartFile {
    reader: SectionReader,
    cache: Arc<PartCache>,
}

impl PartFile {
    pub(crate) const fn new(reader: SectionReader, cache: Arc<PartCache>) -> Self {
        Self { reader, cache }
    }

    /// Shrinks the cache so that it fits into the index's limit together with tops of `tops_bytes`
    /// bytes, and with the parts that a merge and the blocks executed meanwhile hold beside it, which
    /// get a third. It keeps at least a quarter of the limit.
    pub(crate) fn make_room(&self, tops_bytes: usize) {
        let left = self.cache.bytes_max.saturating_sub(tops_bytes as u64) / 3 * 2;
        let capacity = left.max(self.cache.bytes_max / 4);
        self.cache.parts.set_capacity(capacity);
    }

    /// Memory of the cached parts of all snapshots, in bytes.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.cache.parts.weight() as usize
    }

    /// Returns a part if it is in memory: in the cache, or held elsewhere.
    pub(crate) fn cached(&self, part: PartRef) -> Option<Arc<PartialTrie>> {
        let key = self.key(part);
        let resident = || self.cache.resident.lock().parts.get(&key)?.upgrade();
        self.cache.parts.get(&key).or_else(resident)
    }

    /// Reads and caches the part whose root is at `path`.
    pub(crate) fn read(&self, part: PartRef, path: &Path) -> Result<Arc<PartialTrie>, StateError> {
        self.count(part.len);
        let bytes = self.reader.read(part.offset, part.len)?;
        self.decode(part, path, &bytes)
    }

    /// Reads and caches parts with the paths of their roots, all in flight at once. Returns each
    /// with its offset.
    pub(crate) fn read_batch(
        &self,
        parts: &[(PartRef, Path)],
    ) -> Result<Vec<(u64, Arc<PartialTrie>)>, StateError> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let ranges: Vec<_> = parts
            .iter()
            .map(|(part, _)| (part.offset, part.len))
            .collect();
        let read = self.reader.read_batch(&ranges);
        let decoded = parts.iter().zip(read).map(|((part, path), bytes)| {
            self.count(part.len);
            Ok((part.offset, self.decode(*part, path, &bytes?)?))
        });
        decoded.collect()
    }

    /// Returns a whole shard, whose parts are read with one read.
    pub(crate) fn whole(&self, shard: &Shard) -> Result<PartialTrie, StateError> {
        let bytes = self.read_all(shard)?;
        join(shard, &self.reader, &bytes, &mut |_| true)
    }

    fn read_all(&self, shard: &Shard) -> Result<Vec<u8>, StateError> {
        if shard.len > 0 {
            self.count(shard.len);
        }
        read_all(shard, &self.reader)
    }

    /// Returns a shard whose parts are joined to its top only where the blinded nodes of `dirty` do
    /// not cover them, or where a storage begins whose account `dirty` has expanded. Reads all parts
    /// with one read.
    pub(crate) fn opened(
        &self,
        shard: &Shard,
        dirty: &PartialTrie,
    ) -> Result<(PartialTrie, UnopenedParts), StateError> {
        let bytes = self.read_all(shard)?;
        let mut openings = Openings::of(dirty);
        let mut opens = |at: &Path| {
            let opens = openings.opens(at);
            if opens {
                openings.reached(at);
            }
            opens
        };
        let trie = join(shard, &self.reader, &bytes, &mut opens)?;
        let (sequence, offset) = (self.reader.sequence(), shard.offset);
        let unopened = UnopenedParts {
            bytes,
            sequence,
            offset,
        };
        Ok((trie, unopened))
    }

    /// Takes over cached parts that have been copied from another checkpoint: their keys there, and
    /// their offsets in this one.
    pub(crate) fn take_over(&self, copied: &[((u64, u64), u64)]) {
        for (from, offset) in copied {
            if let Some((_, part)) = self.cache.parts.remove(from) {
                let key = (self.reader.sequence(), *offset);
                self.cache.resident.lock().add(key, &part);
                self.cache.parts.insert(key, part);
            }
        }
    }

    fn decode(
        &self,
        part: PartRef,
        path: &Path,
        bytes: &[u8],
    ) -> Result<Arc<PartialTrie>, StateError> {
        let bytes = self.reader.check(part.offset, bytes)?;
        let corrupt = |error: DecodeError| self.reader.corrupt(part.offset, error.what);
        let trie = PartialTrie::decode(bytes).map_err(corrupt)?;
        let mut trie = trie.committed_by(self.cache.commitment);
        if trie.base() != path {
            let what = "a part of the index with the path of another";
            return Err(self.reader.corrupt(part.offset, what).into());
        }
        trie.shrink_to_fit();
        let trie = Arc::new(trie);
        self.cache.resident.lock().add(self.key(part), &trie);
        self.cache.parts.insert(self.key(part), trie.clone());
        Ok(trie)
    }

    fn key(&self, part: PartRef) -> (u64, u64) {
        (self.reader.sequence(), part.offset)
    }

    fn count(&self, bytes: u64) {
        self.cache.counters.index_reads.add(1);
        self.cache.counters.index_bytes_read.add(bytes);
    }
}

/// The parts of a shard, as they are on disk, of which some were not joined to its top.
pub(crate) struct UnopenedParts {
    /// All parts of the shard.
    bytes: Vec<u8>,
    /// Number of the checkpoint, and where the parts begin in its section.
    sequence: u64,
    offset: u64,
}

impl UnopenedParts {
    /// Returns the bytes of a part, and its key in the cache.
    pub(crate) fn part(&self, part: PartRef) -> Option<(&[u8], (u64, u64))> {
        let bytes = bytes_of(&self.bytes, part)?;
        Some((bytes, (self.sequence, self.offset + part.offset)))
    }
}

/// Returns the bytes of a part, given all parts of its shard.
fn bytes_of(parts: &[u8], part: PartRef) -> Option<&[u8]> {
    let start = usize::try_from(part.offset).ok()?;
    parts.get(start..start.checked_add(part.len as usize)?)
}

/// Reads all parts of a shard with one read.
pub(crate) fn read_all(shard: &Shard, reader: &SectionReader) -> Result<Vec<u8>, StateError> {
    match shard.len {
        0 => Ok(Vec::new()),
        len => Ok(reader.read(shard.offset, len)?),
    }
}

/// Joins the top of a shard and those of its parts that `opens` says by the paths of their roots, in
/// path order. `bytes` are all its parts. The others stay blinded, and are checked as well.
pub(crate) fn join(
    shard: &Shard,
    reader: &SectionReader,
    bytes: &[u8],
    opens: &mut impl FnMut(&Path) -> bool,
) -> Result<PartialTrie, StateError> {
    let (top, base) = (&*shard.trie, *shard.trie.base());
    let mut part_of = |whole: &mut PartialTrie, link: Link, at: &Path| {
        let NodeView::Stub(stub) = top.visit(link) else {
            return Ok(None);
        };
        let Some(part) = PartRef::of(stub) else {
            return Ok(None);
        };
        let offset = shard.offset + part.offset;
        let what = "a part of the index lies outside of its shard";
        let bytes = bytes_of(bytes, part).ok_or_else(|| reader.corrupt(offset, what))?;
        let bytes = reader.check(offset, bytes)?;
        if !opens(at) {
            return Ok(Some(whole.push_stub(*stub)));
        }
        let grafted = whole.graft_encoded(at, bytes);
        Ok(Some(
            grafted.map_err(|error| reader.corrupt(offset, error.what))?,
        ))
    };
    let mut whole = PartialTrie::new(base).committed_by(top.commitment());
    let root = copy(top, top.root(), &base, &mut whole, &mut part_of)?;
    whole.set_root(root);
    whole.shrink_to_fit();
    Ok(whole)
}
