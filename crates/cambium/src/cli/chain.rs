//! Commands on a chain's blocks and state: init, export, unwind, get.

use super::{
    args::{
        accounts::GetArgs,
        blocks::SetHeadArgs,
        chain::{ExportArgs, InitArgs, UnwindArgs},
        database::{DbArgs, WriteArgs},
    },
    error::Failure,
    files::{self, Unfinished},
    node, open,
    output::{Output, Report, Table, bytes, count, quantity},
    preimages, storage_of,
};
use alloy_primitives::utils::format_ether;
use cambium::{
    B256, BlockId, BlockRef, Chain, ChainError, Db, InitOptions, KECCAK256_EMPTY, Node, StateError,
    U256,
    chain::{AccessListWriter, InitProgress},
    db::{KeptStorage, LoadProgress},
    keccak256,
};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use std::{
    iter,
    path::{Path, PathBuf},
};

pub(crate) fn init(args: &InitArgs, out: &Output) -> Result<Report, Failure> {
    let blocks = args.commitment.merge_interval()?;
    let db = preimages::beside(args.preimages, args.db.clone().into());
    let genesis = args.genesis().ok_or_else(|| Failure::BadEntry {
        why: "a genesis file is needed: `cambium init FILE --datadir DIR`".to_owned(),
    })?;
    let list = args.storage_of.as_deref();
    let first = FirstState {
        merge_interval: blocks,
        preimages: args.preimages,
        storage_of: list.map(storage_of::read).transpose()?,
    };
    let (chain, there) = open_or_init(genesis, &db, first, out)?;
    if chain.db().merge_interval() != blocks {
        return Err(other_commitment(chain.db().merge_interval()).into());
    }
    let (state_root, title) = match there {
        None => (chain.db().view()?.state_root(), "Created a database."),
        Some(state_root) => (
            state_root,
            "The database exists already, with the same genesis: nothing to do.",
        ),
    };
    Ok(described(&chain, state_root, title))
}

/// The error for a database that exists already, with another commitment than was asked for.
fn other_commitment(merge_interval: Option<u64>) -> StateError {
    let own = match merge_interval {
        None => "--commitment mpt".to_owned(),
        Some(blocks) => format!("--commitment layered --merge-interval {blocks}"),
    };
    StateError::BadOptions(format!("the database exists already, made with {own}"))
}

/// With what a database is created, besides its genesis.
#[derive(Clone, Default)]
pub(crate) struct FirstState {
    /// Blocks of an interval, if the database is to have the `layered` commitment.
    pub(crate) merge_interval: Option<u64>,
    /// Whether preimages are wanted.
    pub(crate) preimages: bool,
    /// The contracts whose storage is to be kept, if the database is to be partial.
    pub(crate) storage_of: Option<KeptStorage>,
}

/// Creates a database, or opens an existing one, which must have the same genesis. Returns the genesis state root of an
/// existing one.
pub(crate) fn open_or_init(
    genesis: &Path,
    args: &WriteArgs,
    first: FirstState,
    out: &Output,
) -> Result<(Chain, Option<B256>), Failure> {
    let make = || make(genesis, args, first.clone(), out);
    if !open::exists(&args.db)? {
        return Ok((make()?, None));
    }
    match open::chain_to_write(args, out) {
        // Initialization was interrupted before the first block was stored: start again.
        Err(Failure::Chain(error))
            if matches!(*error, ChainError::State(StateError::Unfinished)) =>
        {
            Ok((make()?, None))
        }
        Err(failure) => Err(failure),
        Ok(chain) => {
            preimages::refuse_without(first.preimages, &chain)?;
            storage_of::refuse_other(first.storage_of.as_ref(), chain.db())?;
            let bar = out.bar(1, INIT_BAR);
            let header =
                chain.check_genesis_from(files::input(genesis)?, &mut init_progress(&bar))?;
            bar.finish_and_clear();
            Ok((chain, Some(header.state_root)))
        }
    }
}

