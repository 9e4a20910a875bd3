//! Command line arguments, with their help texts.

use super::{
    block_args::{BlockArgs, DIFF_HELP, DiffArgs, RECEIPTS_HELP, SET_HEAD_HELP, SetHeadArgs},
    block_ref::BlockRef,
    db_args::{DbArgs, WriteArgs},
    kv_args::{KV_HELP, KvCommand},
    sizes::parse_size,
};
use cambium::{
    Address, B256, ChainSpec, ExecutorKind, Fork, READ_AHEAD_DEFAULT, STATELESS_GAS_LIMIT_MAX,
    Spread, StateError, StorageKey, U256, WholeNodes, WitnessForm,
};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
use std::{
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
};

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

const PROVE_HELP: &str = "\
Under the commitment `layered` the JSON has instead: commitment, the roots of the three tries (delta,
intermediate, snapshot), address, account (null if it does not exist), storage (key and value of each
slot), and proof, the parts of the three tries. `cambium verify` reads both.";

const PROVE_RANGE_HELP: &str = "\
The path of an account is keccak256 of its address, that of a slot keccak256 of its 32 bytes: a
trie has no other order. The JSON has the block and its state root, the range that is proved
(address, first and last), its leaves, the RLP of the nodes that prove them, and the path of the
first leaf beyond the limit (next; null if there is none): go on with --from. `cambium
verify-range` needs address, first, last and nodes, and compares leaves if there are any.";

const WORKLOAD_HELP: &str = "\
--erc20, --swaps and --slot-reads are percentages. All other transactions are payments of ether.

  payment        21,000 gas: ether from a sender to any account
  ERC-20         34,000 gas, or 51,000 if the receiver holds none: tokens instead of ether
  swap           87,000 gas: one token for another, through a router, in a pool like Uniswap V2's
                 (constant product, fee of 0.3 %)
  slot read      all of --slot-read-gas: the worst case. A contract reads one of its --slots after
                 another, each found by hashing, 7,154 with 16M gas; all exist, all are cold

Spreads, for accounts and for pools:
  uniform        all equally likely
  zipf           number n is 1/n times as likely as the first
  hot:PCT        this percentage of receivers, or of swaps, is the first; senders are uniform
  distinct       each at most once in a block: its transactions are independent of each other

Examples:
  cambium workload --out erc20 --accounts 1000000 --holders 1000000 --erc20 100 --fresh 0 --gas 60M
  cambium workload --out independent --senders 4000 --spread distinct --transactions 500
  cambium workload --out swaps --senders 2000 --swaps 100 --pools 100 --pool-spread zipf
  cambium workload --out worst --slot-reads 100 --slots 10000000 --transactions 4

genesis.json contains the whole genesis state, about 150 bytes for each slot. With --access-lists,
and always for Amsterdam, access-lists.rlp contains the blocks' access lists for
`import --access-lists`. Only headers of Amsterdam contain the hashes of access lists.

With --json: genesis, chain, access_lists (null if not written), accounts, slots, blocks,
transactions, gas, head_number, head_hash.";

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
    #[command(after_help = "\
The format of a file is recognized by its content: concatenated block RLP as `geth export` writes
it, the same gzipped, or era1. Blocks that are in the database already are skipped, so an
interrupted import is resumed by running it again. Ctrl-C and power loss are safe at any moment:
the database opens at a committed block.

With --json: blocks, transactions, gas, seconds, skipped, executor (the one that ran, and why), listed
(blocks with access lists), applied (blocks not executed), parallel
(transactions executed in parallel), again (transactions executed again in sequence), head_number,
head_hash, state_root, timings (seconds spent in each stage; stages run concurrently) and counters.")]
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
    #[command(after_help = "\
From Amsterdam on the access list is stored with the block (EIP-7928). That of an earlier block is
computed by executing the block again. Index 0 is the step before the transactions, index 1 the
first transaction, and the last index the step after the transactions.

