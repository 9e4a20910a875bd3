//! Commands on the database itself: stats, check, backup, repair.

use super::{
    args::{
        database::DbArgs,
        maintenance::{BackupArgs, CheckArgs, RepairArgs},
    },
    error::{Exit, Failure},
    figures, history, index, open,
    output::{Output, Report, Table, bytes, count, quantity},
    preimages,
};
use cambium::{
    BlockId, Chain, HistoryError,
    db::{
        BackupParts, BackupSizes, CheckProgress, CheckReport, RepairProgress, RepairReport, Stats,
    },
    history::HistoryCopy,
};
use serde_json::{Value, json};
use std::{fmt::Display, ops::RangeInclusive, path::Path};

/// Number of places of damage that are printed for people.
const DAMAGE_SHOWN: usize = 20;

/// Number of parts of the state that a check reports.
const STATE_PARTS: u64 = 256;

pub(crate) fn stats(args: &DbArgs, out: &Output) -> Result<Report, Failure> {
    let db = open::db_to_read(args, out)?;
    let stats = db.stats()?;
    let genesis = db.genesis();
    let chain_id = Chain::rules_of(&db)?.map(|spec| spec.chain_id);
    let (indexed, index_error) = index::stats(args, &db, out)?;
    let mut table = figures::rows(&db, stats_table(&stats, genesis, chain_id));
    if let Some(indexed) = &indexed {
        table = index::stats_rows(table.section("Blocks, transactions and logs"), indexed);
    }
    let (known, preimages_error) = preimages::stats(&db, out);
    if let Some(known) = &known {
        table = preimages::stats_rows(table.section("Preimages"), known);
    }
    let mut json = stats_json(&stats, genesis, chain_id, figures::json(&db));
    json["index"] = indexed.as_ref().map_or(Value::Null, index::stats_json);
    json["index_error"] = json!(index_error);
    json["preimages"] = known.as_ref().map_or(Value::Null, preimages::stats_json);
    json["preimages_error"] = json!(preimages_error);
    Ok(Report::new(table.to_string(), json))
}

fn stats_table(stats: &Stats, genesis: BlockId, chain_id: Option<u64>) -> Table {
    let rules = chain_id.map_or_else(
        || "none: created with the library, without fork rules".to_owned(),
        |id| id.to_string(),
    );
    let merging = stats.merging.map(|merging| {
        let (size, done) = (bytes(merging.bytes as u64), merging.parts_done);
        format!("{size}, {done} of {} parts written", merging.parts)
    });
    Table::default()
        .row("chain id", rules)
        .row("genesis", genesis)
        .row("head", stats.head)
        .row("snapshot", stats.snapshot)
        .row("blocks above it", count(stats.layers as u64))
        .row("blocks kept", kept(stats))
        .section("On disk")
        .row("pages", count(stats.pages))
        .row("segments", segments(stats))
        .row(
            "in use",
            format!("{:.0} % of their bytes", 100.0 * live_share(stats)),
        )
        .row("unreadable pages", count(stats.unreadable_pages as u64))
        .row("contract codes", count(stats.codes as u64))
        .row("long values", values(stats))
        .row("input and output", &stats.disk)
        .section("In memory")
        .row("index", index(stats))
        .row("values of layers", bytes(stats.overlay_bytes as u64))
        .row("tries of layers", bytes(stats.delta_bytes as u64))
        .row(
            "being merged",
            merging.unwrap_or_else(|| "nothing".to_owned()),
        )
        .row("value cache", bytes(stats.value_cache_bytes as u64))
        .row("code cache", bytes(stats.code_cache_bytes))
        .row("page cache", bytes(stats.page_cache_bytes))
        .row("kept by views", bytes(stats.pinned_bytes as u64))
        .section("Since opening")
}

