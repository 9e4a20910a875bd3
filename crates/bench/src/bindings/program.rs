//! The program in Rust.

use alloy_primitives::B256;
use cambium_disk::FaultyDisk;
use cambium_kv::{KvOptions, Store, WriteBatch};
use serde_json::json;
use std::{error::Error, sync::Arc, time::Instant};

/// Entries of a batch.
const BATCH: usize = 1000;

/// A finalizer of 64 bits (SplitMix64).
const fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn key(number: u64) -> B256 {
    let mut key = B256::ZERO;
    for (part, word) in key.chunks_exact_mut(8).zip(1..) {
        part.copy_from_slice(&mixed(4 * number + word).to_le_bytes());
    }
    key
}

/// Runs the program, and prints what it has measured.
pub(crate) fn child(entries: u64) -> Result<(), Box<dyn Error>> {
    let keys: Vec<B256> = (0..entries).map(key).collect();
    let store = Store::create(Arc::new(FaultyDisk::new(1)), KvOptions::default())?;
    let per_second = |from: Instant| entries as f64 / from.elapsed().as_secs_f64();

    let start = Instant::now();
    for keys in keys.chunks(BATCH) {
        let mut batch = WriteBatch::new();
        for key in keys {
            batch.put(*key, key.to_vec())?;
        }
        store.write(batch)?;
    }
    let write_batches = per_second(start);

    let (mut sum, start) = (0, Instant::now());
    for keys in keys.chunks(BATCH) {
        let transaction = store.begin()?;
        for key in keys {
            sum += u64::from(transaction.get(key)?.map_or(0, |value| value[0]));
        }
    }
    let gets = per_second(start);

    let start = Instant::now();
    for keys in keys.chunks(BATCH) {
        let values = store.begin()?.get_many(keys)?;
        let values = values.iter().flatten();
        sum += values.map(|value| u64::from(value[0])).sum::<u64>();
    }
    let get_batches = per_second(start);
    let rates = json!({
        "write_batches": write_batches, "gets": gets, "get_batches": get_batches, "sum": sum,
    });
    println!("{rates}");
    Ok(())
}
