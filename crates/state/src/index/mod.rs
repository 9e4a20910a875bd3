//! The index of a snapshot: the upper part of the state trie, whose stubs name pages. It is in
//! memory, or, where that is too small for it, its lower levels are on disk:
//!
//! ```text
//!   top       always in memory                    (branch)
//!                                                /   |    \
//!   parts     in the checkpoint's file,     (part) (part) (part)    up to PART_BYTES_MAX each
//!             and a cache                    / \    / \    / \
//!   pages     in segments                   [] []  [] []  [] []
//! ```
//!
//! A look-up then takes one read for the part besides that for the page. A checkpoint holds the
//! index in parts, so that a database opens with whatever memory there is; or, as long as it is in
//! memory, only what has changed in it since the checkpoint before.
//!
//! What goes through a whole shard gets it with all parts joined to its top, by one read: a few
//! shards are in memory at a time then ([`Index::whole`]).

mod parts;
mod read;
mod write;

pub(crate) use parts::PartCache;
pub(crate) use read::{FoundIndex, IndexOnDisk, read_index};
pub(crate) use write::{IndexFiles, IndexWriter, WrittenIndex};

use crate::{error::StateError, forest::shard_of};
use cambium_primitives::Path;
use cambium_trie::{Link, Lookup, NodeView, PartialTrie, Stub};
use parts::{PartFile, PartRef};
use rustc_hash::FxBuildHasher;
use std::{collections::HashMap, ops::Deref, sync::Arc};

/// Names of the checkpoint's sections.
const INDEX: &str = "index";
const TOPS: &str = "tops";
const CHANGES: &str = "changes";
const CHANGED: &str = "changed";

/// See the module's head. Immutable.
pub(crate) struct Index {
    /// One for each of the 256 first bytes of a path.
    shards: Vec<Shard>,
    /// There if the shards are tops of what is in a file.
    parts: Option<PartFile>,
    files: IndexFiles,
}

struct Shard {
    /// The whole shard, or its top.
    trie: Arc<PartialTrie>,
    /// Pages that the whole shard names.
    pages: u64,
    /// Where its parts are in the section of the checkpoint, side by side.
    offset: u64,
    len: u64,
}

impl Shard {
    /// The part that a stub of the top stands for, if it is no page.
    fn part_of(&self, stub: &Stub) -> Option<PartRef> {
        let part = PartRef::of(stub)?;
        Some(PartRef {
            offset: self.offset.saturating_add(part.offset),
            ..part
        })
    }
}

/// What the index says of a leaf.
#[derive(Clone, Copy)]
pub(crate) enum Found {
    /// The leaf itself, or that there is none.
    Resident(Lookup<'static>),
    /// It is in the page behind this stub, if it is anywhere.
    Page {
        stub: Stub,
        /// Nibbles of the path down to the page.
        depth: usize,
    },
}

/// A node of the index.
pub(crate) struct Node<'a> {
    pub(crate) trie: TrieRef<'a>,
    pub(crate) link: Link,
    /// Nibbles of the path down to it.
    pub(crate) depth: usize,
}

