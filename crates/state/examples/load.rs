//! Measures the time and the memory of loading a state.
//!
//! `cargo run --release -p cambium-state --example load -- ACCOUNTS [MEMORY_MIB] [SLOTS]` loads
//! that many random accounts, the first of them with `SLOTS` slots, into a temporary directory
//! below `TMPDIR`.

use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, BlockId};
use cambium_state::{BlockMeta, Loader, Options, StateError, StdDisk};
use std::{sync::Arc, time::Instant};

/// A random path (splitmix64).
fn path(index: u64) -> B256 {
    let word = |at: u64| {
        let mut z = (index * 4 + at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mut path = B256::ZERO;
    for (at, bytes) in (0..).zip(path.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word(at).to_be_bytes());
    }
    path
}

/// The peak memory of the process.
fn memory_peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.map_or("?", str::trim).to_owned()
}

fn main() -> Result<(), StateError> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut arg = |default| args.next().and_then(Result::ok).unwrap_or(default);
    let (accounts, memory_mib, slots) = (arg(1_000_000), arg(1024), arg(0));
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        memory_bytes: memory_mib << 20,
        ..Options::default()
    };
    let disk = Arc::new(StdDisk::new(dir.path()));
    let start = Instant::now();
    let mut loader = Loader::new(disk, options)?;
    for index in 0..accounts {
        let path = path(index);
        let account = Account {
            balance: U256::from_be_slice(&path[24..]) + U256::from(1_000_000_000_000_000_000u64),
            ..Account::default()
        };
        loader.account(path, &account, [])?;
    }
    loader.slots(
        path(0),
        (0..slots).map(|slot| (path(slot), U256::from(slot + 1))),
    )?;
    let (taken, taken_peak) = (start.elapsed(), memory_peak());
    let loaded = loader.finish(&mut |_| {})?;
    let (built, built_peak) = (start.elapsed(), memory_peak());
    let meta = BlockMeta {
        id: BlockId::default(),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Default::default(),
    };
    let db = loaded.create(meta, vec![])?;
    let all = start.elapsed();
    let leaves = accounts + slots;
    println!(
        "{leaves} leaves in {:.2} s ({:.2} s taken, {:.2} s built, {:.2} s made durable): {:.0}/s",
        all.as_secs_f64(),
        taken.as_secs_f64(),
        (built - taken).as_secs_f64(),
        (all - built).as_secs_f64(),
        leaves as f64 / all.as_secs_f64(),
    );
    let stats = db.stats()?;
    println!(
        "memory at most: {taken_peak} taken, {built_peak} built, {} in the end; \
         index {} MiB, {} pages, segments {} MiB; root {}",
        memory_peak(),
        stats.index_bytes >> 20,
        stats.pages,
        stats.segment_bytes >> 20,
        db.view()?.state_root(),
    );
    Ok(())
}
