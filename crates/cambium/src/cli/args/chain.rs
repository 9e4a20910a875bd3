//! Arguments of the commands on whole chains: init, export, unwind.

use super::{
    super::{block_ref::parse_block, numbers::count_in},
    database::{DbArgs, WriteArgs},
};
use crate::cli::error::Failure;
use cambium::BlockRef;
use clap::{Args as ClapArgs, ValueEnum};
use std::path::{Path, PathBuf};

/// The commitment of a chain, which its state roots follow.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct CommitmentArgs {
    /// What state roots are: mpt, Ethereum's own, or layered, which are computed in memory from
    /// what recent blocks changed. An existing database knows its own
    #[arg(long, value_enum, default_value = "mpt")]
    pub(crate) commitment: CommitmentKind,
    /// Number of blocks of an interval of the layered commitment, a parameter of the chain
    #[arg(long, value_name = "BLOCKS", required_if_eq("commitment", "layered"),
          value_parser = count_in::<u64>(1..=u64::MAX))]
    pub(crate) merge_interval: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommitmentKind {
    Mpt,
    Layered,
}

impl InitArgs {
    /// The genesis file. A configuration file may name one as well, so the parser can't ask for one.
    pub(crate) fn genesis(&self) -> Option<&Path> {
        self.file.as_deref().or(self.genesis.as_deref())
    }
}

impl CommitmentArgs {
    /// Blocks of an interval, if the commitment is `layered`.
    pub(crate) fn merge_interval(&self) -> Result<Option<u64>, Failure> {
        match (self.commitment, self.merge_interval) {
            (CommitmentKind::Layered, Some(blocks)) => Ok(Some(blocks)),
            // A configuration file may name the one without the other.
            (CommitmentKind::Layered, None) => {
                let why = "--commitment layered needs --merge-interval".to_owned();
                Err(Failure::BadEntry { why })
            }
            (CommitmentKind::Mpt, None) => Ok(None),
            (CommitmentKind::Mpt, Some(_)) => {
                let why = "--merge-interval is for --commitment layered".to_owned();
                Err(Failure::BadEntry { why })
            }
        }
    }
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// Genesis file, as geth, reth and hive write them
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The genesis file, as an option
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) genesis: Option<PathBuf>,
    /// Keep the addresses and the keys of slots behind the hashes in the state, of the genesis and of all
    /// blocks to come: `db dump` and others show them. They can't be had later
    #[arg(long)]
    pub(crate) preimages: bool,
    /// Make a partial database: keep the storage of the contracts in this file alone, one address on each
    /// line, and of others the storage root. It imports blocks with --updates
    #[arg(long, value_name = "FILE")]
    pub(crate) storage_of: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) commitment: CommitmentArgs,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// File to write; gzipped if its name ends in .gz
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// First block [default: the one after genesis]
    #[arg(value_name = "FIRST", value_parser = parse_block)]
    pub(crate) first: Option<BlockRef>,
    /// Last block [default: the head]
    #[arg(value_name = "LAST", value_parser = parse_block)]
    pub(crate) last: Option<BlockRef>,
    /// The first block, as an option
    #[arg(long, value_name = "BLOCK", conflicts_with = "first", value_parser = parse_block)]
    pub(crate) from: Option<BlockRef>,
    /// The last block, as an option
    #[arg(long, value_name = "BLOCK", conflicts_with = "last", value_parser = parse_block)]
    pub(crate) to: Option<BlockRef>,
    /// Write the access lists that are stored with the blocks to this file; gzipped if its name
    /// ends in .gz
    #[arg(long, value_name = "FILE")]
    pub(crate) access_lists: Option<PathBuf>,
    /// Write the blocks' state updates to this file, with which a partial database imports the blocks;
    /// gzipped if its name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub(crate) updates: Option<PathBuf>,
    /// Overwrite the files if they exist
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct UnwindArgs {
    /// The canonical block that becomes the head: a number, a hash, earliest, safe or finalized
    #[arg(long, value_name = "BLOCK", value_parser = parse_block)]
    pub(crate) to: BlockRef,
    #[command(flatten)]
    pub(crate) db: WriteArgs,
}
