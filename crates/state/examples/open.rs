//! How fast a database opens, and what a cold read takes with little memory.
//!
//! `cargo run --release -p cambium-state --example open -- DIR ACCOUNTS [MEMORY_MIB] [READS]`: a
//! database of so many accounts in `DIR`, made if there is none, opened with so much memory; then
//! so many accounts are read, one by one and in a batch.

use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, BlockId};
use cambium_state::{BlockMeta, Db, Loader, Options, StateError, StdDisk};
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

fn make(disk: &Arc<StdDisk>, accounts: u64) -> Result<(), StateError> {
    let mut loader = Loader::new(disk.clone(), Options::default())?;
    for index in 0..accounts {
        let account = Account {
            balance: U256::from(1_000_000_000_000_000_000u64 + index),
            ..Account::default()
        };
        loader.account(path(index), &account, [])?;
    }
    let loaded = loader.finish(&mut |_| {})?;
    let meta = BlockMeta {
        id: BlockId::default(),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Default::default(),
    };
    loaded.create(meta, vec![]).map(drop)
}

fn main() -> Result<(), StateError> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("a directory");
    let mut arg = |default| {
        args.next()
            .and_then(|arg| arg.parse().ok())
            .unwrap_or(default)
    };
    let (accounts, memory_mib, reads) = (arg(1 << 20), arg(1024), arg(10_000));
    let disk = Arc::new(StdDisk::new(&dir));
    if !Db::exists(&*disk)? {
        make(&disk, accounts)?;
    }
    let options = Options {
        memory_bytes: memory_mib << 20,
        ..Options::default()
    };
    let start = Instant::now();
    let (db, _) = Db::open(disk, options)?;
    let opened = start.elapsed().as_secs_f64();
    let stats = db.stats()?;
    println!("opened in {opened:.3} s: {stats:?}");

    let view = db.view()?;
    let any = |at: u64| {
        let random = path(at);
        let word = random.first_chunk().expect("8 bytes");
        path(u64::from_be_bytes(*word) % accounts)
    };
    for (what, first) in [("one by one", 1), ("in a batch", 1 << 40)] {
        let keys: Vec<B256> = (first..first + reads).map(any).collect();
        let (before, start) = (db.counters(), Instant::now());
        match what {
            "in a batch" => drop(view.accounts(&keys)?),
            _ => {
                for key in &keys {
                    view.account(key)?;
                }
            }
        }
        let (after, seconds) = (db.counters(), start.elapsed().as_secs_f64());
        println!(
            "{what}: {:.0}/s, {:.3} reads of the disk each",
            reads as f64 / seconds,
            (after.disk_reads - before.disk_reads) as f64 / reads as f64,
        );
    }
    Ok(())
}
