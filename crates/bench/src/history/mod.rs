//! `./bench history`: values and proofs of accounts at random old blocks, and what it takes to keep
//! them.
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
use cambium_history::{History, HistoryOptions, WholeNodes};
use cambium_primitives::{
    Account, AccountDiff, AccountUpdate, BlockId, Changes, Path as AccountPath,
};
use cambium_state::{BlockMeta, Db, Loader, Options, StdDisk};
use cambium_testkit::Random;
use cambium_trie::{Lookup, ProofTargets};
use clap::{Args, ValueEnum};
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
    /// Memory of the engine in MiB
    #[arg(long, default_value_t = 64)]
    memory: u64,
    /// Memory of the history in MiB
    #[arg(long, default_value_t = 16)]
    history_memory: u64,
    /// Memory of the trie from which nodes are made, in MiB
    #[arg(long, default_value_t = 512)]
    trie_memory: u64,
    /// Measure these histories alone
    #[arg(long, value_enum)]
    only: Vec<Kind>,
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
    history_memory: u64,
    trie_memory: u64,
    seed: u64,
    dir: PathBuf,
}

/// The block log and the blocks at which each account changed.
struct Made {
    db: Db,
    changed: Vec<Vec<u32>>,
    /// State roots, by block.
    roots: Vec<B256>,
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
        history_memory: args.history_memory << 20,
        trie_memory: args.trie_memory << 20,
        seed: args.seed,
        dir: data_dir()?.join("history"),
    };
    let mut report = Report::new("history");
    report.parameters = parameters(&plan);
    let made = plan.make()?;
    for kind in [Kind::Flat, Kind::Archive, Kind::Whole] {
        if !args.only.is_empty() && !args.only.contains(&kind) {
            continue;
        }
        let mut figures = Map::new();
        figures.insert("history".to_owned(), json!(kind.name()));
        let history = plan.build(kind, &made, &mut figures)?;
        let read = plan.read_all(&history, kind, &made)?;
        figures.extend(read.figures());
        report.targets.extend(kind.targets(&figures));
        report.errors.extend(read.errors);
        report.results.push(figures);
        drop(history);
        fs::remove_dir_all(plan.dir.join("history"))?;
    }
    drop(made);
    fs::remove_dir_all(&plan.dir)?;
    Ok(report)
}

/// What a history keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Values.
    Flat,
    /// Values and nodes, one entry of a branch out of eight whole.
    Archive,
    /// Values and nodes, every entry whole.
    Whole,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Archive => "archive",
            Self::Whole => "archive, whole nodes",
        }
    }

    fn nodes(self) -> Option<WholeNodes> {
        match self {
            Self::Flat => None,
            Self::Archive => Some(WholeNodes::default()),
            Self::Whole => Some(WholeNodes::ALL),
        }
    }

    /// The targets that apply, by the names of their figures.
    fn targets(self, figures: &Map<String, Value>) -> Vec<Target> {
        let at_most = |figure: &str, name: &str, unit, limit: f64| {
            let value = figures
                .get(figure)
                .and_then(Value::as_f64)
                .unwrap_or(f64::MAX);
            target(
                &format!("{}: {name}", self.name()),
                value,
                unit,
                &format!("at most {limit}"),
                value <= limit,
            )
        };
        let ratio = figures["build_against_making"].as_f64().unwrap_or_default();
        let built = target(
            &format!("{}: building, against making the blocks", self.name()),
            ratio,
            "x",
            "at least 5",
            ratio >= 5.0,
        );
        match self {
            Self::Flat => vec![
                at_most("device_reads_per_read", "device reads for a value", "", 2.0),
                at_most("read_p50_ms", "a read, p50", "ms", 0.5),
                built,
            ],
            Self::Archive => vec![
                at_most("bytes_per_change", "bytes for a change", "", 700.0),
                at_most("device_reads_per_read", "device reads for a proof", "", 8.5),
                at_most("read_p50_ms", "a proof, p50", "ms", 1.2),
                at_most("read_p99_ms", "a proof, p99", "ms", 5.0),
                built,
            ],
            Self::Whole => vec![at_most(
                "device_reads_per_node",
                "device reads for a node",
                "",
                1.0,
            )],
        }
    }
}

/// What reads took.
struct Reads {
    latencies: Vec<Duration>,
    device_reads: u64,
    of_history: u64,
    nodes: u64,
    errors: Vec<String>,
}

impl Reads {
    fn figures(&self) -> Map<String, Value> {
        let mut latencies = self.latencies.clone();
        latencies.sort_unstable();
        let at = |share: f64| {
            let index = (latencies.len() as f64 * share) as usize;
            latencies.get(index).map_or(0.0, Duration::as_secs_f64) * 1e3
        };
        let each = |count: u64| count as f64 / latencies.len().max(1) as f64;
        let mut figures = json!({
            "read_p50_ms": at(0.5),
            "read_p99_ms": at(0.99),
            "device_reads_per_read": each(self.device_reads),
            "history_reads_per_read": each(self.of_history),
        });
        if self.nodes > 0 {
            figures["nodes_per_read"] = json!(each(self.nodes));
            figures["device_reads_per_node"] = json!(self.device_reads as f64 / self.nodes as f64);
        }
        figures.as_object().cloned().unwrap_or_default()
    }
}

