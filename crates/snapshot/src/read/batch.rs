//! Reads from a snapshot, of single keys and of batches. The pages that a batch of keys needs are
//! read in one batch, sorted by their position on disk, and each only once.

use crate::{
    base::{
        error::StateError,
        key::Key,
        layout::{addr_of_place, addr_of_stub},
    },
    index::{HeldParts, IndexLookup},
    pages::{PagePin, ReadCause},
    read::snapshot::Snapshot,
};
use cambium_primitives::Path;

/// Number of keys in one batch of reads: several times the queue depth at which devices are
/// fastest, and few enough that the pages of all threads' batches are a small part of the page
/// cache.
pub const CHUNK_KEYS: usize = 1024;
/// Fewest keys that one thread reads of a batch that several share, where pages must be read or taken apart for
/// many of them: 0.2 to 0.5 ms.
pub const PORTION_KEYS_MIN: usize = 64;
/// The same where nearly all keys are found in tries in memory: 0.1 to 0.3 ms.
pub const PORTION_FOUND_KEYS_MIN: usize = 256;

impl Snapshot {
    /// Prefetches the pages of leaves into the page cache, in batches of [`CHUNK_KEYS`]. `why` must
    /// be a cause for which [`Pages::read_batch`](crate::Pages::read_batch) caches pages.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read.
    pub fn prefetch_pages(
        &self,
        leaves: impl Iterator<Item = Path>,
        why: ReadCause,
    ) -> Result<(), StateError> {
        let leaves: Vec<Path> = leaves.collect();
        for chunk in leaves.chunks(CHUNK_KEYS) {
            let mut parts = self.index.prefetch_parts(chunk.iter().copied())?;
            let mut wanted = Vec::new();
            for path in chunk {
                let IndexLookup::Page { stub, depth } = self.index.look_up(path, &mut parts)?
                else {
                    continue;
                };
                let prefix = path.prefix(depth);
                if self.pages.cached(&stub, &prefix)?.is_none() {
                    wanted.push((stub, prefix));
                }
            }
            wanted.sort_unstable_by_key(|(stub, _)| stub.place.map(addr_of_place));
            wanted.dedup_by_key(|(stub, _)| stub.place);
            let stubs: Vec<_> = wanted.iter().map(|(stub, path)| (stub, *path)).collect();
            for page in self.pages.read_batch(&stubs, why) {
                page?;
            }
        }
        Ok(())
    }

    /// Reads one key, through the value cache. Keeps the page in `pin`, if a page answers.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read.
    pub fn read<K: Key>(&self, key: &K, pin: Option<&PagePin>) -> Result<K::Value, StateError> {
        if let Some(value) = self.value_cache.get(key) {
            return Ok(value);
        }
        let path = key.path();
        let value = match self.index.look_up(&path, &mut HeldParts::default())? {
            IndexLookup::Resident(leaf) => K::resident(&leaf),
            IndexLookup::Page { stub, depth } => {
                let prefix = path.prefix(depth);
                let page = self.pages.read(&stub, &prefix, ReadCause::Value)?;
                if let Some(pin) = pin {
                    pin.keep(addr_of_stub(&stub, &prefix)?, &page);
                }
                K::in_page(&page, &path)?
            }
        };
        self.value_cache.put(key, &value);
        Ok(value)
    }

    /// Reads a batch of keys, past the value cache, and keeps their pages in `pin`. Each key comes
    /// with the index in `values` that its value is written to.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] or another error of damage if the index or a page can't be read. Some
    /// elements of `values` are not written then.
    ///
    /// # Panics
    ///
    /// If an index is out of range.
    pub fn read_into<K: Key>(
        &self,
        keys: &[(usize, K)],
        values: &mut [Option<K::Value>],
        pin: Option<&PagePin>,
    ) -> Result<(), StateError> {
        let mut parts = self
            .index
            .prefetch_parts(keys.iter().map(|(_, key)| key.path()))?;
        let mut wanted = Vec::new();
        for (at, key) in keys {
            let path = key.path();
            let (stub, depth) = match self.index.look_up(&path, &mut parts)? {
                IndexLookup::Page { stub, depth } => (stub, depth),
                IndexLookup::Resident(leaf) => {
                    values[*at] = Some(K::resident(&leaf));
                    continue;
                }
            };
            let prefix = path.prefix(depth);
            match self.pages.cached(&stub, &prefix)? {
                Some(page) => {
                    if let Some(pin) = pin {
                        pin.keep(addr_of_stub(&stub, &prefix)?, &page);
                    }
                    values[*at] = Some(K::in_page(&page, &path)?);
                }
                None => wanted.push((stub, prefix, path, *at)),
            }
        }
        // In disk order, with the keys of one page next to each other.
        wanted.sort_unstable_by_key(|(stub, ..)| stub.place.map(addr_of_place));
        let groups: Vec<_> = wanted.chunk_by(|a, b| a.0.place == b.0.place).collect();
        let stubs: Vec<_> = groups
            .iter()
            .map(|group| (&group[0].0, group[0].1))
            .collect();
        let pages = self.pages.read_batch(&stubs, ReadCause::Value);
        for (group, page) in groups.iter().zip(pages) {
            let page = page?;
            if let Some(pin) = pin {
                pin.keep(addr_of_stub(&group[0].0, &group[0].1)?, &page);
            }
            for (_, _, path, at) in *group {
                values[*at] = Some(K::in_page(&page, path)?);
            }
        }
        Ok(())
    }
}
