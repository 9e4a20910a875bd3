//! `./bench history`: values of accounts at random old blocks, and what it takes to keep them.
//!
//! ```text
//!   made      accounts, and blocks that change some of them at random, by the engine alone
//!   built     the history, from the block log
//!   reads     accounts chosen uniformly at blocks chosen uniformly, past the page cache of the
//!             system, one after another; each value is compared with what was written
//! ```

use crate::{
    report::{Report, Target, data_dir},
    system::Io,
};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_history::{FlatHistory, HistoryOptions};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{BlockMeta, Db, Loader, Options, StdDisk};
use cambium_testkit::Random;
use clap::Args;
use serde_json::{Map, Value, json};
use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Number of accounts [default: 1,000,000, with --quick 50,000]
    #[arg(long)]
    accounts: Option<u64>,
    /// Number of blocks [default: 4,000, with --quick 400]
    #[arg(long)]
    blocks: Option<u64>,
    /// Number of accounts that a block changes
    #[arg(long, default_value_t = 1_000)]
    changes: u64,
    /// Number of accounts that are read
    #[arg(long, default_value_t = 18_000)]
    reads: u64,
    /// Memory of the engine in MiB; the history has a sixteenth beside it
    #[arg(long, default_value_t = 64)]
    memory: u64,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

struct Plan {
    accounts: u64,
    blocks: u64,
    changes: u64,
    reads: u64,
    memory: u64,
    seed: u64,
    dir: PathBuf,
}

/// The block log and the blocks at which each account changed.
struct Made {
    db: Db,
    changed: Vec<Vec<u32>>,
    elapsed: Duration,
}

type Failure = Box<dyn Error>;

pub(crate) fn run(args: &HistoryArgs, quick: bool) -> Result<Report, Failure> {
    let plan = Plan {
        accounts: args
            .accounts
            .unwrap_or(if quick { 50_000 } else { 1_000_000 }),
        blocks: args.blocks.unwrap_or(if quick { 400 } else { 4_000 }),
        changes: args.changes,
        reads: args.reads,
        memory: args.memory << 20,
        seed: args.seed,
        dir: data_dir()?.join("history"),
    };
    let mut report = Report::new("history");
    report.parameters = parameters(&plan);
    let Made {
        db,
        changed,
        elapsed,
    } = plan.make()?;
    let mut result = Map::new();
    let mut put = |name: &str, value: f64| _ = result.insert(name.to_owned(), json!(value));
    put(
        "blocks_made_per_second",
        plan.blocks as f64 / elapsed.as_secs_f64(),
    );

    let disk = Arc::new(StdDisk::new(&plan.dir));
    let options = HistoryOptions {
        memory_bytes: (plan.memory / 16).max(1 << 20),
        ..HistoryOptions::default()
    };
    let start = Instant::now();
    let history = FlatHistory::create(disk, &db, 0, options)?;
    let mut merged = Ok(());
    history.catch_up(&db, &mut |so_far| {
        if so_far.upto.number.is_multiple_of(256) {
            merged = history.merge();
        }
        merged.is_ok()
    })?;
    merged?;
    history.flush()?;
    history.merge()?;
    let built = start.elapsed();
    let stats = history.stats();
    put("history_files", stats.files as f64);
    put("history_mib", stats.file_bytes as f64 / f64::from(1 << 20));
    let entries = stats.file_entries.max(1) as f64;
    put("bytes_per_change", stats.file_bytes as f64 / entries);
    put(
        "write_amplification",
        stats.written_bytes as f64 / stats.file_bytes.max(1) as f64,
    );
    put("index_bytes_per_change", stats.index_bytes as f64 / entries);
    put("build_seconds", built.as_secs_f64());
    let build_ratio = elapsed.as_secs_f64() / built.as_secs_f64();
    put("build_against_making", build_ratio);

    let mut random = Random::new(plan.seed ^ 0x5eed);
    let mut latencies = Vec::with_capacity(plan.reads as usize);
    let (pages, io) = (history.stats().pages_read, Io::now(&plan.dir));
    for _ in 0..plan.reads {
        let index = random.below(plan.accounts);
        let number = random.below(plan.blocks);
        let view = history.view_at(&db, number)?;
        let start = Instant::now();
        let account = view.account(&path(index))?;
        latencies.push(start.elapsed());
        let last = changed[index as usize].partition_point(|block| u64::from(*block) <= number);
        let nonce = last
            .checked_sub(1)
            .map_or(0, |at| changed[index as usize][at]);
        if account.map(|account| account.nonce) != Some(nonce.into()) {
            report.errors.push(format!(
                "account {index} at block {number}: {account:?}, not {nonce}"
            ));
        }
    }
    let io = Io::now(&plan.dir).since(&io);
    latencies.sort_unstable();
    let at = |share: f64| {
        let index = (latencies.len() as f64 * share) as usize;
        latencies.get(index).map_or(0.0, Duration::as_secs_f64) * 1e3
    };
    let reads = io.device_reads as f64 / plan.reads.max(1) as f64;
    let of_history = (history.stats().pages_read - pages) as f64 / plan.reads.max(1) as f64;
    put("read_p50_ms", at(0.5));
    put("read_p99_ms", at(0.99));
    put("device_reads_per_read", reads);
    put("history_pages_per_read", of_history);
    report.targets = vec![
        target(
            "device reads for a value at a random old block",
            reads,
            "",
            "at most 2",
            reads <= 2.0,
        ),
        target(
            "flat read, p50",
            at(0.5),
            "ms",
            "at most 0.5",
            at(0.5) <= 0.5,
        ),
        target(
            "building, against making the blocks",
            build_ratio,
            "x",
            "at least 5",
            build_ratio >= 5.0,
        ),
    ];
    report.results.push(result);
    drop((history, db));
    fs::remove_dir_all(&plan.dir)?;
    Ok(report)
}

