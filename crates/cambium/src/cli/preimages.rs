//! Preimages: the addresses and the keys of slots behind the hashes in the state. Made by `init --preimages`, and
//! printed in place of hashes.

use super::{
    args::{
        database::{DbArgs, WriteArgs},
        maintenance::CheckArgs,
    },
    error::{Exit, Failure},
    memory::Followers,
    open,
    output::{KEYS, KEYS_BAR, Output, Report, Table, bytes, count, quantity, step},
};
use cambium::{
    Address, B256, BlockId, Chain, Db, Node, StateAt, StateError,
    preimages::{Preimages, PreimagesError, PreimagesLookup, PreimagesOptions, PreimagesStats},
};
use serde_json::{Value, json};
use std::ops::ControlFlow;

/// Preimages between steps of the bar.
const TELL: u64 = 1 << 16;
/// Slots that are looked up in the order of their hashes.
const SLOTS_AT_ONCE: usize = 1 << 18;

/// Whether preimages are kept: those that are there, or that are asked for.
pub(crate) fn follows(wants: bool, args: &DbArgs) -> bool {
    wants || Preimages::exist(&*open::disk(&args.datadir)).unwrap_or(true)
}

/// The arguments for a database: with less memory, if it keeps preimages.
pub(crate) fn beside(wants: bool, args: WriteArgs) -> WriteArgs {
    Followers {
        preimages: follows(wants, &args.db),
        ..Followers::default()
    }
    .beside(args)
}

/// Refuses a database that was made without preimages, if they are wanted.
pub(crate) fn refuse_without(wants: bool, chain: &Chain) -> Result<(), Failure> {
    match wants && !chain.keeps_preimages() {
        false => Ok(()),
        true => {
            let what =
                "the database exists already, made without --preimages: they can't be had later";
            Err(StateError::BadOptions(what.to_owned()).into())
        }
    }
}

/// Writes what an import has added to files. Returns the error, if that fails.
pub(crate) fn finish(chain: &Chain, out: &Output) -> Option<String> {
    let flush = || match chain.preimages()? {
        Some(preimages) => Ok(preimages.flush()?),
        None => Ok::<_, Failure>(()),
    };
    let error = flush().err()?.to_string();
    out.error(format_args!(
        "the preimages of new blocks are not in files yet, and the log keeps those blocks: {error}"
    ));
    Some(error)
}

/// Looks up preimages for output. It finds none if the database has none, or if they can't be read, which is
/// noted.
pub(crate) struct Names<'a> {
    lookup: Option<PreimagesLookup>,
    out: &'a Output,
}

impl<'a> Names<'a> {
    pub(crate) fn of(node: &Node, out: &'a Output) -> Self {
        let preimages = node.preimages().unwrap_or_else(|error| {
            out.note(&error);
            None
        });
        let lookup = preimages.map(|preimages| preimages.lookup());
        Self { lookup, out }
    }

    /// The address with that hash, if it is known.
    pub(crate) fn address_of(&mut self, hash: &B256) -> Option<Address> {
        self.find(|lookup| lookup.address_of(hash))
    }

    /// The key of a slot with that hash, if it is known.
    pub(crate) fn slot_of(&mut self, hash: &B256) -> Option<B256> {
        self.find(|lookup| lookup.slot_of(hash))
    }

    fn find<T>(
        &mut self,
        find: impl FnOnce(&mut PreimagesLookup) -> Result<Option<T>, PreimagesError>,
    ) -> Option<T> {
        let found = find(self.lookup.as_mut()?);
        found.unwrap_or_else(|error| {
            self.out.note(&error);
            self.lookup = None;
            None
        })
    }
}

/// Returns the figures of a database's preimages, and their newest block; `None` if it has none. An error is noted, and
/// returned for output: the database does not need them.
pub(crate) fn stats(
    db: &Db,
    out: &Output,
) -> (Option<(PreimagesStats, Option<BlockId>)>, Option<String>) {
    let options = PreimagesOptions::default();
    match Preimages::open_read_only(db.disk().clone(), db.genesis().hash, options) {
        Ok(preimages) => (Some((preimages.stats(), preimages.durable())), None),
        Err(PreimagesError::None { .. }) => (None, None),
        Err(error) => {
            out.note(&error);
            (None, Some(error.to_string()))
        }
    }
}

pub(crate) fn stats_rows(table: Table, (stats, upto): &(PreimagesStats, Option<BlockId>)) -> Table {
    let upto = upto.map_or("none".to_owned(), |upto| upto.to_string());
    let table = table
        .row("in files up to", upto)
        .row("addresses", count(stats.addresses))
        .row("slots", count(stats.slots))
        .row(
            "runs",
            format!("{}, {}", count(stats.runs), bytes(stats.file_bytes)),
        );
    match stats.lost_blocks {
        0 => table,
        lost => table.row("blocks not added", count(lost)),
    }
}

