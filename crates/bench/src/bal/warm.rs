//! Executors on a state in memory.

use super::{
    block::{BalBlock, dir_of, state_in},
    plan::{Case, Plan, figure},
    simulate::{Machine, Task},
};
use crate::report::{Report, Target, median};
use alloy_consensus::Transaction as _;
use cambium_chain::{BlockExecutor, Chain, ExecutorKind};
use cambium_evm::Hooks;
use cambium_state::{Options, StdDisk};
use cambium_workload::Workload;
use serde_json::{Map, Value, json};
use std::{
    cmp::Reverse,
    collections::BTreeMap,
    error::Error,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Memory budget that holds the whole state.
const MEMORY_BYTES: u64 = 4 << 30;
/// Numbers of cores for which times are predicted.
const CORES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(crate) fn run(plan: &Plan, cases: &[Case], report: &mut Report) -> Result<(), Box<dyn Error>> {
    for case in cases {
        let workload = Workload::new(case.params.clone())?;
        let dir = dir_of(&plan.data_dir, &case.params);
        state_in(&dir, &workload)?;
        let options = Options {
            memory_bytes: MEMORY_BYTES,
            ..Options::default()
        };
        let (chain, _) = Chain::open(Arc::new(StdDisk::new(&dir)), options)?;
        let block = BalBlock::first(&chain, &workload)?;
        let mut warm = Warm {
            plan,
            chain: &chain,
            block: &block,
            times: BTreeMap::new(),
            figures: Map::new(),
        };
        warm.run(case, report)?;
    }
    Ok(())
}

struct Warm<'a> {
    plan: &'a Plan,
    chain: &'a Chain,
    block: &'a BalBlock,
    /// Milliseconds by executor.
    times: BTreeMap<&'static str, Vec<f64>>,
    figures: Map<String, Value>,
}

