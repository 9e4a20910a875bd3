//! `./bench import`: transactions per second of an import, and the time of each stage.
//!
//! ```text
//!   warm   a state that fits into memory, and a real chain
//!   cold   with --cold: a state ten times larger than memory, beside geth with --peers geth
//! ```

mod inputs;
mod warm;
mod cold;

use crate::report::Report;
use clap::Args;
use cold::{Budget, CaseKind};
use std::error::Error;

pub(crate) use cold::child;
pub(crate) use inputs::{Copied, Inputs};

#[derive(Clone, Debug, Args)]
pub(crate) struct ImportArgs {
    /// Import blocks whose state is not in memory: ten times as much is on disk.
    #[arg(long)]
    cold: bool,
    /// Number of rounds with --cold, in each of which every way of importing runs once [default: 3,
    /// with --quick 1].
    #[arg(long, requires = "cold", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Memory in MiB, page cache included, that the limit of each process with --cold leaves beside
    /// the budget. Geth keeps the changes of 128 blocks whatever its cache, and is killed with much
    /// less.
    #[arg(long, requires = "cold", default_value_t = 1024,
          value_parser = clap::value_parser!(u64).range(64..=1_048_576))]
    spare: u64,
    /// Number of accounts with --cold [default: 10,000,000, with --quick 200,000].
    #[arg(long, requires = "cold", conflicts_with = "memory",
          value_parser = clap::value_parser!(u64).range(100_000..=100_000_000))]
    accounts: Option<u64>,
    /// Cases of --cold, separated by commas [default: all].
    #[arg(long, requires = "cold", value_delimiter = ',')]
    cases: Vec<CaseKind>,
    /// Instead of the cases, import payments with these budgets of memory, each smaller than the
    /// state and filled before, and compare them with resident memory. The states for 1G and 3G are
    /// generated if there are none, which takes many minutes and 10 GB of disk.
    #[arg(long, requires = "cold", value_delimiter = ',', value_name = "SIZES", num_args = 0..=1,
          default_missing_value = "256M,512M,1G,3G", value_parser = Budget::parse)]
    memory: Option<Vec<Budget>>,
    /// Instead of a tenth of each state's size as memory, import the cases on states of these numbers
    /// of accounts with equal memory, and compare them [default: 1000000,20000000, with --quick
    /// 100000,400000]. They are generated if there are none, which takes many minutes and 15 GB of
    /// disk.
    #[arg(long, requires = "cold", value_delimiter = ',', value_name = "ACCOUNTS", num_args = 0..=1,
          conflicts_with_all = ["memory", "accounts"],
          value_parser = clap::value_parser!(u64).range(100_000..=100_000_000))]
    growth: Option<Vec<u64>>,
    /// Memory of each import with --growth.
    #[arg(long, requires = "growth", default_value = "1G", value_parser = Budget::parse)]
    budget: Budget,
    /// Clients to run beside it, none or geth. With --cold, geth is built once from its module
    /// github.com/ethereum/go-ethereum, through the Go module proxy, into the directory of the
    /// benchmarks' data. It needs Go, and 8 GB of memory for each million of --accounts.
    #[arg(long, default_value = "none", value_parser = ["none", "geth"])]
    peers: String,
}

pub(crate) fn run(args: &ImportArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    let has_geth = args.peers == "geth";
    let mut report = match args.cold {
        true => cold::run(
            &cold::ColdArgs {
                rounds: args.rounds,
                spare_mib: args.spare,
                accounts: args.accounts,
                cases: &args.cases,
                budgets: args.memory.as_deref(),
                growth: args.growth.as_deref(),
                budget: args.budget,
                has_geth,
            },
            quick,
        )?,
        false if has_geth => return Err("--peers geth needs --cold".into()),
        false => warm::run(quick)?,
    };
    report.is_table = true;
    Ok(report)
}
