//! Looking for leaves and nodes in the index.

use super::{
    files::IndexFiles,
    parts::PartFile,
    shard::{PartRef, Shard},
};
use crate::base::{error::StateError, layout::shard_of};
use cambium_primitives::Path;
use cambium_trie::{Link, Lookup, PartialTrie, Stub};
use rustc_hash::FxBuildHasher;
use std::{collections::HashMap, ops::Deref, sync::Arc};

/// See the module's head. Immutable.
pub struct Index {
    /// One for each of the 256 first bytes of a path.
    pub(super) shards: Vec<Shard>,
    /// There if the shards are tops of what is in a file.
    pub(super) parts: Option<PartFile>,
    pub(super) files: IndexFiles,
}

/// What the index says of a leaf.
#[derive(Clone, Copy)]
pub enum Found {
    /// The leaf itself, or that there is none.
    Resident(Lookup<'static>),
    /// It is in the page behind this stub, if it is anywhere.
    Page {
        /// Names the page.
        stub: Stub,
        /// Nibbles of the path down to the page.
        depth: usize,
    },
}

/// A node of the index.
pub struct Node<'a> {
    pub trie: TrieRef<'a>,
    pub link: Link,
    /// Nibbles of the path down to it.
    pub depth: usize,
}

/// The trie in which a node of the index is.
#[derive(Clone)]
pub enum TrieRef<'a> {
    /// A shard, or its top.
    Resident(&'a PartialTrie),
    /// A part that was read from the disk.
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

/// Parts that somebody works with, whatever becomes of them in the cache.
#[derive(Default)]
pub struct Held {
    /// Those that were read ahead, by their offset.
    ahead: HashMap<u64, Arc<PartialTrie>, FxBuildHasher>,
    /// The one that was asked for last: it is often the next one, too.
    last: Option<(u64, Arc<PartialTrie>)>,
}

impl Held {
    fn get(&self, part: PartRef) -> Option<&Arc<PartialTrie>> {
        match &self.last {
            Some((offset, trie)) if *offset == part.offset => Some(trie),
            _ => self.ahead.get(&part.offset),
        }
    }
}

impl Index {
    pub(super) fn new(shards: Vec<Shard>, parts: Option<PartFile>, files: IndexFiles) -> Self {
        if let Some(parts) = &parts {
            let tops = shards.iter().map(|shard| shard.trie.memory_bytes());
            parts.make_room(tops.sum());
        }
        Self {
            shards,
            parts,
            files,
        }
    }

    /// Where it is durable.
    pub const fn files(&self) -> IndexFiles {
        self.files
    }

    /// Whether all of it is in memory.
    pub const fn is_resident(&self) -> bool {
        self.parts.is_none()
    }

    /// Memory that it takes: the cache of parts is part of it.
    pub fn memory_bytes(&self) -> usize {
        let tries = self.shards.iter().map(|shard| shard.trie.memory_bytes());
        let cached = self.parts.as_ref().map_or(0, PartFile::cached_bytes);
        tries.sum::<usize>() + cached
    }

    /// Whether all of it is in memory, and may be.
    pub fn fits(&self, bytes_max: u64) -> bool {
        self.is_resident() && self.memory_bytes() as u64 <= bytes_max
    }

    /// Memory that must be left for it, and for the next one while a merge makes that, if it may
    /// take `bytes_max`.
    pub fn reserved_bytes(&self, bytes_max: u64) -> u64 {
        let tries = self.shards.iter().map(|shard| shard.trie.memory_bytes());
        let cached = self.parts.as_ref().map_or(0, |_| bytes_max);
        2 * tries.sum::<usize>() as u64 + cached
    }

    /// Bytes of parts that have to be read when they are needed.
    pub fn bytes_on_disk(&self) -> u64 {
        match self.parts {
            Some(_) => self.shards.iter().map(|shard| shard.len).sum(),
            None => 0,
        }
    }

    /// Pages that it names.
    pub fn pages(&self) -> u64 {
        self.shards.iter().map(|shard| shard.pages).sum()
    }

    /// Pages that a shard names.
    pub fn pages_of(&self, shard: usize) -> u64 {
        self.shards[shard].pages
    }

    /// A shard as far as it is in memory: its root at least, or a stub of it.
    pub fn top(&self, shard: usize) -> &PartialTrie {
        &self.shards[shard].trie
    }

    /// A whole shard.
    pub fn whole(&self, shard: usize) -> Result<Arc<PartialTrie>, StateError> {
        let shard = &self.shards[shard];
        match &self.parts {
            None => Ok(shard.trie.clone()),
            Some(file) => file.whole(shard).map(Arc::new),
        }
    }

    /// Looks for the leaf at `path`, an account's or a slot's.
    pub fn look_up(&self, path: &Path, held: &mut Held) -> Result<Found, StateError> {
        let shard = &self.shards[shard_of(path)];
        let found = found(shard.trie.lookup(path));
        let Found::Page { stub, depth } = found else {
            return Ok(found);
        };
        match shard.part_of(&stub) {
            None => Ok(found),
            Some(part) => {
                let part = self.part(part, &path.prefix(depth), held)?;
                Ok(self::found(part.lookup(path)))
            }
        }
    }

    /// The node that sits at `path`, or the page's stub above it.
    pub fn node_at(&self, path: &Path, held: &mut Held) -> Result<Option<Node<'_>>, StateError> {
        let shard = &self.shards[shard_of(path)];
        let Some((link, depth)) = shard.trie.find_or_stub(path) else {
            return Ok(None);
        };
        let trie = TrieRef::Resident(&shard.trie);
        let stub = shard.trie.as_stub(link).filter(|_| link.is_stub());
        let Some(part) = stub.and_then(|stub| shard.part_of(&stub)) else {
            return Ok(Some(Node { trie, link, depth }));
        };
        let trie = TrieRef::Part(self.part(part, &path.prefix(depth), held)?);
        let found = trie.find_or_stub(path);
        Ok(found.map(|(link, depth)| Node { trie, link, depth }))
    }

    /// The root of the part that `stub`, which sits at `path`, stands for. `None` if that is a
    /// page.
    pub fn part_at(
        &self,
        stub: &Stub,
        path: &Path,
        held: &mut Held,
    ) -> Result<Option<Node<'_>>, StateError> {
        let Some(part) = self.shards[shard_of(path)].part_of(stub) else {
            return Ok(None);
        };
        let trie = self.part(part, path, held)?;
        Ok(Some(Node {
            link: trie.root(),
            trie: TrieRef::Part(trie),
            depth: path.len(),
        }))
    }

    /// Reads the parts that look-ups of leaves need, all at once. Takes no time if all of the
    /// index is in memory.
    pub fn parts_ahead(&self, leaves: impl IntoIterator<Item = Path>) -> Result<Held, StateError> {
        let mut held = Held::default();
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
                Some(trie) => _ = held.ahead.insert(part.offset, trie),
                None => wanted.push((part, path.prefix(depth))),
            }
        }
        wanted.sort_unstable_by_key(|(part, _)| part.offset);
        wanted.dedup_by_key(|(part, _)| part.offset);
        held.ahead.extend(file.read_batch(&wanted)?);
        Ok(held)
    }

    /// The part that sits at `path`.
    fn part(
        &self,
        part: PartRef,
        path: &Path,
        held: &mut Held,
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
        held.last = Some((part.offset, trie.clone()));
        Ok(trie)
    }
}

fn found(lookup: Lookup<'_>) -> Found {
    match lookup {
        Lookup::Stub { stub, depth } => Found::Page { stub: *stub, depth },
        Lookup::Account(account) => Found::Resident(Lookup::Account(account)),
        Lookup::Slot(value) => Found::Resident(Lookup::Slot(value)),
        Lookup::Absent => Found::Resident(Lookup::Absent),
    }
}