With --json: number, hash, kept, access_list_hash, counts, items, items_max (null before Amsterdam),
bytes (full, batched, parallel) and access_list, as eth_getBlockAccessList gives it.")]
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

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Print sizes and counts
    Stats(DbArgs),
    /// Print the head, the safe and the finalized block, and the branches that are not canonical
    Branches(DbArgs),
    /// Read everything, hash the state from its leaves, and compare it with the roots
    Check(CheckArgs),
    /// Copy the database and its history to a new directory, even while another process writes to them
    ///
    /// If both directories are on one file system, files that are no longer written to are hard
    /// linked, which takes no time and no space. The copy is opened to check that it is complete
    Backup(BackupArgs),
    /// Restore damaged files from the others, and print which blocks must be imported again
    Repair(RepairArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BackupArgs {
    /// Directory of the copy, which must be empty or not exist
    #[arg(value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Leave the history out: `cambium history build` makes it in the copy, as far as the log goes
    #[arg(long)]
    pub(crate) no_history: bool,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Change nothing: print what is damaged, what a repair would do, and what would be lost
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The commitment of a chain, which its state roots follow.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct CommitmentArgs {
    /// What state roots are: mpt, Ethereum's own, or layered, which are computed in memory from
    /// what recent blocks changed. An existing database knows its own
    #[arg(long, value_enum, default_value = "mpt")]
    pub(crate) commitment: CommitmentKind,
    /// Number of blocks of an interval of the layered commitment, a parameter of the chain
    #[arg(long, value_name = "BLOCKS", required_if_eq("commitment", "layered"))]
    pub(crate) merge_interval: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommitmentKind {
    Mpt,
    Layered,
}

impl CommitmentArgs {
    /// Blocks of an interval, if the commitment is `layered`.
    pub(crate) fn merge_interval(&self) -> Result<Option<u64>, StateError> {
        match (self.commitment, self.merge_interval) {
            (CommitmentKind::Layered, blocks) => Ok(blocks),
            (CommitmentKind::Mpt, None) => Ok(None),
            (CommitmentKind::Mpt, Some(_)) => {
                let what = "--merge-interval is for --commitment layered";
                Err(StateError::BadOptions(what.to_owned()))
            }
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// Genesis file, as geth, reth and hive write them
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: PathBuf,
    #[command(flatten)]
    pub(crate) commitment: CommitmentArgs,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// Files of blocks, in order
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Create the database from this genesis file if there is none; otherwise check that the
    /// database is of the same chain
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: Option<PathBuf>,
    /// File of the blocks' access lists, which are verified as well
    #[arg(long, value_name = "FILE")]
    pub(crate) access_lists: Option<PathBuf>,
    /// How transactions are executed; the results are the same
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) executor: ExecutorName,
    /// Number of threads that transactions run on [default: number of processors]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Execute up to this many consecutive blocks at once, each sequentially, if they come with
    /// access lists, from Cancun on: for catching up, on two threads or more
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_threads)]
    pub(crate) batch: NonZeroUsize,
    /// Do not execute blocks that come with access lists, from Cancun on: apply the changes in the
    /// lists, and verify only state roots
    #[arg(long)]
    pub(crate) apply: bool,
    /// Number of reads in flight for the next blocks, while earlier ones are executed; 0 for none
    #[arg(long, value_name = "N", default_value_t = READ_AHEAD_DEFAULT)]
    pub(crate) read_ahead: usize,
    /// Keep old states: none, flat or archive, or flat=BLOCKS or archive=BLOCKS for the newest of them
    /// alone, which the history remembers. A history that is not there yet begins at the head, and `cambium history build` adds
    /// older blocks [default: go on with the history that is there]
    ///
    /// none: none but those that the block log still has, which keeps 1,024 blocks unless --keep-blocks
    /// says how many. A history that is there is left behind.
    /// flat: the values of accounts and slots at any block.
    /// archive: these, and the nodes of the tries, so that any block's state is proved.
    #[arg(long, value_name = "KIND", verbatim_doc_comment)]
    pub(crate) history: Option<HistoryMode>,
    #[command(flatten)]
    pub(crate) nodes: NodesArgs,
    #[command(flatten)]
    pub(crate) db: WriteArgs,
}

/// How an archive keeps nodes.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct NodesArgs {
    /// Of a new archive: one entry of a branch out of N has all sixteen children, and the others those
    /// that changed; `whole` for all. More of them make it larger, and proofs faster
    #[arg(long, value_name = "N", value_parser = parse_whole_nodes, default_value = "8")]
    pub(crate) nodes: WholeNodes,
}

fn parse_whole_nodes(text: &str) -> Result<WholeNodes, String> {
    if text == "whole" {
        return Ok(WholeNodes::ALL);
    }
    let one_of = text.parse();
    let one_of = one_of.map_err(|_| "neither `whole` nor a number from 1 on".to_owned())?;
    Ok(WholeNodes { one_of })
}

/// Which old states are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HistoryMode {
    /// None but those that the block log still has.
    None,
    /// Values, and nodes if it is an archive; of the newest blocks alone, or of all.
    Kept {
        archive: bool,
        blocks: Option<NonZeroU64>,
    },
}

