//! Measures the reads, the root and the commit of blocks of several kinds, in memory: payments, many slots of
//! one contract, and a large batch. `RAYON_NUM_THREADS` sets the number of threads.
//!
//! `cargo run --release -p cambium-state --example roots -- [ACCOUNTS] [SLOTS] [ROUNDS]`

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Loader, Options, StateError, StdDisk, View};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The path of the account or slot with this number. Paths are spread like those of a chain.
fn path(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
}

/// Processor time of the process's threads that do not merge, and of those that do.
fn processor_time() -> [Duration; 2] {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let mut times = [Duration::ZERO; 2];
    for thread in threads.flatten() {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
        let nanoseconds = read("schedstat")
            .split_whitespace()
            .next()
            .map(str::parse::<u64>);
        let merges = read("comm").starts_with("cambium-merge");
        times[usize::from(merges)] +=
            Duration::from_nanos(nanoseconds.and_then(Result::ok).unwrap_or(0));
    }
    times
}

/// Processor time of this thread, which leaves parallel work to the engine's threads.
fn own_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split_whitespace().next().map(str::parse);
    Duration::from_nanos(nanoseconds.and_then(Result::ok).unwrap_or(0))
}

fn meta(number: u64, state_root: B256) -> BlockMeta {
    let id =
        |number: u64| BlockId::new(number, B256::left_padding_from(&(number + 1).to_be_bytes()));
    BlockMeta {
        id: id(number),
        parent: number
            .checked_sub(1)
            .map_or(B256::ZERO, |parent| id(parent).hash),
        state_root,
        body: Default::default(),
    }
}

/// A kind of block: how many accounts and slots it changes.
struct Kind {
    name: &'static str,
    accounts: u64,
    slots: u64,
    rounds: u64,
}

/// Picks about `count` of `all` numbers, sorted by their paths.
fn some(seed: &mut u64, all: u64, count: u64) -> Vec<B256> {
    let mut paths: Vec<_> = (0..count.min(all))
        .map(|_| {
            *seed += 1;
            let random = path(u64::MAX / 8 + *seed);
            path(u64::from_be_bytes(*random.first_chunk().expect("32 bytes")) % all)
        })
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Times of one block: its reads, its root, all of it, and this thread's part of reads and root.
fn block(
    db: &Db,
    view: &mut View,
    seed: &mut u64,
    state: (u64, u64),
    kind: &Kind,
) -> Result<[Duration; 4], StateError> {
    let contract = path(0);
    let accounts = some(seed, state.0, kind.accounts);
    let slots = some(seed, state.1, kind.slots);
    let slots: Vec<_> = slots.into_iter().map(|slot| (contract, slot)).collect();
    let (start, own) = (Instant::now(), own_time());
    let session = view.clone().session();
    let values = session.accounts(&accounts)?;
    let held = session.storage(&slots)?;
    let (read, mut own) = (start.elapsed(), own_time() - own);
    let mut changes: Vec<_> = accounts
        .iter()
        .zip(values)
        .map(|(path, account)| AccountDiff {
            path: *path,
            account: AccountUpdate::Put(Account {
                nonce: account.map_or(0, |account| account.nonce) + 1,
                ..account.unwrap_or_default()
            }),
            wipe: false,
            slots: vec![],
        })
        .collect();
    if !slots.is_empty() {
        changes.retain(|change| change.path != contract);
        let slots = slots.iter().zip(held);
        let at = changes.partition_point(|change| change.path < contract);
        changes.insert(
            at,
            AccountDiff {
                path: contract,
                account: AccountUpdate::Keep,
                wipe: false,
                slots: slots
                    .map(|((_, slot), held)| (*slot, held + U256::ONE))
                    .collect(),
            },
        );
    }
    let changes = Changes::new(changes);
    let (began, before) = (Instant::now(), own_time());
    let staged = session.finish(changes, Vec::new())?;
    let finished = began.elapsed();
    own += own_time() - before;
    let number = view.block().number + 1;
    let root = staged.root();
    staged.seal(meta(number, root))?.commit()?;
    *view = db.view()?;
    Ok([read, finished, read + began.elapsed(), own])
}

fn main() -> Result<(), StateError> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let mut arg = |default| args.next().and_then(Result::ok).unwrap_or(default);
    let (accounts, slots, rounds) = (arg(500_000), arg(200_000), arg(100));
    let dir = tempfile::tempdir().expect("a directory");
    let options = Options {
        memory_bytes: 4 << 30,
        unfinalized_blocks: 1,
        ..Options::default()
    };
    let mut loader = Loader::new(Arc::new(StdDisk::new(dir.path())), options)?;
    for index in 0..accounts {
        let account = Account {
            balance: U256::from(1_000_000_000_000_000_000u64 + index),
            ..Account::default()
        };
        loader.account(path(index), &account, [])?;
    }
    let values = (0..slots).map(|slot| (path(slot), U256::from(slot + 1)));
    loader.slots(path(0), values)?;
    let loaded = loader.finish(&mut |_| {})?;
    let first = meta(0, loaded.root());
    let db = loaded.create(first, vec![])?;
    let mut view = db.view()?;
    let kind = |name, accounts, slots, rounds| Kind {
        name,
        accounts,
        slots,
        rounds,
    };
    let kinds = [
        kind(
            "all accounts and slots, to load them",
            accounts * 3,
            slots * 3,
            1,
        ),
        kind("10 payments", 20, 0, 20 * rounds),
        kind("200 payments", 400, 0, 4 * rounds),
        kind("1,000 transfers of one token", 1_000, 2_000, rounds),
        kind("10,000 slots of one contract", 1, 10_000, rounds / 2),
        kind("25,000 payments", 50_000, 0, rounds / 5),
    ];
    println!(
        "{:>40} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "median, us", "reads", "root", "all", "serial", "processor", "merging", "apply", "hash"
    );
    let mut seed = 0;
    for kind in &kinds {
        let (before, counters) = (processor_time(), db.counters());
        let blocks = (0..kind.rounds.max(1))
            .map(|_| block(&db, &mut view, &mut seed, (accounts, slots), kind))
            .collect::<Result<Vec<_>, _>>()?;
        let (after, done) = (processor_time(), db.counters());
        let each = |nanoseconds: u64| nanoseconds / blocks.len() as u64 / 1_000;
        let median = |at: usize| {
            let mut times: Vec<_> = blocks.iter().map(|times| times[at]).collect();
            times.sort_unstable();
            times[times.len() / 2].as_micros()
        };
        println!(
            "{:>40} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            kind.name,
            median(0),
            median(1),
            median(2),
            median(3),
            each((after[0] - before[0]).as_nanos() as u64),
            each((after[1] - before[1]).as_nanos() as u64),
            each(done.apply_ns - counters.apply_ns),
            each(done.hash_ns - counters.hash_ns),
        );
    }
    println!("root {}", view.state_root());
    Ok(())
}