fn stats_json(
    stats: &Stats,
    genesis: BlockId,
    chain_id: Option<u64>,
    figures: figures::Json,
) -> Value {
    json!({
        "chain_id": chain_id.map(quantity),
        "genesis_number": quantity(genesis.number),
        "genesis_hash": genesis.hash,
        "head_number": quantity(stats.head.number),
        "head_hash": stats.head.hash,
        "snapshot_number": quantity(stats.snapshot.number),
        "snapshot_hash": stats.snapshot.hash,
        "layers": stats.layers,
        "kept_from": quantity(stats.kept_from),
        "overlay_bytes": stats.overlay_bytes,
        "delta_bytes": stats.delta_bytes,
        "merging": stats.merging.map(|merging| json!({
            "bytes": merging.bytes,
            "parts_done": merging.parts_done,
            "parts": merging.parts,
        })),
        "index_bytes": stats.index_bytes,
        "index_bytes_on_disk": stats.index_bytes_on_disk,
        "pages": stats.pages,
        "value_cache_bytes": stats.value_cache_bytes,
        "code_cache_bytes": stats.code_cache_bytes,
        "page_cache_bytes": stats.page_cache_bytes,
        "pinned_bytes": stats.pinned_bytes,
        "restored_states": stats.restored_states,
        "held_snapshots": stats.held_snapshots,
        "orphan_blocks": stats.orphan_blocks,
        "unreadable_pages": stats.unreadable_pages,
        "segments": stats.segments,
        "segment_bytes": stats.segment_bytes,
        "segment_live_bytes": stats.segment_live_bytes,
        "segment_live_ratio": live_share(stats),
        "segments_by_live": stats.segments_by_live,
        "codes": stats.codes,
        "value_segments": stats.values.segments,
        "value_bytes": stats.values.bytes,
        "value_live_bytes": stats.values.live_bytes,
        "disk": {
            "batch_reads": stats.disk.batch_reads,
            "no_uring_because": stats.disk.no_uring_because,
            "is_direct": stats.disk.is_direct,
            "not_direct_because": stats.disk.not_direct_because,
        },
        "counters": figures.counters,
        "commit_latency": figures.commit_latency,
        "seal_waits": figures.seal_waits,
    })
}

/// Fraction of the segments' bytes that is in use.
fn live_share(stats: &Stats) -> f64 {
    match stats.segment_bytes {
        0 => 1.0,
        all => stats.segment_live_bytes as f64 / all as f64,
    }
}

/// The blocks that are kept: their number, and the first one.
fn kept(stats: &Stats) -> String {
    match stats.head.number.checked_sub(stats.kept_from) {
        Some(blocks) => format!("{}, from {}", count(blocks + 1), count(stats.kept_from)),
        None => "none".to_owned(),
    }
}

/// The memory of the index, and the size of its part on disk.
fn index(stats: &Stats) -> String {
    let memory = bytes(stats.index_bytes as u64);
    match stats.index_bytes_on_disk {
        0 => memory,
        on_disk => format!(
            "{memory}; its lower levels, {}, are on disk",
            bytes(on_disk)
        ),
    }
}

/// Number and size of the segments. Those that are less than 90 % in use are counted by tenths.
fn segments(stats: &Stats) -> String {
    let size = bytes(stats.segment_bytes);
    let by_live = (0..).step_by(10).zip(stats.segments_by_live);
    let sparse: Vec<_> = by_live
        .filter(|(percent, segments)| *segments > 0 && *percent < 90)
        .map(|(percent, segments)| format!("{segments} to {percent}-{} %", percent + 10))
        .collect();
    let sparse = match sparse.is_empty() {
        true => String::new(),
        false => format!("; in use are {}", sparse.join(", ")),
    };
    format!("{} ({size}){sparse}", count(stats.segments as u64))
}

/// Size of the values that are stored apart from their leaves, and of the segments that hold them.
fn values(stats: &Stats) -> String {
    let values = &stats.values;
    let (live, all) = (bytes(values.live_bytes), bytes(values.bytes));
    format!(
        "{live} in {} segments ({all})",
        count(values.segments as u64)
    )
}

