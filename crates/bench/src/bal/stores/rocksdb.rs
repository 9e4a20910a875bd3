//! RocksDB as a state provider.

use super::{
    pairs::Pairs,
    provider::{ProviderError, Values},
};
use crate::state::stores::{
    Failure,
    rocksdb::{options, settle},
};
use cambium_primitives::DecodeError;
use rocksdb::{DB, WriteBatch, WriteOptions};
use std::path::Path;

/// Number of pairs per write batch while loading.
const LOAD_CHUNK: usize = 1 << 16;
/// Percentage of the share of memory for the block cache, which includes filters and indexes.
/// The measurement writes nothing.
const CACHE_PERCENT: u64 = 80;
const LOAD_CACHE_BYTES: usize = 256 << 20;

/// Creates a database in `dir`.
pub(crate) fn load(dir: &Path, pairs: &Pairs) -> Result<(), Failure> {
    let db = DB::open(&options(LOAD_CACHE_BYTES), dir)?;
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let mut pairs = pairs.iter().peekable();
    while pairs.peek().is_some() {
        let mut batch = WriteBatch::default();
        for (key, value) in pairs.by_ref().take(LOAD_CHUNK) {
            batch.put(key, value);
        }
        db.write_opt(batch, &unlogged)?;
    }
    settle(&db)
}

/// An open RocksDB database.
pub(crate) struct RocksValues {
    db: DB,
    cache_bytes: usize,
}

impl RocksValues {
    /// Opens the database for reading, with this share of memory.
    pub(crate) fn open(dir: &Path, memory_bytes: u64) -> Result<Self, Failure> {
        let cache_bytes = (memory_bytes / 100 * CACHE_PERCENT) as usize;
        Ok(Self {
            db: DB::open_for_read_only(&options(cache_bytes), dir, false)?,
            cache_bytes,
        })
    }
}

fn failed(error: rocksdb::Error) -> ProviderError {
    ProviderError::Store(error.to_string())
}

impl Values for RocksValues {
    fn get<T>(
        &self,
        key: &[u8],
        take: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, ProviderError> {
        let value = self.db.get_pinned(key).map_err(failed)?;
        Ok(value.map(|value| take(&value)).transpose()?)
    }

    fn has_longer(&self, prefix: &[u8]) -> Result<bool, ProviderError> {
        let mut iterator = self.db.raw_iterator();
        iterator.seek([prefix, &[0]].concat());
        iterator.status().map_err(failed)?;
        Ok(iterator.key().is_some_and(|key| key.starts_with(prefix)))
    }

    fn configuration(&self) -> String {
        format!(
            "RocksDB (crate 0.25), opened for reading, options as in `state`: block cache of {} \
             MiB with filters and indexes in it, direct reads; loaded in order of keys",
            self.cache_bytes >> 20
        )
    }
}
