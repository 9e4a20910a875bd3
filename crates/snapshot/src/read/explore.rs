//! The snapshot as people look at it: which pages there are, and the way of a read, step by step.

use super::snapshot::Snapshot;
use crate::{
    base::{
        error::StateError,
        key::Key,
        layout::{addr_of_stub, shard_of, shard_prefix},
    },
    index::{HeldParts, IndexLookup, PartInMemory, TrieRef},
    pages::ReadCause,
};
use cambium_primitives::Path;
use cambium_store::PageAddr;
use cambium_trie::NodeView;

/// A page that the index names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPage {
    /// Path of the subtrie that is in the page.
    pub path: Path,
    /// Where the page is.
    pub addr: PageAddr,
    /// Whether it is in memory.
    pub is_cached: bool,
}

/// A step on the way to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// The value cache is asked.
    ValueCache {
        /// Whether it has the value.
        found: bool,
    },
    /// The index is asked.
    Index {
        /// Which of the 256 shards.
        shard: usize,
        /// Path of the page that may have the leaf; `None` if the index itself answers.
        page: Option<Path>,
        /// Device reads: 1 for a part of the index that is not in memory.
        device_reads: u32,
    },
    /// A page is searched.
    Page {
        /// Segment, offset and length of the page.
        addr: PageAddr,
        /// Whether it was in memory, so that no device read was needed.
        is_cached: bool,
        /// Leaves in it.
        leaves: usize,
        /// Whether the leaf is among them.
        found: bool,
    },
}

impl Snapshot {
    /// The pages of a shard, 0 to 255, in the order of their paths, at most `most`, and whether there are more. Parts of the index
    /// that are not in memory are read.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index can't be read.
    pub fn pages_of(&self, shard: usize, most: usize) -> Result<(Vec<MapPage>, bool), StateError> {
        let (mut pages, mut held) = (Vec::new(), HeldParts::default());
        let top = self.index.top(shard);
        let mut todo = vec![(TrieRef::Resident(top), top.root(), shard_prefix(shard))];
        while let Some((trie, link, at)) = todo.pop() {
            match trie.visit(link) {
                NodeView::Stub(stub) => match self.index.part_at(stub, &at, &mut held)? {
                    Some(part) => todo.push((part.trie, part.link, at)),
                    None if pages.len() == most => return Ok((pages, true)),
                    None => pages.push(MapPage {
                        path: at,
                        addr: addr_of_stub(stub, &at)?,
                        is_cached: self.pages.has(addr_of_stub(stub, &at)?),
                    }),
                },
                NodeView::Branch { children } => {
                    let nibbles = children.iter().zip(0u8..16).rev();
                    let there = nibbles.filter(|(child, _)| !child.is_empty());
                    todo.extend(
                        there.map(|(child, nibble)| (trie.clone(), *child, at.child(nibble))),
                    );
                }
                NodeView::Extension { path, child } => {
                    todo.push((trie.clone(), child, at.join(&path)));
                }
                NodeView::Account { key, storage, .. } => {
                    if !storage.is_empty() {
                        todo.push((trie.clone(), storage, Path::account(&key)));
                    }
                }
                NodeView::Entry { .. } | NodeView::Slot { .. } | NodeView::Empty => {}
            }
        }
        Ok((pages, false))
    }

    /// The way to a key's value, whole: also what a read leaves out since the value cache has the value.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::read`].
    pub fn walk<K: Key>(&self, key: &K) -> Result<(Vec<ReadStep>, K::Value), StateError> {
        let cached = self.value_cache.get(key);
        let mut steps = vec![ReadStep::ValueCache {
            found: cached.is_some(),
        }];
        let path = key.path();
        let is_missing = matches!(self.index.part_in_memory(&path), PartInMemory::Missing);
        let found = self.index.look_up(&path, &mut HeldParts::default())?;
        let mut index = |page| {
            steps.push(ReadStep::Index {
                shard: shard_of(&path),
                page,
                device_reads: u32::from(is_missing),
            });
        };
        let (stub, depth) = match found {
            IndexLookup::Resident(leaf) => {
                index(None);
                return Ok((steps, K::resident(&leaf)));
            }
            IndexLookup::Page { stub, depth } => (stub, depth),
        };
        let prefix = path.prefix(depth);
        index(Some(prefix));
        let addr = addr_of_stub(&stub, &prefix)?;
        let is_cached = self.pages.has(addr);
        let page = self.pages.read(&stub, &prefix, ReadCause::Value)?;
        steps.push(ReadStep::Page {
            addr,
            is_cached,
            leaves: page.leaves().count(),
            found: page.get(&path).is_some(),
        });
        Ok((steps, K::in_page(&page, &path)?))
    }
}
