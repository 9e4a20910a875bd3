//! Benchmarks: see `./bench` in the repository's root.

mod process;
mod report;
mod cgroup;
mod system;
mod import;
mod state;
mod bal;

use clap::{Args, Parser, Subcommand};
use std::{error::Error, process::ExitCode};

/// As in the program, and for all stores alike.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of Cambium")]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Executors beside each other, with and without access lists.
    Bal {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: bal::BalArgs,
    },
    /// One execution of `bal` over a store, in a process of its own.
    #[command(hide = true)]
    BalChild {
        /// What it is to do, in JSON.
        task: String,
    },
    /// Importing a generated chain and a real one.
    Import {
        #[command(flatten)]
        common: Common,
        /// There are none to run beside it.
        #[arg(long, default_value = "none", value_parser = ["none"])]
        peers: String,
    },
    /// Transfers over a large state, read and made durable, beside other stores.
    State {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        args: state::StateArgs,
    },
    /// One store of `state`, in a process of its own.
    #[command(hide = true)]
    StateChild {
        /// What it is to do, in JSON.
        task: String,
    },
}

#[derive(Clone, Copy, Debug, Args)]
struct Common {
    /// Smaller: under two minutes once built.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object.
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
        Benchmark::Import { common, .. } => (import::run(common.quick)?, common.json),
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
    match run(&Cli::parse().benchmark) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
