//! Real blocks one by one.

use super::{Plan, as_they_were, block::RealBlock, replays};
use crate::{
    bal::{figure, warm::kind_name},
    report::{Report, Target, median},
};
use cambium_chain::{AccessListSizes, BlockExecutor, ExecutorKind};
use cambium_evm::ExecutionCounts;
use cambium_testkit::MainnetData;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, error::Error};

pub(super) fn run(
    plan: &Plan,
    data: &MainnetData,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut measured = Vec::new();
    for block in as_they_were(plan, data).chain(replays(plan, data)) {
        measured.push(Measured::new(&block?, plan.turns(), report)?);
    }
    add_table(&measured, report);
    let as_they_were: Vec<_> = measured.iter().filter(|block| !block.is_replay).collect();
    let listed: Vec<_> = measured
        .iter()
        .filter(|block| block.sizes.is_some())
        .collect();
    let ahead = [ExecutorKind::Optimistic];
    let name = "mainnet blocks as they were, from Byzantium on";
    report.results.push(result(name, &as_they_were, &ahead));
    let name = "mainnet blocks from Cancun on, and replayed under Amsterdam";
    let mut with_lists = result(name, &listed, &ExecutorKind::ALL[1..]);
    let bytes = |size: fn(&AccessListSizes) -> u64| {
        let sizes = listed.iter().filter_map(|block| block.sizes.as_ref());
        sizes.map(size).sum::<u64>()
    };
    let (full, parallel) = (bytes(|sizes| sizes.full), bytes(|sizes| sizes.parallel));
    let percent = 100.0 * parallel as f64 / full as f64;
    with_lists.extend([
        ("bytes_full".to_owned(), json!(full)),
        (
            "bytes_batched".to_owned(),
            json!(bytes(|sizes| sizes.batched)),
        ),
        ("bytes_parallel".to_owned(), json!(parallel)),
        ("size_percent".to_owned(), figure(percent)),
    ]);
    report.results.push(with_lists);

    let gains = measured
        .iter()
        .filter_map(|block| block.gain(ExecutorKind::Optimistic));
    let least = gains.fold(f64::INFINITY, f64::min);
    report.targets.push(Target {
        name: "optimistic against sequential: the slowest mainnet block".to_owned(),
        value: least,
        unit: "x",
        target: "at least 0.95".to_owned(),
        met: least >= 0.95,
    });
    report.targets.push(Target {
        name: "size of parallel's lists of full's: mainnet blocks".to_owned(),
        value: percent,
        unit: "%",
        target: "at most 33".to_owned(),
        met: percent <= 33.0,
    });
    Ok(())
}

/// What a block took.
struct Measured {
    number: u64,
    fork: String,
    is_replay: bool,
    transactions: usize,
    mgas: f64,
    /// Milliseconds, the middle ones of all turns.
    ms: BTreeMap<&'static str, f64>,
    sizes: Option<AccessListSizes>,
}

impl Measured {
    fn new(block: &RealBlock, turns: usize, report: &mut Report) -> Result<Self, Box<dyn Error>> {
        let sparse = &block.sparse;
        let number = sparse.header.number;
        eprintln!(
            "mainnet block {number} under {}'s rules: {turns} turns",
            sparse.fork
        );
        let mut kinds = block.kinds().to_vec();
        for kind in &kinds {
            let mut counts = ExecutionCounts::default();
            let executed = block.execute(&BlockExecutor::new(*kind), &mut counts)?;
            let name = kind_name(*kind);
            if !block.is_expected(&executed.outcome) {
                let error = format!("block {number}: {name} differs from sequential execution");
                report.errors.push(error);
            }
            if *kind != ExecutorKind::Optimistic && counts.again > 0 {
                let note = format!("block {number}: {name} executed it again in sequence");
                report.notes.push(note);
            }
        }
        let mut times = BTreeMap::<_, Vec<_>>::new();
        for _ in 0..turns {
            for kind in &kinds {
                let executor = BlockExecutor::new(*kind);
                let executed = block.execute(&executor, &mut ExecutionCounts::default())?;
                let times = times.entry(kind_name(*kind)).or_default();
                times.push(executed.elapsed.as_secs_f64() * 1e3);
            }
            // None of them always comes after the same other.
            kinds.rotate_left(1);
        }
        let times = times.into_iter();
        Ok(Self {
            number,
            fork: sparse.fork.clone(),
            is_replay: sparse.access_list.is_some(),
            transactions: sparse.transactions.len(),
            mgas: block.expected().gas_used as f64 / 1e6,
            ms: times.map(|(name, ms)| (name, median(ms))).collect(),
            sizes: block.given.as_ref().map(|given| given.sizes),
        })
    }

