//! Reading the parts of an index that are on disk, and a cache of them.

use super::{
    openings::{Openings, Turn},
    part_ref::PartRef,
    section::PART_BYTES_MAX,
    shard::{Shard, copy},
};
use crate::{
    base::{counters::Counters, error::StateError},
    pages::Pages,
};
use cambium_primitives::Path;
use cambium_store::{PageAddr, SectionReader, Segments, StoreError, StoredPart, encode_part};
use cambium_trie::{Commitment, Link, NodeView, PartialTrie, Stub};
use parking_lot::Mutex;
use quick_cache::{Weighter, sync::Cache};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Weak},
};

/// Weighs a part by the memory of its trie plus the overheads of the allocator, whose blocks are a quarter larger than
/// requested, and of the cache, in bytes.
#[derive(Clone)]
struct PartWeight;

/// A part in the cache: the number of the checkpoint whose file it is in, or [`IN_SEGMENTS`], and where it is there.
type PartKey = (u64, PartRef);

/// In place of a checkpoint's number, which is never 0.
const IN_SEGMENTS: u64 = 0;

impl Weighter<PartKey, Arc<PartialTrie>> for PartWeight {
    fn weight(&self, _: &PartKey, part: &Arc<PartialTrie>) -> u64 {
        (part.memory_bytes() * 5 / 4) as u64 + 256
    }
}

/// Cache of index parts, shared by all snapshots, and the memory limit of the index.
pub struct PartCache {
    parts: Cache<PartKey, Arc<PartialTrie>, PartWeight>,
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
    parts: HashMap<PartKey, Weak<PartialTrie>>,
    /// Number of entries at which dropped ones are removed.
    sweep_at: usize,
}

/// Number of entries below which dropped ones are not searched for.
const SWEEP_MIN: usize = 1024;

impl ResidentParts {
    fn add(&mut self, key: PartKey, part: &Arc<PartialTrie>) {
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

    /// Drops a part that the newest index no longer names from the cache.
    pub fn forget(&self, addr: PageAddr) {
        self.parts.remove(&(IN_SEGMENTS, PartRef::at(addr)));
    }

    /// Drops all parts in the removed segments: their numbers are used again.
    pub fn forget_segments(&self, segments: &[u32]) {
        if segments.is_empty() {
            return;
        }
        let is_there = |(file, part): &PartKey| {
            let segment = part.addr().map(PageAddr::segment);
            *file != IN_SEGMENTS || segment.is_none_or(|segment| !segments.contains(&segment))
        };
        self.parts.retain(|key, _| is_there(key));
        self.resident.lock().parts.retain(|key, _| is_there(key));
    }
}

/// Where the parts of an index are.
enum PartSource {
    /// In the section `index` of a complete checkpoint, which an index in memory has written.
    Checkpoint(SectionReader),
    /// Records in the segments, named by address.
    Segments(Arc<Pages>),
}

/// The parts of one snapshot's index.
pub(crate) struct PartFile {
    source: PartSource,
    cache: Arc<PartCache>,
}

/// A part that was read and not decoded yet.
struct ReadPart {
    bytes: PartBytes,
    part: PartRef,
}

enum PartBytes {
    Section(Vec<u8>),
    Record(StoredPart),
}

impl PartFile {
    /// The parts in a section of a checkpoint.
    pub(crate) const fn in_checkpoint(reader: SectionReader, cache: Arc<PartCache>) -> Self {
        let source = PartSource::Checkpoint(reader);
        Self { source, cache }
    }

    /// Parts in the segments of `pages`.
    pub(crate) const fn in_segments(pages: Arc<Pages>, cache: Arc<PartCache>) -> Self {
        let source = PartSource::Segments(pages);
        Self { source, cache }
    }

    /// Whether the parts are in the segments.
    pub(crate) const fn is_in_segments(&self) -> bool {
        matches!(self.source, PartSource::Segments(_))
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
        let read = self.read_bytes(&[part]).remove(0)?;
        self.decode(&read, path)
    }

    /// Reads and caches parts with the paths of their roots, all in flight at once. The results are in the order of `parts`.
    pub(crate) fn read_batch(
        &self,
        parts: &[(PartRef, Path)],
    ) -> Vec<Result<Arc<PartialTrie>, StateError>> {
        if parts.is_empty() {
            return Vec::new();
        }
        let refs: Vec<_> = parts.iter().map(|(part, _)| *part).collect();
        let read = self.read_bytes(&refs).into_iter();
        read.zip(parts)
            .map(|(read, (_, path))| self.decode(&read?, path))
            .collect()
    }