impl FromStr for HistoryMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, blocks) = match text.split_once('=') {
            None => (text, None),
            Some((kind, blocks)) => {
                let number = blocks.parse().ok();
                let wrong = || format!("{blocks} is not a number of blocks");
                (kind, Some(number.ok_or_else(wrong)?))
            }
        };
        match kind {
            "none" if blocks.is_none() => Ok(Self::None),
            "flat" | "archive" => Ok(Self::Kept {
                archive: kind == "archive",
                blocks,
            }),
            _ => Err("none of none, flat, archive, flat=BLOCKS and archive=BLOCKS".to_owned()),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Make the history of the blocks that the log has, or bring it to the head and down to older blocks
    ///
    /// Another process may import meanwhile, if it does not follow the history itself. An interrupted
    /// build goes on where it was
    Build(HistoryBuildArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct HistoryBuildArgs {
    /// The oldest block whose state can be read [default: the oldest that the log allows]
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// What a history that is not there yet keeps: flat for values, archive for proofs, too
    #[arg(long, value_name = "KIND", default_value = "flat")]
    pub(crate) history: HistoryMode,
    #[command(flatten)]
    pub(crate) nodes: NodesArgs,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// Check the history instead: every page of its files, and values at up to 1,000 blocks against
    /// the block log
    #[arg(long)]
    pub(crate) history: bool,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

/// Executors by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExecutorName {
    /// As suits each block: `parallel` if it comes with an access list; otherwise `optimistic` with 4
    /// threads or more, and `sequential` with fewer
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
const THREADS_MAX: usize = 1024;

fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|n: &NonZeroUsize| n.get() <= THREADS_MAX);
    number.ok_or_else(|| format!("from 1 to {THREADS_MAX}"))
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// File to write; gzipped if its name ends in .gz
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// First block [default: the one after genesis]
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// Last block [default: the head]
    #[arg(long, value_name = "N")]
    pub(crate) to: Option<u64>,
    /// Write the access lists that are stored with the blocks to this file; gzipped if its name
    /// ends in .gz
    #[arg(long, value_name = "FILE")]
    pub(crate) access_lists: Option<PathBuf>,
    /// Overwrite the files if they exist
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UnwindArgs {
    /// Number of the block that becomes the head
    #[arg(long, value_name = "N")]
    pub(crate) to: u64,
    #[command(flatten)]
    pub(crate) db: WriteArgs,
}

/// A state in the database.
#[derive(Debug, ClapArgs)]
pub(crate) struct StateArgs {
    /// Use the state after this block: a number, a hash, latest, earliest, safe or finalized
    #[arg(long, value_name = "BLOCK", default_value_t = BlockRef::Latest)]
    pub(crate) block: BlockRef,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

/// Parses an address, and says what is wrong with it.
fn parse_address(text: &str) -> Result<Address, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if let Some(other) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(format!(
            "an address is hexadecimal, and {other:?} is not a digit of it"
        ));
    }
    match digits.parse() {
        Ok(address) => Ok(address),
        Err(_) => {
            let digits = digits.len();
            Err(format!(
                "an address has 20 bytes, which are 40 digits after 0x, and not {digits}"
            ))
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GetArgs {
    /// Address of the account
    #[arg(value_parser = parse_address)]
    pub(crate) address: Address,
    /// Storage slot of the account: hex with 0x, otherwise decimal
    #[arg(value_parser = parse_slot)]
    pub(crate) slot: Option<StorageKey>,
    /// Print the account's code instead, in hex
    #[arg(long, conflicts_with = "slot")]
    pub(crate) code: bool,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BalArgs {
    /// Number of the block
    #[arg(value_name = "N")]
    pub(crate) block: u64,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProveArgs {
    /// Address of the account
    #[arg(value_parser = parse_address)]
    pub(crate) address: Address,
    /// Storage slots of the account: hex with 0x, otherwise decimal
    #[arg(value_name = "SLOT", value_parser = parse_slot)]
    pub(crate) slots: Vec<StorageKey>,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProveRangeArgs {
    /// Prove slots of this account [default: accounts]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) account: Option<Address>,
    /// First path of the range
    #[arg(long, value_name = "PATH", default_value_t = B256::ZERO)]
    pub(crate) from: B256,
    /// Last path of the range, which belongs to it
    #[arg(long, value_name = "PATH", default_value_t = B256::repeat_byte(0xff))]
    pub(crate) to: B256,
    /// Largest number of accounts or slots
    #[arg(long, value_name = "N", default_value = "1000")]
    pub(crate) limit: NonZeroUsize,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct VerifyArgs {
    /// File with the proof or a JSON-RPC response that contains it, or - for standard input
    #[arg(value_name = "PROOF.json")]
    pub(crate) proof: PathBuf,
    /// State root of a trusted block
    #[arg(long)]
    pub(crate) root: B256,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WitnessArgs {
    /// Number of the block
    #[arg(value_name = "N")]
    pub(crate) block: u64,
    /// Format: `own` includes the block, the others are responses of clients to
    /// debug_executionWitness
    #[arg(long, value_name = "FORM", value_enum, default_value_t = WitnessFormArg::Own)]
    pub(crate) form: WitnessFormArg,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WitnessFormArg {
    /// The block with its witness
    Own,
    /// State, codes, keys, and headers as RLP: also the format of EIP-8025
    Reth,
    /// State, codes, and headers as objects
    Geth,
}

impl From<WitnessFormArg> for WitnessForm {
    fn from(form: WitnessFormArg) -> Self {
        match form {
            WitnessFormArg::Own => Self::Own,
            WitnessFormArg::Reth => Self::Reth,
            WitnessFormArg::Geth => Self::Geth,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct StatelessArgs {
    /// File with a witness in any format of `cambium witness`, or - for standard input
    pub(crate) witness: PathBuf,
    /// File with the RLP of the block, binary or hex, if the witness does not include it
    #[arg(long, value_name = "FILE")]
    pub(crate) block: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Number of blocks of an interval, if the chain has the layered commitment
    #[arg(long, value_name = "BLOCKS")]
    pub(crate) merge_interval: Option<NonZeroU64>,
    /// Hash of the block's parent. Without it, execution shows only that the block follows from the
    /// parent in its header, which may not exist
    #[arg(long, value_name = "HASH")]
    pub(crate) parent: Option<B256>,
    /// Reject blocks with a higher gas limit, which may take long to execute
    #[arg(long, value_name = "GAS", default_value_t = STATELESS_GAS_LIMIT_MAX)]
    pub(crate) gas_limit_max: u64,
}

/// Source of the fork rules, which must not come from what is verified.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct RulesArgs {
    /// Public chain whose fork rules apply
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(ChainSpec::PUBLIC.map(|(name, _)| name)))]
    pub(crate) chain: Option<String>,
    /// Genesis file of the chain whose fork rules apply
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WorkloadArgs {
    /// Directory for genesis.json, chain.rlp and access-lists.rlp
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) commitment: CommitmentArgs,
    /// Number of accounts at genesis
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) accounts: u64,
    /// Number of accounts that send [default: 50000, or all]
    #[arg(long, value_name = "N")]
    pub(crate) senders: Option<u64>,
    /// Number of accounts that hold tokens [default: number of senders]
    #[arg(long, value_name = "N")]
    pub(crate) holders: Option<u64>,
    /// Number of pools for swaps, each with a token of its own that all senders hold
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) pools: u64,
    /// Number of slots of the contract that slot reads call
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) slots: u64,
    /// Number of blocks after genesis
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) blocks: u64,
    /// Number of transactions in each block
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) transactions: u64,
    /// Approximate gas of the transactions in each block, instead of their number: 60M
    #[arg(long, value_name = "GAS", value_parser = parse_gas, conflicts_with = "transactions")]
    pub(crate) gas: Option<u64>,
    /// Percentage of ERC-20 transfers [default: 20, or 0 with --swaps or --slot-reads]
    #[arg(long, value_name = "PCT")]
    pub(crate) erc20: Option<u8>,
    /// Percentage of swaps
    #[arg(long, value_name = "PCT", default_value_t = 0)]
    pub(crate) swaps: u8,
    /// Percentage of slot reads, which read slots until their gas is used up
    #[arg(long, value_name = "PCT", default_value_t = 0)]
    pub(crate) slot_reads: u8,
    /// Gas of each slot read: up to 16777216
    #[arg(long, value_name = "GAS", default_value = "16M", value_parser = parse_gas)]
    pub(crate) slot_read_gas: u64,
    /// Percentage of payments and ERC-20 transfers that go to new accounts
    #[arg(long, value_name = "PCT", default_value_t = 25)]
    pub(crate) fresh: u8,
    /// How senders and receivers are chosen: uniform, zipf, distinct or hot:PCT
    #[arg(long, default_value_t)]
    pub(crate) spread: Spread,
    /// How pools are chosen: uniform, zipf, distinct or hot:PCT
    #[arg(long, value_name = "SPREAD", default_value_t)]
    pub(crate) pool_spread: Spread,
    /// Seed of everything random: the same arguments give the same chain
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The fork that is active from genesis
    #[arg(long, value_enum, default_value = "osaka")]
    pub(crate) fork: WorkloadFork,
    /// Also write the blocks' access lists, as is always done for Amsterdam
    #[arg(long)]
    pub(crate) access_lists: bool,
    /// EIP-155 chain id
    #[arg(long, value_name = "ID", default_value_t = 4_093)]
    pub(crate) chain_id: u64,
    /// Overwrite the files if they exist
    #[arg(long)]
    pub(crate) force: bool,
    /// Memory for caches and recent blocks together: 512M, 4G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub(crate) memory: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WorkloadFork {
    Prague,
    Osaka,
    /// A draft: see docs/AMSTERDAM.md
    Amsterdam,
}

impl WorkloadFork {
    /// Whether headers contain the hash of the block's access list.
    pub(crate) const fn has_access_lists(self) -> bool {
        matches!(self, Self::Amsterdam)
    }
}

impl From<WorkloadFork> for Fork {
    fn from(fork: WorkloadFork) -> Self {
        match fork {
            WorkloadFork::Prague => Self::Prague,
            WorkloadFork::Osaka => Self::Osaka,
            WorkloadFork::Amsterdam => Self::Amsterdam,
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DemoArgs {
    /// Keep all files in this directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Number of accounts at genesis
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) accounts: u64,
    /// Number of blocks after genesis
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) blocks: u64,
}

fn parse_gas(text: &str) -> Result<u64, String> {
    let bad = || "gas is a number, optionally with K, M or G: 60M is 60,000,000".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 1,
        "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return Err(bad()),
    };
    let number: u64 = digits.parse().map_err(|_| bad())?;
    number.checked_mul(unit).ok_or_else(bad)
}

/// Parses a slot: hex after `0x`, otherwise decimal. Unless it has 32 bytes of hex, proofs show it
/// as a number.
fn parse_slot(text: &str) -> Result<StorageKey, String> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let bad = || "a slot is a number of at most 256 bits: hex with 0x, or decimal".to_owned();
    let too_long = radix == 16 && digits.len() > 64;
    if digits.is_empty() || too_long || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let number = U256::from_str_radix(digits, radix).map_err(|_| bad())?;
    Ok(StorageKey {
        slot: B256::from(number.to_be_bytes()),
        quantity: !(radix == 16 && digits.len() == 64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_contradict_each_other_nowhere() {
        Args::command().debug_assert();
    }

    #[test]
    fn gas_is_a_number_with_a_decimal_letter() {
        assert_eq!(parse_gas("16777216"), Ok(1 << 24));
        assert_eq!(parse_gas("60M"), Ok(60_000_000));
        assert_eq!(parse_gas("1g"), Ok(1_000_000_000));
        for bad in ["", "M", "-1M", "1.5M", "1T", "99999999999G"] {
            assert!(parse_gas(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn slots_are_hex_or_decimal() {
        let slot =
            |text| parse_slot(text).map(|key| (U256::from_be_bytes(key.slot.0), key.quantity));
        assert_eq!(slot("10"), Ok((U256::from(10), true)));
        assert_eq!(slot("0x10"), Ok((U256::from(16), true)));
        let whole = format!("0x{:064x}", 5);
        assert_eq!(slot(&whole), Ok((U256::from(5), false)));
        let too_long = format!("0x{:065x}", 5);
        for bad in ["", "0x", "ff", "-1", "0xg0", "1_000", &too_long] {
            assert!(parse_slot(bad).is_err(), "{bad}");
        }
    }
}
