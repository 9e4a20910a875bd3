//! Arguments of the commands that write, read and measure a whole state.

use super::{
    super::{block_ref::parse_block, numbers::parse_count},
    accounts::StateArgs,
    database::DbArgs,
};
use cambium::BlockRef;
use clap::Args as ClapArgs;
use std::{num::NonZeroUsize, path::PathBuf};

pub(crate) const DUMP_HELP: &str = "\
Accounts have the form of a genesis file's `alloc`. A database that was made with `cambium init --preimages`
knows their addresses and slots; others are under keccak256 of their address, and slots under
`hashedStorage`, by keccak256 of the slot. The block and the fork rules come with them, so that
`cambium db load` makes a database that goes on after the block.

Examples:
  cambium db dump state.json -d DIR              the state at the head
  cambium db dump --block 1000 -d DIR | gzip     the state after block 1000, to standard output

With --json, for a dump to a file: file, block_number, block_hash, accounts, contracts, slots,
missing_addresses and missing_slots (those that are hashes), missing_preimages (both together) and
loadable.";

pub(crate) const LOAD_HELP: &str = "\
The state root of what is loaded is compared with that of the block in the dump, which becomes the
first block of the database. Blocks after it can be imported; one that asks for the hash of an older block
(BLOCKHASH) is refused, since the database does not have it.

With --json: chain_id, genesis_number and genesis_hash (those of the first block), state_root, head_number,
head_hash, preimages (whether they are kept).";

pub(crate) const EXTEND_HELP: &str = "\
Contracts that are in the old list and not in the new one are reduced to their storage root. A contract of the list that the state does not have is
noted: its storage is kept once it is created.

Examples:
  cambium db extend --storage-of longer.txt --to NEW --from FULL -d PARTIAL
  cambium db extend --storage-of longer.txt --to NEW --from-cluster nats://127.0.0.1:4222 -d PARTIAL

With --json: chain_id, genesis_number and genesis_hash (those of the first block), state_root, head_number, head_hash,
storage_kept_of (number of contracts), added (contracts whose slots came from elsewhere), added_slots and absent (contracts that the state
does not have), by keccak256 of the address.";

pub(crate) const INSPECT_HELP: &str = "\
Every account and slot is read, in the order of their hashed keys. Bytes are those of keys and values,
without what pages and the index need besides.

With --json: block_number, block_hash, accounts, contracts, accounts_with_storage, slots, account_bytes,
slot_bytes, codes, and largest: path, address (null if it is not known), slots, bytes, code_hash and
code_bytes of each.";

#[derive(Debug, ClapArgs)]
pub(crate) struct DumpArgs {
    /// File to write, or - for standard output
    #[arg(value_name = "FILE", default_value = "-")]
    pub(crate) file: PathBuf,
    /// Overwrite the file if it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// Fail at the first address or slot that is not known, instead of writing its hash
    #[arg(long)]
    pub(crate) require_preimages: bool,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LoadArgs {
    /// File that `cambium db dump` has written, gzipped or not, or - for standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Keep the addresses and the keys of slots, which all have to be in the dump, and those of blocks to
    /// come: see `cambium init --help`
    #[arg(long)]
    pub(crate) preimages: bool,
    /// Make a partial database: see `cambium init --help`
    #[arg(long, value_name = "FILE")]
    pub(crate) storage_of: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExtendArgs {
    /// File with the contracts whose storage the new database keeps: an address on each line
    #[arg(long, value_name = "FILE")]
    pub(crate) storage_of: PathBuf,
    /// Directory of the new database, which must not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Directory of a database with the storage of the contracts that are added, at the same block: a full one, or a partial one that keeps
    /// them
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
    /// Begin after this block: a number, a hash, latest, earliest, safe or finalized [default: finalized, or else latest]
    #[arg(long, value_name = "BLOCK", value_parser = parse_block)]
    pub(crate) block: Option<BlockRef>,
    #[command(flatten)]
    pub(crate) db: DbArgs,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    pub(crate) cluster: super::cluster::FromClusterArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InspectArgs {
    /// Number of contracts to list, those with the most slots
    #[arg(long, value_name = "N", default_value = "20", value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) top: NonZeroUsize,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}
