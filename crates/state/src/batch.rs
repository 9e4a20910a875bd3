//! Reading many keys at once: every page that they need is in flight together.
//!
//! Keys are taken in chunks. Of each chunk, what memory has is answered at once, be it a page or
//! the cache of entries that single reads are answered from as well; the pages that the rest needs
//! are read in one batch, in the order in which they lie on disk, each once.

use crate::{
    base::Snapshot,
    entries::EntryKey,
    error::StateError,
    index::{Found, Held},
    pages::{ReadFor, account_in, page_addr, slot_in},
    pool,
    view::View,
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, DecodeError, Path, SlotValue};
use cambium_store::Page;
use cambium_trie::Lookup;
use rayon::prelude::*;

/// Keys of one batch of reads: several times the depth at which devices are fastest, and few
/// enough that the pages of all threads' chunks are a small part of the cache.
pub(crate) const CHUNK_KEYS: usize = 1024;
/// Fewer keys than this are not worth waking other threads for.
pub(crate) const PARALLEL_KEYS_MIN: usize = 256;

/// The compact form of an account has at most so many bytes, a slot's 32.
const ACCOUNT_BYTES_MAX: usize = 75;

/// Something read by its path: an account or a slot.
pub(crate) trait Key: Copy + Ord + Send + Sync {
    type Value: Send;

    fn path(&self) -> Path;

    /// The key in the cache of entries.
    fn entry(&self) -> EntryKey<'_>;

    /// What `view` has above the snapshot; `None` if the snapshot must be asked.
    fn above(&self, view: &View) -> Option<Self::Value>;

    /// What a walk of the index found, unless that is a page.
    fn resident(lookup: &Lookup<'_>) -> Self::Value;

    fn in_page(page: &Page, path: &Path) -> Result<Self::Value, StateError>;

    /// The form in which the cache of entries has it, that of pages: of no bytes if it is absent.
    fn to_entry(value: &Self::Value) -> Vec<u8>;

    /// A value from that form.
    fn from_entry(bytes: &[u8]) -> Result<Self::Value, DecodeError>;
}

/// An account by keccak(address).
impl Key for B256 {
    type Value = Option<Account>;

    fn path(&self) -> Path {
        Path::account(self)
    }

    fn entry(&self) -> EntryKey<'_> {
        EntryKey {
            account: self,
            slot: None,
        }
    }

    fn above(&self, view: &View) -> Option<Self::Value> {
        view.account_above(self)
    }

    fn resident(lookup: &Lookup<'_>) -> Self::Value {
        match lookup {
            Lookup::Account(account) => Some(*account),
            _ => None,
        }
    }

    fn in_page(page: &Page, path: &Path) -> Result<Self::Value, StateError> {
        account_in(page, path)
    }

    fn to_entry(value: &Self::Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(account) = value {
            bytes.reserve(ACCOUNT_BYTES_MAX);
            account.encode_to(&mut bytes);
        }
        bytes
    }

    fn from_entry(bytes: &[u8]) -> Result<Self::Value, DecodeError> {
        match bytes {
            [] => Ok(None),
            _ => Account::decode(bytes).map(Some),
        }
    }
}

/// A slot by keccak(address) and keccak(slot).
impl Key for (B256, B256) {
    type Value = U256;

    fn path(&self) -> Path {
        Path::slot(&self.0, &self.1)
    }

    fn entry(&self) -> EntryKey<'_> {
        EntryKey {
            account: &self.0,
            slot: Some(&self.1),
        }
    }

    fn above(&self, view: &View) -> Option<Self::Value> {
        view.slot_above(&self.0, &self.1)
    }

    fn resident(lookup: &Lookup<'_>) -> Self::Value {
        match lookup {
            Lookup::Slot(value) => *value,
            _ => U256::ZERO,
        }
    }

    fn in_page(page: &Page, path: &Path) -> Result<Self::Value, StateError> {
        slot_in(page, path)
    }

    fn to_entry(value: &Self::Value) -> Vec<u8> {
        SlotValue::new(*value).as_bytes().to_vec()
    }

    fn from_entry(bytes: &[u8]) -> Result<Self::Value, DecodeError> {
        match bytes {
            [] => Ok(U256::ZERO),
            _ => SlotValue::decode(bytes),
        }
    }
}

/// What reading many keys asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The cache of entries, which is then given what it had not.
    Entries,
    /// The pages, so that they are in memory afterwards.
    Pages,
}

impl View {
    /// Reads many accounts, by keccak(address), with all device reads in flight at once. Values
    /// are in the order of `paths`.
    pub fn accounts(&self, paths: &[B256]) -> Result<Vec<Option<Account>>, StateError> {
        self.read_all(paths, Ask::Entries)
    }

    /// Reads many slots, each by keccak(address) and keccak(slot), with all device reads in
    /// flight at once. Values are in the order of `slots`; zero where there is none.
    pub fn storage(&self, slots: &[(B256, B256)]) -> Result<Vec<U256>, StateError> {
        self.read_all(slots, Ask::Entries)
    }

    /// Brings what these keys need into memory, with all device reads in flight at once: reads
    /// of them, and the update of what they lead to, then wait for nothing.
    pub fn prefetch(&self, accounts: &[B256], slots: &[(B256, B256)]) -> Result<(), StateError> {
        self.read_all(accounts, Ask::Pages)?;
        self.read_all(slots, Ask::Pages)?;
        Ok(())
    }

