//! Arguments on the index: blocks, transactions, receipts and logs.

use super::{
    super::{block_ref::parse_block, numbers::parse_count},
    accounts::{parse_address, parse_hash},
    database::DbArgs,
};
use cambium::{Address, B256, BlockRef};
use clap::{Args as ClapArgs, Subcommand};

pub(crate) const TX_HELP: &str = "\
Needs an index: `cambium import --index` keeps one, and `cambium index build` makes it afterwards.

With --json: transaction, as eth_getTransactionByHash gives it, and receipt, as
eth_getTransactionReceipt gives it, without the price of blobs (null with --no-receipt).";

pub(crate) const LOGS_HELP: &str = "\
Needs an index: `cambium import --index` keeps one, and `cambium index build` makes it afterwards. Values
that are given several times for one option let each of them pass.

Examples:
  cambium logs --address 0x... --from 1000 -d DIR     all logs of a contract since block 1000
  cambium logs --topic0 0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef \\
      --topic2 0x000000000000000000000000... -d DIR   transfers of any token to an account

With --json: logs, as eth_getLogs gives them, and more (whether --limit has left some out).";

const BUILD_HELP: &str = "\
With --json: oldest_number (the first block from which on all are there), upto_number, upto_hash,
blocks, transactions, log_entries (entries of addresses and topics), runs, run_bytes, data_bytes,
memory_bytes, and without_receipts (blocks whose receipts could not be made). Entries of blocks
that left the chain count until runs are merged.";

const CHECK_HELP: &str = "\
With --json: blocks, transactions, log_entries (entries of addresses and topics) and runs.";

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Make the index of the blocks that the log has, or bring it to the head
    ///
    /// Blocks that were stored without receipts are executed again for them, as far as the states before
    /// them can be read: near the head, or from a history. Another process may import meanwhile, if it does
    /// not follow the index itself. An interrupted build goes on where it was, or a second earlier
    #[command(after_help = BUILD_HELP)]
    Build(IndexBuildArgs),
    /// Read the whole index, and compare its entries with the blocks
    #[command(after_help = CHECK_HELP)]
    Check(DbArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct IndexBuildArgs {
    /// The oldest block of an index that is not there yet [default: the oldest that the log has]
    #[arg(long, value_name = "N", value_parser = parse_count::<u64>)]
    pub(crate) from: Option<u64>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TxArgs {
    /// Hash of the transaction
    #[arg(value_name = "HASH", value_parser = parse_hash)]
    pub(crate) hash: B256,
    /// Print the transaction alone, even if its receipt can't be made
    #[arg(long)]
    pub(crate) no_receipt: bool,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LogsArgs {
    /// Address of the contract that made the log
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address)]
    pub(crate) address: Vec<Address>,
    /// First topic, which is the hash of the event's signature for most
    #[arg(long, value_name = "TOPIC", value_parser = parse_hash)]
    pub(crate) topic0: Vec<B256>,
    /// Second topic
    #[arg(long, value_name = "TOPIC", value_parser = parse_hash)]
    pub(crate) topic1: Vec<B256>,
    /// Third topic
    #[arg(long, value_name = "TOPIC", value_parser = parse_hash)]
    pub(crate) topic2: Vec<B256>,
    /// Fourth topic
    #[arg(long, value_name = "TOPIC", value_parser = parse_hash)]
    pub(crate) topic3: Vec<B256>,
    /// The first block that is searched
    #[arg(long, value_name = "BLOCK", default_value_t = BlockRef::Earliest,
          value_parser = parse_block)]
    pub(crate) from: BlockRef,
    /// The last block that is searched
    #[arg(long, value_name = "BLOCK", default_value_t = BlockRef::Latest,
          value_parser = parse_block)]
    pub(crate) to: BlockRef,
    /// Print at most this many logs
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = parse_count::<u64>)]
    pub(crate) limit: u64,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}
