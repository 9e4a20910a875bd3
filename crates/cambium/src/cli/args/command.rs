//! The command line as a whole: the commands, and the options common to all of them.

#[cfg(feature = "cluster")]
use super::cluster::{
    BUILDER_HELP, BuilderProcessArgs, CLIENT_HELP, CLUSTER_HELP, ClientArgs, ClusterCommand,
    SHARD_HELP, ShardArgs, VALIDATOR_HELP, ValidatorArgs,
};
#[cfg(feature = "serve")]
use super::serve::{SERVE_HELP, ServeArgs};
use super::{
    super::{config::CONFIG_HELP, numbers::NUMBERS_HELP},
    about::{COMPLETIONS_HELP, CompletionsArgs, MAN_HELP, ManArgs},
    accounts::{BAL_HELP, BalArgs, GetArgs},
    blocks::{BlockArgs, DIFF_HELP, DiffArgs, RECEIPTS_HELP, SET_HEAD_HELP, SetHeadArgs},
    chain::{ExportArgs, InitArgs, UnwindArgs},
    history::HistoryCommand,
    import::{IMPORT_HELP, ImportArgs},
    index::{IndexCommand, LOGS_HELP, LogsArgs, TX_HELP, TxArgs},
    kv::{KV_HELP, KvCommand},
    maintenance::DbCommand,
    proof::{
        PROVE_HELP, PROVE_RANGE_HELP, ProveArgs, ProveRangeArgs, StatelessArgs, VerifyArgs,
        WitnessArgs,
    },
    workload::{DemoArgs, WORKLOAD_HELP, WorkloadArgs},
};
use cambium::db::FORMATS;
use clap::{CommandFactory, Parser, Subcommand};
use std::path::PathBuf;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// Heading of the options that all commands have.
const ALL: &str = "Options of all commands";

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  failed: input or output, a lock, permissions, a full disk, another chain; or done, but for an
     index, a history or preimages
  2  wrong usage; an import of a file of another kind, such as JSON
  3  a block, or the file that contains it, is invalid
  4  the database is damaged
  5  a proof or a witness does not hold
  130, 143  ended by Ctrl-C or SIGTERM, which servers end with 0: an import after a whole block, and without the files that
            were not whole

JSON: with --json a command prints exactly one object. What belongs to a chain (block numbers, gas,
nonces, balances, values of slots, hashes) is hexadecimal, as in Ethereum's JSON-RPC. Counts, bytes,
seconds and rates are numbers. A failure is an object with error and exit_code.

Files: - stands for standard input or output, wherever a command reads or writes a file.";

const ENVIRONMENT: &str = "\
Environment:
  CAMBIUM_DATADIR  directory of the database, where --datadir is not given
  CAMBIUM_CONFIG   configuration file, where --config is not given
  CAMBIUM_LOG      levels of the log, where --log is not given
  CAMBIUM_LOG_FORMAT  text or json, where --log-format is not given

To get started: cambium demo";

fn after_help() -> String {
    [NUMBERS_HELP, AFTER_HELP, CONFIG_HELP, ENVIRONMENT].join("\n\n")
}

/// Commit, features and formats on disk, after the number of the version.
fn long_version() -> String {
    let formats = FORMATS.map(|(kind, number)| format!("{kind} {number}"));
    let features = match env!("CAMBIUM_FEATURES") {
        "" => "none beside the default ones",
        features => features,
    };
    format!(
        "{}\ncommit    {}\nbuilt     {}, {}\nfeatures  {features}\nformats   {}",
        env!("CARGO_PKG_VERSION"),
        option_env!("CAMBIUM_COMMIT").unwrap_or("unknown"),
        env!("CAMBIUM_PROFILE"),
        env!("CAMBIUM_TARGET"),
        formats.join(", ")
    )
}

/// A state engine for EVM blockchains: imports chains, verifies every root, and proves state
#[derive(Debug, Parser)]
#[command(name = "cambium", version, long_version = long_version(), after_help = after_help(),
          propagate_version = true)]