pub(crate) fn check(args: &CheckArgs, out: &Output) -> Result<Report, Failure> {
    if args.history {
        return history::check(&args.db, out);
    }
    if args.preimages {
        return preimages::check(args, out);
    }
    let db = open::db_to_read(&args.db, out)?;
    let bar = out.bar(STATE_PARTS, "{bar:30} {percent}%  {msg}");
    let report = db.check(&mut |progress| {
        let (done, of, what) = match progress {
            CheckProgress::State { parts, leaves } => (
                parts as u64,
                STATE_PARTS,
                format!("state: {} leaves", count(leaves)),
            ),
            CheckProgress::Codes { done, of } => (done as u64, of as u64, "codes".to_owned()),
            CheckProgress::Blocks { done, of } => {
                (done, of, format!("block {} of {}", count(done), count(of)))
            }
        };
        bar.set_length(of);
        bar.set_position(done);
        bar.set_message(what);
    })?;
    bar.finish_and_clear();
    Ok(checked(&report, db.stats()?.snapshot))
}

fn checked(report: &CheckReport, snapshot: BlockId) -> Report {
    let sound = report.damage.is_empty();
    let table = Table::default()
        .row("snapshot", snapshot)
        .row("accounts in pages", count(report.accounts))
        .row("slots in pages", count(report.slots))
        .row("entries in pages", count(report.entries))
        .row("pages", count(report.pages))
        .row("codes", count(report.codes))
        .row("long values", count(report.values))
        .row("blocks", count(report.blocks));
    let mut text = if sound {
        "The database is sound: all roots match the stored data.".to_owned()
    } else {
        let number = report.damage.len() as u64 + report.more_damage;
        let shown = report.damage.iter().take(DAMAGE_SHOWN);
        // The advice is printed once, below.
        let shown = shown.map(|damage| {
            damage
                .split("; `cambium db repair`")
                .next()
                .unwrap_or(damage)
        });
        let mut damage = shown.collect::<Vec<_>>().join("\n  ");
        let more = number.saturating_sub(DAMAGE_SHOWN as u64);
        if more > 0 {
            damage.push_str(&format!("\n  and {} more: see --json", count(more)));
        }
        let places = if number == 1 { "place" } else { "places" };
        format!(
            "The database is DAMAGED in {} {places}:\n  {damage}\n\
             `cambium db repair --dry-run` shows what can be restored, and what must be imported \
             again. Data read:",
            count(number)
        )
    };
    text.push_str(&format!("\n{table}"));
    Report {
        text,
        json: json!({
            "sound": sound,
            "snapshot_number": quantity(snapshot.number),
            "snapshot_hash": snapshot.hash,
            "accounts": report.accounts,
            "slots": report.slots,
            "entries": report.entries,
            "pages": report.pages,
            "codes": report.codes,
            "values": report.values,
            "blocks": report.blocks,
            "damage": report.damage,
            "more_damage": report.more_damage,
        }),
        exit: if sound { Exit::Done } else { Exit::Damaged },
    }
}

