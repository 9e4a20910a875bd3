//! Look-ups of leaves and nodes in the index.

use super::{
    block::{Below, Block, Walked},
    blocks::{self, UnopenedBlocks},
    files::IndexChain,
    openings::Turn,
    part_ref::PartRef,
    parts::{OpenedParts, PartFile, parts_of_top},
    shard::{Shard, deepest},
};
use crate::base::{budget::IndexMemory, error::StateError, layout::shard_of};
use cambium_primitives::Path;
use cambium_store::PageAddr;
use cambium_trie::{Commitment, Link, Lookup, PartialTrie, Stub};
use rustc_hash::FxBuildHasher;
use std::{collections::HashMap, ops::Deref, sync::Arc};

/// The index of one snapshot: the state trie down to blinded nodes that name leaf pages, in 256
/// shards. It is immutable.
pub struct Index {
    /// One shard for each first byte of a path.
    pub(super) shards: Vec<Shard>,
    /// Reads the lower levels, if `shards` are only tops.
    pub(super) parts: Option<PartFile>,
    pub(super) files: IndexChain,
    /// Parts in the segments that its checkpoint names, although the index is in memory.
    pub(super) stale_parts: Vec<PageAddr>,
}

/// Result of looking up a leaf in the index.
#[derive(Clone)]
pub enum IndexLookup {
    /// The index answers: with the leaf, or with its absence.
    Resident(Lookup<'static>),
    /// The leaf is in this page, or absent.
    Page {
        /// Blinded node that names the page.
        stub: Stub,
        /// Depth of the page: length of its prefix in nibbles.
        depth: usize,
    },
}

/// A node of the index.
pub struct Node<'a> {
    /// Trie that contains the node.
    pub trie: TrieRef<'a>,
    /// Link of the node in that trie.
    pub link: Link,
    /// Length of the node's path, in nibbles.
    pub depth: usize,
}

/// A trie of the index: a resident shard, or a part that was read from disk.
#[derive(Clone)]
pub enum TrieRef<'a> {
    /// The top of a shard.
    Resident(&'a PartialTrie),
    /// A block of a shard that was decoded, or a part from disk or from the cache.
    Part(Arc<PartialTrie>),
}

impl Deref for TrieRef<'_> {
    type Target = PartialTrie;

    fn deref(&self) -> &PartialTrie {
        match self {
            Self::Resident(trie) => trie,
            Self::Part(trie) => trie,
        }
    }
}

/// Parts of one index that an operation keeps in memory until it ends, even if the cache evicts
/// them, and the block that it has decoded last.
#[derive(Default)]
pub struct HeldParts {
    /// Parts that were read ahead.
    ahead: HashMap<PartRef, Arc<PartialTrie>, FxBuildHasher>,
    /// The most recently used part, which is often the next one, too.
    last: Option<(PartRef, Arc<PartialTrie>)>,
    /// The most recently decoded block.
    block: Option<(Arc<Block>, Arc<PartialTrie>)>,
}

/// A shard that a merge has opened.
pub struct OpenedShard<'a> {
    /// Its trie: whole, but for parts or blocks that the merge leaves as they are. Blinded nodes stand
    /// for these.
    pub(crate) trie: Arc<PartialTrie>,
    pub(crate) opened: Opened<'a>,
}

/// What a merge needs of an opened shard besides its trie.
pub(crate) enum Opened<'a> {
    /// The blocks of an index in memory that it leaves as they are.
    Blocks(UnopenedBlocks<'a>),
    /// The parts of an index on disk that are in the trie. Those in a checkpoint, which are all in it, are left out.
    Parts(OpenedParts),
}

/// Where the part of the index is that a look-up needs.
pub(crate) enum PartInMemory {
    /// The resident part of the index answers.
    NotNeeded,
    /// The part is in memory.
    There(Arc<PartialTrie>),
    /// The part has to be read from the checkpoint.
    Missing,
}

