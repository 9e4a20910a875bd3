//! The figures of the report, computed from the measurements.

use super::{
    case::CaseKind,
    rounds::{Figures, Measured, Setup},
    way::Way,
};
use crate::{
    import::inputs::Facts,
    report::{Report, Target, median},
};
use serde_json::{Map, Value, json};

const MIB: f64 = (1 << 20) as f64;
/// Counters of pages read ahead, and of those that nothing used before they left memory.
const READS_AHEAD: [&str; 2] = ["counter_page_reads_ahead", "counter_pages_ahead_wasted"];
/// Reads per access to an account or slot that is not in memory: name of the figure, and of its
/// count.
const READS: [(&str, &str); 7] = [
    ("disk_reads_per_cold_access", "counter_disk_reads"),
    ("page_reads_per_cold_access", "page_reads"),
    ("value_reads_per_cold_access", "counter_page_reads_value"),
    ("ahead_reads_per_cold_access", "counter_page_reads_ahead"),
    ("trie_reads_per_cold_access", "counter_page_reads_trie"),
    ("merge_reads_per_cold_access", "counter_page_reads_merge"),
    ("index_reads_per_cold_access", "counter_index_reads"),
];
/// Target of resident memory, in percent of the memory budget.
pub(super) const RESIDENT_PERCENT: Range = Range::Between(85.0, 105.0);
/// Rows of the table for people: heading, name of the figure, decimals.
const ROWS: [(&str, &str, usize); 24] = [
    ("seconds", "seconds", 2),
    ("transactions a second", "transactions_per_second", 0),
    ("senders, seconds", "recover_seconds", 2),
    ("execution without reads, seconds", "execute_seconds", 2),
    ("reads in execution, seconds", "read_seconds", 2),
    ("root, seconds", "root_seconds", 2),
    ("commit, seconds", "commit_seconds", 2),
    ("reads in execution, % of wall", "read_percent_of_wall", 1),
    ("waits for pages, % of wall", "wait_percent_of_wall", 1),
    ("processor seconds", "cpu_seconds", 2),
    ("disk reads a cold access", "disk_reads_per_cold_access", 2),
    ("page reads a cold access", "page_reads_per_cold_access", 2),
    (
        "pages for values a cold access",
        "value_reads_per_cold_access",
        2,
    ),
    (
        "pages for tries a cold access",
        "trie_reads_per_cold_access",
        2,
    ),
    (
        "pages for merges a cold access",
        "merge_reads_per_cold_access",
        2,
    ),
    (
        "index parts a cold access",
        "index_reads_per_cold_access",
        2,
    ),
    ("disk reads a second", "disk_reads_per_second", 0),
    ("MiB read", "process_read_mib", 0),
    ("MiB written", "process_written_mib", 0),
    ("resident, MiB", "rss_peak_mib", 0),
    ("resident, % of memory told", "rss_percent_of_memory", 0),
    ("cgroup, MiB", "cgroup_peak_mib", 0),
    ("longest commit, ms", "commit_longest_ms", 1),
    ("longest wait to seal, ms", "seal_wait_longest_ms", 1),
];

/// Adds the figures of a case to a report.
pub(super) fn add(kind: CaseKind, setup: &Setup<'_>, measured: &Measured, report: &mut Report) {
    report.errors.extend(measured.failures.iter().cloned());
    report.results.push(of_case(kind, setup, measured));
    for Column { name, figures, .. } in columns(measured) {
        let mut result = of_way(&setup.inputs.facts, figures);
        result.insert("workload".to_owned(), json!(kind.name()));
        result.insert("way".to_owned(), json!(name));
        report.results.push(result);
    }
    report.comparison.extend(comparison(kind, setup, measured));
    add_targets(kind, setup, measured, report);
}

/// A way, or a peer, in the report.
struct Column<'a> {
    name: String,
    heading: &'static str,
    figures: &'a Figures,
}

