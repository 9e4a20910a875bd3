//! Executors on a state ten times larger than memory.

use super::{
    Case, Plan,
    block::{BalBlock, Rooted, dir_of, state_in},
    figure,
    warm::kind_name,
};
use crate::{
    report::{Report, Target, median},
    state::fio_reads_per_second,
};
use cambium_chain::{BlockExecutor, Chain, ExecutorKind, Workload};
use cambium_evm::Hooks;
use cambium_state::{Disk, Options, StdDisk};
use serde_json::{Map, json};
use std::{collections::BTreeMap, error::Error, num::NonZeroUsize, path::Path, sync::Arc};

/// The state is so many times larger than memory.
pub(crate) const STATE_OVER_MEMORY: u64 = 10;
/// Less does not hold what the engine needs for a block.
pub(crate) const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// The middle figures of an executor.
#[derive(Default)]
struct Turns {
    ms: Vec<f64>,
    reads: Vec<f64>,
}

/// Milliseconds that the root takes.
#[derive(Default)]
struct RootTurns {
    /// By itself, after execution on the same state.
    alone: Vec<f64>,
    /// With the execution that it is computed beside.
    beside: Vec<f64>,
}

impl RootTurns {
    fn add(&mut self, alone: &Rooted, beside: &Rooted) -> Result<(), Box<dyn Error>> {
        if beside.root != alone.root {
            return Err("the root from the access list is another".into());
        }
        self.alone.push(alone.elapsed.as_secs_f64() * 1e3);
        self.beside.push(beside.elapsed.as_secs_f64() * 1e3);
        Ok(())
    }

    /// How much of the root's time is seen beside an execution of `ms`.
    fn visible_percent(&self, ms: f64) -> f64 {
        let [alone, beside] = [&self.alone, &self.beside].map(|turns| median(turns.clone()));
        100.0 * (beside - ms).max(0.0) / alone
    }
}

pub(crate) fn run(plan: &Plan, cases: &[Case], report: &mut Report) -> Result<(), Box<dyn Error>> {
    for case in cases {
        let workload = Workload::new(case.params.clone())?;
        let dir = dir_of(&plan.data_dir, &case.params);
        state_in(&dir, &workload)?;
        let bytes = {
            let (chain, _) = open(&dir, 1 << 30)?;
            chain.db().stats()?.segment_bytes
        };
        let memory = (bytes / STATE_OVER_MEMORY).max(MEMORY_BYTES_MIN);
        let block = BalBlock::first(&open(&dir, memory)?.0, &workload)?;
        let readers = NonZeroUsize::new(plan.readers).ok_or("no readers")?;
        let mut turns: BTreeMap<&str, Turns> = BTreeMap::new();
        let mut device = Vec::new();
        // Where slots are only read, next to nothing changes.
        let has_root = case.params.slot_read_percent == 0;
        let mut root = RootTurns::default();
        for round in 1..=plan.rounds {
            eprintln!("{}, cold: round {round} of {}", case.name, plan.rounds);
            device.extend(fio_reads_per_second(&plan.data_dir, plan.quick).ok());
            for kind in ExecutorKind::ALL {
                let executor = match kind {
                    ExecutorKind::Parallel => BlockExecutor::new(kind).with_threads(readers),
                    _ => BlockExecutor::new(kind),
                };
                // Reading all at once is worth it for a single transaction.
                let executor = executor.with_gas_min(0);
                let (chain, disk) = open(&dir, memory)?;
                let before = disk.stats().reads;
                let executed = block.execute(&chain, &executor, Hooks::default())?;
                let reads = disk.stats().reads - before;
                if !block.is_expected(&executed.outcome) {
                    let name = case.name;
                    let error = format!("{name}: {kind:?} differs from sequential execution");
                    report.errors.push(error);
                }
                let turns = turns.entry(kind_name(kind)).or_default();
                turns.ms.push(executed.elapsed.as_secs_f64() * 1e3);
                turns.reads.push(reads as f64);
                if kind == ExecutorKind::Parallel && has_root {
                    let alone = block.root(&chain)?;
                    drop(chain);
                    let (chain, _) = open(&dir, memory)?;
                    root.add(&alone, &block.execute_with_root(&chain, &executor)?)?;
                }
            }
        }
        let name = case.name;
        let mut result = Map::from_iter([
            ("workload".to_owned(), json!(name)),
            ("state".to_owned(), json!("on disk")),
            ("state_bytes".to_owned(), json!(bytes)),
            ("memory_bytes".to_owned(), json!(memory)),
            ("transactions".to_owned(), json!(block.transactions())),
            ("mgas".to_owned(), figure(block.gas() as f64 / 1e6)),
        ]);
        let device = median(device);
        result.insert("fio_reads_per_second".to_owned(), figure(device));
        let of = |name: &str| median(turns[name].ms.clone());
        let rate = |name: &str| median(turns[name].reads.clone()) / of(name) * 1e3;
        for name in turns.keys() {
            let mut add = |what: &str, value| {
                result.insert(format!("{name}_{what}"), figure(value));
            };
            add("ms", of(name));
            add("device_reads", median(turns[name].reads.clone()));
            add("device_reads_per_second", rate(name));
            add("speedup", of("sequential") / of(name));
        }
        let visible = root.visible_percent(of("parallel"));
        if has_root {
            let mut add = |what: &str, value| result.insert(what.to_owned(), figure(value));
            add("root_ms", median(root.alone.clone()));
            add("parallel_with_root_ms", median(root.beside.clone()));
            add("root_visible_percent", visible);
        }
        report.results.push(result);
        if has_root {
            report.targets.push(Target {
                name: format!("root visible beside execution, cold: {name}"),
                value: visible,
                unit: "%",
                target: "at most 25".to_owned(),
                met: visible <= 25.0,
            });
        }
        let mut target = |what: &str, value: f64, unit, least: f64| {
            report.targets.push(Target {
                name: format!("{what}, cold: {name}"),
                value,
                unit,
                target: format!("at least {least}"),
                met: value >= least,
            });
        };
        if case.params.slot_read_percent > 0 {
            let gain = of("sequential") / of("batched");
            target("batched against sequential", gain, "x", 8.0);
        } else {
            let gain = of("sequential") / of("parallel");
            target("parallel against sequential", gain, "x", 4.0);
            let percent = 100.0 * rate("parallel") / device;
            target(
                "the disk's reads a second kept by parallel",
                percent,
                "%",
                70.0,
            );
        }
    }
    Ok(())
}

fn open(dir: &Path, memory_bytes: u64) -> Result<(Chain, Arc<StdDisk>), Box<dyn Error>> {
    let disk = Arc::new(StdDisk::new(dir));
    let options = Options {
        memory_bytes,
        ..Options::default()
    };
    let (chain, _) = Chain::open(disk.clone(), options)?;
    Ok((chain, disk))
}