    fn ms(&self, kind: ExecutorKind) -> Option<f64> {
        self.ms.get(kind_name(kind)).copied()
    }

    /// How many times as fast as in sequence.
    fn gain(&self, kind: ExecutorKind) -> Option<f64> {
        Some(self.ms(ExecutorKind::Sequential)? / self.ms(kind)?)
    }

    fn size_percent(&self) -> Option<f64> {
        let sizes = self.sizes?;
        Some(100.0 * sizes.parallel as f64 / sizes.full as f64)
    }

    fn to_json(&self) -> Value {
        let mut block = Map::from_iter([
            ("number".to_owned(), json!(self.number)),
            ("fork".to_owned(), json!(self.fork)),
            ("transactions".to_owned(), json!(self.transactions)),
            ("mgas".to_owned(), figure(self.mgas)),
        ]);
        for kind in ExecutorKind::ALL {
            let name = kind_name(kind);
            let ms = self.ms(kind).map(|ms| (format!("{name}_ms"), figure(ms)));
            let gain = self.gain(kind);
            let gain = gain.map(|gain| (format!("{name}_speedup"), figure(gain)));
            block.extend(ms.into_iter().chain(gain));
        }
        if let Some(AccessListSizes {
            full,
            batched,
            parallel,
        }) = self.sizes
        {
            block.extend([
                ("bytes_full".to_owned(), json!(full)),
                ("bytes_batched".to_owned(), json!(batched)),
                ("bytes_parallel".to_owned(), json!(parallel)),
            ]);
        }
        block.into()
    }
}

/// What some blocks took by themselves and together, by the sequential executor and others.
fn result(name: &str, blocks: &[&Measured], kinds: &[ExecutorKind]) -> Map<String, Value> {
    let total = |kind| {
        blocks
            .iter()
            .filter_map(|block| block.ms(kind))
            .sum::<f64>()
    };
    let transactions: usize = blocks.iter().map(|block| block.transactions).sum();
    let mgas: f64 = blocks.iter().map(|block| block.mgas).sum();
    let sequential = total(ExecutorKind::Sequential);
    let mut result = Map::from_iter([
        ("workload".to_owned(), json!(name)),
        ("state".to_owned(), json!("in memory")),
        ("block_count".to_owned(), json!(blocks.len())),
        ("transactions".to_owned(), json!(transactions)),
        ("mgas".to_owned(), figure(mgas)),
        ("sequential_ms".to_owned(), figure(sequential)),
    ]);
    for kind in kinds {
        let mut gains: Vec<_> = blocks
            .iter()
            .filter_map(|block| block.gain(*kind))
            .collect();
        gains.sort_unstable_by(f64::total_cmp);
        let logarithms = gains.iter().map(|gain| gain.ln()).sum::<f64>();
        let mean = (logarithms / gains.len() as f64).exp();
        let mut add = |what: &str, value: Option<f64>| {
            let name = format!("{}_{what}", kind_name(*kind));
            result.insert(name, figure(value.unwrap_or(f64::NAN)));
        };
        add("ms", Some(total(*kind)));
        add("speedup", Some(sequential / total(*kind)));
        add("speedup_geometric_mean", Some(mean));
        add("speedup_smallest", gains.first().copied());
        add("speedup_largest", gains.last().copied());
    }
    let blocks = blocks.iter().map(|block| block.to_json());
    result.insert("blocks".to_owned(), blocks.collect());
    result
}

/// One row for each block.
fn add_table(blocks: &[Measured], report: &mut Report) {
    let mut heads = vec!["txs".to_owned(), "Mgas".to_owned(), "seq., ms".to_owned()];
    heads.extend(
        ExecutorKind::ALL[1..]
            .iter()
            .map(|kind| kind_name(*kind).to_owned()),
    );
    heads.push("list, %".to_owned());
    report
        .comparison
        .push(("mainnet block, rules".to_owned(), heads));
    let or_nothing = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for block in blocks {
        let sequential = block.ms(ExecutorKind::Sequential).unwrap_or(f64::NAN);
        let mut row = vec![
            block.transactions.to_string(),
            format!("{:.1}", block.mgas),
            format!("{sequential:.2}"),
        ];
        let gains = ExecutorKind::ALL[1..].iter().map(|kind| block.gain(*kind));
        row.extend(gains.map(|gain| or_nothing(gain.map(|gain| format!("{gain:.2}x")))));
        let size = block.size_percent();
        row.push(or_nothing(size.map(|percent| format!("{percent:.0}"))));
        let name = format!("{}, {}", block.number, block.fork);
        report.comparison.push((name, row));
    }
}
