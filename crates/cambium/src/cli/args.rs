//! What can be said on the command line.

use cambium::{
    Address, B256, ChainSpec, ExecutorKind, Fork, STATELESS_GAS_LIMIT_MAX, Spread, StorageKey,
    U256, WitnessForm,
};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, builder::PossibleValuesParser};
use std::{num::NonZeroUsize, path::PathBuf};

const AFTER_HELP: &str = "\
Exit codes:
  0  done
  1  could not be done: input or output, a lock, permissions, a full disk, another chain
  2  wrong usage
  3  a block, or the file it came in, is invalid
  4  the database is damaged
  5  a proof or a witness does not hold

Environment:
  CAMBIUM_LOG  what is logged to standard error: error, warn (default), info, debug, trace

A first look: cambium demo";

const WORKLOAD_HELP: &str = "\
What --erc20, --swaps and --slot-reads leave of 100 percent are payments of ether.

  payment        21,000 gas: from a sender to anybody
  ERC-20         34,000 gas, or 51,000 if the receiver holds none: the same with a token
  swap           87,000 gas: one token of the sender's for another, through a router, in a pool as
                 Uniswap V2 has them (constant product, fee of 0.3 %)
  slot read      all of --slot-read-gas: the worst case. A contract reads one of its --slots after
                 another, each found by hashing, 7,154 with 16M gas; all exist, all are cold

Spreads, for accounts and for pools:
  uniform        every one as often as any other
  zipf           number n about n times as rarely as the first
  hot:PCT        so many percent of receivers, or of swaps, fall on the first; senders are uniform
  distinct       none twice in a block: its transactions are independent of each other

Examples:
  cambium workload --out erc20 --accounts 1000000 --holders 1000000 --erc20 100 --fresh 0 --gas 60M
  cambium workload --out independent --senders 4000 --spread distinct --transactions 500
  cambium workload --out swaps --senders 2000 --swaps 100 --pools 100 --pool-spread zipf
  cambium workload --out worst --slot-reads 100 --slots 10000000 --transactions 4

All of the genesis state is in genesis.json, some 150 bytes for each slot. With --access-lists, and
of Amsterdam in any case, the blocks' access lists are in access-lists.rlp, as
`import --access-lists` takes them. Headers of Amsterdam have their hashes, earlier ones do not.

With --json: genesis, chain, access_lists (null if not written), accounts, slots, blocks,
transactions, gas, head_number, head_hash.";

