//! `./bench rpc`: `cambium serve`, beside geth with `--peers geth`, on the same chains in the same run.
//!
//! ```text
//!   wide chain    many accounts, blocks of 500 payments, holders of a token
//!     -> batch    batches of 100 calls at the head: processor time of the server for each
//!     -> single   one call after another at 1, 4 and 16 connections: rate, p50, p99
//!     -> threads  proofs with one thread of the server and with two
//!     -> payload  further blocks through the Engine API, each made the head
//!     -> beside   an import while a server of the same database answers 1,000 requests a second
//!   deep chain    many small blocks of payments and token transfers
//!     -> old      proofs at the head and at old blocks, in memory and from the disk
//!     -> logs     logs over many blocks
//!   mainnet       transactions of real blocks, each on the state that it touches
//! ```
//!
//! Both servers are processes on the loopback, with their own defaults and the same memory, and are warmed by the calls that are then
//! measured. The client is this process: threads with a connection each, which send prepared requests. It shares the processors
//! with the server, so where there are few of them the processor time of the server (`/proc/PID/stat`) says more than rates. The
//! servers are measured in turns, and figures are medians of all rounds. That both answer the same is checked first.

mod plan;
mod connection;
mod server;
mod load;
mod chains;
mod requests;
mod measured;
mod same;
mod bench;
mod engine;
mod reads;
mod old;
mod logs;
mod payload;
mod mainnet;
mod beside;

use crate::{
    report::{Notes, Report, data_dir},
    state::stores::Failure,
};
use bench::Bench;
use clap::{Args, ValueEnum as _};
use plan::{Part, Plan};
use server::{GETH_VERSION, Programs};
use std::{error::Error, time::Duration};

#[derive(Clone, Debug, Args)]
pub(crate) struct RpcArgs {
    /// Parts, separated by commas [default: all].
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    parts: Vec<Part>,
    /// Servers to run beside it, none or geth. geth is built once from its module github.com/ethereum/go-ethereum, through the Go
    /// module proxy, into the directory of the benchmarks' data. It needs Go, and 8 GB of memory for each million of --accounts.
    /// It runs as an archive under the path scheme with the histories of values, nodes and logs for all blocks, and the same
    /// memory as Cambium: its fastest setting that answers all questions.
    #[arg(long, default_value = "none", value_parser = ["none", "geth"])]
    peers: String,
    /// Number of rounds, in each of which every server is measured once [default: 5, with --quick 1].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: Option<u64>,
    /// Accounts of the chain of large blocks [default: 1,000,000, with --quick 100,000].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    accounts: Option<u64>,
    /// Blocks of 500 payments that the servers have from the start [default: 200, with --quick 20].
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    blocks: Option<u64>,
    /// Blocks of 500 payments after these, which come through the Engine API [default: 100, with --quick 25].
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    payloads: Option<u64>,
    /// Blocks of the chain of many small blocks, at most of which proofs are made and logs looked for [default: 100,100, with
    /// --quick 1,200]. Proofs are made 1,000 blocks back, and 100,000.
    #[arg(long, value_parser = clap::value_parser!(u64).range(20..=10_000_000))]
    deep_blocks: Option<u64>,
}

/// Blocks below the head at which proofs are made, besides the head, where the chain has them.
const DEPTHS: [u64; 2] = [1_000, 100_000];
/// Blocks over which logs are looked for, or half of the chain.
const LOG_BLOCKS: u64 = 10_000;

impl RpcArgs {
    fn plan(&self, quick: bool) -> Result<Plan, Failure> {
        let pick =
            |given: Option<u64>, full, short| given.unwrap_or(if quick { short } else { full });
        let deep_blocks = pick(self.deep_blocks, 100_100, 1_200);
        let depths = DEPTHS.into_iter().filter(|depth| *depth < deep_blocks);
        let mut parts = self.parts.clone();
        if parts.is_empty() {
            parts = Part::value_variants().to_vec();
        }
        Ok(Plan {
            parts,
            rounds: pick(self.rounds, 5, 1),
            window: Duration::from_millis(if quick { 300 } else { 2_000 }),
            accounts: pick(self.accounts, 1_000_000, 100_000),
            blocks: pick(self.blocks, 200, 20),
            payloads: pick(self.payloads, 100, 25),
            deep_blocks,
            depths: [0].into_iter().chain(depths).collect(),
            log_blocks: LOG_BLOCKS.min(deep_blocks / 2),
            mainnet_blocks: if quick { 2 } else { 14 },
            cold_reads: if quick { 100 } else { 500 },
            data: data_dir()?,
        })
    }
}

pub(crate) fn run(args: &RpcArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    report(args, quick).map_err(|error| error as Box<dyn Error>)
}

fn report(args: &RpcArgs, quick: bool) -> Result<Report, Failure> {
    let mut report = Report::new("rpc");
    report.is_table = true;
    let plan = args.plan(quick)?;
    report.parameters = plan.parameters();
    let has_geth = args.peers == "geth";
    let peers = if has_geth { GETH_VERSION } else { "none" };
    report.parameters.insert("geth".into(), peers.into());
    let mut bench = Bench {
        programs: Programs::find(has_geth)?,
        plan,
        notes: Notes::default(),
    };
    measure(&mut bench, &mut report)?;
    if has_geth {
        bench.notes.add(
            "geth answers newPayload before the block is on the disk; Cambium's answer means that it is durable",
        );
    }
    report.notes = bench.notes.into_lines();
    Ok(report)
}

/// Runs the parts that are asked for.
fn measure(bench: &mut Bench, report: &mut Report) -> Result<(), Failure> {
    let plan = &bench.plan;
    if [Part::Batch, Part::Single, Part::Threads]
        .into_iter()
        .any(|part| plan.has(part))
    {
        reads::run(bench, report)?;
    }
    for (part, run) in [
        (Part::Old, old::run as fn(&mut Bench, &mut Report) -> _),
        (Part::Logs, logs::run),
        (Part::Payload, payload::run),
        (Part::Mainnet, mainnet::run),
        (Part::Beside, beside::run),
    ] {
        if bench.plan.has(part) {
            run(bench, report)?;
        }
    }
    Ok(())
}
