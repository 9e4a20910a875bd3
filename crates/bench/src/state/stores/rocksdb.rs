//! RocksDB: a log-structured merge tree without a trie.

use super::{
    Committed, Failure, Setup, Store, Write,
    bytes::{self, read_each_on_threads, read_threads},
};
use crate::{state::workload::Workload, system::cores};
use alloy_primitives::B256;
use cambium_primitives::Account;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DataBlockIndexType, Options, WaitForCompactOptions, WriteBatch,
    WriteOptions,
};

/// Number of accounts per write batch while loading.
const LOAD_CHUNK: u64 = 1 << 18;
/// Percentage of the process's memory for the block cache, which includes filters and indexes. The
/// rest is for memtables and compactions.
const CACHE_PERCENT: u64 = 50;
const MEMTABLE_BYTES: usize = 64 << 20;
const MEMTABLES_MAX: i32 = 3;
const BLOCK_BYTES: usize = 4096;
const BLOOM_BITS: f64 = 10.0;

pub(super) fn cache_bytes(setup: &Setup) -> usize {
    (setup.memory_bytes / 100 * CACHE_PERCENT) as usize
}

/// Returns options for random keys, with a block cache of `cache_bytes`.
pub(crate) fn options(cache_bytes: usize) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_size(BLOCK_BYTES);
    table.set_bloom_filter(BLOOM_BITS, false);
    table.set_format_version(6);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    table.set_block_cache(&Cache::new_hyper_clock_cache(cache_bytes, 0));
    table.set_cache_index_and_filter_blocks(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_pin_top_level_index_and_filter(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    let threads = cores() as i32;
    options.set_max_background_jobs(threads);
    options.increase_parallelism(threads);
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_max_write_buffer_number(MEMTABLES_MAX);
    options.set_memtable_whole_key_filtering(true);
    options.set_memtable_prefix_bloom_ratio(0.02);
    options.set_use_direct_reads(true);
    options.set_use_direct_io_for_flush_and_compaction(true);
    // Random keys and balances can't be compressed.
    options.set_compression_type(rocksdb::DBCompressionType::None);
    options
}

pub(super) fn load(setup: &Setup) -> Result<(), Failure> {
    let db = DB::open(&options(cache_bytes(setup)), &setup.dir)?;
    let mut unlogged = WriteOptions::default();
    unlogged.disable_wal(true);
    let accounts = setup.workload.accounts;
    for start in (0..accounts).step_by(LOAD_CHUNK as usize) {
        let mut batch = WriteBatch::default();
        for key in setup.workload.keys(start..accounts.min(start + LOAD_CHUNK)) {
            batch.put(key, bytes::encode(&Workload::first_state(&key)));
        }
        db.write_opt(batch, &unlogged)?;
    }
    settle(&db)
}

/// Flushes memtables, and waits until no level exceeds its target size.
pub(crate) fn settle(db: &DB) -> Result<(), Failure> {
    db.flush()?;
    db.flush_wal(true)?;
    Ok(db.wait_for_compact(&WaitForCompactOptions::default())?)
}

/// An open RocksDB database.
pub(super) struct RocksStore {
    db: DB,
    cache_mib: usize,
}

impl RocksStore {
    pub(super) fn open(setup: &Setup) -> Result<Self, Failure> {
        Ok(Self {
            db: DB::open(&options(cache_bytes(setup)), &setup.dir)?,
            cache_mib: cache_bytes(setup) >> 20,
        })
    }
}

impl Store for RocksStore {
    fn read(&mut self, keys: &[B256], _witness: bool) -> Result<Vec<Option<Account>>, Failure> {
        read_each_on_threads(keys, |key| {
            let value = self.db.get_pinned(key)?;
            Ok(value.map(|value| bytes::decode(&value)).transpose()?)
        })
    }

    fn commit(&mut self, write: &Write<'_>) -> Result<Committed, Failure> {
        let mut batch = WriteBatch::default();
        for (key, value) in write.keys.iter().zip(write.new) {
            batch.put(key, bytes::encode(value));
        }
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        self.db.write_opt(batch, &synced)?;
        Ok(Committed::default())
    }

    fn settle(&mut self) -> Result<(), Failure> {
        settle(&self.db)
    }

    fn configuration(&self) -> String {
        format!(
            "RocksDB (crate 0.25), no trie; log synced for each batch; {threads} \
             background threads; block cache of {} MiB with filters and indexes in it; blocks of \
             {BLOCK_BYTES} bytes, hash index in blocks, Bloom filters of {BLOOM_BITS} bits; \
             {MEMTABLES_MAX} memtables of {} MiB; direct I/O; {readers} reading threads",
            self.cache_mib,
            MEMTABLE_BYTES >> 20,
            readers = read_threads(),
            threads = cores()
        )
    }
}
