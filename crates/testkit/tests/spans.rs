//! Spans of `tracing`: those in the sources are those in the table of `docs/OPERATIONS.md`, blocks pass through
//! them, and without a subscriber they cost nothing that could be measured in an import.

use cambium_chain::{Chain, ChainError, ChainSealer, RawBlock};
use cambium_history::{History, HistoryOptions};
use cambium_state::{FaultyDisk, Options};
use cambium_testkit::{raw_block, say};
use cambium_trie::ProofTargets;
use cambium_workload::{BlockSize, Workload, WorkloadParams};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    hint::black_box,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tracing::{
    Event, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

const BLOCKS: u64 = 40;

/// Counts spans by name.
#[derive(Clone, Default)]
struct Counting {
    spans: Arc<Mutex<BTreeMap<&'static str, u64>>>,
    next: Arc<AtomicU64>,
}

impl Subscriber for Counting {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("cambium")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = self.spans.lock().expect("no panic");
        *spans.entry(span.metadata().name()).or_default() += 1;
        Id::from_u64(1 + self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn workload() -> Workload {
    let params = WorkloadParams {
        accounts: 2000,
        senders: Some(200),
        blocks: BLOCKS,
        block_size: BlockSize::Transactions(100),
        ..WorkloadParams::default()
    };
    Workload::new(params).expect("valid parameters")
}

fn chain(disk: &FaultyDisk) -> Chain {
    let disk = Arc::new(disk.clone());
    let chain = workload().init(disk, Options::default(), &mut |_| {});
    chain.expect("a chain")
}

fn blocks() -> Vec<RawBlock> {
    let chain = chain(&FaultyDisk::new(1));
    let genesis = chain.block(0).expect("a block").header;
    let mut blocks = Vec::new();
    let head = workload().generate(&genesis, &mut ChainSealer(&chain), |block| {
        blocks.push(raw_block(
            block.header.number,
            alloy_rlp::encode(block).into(),
            None,
        ));
        Ok::<_, ChainError>(())
    });
    head.expect("blocks");
    blocks
}

/// Time that an import takes for each block.
fn import(chain: &Chain, blocks: &[RawBlock]) -> Duration {
    let start = Instant::now();
    let source = blocks.iter().cloned().map(Ok);
    chain.import(source, &mut |_| {}).expect("valid blocks");
    start.elapsed() / blocks.len() as u32
}

/// Time of a span without a subscriber.
fn idle_span() -> Duration {
    const SPANS: u32 = 1_000_000;
    let start = Instant::now();
    for number in 0..SPANS {
        let _span = tracing::debug_span!("idle", number = black_box(number)).entered();
    }
    start.elapsed() / SPANS
}

#[test]
fn blocks_pass_through_spans_that_cost_nothing_to_those_who_do_not_listen() {
    let blocks = blocks();
    let disk = FaultyDisk::new(2);
    let each = import(&chain(&disk), &blocks);
    let idle = idle_span();

    let counting = Counting::default();
    tracing::subscriber::set_global_default(counting.clone()).expect("the first one");
    let disk = FaultyDisk::new(3);
    let listened = chain(&disk);
    import(&listened, &blocks);
    let spans = counting.spans.lock().expect("no panic").clone();
    for name in ["prepare", "execute", "root"] {
        assert_eq!(spans.get(name), Some(&BLOCKS), "{name}: {spans:?}");
    }
    assert!(spans.contains_key("commit"), "{spans:?}");
    let count: u64 = spans.values().sum();
    let cost = idle * count as u32 / BLOCKS as u32;
    say(&format!(
        "{each:?} for a block, {idle:?} for an idle span, {count} spans in {BLOCKS} blocks: {cost:?}"
    ));
    assert!(cost * 100 < each, "{cost:?} of {each:?}");

    let db = listened.db().clone();
    let (head, below) = (db.head(), db.block_id(BLOCKS - 1).expect("readable"));
    db.set_canonical(head, below, below).expect("an ancestor");
    let targets = ProofTargets::new(vec![(Default::default(), vec![])]);
    db.view()
        .and_then(|it| it.extract(&targets))
        .expect("nodes");
    let history = History::create(
        Arc::new(disk.clone()),
        &db,
        BLOCKS,
        None,
        HistoryOptions::default(),
    );
    drop(history.expect("a history"));
    db.flush(0).expect("a merge");
    drop((db, listened));
    cambium_testkit::plain::wait_until_closed(&disk);
    Chain::open(Arc::new(disk), Options::default()).expect("a chain");
    let spans = counting.spans.lock().expect("no panic").clone();
    for name in [
        "open",
        "replay",
        "move_head",
        "merge",
        "checkpoint",
        "prove",
    ] {
        assert!(spans.contains_key(name), "{name}: {spans:?}");
    }
}

/// Names of spans in a folder's sources.
fn spans_in(folder: &Path, into: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            spans_in(&path, into);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = fs::read_to_string(&path).expect("a source");
            let names = text.split("_span!(\"").skip(1);
            into.extend(names.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        }
    }
}

#[test]
fn all_spans_are_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    for name in ["snapshot", "state", "history", "evm", "chain", "kv", "rpc"] {
        spans_in(&root.join("crates").join(name).join("src"), &mut names);
    }
    let page = fs::read_to_string(root.join("docs/OPERATIONS.md")).expect("the page");
    let (_, table) = page
        .split_once("| span | fields | around |")
        .expect("a table");
    let rows = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    let listed = rows.filter_map(|row| Some(row.split('`').nth(1)?.to_owned()));
    assert_eq!(listed.collect::<BTreeSet<_>>(), names);
}
