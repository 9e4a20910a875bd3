//! Replayed blocks as one batch with bridges between them ([`BridgedBatch`]), compared with
//! executing each of them on its own state, one after another.

use super::block::{RealBlock, SparseState};
use crate::{
    bal::plan::{Plan, figure},
    report::{Report, median},
};
use cambium_chain::{BlockExecutor, ExecutorKind};
use cambium_conformance::BridgedBatch;
use cambium_evm::{BatchBlock, ExecutionCounts, Outcome, execute_batch};
use serde_json::{Map, json};
use std::{
    collections::BTreeMap,
    error::Error,
    num::NonZeroUsize,
    path::Path,
    thread,
    time::{Duration, Instant},
};

pub(super) fn run(
    plan: &Plan,
    real: &[RealBlock],
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let replays = Replays::new(real, &plan.data_dir)?;
    let batch = &replays.batch;
    let blocks = replays.blocks();
    let all = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let (outcomes, _) = replays.at_once(&blocks, all);
    for (place, block) in batch.places().into_iter().zip(real) {
        let outcome = outcomes[place].as_ref();
        if outcome != Some(block.expected()) {
            let number = block.sparse.header.number;
            let error = format!("block {number} in a batch differs from sequential execution");
            report.errors.push(error);
        }
    }
    let mut times = BTreeMap::<_, Vec<_>>::new();
    let turns = plan.rounds * plan.turns_a_round();
    for turn in 1..=turns {
        eprintln!("mainnet blocks in a batch: turn {turn} of {turns}");
        let mut add = |name, elapsed: Duration| {
            let times = times.entry(name).or_default();
            times.push(elapsed.as_secs_f64() * 1e3);
        };
        add("sequential", one_by_one(real, ExecutorKind::Sequential)?);
        add("batch", replays.at_once(&blocks, all).1);
        add("parallel", one_by_one(real, ExecutorKind::Parallel)?);
        add(
            "batch_1_thread",
            replays.at_once(&blocks, NonZeroUsize::MIN).1,
        );
    }
    let transactions: usize = real
        .iter()
        .map(|block| block.sparse.transactions.len())
        .sum();
    let gas: u64 = real.iter().map(|block| block.expected().gas_used).sum();
    let bridges: Vec<_> = batch.bridges().collect();
    let items: u64 = bridges.iter().map(|list| list.counts().items()).sum();
    let mut result = Map::from_iter([
        (
            "workload".to_owned(),
            json!("mainnet blocks replayed under Amsterdam, in a batch"),
        ),
        ("state".to_owned(), json!("in memory")),
        ("block_count".to_owned(), json!(real.len())),
        ("bridge_count".to_owned(), json!(bridges.len())),
        ("bridge_items".to_owned(), json!(items)),
        ("transactions".to_owned(), json!(transactions)),
        ("mgas".to_owned(), figure(gas as f64 / 1e6)),
    ]);
    let quickest = |name| times[name].iter().copied().fold(f64::INFINITY, f64::min);
    let middle = |name| median(times[name].clone());
    for name in times.keys().copied() {
        let figures = [
            ("ms", middle(name)),
            ("speedup", middle("sequential") / middle(name)),
            ("quickest_ms", quickest(name)),
            ("quickest_speedup", quickest("sequential") / quickest(name)),
        ];
        let figures = figures.into_iter();
        result.extend(figures.map(|(what, value)| (format!("{name}_{what}"), figure(value))));
    }
    report.results.push(result);
    Ok(())
}

fn one_by_one(blocks: &[RealBlock], kind: ExecutorKind) -> Result<Duration, Box<dyn Error>> {
    let executor = BlockExecutor::new(kind);
    let times = blocks.iter().map(|block| {
        let executed = block.execute(&executor, &mut ExecutionCounts::default())?;
        Ok(executed.elapsed)
    });
    times.sum()
}

/// Replayed blocks with bridges between them, on the state that all of them touch.
pub(super) struct Replays<'a> {
    batch: BridgedBatch<'a>,
    state: SparseState,
}

impl<'a> Replays<'a> {
    /// The state is in a temporary directory below `parent`.
    pub(super) fn new(real: &'a [RealBlock], parent: &Path) -> Result<Self, Box<dyn Error>> {
        let listed = real.iter().filter_map(|block| {
            let given = block.given.as_ref()?;
            Some((&block.sparse, &given.list))
        });
        let batch = BridgedBatch::new(listed)?;
        let state = SparseState::new(batch.state(), parent)?;
        Ok(Self { batch, state })
    }

    pub(super) fn blocks(&self) -> Vec<BatchBlock<'_>> {
        self.batch.blocks()
    }

    /// Executes [`Self::blocks`]. Returns their outcomes and the time that this took.
    pub(super) fn at_once(
        &self,
        blocks: &[BatchBlock<'_>],
        threads: NonZeroUsize,
    ) -> (Vec<Option<Outcome>>, Duration) {
        let mut outcomes = Vec::with_capacity(blocks.len());
        let start = Instant::now();
        execute_batch(blocks, &self.state, threads, |_, outcome, _| {
            outcomes.push(outcome);
            true
        });
        (outcomes, start.elapsed())
    }
}
