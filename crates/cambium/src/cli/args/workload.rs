//! Arguments of the commands that generate chains: workload, demo.

use super::{
    super::numbers::{parse_count, parse_memory, parse_percent},
    chain::CommitmentArgs,
};
use cambium::chain::Fork;
use cambium_workload::Spread;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::PathBuf;

pub(crate) const WORKLOAD_HELP: &str = "\
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

#[derive(Debug, ClapArgs)]
pub(crate) struct WorkloadArgs {
    /// Directory for genesis.json, chain.rlp and access-lists.rlp
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) commitment: CommitmentArgs,
    /// Number of accounts at genesis
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = parse_count::<u64>)]
    pub(crate) accounts: u64,
    /// Number of accounts that send [default: 50000, or all]
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    pub(crate) senders: Option<u64>,
    /// Number of accounts that hold tokens [default: number of senders]
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    pub(crate) holders: Option<u64>,
    /// Number of pools for swaps, each with a token of its own that all senders hold
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = parse_count::<u64>)]
    pub(crate) pools: u64,
    /// Number of slots of the contract that slot reads call
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = parse_count::<u64>)]
    pub(crate) slots: u64,
    /// Number of blocks after genesis
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = parse_count::<u64>)]
    pub(crate) blocks: u64,
    /// Number of transactions in each block
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = parse_count::<u64>)]
    pub(crate) transactions: u64,
    /// Approximate gas of the transactions in each block, instead of their number: 60M
    #[arg(long, value_name = "GAS", value_parser = parse_count::<u64>, conflicts_with = "transactions")]
    pub(crate) gas: Option<u64>,
    /// Percentage of ERC-20 transfers [default: 20, or 0 with --swaps or --slot-reads]
    #[arg(long, value_name = "PCT", value_parser = parse_percent)]
    pub(crate) erc20: Option<u8>,
    /// Percentage of swaps
    #[arg(long, value_name = "PCT", default_value_t = 0, value_parser = parse_percent)]
    pub(crate) swaps: u8,
    /// Percentage of slot reads, which read slots until their gas is used up
    #[arg(long, value_name = "PCT", default_value_t = 0, value_parser = parse_percent)]
    pub(crate) slot_reads: u8,
    /// Gas of each slot read: up to 16777216
    #[arg(long, value_name = "GAS", default_value = "16M", value_parser = parse_count::<u64>)]
    pub(crate) slot_read_gas: u64,
    /// Percentage of payments and ERC-20 transfers that go to new accounts
    #[arg(long, value_name = "PCT", default_value_t = 25, value_parser = parse_percent)]
    pub(crate) fresh: u8,
    /// How senders and receivers are chosen: uniform, zipf, distinct or hot:PCT
    #[arg(long, default_value_t)]
    pub(crate) spread: Spread,
    /// How pools are chosen: uniform, zipf, distinct or hot:PCT
    #[arg(long, value_name = "SPREAD", default_value_t)]
    pub(crate) pool_spread: Spread,
    /// Seed of everything random: the same arguments give the same chain
    #[arg(long, default_value_t = 1, value_parser = parse_count::<u64>)]
    pub(crate) seed: u64,
    /// The fork that is active from genesis
    #[arg(long, value_enum, default_value = "osaka")]
    pub(crate) fork: WorkloadFork,
    /// Also write the blocks' access lists, as is always done for Amsterdam
    #[arg(long)]
    pub(crate) access_lists: bool,
    /// EIP-155 chain id
    #[arg(long, value_name = "ID", default_value_t = 4_093, value_parser = parse_count::<u64>)]
    pub(crate) chain_id: u64,
    /// Overwrite the files if they exist
    #[arg(long)]
    pub(crate) force: bool,
    /// Memory for caches and recent blocks together: 512M, 4G
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_memory)]
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
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = parse_count::<u64>)]
    pub(crate) accounts: u64,
    /// Number of blocks after genesis
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = parse_count::<u64>)]
    pub(crate) blocks: u64,
}
