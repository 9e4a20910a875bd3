//! The command line as a whole: the commands, and what holds for all of them.

use super::{
    accounts::{BAL_HELP, BalArgs, GetArgs},
    blocks::{BlockArgs, DIFF_HELP, DiffArgs, RECEIPTS_HELP, SET_HEAD_HELP, SetHeadArgs},
    chain::{ExportArgs, InitArgs, UnwindArgs},
    history::HistoryCommand,
    import::{IMPORT_HELP, ImportArgs},
    kv::{KV_HELP, KvCommand},
    maintenance::DbCommand,
    proof::{
        PROVE_HELP, PROVE_RANGE_HELP, ProveArgs, ProveRangeArgs, StatelessArgs, VerifyArgs,
        WitnessArgs,
    },
    workload::{DemoArgs, WORKLOAD_HELP, WorkloadArgs},
};
use clap::{Parser, Subcommand};

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  failed: input or output, a lock, permissions, a full disk, another chain
  2  wrong usage
  3  a block, or the file that contains it, is invalid
  4  the database is damaged
  5  a proof or a witness does not hold

Environment:
  CAMBIUM_LOG  log level for standard error: error, warn (default), info, debug, trace

To get started: cambium demo";

/// A state engine for EVM blockchains: imports chains, verifies every root, and proves state
#[derive(Debug, Parser)]
#[command(name = "cambium", version, after_help = AFTER_HELP, propagate_version = true)]
pub(crate) struct Args {
    /// Print exactly one JSON object on standard output, for machines
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print neither progress nor notes
    #[arg(long, short = 'q', global = true)]
    pub(crate) quiet: bool,
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
    /// Print the receipts of a block's transactions, which is executed again for them
    #[command(after_help = RECEIPTS_HELP)]
    Receipts(BlockArgs),
    /// Print what changed between two blocks: accounts and slots by their hashed keys
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
    /// Store values under keys of 32 bytes, with a root that commits to all of them
    #[command(subcommand, after_help = KV_HELP)]
    Kv(KvCommand),
    /// Generate a chain of payments, token transfers, swaps and slot reads, for any client
    #[command(after_help = WORKLOAD_HELP)]
    Workload(WorkloadArgs),
    /// Generate a small chain, import it, and prove and re-execute parts of it
    Demo(DemoArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_contradict_each_other_nowhere() {
        Args::command().debug_assert();
    }
}
