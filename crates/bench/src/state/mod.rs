//! `./bench state`: the workload of NOMT's benchmark on Cambium's engine and on other stores.
//!
//! ```text
//!   workload   which keys, which batches                       workload.rs
//!   rounds     load once, then round after round, store after   rounds.rs
//!              store, each in a process of its own               child.rs, batch.rs, stores/
//!              with limited memory, cold                         ../process.rs, ../cgroup.rs
//!   alone      what is measured of Cambium alone                alone.rs, probes.rs
//!   report     figures, targets                                 summary.rs
//!   layered    the same rounds over `mpt` and `layered`         layered.rs
//! ```

mod workload;
pub(crate) mod stores;
mod batch;
mod probes;
mod child;
mod rounds;
mod alone;
mod summary;
mod layered;

use crate::{
    report::{Notes, Report, data_dir},
    system,
};
use clap::Args;
use rounds::{Plan, gib};
use serde_json::{Map, json};
use std::{error::Error, fs};
use stores::{Kind, kinds};
use summary::EarlierRates;

pub(crate) use alone::fio_reads_per_second;
pub(crate) use batch::run_batch;
pub(crate) use child::{read_all, run as child};
pub(crate) use layered::{LayeredArgs, run as run_layered};
pub(crate) use workload::{Spread, Workload};

/// Number of transfers per batch, as in NOMT's benchmark.
const TRANSFERS: usize = 25_000;

#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// Number of accounts in the first state [default: 16 Mi, with --warm 4 Mi, with --quick 256
    /// Ki].
    #[arg(long)]
    accounts: Option<u64>,
    /// Number of measured batches per round, each of 25,000 transfers [default: 10, with --steady 30].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Number of rounds over all stores [default: 3, with --quick 2, with --steady 1].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Memory of a store's process, including page cache, in MiB.
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    /// Keep everything in memory: no limit, and a warm-up that reads all accounts.
    #[arg(long)]
    warm: bool,
    /// Run as many batches again in each round, with a witness of everything read and changed, on
    /// stores that can make one.
    #[arg(long)]
    witness: bool,
    /// Measure what a store does for long: first run windows of batches until their rate is flat, and as much is written
    /// as the store holds. Stores that the benchmark reads from by its own threads get the number that is fastest.
    #[arg(long, conflicts_with_all = ["warm", "witness"])]
    steady: bool,
    /// With --steady, batches of a window [default: 10].
    #[arg(long, requires = "steady", value_parser = clap::value_parser!(u64).range(1..))]
    window: Option<u64>,
    /// With --steady, most windows of a round [default: 60].
    #[arg(long, requires = "steady")]
    windows_max: Option<usize>,
    /// How the accounts of the first state are chosen.
    #[arg(long, value_enum, default_value_t)]
    spread: Spread,
    /// Seed of all keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Load all stores again.
    #[arg(long)]
    reload: bool,
    /// Run only Cambium's batches, without its other measurements.
    #[arg(long)]
    only_batches: bool,
    /// Stores to compare with, separated by commas, all or none: nomt, qmdb, rocksdb, rocksdb-mpt,
    /// mdbx, fjall, firewood.
    #[arg(long, default_value = "none")]
    peers: String,
}

/// Runs the benchmark of accounts.
pub(crate) fn run(args: &StateArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    run_own(args, quick, "state", Kind::Cambium)
}

/// Runs the same batches on entries of a key-value database: `./bench kv`.
pub(crate) fn run_entries(args: &StateArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    run_own(args, quick, "kv", Kind::Binary)
}

