//! The engine's counters, for people and for machines.

use super::output::{Table, bytes, count, seconds};
use cambium::{
    Db,
    db::{CounterValues, Latency},
};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Adds rows for the engine's counters since it was opened. Counters that are zero are left out.
pub(crate) fn rows(db: &Db, table: Table) -> Table {
    let counters = db.counters();
    let rows = [
        ("reads", reads(&counters)),
        (
            "value cache",
            hits(counters.value_cache_hits, counters.value_cache_misses),
        ),
        (
            "code cache",
            hits(counters.code_cache_hits, counters.code_cache_misses),
        ),
        (
            "page cache",
            hits(counters.page_cache_hits, counters.page_cache_misses),
        ),
        ("pages read", pages_read(&counters)),
        ("  ahead", ahead(&counters)),
        ("  waits", page_waits(&counters)),
        ("index read", index_read(&counters)),
        ("node hashes", some(counters.node_hashes).map(count)),
        ("pages written", pages_written(&counters)),
        ("written", written(&counters)),
        ("commits", commits(&counters, &db.commit_latency())),
        ("merges", merges(&counters)),
        ("waits", waits(&db.seal_waits(), counters.seal_wait_ns)),
        ("disk", disk(&counters)),
    ];
    let happened = rows
        .into_iter()
        .filter_map(|(name, text)| Some((name, text?)));
    happened.fold(table, |table, (name, text)| table.row(name, text))
}

/// The counters as JSON.
pub(crate) struct Json {
    /// Counters by name.
    pub(crate) counters: Value,
    pub(crate) commit_latency: Value,
    pub(crate) seal_waits: Value,
}

pub(crate) fn json(db: &Db) -> Json {
    let named = db.counters().named().into_iter();
    let counters: Map<_, _> = named
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    let times = |latency: Latency| {
        json!({
            "count": latency.count,
            "p50_ns": latency.p50_ns,
            "p99_ns": latency.p99_ns,
            "p999_ns": latency.p999_ns,
            "max_ns": latency.max_ns,
        })
    };
    Json {
        counters: counters.into(),
        commit_latency: times(db.commit_latency()),
        seal_waits: times(db.seal_waits()),
    }
}

const fn some(number: u64) -> Option<u64> {
    if number > 0 { Some(number) } else { None }
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / of.max(1) as f64)
}

/// Lists the parts that are not zero, with their names.
fn parts(parts: &[(&str, u64)], show: impl Fn(u64) -> String) -> String {
    let shown = parts.iter().filter(|(_, value)| *value > 0);
    let shown: Vec<_> = shown
        .map(|(name, value)| format!("{name} {}", show(*value)))
        .collect();
    shown.join(", ")
}

fn reads(counters: &CounterValues) -> Option<String> {
    let reads = some(counters.reads)?;
    let layers = percent(counters.overlay_hits, reads);
    Some(format!(
        "{} of accounts and slots, {layers} from layers",
        count(reads)
    ))
}

fn hits(hits: u64, misses: u64) -> Option<String> {
    let lookups = some(hits + misses)?;
    Some(format!(
        "{} of {} look-ups",
        percent(hits, lookups),
        count(lookups)
    ))
}

fn pages_read(counters: &CounterValues) -> Option<String> {
    let device = counters.page_reads();
    let causes = [
        ("values", counters.page_reads_value),
        ("ahead", counters.page_reads_ahead),
        ("trie", counters.page_reads_trie),
        ("merges", counters.page_reads_merge),
        ("proofs", counters.page_reads_proof),
        ("checks", counters.page_reads_check),
    ];
    let all = some(causes.iter().map(|(_, reads)| reads).sum())?;
    let size = bytes(counters.page_bytes_read);
    let causes = parts(&causes, count);
    let device = match device == all {
        true => String::new(),
        false => format!("; {} from the device", count(device)),
    };
    Some(format!("{} ({size}): {causes}{device}", count(all)))
}

fn ahead(counters: &CounterValues) -> Option<String> {
    let read = some(counters.page_reads_ahead)?;
    let used = percent(counters.pages_ahead_used, read);
    let wasted = percent(counters.pages_ahead_wasted, read);
    Some(format!("{used} used, {wasted} dropped unused"))
}

fn page_waits(counters: &CounterValues) -> Option<String> {
    let waits = some(counters.page_waits)?;
    let time = seconds(Duration::from_nanos(counters.page_wait_ns));
    Some(format!(
        "{} reads of single keys waited for a page, {time} together",
        count(waits)
    ))
}

fn index_read(counters: &CounterValues) -> Option<String> {
    let reads = some(counters.index_reads)?;
    let size = bytes(counters.index_bytes_read);
    Some(format!("{} index parts from disk ({size})", count(reads)))
}

fn pages_written(counters: &CounterValues) -> Option<String> {
    let written = some(counters.pages_written + counters.pages_moved)?;
    let kinds = [
        ("split", counters.pages_split),
        ("joined", counters.pages_joined),
        ("moved", counters.pages_moved),
        ("died", counters.pages_dead),
    ];
    let kinds = parts(&kinds, count);
    let separator = if kinds.is_empty() { "" } else { ": " };
    Some(format!("{}{separator}{kinds}", count(written)))
}

fn written(counters: &CounterValues) -> Option<String> {
    let all = some(counters.bytes_written())?;
    let (pages, moved) = (counters.page_bytes_written, counters.page_bytes_moved);
    let causes = [
        ("log", counters.log_bytes_written),
        ("changed pages", pages.saturating_sub(moved)),
        ("moved pages", moved.min(pages)),
        ("checkpoints", counters.checkpoint_bytes_written),
        ("block index", counters.block_index_bytes_written),
        ("codes", counters.code_bytes_written),
        ("values", counters.value_bytes_written),
    ];
    Some(format!("{}: {}", bytes(all), parts(&causes, bytes)))
}

fn commits(counters: &CounterValues, latency: &Latency) -> Option<String> {
    let commits = some(latency.count)?;
    let time = |ns| seconds(Duration::from_nanos(ns));
    Some(format!(
        "{} of {} blocks: p50 {}, p99 {}, p99.9 {}, longest {}",
        count(commits),
        count(counters.blocks_committed),
        time(latency.p50_ns),
        time(latency.p99_ns),
        time(latency.p999_ns),
        time(latency.max_ns),
    ))
}

fn merges(counters: &CounterValues) -> Option<String> {
    let merges = some(counters.merges)?;
    let time = seconds(Duration::from_nanos(counters.merge_ns));
    Some(format!("{}, {time}", count(merges)))
}

fn waits(waits: &Latency, all_ns: u64) -> Option<String> {
    let blocks = some(waits.count)?;
    let time = |ns| seconds(Duration::from_nanos(ns));
    Some(format!(
        "{} blocks for memory that merges free, {}; longest {}",
        count(blocks),
        time(all_ns),
        time(waits.max_ns)
    ))
}

fn disk(counters: &CounterValues) -> Option<String> {
    some(counters.disk_reads + counters.disk_writes)?;
    let read = format!(
        "{} reads ({})",
        count(counters.disk_reads),
        bytes(counters.disk_bytes_read)
    );
    let written = format!(
        "{} writes ({})",
        count(counters.disk_writes),
        bytes(counters.disk_bytes_written)
    );
    Some(format!(
        "{read}, {written}, {} syncs",
        count(counters.disk_syncs)
    ))
}