pub(crate) struct Args {
    /// Print exactly one JSON object on standard output, for machines
    #[arg(long, global = true, help_heading = ALL)]
    pub(crate) json: bool,
    /// Print what was asked for and errors alone: no progress, notes and accounts of what was done
    #[arg(long, short = 'q', global = true, help_heading = ALL)]
    pub(crate) quiet: bool,
    /// Print what the engine does to standard error: error, warn, info, debug or trace, for all or
    /// for single modules (warn,cambium_state=debug)
    #[arg(long, value_name = "LEVELS", global = true, env = "CAMBIUM_LOG", default_value = "warn",
          value_parser = parse_levels, help_heading = ALL)]
    pub(crate) log: Levels,
    /// How --log prints: as text, or as one JSON object a line with time, level, module, fields and spans
    #[arg(long, value_enum, value_name = "FORMAT", global = true, env = "CAMBIUM_LOG_FORMAT",
          default_value = "text", help_heading = ALL)]
    pub(crate) log_format: LogFormat,
    /// Send spans to this collector of OpenTelemetry by OTLP over HTTP, without encryption, such as
    /// http://127.0.0.1:4318. OTEL_TRACES_SAMPLER and the other variables of OpenTelemetry say which and how
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL", global = true, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = parse_collector, help_heading = ALL)]
    pub(crate) otlp: Option<String>,
    /// File of values of options, in TOML
    #[arg(long, value_name = "FILE", global = true, env = "CAMBIUM_CONFIG", help_heading = ALL)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create a database from a genesis file
    Init(InitArgs),
    /// Import blocks from files: execute them and verify them against their headers
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Write blocks to a file that `import` and other clients can read
    Export(ExportArgs),
    /// Move the head back to an earlier block
    Unwind(UnwindArgs),
    /// Make a block the head, on any branch, and say which blocks are safe and finalized
    #[command(after_help = SET_HEAD_HELP)]
    SetHead(SetHeadArgs),
    /// Print an account, or one of its slots
    Get(GetArgs),
    /// Print a block: its header, transactions, ommers and withdrawals
    #[command(
        after_help = "With --json: the block as eth_getBlockByHash gives it with whole transactions, and `canonical`."
    )]
    Block(BlockArgs),
    /// Print a transaction and its receipt, by the transaction's hash
    #[command(after_help = TX_HELP)]
    Tx(TxArgs),
    /// Print the logs of given contracts and topics
    #[command(after_help = LOGS_HELP)]
    Logs(LogsArgs),
    /// Print the receipts of a block's transactions: from the index, or by executing the block again
    #[command(after_help = RECEIPTS_HELP)]
    Receipts(BlockArgs),
    /// Print what changed between two blocks: accounts and slots, by their hashes and, if known, what is behind
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Print a block's access list: the keys that it touches, and the changes of each step
    #[command(after_help = BAL_HELP)]
    Bal(BalArgs),
    /// Print a proof of an account and its slots, in the format of `eth_getProof`
    #[command(after_help = PROVE_HELP)]
    Prove(ProveArgs),
    /// Verify a proof against a state root, without a database
    Verify(VerifyArgs),
    /// Print accounts, or slots of one, in the order of their paths, and prove that none is missing
    #[command(after_help = PROVE_RANGE_HELP)]
    ProveRange(ProveRangeArgs),
    /// Verify a proof of a range against a state root, without a database
    VerifyRange(VerifyArgs),
    /// Print a block's witness, which is enough to execute the block without a database
    Witness(WitnessArgs),
    /// Execute a block from its witness, without a database
    Stateless(StatelessArgs),
    /// Inspect, check, back up or repair the database
    #[command(subcommand)]
    Db(DbCommand),
    /// Make old states readable: accounts and slots at any block
    #[command(subcommand)]
    History(HistoryCommand),
    /// Make blocks, transactions, receipts and logs findable by hash, address and topic
    #[command(subcommand)]
    Index(IndexCommand),
    /// Store values under keys of 32 bytes, with a root that commits to all of them
    #[command(subcommand, after_help = KV_HELP)]
    Kv(KvCommand),
    #[cfg(feature = "serve")]
    /// Serve the chain over JSON-RPC: blocks, states, proofs, transactions, logs, calls
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArgs),
    #[cfg(feature = "cluster")]
    /// Serve a part of the state of a cluster from memory, with proofs
    #[command(after_help = SHARD_HELP)]
    Shard(ShardArgs),
    #[cfg(feature = "cluster")]
    /// Build blocks of submissions on the state of a cluster, and publish them
    #[command(after_help = BUILDER_HELP)]
    Builder(BuilderProcessArgs),
    #[cfg(feature = "cluster")]
    /// Run transactions on the state of a cluster, and submit them with the nodes that they read
    #[command(after_help = CLIENT_HELP)]
    Client(ClientArgs),
    #[cfg(feature = "cluster")]
    /// Execute the blocks of a cluster's builders again, without any state
    #[command(after_help = VALIDATOR_HELP)]
    Validator(ValidatorArgs),
    #[cfg(feature = "cluster")]
    /// Make, feed, look at and read a cluster: the state in the memory of several machines
    #[command(subcommand, after_help = CLUSTER_HELP)]
    Cluster(ClusterCommand),
    /// Generate a chain of payments, token transfers, swaps and slot reads, for any client
    #[command(after_help = WORKLOAD_HELP)]
    Workload(WorkloadArgs),
    /// Generate a small chain, import it, and prove and re-execute parts of it
    Demo(DemoArgs),
    /// Print the values of options that come from the configuration file and the environment
    Config,
    /// Print the completions of a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands
    #[command(after_help = MAN_HELP)]
    Man(ManArgs),
}

