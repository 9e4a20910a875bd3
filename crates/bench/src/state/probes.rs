//! Measurements of Cambium alone, in the child process. `alone.rs` is the parent's side.

use super::{
    batch::{milliseconds, run_batch},
    stores::{CambiumStore, Failure, Setup},
    workload::{SplitMix, Workload},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// Number of keys per batched read.
const READ_CHUNK: u64 = 50_000;
/// Number of accounts that hot reads use.
const HOT_ACCOUNTS: u64 = 50_000;
/// First number of the batches that probes run, far above those of the workload.
const PROBE_BATCHES: u64 = 1 << 20;

/// A measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Probe {
    /// Random accounts of a cold store, for this time.
    RandomReads { seconds: f64, seed: u64 },
    /// The same few accounts repeatedly, on one thread.
    HotReads { seconds: f64 },
    /// Many small blocks, one after another.
    SmallBlocks { blocks: u64 },
    /// Opens the database that a killed process left.
    Reopen { batches_acknowledged: u64 },
}

impl Probe {
    pub(crate) fn run(&self, setup: &Setup) -> Result<Map<String, Value>, Failure> {
        match *self {
            Self::RandomReads { seconds, seed } => random_reads(setup, seconds, seed),
            Self::HotReads { seconds } => hot_reads(setup, seconds),
            Self::SmallBlocks { blocks } => small_blocks(setup, blocks),
            Self::Reopen {
                batches_acknowledged,
            } => reopen(setup, batches_acknowledged),
        }
    }
}

fn figures<const N: usize>(pairs: [(&str, f64); N]) -> Map<String, Value> {
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect()
}

/// Blocks of 250 transfers, which change about 500 accounts.
fn small(setup: &Setup) -> Setup {
    Setup {
        workload: Workload {
            transfers: 250,
            ..setup.workload
        },
        ..setup.clone()
    }
}

fn random_reads(setup: &Setup, seconds: f64, seed: u64) -> Result<Map<String, Value>, Failure> {
    let store = CambiumStore::open(setup)?;
    let before = store.db().counters();
    // Stopped before most pages are cached, since this measures the device.
    let pages = store.db().stats()?.pages;
    let reads_max = (pages / 2) as usize;
    let chunk = READ_CHUNK.min(pages.div_ceil(4));
    let mut random = SplitMix(seed);
    let mut spent = Duration::ZERO;
    let mut reads = 0;
    while spent.as_secs_f64() < seconds && reads < reads_max {
        let index = |_| random.below(setup.workload.accounts);
        let keys: Vec<_> = (0..chunk)
            .map(index)
            .map(|index| setup.workload.key(index))
            .collect();
        let start = Instant::now();
        let values = store.view().accounts(&keys)?;
        spent += start.elapsed();
        if let Some(lost) = values.iter().position(Option::is_none) {
            return Err(format!("the account {} is lost", keys[lost]).into());
        }
        reads += keys.len();
    }
    let after = store.db().counters();
    let pages = after.page_reads_value - before.page_reads_value;
    let bytes = after.page_bytes_read - before.page_bytes_read;
    let per_second = |count: f64| count / spent.as_secs_f64();
    Ok(figures([
        ("reads_per_second", per_second(reads as f64)),
        ("device_reads_per_second", per_second(pages as f64)),
        ("device_bytes_a_read", bytes as f64 / pages.max(1) as f64),
    ]))
}

fn hot_reads(setup: &Setup, seconds: f64) -> Result<Map<String, Value>, Failure> {
    let store = CambiumStore::open(setup)?;
    let keys = setup
        .workload
        .keys(0..HOT_ACCOUNTS.min(setup.workload.accounts));
    store.view().accounts(&keys)?;
    let view = store.view();
    let pass = || -> Result<(), Failure> {
        for key in &keys {
            black_box(view.account(black_box(key))?);
        }
        Ok(())
    };
    pass()?;
    let before = store.db().counters();
    let start = Instant::now();
    let mut reads = 0;
    while start.elapsed().as_secs_f64() < seconds {
        pass()?;
        reads += keys.len();
    }
    let rate = reads as f64 / start.elapsed().as_secs_f64();
    let hits = store.db().counters().value_cache_hits - before.value_cache_hits;
    let percent = 100.0 * hits as f64 / reads as f64;
    Ok(figures([
        ("hot_reads_per_second_one_core", rate),
        ("hot_reads_entry_cache_percent", percent),
    ]))
}

fn small_blocks(setup: &Setup, blocks: u64) -> Result<Map<String, Value>, Failure> {
    let setup = small(setup);
    let mut store = CambiumStore::open(&setup)?;
    let (mut whole, mut durable) = (Vec::new(), Vec::new());
    let mut changed = 0;
    let before = store.db().counters();
    let start = Instant::now();
    for number in 0..blocks {
        let block = run_batch(&mut store, &setup, PROBE_BATCHES + number, false)?;
        changed += block.keys;
        whole.push(block.commit_ms);
        durable.push(block.commit_ms - block.root_ms.unwrap_or_default());
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = store.db().counters();
    let mut results = figures([
        ("small_blocks", blocks as f64),
        (
            "small_block_changed_accounts",
            changed as f64 / blocks as f64,
        ),
        ("small_blocks_seconds", seconds),
        ("small_blocks_merges", (after.merges - before.merges) as f64),
        (
            "small_blocks_merging_percent",
            (after.merge_ns - before.merge_ns) as f64 / 1e7 / seconds,
        ),
        (
            "small_blocks_waited_for_memory_ms",
            (after.seal_wait_ns - before.seal_wait_ns) as f64 / 1e6,
        ),
    ]);
    for (name, mut times) in [("root_and_commit", whole), ("commit", durable)] {
        times.sort_unstable_by(f64::total_cmp);
        for (quantile, part) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            let value = crate::report::quantile(&times, part);
            results.insert(format!("small_block_{name}_ms_{quantile}"), json!(value));
        }
    }
    Ok(results)
}

fn reopen(setup: &Setup, batches_acknowledged: u64) -> Result<Map<String, Value>, Failure> {
    let start = Instant::now();
    let mut store = CambiumStore::open(setup)?;
    let opened = milliseconds(start);
    let head = store.view().block().number;
    if head < batches_acknowledged {
        return Err(
            format!("{batches_acknowledged} batches were durable, {head} are there").into(),
        );
    }
    store.view().account(&setup.workload.key(0))?;
    let first_read = milliseconds(start);
    let setup = small(setup);
    run_batch(&mut store, &setup, PROBE_BATCHES, false)?;
    let first_root = milliseconds(start);
    Ok(figures([
        ("reopen_after_kill_ms", opened),
        ("reopen_to_first_read_ms", first_read),
        ("reopen_to_first_root_ms", first_root),
        (
            "reopen_replayed_batches",
            store.recovery().replayed_blocks as f64,
        ),
    ]))
}