fn columns(measured: &Measured) -> impl Iterator<Item = Column<'_>> {
    let ways = measured.ways.iter().map(|(way, figures)| Column {
        name: way.name().to_owned(),
        heading: way.heading(),
        figures,
    });
    let peers = measured.peers.iter().map(|(name, figures)| Column {
        name: name.clone(),
        heading: "geth",
        figures,
    });
    ways.chain(peers)
}

/// Returns the figures that all ways have in common.
fn of_case(kind: CaseKind, setup: &Setup<'_>, measured: &Measured) -> Map<String, Value> {
    let (params, facts) = (&setup.inputs.params, &setup.inputs.facts);
    let mib = |bytes: u64| json!(bytes as f64 / MIB);
    let figures = [
        ("workload", json!(kind.name())),
        ("accounts", json!(params.accounts)),
        ("senders", json!(params.senders())),
        ("slots", json!(facts.slots)),
        ("blocks", json!(facts.blocks)),
        ("transactions", json!(facts.transactions)),
        ("mgas", json!(facts.gas as f64 / 1e6)),
        ("cold_accesses", json!(facts.cold_accesses)),
        ("accesses", json!(facts.accesses)),
        ("state_mib", mib(facts.state_bytes)),
        ("memory_mib", mib(setup.memory_bytes)),
        (
            "fio_reads_per_second",
            json!(median(measured.device.clone())),
        ),
        ("state_made_in_seconds", json!(facts.state_seconds)),
        ("blocks_made_in_seconds", json!(facts.blocks_seconds)),
    ];
    let figures = figures.into_iter();
    figures
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Returns a figure of a way: measured, or computed from measured ones.
fn figure(facts: &Facts, figures: &Figures, name: &str) -> Option<f64> {
    if let Some((_, count)) = READS.iter().find(|(derived, _)| *derived == name) {
        return Some(figures.median(count)? / facts.cold_accesses as f64);
    }
    match name {
        "disk_reads_per_second" => {
            Some(figures.median("counter_disk_reads")? / figures.median("seconds")?)
        }
        "wait_percent_of_wall" => {
            let waited = figures.median("counter_page_wait_ns")?;
            Some(100.0 * waited / 1e9 / figures.median("seconds")?)
        }
        "reads_ahead_unused_percent" => {
            let [ahead, unused] = READS_AHEAD.map(|name| figures.median(name));
            Some(100.0 * unused? / ahead?.max(1.0))
        }
        name => figures.median(name),
    }
}

fn of_way(facts: &Facts, figures: &Figures) -> Map<String, Value> {
    let measured = figures.medians();
    let mut result: Map<_, _> = measured
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let derived = READS.iter().map(|(name, _)| *name);
    let others = [
        "disk_reads_per_second",
        "wait_percent_of_wall",
        "reads_ahead_unused_percent",
    ];
    for name in derived.chain(others) {
        if let Some(value) = figure(facts, figures, name) {
            result.insert(name.to_owned(), json!(value));
        }
    }
    result
}

/// Returns a table with figures as rows and ways as columns.
fn comparison(
    kind: CaseKind,
    setup: &Setup<'_>,
    measured: &Measured,
) -> Vec<(String, Vec<String>)> {
    let columns: Vec<_> = columns(measured).collect();
    let headings = columns.iter().map(|column| column.heading.to_owned());
    let headings = headings.collect();
    let mut rows = vec![(kind.name().to_owned(), headings)];
    for (heading, name, decimals) in ROWS {
        let cell = |figures| match figure(&setup.inputs.facts, figures, name) {
            Some(value) => format!("{value:.decimals$}"),
            None => "-".to_owned(),
        };
        let cells = columns.iter().map(|column| cell(column.figures)).collect();
        rows.push((heading.to_owned(), cells));
    }
    let device = format!("{:.0}", median(measured.device.clone()));
    rows.push(("reads a second, by fio".to_owned(), vec![device]));
    rows
}

/// The range in which a figure meets its target.
pub(super) enum Range {
    AtLeast(f64),
    AtMost(f64),
    Between(f64, f64),
}

impl Range {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::AtLeast(min) => format!("at least {min}"),
            Self::AtMost(max) => format!("at most {max}"),
            Self::Between(min, max) => format!("{min} to {max}"),
        }
    }

    pub(super) fn contains(&self, value: f64) -> bool {
        match *self {
            Self::AtLeast(min) => value >= min,
            Self::AtMost(max) => value <= max,
            Self::Between(min, max) => (min..=max).contains(&value),
        }
    }
}

