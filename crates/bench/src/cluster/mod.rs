//! `./bench cluster`: a cluster's figures.
//!
//! ```text
//!   aborts    transactions that a builder leaves out because their bags are stale, by retention level, accounts and age;
//!             a table, and a plot as SVG
//!   lost      a shard that is lost and back: its process, and its folder
//!   tokens    ERC-20 transfers from clients to shards in processes of their own, against one process
//!   regions   a builder and servers in four regions against one; needs root, and is not part of --quick
//! ```
//!
//! What needs a NATS server installs one below the target folder, as the tests do, or is skipped and says so.

mod genesis;
mod plot;
mod aborts;
mod lost;
mod task;
mod rounds;
mod tokens;
mod regions;

use crate::report::{Report, data_dir};
use aborts::{Curve, LEVELS, Sizes};
use clap::Args;
use plot::Panel;
use serde_json::json;
use std::{error::Error, fs, path::PathBuf};
use task::Task;

#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterArgs {
    /// Parts to run, separated by commas: aborts, lost, tokens, regions [default: all, with --quick all but
    /// regions]
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
    /// Numbers of accounts of the states that transactions are aborted on, separated by commas [default: 10,000, 100,000 and
    /// 1,000,000, with --quick 2,000]
    #[arg(long, value_delimiter = ',')]
    accounts: Vec<u64>,
    /// Also transactions on a state of 10,000,000 accounts
    #[arg(long)]
    long: bool,
    /// Number of accounts of the shard that is lost [default: 10,000,000, with --quick 100,000]
    #[arg(long)]
    lost_accounts: Option<usize>,
    /// Number of shards for ERC-20 transfers [default: 16, with --quick 4]
    #[arg(long)]
    shards: Option<usize>,
    /// Delay from each region to each other one in milliseconds, one way
    #[arg(long, default_value_t = 100.0)]
    delay_ms: f64,
    /// Number of blocks over regions
    #[arg(long, default_value_t = 12)]
    region_blocks: usize,
    /// Blocks over regions that are not acknowledged, at most
    #[arg(long, default_value_t = 4)]
    in_flight: usize,
    /// File for the plot [default: cluster/aborts.svg beside the data of benchmarks]
    #[arg(long)]
    plot: Option<PathBuf>,
}

const PARTS: [&str; 4] = ["aborts", "lost", "tokens", "regions"];

pub(crate) fn run(args: &ClusterArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    if let Some(unknown) = args.parts.iter().find(|it| !PARTS.contains(&it.as_str())) {
        let parts = PARTS.join(", ");
        return Err(format!("there is no part {unknown:?}: {parts}").into());
    }
    let data = data_dir()?.join("cluster");
    fs::create_dir_all(&data)?;
    let mut report = Report::new("cluster");
    let is_wanted = |part: &str| match args.parts.is_empty() {
        true => !quick || part != "regions",
        false => args.parts.iter().any(|it| it == part),
    };
    if is_wanted("aborts") {
        let default: &[u64] = match quick {
            true => &[2_000],
            false => &[10_000, 100_000, 1_000_000],
        };
        let mut accounts = match args.accounts.is_empty() {
            true => default.to_vec(),
            false => args.accounts.clone(),
        };
        accounts.extend(args.long.then_some(10_000_000));
        let sizes = Sizes {
            accounts,
            block: if quick { 200 } else { 1_000 },
            staleness: vec![1, 2, 4, 8],
        };
        let curves = aborts::run(&sizes, &mut report)?;
        let plot = args.plot.clone().unwrap_or_else(|| data.join("aborts.svg"));
        fs::write(&plot, picture(&sizes, &curves))?;
        report
            .parameters
            .insert("plot".to_owned(), json!(plot.display().to_string()));
        table(&curves, &mut report);
    }
    if is_wanted("lost") {
        let accounts = if quick { 100_000 } else { 10_000_000 };
        let sizes = lost::Sizes {
            accounts: args.lost_accounts.unwrap_or(accounts).max(1),
            blocks: if quick { 16 } else { 128 },
            changes: if quick { 500 } else { 2_000 },
        };
        lost::run(sizes, &data, &mut report)?;
    }
    if is_wanted("tokens") {
        let sizes = tokens::Sizes {
            accounts: if quick { 2_000 } else { 200_000 },
            shards: args.shards.unwrap_or(if quick { 4 } else { 16 }),
            blocks: if quick { 3 } else { 10 },
            transfers: if quick { 200 } else { 2_000 },
        };
        tokens::run(sizes, &data, &mut report)?;
    }
    if is_wanted("regions") {
        let sizes = regions::Sizes {
            accounts: if quick { 50_000 } else { 600_000 },
            payments: if quick { 1_000 } else { 10_000 },
            blocks: args.region_blocks.max(1),
            in_flight: args.in_flight.max(1),
            delay_ms: args.delay_ms,
        };
        regions::run(sizes, &data, &mut report)?;
    }
    Ok(report)
}

/// Does what another process of this program asks for.
pub(crate) fn child(task: &str) -> Result<(), Box<dyn Error>> {
    match serde_json::from_str(task)? {
        Task::Shard(task) => tokens::shard(&task),
        Task::Builder(task) => regions::child(&task),
    }
}

/// A row for each curve, a column for each level.
fn table(curves: &[Curve], report: &mut Report) {
    let levels = (0..LEVELS).map(|level| format!("r = {level}"));
    report
        .comparison
        .push(("aborted, %".to_owned(), levels.collect()));
    for curve in curves {
        let Curve {
            accounts,
            receivers,
            staleness,
            aborted,
        } = curve;
        let name = format!("{accounts} accounts, {receivers}, {staleness} blocks old");
        let figures = aborted.iter().map(|share| format!("{share:.1}"));
        report.comparison.push((name, figures.collect()));
    }
}

/// A panel for each state and kind of receivers.
fn picture(sizes: &Sizes, curves: &[Curve]) -> String {
    let mut panels = Vec::new();
    for receivers in ["uniform", "Zipf"] {
        for accounts in &sizes.accounts {
            let own = |curve: &&Curve| curve.accounts == *accounts && curve.receivers == receivers;
            let own = curves.iter().filter(own);
            panels.push(Panel {
                title: format!("{accounts} accounts, {receivers}"),
                lines: own.map(|curve| curve.aborted.clone()).collect(),
            });
        }
    }
    let names = sizes.staleness.iter().map(|age| match age {
        1 => "1 block old".to_owned(),
        age => format!("{age} blocks old"),
    });
    plot::draw(
        &format!(
            "Payments left out for stale bags, blocks of {}",
            sizes.block
        ),
        "Retention level of the builder (0: the root alone)",
        &names.collect::<Vec<_>>(),
        sizes.accounts.len(),
        &panels,
    )
}
