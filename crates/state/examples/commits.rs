//! How long commits take while merges write: blocks of payments on a state that is larger than the memory given.
//!
//! `cargo run --release -p cambium-state --example commits -- DIRECTORY [BLOCKS [CHANGES [ACCOUNTS]]]`
//!
//! A new database is made in a folder of `DIRECTORY`, with `ACCOUNTS` accounts (default 500,000), and removed at the end.
//! Each of `BLOCKS` blocks (default 10,000) changes about `CHANGES` of them (default 500). The time of a commit is that of
//! `Sealed::commit`: appending the block's record to the log, syncing it, and moving the head. Afterwards as many bytes a
//! commit are written over zeros and synced as often, with nothing else written: what the disk alone takes.

use alloy_primitives::{B256, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Loader, Options, StateError, StdDisk};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

fn path(index: u64) -> B256 {
    keccak256(index.to_be_bytes())
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

fn main() -> Result<(), StateError> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let mut args = std::env::args().skip(2).map(|arg| arg.parse::<u64>());
    let mut arg = |default| args.next().and_then(Result::ok).unwrap_or(default);
    let (blocks, changes, accounts) = (arg(10_000), arg(500), arg(500_000));
    let dir = tempfile::tempdir_in(dir).expect("a directory");
    let options = Options {
        memory_bytes: 256 << 20,
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
    let loaded = loader.finish(&mut |_| {})?;
    let first = meta(0, loaded.root());
    let db = loaded.create(first, vec![])?;
    let mut times = Vec::new();
    let (start, before) = (Instant::now(), db.counters());
    for number in 1..=blocks {
        let random = |n: u64| {
            let word = path(u64::MAX / 2 + number * changes + n);
            path(u64::from_be_bytes(*word.first_chunk().expect("32 bytes")) % accounts)
        };
        let mut paths: Vec<_> = (0..changes).map(random).collect();
        paths.sort_unstable();
        paths.dedup();
        let session = db.view()?.session();
        let diffs = paths.iter().zip(session.accounts(&paths)?);
        let diffs = diffs.map(|(path, account)| AccountDiff {
            path: *path,
            account: AccountUpdate::Put(Account {
                nonce: number,
                ..account.unwrap_or_default()
            }),
            wipe: false,
            slots: vec![],
        });
        let staged = session.finish(Changes::new(diffs.collect()), Vec::new())?;
        let root = staged.root();
        let sealed = staged.seal(meta(number, root))?;
        let begun = Instant::now();
        sealed.commit()?;
        times.push(begun.elapsed());
    }
    let (seconds, after) = (start.elapsed().as_secs_f64(), db.counters());
    println!(
        "{blocks} blocks in {seconds:.1} s, {} merges, {:.0} % of the time",
        after.merges - before.merges,
        (after.merge_ns - before.merge_ns) as f64 / 1e7 / seconds,
    );
    db.close()?;
    let bytes = (after.log_bytes_written - before.log_bytes_written) / blocks;
    let alone = syncs_alone(dir.path(), blocks, bytes as usize).expect("a file to write to");
    let (commits, alone) = (quantiles(times), quantiles(alone));
    let ratio = commits[2] / alone[2];
    println!(
        "ms, p50, p99, p99.9, longest: commits {commits:.2?}; of {bytes} bytes alone {alone:.2?}; p99.9 {ratio:.2}x"
    );
    Ok(())
}

/// Times of writing `bytes` over zeros and syncing them.
fn syncs_alone(dir: &Path, count: u64, bytes: usize) -> io::Result<Vec<Duration>> {
    const FILE_BYTES: usize = 64 << 20;
    let file = File::create(dir.join("alone"))?;
    file.write_all_at(&vec![0; FILE_BYTES], 0)?;
    file.sync_all()?;
    let (record, mut at) = (vec![7; bytes], 0);
    let mut times = Vec::new();
    for _ in 0..count {
        if at + bytes > FILE_BYTES {
            at = 0;
        }
        let start = Instant::now();
        file.write_all_at(&record, at as u64)?;
        file.sync_data()?;
        times.push(start.elapsed());
        at += bytes;
    }
    Ok(times)
}

/// The times at p50, p99, p99.9, and the longest, in milliseconds.
fn quantiles(mut times: Vec<Duration>) -> [f64; 4] {
    times.sort_unstable();
    [0.5, 0.99, 0.999, 1.0]
        .map(|share| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3)
}