    /// Returns a whole shard. Parts in a checkpoint are read with one read, others all at once.
    pub(crate) fn whole(&self, shard: &Shard) -> Result<PartialTrie, StateError> {
        match &self.source {
            PartSource::Checkpoint(reader) => {
                if shard.len > 0 {
                    self.count(shard.len);
                }
                joined(shard, reader)
            }
            PartSource::Segments(pages) => {
                let (trie, reads) = joined_from_segments(shard, &pages.segments, &HashMap::new())?;
                let counters = &self.cache.counters;
                counters.index_reads.add(reads);
                counters.index_bytes_read.add(shard.len);
                Ok(trie)
            }
        }
    }

    /// Returns a shard whose parts are in the segments, with those of them joined to its top that a merge of the dirty trie
    /// `dirty` may change, and these parts. With `turn`, about as many more are joined, other ones for each turn, if they can be
    /// read.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if a part can't be read or decoded.
    pub(crate) fn opened(
        &self,
        shard: &Shard,
        dirty: &PartialTrie,
        turn: Option<&Turn<'_>>,
    ) -> Result<(PartialTrie, OpenedParts), StateError> {
        let mut found = PartsOfTop::of(&shard.trie);
        let needed = found.open(dirty);
        let also = turn.map_or(0, |turn| found.open_also(turn, needed + 1));
        let mut opened = OpenedParts::default();
        let mut missing = Vec::new();
        for one in found.parts.iter().filter(|one| one.opens != Opens::Not) {
            match self.cached(one.part) {
                Some(trie) => opened.add(one, OpenedBytes::Cached(trie)),
                None => missing.push(one),
            }
        }
        // They are not cached: the merge replaces them.
        let wanted: Vec<_> = missing.iter().map(|one| one.part).collect();
        for (one, read) in missing.into_iter().zip(self.read_bytes(&wanted)) {
            match read.map(|read| read.bytes) {
                Ok(PartBytes::Record(record)) => opened.add(one, OpenedBytes::Read(record)),
                Ok(PartBytes::Section(_)) => {}
                Err(error) if one.opens == Opens::IfReadable => {
                    tracing::warn!("a part of the index stays where it is: {error}");
                    self.note_unreadable(one.part);
                }
                Err(error) => return Err(error),
            }
        }
        let counters = &self.cache.counters;
        counters.index_parts_opened.add((needed + also) as u64);
        let (top, base) = (&*shard.trie, *shard.trie.base());
        let mut whole = PartialTrie::new(base).committed_by(top.commitment());
        let mut part_of = |whole: &mut PartialTrie, link: Link, at: &Path| {
            let opened = match top.visit(link) {
                NodeView::Stub(stub) => PartRef::of(stub).and_then(|part| {
                    let opened = opened.parts.get(at)?;
                    Some((part, &opened.bytes))
                }),
                _ => None,
            };
            match opened {
                None => Ok(None),
                Some((_, OpenedBytes::Cached(trie))) => {
                    let mut none = |_: &mut _, _, _: &_| Ok(None);
                    copy(trie, trie.root(), at, whole, &mut none).map(Some)
                }
                Some((part, OpenedBytes::Read(record))) => {
                    let grafted = whole.graft_encoded(at, record.bytes());
                    Ok(Some(
                        grafted.map_err(|error| self.corrupt(part, error.what))?,
                    ))
                }
            }
        };
        let root = copy(top, top.root(), &base, &mut whole, &mut part_of)?;
        whole.set_root(root);
        Ok((whole, opened))
    }

    /// Remembers that a part can't be read, so that its segment is not chosen to be emptied.
    fn note_unreadable(&self, part: PartRef) {
        if let (PartSource::Segments(pages), Some(addr)) = (&self.source, part.addr()) {
            pages.note_unreadable(addr);
        }
    }

    /// Reads parts, all in flight at once. The results are in the order of `parts`.
    fn read_bytes(&self, parts: &[PartRef]) -> Vec<Result<ReadPart, StateError>> {
        let read: Vec<Result<PartBytes, StateError>> = match &self.source {
            PartSource::Checkpoint(reader) => {
                let ranges: Vec<_> = parts.iter().map(|part| part.range()).collect();
                ranges.iter().for_each(|(_, len)| self.count(*len));
                let read = reader.read_batch(&ranges).into_iter();
                read.map(|bytes| Ok(PartBytes::Section(bytes?))).collect()
            }
            PartSource::Segments(pages) => {
                let read = read_records(&pages.segments, parts).into_iter();
                read.map(|part| {
                    let part = part?;
                    let counters = &self.cache.counters;
                    counters.index_reads.add(u64::from(part.is_from_device));
                    counters.index_bytes_read.add(part.record().len() as u64);
                    Ok(PartBytes::Record(part))
                })
                .collect()
            }
        };
        let read = read.into_iter().zip(parts);
        read.map(|(bytes, part)| bytes.map(|bytes| ReadPart { bytes, part: *part }))
            .collect()
    }