fn run_own(
    args: &StateArgs,
    quick: bool,
    name: &'static str,
    own: Kind,
) -> Result<Report, Box<dyn Error>> {
    let plan = plan(args, quick)?;
    let kinds = kinds(&args.peers, &[own], name)?;
    let mut report = Report::new(name);
    let mut notes = Notes::default();
    let parameters = [
        ("accounts", json!(plan.workload.accounts)),
        ("seed", json!(plan.workload.seed)),
        ("transfers_per_batch", json!(plan.workload.transfers)),
        ("batches_per_round", json!(plan.batches)),
        ("rounds", json!(plan.rounds)),
        ("witness", json!(plan.witness)),
        ("mode", json!(plan.mode())),
        ("spread", json!(args.spread)),
        ("memory", json!(gib(plan.memory_bytes))),
    ];
    let named = |(name, value): (&str, _)| (name.to_owned(), value);
    report.parameters.extend(parameters.map(named));

    let mut runs = plan.prepare(&kinds, args.reload || quick)?;
    plan.level(&mut runs, &mut notes);
    if plan.steady.is_some() {
        for run in runs.iter_mut().filter(|run| run.kind.reads_by_threads()) {
            plan.choose_threads(run, &mut notes);
        }
    }
    let fio_rate = match plan.steady {
        Some(_) => alone::fio_reads_per_second(&plan.data_dir, quick)
            .map_err(|error| notes.add(format!("no comparison with the device: {error}")))
            .ok(),
        None => None,
    };
    plan.run(&mut runs, &mut notes);
    let sound = runs
        .iter()
        .find(|run| run.kind == Kind::Cambium && run.failure.is_none());
    let alone = match sound {
        Some(run) if !args.only_batches && !args.steady => {
            alone::measure(&plan, run, quick, &mut notes)
        }
        _ => Map::new(),
    };
    report.results = runs
        .iter()
        .map(|run| summary::of_store(&plan, run))
        .collect();
    let ours = report.results.iter_mut();
    for figures in ours.filter(|figures| figures["store"] == "cambium") {
        figures.extend(fio_rate.map(|rate| ("fio_reads_per_second".to_owned(), json!(rate))));
    }
    let rates = EarlierRates::of(&plan.data_dir);
    let base_rate = rates.base(&plan);
    report.targets = match own {
        _ if plan.steady.is_some() => {
            summary::steady_targets(&plan, &runs, &report.results, fio_rate)
        }
        Kind::Binary => summary::entry_targets(&plan, &runs, &report.results),
        _ => summary::targets(&plan, &runs, &report.results, &alone, base_rate),
    };
    rates.keep(&plan, &report.results)?;
    report.comparison = summary::comparison(&report.results);
    if !alone.is_empty() {
        report.results.push(alone);
    }
    let (wrong, compared) = rounds::compare(&runs);
    report.errors = wrong;
    report.errors.extend(runs.iter().filter_map(|run| {
        let failure = run.failure.as_ref().filter(|_| run.kind == own)?;
        Some(format!("{own}: {failure}"))
    }));
    report
        .parameters
        .insert("roots_compared".into(), json!(compared));
    report.notes = notes.into_lines();
    Ok(report)
}

fn plan(args: &StateArgs, quick: bool) -> Result<Plan, Box<dyn Error>> {
    let default_accounts = match (quick, args.warm) {
        (true, _) => 1 << 18,
        (false, true) => 1 << 22,
        (false, false) => 1 << 24,
    };
    let accounts = args.accounts.unwrap_or(default_accounts);
    if accounts < 1000 {
        return Err("at least 1,000 accounts".into());
    }
    let data_dir = data_dir()?.join("state");
    fs::create_dir_all(&data_dir)?;
    Ok(Plan {
        data_dir,
        workload: Workload {
            seed: args.seed,
            accounts,
            transfers: TRANSFERS,
            spread: args.spread,
        },
        // All memory of the machine, less a part for the page cache and other processes.
        memory_bytes: match args.warm {
            true => system::memory_available_bytes() / 4 * 3,
            false => args.memory << 20,
        },
        warm: args.warm,
        batches: args.batches.unwrap_or(if args.steady { 30 } else { 10 }),
        witness: args.witness,
        rounds: args.rounds.unwrap_or(match (args.steady, quick) {
            (true, _) => 1,
            (false, true) => 2,
            (false, false) => 3,
        }),
        merge_interval: None,
        steady: args
            .steady
            .then(|| (args.window.unwrap_or(10), args.windows_max.unwrap_or(60))),
    })
}