impl Warm<'_> {
    fn run(&mut self, case: &Case, report: &mut Report) -> Result<(), Box<dyn Error>> {
        let name = case.name;
        let block = self.block;
        self.add("transactions", json!(block.transactions()));
        self.add("mgas", figure(block.gas() as f64 / 1e6));
        self.add("bytes_full", json!(block.sizes().full));
        self.add("bytes_batched", json!(block.sizes().batched));
        self.add("bytes_parallel", json!(block.sizes().parallel));
        for round in 0..=self.plan.rounds {
            eprintln!("{name}: round {round} of {}", self.plan.rounds);
            for kind in ExecutorKind::ALL {
                let executed = self.execute(BlockExecutor::new(kind), Hooks::default())?;
                if round == 0 && !block.is_expected(&executed.1) {
                    let error = format!("{name}: {kind:?} differs from sequential execution");
                    report.errors.push(error);
                }
                self.time(round, kind_name(kind), executed.0);
            }
            let one = BlockExecutor::new(ExecutorKind::Parallel).with_threads(NonZeroUsize::MIN);
            let (elapsed, _) = self.execute(one, Hooks::default())?;
            self.time(round, "parallel_1_thread", elapsed);
            self.root(round)?;
        }
        self.simulate()?;
        self.sum_up(case, report);
        Ok(())
    }

    fn add(&mut self, name: &str, value: Value) {
        self.figures.insert(name.to_owned(), value);
    }

    /// Records a time. The first round is a warm-up and does not count.
    fn time(&mut self, round: usize, name: &'static str, elapsed: Duration) {
        if round > 0 {
            let times = self.times.entry(name).or_default();
            times.push(elapsed.as_secs_f64() * 1e3);
        }
    }

    fn execute(
        &self,
        executor: BlockExecutor,
        hooks: Hooks<'_, cambium_state::StateError>,
    ) -> Result<(Duration, cambium_evm::Outcome), Box<dyn Error>> {
        let executed = self.block.execute(self.chain, &executor, hooks)?;
        Ok((executed.elapsed, executed.outcome))
    }

    /// Measures the root after execution, and the root computed while transactions run.
    fn root(&mut self, round: usize) -> Result<(), Box<dyn Error>> {
        let executor = BlockExecutor::new(ExecutorKind::Parallel);
        let alone = self.block.root(self.chain)?;
        let beside = self.block.execute_with_root(self.chain, &executor)?;
        if beside.root != alone.root {
            return Err("the root from the access list is another".into());
        }
        self.time(round, "root", alone.elapsed);
        self.time(round, "parallel_with_root", beside.elapsed);
        Ok(())
    }

    /// Predicts the times on other machines from the time of each transaction on one thread here.
    fn simulate(&mut self) -> Result<(), Box<dyn Error>> {
        let count = self.block.transactions();
        let mut rounds: Vec<Vec<f64>> = vec![Vec::new(); count];
        for _ in 0..self.plan.rounds.min(3) {
            let took: Vec<_> = (0..count).map(|_| AtomicU64::new(0)).collect();
            let timed = |index: usize, elapsed: Duration| {
                took[index].store(elapsed.as_nanos() as u64, Ordering::Relaxed);
            };
            let hooks = Hooks {
                timed: Some(&timed),
                ..Hooks::default()
            };
            let one = BlockExecutor::new(ExecutorKind::Parallel).with_threads(NonZeroUsize::MIN);
            self.execute(one, hooks)?;
            for (rounds, took) in rounds.iter_mut().zip(took) {
                rounds.push(took.into_inner() as f64);
            }
        }
        let task = |rounds: Vec<f64>| Task {
            cpu_ns: median(rounds) as u64,
            ..Task::default()
        };
        let tasks: Vec<_> = rounds.into_iter().map(task).collect();
        let transactions = &self.block.block.body.transactions;
        let mut order: Vec<_> = (0..count).collect();
        order.sort_by_key(|at| Reverse(transactions[*at].gas_limit()));
        let machine = |cores| Machine {
            cores,
            workers: cores,
            read_ns: 0,
            reads_at_once: 1,
        };
        // Sequential part: the whole time on one thread, less that of the transactions.
        let all: u64 = tasks.iter().map(|task| task.cpu_ns).sum();
        let rest = (self.median("parallel_1_thread") * 1e6 - all as f64).max(0.0);
        let sequential = self.median("sequential");
        for cores in CORES {
            let predicted = (machine(cores).run(&tasks, &order) as f64 + rest) / 1e6;
            self.add(&format!("predicted_ms_{cores}_cores"), figure(predicted));
            let gain = figure(sequential / predicted);
            self.add(&format!("predicted_speedup_{cores}_cores"), gain);
        }
        let path = machine(1).critical_path(&tasks) as f64 / 1e6;
        self.add("longest_transaction_ms", figure(path));
        self.add("not_shared_ms", figure(rest / 1e6));
        Ok(())
    }

    fn median(&self, name: &str) -> f64 {
        median(self.times.get(name).cloned().unwrap_or_default())
    }

    fn sum_up(&mut self, case: &Case, report: &mut Report) {
        let names: Vec<_> = self.times.keys().copied().collect();
        for name in names {
            let ms = figure(self.median(name));
            self.add(&format!("{name}_ms"), ms);
        }
        let sequential = self.median("sequential");
        let mgas = self.block.gas() as f64 / 1e3;
        for kind in ExecutorKind::ALL {
            let (name, ms) = (kind_name(kind), self.median(kind_name(kind)));
            self.add(&format!("{name}_mgas_per_second"), figure(mgas / ms));
            self.add(&format!("{name}_speedup"), figure(sequential / ms));
        }
        let [parallel, root] = ["parallel", "root"].map(|name| self.median(name));
        let visible = (self.median("parallel_with_root") - parallel).max(0.0);
        let visible = 100.0 * visible / root;
        self.add("root_visible_percent", figure(visible));
        let of_full = 100.0 * self.median("full") / parallel;
        let sizes = self.block.sizes();
        let size = 100.0 * sizes.parallel as f64 / sizes.full as f64;
        let measured = self.median("parallel");
        let cores = crate::system::cores();
        let predicted = self.figures.get(&format!("predicted_ms_{cores}_cores"));
        let off = predicted.and_then(Value::as_f64).unwrap_or(f64::NAN) / measured;

        let name = case.name;
        let mut target = |what: &str, value: f64, unit, target: &str, met: bool| {
            report.targets.push(Target {
                name: format!("{what}: {name}"),
                value,
                unit,
                target: target.to_owned(),
                met,
            });
        };
        if name.contains("mega-block") {
            let gain = sequential / parallel;
            target(
                "parallel against sequential",
                gain,
                "x",
                "at least 1.85",
                gain >= 1.85,
            );
            target(
                "parallel of full's speed",
                of_full,
                "%",
                "at least 85",
                of_full >= 85.0,
            );
            target(
                "size of parallel's list of full's",
                size,
                "%",
                "at most 33",
                size <= 33.0,
            );
            target(
                "root visible beside execution",
                visible,
                "%",
                "at most 25",
                visible <= 25.0,
            );
        }
        let gain = sequential / self.median("optimistic");
        let (least, met) = match name.contains("no two alike") {
            true => ("above 1.3", gain > 1.3),
            false => ("at least 0.95", gain >= 0.95),
        };
        target("optimistic against sequential", gain, "x", least, met);
        let percent = 100.0 * off;
        let near = (90.0..=110.0).contains(&percent);
        target(
            "simulated of measured",
            percent,
            "%",
            "from 90 to 110",
            near,
        );
        let mut result = Map::from_iter([
            ("workload".to_owned(), json!(name)),
            ("state".to_owned(), json!("in memory")),
        ]);
        result.append(&mut self.figures);
        report.results.push(result);
    }
}

/// Returns the name of a kind of executor in results.
pub(crate) fn kind_name(kind: ExecutorKind) -> &'static str {
    match kind {
        ExecutorKind::Auto => "auto",
        ExecutorKind::Sequential => "sequential",
        ExecutorKind::Full => "full",
        ExecutorKind::Batched => "batched",
        ExecutorKind::Parallel => "parallel",
        ExecutorKind::Optimistic => "optimistic",
    }
}