    /// Decodes and caches a part, which must be at `path`.
    fn decode(&self, read: &ReadPart, path: &Path) -> Result<Arc<PartialTrie>, StateError> {
        let part = read.part;
        let bytes = match (&read.bytes, &self.source) {
            (PartBytes::Record(record), _) => record.bytes(),
            (PartBytes::Section(bytes), PartSource::Checkpoint(reader)) => {
                reader.check(part.range().0, bytes)?
            }
            (PartBytes::Section(bytes), PartSource::Segments(_)) => bytes,
        };
        let trie = PartialTrie::decode(bytes).map_err(|error| self.corrupt(part, error.what))?;
        let mut trie = trie.committed_by(self.cache.commitment);
        if trie.base() != path {
            return Err(self.corrupt(part, OF_ANOTHER_PATH));
        }
        trie.shrink_to_fit();
        let (key, trie) = (self.key(part), Arc::new(trie));
        self.cache.resident.lock().add(key, &trie);
        self.cache.parts.insert(key, trie.clone());
        Ok(trie)
    }

    fn corrupt(&self, part: PartRef, what: &str) -> StateError {
        match &self.source {
            PartSource::Checkpoint(reader) => reader.corrupt(part.range().0, what).into(),
            PartSource::Segments(pages) => corrupt_record(&pages.segments, part, what),
        }
    }

    fn key(&self, part: PartRef) -> PartKey {
        let file = match &self.source {
            PartSource::Checkpoint(reader) => reader.sequence(),
            PartSource::Segments(_) => IN_SEGMENTS,
        };
        (file, part)
    }

    fn count(&self, bytes: u64) {
        self.cache.counters.index_reads.add(1);
        self.cache.counters.index_bytes_read.add(bytes);
    }
}

const OF_ANOTHER_PATH: &str = "a part of the index with the path of another";

/// The parts of an index on disk that a merge has opened, by the paths of their roots.
#[derive(Default)]
pub(crate) struct OpenedParts {
    pub(crate) parts: BTreeMap<Path, OpenedPart>,
}

/// A part that a merge has opened.
pub(crate) struct OpenedPart {
    /// Its address in the segments: retired once the merge has written the part anew.
    pub(crate) addr: PageAddr,
    bytes: OpenedBytes,
}

enum OpenedBytes {
    Cached(Arc<PartialTrie>),
    Read(StoredPart),
}

impl OpenedPart {
    /// Whether its record is this one.
    pub(crate) fn is(&self, record: &[u8]) -> bool {
        match &self.bytes {
            OpenedBytes::Cached(trie) => encode_part(|out| trie.encode_to(out)) == record,
            OpenedBytes::Read(part) => part.record() == record,
        }
    }
}

impl OpenedParts {
    fn add(&mut self, of: &PartOfTop, bytes: OpenedBytes) {
        if let Some(addr) = of.part.addr() {
            self.parts.insert(of.path, OpenedPart { addr, bytes });
        }
    }

    /// Forgets the parts whose addresses `is_taken` accepts: they are written again wherever they are needed. Returns their
    /// addresses.
    pub(crate) fn take_if(&mut self, is_taken: impl Fn(&PageAddr) -> bool) -> Vec<PageAddr> {
        let taken = self.parts.extract_if(.., |_, part| is_taken(&part.addr));
        taken.map(|(_, part)| part.addr).collect()
    }
}

/// Whether a merge opens a part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Not,
    /// The merge may change it.
    Yes,
    /// Pages that it names may be moved, or it fits into one part with a neighbour.
    IfReadable,
}

/// A part that the top of a shard names.
struct PartOfTop {
    part: PartRef,
    /// Path of its root.
    path: Path,
    /// Number of the branch above it, if that has only small children, which fit into one part together.
    siblings: Option<usize>,
    opens: Opens,
}

/// The parts that the top of a shard names, in path order, and between them the pages that it names.
struct PartsOfTop {
    parts: Vec<PartOfTop>,
    /// Paths of pages, each with the number of parts before it.
    pages: Vec<(usize, Path)>,
    branches: usize,
}

impl PartsOfTop {
    fn of(top: &PartialTrie) -> Self {
        let mut found = Self {
            parts: Vec::new(),
            pages: Vec::new(),
            branches: 0,
        };
        found.add(top, top.root(), top.base(), None);
        found
    }