impl Command {
    /// Whether the command's report is an account of its actions, and not the requested output. `--quiet` prints no
    /// accounts.
    pub(crate) const fn gives_account(&self) -> bool {
        match self {
            Self::Init(_)
            | Self::Import(_)
            | Self::Export(_)
            | Self::Unwind(_)
            | Self::SetHead(_)
            | Self::History(HistoryCommand::Build(_))
            | Self::Index(IndexCommand::Build(_))
            | Self::Workload(_) => true,
            #[cfg(feature = "serve")]
            Self::Serve(_) => true,
            Self::Db(command) => match command {
                DbCommand::Backup(_)
                | DbCommand::Load(_)
                | DbCommand::Extend(_)
                | DbCommand::Dump(_) => true,
                DbCommand::Repair(args) => !args.dry_run,
                DbCommand::Stats(_)
                | DbCommand::Branches(_)
                | DbCommand::Check(_)
                | DbCommand::Inspect(_) => false,
            },
            Self::Kv(command) => match command {
                KvCommand::Init(_)
                | KvCommand::Put(_)
                | KvCommand::Delete(_)
                | KvCommand::Rollback(_)
                | KvCommand::Load(_) => true,
                KvCommand::Get(_)
                | KvCommand::List(_)
                | KvCommand::Prove(_)
                | KvCommand::Verify(_)
                | KvCommand::Root(_) => false,
            },
            Self::Get(_)
            | Self::Block(_)
            | Self::Tx(_)
            | Self::Logs(_)
            | Self::Receipts(_)
            | Self::Diff(_)
            | Self::Bal(_)
            | Self::Prove(_)
            | Self::Verify(_)
            | Self::ProveRange(_)
            | Self::VerifyRange(_)
            | Self::Witness(_)
            | Self::Stateless(_)
            | Self::Index(IndexCommand::Check(_))
            | Self::Demo(_)
            | Self::Config
            | Self::Completions(_) => false,
            #[cfg(feature = "cluster")]
            Self::Shard(_)
            | Self::Builder(_)
            | Self::Client(_)
            | Self::Validator(_)
            | Self::Cluster(_) => false,
            Self::Man(args) => args.out.is_some(),
        }
    }
}

impl Args {
    /// The command line. An argument that looks like a negative number is a value, so that its option reports the
    /// allowed range. Paragraphs of help texts are one line each, for terminals of any width.
    pub(crate) fn commands() -> clap::Command {
        fn with_numbers(command: clap::Command) -> clap::Command {
            let help = command
                .get_after_help()
                .map(|text| unwrapped(&text.to_string()));
            let command = match help {
                Some(help) => command.after_help(help),
                None => command,
            };
            command
                .mut_args(|option| match option.get_action().takes_values() {
                    true => option.allow_negative_numbers(true),
                    false => option,
                })
                .mut_subcommands(with_numbers)
        }
        with_numbers(Self::command())
    }

    /// Version, commit, features and formats, a line for each.
    pub(crate) fn version() -> String {
        long_version()
    }
}

/// Joins the lines of paragraphs. Indented lines, and those after a colon, stay as they are.
fn unwrapped(text: &str) -> String {
    let mut joined = String::with_capacity(text.len());
    let mut last = "";
    for (index, line) in text.lines().enumerate() {
        let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
        let goes_on = is_text(line) && is_text(last) && !last.ends_with(':');
        if index > 0 {
            joined.push(if goes_on { ' ' } else { '\n' });
        }
        joined.push_str(line);
        last = line;
    }
    joined
}

/// Forms of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// Levels of the log that the command line names.
pub(crate) type Levels = String;

/// Checks levels of the log. An empty text stands for the default.
fn parse_levels(text: &str) -> Result<Levels, String> {
    // Anything else would be taken for the name of a module.
    let is_level = |text: &str| text.parse::<LevelFilter>().is_ok();
    let is_known = |part: &str| match part.trim().split_once('=') {
        Some((_, level)) => is_level(level),
        None => is_level(part.trim()),
    };
    match text.is_empty() || text.split(',').all(is_known) && EnvFilter::try_new(text).is_ok() {
        true => Ok(text.to_owned()),
        false => Err("the levels are off, error, warn, info, debug and trace".to_owned()),
    }
}

/// Checks the address of a collector. An empty text stands for none.
#[cfg(feature = "otlp")]
fn parse_collector(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("http://").unwrap_or_default();
    match text.is_empty() || !host.is_empty() {
        true => Ok(text.to_owned()),
        false => Err(
            "it is an address such as http://127.0.0.1:4318: spans are sent over HTTP alone"
                .to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_contradict_each_other_nowhere() {
        Args::commands().debug_assert();
    }

    #[test]
    fn paragraphs_of_help_are_wrapped_for_the_terminal_alone() {
        let text = "One\ntwo.\n\nThree:\n  four\n  five\nsix:\nseven\neight";
        let expected = "One two.\n\nThree:\n  four\n  five\nsix:\nseven eight";
        assert_eq!(unwrapped(text), expected);
        let narrow = Args::commands().term_width(60).render_long_help();
        let narrow = narrow.to_string();
        let lines = narrow.lines().filter(|line| line.len() > 60);
        assert_eq!(lines.collect::<Vec<_>>(), Vec::<&str>::new());
        // Whole but for the last line of each paragraph.
        let words = "A failure is an object with error and exit_code.";
        assert!(
            narrow
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .contains(words)
        );
    }
}
