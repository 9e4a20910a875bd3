//! `./bench history`: values and proofs of accounts at random old blocks, and what it takes to keep
//! them.
//!
//! ```text
//!   made      accounts, and blocks that change some of them at random, by the engine alone; a peer gets
//!             the nodes of each block, or makes them itself before its writing is measured
//!   built     each history, from the block log
//!   reads     accounts chosen uniformly at blocks chosen uniformly, in a process whose memory is limited,
//!             page cache included; each value and root is compared with what was written
//!   imported  further blocks, while one thread reads
//! ```

mod plan;
mod made;
mod states;
mod histories;
#[cfg(any(feature = "leveldb", feature = "mdbx"))]
mod lists;
#[cfg(feature = "leveldb")]
mod leveldb;
#[cfg(feature = "mdbx")]
mod mdbx;
mod kind;
mod reads;
mod geth;

use self::{
    kind::Kind,
    plan::{Failure, Plan, make_empty},
    reads::read_in_processes,
};
use crate::report::{Notes, Report, Target, data_dir};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, error::Error, fs};

pub(crate) use reads::child;

#[derive(Debug, Args)]
pub(crate) struct HistoryArgs {
    /// Number of accounts [default: 1,000,000, with --quick 50,000]
    #[arg(long)]
    accounts: Option<u64>,
    /// Number of blocks [default: 1,000, with --quick 400]
    #[arg(long)]
    blocks: Option<u64>,
    /// Number of blocks that are imported while accounts are read, at most
    #[arg(long, default_value_t = 400)]
    imported: u64,
    /// How many of them in a second
    #[arg(long, default_value_t = 10)]
    import_rate: u64,
    /// Number of accounts that a block changes
    #[arg(long, default_value_t = 1_000)]
    changes: u64,
    /// Number of accounts that are read
    #[arg(long, default_value_t = 18_000)]
    reads: u64,
    /// Memory of the engine in MiB
    #[arg(long, default_value_t = 48)]
    memory: u64,
    /// Memory of the history in MiB
    #[arg(long, default_value_t = 16)]
    history_memory: u64,
    /// Memory for pages of the history that were read, in MiB
    #[arg(long, default_value_t = 32)]
    history_cache: u64,
    /// Memory of the trie from which nodes are made, in MiB
    #[arg(long, default_value_t = 512)]
    trie_memory: u64,
    /// Memory of a process that reads in MiB, page cache included
    #[arg(long, default_value_t = 160)]
    process_memory: u64,
    /// Memory of geth in MiB, page cache included
    #[arg(long, default_value_t = 512)]
    geth_memory: u64,
    /// Numbers of threads that read, besides one
    #[arg(long, value_delimiter = ',', default_value = "16")]
    threads: Vec<u64>,
    /// Measure these histories alone
    #[arg(long, value_enum)]
    only: Vec<Kind>,
    /// Measure these besides, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none")]
    peers: Vec<Peer>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What Cambium is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Peer {
    None,
    /// All nodes of all states by their hashes, as geth's hash scheme keeps them
    Leveldb,
    /// Branches and accounts with their former values by block, as op-reth keeps them for proofs
    Mdbx,
    /// geth's archive of a chain of its own, over JSON-RPC. It is built once from its module
    /// github.com/ethereum/go-ethereum, through the Go module proxy, and needs Go, and 8 GB of memory for each
    /// million of --accounts
    Geth,
    /// LevelDB and MDBX
    All,
}

impl HistoryArgs {
    fn plan(&self, quick: bool) -> Result<Plan, Box<dyn Error>> {
        let or = |given: Option<u64>, usual, small| {
            let default = if quick { small } else { usual };
            given.unwrap_or(default)
        };
        Ok(Plan {
            accounts: or(self.accounts, 1_000_000, 50_000),
            blocks: or(self.blocks, 1_000, 400),
            imported: self.imported,
            import_rate: self.import_rate.max(1),
            changes: self.changes,
            reads: self.reads,
            memory: self.memory << 20,
            history_memory: self.history_memory << 20,
            history_cache: self.history_cache << 20,
            trie_memory: self.trie_memory << 20,
            process_memory: self.process_memory << 20,
            seed: self.seed,
            dir: data_dir()?.join("history"),
        })
    }

