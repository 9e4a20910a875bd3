//! The command line program: runs one command and prints one report or one failure.
//!
//! A command returns a [`Report`](output::Report), which is printed to standard output as text or,
//! with `--json`, as one JSON object. Notes, progress and errors go to standard error. [`error`]
//! defines the exit codes.

mod numbers;
mod error;
mod signals;
mod output;
mod files;
mod config;
mod block_ref;
mod args;
mod rpc;
mod about;
mod log;
mod elsewhere;
mod figures;
mod open;
mod memory;
mod node;
mod followed;
mod history;
mod preimages;
mod index;
mod storage_of;
mod chain;
mod bal;
mod blocks;
mod proved;
mod layered_proof;
mod proof;
mod range;
mod inspect;
mod db;
mod workload;
#[cfg(any(feature = "cluster", feature = "serve"))]
mod beside;
#[cfg(feature = "cluster")]
mod cluster;
mod dump;
#[cfg(feature = "serve")]
mod serve;
#[cfg(any(feature = "cluster", feature = "serve"))]
mod watched;
mod import;
mod kv;
mod demo;

use args::{Args, Command, history::HistoryCommand, index::IndexCommand, maintenance::DbCommand};
use clap::{
    FromArgMatches,
    error::{ContextKind, ErrorKind},
};
use config::Config;
use error::{Exit, Failure};
use output::{Output, Report};
use serde_json::json;
use std::{env, ffi::OsString, process::ExitCode};

pub(crate) fn main() -> ExitCode {
    signals::catch_size_limit();
    let arguments: Vec<_> = env::args_os().collect();
    // Until the arguments are known.
    let is_json = arguments.iter().any(|argument| argument == "--json");
    let out = Output::new(is_json, false);
    let config = match Config::read(&arguments, &Args::commands()) {
        Ok(config) => config,
        Err(failure) => return out.print_failure(&failure).into(),
    };
    let parsed = config
        .apply(Args::commands())
        .try_get_matches_from(&arguments);
    let args = match parsed.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(mut error) => {
            let words = arguments
                .iter()
                .map(|argument| argument.to_string_lossy().into_owned());
            elsewhere::hint(&mut error, &words.collect::<Vec<_>>());
            return print_usage(&error, &arguments, &out).into();
        }
    };
    let out = Output::new(args.json, args.quiet);
    let _log = match log::begin(&args) {
        Ok(log) => log,
        Err(failure) => return out.print_failure(&failure).into(),
    };
    let is_account = args.command.gives_account();
    let done = run(&args.command, &config, &out);
    let done = done.and_then(|report| out.print(&report, is_account));
    let code = match done {
        Ok(code) => code,
        Err(failure) => out.print_failure(&failure),
    };
    code.into()
}

/// Prints help, the version, or what is wrong with the arguments.
fn print_usage(error: &clap::Error, arguments: &[OsString], out: &Output) -> Exit {
    if error.kind() == ErrorKind::DisplayVersion && out.is_json() {
        return out.print(&about::version(), false).unwrap_or(Exit::Done);
    }
    // Ignored: there is no way to report that standard error is closed.
    let _ = error.print();
    if error.exit_code() == 0 {
        return Exit::Done;
    }
    if error.kind() == ErrorKind::MissingRequiredArgument
        && error.to_string().contains("--datadir <DIR>\n")
    {
        out.note(
            "CAMBIUM_DATADIR, or datadir in a configuration file, stands for --datadir as well",
        );
    }
    if let Some((name, value)) = from_environment(error, arguments) {
        out.note(format_args!("{name}={value} is set in the environment"));
    }
    if out.is_json() {
        let text = error.to_string();
        let text = text.split("\n\n").next().unwrap_or_default();
        let text = text.strip_prefix("error: ").unwrap_or(text);
        let json = json!({ "error": text, "exit_code": Exit::WrongUsage as u8 });
        // Ignored: the exit code reports the failure.
        let _ = out.print(&Report::new(String::new(), json), false);
    }
    Exit::WrongUsage
}

/// The variable of the environment that a wrong value comes from, if it does not come from the
/// arguments.
fn from_environment(error: &clap::Error, arguments: &[OsString]) -> Option<(&'static str, String)> {
    let option = error.get(ContextKind::InvalidArg)?.to_string();
    let variables = [
        ("--datadir", "CAMBIUM_DATADIR"),
        ("--log", "CAMBIUM_LOG"),
        ("--log-format", "CAMBIUM_LOG_FORMAT"),
        ("--config", "CAMBIUM_CONFIG"),
        ("--otlp", "OTEL_EXPORTER_OTLP_ENDPOINT"),
    ];
    let (name, variable) = variables
        .into_iter()
        .find(|(name, _)| option.split(' ').next() == Some(name))?;
    let is_given = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        let is_long = argument
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
        is_long || name == "--datadir" && argument.starts_with("-d")
    };
    let value = env::var(variable).ok()?;
    (!arguments.iter().any(is_given)).then_some((variable, value))
}

fn run(command: &Command, config: &Config, out: &Output) -> Result<Report, Failure> {
    match command {
        Command::Init(args) => chain::init(args, out),
        Command::Import(args) => import::import(args, out),
        Command::Export(args) => chain::export(args, out),
        Command::Unwind(args) => chain::unwind(args, out),
        Command::SetHead(args) => chain::set_head(args, out),
        Command::Get(args) if args.storage => inspect::storage(args, out),
        Command::Get(args) => chain::get(args, out),
        Command::Block(args) => blocks::block(args, out),
        Command::Tx(args) => index::tx(args, out),
        Command::Logs(args) => index::logs(args, out),
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
        Command::Db(DbCommand::Inspect(args)) => inspect::inspect(args, out),
        Command::Db(DbCommand::Dump(args)) => dump::dump(args, out),
        Command::Db(DbCommand::Load(args)) => dump::load(args, out),
        Command::Db(DbCommand::Extend(args)) => dump::extend(args, out),
        Command::History(HistoryCommand::Build(args)) => history::build(args, out),
        Command::Index(IndexCommand::Build(args)) => index::build(args, out),
        Command::Index(IndexCommand::Check(args)) => index::check(args, out),
        Command::Kv(command) => kv::run(command, out),
        Command::Workload(args) => workload::workload(args, out),
        Command::Demo(args) => demo::demo(args, out),
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::serve(args, out),
        #[cfg(feature = "cluster")]
        Command::Shard(args) => cluster::shard(args, out),
        #[cfg(feature = "cluster")]
        Command::Builder(args) => cluster::builder(args, out),
        #[cfg(feature = "cluster")]
        Command::Client(args) => cluster::client(args, out),
        #[cfg(feature = "cluster")]
        Command::Validator(args) => cluster::validator(args, out),
        #[cfg(feature = "cluster")]
        Command::Cluster(command) => cluster::run(command, out),
        Command::Config => Ok(about::config(config)),
        Command::Completions(args) => Ok(about::completions(args)),
        Command::Man(args) => about::man(args),
    }
}