impl HeldParts {
    fn get(&self, part: PartRef) -> Option<&Arc<PartialTrie>> {
        match &self.last {
            Some((last, trie)) if *last == part => Some(trie),
            _ => self.ahead.get(&part),
        }
    }

    /// Returns a block, whose root is on the way to `path`, as a trie hashed as `like` is.
    fn decoded(&mut self, at: Below<'_>, path: &Path, like: &PartialTrie) -> Arc<PartialTrie> {
        if let Some((block, trie)) = &self.block
            && Arc::ptr_eq(block, at.block)
        {
            return trie.clone();
        }
        let trie = blocks::block_as_trie(at.block, &at.stub, like, path.prefix(at.depth));
        let trie = Arc::new(trie);
        self.block = Some((at.block.clone(), trie.clone()));
        trie
    }
}

impl Index {
    pub(super) fn new(shards: Vec<Shard>, parts: Option<PartFile>, files: IndexChain) -> Self {
        if let Some(parts) = &parts {
            let tops = shards.iter().map(|shard| shard.trie.memory_bytes());
            parts.make_room(tops.sum());
        }
        Self {
            shards,
            parts,
            files,
            stale_parts: Vec::new(),
        }
    }

    /// Whether the index is on disk, with its parts in the segments.
    pub fn is_in_segments(&self) -> bool {
        self.parts.as_ref().is_some_and(PartFile::is_in_segments)
    }

    /// Returns the parts in the segments that the index's checkpoint names: they are to be retired once a checkpoint has the
    /// index in another form.
    pub fn parts_in_segments(&self) -> Vec<PageAddr> {
        match self.is_in_segments() {
            true => {
                let parts = self.shards.iter().flat_map(|one| parts_of_top(&one.trie));
                parts.filter_map(PartRef::addr).collect()
            }
            false => self.stale_parts.clone(),
        }
    }

    /// The chain of checkpoints that the index is stored in.
    pub const fn files(&self) -> IndexChain {
        self.files
    }

    /// How the nodes of the trie are hashed.
    pub fn commitment(&self) -> Commitment {
        self.shards[0].trie.commitment()
    }

    /// Whether the whole index is in memory.
    pub const fn is_resident(&self) -> bool {
        self.parts.is_none()
    }

