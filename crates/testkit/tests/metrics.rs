//! The figures that a database reports: their names are those of the table in `docs/OPERATIONS.md`, and their
//! values are those that are counted.

use cambium_state::{Db, FaultyDisk, Latency, Metrics, Options};
use cambium_testkit::plain::{commit, make, path, put};
use std::{collections::BTreeMap, fs, sync::Arc};

#[derive(Default)]
struct Collected {
    /// Rows of the table, in the order of the report.
    rows: Vec<String>,
    values: BTreeMap<&'static str, u64>,
}

impl Collected {
    fn of(db: &Db) -> Self {
        let mut collected = Self::default();
        db.report(&mut collected).expect("figures");
        collected
    }

    fn add(&mut self, kind: &str, name: &'static str, help: &str, value: u64) {
        self.rows.push(format!("| `{name}` | {kind} | {help} |"));
        let other = self.values.insert(name, value);
        assert_eq!(other, None, "{name} is there twice");
        assert!(help.ends_with('.') && !help.contains('\n'), "{help}");
    }
}

impl Metrics for Collected {
    fn counter(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add("counter", name, help, value);
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: u64) {
        self.add("gauge", name, help, value);
    }

    fn latency(&mut self, name: &'static str, help: &'static str, latency: &Latency) {
        self.add("latency", name, help, latency.count);
    }
}

fn database() -> Db {
    make(
        Arc::new(FaultyDisk::new(1)),
        Options::default(),
        1000,
        |_| 0,
    )
}

#[test]
fn all_figures_are_in_the_table() {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/OPERATIONS.md");
    let text = fs::read_to_string(text).expect("the page");
    let is_row = |line: &&str| {
        let kind = line.split('|').nth(2).map(str::trim);
        line.starts_with("| `") && matches!(kind, Some("counter" | "gauge" | "latency"))
    };
    let table: Vec<_> = text.lines().filter(is_row).collect();
    let rows = Collected::of(&database()).rows;
    assert_eq!(table, rows, "the table should be:\n{}", rows.join("\n"));
}

#[test]
fn figures_follow_what_is_done() {
    let db = database();
    let before = Collected::of(&db).values;
    let view = db.view().unwrap();
    for index in 0..10 {
        view.account(&path(index)).unwrap();
        view.account(&path(index)).unwrap();
    }
    for number in 1..=3 {
        commit(&db, vec![put(path(number), 7)], vec![]);
    }
    let head = db.head();
    db.set_canonical(head, Some(head), db.block_id(2).unwrap())
        .unwrap();
    db.flush(0).unwrap();
    let after = Collected::of(&db).values;
    let grew = |name| after[name] - before[name];
    assert_eq!(grew("blocks_committed"), 3);
    assert_eq!(grew("commit"), 3);
    assert_eq!(grew("merges"), 1);
    assert!(grew("reads") >= 20, "{}", grew("reads"));
    assert!(grew("value_cache_hits") >= 10);
    assert!(grew("checkpoint_bytes_written") > 0);
    for (name, value) in [
        ("head_block", 3),
        ("safe_block", 3),
        ("finalized_block", 2),
        ("snapshot_block", 3),
        ("merging_bytes", 0),
    ] {
        assert_eq!(after[name], value, "{name}");
    }
    let counters = db.counters();
    for (name, value) in counters.named() {
        assert_eq!(after[name], value, "{name}");
    }
}

#[test]
fn layers_and_merges_are_told_of_forward_and_back() {
    let db = database();
    for number in 1..=5 {
        commit(&db, vec![put(path(number), 7)], vec![]);
    }
    let layering = db.layering(2);
    assert_eq!(layering.layers.len(), 2);
    assert!(layering.has_more && layering.last_merge.is_none());
    assert_eq!(layering.layers[0].block, db.head());
    let way = db.walk_account(&path(5)).unwrap();
    assert_eq!((way.layers, way.found_in), (5, Some(5)));
    assert_eq!(way.value, db.view().unwrap().account(&path(5)).unwrap());
    db.flush(0).unwrap();
    let merged = db.layering(2).last_merge.expect("a merge");
    assert_eq!((merged.block, merged.blocks), (db.head(), 5));
    assert!(merged.pages_written > 0 && merged.page_bytes > 0);
    // Back to an older state, which is a merge as well.
    db.unwind(2).unwrap();
    db.flush(0).unwrap();
    let merged = db.layering(2).last_merge.expect("a merge");
    assert_eq!((merged.block, merged.blocks), (db.head(), 3));
    let way = db.walk_account(&path(5)).unwrap();
    assert_eq!(way.value, db.view().unwrap().account(&path(5)).unwrap());
    assert_eq!(way.found_in, None);
}