/// A state engine for EVM blockchains: imports chains with every root checked, and proves what
/// they hold.
#[derive(Debug, Parser)]
#[command(name = "cambium", version, after_help = AFTER_HELP, propagate_version = true)]
pub(crate) struct Args {
    /// Print exactly one JSON object on standard output, for machines
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a database from a genesis file
    Init(InitArgs),
    /// Execute blocks from files, check all that their headers claim, and keep them
    #[command(after_help = "\
Files are told apart by their content: concatenated block RLP as `geth export` writes it, the same
gzipped, or era1. Blocks that are there already are skipped, so an import that was interrupted is
resumed by running it again. Ctrl-C is safe at any moment, and so is a power loss: the database
opens again at a block that was committed.

With --json: blocks, transactions, gas, seconds, skipped, applied (blocks not executed), parallel
and again (transactions executed in parallel, and in vain), head_number, head_hash, state_root,
timings (seconds spent in each stage; stages run side by side) and counters.")]
    Import(ImportArgs),
    /// Write blocks to a file that `import`, and other clients, read
    Export(ExportArgs),
    /// Take the head back to an earlier block
    Unwind(UnwindArgs),
    /// Print an account, or one of its slots
    Get(GetArgs),
    /// Print a block's access list: what it touches, and what each of its steps changes
    #[command(after_help = "\
A list is kept with a block from Amsterdam on (EIP-7928). That of an earlier block is made by
executing it again. Index 0 stands for what comes before the transactions, 1 for the first of them,
and one more than there are for what comes after them.

With --json: number, hash, kept, access_list_hash, counts, items, items_max (null before Amsterdam),
bytes (full, batched, parallel) and access_list, as eth_getBlockAccessList gives it.")]
    Bal(BalArgs),
    /// Print a proof of an account and its slots, as `eth_getProof` gives it
    Prove(ProveArgs),
    /// Check a proof against a state root, without a database
    Verify(VerifyArgs),
    /// Print a block with all that is needed to execute it without a database
    Witness(WitnessArgs),
    /// Execute a block from its witness alone
    Stateless(StatelessArgs),
    /// Look at the database itself
    #[command(subcommand)]
    Db(DbCommand),
    /// Generate a chain of payments, token transfers, swaps and slot reads, for any client
    #[command(after_help = WORKLOAD_HELP)]
    Workload(WorkloadArgs),
    /// Make a small chain, import it, and prove and re-execute parts of it
    Demo(DemoArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Print sizes and counts
    Stats(DbArgs),
    /// Read everything, hash the state from its leaves, and compare with the roots
    Check(DbArgs),
    /// Copy the database to a new directory, whether or not another process writes to it
    ///
    /// Files that nobody writes to any more are shared where both directories are of one file
    /// system: that takes no time and no space. The copy is opened to see that it is whole
    Backup(BackupArgs),
    /// Bring back what is damaged from what the other files tell, and say what is to be imported
    /// again
    Repair(RepairArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BackupArgs {
    /// Directory of the copy: empty, or not there
    #[arg(value_name = "DIR")]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Change nothing: say what is damaged, what would be done about it, and what it would cost
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct DbArgs {
    /// Directory of the database
    #[arg(long, short = 'd', value_name = "DIR")]
    pub(crate) datadir: PathBuf,
    /// Memory for caches and recent blocks together: 512M, 4G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub(crate) memory: u64,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// A database that is written to.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct WriteArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Keep so many blocks below the head: older ones leave the directory, with what they changed,
    /// and states before them can't be had any more [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) keep_blocks: Option<u64>,
    /// Keep what was removed readable for processes that read the database, until they are so many
    /// checkpoints behind
    #[arg(long, value_name = "N", default_value_t = READER_LAG)]
    pub(crate) reader_lag: u64,
}

/// Checkpoints that readers may be behind, if nobody says otherwise.
const READER_LAG: u64 = 16;

impl From<DbArgs> for WriteArgs {
    fn from(db: DbArgs) -> Self {
        Self {
            db,
            keep_blocks: None,
            reader_lag: READER_LAG,
        }
    }
}

/// How large files get: for tests, which are after what happens to files.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct FileArgs {
    /// Another segment is begun when one would be larger than this
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size, hide = true)]
    pub(crate) segment_size: Option<u64>,
    /// Pages are written when they are so many bytes together
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size, hide = true)]
    pub(crate) segment_buffer: Option<u64>,
    /// Another file of the block log is begun when one is larger than this
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size, hide = true)]
    pub(crate) log_file_size: Option<u64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// Genesis file, as geth, reth and hive write them
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: PathBuf,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// Files of blocks, in order
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Make the database from this genesis file if there is none; else check that it is the
    /// same chain's
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: Option<PathBuf>,
    /// File of the blocks' access lists, which are then checked, too
    #[arg(long, value_name = "FILE")]
    pub(crate) access_lists: Option<PathBuf>,
    /// How transactions are executed; the results are the same
    #[arg(long, value_enum, default_value = "sequential")]
    pub(crate) executor: ExecutorName,
    /// Threads that transactions run on [default: as many as processors]
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Execute up to so many consecutive blocks at once, each in sequence, if they come with their
    /// access lists, from Cancun on: for catching up
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_threads)]
    pub(crate) batch: NonZeroUsize,
    /// Don't execute blocks that come with their access lists, from Cancun on: go forward by what
    /// the lists say, and check state roots alone
    #[arg(long)]
    pub(crate) apply: bool,
    #[command(flatten)]
    pub(crate) db: WriteArgs,
}

/// Executors by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExecutorName {
    /// One transaction after another
    Sequential,
    /// In parallel by access lists, from Cancun on; all that a list names is read at once
    Batched,
    /// In parallel by access lists, from Cancun on; what a list says changes is read ahead, and
    /// transactions read what else they come to
    Parallel,
    /// In parallel without access lists, from Byzantium on: transactions run ahead of their turn,
    /// and again if they then find something else
    Optimistic,
}

