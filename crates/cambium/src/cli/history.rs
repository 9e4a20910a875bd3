//! The history: made and checked by commands of its own, followed by imports, read by others.

use super::{
    args::{
        database::{DbArgs, WriteArgs},
        history::{HistoryBuildArgs, HistoryMode, NodesArgs},
    },
    error::Failure,
    followed::Followed,
    memory, open,
    output::{Output, Report, Table, bytes, count, quantity},
};
use cambium::{
    BlockId, Db, History, HistoryError, HistoryOptions,
    history::{HistoryFollower, HistoryStats, WholeNodes},
};
use serde_json::{Value, json};

/// Most blocks whose values a check compares with the block log.
const CHECKED_BLOCKS: u64 = 1_000;

/// Blocks that the log keeps without a history, unless `--keep-blocks` says how many: more than any
/// reorganization needs.
const NONE_KEEPS: u64 = 1_024;

fn options(args: &DbArgs, mode: Option<HistoryMode>) -> HistoryOptions {
    let keep_blocks = match mode {
        Some(HistoryMode::Kept { blocks, .. }) => blocks,
        _ => None,
    };
    HistoryOptions {
        keep_blocks,
        ..memory::of_history(args)
    }
}

/// The nodes that a new history has.
fn nodes_of(mode: HistoryMode, nodes: NodesArgs) -> Option<WholeNodes> {
    let archive = matches!(mode, HistoryMode::Kept { archive: true, .. });
    archive.then_some(nodes.nodes)
}

/// Refuses an archive if the history that is there has no nodes.
fn check_mode(mode: Option<HistoryMode>, history: &History) -> Result<(), HistoryError> {
    match mode {
        Some(HistoryMode::Kept { archive: true, .. }) if !history.has_nodes() => {
            Err(HistoryError::NoNodes)
        }
        _ => Ok(()),
    }
}

/// Whether an import follows a history: one that is there, or that `mode` asks for.
pub(crate) fn follows(mode: Option<HistoryMode>, args: &DbArgs) -> bool {
    match mode {
        Some(mode) => mode != HistoryMode::None,
        None => History::exists(&*open::disk(&args.datadir)).unwrap_or(true),
    }
}

/// The arguments for the database of an import: with few blocks in the log, if no old states are wanted.
pub(crate) fn keeping_blocks(mode: Option<HistoryMode>, args: &WriteArgs) -> WriteArgs {
    let mut args = args.clone();
    if mode == Some(HistoryMode::None) {
        args.keep_blocks = args.keep_blocks.or(Some(NONE_KEEPS));
    }
    args
}

/// Follows the history during an import, if there is one or `mode` asks for it.
pub(crate) fn follow(
    mode: Option<HistoryMode>,
    nodes: NodesArgs,
    args: &DbArgs,
    db: &Db,
    out: &Output,
) -> Result<Followed<HistoryFollower>, Failure> {
    match to_follow(mode, nodes, args, db) {
        Ok(Some(history)) => Ok(Followed::By(HistoryFollower::start(history, db.clone()))),
        Ok(None) => Ok(Followed::None),
        Err(error) if mode.is_none() => Ok(Followed::refused("history", &error, db, out)),
        Err(error) => Err(error.into()),
    }
}

/// The history that is to follow the chain, if there is one or `mode` asks for it.
pub(crate) fn to_follow(
    mode: Option<HistoryMode>,
    nodes: NodesArgs,
    args: &DbArgs,
    db: &Db,
) -> Result<Option<History>, HistoryError> {
    if mode == Some(HistoryMode::None) {
        return Ok(None);
    }
    let disk = open::disk(&args.datadir);
    let opened = match (History::exists(&*disk), mode) {
        (Ok(false), None) => return Ok(None),
        (Ok(false), Some(mode)) => {
            let (first, nodes) = (db.head().number, nodes_of(mode, nodes));
            History::create(disk, db, first, nodes, options(args, Some(mode)))
        }
        (Ok(true), mode) => History::open(disk, db, options(args, mode))
            .and_then(|history| check_mode(mode, &history).map(|()| history)),
        (Err(error), _) => Err(error),
    };
    opened.map(Some)
}

