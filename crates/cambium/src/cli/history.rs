//! The history: made and checked by commands of its own, followed by imports, read by others.

use super::{
    args::{DbArgs, HistoryBuildArgs, HistoryMode, StateArgs, WriteArgs},
    error::Failure,
    open,
    output::{Output, Report, Table, bytes, count},
};
use cambium::{
    B256, Db, FlatHistory, Follower, HistoryError, HistoryOptions, HistoryStats, HistoryView,
    StateError,
};
use serde_json::{Value, json};

/// Most blocks whose values a check compares with the block log.
const CHECKED_BLOCKS: u64 = 1_000;

/// Blocks that the log keeps without a history, unless `--keep-blocks` says how many: more than any
/// reorganization needs.
const NONE_KEEPS: u64 = 1_024;

/// Memory of the history, of `memory` bytes for all.
fn memory_of(memory: u64) -> u64 {
    (memory / 16).clamp(1 << 20, 256 << 20)
}

fn options(args: &DbArgs) -> HistoryOptions {
    HistoryOptions {
        memory_bytes: memory_of(args.memory),
        ..HistoryOptions::default()
    }
}

/// The arguments for the database of an import: with less memory, if it follows a history; with few
/// blocks in the log, if no old states are wanted.
pub(crate) fn beside(mode: Option<HistoryMode>, args: &WriteArgs) -> Result<WriteArgs, Failure> {
    let follows = match mode {
        Some(mode) => mode == HistoryMode::Flat,
        None => FlatHistory::exists(&*open::disk(&args.db.datadir))?,
    };
    let mut args = args.clone();
    if mode == Some(HistoryMode::None) {
        args.keep_blocks = args.keep_blocks.or(Some(NONE_KEEPS));
    }
    if follows {
        args.db.memory -= memory_of(args.db.memory).min(args.db.memory);
    }
    Ok(args)
}

/// Follows the history during an import, if there is one or `mode` asks for it.
pub(crate) fn follow(
    mode: Option<HistoryMode>,
    args: &DbArgs,
    db: &Db,
    out: &Output,
) -> Result<Option<Follower>, Failure> {
    let disk = open::disk(&args.datadir);
    let exists = FlatHistory::exists(&*disk)?;
    let history = match (mode, exists) {
        (Some(HistoryMode::None), _) | (None, false) => return Ok(None),
        (Some(HistoryMode::Flat), false) => {
            FlatHistory::create(disk, db, db.head().number, options(args))
        }
        (_, true) => FlatHistory::open(disk, db, options(args)),
    };
    match history {
        Ok(history) => Ok(Some(Follower::start(history, db.clone()))),
        Err(error) if mode.is_none() => {
            out.note(format_args!(
                "the history does not follow this import: {error}"
            ));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn build(args: &HistoryBuildArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::db_to_read(&args.db, out)?;
    let disk = open::disk(&args.db.datadir);
    let history = match FlatHistory::exists(&*disk)? {
        true => FlatHistory::open(disk, &db, options(&args.db))?,
        false => {
            let oldest = db.stats()?.kept_from;
            FlatHistory::create(disk, &db, args.from.unwrap_or(oldest), options(&args.db))?
        }
    };
    let (first, before) = history.blocks();
    if args.from.is_some_and(|from| from < first.number) {
        out.note(format_args!(
            "the history begins at block {}, and is only made longer towards the head: remove the \
             folder `history` to begin it at an older block",
            first.number
        ));
    }
    let head = db.head().number;
    let bar = out.bar(
        head.saturating_sub(before.number),
        "{percent:>3}% {wide_bar} {msg}  ETA {eta}",
    );
    let mut failed = None;
    let upto = history.catch_up(&db, &mut |so_far| {
        bar.set_position(so_far.upto.number - before.number);
        bar.set_message(format!("block {}", count(so_far.upto.number)));
        // Files are merged when there are some new ones.
        if so_far.upto.number.is_multiple_of(256)
            && let Err(error) = history.merge()
        {
            failed = Some(error);
        }
        failed.is_none()
    })?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    history.flush()?;
    history.merge()?;
    bar.finish_and_clear();
    let (stats, blocks) = (history.stats(), upto.number.saturating_sub(before.number));
    let table = Table::default()
        .row("first block", first)
        .row("last block", upto)
        .row("blocks added", count(blocks))
        .row("files", files(&stats));
    let json = json!({
        "first_number": first.number,
        "last_number": upto.number,
        "last_hash": upto.hash,
        "blocks": blocks,
        "history": stats_json(&stats),
    });
    Ok(Report::new(table.to_string(), json))
}

pub(crate) fn check(args: &DbArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::db_to_read(args, out)?;
    let disk = open::disk_to_read(args)?;
    let history = FlatHistory::open_read_only(disk, &db, options(args))?;
    let checked = history.check()?;
    let (first, upto) = history.blocks();
    let blocks = upto.number - first.number;
    let step = blocks.div_ceil(CHECKED_BLOCKS).max(1) as usize;
    let (mut compared, mut values) = (0u64, 0);
    let bar = out.bar(blocks, "{percent:>3}% {wide_bar} block {pos} of {len}");
    for number in (first.number + 1..=upto.number).step_by(step) {
        if let Some(checked) = history.check_block(&db, number)? {
            compared += 1;
            values += checked;
        }
        bar.set_position(number - first.number);
    }
    bar.finish_and_clear();
    let table = Table::default()
        .row("first block", first)
        .row("last block", upto)
        .row("files", count(checked.files))
        .row("entries", count(checked.entries))
        .row("blocks compared", count(compared))
        .row("values compared", count(values));
    let json = json!({
        "sound": true,
        "first_number": first.number,
        "last_number": upto.number,
        "files": checked.files,
        "entries": checked.entries,
        "blocks_compared": compared,
        "values_compared": values,
    });
    let text = format!("The history is sound.\n{table}");
    Ok(Report::new(text, json))
}

/// The state that the arguments name: at the head, near it from the block log, and else from the
/// history, if there is one.
pub(crate) fn view(args: &StateArgs, db: &Db, out: &Output) -> Result<HistoryView, Failure> {
    let Some(number) = args.block else {
        return Ok(db.view()?.into());
    };
    let disk = open::disk_to_read(&args.db)?;
    let of_history = FlatHistory::open_read_only(disk, db, options(&args.db))
        .and_then(|history| history.view_at(db, number));
    match of_history {
        Ok(view) => Ok(view),
        Err(HistoryError::NoHistory { .. } | HistoryError::NotKept { .. }) => {
            Ok(db.view_at(number)?.into())
        }
        Err(HistoryError::State(error)) => Err(error.into()),
        Err(error) => {
            out.note(&error);
            Ok(db.view_at(number)?.into())
        }
    }
}

/// The state root of a view's block; `None` if the block has left the log.
pub(crate) fn state_root(db: &Db, view: &HistoryView) -> Result<Option<B256>, Failure> {
    match db.block(view.block().number) {
        Err(StateError::NotKept { .. }) => Ok(None),
        block => Ok(block?.map(|block| block.state_root)),
    }
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