    fn has_peer(&self, peer: Peer) -> bool {
        let is_of_all = matches!(peer, Peer::Leveldb | Peer::Mdbx);
        self.peers.contains(&peer) || is_of_all && self.peers.contains(&Peer::All)
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let all = [Kind::Flat, Kind::Archive, Kind::Whole];
        all.into_iter()
            .filter(|kind| self.only.is_empty() || self.only.contains(kind))
    }
}

pub(crate) fn run(args: &HistoryArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    measure(args, quick).map_err(|error| error as Box<dyn Error>)
}

fn measure(args: &HistoryArgs, quick: bool) -> Result<Report, Failure> {
    let plan = args.plan(quick).map_err(|error| error.to_string())?;
    let mut report = Report::new("history");
    report.parameters = plan.parameters();
    let mut notes = Notes::default();
    let mut threads = vec![1];
    threads.extend(&args.threads);
    make_empty(&plan.dir)?;
    let mut figures = BTreeMap::new();
    let (mut made, of_leveldb) = match args.has_peer(Peer::Leveldb) {
        true => make_with_leveldb(&plan).map(|(made, figures)| (made, Some(figures)))?,
        false => (plan.make(None)?, None),
    };
    let of_mdbx = match args.has_peer(Peer::Mdbx) {
        true => Some(make_mdbx(&plan)?),
        false => None,
    };
    let mut read = |kind: Kind, mut built: Map<String, Value>, report: &mut Report| {
        built.insert("history".to_owned(), json!(kind.name()));
        // The others are measured all the same.
        match read_in_processes(&plan, kind, &threads, &mut built, &mut notes) {
            Ok(errors) => report.errors.extend(errors),
            Err(error) => report.errors.push(format!(
                "{}: the process that reads may use {} MiB (--process-memory): {error}",
                kind.name(),
                plan.process_memory >> 20,
            )),
        }
        report.results.push(built.clone());
        Ok::<_, Failure>(built)
    };
    for kind in args.kinds() {
        let built = plan.build(kind.nodes(), &made)?;
        // The process that reads opens the database itself.
        let elapsed = made.elapsed;
        drop(made);
        let all = read(kind, built, &mut report)?;
        report.targets.extend(targets(kind, &all));
        figures.insert(kind.name(), all);
        fs::remove_dir_all(plan.database_dir().join("history"))?;
        made = plan.reopen(elapsed)?;
    }
    if let Some(of_peer) = of_leveldb {
        let of_peer = read(Kind::Leveldb, of_peer, &mut report)?;
        let archive = figures.get(Kind::Archive.name());
        report
            .targets
            .extend(archive.iter().flat_map(|ours| against(ours, &of_peer)));
    }
    if let Some(of_peer) = of_mdbx {
        read(Kind::Mdbx, of_peer, &mut report)?;
    }
    drop(made);
    if args.has_peer(Peer::Geth) {
        let memory = args.geth_memory << 20;
        let (of_peer, errors) = geth::measure(&plan, memory, &threads, &mut notes)?;
        notes.add(format!(
            "{}: a chain of its own, of payments; round trips of JSON-RPC over its socket; {} MiB",
            geth::NAME,
            args.geth_memory
        ));
        report.errors.extend(errors);
        report.results.push(of_peer);
    }
    report.notes = notes.into_lines();
    fs::remove_dir_all(&plan.dir)?;
    Ok(report)
}

/// Makes the database, and the peer's.
#[cfg(feature = "leveldb")]
fn make_with_leveldb(plan: &Plan) -> Result<(made::Made, Map<String, Value>), Failure> {
    leveldb::make(plan)
}

#[cfg(not(feature = "leveldb"))]
fn make_with_leveldb(_: &Plan) -> Result<(made::Made, Map<String, Value>), Failure> {
    Err(
        "this program was built without LevelDB: `./bench history --peers leveldb` builds it"
            .into(),
    )
}

/// Makes the database of MDBX, after Cambium's.
#[cfg(feature = "mdbx")]
fn make_mdbx(plan: &Plan) -> Result<Map<String, Value>, Failure> {
    mdbx::make(plan)
}

#[cfg(not(feature = "mdbx"))]
fn make_mdbx(_: &Plan) -> Result<Map<String, Value>, Failure> {
    Err("this program was built without MDBX: `./bench history --peers mdbx` builds it".into())
}

fn number(figures: &Map<String, Value>, name: &str) -> Option<f64> {
    figures.get(name).and_then(Value::as_f64)
}

/// The targets of a history.
fn targets(kind: Kind, figures: &Map<String, Value>) -> Vec<Target> {
    let at_most = |figure: &str, name: &str, unit, limit: f64| {
        let value = number(figures, figure).unwrap_or(f64::MAX);
        Target {
            name: format!("{}: {name}", kind.name()),
            value,
            unit,
            target: format!("at most {limit}"),
            met: value <= limit,
        }
    };
    match kind {
        Kind::Flat => vec![
            at_most("device_reads_per_read", "device reads for a value", "", 2.0),
            at_most("read_p50_ms", "a read, p50", "ms", 0.5),
        ],
        Kind::Archive => vec![
            at_most("bytes_per_change", "bytes for a change", "", 700.0),
            at_most("device_reads_per_read", "device reads for a proof", "", 8.5),
            at_most("rounds_per_read", "rounds of reads for a proof", "", 6.0),
            at_most("read_p50_ms", "a proof, p50", "ms", 1.2),
            at_most("read_p99_ms", "a proof, p99", "ms", 5.0),
        ],
        Kind::Whole => vec![at_most(
            "device_reads_per_node",
            "device reads for a node",
            "",
            1.0,
        )],
        Kind::Leveldb | Kind::Mdbx => Vec::new(),
    }
}

/// The targets of an archive beside LevelDB.
fn against(ours: &Map<String, Value>, peer: &Map<String, Value>) -> Vec<Target> {
    let ratio = |name: &str, figure: &str, limit: f64, is_share: bool| {
        let ratio = number(ours, figure)? / number(peer, figure)?;
        // A share of the peer's, or how many times the peer's.
        let (value, met) = match is_share {
            true => (ratio, ratio <= limit),
            false => (1.0 / ratio, 1.0 / ratio >= limit),
        };
        Some(Target {
            name: format!("archive against leveldb: {name}"),
            value,
            unit: "x",
            target: match is_share {
                true => format!("at most {limit}"),
                false => format!("at least {limit}"),
            },
            met,
        })
    };
    let of_threads = ours.keys().filter_map(|figure| {
        let threads = figure.strip_suffix("_threads_reads_per_second")?;
        let name = format!("reads through the trie, {threads} threads");
        let value = number(ours, figure)? / number(peer, figure)?;
        Some(Target {
            name: format!("archive against leveldb: {name}"),
            value,
            unit: "x",
            target: "at least 2".to_owned(),
            met: value >= 2.0,
        })
    });
    let of_one = number(ours, "reads_per_second")
        .zip(number(peer, "reads_per_second"))
        .map(|(ours, peer)| Target {
            name: "archive against leveldb: reads through the trie, one at a time".to_owned(),
            value: ours / peer,
            unit: "x",
            target: "at least 3".to_owned(),
            met: ours >= 3.0 * peer,
        });
    [
        ratio("bytes for a change", "bytes_per_change", 0.4, true),
        ratio(
            "a read while blocks are imported, p99",
            "importing_read_p99_ms",
            0.25,
            true,
        ),
        ratio("writing and building", "build_us_per_change", 5.0, false),
        of_one,
    ]
    .into_iter()
    .flatten()
    .chain(of_threads)
    .collect()
}
