//! Benchmarks: see `./bench` in the repository's root.

// The allocator of the `cambium` program, for all stores alike.
#[path = "../../cambium/src/allocator.rs"]
mod allocator;
mod process;
mod report;
mod svg;
mod cgroup;
mod system;
mod state;
mod geth;
mod import;
mod bal;
mod history;
mod bindings;
mod scale;
mod shard;
mod cluster;
mod rpc;
mod model;

use clap::{Args, Parser, Subcommand};
use std::{error::Error, process::ExitCode};

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of Cambium")]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Compare executors, with and without access lists
    Bal {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: bal::BalArgs,
    },
    /// One execution of `bal` over a store, in a process of its own
    #[command(hide = true)]
    BalChild {
        /// The task as JSON
        task: String,
    },
    /// Reads and writes of a key-value store from Rust, C and Python
    Bindings {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: bindings::BindingsArgs,
    },
    /// The program of `bindings` in Rust, in a process of its own
    #[command(hide = true)]
    BindingsChild {
        /// Number of entries
        entries: u64,
    },
    /// A cluster: stale bags, slow networks, a shard that is lost, ERC-20 transfers from end to end
    Cluster {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: cluster::ClusterArgs,
    },
    /// A shard or builder of `cluster`, in a process of its own
    #[command(hide = true)]
    ClusterChild {
        /// The task as JSON
        task: String,
    },
    /// Values of accounts at old blocks, and what it takes to keep them
    History {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: history::HistoryArgs,
    },
    /// The reads of `history`, in a process of their own
    #[command(hide = true)]
    HistoryChild {
        /// The task as JSON
        task: String,
    },
    /// Import a generated chain and a real one, or with --cold chains whose state is on disk
    Import {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: import::ImportArgs,
    },
    /// One import of `import --cold`, in a process of its own
    #[command(hide = true)]
    ImportChild {
        /// The task as JSON
        task: String,
    },
    /// Transfers on a large key-value database under a binary trie, compared with other stores
    Kv {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: state::StateArgs,
    },
    /// The commitment `layered` beside `mpt`, on transfers on a large state
    Layered {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: state::LayeredArgs,
    },
    /// What a state of any size costs: told from the counters of a run of `state`, held against others, and plotted
    Model {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: model::ModelArgs,
    },
    /// A chain over JSON-RPC and the Engine API, beside geth: processor time, rates and latencies of requests
    ///
    /// Two generated chains are imported once by each server and kept. Batches and single calls are measured at the head, proofs also
    /// many blocks back, logs over many blocks, and blocks of 500 payments through the Engine API. Processor time is that of the
    /// server's process; the client has processor time of its own, so rates on few processors are those of both.
    ///
    /// Examples:
    ///   ./bench rpc --quick
    ///   ./bench rpc --peers geth --parts batch,single
    ///   ./bench rpc --peers geth --parts payload --accounts 200000 --rounds 3
    #[command(verbatim_doc_comment)]
    Rpc {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: rpc::RpcArgs,
    },
    /// Each job on 1, 2, 4, ... cores, with processor time and serial part
    Scale {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: scale::ScaleArgs,
    },
    /// One job of `scale`, in a process of its own
    #[command(hide = true)]
    ScaleChild {
        /// The task as JSON
        task: String,
    },
    /// A shard of the state in memory: gets, puts and roots on one core, memory, and bytes of node bags
    Shard {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: shard::ShardArgs,
    },
    /// Transfers on a large state, read and made durable, compared with other stores
    State {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: state::StateArgs,
    },
    /// One store of `state`, in a process of its own
    #[command(hide = true)]
    StateChild {
        /// The task as JSON
        task: String,
    },
}

#[derive(Clone, Copy, Debug, Args)]
struct Common {
    /// Run a smaller benchmark, which takes less than two minutes once it is built
    #[arg(long)]
    quick: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn run(benchmark: &Benchmark) -> Result<ExitCode, Box<dyn Error>> {
    let (report, json) = match benchmark {
        Benchmark::Bal { common, args } => (bal::run(args, common.quick)?, common.json),
        Benchmark::BalChild { task } => {
            bal::child(task).map_err(|error| error as Box<dyn Error>)?;
            return Ok(ExitCode::SUCCESS);
        }
        Benchmark::Bindings { common, args } => (bindings::run(args, common.quick)?, common.json),
        Benchmark::BindingsChild { entries } => {
            bindings::child(*entries)?;
            return Ok(ExitCode::SUCCESS);
        }
        Benchmark::Cluster { common, args } => (cluster::run(args, common.quick)?, common.json),
        Benchmark::ClusterChild { task } => {
            cluster::child(task)?;
            return Ok(ExitCode::SUCCESS);
        }
        Benchmark::History { common, args } => (history::run(args, common.quick)?, common.json),
        Benchmark::HistoryChild { task } => {
            history::child(task).map_err(|error| error as Box<dyn Error>)?;
            return Ok(ExitCode::SUCCESS);
        }
        Benchmark::Import { common, args } => (import::run(args, common.quick)?, common.json),
        Benchmark::ImportChild { task } => {
            import::child(task).map_err(|error| error as Box<dyn Error>)?;
            return Ok(ExitCode::SUCCESS);
        }
        Benchmark::Kv { common, args } => (state::run_entries(args, common.quick)?, common.json),
        Benchmark::Layered { common, args } => {
            (state::run_layered(args, common.quick)?, common.json)
        }
        Benchmark::Model { common, args } => (model::run(args)?, common.json),
        Benchmark::Rpc { common, args } => (rpc::run(args, common.quick)?, common.json),
        Benchmark::Scale { common, args } => (scale::run(args, common.quick)?, common.json),
        Benchmark::ScaleChild { task } => {
            scale::child(task).map_err(|error| error as Box<dyn Error>)?;
            return Ok(ExitCode::SUCCESS);
        }
        Benchmark::Shard { common, args } => (shard::run(args, common.quick)?, common.json),
        Benchmark::State { common, args } => (state::run(args, common.quick)?, common.json),
        Benchmark::StateChild { task } => {
            state::child(task).map_err(|error| error as Box<dyn Error>)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    report.print(json);
    Ok(match report.errors.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn main() -> ExitCode {
    allocator::keep_little_memory();
    match run(&Cli::parse().benchmark) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