    /// Reads one key.
    pub(crate) fn read<K: Key>(&self, key: &K) -> Result<K::Value, StateError> {
        let counters = &self.inner.counters;
        counters.reads.add(1);
        match key.above(self) {
            Some(value) => {
                counters.overlay_hits.add(1);
                Ok(value)
            }
            None => self.base.snapshot.read(key),
        }
    }

    pub(crate) fn read_all<K: Key>(
        &self,
        keys: &[K],
        ask: Ask,
    ) -> Result<Vec<K::Value>, StateError> {
        let chunk = |keys: &[K]| self.read_chunk(keys, ask);
        if keys.len() < PARALLEL_KEYS_MIN {
            return chunk(keys);
        }
        // Every thread has something to do even if there are few chunks.
        let size = CHUNK_KEYS.min(keys.len().div_ceil(pool::threads()));
        let chunks: Vec<_> =
            pool::install(|| keys.par_chunks(size).map(chunk).collect::<Result<_, _>>())?;
        Ok(chunks.into_iter().flatten().collect())
    }

    fn read_chunk<K: Key>(&self, keys: &[K], ask: Ask) -> Result<Vec<K::Value>, StateError> {
        self.inner.counters.reads.add(keys.len() as u64);
        let mut values = Vec::with_capacity(keys.len());
        let mut below = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            let above = key.above(self);
            if above.is_none() {
                below.push((at, *key));
            }
            values.push(above);
        }
        let hits = keys.len() - below.len();
        self.inner.counters.overlay_hits.add(hits as u64);
        let snapshot = &self.base.snapshot;
        if ask == Ask::Entries {
            below.retain(|(at, key)| {
                values[*at] = snapshot.entries.get(key);
                values[*at].is_none()
            });
        }
        snapshot.read_into(&below, &mut values)?;
        if ask == Ask::Entries {
            for (at, key) in &below {
                if let Some(value) = &values[*at] {
                    snapshot.entries.put(key, value);
                }
            }
        }
        Ok(values.into_iter().flatten().collect())
    }
}

impl Snapshot {
    /// Brings the pages of leaves into the cache, many reads in flight at once.
    pub(crate) fn bring_pages(
        &self,
        leaves: impl Iterator<Item = Path>,
        why: ReadFor,
    ) -> Result<(), StateError> {
        let leaves: Vec<Path> = leaves.collect();
        for chunk in leaves.chunks(CHUNK_KEYS) {
            let mut parts = self.index.parts_ahead(chunk.iter().copied())?;
            let mut wanted = Vec::new();
            for path in chunk {
                let Found::Page { stub, depth } = self.index.look_up(path, &mut parts)? else {
                    continue;
                };
                let prefix = path.prefix(depth);
                if self.pages.cached(&stub, &prefix)?.is_none() {
                    wanted.push((stub, prefix));
                }
            }
            wanted.sort_unstable_by_key(|(stub, _)| stub.place.map(page_addr));
            wanted.dedup_by_key(|(stub, _)| stub.place);
            let stubs: Vec<_> = wanted.iter().map(|(stub, path)| (stub, *path)).collect();
            for page in self.pages.read_batch(&stubs, why) {
                page?;
            }
        }
        Ok(())
    }

    /// Reads one key.
    fn read<K: Key>(&self, key: &K) -> Result<K::Value, StateError> {
        if let Some(value) = self.entries.get(key) {
            return Ok(value);
        }
        let path = key.path();
        let value = match self.index.look_up(&path, &mut Held::default())? {
            Found::Resident(leaf) => K::resident(&leaf),
            Found::Page { stub, depth } => {
                let prefix = path.prefix(depth);
                K::in_page(&*self.pages.read(&stub, &prefix, ReadFor::Value)?, &path)?
            }
        };
        self.entries.put(key, &value);
        Ok(value)
    }

    /// Reads keys, each with the place of its value in `values`.
    fn read_into<K: Key>(
        &self,
        keys: &[(usize, K)],
        values: &mut [Option<K::Value>],
    ) -> Result<(), StateError> {
        let mut parts = self
            .index
            .parts_ahead(keys.iter().map(|(_, key)| key.path()))?;
        let mut wanted = Vec::new();
        for (at, key) in keys {
            let path = key.path();
            let (stub, depth) = match self.index.look_up(&path, &mut parts)? {
                Found::Page { stub, depth } => (stub, depth),
                Found::Resident(leaf) => {
                    values[*at] = Some(K::resident(&leaf));
                    continue;
                }
            };
            let prefix = path.prefix(depth);
            match self.pages.cached(&stub, &prefix)? {
                Some(page) => values[*at] = Some(K::in_page(&page, &path)?),
                None => wanted.push((stub, prefix, path, *at)),
            }
        }
        // In the order of the disk, and the keys of one page side by side.
        wanted.sort_unstable_by_key(|(stub, ..)| stub.place.map(page_addr));
        let groups: Vec<_> = wanted.chunk_by(|a, b| a.0.place == b.0.place).collect();
        let stubs: Vec<_> = groups
            .iter()
            .map(|group| (&group[0].0, group[0].1))
            .collect();
        let pages = self.pages.read_batch(&stubs, ReadFor::Value);
        for (group, page) in groups.iter().zip(pages) {
            let page = page?;
            for (_, _, path, at) in *group {
                values[*at] = Some(K::in_page(&page, path)?);
            }
        }
        Ok(())
    }
}