fn make(
    genesis: &Path,
    args: &WriteArgs,
    first: FirstState,
    out: &Output,
) -> Result<Chain, Failure> {
    let FirstState {
        merge_interval,
        preimages,
        storage_of,
    } = first;
    open::refuse_other_things(&args.db.datadir)?;
    // Opened first, so that nothing is created if it does not exist.
    let genesis = files::input(genesis)?;
    files::make_directory(&args.db.datadir)?;
    open::place_log(args)?;
    let bar = out.bar(1, INIT_BAR);
    let options = open::options_to_write(args);
    let made = Chain::init_from(
        open::disk(&args.db.datadir),
        genesis,
        InitOptions {
            db: merge_interval.map_or(options, |blocks| options.layered(blocks)),
            preimages,
            storage_of,
        },
        &mut init_progress(&bar),
    );
    bar.finish_and_clear();
    Ok(made?)
}

pub(crate) const INIT_BAR: &str = "{bar:30} {percent}%  {msg}";

/// Shows the progress of initializing a database on a bar with the template [`INIT_BAR`].
pub(crate) fn init_progress(bar: &ProgressBar) -> impl FnMut(InitProgress) {
    |progress| {
        let (done, of, what) = match progress {
            InitProgress::Accounts { done, of } => (done, of, "reading the accounts".to_owned()),
            InitProgress::State(LoadProgress { done, of }) => {
                let done_of = format!("{} of {}", count(done), count(of));
                (
                    done,
                    of,
                    format!("building the state: {done_of} accounts and slots"),
                )
            }
        };
        bar.set_length(of.max(done));
        bar.set_position(done);
        bar.set_message(what);
    }
}

pub(crate) fn described(chain: &Chain, state_root: B256, title: &str) -> Report {
    let (genesis, head) = (chain.db().genesis(), chain.db().head());
    let chain_id = chain.spec().chain_id;
    // A database may begin with a later block.
    let first = match genesis.number {
        0 => "genesis hash".to_owned(),
        number => format!("hash of block {number}"),
    };
    let table = Table::default()
        .row("chain id", chain_id)
        .row(first, genesis.hash)
        .row("state root", state_root)
        .row("head", head);
    let table = match chain.keeps_preimages() {
        true => table.row("preimages", "kept"),
        false => table,
    };
    let kept = chain.db().kept_storage();
    let kept = kept.map(|kept| kept.accounts().len());
    let table = match kept {
        None => table,
        Some(kept) => table.row(
            "storage kept",
            format!("of {} contracts", count(kept as u64)),
        ),
    };
    Report::new(
        format!("{title}\n{table}"),
        json!({
            "chain_id": quantity(chain_id),
            "genesis_number": quantity(genesis.number),
            "genesis_hash": genesis.hash,
            "state_root": state_root,
            "head_number": quantity(head.number),
            "head_hash": head.hash,
            "preimages": chain.keeps_preimages(),
            "storage_kept_of": kept,
        }),
    )
}

/// Fails if writing `file` would overwrite a regular file. Pipes and terminals are allowed.
pub(crate) fn refuse_to_overwrite(file: &Path, force: bool) -> Result<(), Failure> {
    if files::is_standard(file) {
        return Ok(());
    }
    match file.metadata() {
        Ok(there) if there.is_file() && !force => Err(Failure::Exists(file.to_owned())),
        _ => Ok(()),
    }
}

