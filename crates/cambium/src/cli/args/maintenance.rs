//! Arguments of `cambium db`: commands on the database itself.

use super::{
    database::DbArgs,
    dump::{
        DUMP_HELP, DumpArgs, EXTEND_HELP, ExtendArgs, INSPECT_HELP, InspectArgs, LOAD_HELP,
        LoadArgs,
    },
};
use clap::{Args as ClapArgs, Subcommand};
use std::path::PathBuf;

const CHECK_HELP: &str = "\
Accounts, slots and entries are counted as they are in the pages, at the block of the snapshot; what later
blocks changed is in their records in the log until it is merged, and compared with the head's root.

With --json: sound, snapshot_number, snapshot_hash, accounts, slots, entries and pages (of the snapshot),
codes, values (those that are stored apart from their entries), blocks (canonical ones in the log), damage
(descriptions) and more_damage (the number of those that are not described). The exit code is 4 if there
is any.

With --preimages and --json: whole, block_number, block_hash, addresses and slots (in the files),
state_accounts, state_slots, missing_addresses, missing_slots and lost_blocks (those that had left the log before they
were read). The exit code is 4 if any is missing.";

const BACKUP_HELP: &str = "\
With --json: copy, head_number, head_hash, history (null if there is none: first_number, last_number, last_hash, files,
bytes), index_upto_number, index_error, preimages (whether they were copied), preimages_error, shared_files,
shared_bytes, copied_files and copied_bytes. An index or preimages that can't be opened are not copied, which the
errors say: the copy of the database is whole, and the exit code is 1. Their pages are not read: `cambium index
check` and `cambium db check --preimages` verify the copies.";

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Print sizes and counts
    Stats(DbArgs),
    /// Print the head, the safe and the finalized block, and the branches that are not canonical
    Branches(DbArgs),
    /// Read everything, hash the state from its leaves, and compare it with the roots
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Copy the database to a new directory, even while another process writes to it
    ///
    /// Its history, index and preimages are copied with it. If both directories are on one file system, files that are no longer written to are hard
    /// linked, which takes no time and no space. The copy is opened to check that it is complete
    #[command(after_help = BACKUP_HELP)]
    Backup(BackupArgs),
    /// Restore damaged files from the others, and print which blocks must be imported again
    Repair(RepairArgs),
    /// Count the accounts, slots and codes of a state, and list the largest contracts
    #[command(after_help = INSPECT_HELP)]
    Inspect(InspectArgs),
    /// Write a state as JSON, account by account
    #[command(after_help = DUMP_HELP)]
    Dump(DumpArgs),
    /// Make a partial database anew, with another list of contracts whose storage it keeps
    ///
    /// The new database begins at the finalized block of the old one, or at its head if it does not say which block is final: a database
    /// can't go back before its first block. The old one is only read. Slots of contracts that are added are verified against the
    /// storage root of their account, and the whole state against the root in the header
    #[command(after_help = EXTEND_HELP)]
    Extend(Box<ExtendArgs>),
    /// Create a database from a state that `db dump` has written
    #[command(after_help = LOAD_HELP)]
    Load(LoadArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// Check the history instead: every page of its files, and values at up to 1,000 blocks against
    /// the block log
    #[arg(long)]
    pub(crate) history: bool,
    /// Check the preimages instead: every page of their files, and that there is one for each hash in
    /// the state
    #[arg(long, conflicts_with = "history")]
    pub(crate) preimages: bool,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BackupArgs {
    /// Directory of the copy, which must be empty or not exist
    #[arg(value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Leave the history out: `cambium history build` makes it in the copy, as far as the log goes
    #[arg(long)]
    pub(crate) no_history: bool,
    /// Leave the index out: `cambium index build` makes it in the copy, as far as the log goes
    #[arg(long)]
    pub(crate) no_index: bool,
    /// Leave the preimages out: they can't be had later
    #[arg(long)]
    pub(crate) no_preimages: bool,
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
