//! Measures merges of blocks that change random accounts: their processor time, the memory of the index,
//! the most memory of the process during them, and the bytes that they write.
//!
//! `cargo run --release -p cambium-state --example merges -- [ACCOUNTS] [CHANGES] [MERGES] [MEMORY_MIB] [INDEX_KIB]`
//! loads that many accounts into a temporary directory below `TMPDIR`, and merges that often blocks of
//! that many changes. `INDEX_KIB` is the memory limit of the index.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Loader, Options, StateError, StdDisk};
use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

/// The path of the account with this number. Paths are spread like those of a chain.
fn path(number: u64) -> B256 {
    keccak256(number.to_be_bytes())
}

/// Processor time of the threads that merge.
fn merge_time() -> Duration {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let times = threads.flatten().map(|thread| {
        let read = |file| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let nanoseconds = read("schedstat").split_whitespace().next().map(str::parse);
        let nanoseconds = nanoseconds.and_then(Result::ok).unwrap_or(0);
        match read("comm").starts_with("cambium-merge") {
            true => Duration::from_nanos(nanoseconds),
            false => Duration::ZERO,
        }
    });
    times.sum()
}

/// A line of the process's status, in MiB.
fn memory_mib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

fn meta(number: u64, state_root: B256) -> BlockMeta {
    let hash = |number: u64| B256::left_padding_from(&(number + 1).to_be_bytes());
    BlockMeta {
        id: BlockId::new(number, hash(number)),
        parent: number.checked_sub(1).map_or(B256::ZERO, hash),
        state_root,
        body: Default::default(),
    }
}

/// A block that changes about `count` of `accounts` accounts.
fn changes(seed: &mut u64, accounts: u64, count: u64) -> Changes {
    let mut numbers: Vec<_> = (0..count)
        .map(|_| {
            *seed += 1;
            let random = path(u64::MAX / 8 + *seed);
            u64::from_be_bytes(*random.first_chunk().expect("32 bytes")) % accounts
        })
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut changes: Vec<_> = numbers
        .into_iter()
        .map(|number| AccountDiff {
            path: path(number),
            account: AccountUpdate::Put(Account {
                nonce: *seed,
                balance: U256::from(number),
                ..Account::default()
            }),
            wipe: false,
            slots: vec![],
        })
        .collect();
    changes.sort_unstable_by_key(|change| change.path);
    Changes::new(changes)
}

fn main() -> Result<(), StateError> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut arg = |default| args.next().and_then(Result::ok).unwrap_or(default);
    let (accounts, count, merges, memory_mib_max) = (arg(1 << 20), arg(5_000), arg(16), arg(1024));
    let index_kib = arg(0);
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        memory_bytes: memory_mib_max << 20,
        index_bytes_max: (index_kib > 0).then_some(index_kib << 10),
        unfinalized_blocks: 1,
        ..Options::default()
    };
    let mut loader = Loader::new(Arc::new(StdDisk::new(dir.path())), options)?;
    for number in 0..accounts {
        let account = Account {
            balance: U256::from(1_000_000_000_000_000_000u64 + number),
            ..Account::default()
        };
        loader.account(path(number), &account, [])?;
    }
    let loaded = loader.finish(&mut |_| {})?;
    let root = loaded.root();
    let db = loaded.create(meta(0, root), vec![])?;
    let stats = db.stats()?;
    println!(
        "{accounts} accounts, {} pages, index of {} bytes ({:.2} an account) and {} on disk, {} MiB in memory",
        stats.pages,
        stats.index_bytes,
        stats.index_bytes as f64 / accounts as f64,
        stats.index_bytes_on_disk,
        memory_mib("VmRSS:"),
    );
    let (mut seed, mut times, mut clocks) = (0, Vec::new(), Vec::new());
    let before = db.counters();
    for number in 1..=merges {
        let session = db.view()?.session();
        let staged = session.finish(changes(&mut seed, accounts, count), vec![])?;
        let root = staged.root();
        staged.seal(meta(number, root))?.commit()?;
        let (start, time) = (Instant::now(), merge_time());
        db.flush(0)?;
        clocks.push(start.elapsed());
        times.push(merge_time() - time);
    }
    let after = db.counters();
    let each = |bytes: u64| bytes / (merges * count).max(1);
    times.sort_unstable();
    clocks.sort_unstable();
    let stats = db.stats()?;
    println!(
        "{merges} merges of {count} changes: processor {:.1} ms at the median and {:.1} at most, in all {:.1}; waited {:.1} ms at the median",
        times[times.len() / 2].as_secs_f64() * 1e3,
        times[times.len() - 1].as_secs_f64() * 1e3,
        times.iter().sum::<Duration>().as_secs_f64() * 1e3,
        clocks[clocks.len() / 2].as_secs_f64() * 1e3,
    );
    println!(
        "bytes a change: checkpoints {}, pages {}; index {} bytes; memory {} MiB, {} at most; root {}",
        each(after.checkpoint_bytes_written - before.checkpoint_bytes_written),
        each(after.page_bytes_written - before.page_bytes_written),
        stats.index_bytes,
        memory_mib("VmRSS:"),
        memory_mib("VmHWM:"),
        db.view()?.state_root(),
    );
    Ok(())
}
