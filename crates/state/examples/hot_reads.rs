//! Measures single reads on one core: from the cache of values, and through index and cached pages.
//!
//! `cargo run --release -p cambium-state --example hot_reads -- DIRECTORY [ACCOUNTS] [MEMORY_MIB]` loads a state into the
//! directory unless it has one, brings all its pages into memory, and reads accounts in a random order: few enough for the
//! cache of values, and all, again and again, so that each has left that cache when it is read again.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, BlockId};
use cambium_state::{BlockMeta, Db, Disk, Loader, Options, StateError, StdDisk, View};
use std::{hint::black_box, sync::Arc, time::Instant};

/// Number of accounts that the cache of values of 1 GiB has room for, three times over.
const FEW: usize = 50_000;
/// Number of keys of a batch that brings pages into memory.
const CHUNK: usize = 50_000;
const PASSES: usize = 3;

fn path(number: u64) -> B256 {
    keccak256(number.to_be_bytes())
}

fn load(disk: Arc<dyn Disk>, options: Options, accounts: u64) -> Result<(), StateError> {
    let mut loader = Loader::new(disk, options)?;
    for number in 0..accounts {
        let account = Account {
            balance: U256::from(1_000_000_000_000_000_000_u64 + number * 251),
            ..Account::default()
        };
        loader.account(path(number), &account, [])?;
    }
    let loaded = loader.finish(&mut |_| {})?;
    let meta = BlockMeta {
        id: BlockId::new(0, B256::with_last_byte(1)),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Default::default(),
    };
    loaded.create(meta, vec![]).map(drop)
}

/// Reads the accounts one by one, [`PASSES`] times, and prints how fast.
fn measure(db: &Db, view: &View, what: &str, paths: &[B256]) -> Result<(), StateError> {
    let before = db.counters();
    let start = Instant::now();
    for _ in 0..PASSES {
        for path in paths {
            black_box(view.account(black_box(path))?);
        }
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), db.counters());
    let reads = (PASSES * paths.len()) as f64;
    println!(
        "{what}: {:.2} M reads/s; {:.1} % from the cache of values, {:.3} device reads each",
        reads / seconds / 1e6,
        100.0 * (after.value_cache_hits - before.value_cache_hits) as f64 / reads,
        (after.page_reads_value - before.page_reads_value) as f64 / reads,
    );
    Ok(())
}

fn main() -> Result<(), StateError> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().expect("the directory of the database");
    let mut args = args.map(|arg| arg.parse::<u64>());
    let mut arg = |default| args.next().and_then(Result::ok).unwrap_or(default);
    let (accounts, memory_mib) = (arg(1 << 20), arg(1024));
    let options = Options {
        memory_bytes: memory_mib << 20,
        ..Options::default()
    };
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(&dir));
    if !Db::exists(&*disk)? {
        load(disk.clone(), options, accounts)?;
    }
    let (db, _) = Db::open(disk, options)?;
    let view = db.view()?;
    // Hashes of numbers are in a random order already.
    let paths: Vec<_> = (0..accounts).map(path).collect();
    for chunk in paths.chunks(CHUNK) {
        let found = view.accounts(chunk)?;
        let is_whole = found.iter().all(Option::is_some);
        assert!(is_whole, "the directory has a state of fewer accounts");
    }
    let stats = db.stats()?;
    println!(
        "{accounts} accounts, {memory_mib} MiB: pages of {:.1} accounts",
        accounts as f64 / stats.pages as f64
    );
    let few = &paths[..FEW.min(paths.len())];
    measure(&db, &view, "few accounts, read before", few)?;
    measure(&db, &view, "few accounts, again", few)?;
    measure(&db, &view, "all accounts", &paths)
}