pub(crate) fn backup(args: &BackupArgs, out: &Output) -> Result<Report, Failure> {
    let (from, to) = (open::disk_to_read(&args.db)?, open::disk(&args.to));
    refuse_inside(&args.to, &args.db.datadir)?;
    if args.to.is_file() {
        return Err(Failure::NoDirectory(args.to.clone()));
    }
    let bar = out.bar(0, "{spinner} {msg}");
    let options = open::options(&args.db);
    let mut progress = |sizes: &BackupSizes| {
        let (shared, copied) = (bytes(sizes.linked_bytes), bytes(sizes.copied_bytes));
        bar.set_message(format!("{shared} shared, {copied} copied"));
        bar.tick();
    };
    let parts = BackupParts {
        history: !args.no_history,
        index: !args.no_index,
        preimages: !args.no_preimages,
    };
    let done = cambium::db::backup_with_parts(&from, &to, options, parts, &mut progress);
    let done = done.map_err(|error| match error {
        HistoryError::State(error) => error.into(),
        error => Failure::HistoryCopy(Box::new(error)),
    })?;
    bar.finish_and_clear();
    let sizes = done.sizes();
    let (head, history) = (done.database.head, done.history);
    // The database does not need them, and its copy is whole.
    let (index, index_error) = without_error("an index", done.index, out);
    let (preimages, preimages_error) = without_error("preimages", done.preimages, out);
    let indexed = index.map(|index| index.upto.map_or(0, |upto| upto.number));
    let of = |files, size| format!("{} files of {}", count(files), bytes(size));
    let table = Table::default()
        .row("copy", args.to.display())
        .row("head", head)
        .row(
            "history",
            history
                .as_ref()
                .map_or_else(|| "none".to_owned(), history_blocks),
        )
        .row(
            "index",
            indexed.map_or_else(|| "none".to_owned(), |upto| format!("up to block {upto}")),
        )
        .row("preimages", if preimages { "copied" } else { "none" })
        .row("shared", of(sizes.linked_files, sizes.linked_bytes))
        .row("copied", of(sizes.copied_files, sizes.copied_bytes));
    let exit = match index_error.is_some() || preimages_error.is_some() {
        true => Exit::CouldNotBeDone,
        false => Exit::Done,
    };
    Ok(Report {
        text: table.to_string(),
        exit,
        json: json!({
            "copy": args.to.display().to_string(),
            "head_number": quantity(head.number),
            "head_hash": head.hash,
            "history": history.as_ref().map(history_json),
            "index_upto_number": indexed.map(quantity),
            "index_error": index_error,
            "preimages": preimages,
            "preimages_error": preimages_error,
            "shared_files": sizes.linked_files,
            "shared_bytes": sizes.linked_bytes,
            "copied_files": sizes.copied_files,
            "copied_bytes": sizes.copied_bytes,
        }),
    })
}

/// Returns the copy beside the database, or the reason why it was not made.
fn without_error<T: Default>(
    what: &str,
    copied: Result<T, impl Display>,
    out: &Output,
) -> (T, Option<String>) {
    match copied {
        Ok(copied) => (copied, None),
        Err(error) => {
            out.error(format_args!(
                "the copy is whole, but without {what}: {error}"
            ));
            (T::default(), Some(error.to_string()))
        }
    }
}

/// Refuses a copy in the directory of the database itself.
fn refuse_inside(copy: &Path, datadir: &Path) -> Result<(), Failure> {
    let Ok(datadir) = datadir.canonicalize() else {
        return Ok(());
    };
    // The copy itself need not be there yet.
    let there = copy
        .ancestors()
        .map(|dir| match dir.as_os_str().is_empty() {
            true => Path::new("."),
            false => dir,
        });
    let found = there.filter_map(|dir| dir.canonicalize().ok()).next();
    match found.is_some_and(|dir| dir.starts_with(&datadir)) {
        true => Err(Failure::BackupInside(copy.to_owned())),
        false => Ok(()),
    }
}

/// The blocks of a history that was copied.
fn history_blocks(history: &HistoryCopy) -> String {
    let HistoryCopy { first, upto, sizes } = history;
    format!(
        "blocks {} to {}, {} files of {}",
        count(first.number),
        count(upto.number),
        count(sizes.linked_files + sizes.copied_files),
        bytes(sizes.linked_bytes + sizes.copied_bytes)
    )
}

fn history_json(history: &HistoryCopy) -> Value {
    let HistoryCopy { first, upto, sizes } = history;
    json!({
        "first_number": quantity(first.number),
        "last_number": quantity(upto.number),
        "last_hash": upto.hash,
        "files": sizes.linked_files + sizes.copied_files,
        "bytes": sizes.linked_bytes + sizes.copied_bytes,
    })
}