impl From<ExecutorName> for ExecutorKind {
    fn from(name: ExecutorName) -> Self {
        match name {
            ExecutorName::Sequential => Self::Sequential,
            ExecutorName::Batched => Self::Batched,
            ExecutorName::Parallel => Self::Parallel,
            ExecutorName::Optimistic => Self::Optimistic,
        }
    }
}

/// More threads than a system is sure to give are refused.
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
    /// Write the blocks' access lists, those that are kept, to this file; gzipped if its name
    /// ends in .gz
    #[arg(long, value_name = "FILE")]
    pub(crate) access_lists: Option<PathBuf>,
    /// Write over the files if they exist
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UnwindArgs {
    /// The block to go back to
    #[arg(long, value_name = "N")]
    pub(crate) to: u64,
    #[command(flatten)]
    pub(crate) db: WriteArgs,
}

/// A state of the database.
#[derive(Debug, ClapArgs)]
pub(crate) struct StateArgs {
    /// The state after this block [default: the head]
    #[arg(long, value_name = "N")]
    pub(crate) block: Option<u64>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GetArgs {
    /// Address of the account
    pub(crate) address: Address,
    /// A slot of it: hex after 0x, else decimal
    #[arg(value_parser = parse_slot)]
    pub(crate) slot: Option<StorageKey>,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BalArgs {
    /// The block
    #[arg(value_name = "N")]
    pub(crate) block: u64,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ProveArgs {
    /// Address of the account
    pub(crate) address: Address,
    /// Slots of it: hex after 0x, else decimal
    #[arg(value_name = "SLOT", value_parser = parse_slot)]
    pub(crate) slots: Vec<StorageKey>,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct VerifyArgs {
    /// File with the proof, or - for standard input; a whole JSON-RPC response will do
    #[arg(value_name = "PROOF.json")]
    pub(crate) proof: PathBuf,
    /// State root of a block that is trusted
    #[arg(long)]
    pub(crate) root: B256,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WitnessArgs {
    /// The block
    #[arg(value_name = "N")]
    pub(crate) block: u64,
    /// As whom to write it: `own` has the block with it, the others are what nodes answer to
    /// debug_executionWitness
    #[arg(long, value_name = "FORM", value_enum, default_value_t = WitnessFormArg::Own)]
    pub(crate) form: WitnessFormArg,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WitnessFormArg {
    /// The block beside its witness
    Own,
    /// State, codes, keys, and headers as RLP: also EIP-8025's form
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
    /// File with a witness in any form that `cambium witness` writes, or - for standard input
    pub(crate) witness: PathBuf,
    /// File with the block, if the witness has none with it: RLP, in bytes or in hex
    #[arg(long, value_name = "FILE")]
    pub(crate) block: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// Hash that the block's parent must have. Without it the block follows from the parent that
    /// it names, whatever that is
    #[arg(long, value_name = "HASH")]
    pub(crate) parent: Option<B256>,
    /// Refuse blocks with a higher gas limit: executing them may take long
    #[arg(long, value_name = "GAS", default_value_t = STATELESS_GAS_LIMIT_MAX)]
    pub(crate) gas_limit_max: u64,
}

/// Where fork rules come from. Never from what is to be verified.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct RulesArgs {
    /// Public chain whose fork rules hold
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(ChainSpec::PUBLIC.map(|(name, _)| name)))]
    pub(crate) chain: Option<String>,
    /// Genesis file of the chain whose fork rules hold
    #[arg(long, value_name = "FILE")]
    pub(crate) genesis: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WorkloadArgs {
    /// Directory for genesis.json, chain.rlp and access-lists.rlp
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Accounts at genesis
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) accounts: u64,
    /// How many of them send [default: 50000, or all]
    #[arg(long, value_name = "N")]
    pub(crate) senders: Option<u64>,
    /// How many of them hold tokens [default: those that send]
    #[arg(long, value_name = "N")]
    pub(crate) holders: Option<u64>,
    /// Pools to swap in, each with a token of its own that all senders hold
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) pools: u64,
    /// Slots of the contract that slots are read of
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) slots: u64,
    /// Blocks after genesis
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) blocks: u64,
    /// Transactions in each block
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) transactions: u64,
    /// As many transactions in each block as take about so much gas: 60M
    #[arg(long, value_name = "GAS", value_parser = parse_gas, conflicts_with = "transactions")]
    pub(crate) gas: Option<u64>,
    /// Share of the transactions that are ERC-20 transfers, in percent [default: 20, or 0 with
    /// --swaps or --slot-reads]
    #[arg(long, value_name = "PCT")]
    pub(crate) erc20: Option<u8>,
    /// Share that are swaps, in percent
    #[arg(long, value_name = "PCT", default_value_t = 0)]
    pub(crate) swaps: u8,
    /// Share that read slots until their gas is used up, in percent
    #[arg(long, value_name = "PCT", default_value_t = 0)]
    pub(crate) slot_reads: u8,
    /// Gas of each of these: up to 16777216
    #[arg(long, value_name = "GAS", default_value = "16M", value_parser = parse_gas)]
    pub(crate) slot_read_gas: u64,
    /// Share of payments and ERC-20 transfers that go to new accounts, in percent
    #[arg(long, value_name = "PCT", default_value_t = 25)]
    pub(crate) fresh: u8,
    /// How senders and receivers are chosen: uniform, zipf, distinct or hot:PCT
    #[arg(long, default_value_t)]
    pub(crate) spread: Spread,
    /// How pools are chosen: uniform, zipf, distinct or hot:PCT
    #[arg(long, value_name = "SPREAD", default_value_t)]
    pub(crate) pool_spread: Spread,
    /// The same seed, with the same other parameters, gives the same chain
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// The fork in force from genesis on
    #[arg(long, value_enum, default_value = "osaka")]
    pub(crate) fork: WorkloadFork,
    /// Write the blocks' access lists, too, as is done for Amsterdam in any case
    #[arg(long)]
    pub(crate) access_lists: bool,
    /// EIP-155 chain id
    #[arg(long, value_name = "ID", default_value_t = 4_093)]
    pub(crate) chain_id: u64,
    /// Write over the files if they exist
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
    /// Whether headers have the hash of the block's access list.
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
    /// Keep all that is made in this directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Accounts at genesis
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub(crate) accounts: u64,
    /// Blocks after genesis
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) blocks: u64,
}