fn parameters(plan: &Plan) -> Map<String, Value> {
    let parameters = json!({
        "accounts": plan.accounts,
        "blocks": plan.blocks,
        "changes": plan.changes,
        "reads": plan.reads,
        "memory_mib": plan.memory >> 20,
        "seed": plan.seed,
    });
    parameters.as_object().cloned().unwrap_or_default()
}

fn target(name: &str, value: f64, unit: &'static str, target: &str, met: bool) -> Target {
    Target {
        name: name.to_owned(),
        value,
        unit,
        target: target.to_owned(),
        met,
    }
}

fn path(index: u64) -> B256 {
    keccak256(index.to_le_bytes())
}

fn account(nonce: u64) -> Account {
    Account {
        nonce,
        balance: U256::from(1_000_000_000_000_000_000u64) + U256::from(nonce),
        ..Account::default()
    }
}

impl Plan {
    /// Makes the database, and commits its blocks.
    fn make(&self) -> Result<Made, Failure> {
        if Path::new(&self.dir).exists() {
            fs::remove_dir_all(&self.dir)?;
        }
        fs::create_dir_all(&self.dir)?;
        let disk = Arc::new(StdDisk::new(&self.dir));
        let options = Options {
            memory_bytes: self.memory,
            ..Options::default()
        };
        let mut loader = Loader::new(disk, options)?;
        for index in 0..self.accounts {
            loader.account(path(index), &account(0), [])?;
        }
        let loaded = loader.finish(&mut |_| {})?;
        let meta = |number: u64, state_root, parent| BlockMeta {
            id: BlockId::new(number, keccak256(format!("block {number}"))),
            parent,
            state_root,
            body: Bytes::new(),
        };
        let mut parent = meta(0, loaded.root(), B256::ZERO);
        let db = loaded.create(parent.clone(), vec![])?;
        let mut random = Random::new(self.seed);
        let mut changed = vec![Vec::new(); self.accounts as usize];
        let start = Instant::now();
        for number in 1..=self.blocks {
            let mut indices: Vec<_> = (0..self.changes)
                .map(|_| random.below(self.accounts))
                .collect();
            indices.sort_unstable();
            indices.dedup();
            let changes = indices.iter().map(|index| {
                changed[*index as usize].push(number as u32);
                AccountDiff {
                    path: path(*index),
                    account: AccountUpdate::Put(account(number)),
                    wipe: false,
                    slots: vec![],
                }
            });
            let changes = Changes::new(changes.collect());
            let staged = db.view()?.session().finish(changes, vec![])?;
            let block = meta(number, staged.root(), parent.id.hash);
            staged.seal(block.clone())?.commit()?;
            parent = block;
        }
        Ok(Made {
            db,
            changed,
            elapsed: start.elapsed(),
        })
    }
}