    /// Recursion is bounded by the path's 128 nibbles.
    fn add(&mut self, top: &PartialTrie, link: Link, path: &Path, siblings: Option<usize>) {
        match top.visit(link) {
            NodeView::Stub(stub) => match PartRef::of(stub) {
                None => self.pages.push((self.parts.len(), *path)),
                Some(part) => self.parts.push(PartOfTop {
                    part,
                    path: *path,
                    siblings,
                    opens: Opens::Not,
                }),
            },
            NodeView::Branch { children } => {
                self.branches += 1;
                let siblings = are_small(top, children).then_some(self.branches);
                for (nibble, child) in (0u8..).zip(children) {
                    self.add(top, *child, &path.child(nibble), siblings);
                }
            }
            NodeView::Extension { path: part, child } => {
                self.add(top, child, &path.join(&part), None);
            }
            NodeView::Account { key, storage, .. } => {
                self.add(top, storage, &Path::account(&key), None);
            }
            NodeView::Slot { .. } | NodeView::Entry { .. } | NodeView::Empty => {}
        }
    }

    /// Opens the parts that a merge of `dirty` may change, and with them neighbours that fit into one part together. Returns
    /// their number.
    fn open(&mut self, dirty: &PartialTrie) -> usize {
        let mut openings = Openings::of(dirty);
        let mut pages = self.pages.iter().peekable();
        let mut with_siblings = BTreeSet::new();
        for (at, one) in self.parts.iter_mut().enumerate() {
            while let Some((_, page)) = pages.next_if(|(before, _)| *before <= at) {
                openings.reached(page);
            }
            if openings.opens(&one.path) {
                openings.reached(&one.path);
                one.opens = Opens::Yes;
                with_siblings.extend(one.siblings);
            }
        }
        for one in &mut self.parts {
            let is_neighbour = |branch| with_siblings.contains(&branch);
            if one.opens == Opens::Not && one.siblings.is_some_and(is_neighbour) {
                one.opens = Opens::IfReadable;
            }
        }
        let opened = self.parts.iter().filter(|one| one.opens != Opens::Not);
        opened.count()
    }

    /// Opens up to `count` other parts, whose turn it is. Returns their number.
    fn open_also(&mut self, turn: &Turn<'_>, count: usize) -> usize {
        let closed = self.parts.iter_mut().filter(|one| one.opens == Opens::Not);
        let mut closed: Vec<_> = closed.collect();
        let (of, count) = (closed.len(), count.min(closed.len()));
        let first = turn.first(of);
        for at in first..first + count {
            closed[at % of].opens = Opens::IfReadable;
        }
        count
    }
}

/// Whether all children of a branch in a top are parts and pages, and its parts take half of what one may take.
fn are_small(top: &PartialTrie, children: &[Link; 16]) -> bool {
    let mut bytes = 0;
    let mut are_blinded = true;
    for child in children.iter().filter(|child| !child.is_empty()) {
        match top.visit(*child) {
            NodeView::Stub(stub) => {
                let part = PartRef::of(stub).and_then(PartRef::addr);
                bytes += part.map_or(0, PageAddr::len);
            }
            _ => are_blinded = false,
        }
    }
    are_blinded && bytes <= PART_BYTES_MAX as u64 / 2
}

/// Returns the parts that the top of a shard names, in path order.
pub(super) fn parts_of_top(top: &PartialTrie) -> Vec<PartRef> {
    let found = PartsOfTop::of(top);
    found.parts.into_iter().map(|one| one.part).collect()
}

/// Reads the records of parts, all in flight at once. The results are in the order of `parts`.
fn read_records(segments: &Segments, parts: &[PartRef]) -> Vec<Result<StoredPart, StateError>> {
    let addrs: Option<Vec<_>> = parts.iter().map(|part| part.addr()).collect();
    let Some(addrs) = addrs else {
        let nowhere = |part: &PartRef| Err(corrupt_record(segments, *part, "no address"));
        return parts.iter().map(nowhere).collect();
    };
    let read = segments.read_parts(&addrs).into_iter();
    read.map(|part| Ok(part?)).collect()
}

fn corrupt_record(segments: &Segments, part: PartRef, what: &str) -> StateError {
    match part.addr() {
        Some(addr) => segments.corrupt_part(addr, what).into(),
        None => StateError::Broken {
            path: Path::EMPTY,
            what: "a part of the index",
        },
    }
}