pub(crate) fn stats_json((stats, upto): &(PreimagesStats, Option<BlockId>)) -> Value {
    json!({
        "upto_number": upto.map(|upto| quantity(upto.number)),
        "upto_hash": upto.map(|upto| upto.hash),
        "addresses": stats.addresses,
        "slots": stats.slots,
        "runs": stats.runs,
        "file_bytes": stats.file_bytes,
        "lost_blocks": stats.lost_blocks,
    })
}

/// Reads all files of preimages, and looks the preimage of each hash in the state up.
pub(crate) fn check(args: &CheckArgs, out: &Output) -> Result<Report, Failure> {
    let chain = open::chain_to_read(&args.db, out)?;
    let Some(preimages) = chain.preimages()? else {
        let dir = args.db.datadir.display().to_string();
        return Err(PreimagesError::None { dir }.into());
    };
    let bar = out.bar(0, "{spinner} {msg}");
    let (addresses, slots) = preimages.check(&mut |done| {
        if done.is_multiple_of(TELL) {
            bar.set_message(format!("{} preimages read", count(done)));
            bar.tick();
        }
    })?;
    bar.finish_and_clear();
    let view = StateAt::from(chain.db().view()?);
    let missing = missing(&view, preimages.lookup(), out)?;
    let lost = preimages.stats().lost_blocks;
    let table = Table::default()
        .row("block", view.block())
        .row("addresses in files", count(addresses))
        .row("slots in files", count(slots))
        .row("accounts", count(missing.accounts))
        .row("  of them by hash alone", count(missing.hashed_accounts))
        .row("slots of accounts", count(missing.slots))
        .row("  of them by hash alone", count(missing.hashed_slots))
        .row("blocks not added", count(lost));
    let hashed = missing.hashed_accounts + missing.hashed_slots;
    let json = json!({
        "whole": hashed == 0,
        "block_number": quantity(view.block().number),
        "block_hash": view.block().hash,
        "addresses": addresses,
        "slots": slots,
        "state_accounts": missing.accounts,
        "state_slots": missing.slots,
        "missing_addresses": missing.hashed_accounts,
        "missing_slots": missing.hashed_slots,
        "lost_blocks": lost,
    });
    let (title, exit) = match (hashed, lost) {
        (0, _) => (
            "The preimages are whole: each hash in the state has one.",
            Exit::Done,
        ),
        (_, 0) => ("Preimages are MISSING.", Exit::Damaged),
        _ => (
            "Preimages are MISSING: blocks had left the log before they were read.",
            Exit::Damaged,
        ),
    };
    Ok(Report {
        text: format!("{title}\n{table}"),
        json,
        exit,
    })
}

#[derive(Default)]
struct Found {
    accounts: u64,
    slots: u64,
    hashed_accounts: u64,
    hashed_slots: u64,
    /// Hashes of slots that are not looked up yet.
    pending: Vec<B256>,
}

impl Found {
    fn look_up_pending(&mut self, lookup: &mut PreimagesLookup) -> Result<(), Failure> {
        for key in lookup.slots_of(&self.pending) {
            self.hashed_slots += u64::from(key?.is_none());
        }
        self.pending.clear();
        Ok(())
    }
}

/// Counts the hashes in a state, and those without a preimage.
fn missing(view: &StateAt, mut lookup: PreimagesLookup, out: &Output) -> Result<Found, Failure> {
    let bar = out.bar(KEYS, KEYS_BAR);
    let (mut found, mut failure) = (Found::default(), None);
    view.each_account(&B256::ZERO, |path, _| {
        let mut account = || -> Result<(), Failure> {
            found.accounts += 1;
            found.hashed_accounts += u64::from(lookup.address_of(&path)?.is_none());
            let mut failure = None;
            view.each_slot_from(&path, &B256::ZERO, |slot, _| {
                found.slots += 1;
                found.pending.push(slot);
                if found.pending.len() == SLOTS_AT_ONCE {
                    failure = found.look_up_pending(&mut lookup).err();
                }
                match failure {
                    None => ControlFlow::Continue(()),
                    Some(_) => ControlFlow::Break(()),
                }
            })?;
            failure.map_or(Ok(()), Err)
        };
        if let Err(error) = account() {
            failure = Some(error);
            return ControlFlow::Break(());
        }
        if found.accounts.is_multiple_of(1_024) {
            bar.set_position(step(&path));
            let (accounts, slots) = (count(found.accounts), count(found.slots));
            bar.set_message(format!("{accounts} accounts, {slots} slots"));
        }
        ControlFlow::Continue(())
    })?;
    bar.finish_and_clear();
    match failure {
        Some(error) => Err(error),
        None => {
            found.look_up_pending(&mut lookup)?;
            Ok(found)
        }
    }
}
