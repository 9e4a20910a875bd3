//! Benchmarks: see `./bench` in the repository's root.

mod import;
mod report;

use clap::{Parser, ValueEnum};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of Cambium")]
struct Args {
    /// Which benchmark.
    name: Benchmark,
    /// Smaller: under two minutes once built.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Peers to run beside it, separated by commas, or none. `import` has none.
    #[arg(long, default_value = "none", value_parser = ["none"])]
    peers: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Benchmark {
    /// Importing a generated chain and a real one.
    Import,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let report = match args.name {
        Benchmark::Import => import::run(args.quick),
    };
    match report {
        Ok(report) => {
            report.print(args.json);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
