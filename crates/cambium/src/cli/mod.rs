//! The command line program: runs one command and prints one report or one failure.
//!
//! A command returns a [`Report`](output::Report), which is printed to standard output as text or,
//! with `--json`, as one JSON object. Notes, progress and errors go to standard error. [`error`]
//! defines the exit codes.

mod sizes;
mod db_args;
mod kv_args;
mod args;
mod error;
mod output;
mod figures;
mod open;
mod history;
mod chain;
mod bal;
mod proved;
mod layered_proof;
mod proof;
mod range;
mod import;
mod db;
mod workload;
mod kv;
mod demo;

use args::{Args, Command, DbCommand, HistoryCommand};
use clap::Parser;
use error::Failure;
use output::{Output, Report};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

pub(crate) fn main() -> ExitCode {
    // clap prints help and usage errors; the latter exit with 2.
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            // Ignored: there is no way to report that standard error is closed.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let filter = EnvFilter::try_from_env("CAMBIUM_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let out = Output::new(args.json);
    let done = run(&args.command, &out).and_then(|report| out.print(&report));
    let code = match done {
        Ok(code) => code,
        Err(failure) => out.print_failure(&failure),
    };
    code.into()
}

fn run(command: &Command, out: &Output) -> Result<Report, Failure> {
    match command {
        Command::Init(args) => chain::init(args, out),
        Command::Import(args) => import::import(args, out),
        Command::Export(args) => chain::export(args, out),
        Command::Unwind(args) => chain::unwind(args, out),
        Command::Get(args) => chain::get(args, out),
        Command::Bal(args) => bal::bal(args, out),
        Command::Prove(args) => proof::prove(args, out),
        Command::Verify(args) => proof::verify(args),
        Command::ProveRange(args) => range::prove(args, out),
        Command::VerifyRange(args) => range::verify(args),
        Command::Witness(args) => proof::witness(args, out),
        Command::Stateless(args) => proof::stateless(args),
        Command::Db(DbCommand::Stats(args)) => db::stats(args, out),
        Command::Db(DbCommand::Check(args)) => db::check(args, out),
        Command::Db(DbCommand::Backup(args)) => db::backup(args, out),
        Command::Db(DbCommand::Repair(args)) => db::repair(args, out),
        Command::History(HistoryCommand::Build(args)) => history::build(args, out),
        Command::Kv(command) => kv::run(command, out),
        Command::Workload(args) => workload::workload(args, out),
        Command::Demo(args) => demo::demo(args, out),
    }
}