/// Adds the targets whose figures were measured.
fn add_targets(kind: CaseKind, setup: &Setup<'_>, measured: &Measured, report: &mut Report) {
    let facts = &setup.inputs.facts;
    let of = |way: Way, name: &str| figure(facts, measured.ways.get(&way)?, name);
    let seconds = |way: Way| of(way, "seconds");
    let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let limits = kind.limits();
    let targets = [
        (
            "speed of reading ahead against reading on demand",
            ratio(seconds(Way::OnDemand), seconds(Way::Ahead)),
            "x",
            Range::AtLeast(limits.gain_min),
        ),
        (
            "time of reading ahead against parallel with lists",
            ratio(seconds(Way::Ahead), seconds(Way::Lists)),
            "x",
            Range::AtMost(limits.over_lists_max),
        ),
        (
            "waiting for reads in execution",
            of(Way::Ahead, "wait_percent_of_wall"),
            "% of wall",
            Range::AtMost(10.0),
        ),
        (
            "device reads per cold access",
            of(Way::Ahead, "disk_reads_per_cold_access"),
            "",
            Range::AtMost(1.0),
        ),
        (
            "reads ahead that nothing used",
            of(Way::Ahead, "reads_ahead_unused_percent"),
            "%",
            Range::AtMost(15.0),
        ),
        (
            "resident memory",
            of(Way::Ahead, "rss_percent_of_memory"),
            "% of memory told",
            RESIDENT_PERCENT,
        ),
        (
            "longest commit",
            of(Way::Ahead, "commit_longest_ms"),
            "ms",
            Range::AtMost(50.0),
        ),
    ];
    for (name, value, unit, range) in targets {
        if let Some(value) = value {
            report.targets.push(Target {
                name: format!("{name}, cold: {}", kind.name()),
                value,
                unit,
                target: range.describe(),
                met: range.contains(value),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn figures(values: &[(&str, f64)]) -> Figures {
        let mut figures = Figures::default();
        let values = values.iter();
        let values: BTreeMap<_, _> = values
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect();
        figures.add(values);
        figures
    }

    #[test]
    fn figures_are_computed_from_measured_ones() {
        let facts = Facts {
            cold_accesses: 200,
            ..Facts::default()
        };
        let measured = figures(&[("counter_disk_reads", 300.0), ("seconds", 3.0)]);
        let of = |name: &str| figure(&facts, &measured, name);
        assert_eq!(of("disk_reads_per_cold_access"), Some(1.5));
        assert_eq!(of("disk_reads_per_second"), Some(100.0));
        assert_eq!(of("reads_ahead_unused_percent"), None);
        let [ahead, unused] = READS_AHEAD;
        let measured = figures(&[(ahead, 50.0), (unused, 10.0)]);
        let unused = figure(&facts, &measured, "reads_ahead_unused_percent");
        assert_eq!(unused, Some(20.0));
    }

    #[test]
    fn a_range_contains_its_limits() {
        assert!(Range::AtLeast(4.0).contains(4.0) && !Range::AtLeast(4.0).contains(3.9));
        assert!(Range::AtMost(1.0).contains(1.0) && !Range::AtMost(1.0).contains(1.1));
        let between = Range::Between(85.0, 105.0);
        assert!(between.contains(105.0) && !between.contains(84.0) && !between.contains(106.0));
        assert!(!between.contains(f64::NAN) && !Range::AtMost(1.0).contains(f64::NAN));
    }
}
