//! The command line program: runs one command and prints one report or one failure.
//!
//! A command returns a [`Report`](output::Report), which is printed to standard output as text or,
//! with `--json`, as one JSON object. Notes, progress and errors go to standard error. [`error`]
//! defines the exit codes.

mod sizes;
mod error;
mod block_ref;
mod signals;
mod args;
mod output;
mod figures;
mod open;
mod history;
mod chain;
mod bal;
mod blocks;
mod proved;
mod layered_proof;
mod proof;
mod range;
mod import;
mod db;
mod workload;
mod kv;
mod demo;

use args::{Args, Command, history::HistoryCommand, maintenance::DbCommand};
use clap::Parser;
use error::Failure;
use output::{Output, Report};
use std::{io::IsTerminal, process::ExitCode};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

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
    let out = Output::new(args.json, args.quiet);
    let done = log_to_standard_error()
        .and_then(|()| run(&args.command, &out))
        .and_then(|report| out.print(&report));
    let code = match done {
        Ok(code) => code,
        Err(failure) => out.print_failure(&failure),
    };
    code.into()
}

/// Prints what the engine does, as `CAMBIUM_LOG` asks for.
fn log_to_standard_error() -> Result<(), Failure> {
    let asked = std::env::var_os("CAMBIUM_LOG").unwrap_or_default();
    let asked = asked.to_string_lossy();
    // Anything else would be taken for the name of a module.
    let is_level = |text: &str| text.parse::<LevelFilter>().is_ok();
    let is_known = |part: &str| match part.split_once('=') {
        Some((_, level)) => is_level(level),
        None => is_level(part),
    };
    let wrong = || Failure::BadLevel(asked.clone().into_owned());
    if !asked.is_empty() && !asked.split(',').map(str::trim).all(is_known) {
        return Err(wrong());
    }
    let filter = match asked.is_empty() {
        true => EnvFilter::new("warn"),
        false => EnvFilter::try_new(&asked).map_err(|_| wrong())?,
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

fn run(command: &Command, out: &Output) -> Result<Report, Failure> {
    match command {
        Command::Init(args) => chain::init(args, out),
        Command::Import(args) => import::import(args, out),
        Command::Export(args) => chain::export(args, out),
        Command::Unwind(args) => chain::unwind(args, out),
        Command::SetHead(args) => chain::set_head(args, out),
        Command::Get(args) => chain::get(args, out),
        Command::Block(args) => blocks::block(args, out),
        Command::Receipts(args) => blocks::receipts(args, out),
        Command::Diff(args) => blocks::diff(args, out),
        Command::Bal(args) => bal::bal(args, out),
        Command::Prove(args) => proof::prove(args, out),
        Command::Verify(args) => proof::verify(args),
        Command::ProveRange(args) => range::prove(args, out),
        Command::VerifyRange(args) => range::verify(args),
        Command::Witness(args) => proof::witness(args, out),
        Command::Stateless(args) => proof::stateless(args),
        Command::Db(DbCommand::Stats(args)) => db::stats(args, out),
        Command::Db(DbCommand::Branches(args)) => chain::branches(args, out),
        Command::Db(DbCommand::Check(args)) => db::check(args, out),
        Command::Db(DbCommand::Backup(args)) => db::backup(args, out),
        Command::Db(DbCommand::Repair(args)) => db::repair(args, out),
        Command::History(HistoryCommand::Build(args)) => history::build(args, out),
        Command::Kv(command) => kv::run(command, out),
        Command::Workload(args) => workload::workload(args, out),
        Command::Demo(args) => demo::demo(args, out),
    }
}
