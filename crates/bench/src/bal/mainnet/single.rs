//! Real blocks, executed one by one.

use super::block::RealBlock;
use crate::{
    bal::{
        plan::{Plan, figure},
        warm::kind_name,
    },
    report::{Report, Target, median},
};
use cambium_chain::{AccessListSizes, BlockExecutor, ExecutorKind};
use cambium_evm::ExecutionCounts;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, error::Error};

pub(super) fn run(
    plan: &Plan,
    blocks: &[RealBlock],
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let mut measured = Vec::with_capacity(blocks.len());
    for block in blocks {
        measured.push(Measured::new(block, report)?);
    }
    for round in 1..=plan.rounds {
        eprintln!("mainnet blocks: round {round} of {}", plan.rounds);
        for block in &mut measured {
            block.round(plan.turns_a_round())?;
        }
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

    add_optimistic_targets(&measured, report);
    report.targets.push(Target {
        name: "size of parallel's lists of full's: mainnet blocks".to_owned(),
        value: percent,
        unit: "%",
        target: "at most 33".to_owned(),
        met: percent <= 33.0,
    });
    Ok(())
}

/// Compares the optimistic executor with the sequential one, by medians and by fastest executions.
fn add_optimistic_targets<'a>(blocks: &[Measured<'a>], report: &mut Report) {
    type Figure<'a> = fn(&Measured<'a>, ExecutorKind) -> Option<f64>;
    let figures: [(&str, Figure<'a>); 2] = [
        ("by medians", Measured::ms),
        ("by the fastest turns", Measured::quickest_ms),
    ];
    for (by, ms) in figures {
        let gains = blocks.iter().filter_map(|block| {
            let gain = ms(block, ExecutorKind::Sequential)? / ms(block, ExecutorKind::Optimistic)?;
            Some((gain, block.number, block.fork))
        });
        let slowest = gains.min_by(|one, other| one.0.total_cmp(&other.0));
        if let Some((gain, number, fork)) = slowest {
            report.targets.push(Target {
                name: format!("optimistic against sequential, {by}: slowest is {number}, {fork}"),
                value: gain,
                unit: "x",
                target: "at least 0.95".to_owned(),
                met: gain >= 0.95,
            });
        }
        let sum = |kind| -> f64 { blocks.iter().filter_map(|block| ms(block, kind)).sum() };
        let gain = sum(ExecutorKind::Sequential) / sum(ExecutorKind::Optimistic);
        report.targets.push(Target {
            name: format!("optimistic against sequential, {by}: all mainnet blocks"),
            value: gain,
            unit: "x",
            target: "at least 1.4".to_owned(),
            met: gain >= 1.4,
        });
    }
}

/// Measurements of a block.
struct Measured<'a> {
    block: &'a RealBlock,
    number: u64,
    fork: &'a str,
    is_replay: bool,
    transactions: usize,
    mgas: f64,
    /// Kinds of executors in the order of the next round.
    kinds: Vec<ExecutorKind>,
    /// Milliseconds of each execution, by kind.
    times: BTreeMap<&'static str, Vec<f64>>,
    /// Transactions that the last optimistic execution ran ahead.
    ahead: ExecutionCounts,
    sizes: Option<AccessListSizes>,
}