/// The trie in which a node of the index is.
#[derive(Clone)]
pub(crate) enum TrieRef<'a> {
    Resident(&'a PartialTrie),
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
pub(crate) struct Held {
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
    fn new(shards: Vec<Shard>, parts: Option<PartFile>, files: IndexFiles) -> Self {
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
    pub(crate) const fn files(&self) -> IndexFiles {
        self.files
    }

    /// Whether all of it is in memory.
    pub(crate) const fn is_resident(&self) -> bool {
        self.parts.is_none()
    }

    /// Memory that it takes: the cache of parts is part of it.
    pub(crate) fn memory_bytes(&self) -> usize {
        let tries = self.shards.iter().map(|shard| shard.trie.memory_bytes());
        let cached = self.parts.as_ref().map_or(0, PartFile::cached_bytes);
        tries.sum::<usize>() + cached
    }

    /// Whether all of it is in memory, and may be.
    pub(crate) fn fits(&self, bytes_max: u64) -> bool {
        self.is_resident() && self.memory_bytes() as u64 <= bytes_max
    }

    /// Memory that must be left for it, and for the next one while a merge makes that, if it may
    /// take `bytes_max`.
    pub(crate) fn reserved_bytes(&self, bytes_max: u64) -> u64 {
        let tries = self.shards.iter().map(|shard| shard.trie.memory_bytes());
        let cached = self.parts.as_ref().map_or(0, |_| bytes_max);
        2 * tries.sum::<usize>() as u64 + cached
    }

    /// Bytes of parts that have to be read when they are needed.
    pub(crate) fn bytes_on_disk(&self) -> u64 {
        match self.parts {
            Some(_) => self.shards.iter().map(|shard| shard.len).sum(),
            None => 0,
        }
    }

    /// Pages that it names.
    pub(crate) fn pages(&self) -> u64 {
        self.shards.iter().map(|shard| shard.pages).sum()
    }

    /// Pages that a shard names.
    pub(crate) fn pages_of(&self, shard: usize) -> u64 {
        self.shards[shard].pages
    }

    /// A shard as far as it is in memory: its root at least, or a stub of it.
    pub(crate) fn top(&self, shard: usize) -> &PartialTrie {
        &self.shards[shard].trie
    }

    /// A whole shard.
    pub(crate) fn whole(&self, shard: usize) -> Result<Arc<PartialTrie>, StateError> {
        let shard = &self.shards[shard];
        match &self.parts {
            None => Ok(shard.trie.clone()),
            Some(file) => file.whole(shard).map(Arc::new),
        }
    }

    /// Looks for the leaf at `path`, an account's or a slot's.
    pub(crate) fn look_up(&self, path: &Path, held: &mut Held) -> Result<Found, StateError> {
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
    pub(crate) fn node_at(
        &self,
        path: &Path,
        held: &mut Held,
    ) -> Result<Option<Node<'_>>, StateError> {
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
    pub(crate) fn part_at(
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
    pub(crate) fn parts_ahead(
        &self,
        leaves: impl IntoIterator<Item = Path>,
    ) -> Result<Held, StateError> {
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

/// A copy of a shard without the references of its nodes: only those of its pages.
pub(crate) fn without_references(whole: &PartialTrie) -> Result<PartialTrie, StateError> {
    let mut bare = PartialTrie::new(*whole.base());
    let (mut none, references) = (|_: &mut _, _, _: &_| Ok(None), false);
    let root = copy_with(
        whole,
        whole.root(),
        whole.base(),
        &mut bare,
        references,
        &mut none,
    )?;
    bare.set_root(root);
    Ok(bare)
}

/// Copies the subtrie at `link` of `from`, which sits at `at`, to `into`, with its references.
/// Where `instead` gives a link, that takes the subtrie's place. Recursion is bounded by the path's
/// 128 nibbles.
fn copy(
    from: &PartialTrie,
    link: Link,
    at: &Path,
    into: &mut PartialTrie,
    instead: &mut impl FnMut(&mut PartialTrie, Link, &Path) -> Result<Option<Link>, StateError>,
) -> Result<Link, StateError> {
    copy_with(from, link, at, into, true, instead)
}

fn copy_with(
    from: &PartialTrie,
    link: Link,
    at: &Path,
    into: &mut PartialTrie,
    references: bool,
    instead: &mut impl FnMut(&mut PartialTrie, Link, &Path) -> Result<Option<Link>, StateError>,
) -> Result<Link, StateError> {
    if let Some(link) = instead(into, link, at)? {
        return Ok(link);
    }
    let copied = match from.visit(link) {
        NodeView::Empty => return Ok(Link::EMPTY),
        NodeView::Stub(stub) => return Ok(into.push_stub(*stub)),
        NodeView::Branch { children } => {
            let mut copies = [Link::EMPTY; 16];
            for (nibble, child) in (0u8..).zip(children) {
                let at = at.child(nibble);
                copies[usize::from(nibble)] =
                    copy_with(from, *child, &at, into, references, instead)?;
            }
            into.push_branch(copies)
        }
        NodeView::Extension { path, child } => {
            let to = at.join(&path);
            let child = copy_with(from, child, &to, into, references, instead)?;
            into.push_extension(at.len(), &to, child)
        }
        NodeView::Account {
            key,
            account,
            storage,
            ..
        } => {
            let at_storage = Path::account(&key);
            let storage = copy_with(from, storage, &at_storage, into, references, instead)?;
            into.push_account(at.len(), &key, &account, storage)
        }
        NodeView::Slot { key, value, .. } => into.push_slot(at.len(), &key, value),
    };
    if let Some(memo) = from.memo(link).filter(|_| references) {
        into.set_memo(copied, memo);
    }
    Ok(copied)
}

fn found(lookup: Lookup<'_>) -> Found {
    match lookup {
        Lookup::Stub { stub, depth } => Found::Page { stub: *stub, depth },
        Lookup::Account(account) => Found::Resident(Lookup::Account(account)),
        Lookup::Slot(value) => Found::Resident(Lookup::Slot(value)),
        Lookup::Absent => Found::Resident(Lookup::Absent),
    }
}
