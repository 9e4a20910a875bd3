//! Arguments of the commands on heads and single blocks.

use super::{
    super::block_ref::parse_block,
    database::{DbArgs, WriteArgs},
};
use cambium::BlockRef;
use clap::Args as ClapArgs;

pub(crate) const RECEIPTS_HELP: &str = "\
Without an index that has the receipts, the state before the block must be one that can be read: of one of
the newest heights, or restored from the block log.

With --json: block_number, block_hash and receipts, each as eth_getTransactionReceipt gives it, without
the price of blobs.";

pub(crate) const DIFF_HELP: &str = "\
The blocks between the two are read from the block log. A key that was changed and changed back is
listed, with the value that it has at the end.

With --json: from_number, from_hash, to_number, to_hash, changed_accounts, changed_slots and accounts:
path, address (null if it is not known), account (nonce, balance and codeHash; \"kept\" if only slots changed,
null if it was deleted), wipe (whether all older slots were removed), slots, by path, where zero is a
removed slot, and slotKeys: the keys that are known, by path. In a partial database also storageRoot, of
contracts whose slots are not kept.";

pub(crate) const SET_HEAD_HELP: &str = "\
Branches are in the database while their blocks are among the newest heights; `cambium db
branches` lists them. Without --safe and --finalized, the blocks that were called so are
forgotten as far as they are not on the new head's chain.

Examples:
  cambium set-head 1000 -d DIR                      the canonical block 1000, as `unwind` does
  cambium set-head 0x... -d DIR                     a block on another branch, by its hash
  cambium set-head latest --finalized 900 -d DIR    the same head; block 900 can't be undone

With --json: head_number, head_hash, state_root, before_number, before_hash, safe and finalized (an
object with number and hash, or null).";

#[derive(Debug, ClapArgs)]
pub(crate) struct SetHeadArgs {
    /// The block: a number of the canonical chain, a hash on any branch, latest or earliest
    #[arg(value_name = "BLOCK", value_parser = parse_block)]
    pub(crate) head: BlockRef,
    /// The newest safe block, which is the head or one of its ancestors
    #[arg(long, value_name = "BLOCK", value_parser = parse_block)]
    pub(crate) safe: Option<BlockRef>,
    /// The newest finalized block, which is the head or one of its ancestors: no other branch can be
    /// imported any more that leaves the chain below it
    #[arg(long, value_name = "BLOCK", value_parser = parse_block)]
    pub(crate) finalized: Option<BlockRef>,
    #[command(flatten)]
    pub(crate) db: WriteArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BlockArgs {
    /// The block: a number, a hash on any branch, latest, earliest, safe or finalized
    #[arg(value_name = "BLOCK", default_value_t = BlockRef::Latest, value_parser = parse_block)]
    pub(crate) block: BlockRef,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DiffArgs {
    /// The older block, whose state is compared: what it changed itself is not printed
    #[arg(value_name = "FROM", value_parser = parse_block)]
    pub(crate) from: BlockRef,
    /// The newer block
    #[arg(value_name = "TO", default_value_t = BlockRef::Latest, value_parser = parse_block)]
    pub(crate) to: BlockRef,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}