pub(crate) fn export(args: &ExportArgs, out: &Output) -> Result<Report, Failure> {
    let outputs = || {
        iter::once(&args.file)
            .chain(&args.access_lists)
            .chain(&args.updates)
            .map(PathBuf::as_path)
    };
    files::refuse_two_standard(outputs())?;
    files::refuse_one_file_twice(outputs())?;
    outputs().try_for_each(|file| files::refuse_mixed_output(file, out.is_json()))?;
    let node = node::of_chain(&args.db, out)?;
    let chain = node.chain()?;
    let number = |block| Ok::<_, Failure>(node.canonical_id(block)?.number);
    let from = match args.first.or(args.from) {
        Some(from) => number(from)?,
        None => chain.db().genesis().number + 1,
    };
    let to = number(args.last.or(args.to).unwrap_or(BlockRef::Latest))?;
    if from > to {
        return Err(Failure::NothingToExport { from, to });
    }
    // Both ends must exist before anything is written.
    chain.block_rlp(from)?;
    chain.block_rlp(to)?;
    outputs().try_for_each(|file| refuse_to_overwrite(file, args.force))?;
    let mut unfinished = Unfinished::on_signals(out);
    let mut writer = unfinished.make(&args.file, || files::blocks_to(&args.file))?;
    let lists = args.access_lists.as_deref();
    let lists = lists.map(|file| unfinished.make(file, || files::lists_to(file)));
    let mut lists = lists.transpose()?;
    let mut updates = match &args.updates {
        None => None,
        Some(file) => {
            let made = chain.state_updates(from, to)?;
            Some((made, unfinished.make(file, || files::updates_to(file))?))
        }
    };
    let bar = out.bar(
        to - from + 1,
        "{bar:30} {percent}%  block {human_pos} of {human_len}  ETA {eta}",
    );
    for number in from..=to {
        writer.write_rlp(&chain.block_rlp(number)?)?;
        if let Some(lists) = &mut lists {
            export_access_list(chain, number, lists)?;
        }
        if let Some((updates, writer)) = &mut updates {
            let update = updates.next().transpose()?;
            let head = chain.db().head();
            let (id, update) = update.ok_or(ChainError::NoSuchBlock { number, head })?;
            writer.write(id, &update)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let blocks = writer.finish()?;
    let file = files::output_name(&args.file);
    let mut text = format!("Wrote {} blocks, {from} to {to}, to {file}.", count(blocks));
    let mut json =
        json!({ "blocks": blocks, "from": quantity(from), "to": quantity(to), "file": file });
    if let (Some(writer), Some(file)) = (lists, &args.access_lists) {
        let (lists, file) = (writer.finish()?, files::output_name(file));
        if lists == 0 {
            out.note("none of the blocks has an access list: they are stored from Amsterdam on");
        }
        text += &format!("\nWrote {} access lists to {file}.", count(lists));
        json["access_lists"] = json!(lists);
        json["access_lists_file"] = json!(file);
    }
    if let (Some((_, writer)), Some(file)) = (updates, &args.updates) {
        let (updates, file) = (writer.finish()?, files::output_name(file));
        text += &format!("\nWrote {} state updates to {file}.", count(updates));
        json["updates"] = json!(updates);
        json["updates_file"] = json!(file);
    }
    unfinished.finish();
    if outputs().any(files::is_standard) {
        // Standard output receives nothing else.
        out.note(std::mem::take(&mut text));
    }
    Ok(Report::new(text, json))
}

fn export_access_list(
    chain: &Chain,
    number: u64,
    lists: &mut AccessListWriter,
) -> Result<(), Failure> {
    if let Some(list) = chain.kept_access_list(number)? {
        let head = chain.db().head();
        let id = chain.db().block_id(number)?;
        lists.write(id.ok_or(ChainError::NoSuchBlock { number, head })?, &list)?;
    }
    Ok(())
}

pub(crate) fn unwind(args: &UnwindArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::state_to_write(&args.db, out)?;
    let _follower = open::followed(&db)?;
    let from = db.head();
    let to = Node::of(db.clone()).canonical_id(args.to)?;
    let head = db.unwind(to.number)?;
    let state_root = db.view()?.state_root();
    let taken = from.number.saturating_sub(head.number);
    let table = Table::default()
        .row("head", head)
        .row("state root", state_root);
    Ok(Report::new(
        format!("Unwound {} blocks.\n{table}", count(taken)),
        json!({
            "blocks": taken,
            "head_number": quantity(head.number),
            "head_hash": head.hash,
            "state_root": state_root,
        }),
    ))
}

pub(crate) fn set_head(args: &SetHeadArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::state_to_write(&args.db, out)?;
    let _follower = open::followed(&db)?;
    let (before, node) = (db.head(), Node::of(db.clone()));
    let head = node.id(args.head)?;
    let below = |block| node.id_below(block, head);
    let safe = args.safe.map(below).transpose()?;
    let finalized = args.finalized.map(below).transpose()?;
    match (safe, finalized) {
        (None, None) => _ = db.set_head(head)?,
        _ => db.set_canonical(head, safe, finalized)?,
    }
    let state_root = db.view()?.state_root();
    let table = Table::default().row("head", head);
    let table = finality_rows(table, &db).row("state root", state_root);
    let mut json = json!({
        "head_number": quantity(head.number),
        "head_hash": head.hash,
        "before_number": quantity(before.number),
        "before_hash": before.hash,
        "state_root": state_root,
    });
    put_finality(&mut json, &db);
    let title = match before == head {
        true => format!("Block {head} stays the head."),
        false => format!("The head was block {before}."),
    };
    Ok(Report::new(format!("{title}\n{table}"), json))
}

fn finality_rows(table: Table, db: &Db) -> Table {
    let finality = db.finality();
    let text = |block: Option<BlockId>| match block {
        None => "none".to_owned(),
        Some(block) => block.to_string(),
    };
    table
        .row("safe", text(finality.safe))
        .row("finalized", text(finality.finalized))
}

fn put_finality(json: &mut Value, db: &Db) {
    let finality = db.finality();
    json["safe"] = json!(finality.safe.map(block_json));
    json["finalized"] = json!(finality.finalized.map(block_json));
}

fn block_json(block: BlockId) -> Value {
    json!({ "number": quantity(block.number), "hash": block.hash })
}

pub(crate) fn branches(args: &DbArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::db_to_read(args, out)?;
    let head = db.head();
    let branches = db.side_branches()?;
    let mut table = finality_rows(Table::default().row("head", head), &db);
    table = table.section(match branches.is_empty() {
        true => "There is no branch besides the canonical chain.",
        false => "Branches, and the block after which each leaves the canonical chain",
    });
    for branch in &branches {
        let blocks = branch.tip.number - branch.fork.number;
        let text = format!("{} blocks after block {}", count(blocks), branch.fork);
        table = table.row(branch.tip, text);
    }
    let listed = branches.iter().map(|branch| {
        json!({
            "tip": block_json(branch.tip),
            "fork": block_json(branch.fork),
        })
    });
    let mut json = json!({
        "head_number": quantity(head.number),
        "head_hash": head.hash,
        "branches": listed.collect::<Vec<_>>(),
    });
    put_finality(&mut json, &db);
    Ok(Report::new(table.to_string(), json))
}

pub(crate) fn get(args: &GetArgs, out: &Output) -> Result<Report, Failure> {
    let node = node::of_accounts(&args.state.db, out)?;
    let view = node.state_at(args.state.block)?;
    let path = keccak256(args.address);
    let account = view.account(&path)?;
    let (block, fields) = (view.block(), account.unwrap_or_default());
    let code_hash = account.map_or(KECCAK256_EMPTY, |account| account.code_hash);
    let bytecode = view.code(&code_hash)?;
    let code_bytes = bytecode.len();
    let mut json = json!({
        "address": args.address,
        "block_number": quantity(block.number),
        "block_hash": block.hash,
        "state_root": node.state_root(&view)?,
        "exists": account.is_some(),
        "nonce": quantity(fields.nonce),
        "balance": fields.balance,
        "code_hash": code_hash,
        "code_bytes": code_bytes,
    });
    let mut table = Table::default()
        .row("address", args.address)
        .row("block", block);
    table = match account {
        None => table.row("account", "does not exist"),
        Some(_) => table
            .row("nonce", count(fields.nonce))
            .row("balance", balance(fields.balance))
            .row("code", code(code_bytes, &code_hash)),
    };
    if args.code {
        json["code"] = json!(bytecode);
        return Ok(Report::new(bytecode.to_string(), json));
    }
    if let Some(key) = args.slot {
        let slot = keccak256(key.slot);
        let value = view.slot(&path, &slot);
        let value = value.map_err(|error| error.at_address(args.address))?;
        json["slot"] = json!(key.slot);
        json["value"] = json!(value);
        table = table
            .row("slot", key.slot)
            .row("value", format!("{value:#x} ({value})"));
    }
    Ok(Report::new(table.to_string(), json))
}

pub(crate) fn balance(wei: U256) -> String {
    format!("{wei} wei ({} ether)", format_ether(wei))
}

fn code(len: usize, hash: &cambium::B256) -> String {
    match len {
        0 => "none".to_owned(),
        len => format!("{}, hash {hash}", bytes(len as u64)),
    }
}
