//! A whole state as JSON, written and read: `db dump` and `db load`.

use super::{
    args::{
        database::DbArgs,
        dump::{DumpArgs, ExtendArgs, LoadArgs},
    },
    chain::{INIT_BAR, described, init_progress, refuse_to_overwrite},
    error::Failure,
    files::{self, Unfinished},
    node, open,
    output::{KEYS, KEYS_BAR, Output, Report, Table, count, quantity, step},
    preimages, storage_of,
};
use cambium::{
    Chain, ChainError, InitOptions,
    chain::{DumpProgress, FileError, StorageSource},
};
use serde_json::json;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::Path,
};

const BUFFER_BYTES: usize = 1 << 20;

pub(crate) fn dump(args: &DumpArgs, out: &Output) -> Result<Report, Failure> {
    let to_stdout = files::is_standard(&args.file);
    if to_stdout && out.is_json() {
        let why = "--json and - both write to standard output: name a file for the dump";
        return Err(Failure::BadEntry {
            why: why.to_owned(),
        });
    }
    let node = node::of_chain(&args.state.db, out)?;
    let (chain, view) = (node.chain()?, node.state_at(args.state.block)?);
    let file = files::output_name(&args.file);
    let mut unfinished = Unfinished::on_signals(out);
    let to: Box<dyn Write> = match to_stdout {
        true => Box::new(io::stdout()),
        false => {
            refuse_to_overwrite(&args.file, args.force)?;
            let created = unfinished.make(&args.file, || File::create(&args.file));
            Box::new(created.map_err(Failure::io(&args.file, "created"))?)
        }
    };
    let mut to = BufWriter::with_capacity(BUFFER_BYTES, to);
    let bar = out.bar(KEYS, KEYS_BAR);
    let done = chain.dump_state(
        &view,
        args.require_preimages,
        &file,
        &mut to,
        &mut |progress: DumpProgress| {
            bar.set_position(step(&progress.account));
            let (accounts, slots) = (count(progress.accounts), count(progress.slots));
            bar.set_message(format!("{accounts} accounts, {slots} slots"));
        },
    );
    bar.finish_and_clear();
    let done = done.map_err(|error| match error {
        // A broken pipe on standard output is not an error.
        ChainError::File(FileError::Write { source, .. })
            if to_stdout && source.kind() == io::ErrorKind::BrokenPipe =>
        {
            Failure::io(Path::new(&file), "written")(source)
        }
        error => error.into(),
    })?;
    unfinished.finish();
    let block = view.block();
    let missing = done.hashed_accounts + done.hashed_slots;
    if let Some(error) = &done.preimages_error {
        out.note(error);
    }
    if missing > 0 {
        out.note(format_args!(
            "{} addresses and {} slots are not known: their keys are hashes",
            count(done.hashed_accounts),
            count(done.hashed_slots)
        ));
    }
    if !done.has_block {
        out.note(format_args!(
            "block {block} has left the log: `cambium db load` can make no database of this dump"
        ));
    } else if chain.db().merge_interval().is_some() && block != chain.db().genesis() {
        out.note(
            "a root under the commitment `layered` depends on earlier blocks, too: `cambium db load` \
             can make no database of this dump",
        );
    }
    if to_stdout {
        return Ok(Report::new(String::new(), json!(null)));
    }
    let table = Table::default()
        .row("block", block)
        .row("accounts", count(done.accounts))
        .row("contracts", count(done.contracts))
        .row("slots", count(done.slots));
    let is_mpt = chain.db().merge_interval().is_none();
    let json = json!({
        "file": file,
        "block_number": quantity(block.number),
        "block_hash": block.hash,
        "accounts": done.accounts,
        "contracts": done.contracts,
        "slots": done.slots,
        "missing_addresses": done.hashed_accounts,
        "missing_slots": done.hashed_slots,
        "missing_preimages": missing,
        "loadable": done.has_block && is_mpt,
    });
    Ok(Report::new(format!("Wrote {file}.\n{table}"), json))
}

pub(crate) fn load(args: &LoadArgs, out: &Output) -> Result<Report, Failure> {
    if open::exists(&args.db)? && !open::is_unfinished(&args.db)? {
        return Err(Failure::HasDatabase(args.db.datadir.clone()));
    }
    open::refuse_other_things(&args.db.datadir)?;
    let from = files::input(&args.file)?;
    let db = preimages::beside(args.preimages, args.db.clone().into());
    let list = args.storage_of.as_deref();
    let options = InitOptions {
        db: open::options_to_write(&db),
        preimages: args.preimages,
        storage_of: list.map(storage_of::read).transpose()?,
    };
    let disk = open::disk(&args.db.datadir);
    let bar = out.bar(1, INIT_BAR);
    let chain = Chain::load_dump(disk, from, options, &mut init_progress(&bar));
    bar.finish_and_clear();
    let chain = chain.map_err(|error| match error {
        ChainError::File(error) => Failure::BadDump(error),
        error => error.into(),
    })?;
    let state_root = chain.db().view()?.state_root();
    Ok(described(&chain, state_root, "Created a database."))
}

/// Opened databases share the memory of the command.
const DATABASES: u64 = 3;

pub(crate) fn extend(args: &ExtendArgs, out: &Output) -> Result<Report, Failure> {
    let list = storage_of::read(&args.storage_of)?;
    let memory = args.db.memory / DATABASES;
    let of = |datadir: &Path| DbArgs {
        datadir: datadir.to_owned(),
        memory,
        ..args.db.clone()
    };
    let old = node::of_chain(&of(&args.db.datadir), out)?;
    let chain = old.chain()?;
    let view = match args.block {
        Some(block) => chain.db().view_of(old.state_at(block)?.block())?,
        None => match chain.finalized_view()? {
            Some(view) => view,
            None => chain.db().view()?,
        },
    };
    let from = args.from.as_deref();
    let from = from
        .map(|from| open::chain_to_read(&of(from), out))
        .transpose()?;
    #[cfg(feature = "cluster")]
    let shards = super::cluster::storage_of(&args.cluster)?;
    if args.to.symlink_metadata().is_ok() {
        return Err(Failure::NewExists(args.to.clone()));
    }
    let options = InitOptions {
        db: open::options(&of(&args.to)),
        preimages: false,
        storage_of: Some(list),
    };
    let mut unfinished = Unfinished::on_signals(out);
    unfinished
        .make(&args.to, || fs::create_dir(&args.to))
        .map_err(Failure::io(&args.to, "created"))?;
    let bar = out.bar(1, INIT_BAR);
    let source = from.as_ref().map(|from| from as &dyn StorageSource);
    #[cfg(feature = "cluster")]
    let source = source.or(shards.as_ref().map(|shards| shards as &dyn StorageSource));
    let disk = open::disk(&args.to);
    let extended = chain.extend(&view, disk, options, source, &mut init_progress(&bar));
    bar.finish_and_clear();
    let extended = extended?;
    unfinished.finish();
    for account in &extended.absent {
        out.note(format_args!(
            "the state has no contract {account} (keccak256 of its address): its storage is kept once it is created"
        ));
    }
    let state_root = extended.chain.db().view()?.state_root();
    let mut report = described(&extended.chain, state_root, "Created a partial database.");
    report.json["added"] = json!(extended.added);
    report.json["added_slots"] = json!(extended.added_slots);
    report.json["absent"] = json!(extended.absent);
    Ok(report)
}