/// Returns a whole shard whose parts are in the segments, and the number of device reads that it took. The bytes of parts in
/// `restored` are not read.
pub(super) fn joined_from_segments(
    shard: &Shard,
    segments: &Segments,
    restored: &HashMap<PartRef, Vec<u8>>,
) -> Result<(PartialTrie, u64), StateError> {
    let mut parts = parts_of_top(&shard.trie);
    parts.retain(|part| !restored.contains_key(part));
    let mut records = Vec::with_capacity(parts.len());
    let mut reads = 0;
    for part in read_records(segments, &parts) {
        let part = part?;
        reads += u64::from(part.is_from_device);
        records.push(part);
    }
    // Parts are joined in path order.
    let mut next = parts.iter().zip(&records);
    let mut bytes_of = |part: PartRef| {
        if let Some(bytes) = restored.get(&part) {
            return Some(Ok(&bytes[..]));
        }
        let (_, record) = next.find(|(found, _)| **found == part)?;
        Some(Ok(record.bytes()))
    };
    let corrupt = |part: PartRef, what: &str| corrupt_record(segments, part, what);
    Ok((join(shard, &mut bytes_of, &corrupt)?, reads))
}

/// A part in the segments that can't be read.
pub struct LostPart {
    /// Path of its root.
    pub path: Path,
    /// Its root: reference and place.
    pub stub: Stub,
    /// Why it can't be read.
    pub why: StateError,
}

/// Finds the damaged parts of a shard in the segments.
pub(super) fn lost_parts(shard: &Shard, segments: &Segments) -> Result<Vec<LostPart>, StateError> {
    let found = PartsOfTop::of(&shard.trie).parts;
    let parts: Vec<_> = found.iter().map(|one| one.part).collect();
    let mut lost = Vec::new();
    for (one, read) in found.iter().zip(read_records(segments, &parts)) {
        let decoded = read.and_then(|part| {
            let trie = PartialTrie::decode(part.bytes());
            let trie = trie.map_err(|error| corrupt_record(segments, one.part, error.what))?;
            match *trie.base() == one.path {
                true => Ok(()),
                false => Err(corrupt_record(segments, one.part, OF_ANOTHER_PATH)),
            }
        });
        match decoded {
            Ok(()) => {}
            Err(why) if why.is_damage() => {
                let link = shard.trie.find_or_stub(&one.path).map(|(link, _)| link);
                let stub = link.and_then(|link| shard.trie.as_stub(link));
                let (path, stub) = (
                    one.path,
                    stub.ok_or(StateError::Broken {
                        path: one.path,
                        what: "a part of the index in its top",
                    })?,
                );
                lost.push(LostPart { path, stub, why });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(lost)
}

/// Returns a whole shard whose parts are in a checkpoint, with one read.
pub(super) fn joined(shard: &Shard, reader: &SectionReader) -> Result<PartialTrie, StateError> {
    let bytes = match shard.len {
        0 => Vec::new(),
        len => reader.read(shard.offset, len)?,
    };
    let mut bytes_of = |part: PartRef| {
        let (offset, len) = part.range();
        let start = usize::try_from(offset).ok()?;
        let bytes = bytes.get(start..start.checked_add(len as usize)?)?;
        Some(reader.check(shard.offset + offset, bytes))
    };
    let corrupt = |part: PartRef, what: &str| {
        let offset = shard.offset.saturating_add(part.range().0);
        reader.corrupt(offset, what).into()
    };
    join(shard, &mut bytes_of, &corrupt)
}

/// Joins the top of a shard and all its parts. `bytes_of` returns those of a part that the top names, in path order.
fn join<'a>(
    shard: &Shard,
    bytes_of: &mut dyn FnMut(PartRef) -> Option<Result<&'a [u8], StoreError>>,
    corrupt: &dyn Fn(PartRef, &str) -> StateError,
) -> Result<PartialTrie, StateError> {
    let (top, base) = (&*shard.trie, *shard.trie.base());
    let mut part_of = |whole: &mut PartialTrie, link: Link, at: &Path| {
        let NodeView::Stub(stub) = top.visit(link) else {
            return Ok(None);
        };
        let Some(part) = PartRef::of(stub) else {
            return Ok(None);
        };
        let what = "a part of the index lies outside of its shard";
        let bytes = bytes_of(part).ok_or_else(|| corrupt(part, what))??;
        let grafted = whole.graft_encoded(at, bytes);
        Ok(Some(grafted.map_err(|error| corrupt(part, error.what))?))
    };
    let mut whole = PartialTrie::new(base).committed_by(top.commitment());
    let root = copy(top, top.root(), &base, &mut whole, &mut part_of)?;
    whole.set_root(root);
    whole.shrink_to_fit();
    Ok(whole)
}
