//! Arguments of the import command.

use super::{
    super::numbers::count_in,
    database::WriteArgs,
    history::{HistoryMode, NodesArgs},
};
use cambium::{chain::READ_AHEAD_DEFAULT, execution::ExecutorKind};
use clap::{Args as ClapArgs, ValueEnum};
use std::{num::NonZeroUsize, path::PathBuf};

pub(crate) const IMPORT_HELP: &str = "\
The format of a file is recognized by its content: concatenated block RLP as `geth export` writes
it, the same gzipped, or era1. Blocks that are in the database already are skipped, so an
interrupted import is resumed by running it again. Ctrl-C and power loss are safe at any moment:
the database opens at a committed block.

With --json: blocks, transactions, gas, seconds, skipped, executor (the one that ran, and why), listed
(blocks with access lists), applied (blocks not executed), parallel
(transactions executed in parallel), again (transactions executed again in sequence), head_number,
head_hash, state_root, timings (seconds spent in each stage; stages run concurrently), counters,
history_error, index_error and preimages_error (why what follows the chain does not follow it any
more; the exit code is 1 then).";

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// Files of blocks, in order. Of a directory, its files of blocks in the order of their names
    #[cfg_attr(
        feature = "cluster",
        arg(required_unless_present = "follow", value_name = "FILE")
    )]
    #[cfg_attr(not(feature = "cluster"), arg(required = true, value_name = "FILE"))]
    pub(crate) files: Vec<PathBuf>,
    /// Create the database from this genesis file if there is none; otherwise check that the
    /// database is of the same chain
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: Option<PathBuf>,
    /// Of --genesis: keep the addresses and the keys of slots behind the hashes in the state, as
    /// `cambium init --preimages` does
    #[arg(long, requires = "genesis")]
    pub(crate) preimages: bool,
    /// Of --genesis: make a partial database, as `cambium init --storage-of` does
    #[arg(long, value_name = "FILE", requires = "genesis")]
    pub(crate) storage_of: Option<PathBuf>,
    /// File of the blocks' state updates, as `cambium export --updates` writes it. They are applied, the blocks are not
    /// executed, and only state roots are verified. A partial database imports no block without
    #[arg(long, value_name = "FILE", conflicts_with_all = ["access_lists", "apply"])]
    pub(crate) updates: Option<PathBuf>,
    /// File of the blocks' access lists, which are verified as well
    #[arg(long, value_name = "FILE")]
    pub(crate) access_lists: Option<PathBuf>,
    /// How transactions are executed; the results are the same
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) executor: ExecutorName,
    /// Number of threads that transactions run on [default: number of processors]
    #[arg(long, value_name = "N", value_parser = count_in::<NonZeroUsize>(1..=THREADS_MAX))]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Execute up to this many consecutive blocks at once, if they come with access lists, from
    /// Cancun on: for catching up, on two threads or more
    #[arg(long, value_name = "N", default_value = "1", value_parser = count_in::<NonZeroUsize>(1..=THREADS_MAX))]
    pub(crate) batch: NonZeroUsize,
    /// Do not execute blocks that come with access lists, from Cancun on: apply the changes in the
    /// lists, and verify only state roots
    #[arg(long)]
    pub(crate) apply: bool,
    /// Number of reads in flight for the next blocks, while earlier ones are executed; 0 for none
    #[arg(long, value_name = "N", default_value_t = READ_AHEAD_DEFAULT, value_parser = count_in::<usize>(0..=READ_AHEAD_MAX))]
    pub(crate) read_ahead: usize,
    /// Keep old states: none, flat or archive, or flat=BLOCKS or archive=BLOCKS for the newest of them
    /// alone, which the history remembers. A history that is not there yet begins at the head, and
    /// `cambium history build` adds older blocks [default: go on with the history that is there]
    ///
    /// none: none but those that the block log still has, which keeps 1,024 blocks unless --keep-blocks
    /// says how many. A history that is there is left behind.
    ///
    /// flat: the values of accounts and slots at any block.
    ///
    /// archive: these, and the nodes of the tries, so that any block's state is proved.
    #[arg(long, value_name = "KIND")]
    pub(crate) history: Option<HistoryMode>,
    #[command(flatten)]
    pub(crate) nodes: NodesArgs,
    /// Keep an index of blocks, transactions and logs, and the receipts: for `tx`, `logs` and `receipts`
    /// [default: go on with the index that is there]
    #[arg(long)]
    pub(crate) index: bool,
    /// Serve the chain over JSON-RPC while the import runs, as `cambium serve` does: http://127.0.0.1:8545 unless an address or a port is
    /// given
    #[cfg(feature = "serve")]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "8545", value_parser = super::network::parse_listen)]
    pub(crate) serve: Option<std::net::SocketAddr>,
    #[cfg(any(feature = "cluster", feature = "serve"))]
    #[command(flatten)]
    pub(crate) metrics: super::network::MetricsArgs,
    #[command(flatten)]
    pub(crate) db: WriteArgs,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    pub(crate) following: super::cluster::FollowArgs,
}

/// Executors by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExecutorName {
    /// As suits each block: `parallel` if it comes with an access list; otherwise, with 4 threads or
    /// more, `optimistic` or `sequential`, whichever was faster; and `sequential` with fewer
    Auto,
    /// One transaction after another
    Sequential,
    /// In parallel by access lists, from Cancun on: all keys of a list are read in one batch first
    Batched,
    /// In parallel by access lists, from Cancun on: keys that change are read ahead, other keys
    /// when a transaction reads them
    Parallel,
    /// In parallel without access lists, from Byzantium on: transactions run speculatively, and
    /// again if they have read outdated values
    Optimistic,
}

impl ExecutorName {
    /// Whether it executes by access lists alone.
    pub(crate) const fn needs_lists(self) -> bool {
        matches!(self, Self::Batched | Self::Parallel)
    }
}

impl From<ExecutorName> for ExecutorKind {
    fn from(name: ExecutorName) -> Self {
        match name {
            ExecutorName::Auto => Self::Auto,
            ExecutorName::Sequential => Self::Sequential,
            ExecutorName::Batched => Self::Batched,
            ExecutorName::Parallel => Self::Parallel,
            ExecutorName::Optimistic => Self::Optimistic,
        }
    }
}

/// Maximum number of threads, which any system can be expected to provide.
const THREADS_MAX: u64 = 1024;

/// Maximum number of reads in flight: more than any device gains from.
const READ_AHEAD_MAX: u64 = 65_536;