    /// Memory of the index, including the cache of parts, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let shards = self.shards.iter().map(Shard::memory_bytes);
        let cached = self.parts.as_ref().map_or(0, PartFile::cached_bytes);
        shards.sum::<usize>() + cached
    }

    /// Whether the whole index is in memory and takes at most `bytes_max` bytes there.
    pub fn fits(&self, bytes_max: u64) -> bool {
        self.is_resident() && self.memory_bytes() as u64 <= bytes_max
    }

    /// Memory to reserve for this index, where `bytes_max` is the memory limit of an index, in bytes. A
    /// merge makes all tops of an index on disk anew.
    pub fn reserved(&self, bytes_max: u64) -> IndexMemory {
        let shards = self.shards.iter().map(Shard::memory_bytes);
        let bytes = shards.sum::<usize>() as u64;
        match self.parts {
            None => IndexMemory {
                held: bytes,
                replaced_max: bytes,
            },
            Some(_) => IndexMemory {
                held: 2 * bytes + bytes_max,
                replaced_max: 0,
            },
        }
    }

    /// Size of the parts on disk, in bytes. 0 if the whole index is in memory.
    pub fn bytes_on_disk(&self) -> u64 {
        match self.parts {
            Some(_) => self.shards.iter().map(|shard| shard.len).sum(),
            None => 0,
        }
    }

    /// Number of pages that the index names.
    pub fn pages(&self) -> u64 {
        self.shards.iter().map(|shard| shard.pages).sum()
    }

    /// Number of pages that a shard names.
    pub fn pages_of(&self, shard: usize) -> u64 {
        self.shards[shard].pages
    }

    /// Returns the top of a shard. At least the root is in it, perhaps blinded.
    pub fn top(&self, shard: usize) -> &PartialTrie {
        &self.shards[shard].trie
    }

    /// Returns a whole shard as one trie, reading its parts if they are on disk.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the parts can't be read or decoded.
    pub fn whole(&self, shard: usize) -> Result<Arc<PartialTrie>, StateError> {
        let shard = &self.shards[shard];
        match &self.parts {
            None => Ok(match shard.blocks.is_empty() {
                true => shard.trie.clone(),
                false => Arc::new(blocks::joined(shard)),
            }),
            Some(file) => file.whole(shard).map(Arc::new),
        }
    }

    /// Returns a shard for a merge of the dirty trie `dirty`. With `turn`, further blocks are opened, or parts in the segments:
    /// those that have this turn.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the parts can't be read or decoded.
    pub(crate) fn opened(
        &self,
        shard: usize,
        dirty: &PartialTrie,
        turn: Option<&Turn<'_>>,
    ) -> Result<OpenedShard<'_>, StateError> {
        let shard = &self.shards[shard];
        let (trie, opened) = match &self.parts {
            None => {
                let (trie, unopened) = blocks::opened(shard, dirty, turn);
                (trie, Opened::Blocks(unopened))
            }
            Some(file) if file.is_in_segments() => {
                let (trie, opened) = file.opened(shard, dirty, turn)?;
                (trie, Opened::Parts(opened))
            }
            Some(file) => (file.whole(shard)?, Opened::Parts(OpenedParts::default())),
        };
        let trie = Arc::new(trie);
        Ok(OpenedShard { trie, opened })
    }

    /// Looks up the leaf at `path`, an account's or a slot's, reading a part of the index if
    /// needed.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the part can't be read or decoded.
    pub fn look_up(&self, path: &Path, held: &mut HeldParts) -> Result<IndexLookup, StateError> {
        let shard = &self.shards[shard_of(path)];
        let found = found(shard.trie.lookup(path));
        let IndexLookup::Page { stub, depth } = found else {
            return Ok(found);
        };
        if let Some(below) = shard.block_of(&stub, depth) {
            return Ok(match deepest(below, path, true).1 {
                Walked::Page(stub, depth) => IndexLookup::Page { stub, depth },
                Walked::Leaf(leaf) => IndexLookup::Resident(leaf),
                Walked::Node | Walked::Below(_) => IndexLookup::Resident(Lookup::Absent),
            });
        }
        match shard.part_of(&stub) {
            None => Ok(found),
            Some(part) => {
                let part = self.part(part, &path.prefix(depth), held)?;
                Ok(self::found(part.lookup(path)))
            }
        }
    }

    /// Returns the node at `path`, or the blinded node of the page that may contain it. `None` if
    /// the index has neither.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if a part of the index can't be read or decoded.
    pub fn node_at(
        &self,
        path: &Path,
        held: &mut HeldParts,
    ) -> Result<Option<Node<'_>>, StateError> {
        let shard = &self.shards[shard_of(path)];
        let Some((link, depth)) = shard.trie.find_or_stub(path) else {
            return Ok(None);
        };
        let trie = TrieRef::Resident(&shard.trie);
        let stub = shard.trie.as_stub(link).filter(|_| link.is_stub());
        let Some(stub) = stub.filter(|stub| PartRef::of(stub).is_some()) else {
            return Ok(Some(Node { trie, link, depth }));
        };
        let trie = match (shard.block_of(&stub, depth), shard.part_of(&stub)) {
            (Some(below), _) => held.decoded(deepest(below, path, false).0, path, &shard.trie),
            (None, Some(part)) => self.part(part, &path.prefix(depth), held)?,
            (None, None) => return Ok(None),
        };
        let trie = TrieRef::Part(trie);
        let found = trie.find_or_stub(path);
        Ok(found.map(|(link, depth)| Node { trie, link, depth }))
    }

    /// Returns the root of the block or part that the blinded node `stub` at `path` names. `None` if it
    /// names a page.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if the part can't be read or decoded.
    pub fn part_at(
        &self,
        stub: &Stub,
        path: &Path,
        held: &mut HeldParts,
    ) -> Result<Option<Node<'_>>, StateError> {
        let Some(part) = self.shards[shard_of(path)].part_of(stub) else {
            return Ok(None);
        };
        if self.is_resident() {
            // Its number is relative to the block above.
            return self.node_at(path, held);
        }
        let trie = self.part(part, path, held)?;
        Ok(Some(Node {
            link: trie.root(),
            trie: TrieRef::Part(trie),
            depth: path.len(),
        }))
    }

    /// Returns the part that a look-up of `leaf` needs, if it is in memory; whether it is not, if
    /// the look-up needs one.
    pub(crate) fn part_in_memory(&self, leaf: &Path) -> PartInMemory {
        let Some(file) = &self.parts else {
            return PartInMemory::NotNeeded;
        };
        let shard = &self.shards[shard_of(leaf)];
        let Lookup::Stub { stub, .. } = shard.trie.lookup(leaf) else {
            return PartInMemory::NotNeeded;
        };
        match shard.part_of(stub).map(|part| file.cached(part)) {
            None => PartInMemory::NotNeeded,
            Some(Some(part)) => PartInMemory::There(part),
            Some(None) => PartInMemory::Missing,
        }
    }

    /// Reads the parts that look-ups of `leaves` need, all in flight at once. Does nothing if the
    /// whole index is in memory.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if a part can't be read or decoded.
    pub fn prefetch_parts(
        &self,
        leaves: impl IntoIterator<Item = Path>,
    ) -> Result<HeldParts, StateError> {
        let mut held = HeldParts::default();
        let Some(file) = &self.parts else {
            return Ok(held);
        };
        let mut wanted = Vec::new();
        for path in leaves {
            let shard = &self.shards[shard_of(&path)];
            let Lookup::Stub { stub, depth } = shard.trie.lookup(&path) else {
                continue;
            };
            let Some(part) = shard.part_of(stub).filter(|part| held.get(*part).is_none()) else {
                continue;
            };
            match file.cached(part) {
                Some(trie) => _ = held.ahead.insert(part, trie),
                None => wanted.push((part, path.prefix(depth))),
            }
        }
        wanted.sort_unstable_by_key(|(part, _)| *part);
        wanted.dedup_by_key(|(part, _)| *part);
        for ((part, _), read) in wanted.iter().zip(file.read_batch(&wanted)) {
            held.ahead.insert(*part, read?);
        }
        Ok(held)
    }

    /// Returns the part whose root is at `path`: held, cached, or read from disk.
    fn part(
        &self,
        part: PartRef,
        path: &Path,
        held: &mut HeldParts,
    ) -> Result<Arc<PartialTrie>, StateError> {
        if let Some(trie) = held.get(part) {
            return Ok(trie.clone());
        }
        let file = self.parts.as_ref().ok_or(StateError::Broken {
            path: *path,
            what: "the file of a part of the index",
        })?;
        let trie = match file.cached(part) {
            Some(trie) => trie,
            None => file.read(part, path)?,
        };
        held.last = Some((part, trie.clone()));
        Ok(trie)
    }
}

fn found(lookup: Lookup<'_>) -> IndexLookup {
    match lookup {
        Lookup::Stub { stub, depth } => IndexLookup::Page { stub: *stub, depth },
        Lookup::Account(account) => IndexLookup::Resident(Lookup::Account(account)),
        Lookup::Slot(value) => IndexLookup::Resident(Lookup::Slot(value)),
        Lookup::Entry(value) => IndexLookup::Resident(Lookup::Entry(value)),
        Lookup::Absent => IndexLookup::Resident(Lookup::Absent),
    }
}