impl<'a> Measured<'a> {
    /// Executes a block by all its executors, as a warm-up, and compares the outcomes.
    fn new(block: &'a RealBlock, report: &mut Report) -> Result<Self, Box<dyn Error>> {
        let sparse = &block.sparse;
        let number = sparse.header.number;
        for kind in block.kinds() {
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
        Ok(Self {
            block,
            number,
            fork: &sparse.fork,
            is_replay: sparse.access_list.is_some(),
            transactions: sparse.transactions.len(),
            mgas: block.expected().gas_used as f64 / 1e6,
            kinds: block.kinds().to_vec(),
            times: BTreeMap::new(),
            ahead: ExecutionCounts::default(),
            sizes: block.given.as_ref().map(|given| given.sizes),
        })
    }

    fn round(&mut self, turns: usize) -> Result<(), Box<dyn Error>> {
        for _ in 0..turns {
            for kind in &self.kinds {
                let executor = BlockExecutor::new(*kind);
                let mut counts = ExecutionCounts::default();
                let executed = self.block.execute(&executor, &mut counts)?;
                let times = self.times.entry(kind_name(*kind)).or_default();
                times.push(executed.elapsed.as_secs_f64() * 1e3);
                if *kind == ExecutorKind::Optimistic {
                    self.ahead = counts;
                }
            }
            // Rotated, so that no executor always follows the same other one.
            self.kinds.rotate_left(1);
        }
        Ok(())
    }

    fn ms(&self, kind: ExecutorKind) -> Option<f64> {
        let times = self.times.get(kind_name(kind))?;
        Some(median(times.clone()))
    }

    /// Milliseconds of the fastest execution, which other load on the machine affects least.
    fn quickest_ms(&self, kind: ExecutorKind) -> Option<f64> {
        let times = self.times.get(kind_name(kind))?;
        times.iter().copied().min_by(f64::total_cmp)
    }

    /// Speedup over sequential execution, by medians.
    fn gain(&self, kind: ExecutorKind) -> Option<f64> {
        Some(self.ms(ExecutorKind::Sequential)? / self.ms(kind)?)
    }

    /// Speedup over sequential execution, by the fastest executions.
    fn quickest_gain(&self, kind: ExecutorKind) -> Option<f64> {
        Some(self.quickest_ms(ExecutorKind::Sequential)? / self.quickest_ms(kind)?)
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
            ("optimistic_parallel".to_owned(), json!(self.ahead.parallel)),
            ("optimistic_again".to_owned(), json!(self.ahead.again)),
        ]);
        for kind in ExecutorKind::ALL {
            let name = kind_name(kind);
            let figures = [
                ("ms", self.ms(kind)),
                ("speedup", self.gain(kind)),
                ("quickest_ms", self.quickest_ms(kind)),
                ("quickest_speedup", self.quickest_gain(kind)),
            ];
            let figures = figures.into_iter();
            let figures = figures.filter_map(|(what, value)| Some((what, value?)));
            block.extend(figures.map(|(what, value)| (format!("{name}_{what}"), figure(value))));
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

/// Times and speedups of some blocks, each alone and all together.
fn result<'a>(name: &str, blocks: &[&Measured<'a>], kinds: &[ExecutorKind]) -> Map<String, Value> {
    type Figure<'a> = fn(&Measured<'a>, ExecutorKind) -> Option<f64>;
    let of = |figure: Figure<'a>, kind| blocks.iter().filter_map(move |block| figure(block, kind));
    let ms = |kind| of(Measured::ms, kind).sum::<f64>();
    let quickest_ms = |kind| of(Measured::quickest_ms, kind).sum::<f64>();
    let transactions: usize = blocks.iter().map(|block| block.transactions).sum();
    let mgas: f64 = blocks.iter().map(|block| block.mgas).sum();
    let sequential = ms(ExecutorKind::Sequential);
    let quickest_sequential = quickest_ms(ExecutorKind::Sequential);
    let mut result = Map::from_iter([
        ("workload".to_owned(), json!(name)),
        ("state".to_owned(), json!("in memory")),
        ("block_count".to_owned(), json!(blocks.len())),
        ("transactions".to_owned(), json!(transactions)),
        ("mgas".to_owned(), figure(mgas)),
        ("sequential_ms".to_owned(), figure(sequential)),
        (
            "sequential_quickest_ms".to_owned(),
            figure(quickest_sequential),
        ),
    ]);
    for kind in kinds {
        let gains: Vec<_> = of(Measured::gain, *kind).collect();
        let logarithms: f64 = gains.iter().map(|gain| gain.ln()).sum();
        let quickest = quickest_ms(*kind);
        let figures = [
            ("ms", ms(*kind)),
            ("speedup", sequential / ms(*kind)),
            (
                "speedup_geometric_mean",
                (logarithms / gains.len() as f64).exp(),
            ),
            ("speedup_smallest", smallest(gains.iter().copied())),
            ("speedup_largest", gains.iter().copied().fold(0.0, f64::max)),
            ("quickest_ms", quickest),
            ("quickest_speedup", quickest_sequential / quickest),
            (
                "quickest_speedup_smallest",
                smallest(of(Measured::quickest_gain, *kind)),
            ),
        ];
        let figures = figures.into_iter();
        let name = kind_name(*kind);
        result.extend(figures.map(|(what, value)| (format!("{name}_{what}"), figure(value))));
    }
    let blocks = blocks.iter().map(|block| block.to_json());
    result.insert("blocks".to_owned(), blocks.collect());
    result
}

fn smallest(figures: impl Iterator<Item = f64>) -> f64 {
    figures.fold(f64::INFINITY, f64::min)
}

/// Adds a table with one row for each block.
fn add_table(blocks: &[Measured<'_>], report: &mut Report) {
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