impl Plan {
    /// Builds the history of all blocks.
    fn build(
        &self,
        kind: Kind,
        made: &Made,
        figures: &mut Map<String, Value>,
    ) -> Result<History, Failure> {
        let options = HistoryOptions {
            memory_bytes: self.history_memory,
            trie_bytes: self.trie_memory,
            ..HistoryOptions::default()
        };
        let db = &made.db;
        let disk = Arc::new(StdDisk::new(&self.dir));
        let start = Instant::now();
        let history = match kind.nodes() {
            None => {
                let history = History::create(disk, db, 0, None, options)?;
                let mut merged = Ok(());
                history.catch_up(db, &mut |so_far| {
                    if so_far.at.is_multiple_of(256) {
                        merged = history.merge();
                    }
                    merged.is_ok()
                })?;
                merged?;
                history
            }
            nodes => {
                let history = History::create(disk, db, self.blocks, nodes, options)?;
                history.extend_down(db, 0, &mut |_| true)?;
                history
            }
        };
        history.flush()?;
        history.merge()?;
        let built = start.elapsed();
        let stats = history.stats();
        let changes: usize = made.changed.iter().map(Vec::len).sum();
        let changes = changes.max(1) as f64;
        let mut put = |name: &str, value: f64| _ = figures.insert(name.to_owned(), json!(value));
        put("history_files", stats.files as f64);
        put("history_mib", stats.file_bytes as f64 / f64::from(1 << 20));
        put("bytes_per_change", stats.file_bytes as f64 / changes);
        put(
            "write_amplification",
            stats.written_bytes as f64 / stats.file_bytes.max(1) as f64,
        );
        put("index_bytes_per_change", stats.index_bytes as f64 / changes);
        put(
            "blocks_made_per_second",
            self.blocks as f64 / made.elapsed.as_secs_f64(),
        );
        put("build_seconds", built.as_secs_f64());
        put(
            "build_against_making",
            made.elapsed.as_secs_f64() / built.as_secs_f64(),
        );
        Ok(history)
    }

    /// Reads accounts at old blocks, with their proofs if there are nodes.
    fn read_all(&self, history: &History, kind: Kind, made: &Made) -> Result<Reads, Failure> {
        let Made { db, changed, .. } = made;
        let mut random = Random::new(self.seed ^ 0x5eed);
        let mut reads = Reads {
            latencies: Vec::with_capacity(self.reads as usize),
            device_reads: 0,
            of_history: 0,
            nodes: 0,
            errors: Vec::new(),
        };
        // What all views share stays as long as there is one.
        let first = history.view_at(db, 0)?;
        if kind != Kind::Flat {
            first.extract(&ProofTargets::new(vec![(path(0), vec![])]))?;
        }
        let (before, io) = (history.stats().reads, Io::now(&self.dir));
        for _ in 0..self.reads {
            let index = random.below(self.accounts);
            let number = random.below(self.blocks);
            let view = history.view_at(db, number)?;
            let start = Instant::now();
            let account = if kind == Kind::Flat {
                view.account(&path(index))?
            } else {
                let keys = ProofTargets::new(vec![(path(index), vec![])]);
                let proof = view.extract(&keys)?;
                reads.nodes += proof.witness_nodes().len() as u64;
                if proof.state_root() != made.roots.get(number as usize).copied() {
                    reads.errors.push(format!("the root at block {number}"));
                }
                match proof.lookup(&AccountPath::account(&path(index))) {
                    Lookup::Account(account) => Some(account),
                    _ => None,
                }
            };
            reads.latencies.push(start.elapsed());
            let changed = &changed[index as usize];
            let last = changed.partition_point(|block| u64::from(*block) <= number);
            let nonce = last.checked_sub(1).map_or(0, |at| changed[at]);
            if account.map(|account| account.nonce) != Some(nonce.into()) {
                let error = format!("account {index} at block {number}: {account:?}, not {nonce}");
                reads.errors.push(error);
            }
        }
        reads.device_reads = Io::now(&self.dir).since(&io).device_reads;
        reads.of_history = history.stats().reads - before;
        Ok(reads)
    }
}

fn parameters(plan: &Plan) -> Map<String, Value> {
    let parameters = json!({
        "accounts": plan.accounts,
        "blocks": plan.blocks,
        "changes": plan.changes,
        "reads": plan.reads,
        "memory_mib": plan.memory >> 20,
        "history_memory_mib": plan.history_memory >> 20,
        "trie_memory_mib": plan.trie_memory >> 20,
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
        let mut roots = vec![parent.state_root];
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
            roots.push(block.state_root);
            parent = block;
        }
        Ok(Made {
            db,
            changed,
            roots,
            elapsed: start.elapsed(),
        })
    }
}
