//! Executors on a state ten times larger than memory.

use super::{
    block::{BalBlock, dir_of, state_in},
    plan::{Case, Plan, figure},
    warm::kind_name,
};
use crate::{
    report::{Report, Target, median},
    state::fio_reads_per_second,
};
use cambium_chain::{BlockExecutor, Chain, ExecutorKind};
use cambium_evm::Hooks;
use cambium_state::{Disk, Options, StdDisk};
use cambium_workload::Workload;
use serde_json::{Map, json};
use std::{
    collections::BTreeMap, error::Error, num::NonZeroUsize, path::Path, sync::Arc, time::Duration,
};

/// Ratio of the state's size to the memory budget.
pub(crate) const STATE_OVER_MEMORY: u64 = 10;
/// Minimum memory budget that holds what the engine needs for a block.
pub(crate) const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// Times and numbers of device reads.
#[derive(Default)]
struct Turns {
    ms: Vec<f64>,
    reads: Vec<f64>,
}

impl Turns {
    fn add(&mut self, elapsed: Duration, reads: u64) {
        self.ms.push(elapsed.as_secs_f64() * 1e3);
        self.reads.push(reads as f64);
    }
}

/// Times of computing the root.
#[derive(Default)]
struct RootTurns {
    /// After the execution, on the same state.
    alone: Turns,
    /// During the execution, whose time is included.
    beside: Turns,
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
        // Blocks that only read slots change next to nothing.
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
                // One batch of reads is worthwhile even for a single transaction.
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
                turns.add(executed.elapsed, reads);
                if kind == ExecutorKind::Parallel && has_root {
                    let before = disk.stats().reads;
                    let alone = block.root(&chain)?;
                    root.alone.add(alone.elapsed, disk.stats().reads - before);
                    drop(chain);
                    let (chain, disk) = open(&dir, memory)?;
                    let before = disk.stats().reads;
                    let beside = block.execute_with_root(&chain, &executor)?;
                    root.beside.add(beside.elapsed, disk.stats().reads - before);
                    if beside.root != alone.root {
                        return Err("the root from the access list is another".into());
                    }
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
        let [root_ms, with_root_ms] = [&root.alone, &root.beside].map(|t| median(t.ms.clone()));
        let visible = 100.0 * (with_root_ms - of("parallel")).max(0.0) / root_ms;
        if has_root {
            let mut add = |what: &str, value| result.insert(what.to_owned(), figure(value));
            add("root_ms", root_ms);
            add("root_device_reads", median(root.alone.reads));
            add("parallel_with_root_ms", with_root_ms);
            add("parallel_with_root_device_reads", median(root.beside.reads));
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