pub(crate) fn repair(args: &RepairArgs, out: &Output) -> Result<Report, Failure> {
    let disk = open::existing(&args.db)?;
    let run = |is_trial| {
        let bar = out.bar(0, "{spinner} {msg}");
        let repaired =
            cambium::db::repair(&disk, open::options(&args.db), is_trial, &mut |progress| {
                let RepairProgress { step, done, of } = progress;
                let far = match of {
                    0 => String::new(),
                    of => format!(": {} of {}", count(done), count(of)),
                };
                bar.set_message(format!("{step}{far}"));
                bar.tick();
            });
        bar.finish_and_clear();
        repaired
    };
    // The plan is printed before anything is changed.
    let mut plan = run(true)?;
    // Blocks that are missing are the operator's to import.
    if args.dry_run || plan.is_sound() {
        plan.is_trial = args.dry_run;
        return Ok(repaired(&plan));
    }
    out.note(format!("the repair will do this:\n{}", findings(&plan)));
    Ok(repaired(&run(false)?))
}

fn findings(report: &RepairReport) -> String {
    let lines = report.findings.iter().map(|finding| {
        let mark = match finding.is_repaired {
            true => "mended",
            false => "LOST",
        };
        format!("  {}\n    {mark}: {}", finding.damage, finding.remedy)
    });
    let mut lines: Vec<_> = lines.collect();
    lines.push(match &report.missing {
        Some(missing) => format!(
            "The head is block {}. Import blocks {} to {} again: later blocks are still stored, and \
             are used then.",
            report.head,
            missing.start(),
            missing.end()
        ),
        None => match report.import_from() {
            Some(next) => format!(
                "The head is block {}. Import the chain again from block {next} on: blocks that are \
                 still stored are skipped.",
                report.head
            ),
            None => format!("The head is block {}.", report.head),
        },
    });
    if report.is_head_lost() {
        lines.push(
            "The head's own record is lost, and nothing can be built on it until its block is given again, by the same \
             import as the block after it. A block below it does as well, and the genesis file for the first one: \
             `cambium import --genesis FILE`."
                .to_owned(),
        );
    }
    if !report.lost_history.is_empty() {
        let ranges = report.lost_history.iter();
        let ranges = ranges.map(|range| match range.start() == range.end() {
            true => range.start().to_string(),
            false => format!("{} to {}", range.start(), range.end()),
        });
        lines.push(format!(
            "The records of blocks {} are lost. The state does not need them, but these blocks and \
             the states before them are unavailable, unless the chain is imported into a new \
             directory.",
            ranges.collect::<Vec<_>>().join(", ")
        ));
    }
    if !report.copies.is_empty() {
        let copies = report.copies.join("\n  ");
        lines.push(format!(
            "Data that is cut off or overwritten is kept in:\n  {copies}"
        ));
    }
    lines.join("\n")
}

fn repaired(report: &RepairReport) -> Report {
    let text = match (report.is_sound(), report.is_trial) {
        (true, _) if report.is_whole() => format!(
            "Nothing is damaged, and the head is block {}. Nothing was changed.",
            report.head
        ),
        (true, _) => format!(
            "No file is damaged, but blocks are missing. Nothing was changed.\n{}",
            findings(report)
        ),
        (false, true) => format!(
            "Damage, and what a repair would do (nothing was changed):\n{}",
            findings(report)
        ),
        (false, false) => format!("Damage, and what was done:\n{}", findings(report)),
    };
    let found = report.findings.iter().map(|finding| {
        json!({
            "damage": finding.damage,
            "remedy": finding.remedy,
            "mended": finding.is_repaired,
        })
    });
    let range =
        |range: &RangeInclusive<u64>| json!([quantity(*range.start()), quantity(*range.end())]);
    let json = json!({
        "dry_run": report.is_trial,
        "sound": report.is_sound(),
        "whole": report.is_whole(),
        "findings": found.collect::<Vec<_>>(),
        "head_number": quantity(report.head.number),
        "head_hash": report.head.hash,
        "import_from": report.import_from().map(quantity),
        "head_lost": report.is_head_lost(),
        "missing": report.missing.as_ref().map(range),
        "lost_history": report.lost_history.iter().map(range).collect::<Vec<_>>(),
        "copies": report.copies,
        "notes": report.notes,
    });
    let exit = match report.is_whole() && (report.is_sound() || !report.is_trial) {
        true => Exit::Done,
        false => Exit::Damaged,
    };
    Report { text, json, exit }
}
