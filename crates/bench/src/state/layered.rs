//! `./bench layered`: the commitment `layered` beside `mpt`, and beside peers that are asked for, on
//! the same batches, round after round.

use super::{
    rounds::{Plan, compare, gib},
    stores::{Kind, kinds},
    summary,
    workload::{Spread, Workload},
};
use crate::report::{Notes, Report, data_dir};
use clap::Args;
use serde_json::{Value, json};
use std::{error::Error, fs};

#[derive(Debug, Args)]
pub(crate) struct LayeredArgs {
    /// Number of accounts in the first state [default: 16 Mi, with --quick 256 Ki].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1000..))]
    accounts: Option<u64>,
    /// Number of transfers of a block.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(4..100_000))]
    transfers: u64,
    /// Number of blocks of an interval.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,
    /// Number of measured blocks per round [default: three intervals].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    blocks: Option<u64>,
    /// Number of rounds over both [default: 3, with --quick 2].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Memory of a process, including page cache, in MiB.
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    /// Seed of all keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Load all stores again, whatever is kept of earlier runs.
    #[arg(long)]
    reload: bool,
    /// Stores to compare with besides, separated by commas, or none: rocksdb-mpt, and those of
    /// `./bench state`.
    #[arg(long, default_value = "none")]
    peers: String,
}

/// Runs the benchmark.
pub(crate) fn run(args: &LayeredArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    // Another interval makes another chain.
    let folder = format!("layered-{}", args.interval);
    let data_dir = data_dir()?.join("state").join(folder);
    fs::create_dir_all(&data_dir)?;
    let plan = Plan {
        data_dir,
        workload: Workload {
            seed: args.seed,
            accounts: args
                .accounts
                .unwrap_or(if quick { 1 << 18 } else { 1 << 24 }),
            transfers: args.transfers as usize,
            spread: Spread::Uniform,
        },
        memory_bytes: args.memory << 20,
        warm: false,
        batches: args.blocks.unwrap_or(3 * args.interval),
        witness: false,
        rounds: args.rounds.unwrap_or(if quick { 2 } else { 3 }),
        merge_interval: Some(args.interval),
        steady: None,
    };
    let mut report = Report::new("layered");
    let mut notes = Notes::default();
    let parameters = [
        ("accounts", json!(plan.workload.accounts)),
        ("seed", json!(plan.workload.seed)),
        ("transfers_per_block", json!(plan.workload.transfers)),
        ("blocks_per_interval", json!(args.interval)),
        ("blocks_per_round", json!(plan.batches)),
        ("rounds", json!(plan.rounds)),
        ("memory", json!(gib(plan.memory_bytes))),
    ];
    let named = |(name, value): (&str, _)| (name.to_owned(), value);
    report.parameters.extend(parameters.map(named));
    let kinds = kinds(&args.peers, &[Kind::Cambium, Kind::Layered], "layered")?;
    let mut runs = plan.prepare(&kinds, args.reload || quick)?;
    plan.level(&mut runs, &mut notes);
    plan.run(&mut runs, &mut notes);
    report.results = runs
        .iter()
        .map(|run| summary::of_store(&plan, run))
        .collect();
    report.targets = summary::layered_targets(&runs, &report.results);
    report.comparison = summary::comparison(&report.results);
    for (name, key) in [
        (
            "root, device reads, nothing beside it",
            "lone_root_device_reads",
        ),
        ("nodes hashed in the last round", "counter_node_hashes"),
        (
            "roots of snapshots in the last round",
            "counter_snapshot_roots",
        ),
        ("roots that waited for one", "counter_snapshot_root_waits"),
    ] {
        let text = |value: Option<&Value>| value.map_or("-".to_owned(), Value::to_string);
        let figures = report.results.iter().map(|figures| text(figures.get(key)));
        report.comparison.push((name.to_owned(), figures.collect()));
    }
    let (wrong, compared) = compare(&runs);
    report.errors = wrong;
    let failed = runs.iter().filter_map(|run| {
        let failure = run.failure.as_ref()?;
        Some(format!("{}: {failure}", run.kind))
    });
    report.errors.extend(failed);
    report
        .parameters
        .insert("roots_compared".into(), json!(compared));
    report.notes = notes.into_lines();
    Ok(report)
}