pub(crate) fn build(args: &HistoryBuildArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::state_to_read(&args.db, out)?;
    let disk = open::disk(&args.db.datadir);
    let mode = Some(args.history);
    let options = HistoryOptions {
        // The command has no other use of this memory.
        trie_bytes: args.db.memory / 2,
        ..options(&args.db, mode)
    };
    let history = match History::exists(&*disk)? {
        true => History::open(disk, &db, options)?,
        false => {
            let nodes = nodes_of(args.history, args.nodes);
            // Nodes are made from the newest block to the oldest.
            let first = match nodes {
                Some(_) => db.head().number,
                None => match args.from {
                    Some(from) => from,
                    None => db.readable_from()?,
                },
            };
            History::create(disk, &db, first, nodes, options)?
        }
    };
    check_mode(mode, &history)?;
    let upto = catch_up(&history, &db, out)?;
    extend_down(&history, &db, args.from, out)?;
    history.flush()?;
    history.merge()?;
    let (first, has_nodes) = (history.blocks().0, history.has_nodes());
    let (stats, blocks) = (history.stats(), upto.number - first.number);
    let table = Table::default()
        .row("first block", first)
        .row("last block", upto)
        .row("blocks", count(blocks))
        .row(
            "proofs",
            if has_nodes {
                "yes"
            } else {
                "no: it has values alone"
            },
        )
        .row("files", files(&stats));
    let json = json!({
        "first_number": quantity(first.number),
        "last_number": quantity(upto.number),
        "last_hash": upto.hash,
        "blocks": blocks,
        "proofs": has_nodes,
        "history": stats_json(&stats),
    });
    Ok(Report::new(table.to_string(), json))
}

/// Adds the blocks up to the head.
fn catch_up(history: &History, db: &Db, out: &Output) -> Result<BlockId, Failure> {
    let (before, head) = (history.blocks().1.number, db.head().number);
    let bar = out.bar(
        head.saturating_sub(before),
        "{percent:>3}% {wide_bar} {msg}  ETA {eta}",
    );
    let mut failed = None;
    let has_nodes = history.has_nodes();
    let upto = history.catch_up(db, &mut |so_far| {
        bar.set_position(match has_nodes {
            true => so_far.head.number - so_far.at,
            false => so_far.at.saturating_sub(before),
        });
        bar.set_message(format!("block {}", count(so_far.at)));
        // Files are merged when there are some new ones.
        if !has_nodes
            && so_far.at.is_multiple_of(256)
            && let Err(error) = history.merge()
        {
            failed = Some(error);
        }
        failed.is_none()
    })?;
    bar.finish_and_clear();
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(upto),
    }
}

/// Adds older blocks, down to that above `from`, or to the end of the log.
fn extend_down(history: &History, db: &Db, from: Option<u64>, out: &Output) -> Result<(), Failure> {
    let first = history.blocks().0.number;
    let to = match from {
        Some(from) => from,
        None => db.readable_from()?,
    };
    let bar = out.bar(
        first.saturating_sub(to),
        "{percent:>3}% {wide_bar} {msg}  ETA {eta}",
    );
    let extended = history.extend_down(db, to, &mut |at| {
        bar.set_position(first - at);
        bar.set_message(format!("block {}", count(at)));
        true
    });
    bar.finish_and_clear();
    match extended {
        // An import beside this has shortened the log meanwhile.
        Err(HistoryError::LogEnds { .. }) if from.is_none() => Ok(()),
        extended => Ok(extended.map(drop)?),
    }
}

pub(crate) fn check(args: &DbArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::state_to_read(args, out)?;
    let disk = open::disk_to_read(args)?;
    let history = History::open_read_only(disk, &db, options(args, None))?;
    let checked = history.check()?;
    if db.block_id(history.blocks().1.number)? != Some(history.blocks().1) {
        // The chain has left its newest block, which is taken back here in memory alone.
        history.catch_up(&db, &mut |_| true)?;
    }
    let (first, upto) = history.blocks();
    let blocks = upto.number - first.number;
    let step = blocks.div_ceil(CHECKED_BLOCKS).max(1) as usize;
    let (mut compared, mut values, mut proved) = (0u64, 0, 0u64);
    let bar = out.bar(blocks, "{percent:>3}% {wide_bar} block {pos} of {len}");
    for number in (first.number + 1..=upto.number).step_by(step) {
        if let Some(checked) = history.check_block(&db, number)? {
            compared += 1;
            values += checked;
        }
        proved += u64::from(history.check_nodes(&db, number - 1)?);
        bar.set_position(number - first.number);
    }
    bar.finish_and_clear();
    let table = Table::default()
        .row("first block", first)
        .row("last block", upto)
        .row("files", count(checked.files))
        .row("entries", count(checked.entries))
        .row("blocks compared", count(compared))
        .row("values compared", count(values))
        .row("states proved", count(proved));
    let json = json!({
        "sound": true,
        "first_number": quantity(first.number),
        "last_number": quantity(upto.number),
        "files": checked.files,
        "entries": checked.entries,
        "blocks_compared": compared,
        "values_compared": values,
        "states_proved": proved,
    });
    let text = format!("The history is sound.\n{table}");
    Ok(Report::new(text, json))
}

fn files(stats: &HistoryStats) -> String {
    format!(
        "{}, {} with {} old values",
        count(stats.files),
        bytes(stats.file_bytes),
        count(stats.file_entries)
    )
}

fn stats_json(stats: &HistoryStats) -> Value {
    json!({
        "files": stats.files,
        "file_bytes": stats.file_bytes,
        "entries": stats.file_entries,
        "index_bytes": stats.index_bytes,
        "written_bytes": stats.written_bytes,
    })
}