/// The least memory that a database is opened with.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// A size of a file, of which none is smaller than a block of the device.
fn parse_file_size(text: &str) -> Result<u64, String> {
    parse_bytes(text, 4096, "the least is 4K")
}

fn parse_size(text: &str) -> Result<u64, String> {
    parse_bytes(text, MEMORY_BYTES_MIN, "the least is 1M")
}

fn parse_bytes(text: &str, min: u64, too_few: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        _ => return Err("a size is a number and K, M, G or T: 512M, 4G".to_owned()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "a size is a number and K, M, G or T: 512M, 4G".to_owned())?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes >= min => Ok(bytes),
        Some(_) => Err(too_few.to_owned()),
        None => Err("that is more than any machine has".to_owned()),
    }
}

fn parse_gas(text: &str) -> Result<u64, String> {
    let bad = || "gas is a number, perhaps with K, M or G for thousands, millions, 10^9".to_owned();
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

/// Hex after `0x`, else decimal. Shorter than 32 bytes it stays a number in proofs.
fn parse_slot(text: &str) -> Result<StorageKey, String> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let bad = || "a slot is a number of at most 256 bits: hex after 0x, else decimal".to_owned();
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
    fn sizes_are_numbers_with_a_letter() {
        assert_eq!(parse_size("512M"), Ok(512 << 20));
        assert_eq!(parse_size("4g"), Ok(4 << 30));
        assert_eq!(parse_size("2 GiB").ok(), None);
        assert_eq!(parse_size("1048576"), Ok(1 << 20));
        for bad in [
            "",
            "M",
            "-1G",
            "1.5G",
            "1X",
            "99999999999T",
            "100K",
            "4 g é",
        ] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
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
