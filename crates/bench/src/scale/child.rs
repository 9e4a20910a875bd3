//! One job in a process of its own, bound to some cores.

use super::{
    job::{Blocks, Files, Job, Kinds, MEMORY_BYTES, Size, Way, mainnet, setup},
    setting::Setting,
    threads::{Used, Watch},
};
use crate::{
    bal::{BalBlock, InsertedBlocks, MainnetBlocks},
    process::tell,
    state::{
        read_all, run_batch,
        stores::{Failure, Kind},
    },
    system,
};
use cambium_chain::{
    AccessListReader, BlockExecutor, BlockSource, Chain, Timings, WithAccessLists,
};
use cambium_evm::Hooks;
use cambium_state::{Options, StdDisk};
use cambium_workload::Workload;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
    time::Instant,
};

/// Request to a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) job: Job,
    pub(super) setting: Setting,
    pub(super) size: Size,
    pub(super) files: Files,
}

/// Figures of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Number of transactions that were imported or executed, or of transfers between accounts or entries.
    pub(super) units: f64,
    pub(super) gas: f64,
    pub(super) seconds: f64,
    /// Processor time, user and system.
    pub(super) cpu_seconds: f64,
    /// Processor time by name of threads: of all, and of the one that used the most.
    pub(super) threads: BTreeMap<String, (f64, f64)>,
    /// Names of those of which there are several, as of crews.
    pub(super) pools: BTreeSet<String>,
    /// Seconds of parts that the job itself measures. Parts may overlap.
    pub(super) parts: BTreeMap<String, f64>,
}

/// Executes the request, and prints the response to standard output.
pub(crate) fn run(task: &str) -> Result<(), Failure> {
    let task: Task = serde_json::from_str(task)?;
    bind(task.setting.cores)?;
    tell(&measure(&task)?)
}

/// Lets this process, which has only started, run on the first `cores` of the processors that it may use.
fn bind(cores: usize) -> Result<(), Failure> {
    let allowed = sched_getaffinity(None)?;
    let mut chosen = CpuSet::new();
    let there = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    there.take(cores).for_each(|cpu| chosen.set(cpu));
    Ok(sched_setaffinity(None, &chosen)?)
}

fn measure(task: &Task) -> Result<Measured, Failure> {
    let threads = NonZeroUsize::new(task.setting.threads).ok_or("no threads")?;
    match task.job {
        Job::Import(_, way) => import(&task.files, way, threads),
        Job::Insert(way) => insert(task, way, threads),
        Job::Execute(Blocks::Mega(case), kind) => {
            let workload = Workload::new(case.mega(task.size))?;
            mega(&task.files, &workload, kind, threads, task.size)
        }
        Job::Execute(Blocks::Mainnet, kind) => {
            let blocks = blocks_of_mainnet(task)?;
            let executor = BlockExecutor::new(kind.executor()).with_threads(threads);
            let execute = || {
                blocks
                    .execute_each(&executor)
                    .map_err(|error| error.to_string())
            };
            execute()?;
            let mut span = Span::start()?;
            for _ in 0..task.size.turns() {
                let (units, gas) = execute()?;
                span.did(units, gas);
            }
            Ok(span.end())
        }
        Job::Execute(Blocks::MainnetBatch, _) => {
            let blocks = blocks_of_mainnet(task)?;
            let mut span = None;
            let turns = 1 + task.size.turns();
            let parent = &task.files.state;
            let done = blocks.execute_at_once(threads, turns, parent, &mut |units, gas| {
                match &mut span {
                    // The first turn is a warm-up.
                    None => span = Some(Span::start().map_err(|error| error.to_string())?),
                    Some(span) => span.did(units, gas),
                }
                Ok(())
            });
            done.map_err(|error| error.to_string())?;
            Ok(span.ok_or("no turn")?.end())
        }
        Job::State => batches(Kind::Cambium, task),
        Job::Kv => batches(Kind::Binary, task),
    }
}

fn blocks_of_mainnet(task: &Task) -> Result<MainnetBlocks, Failure> {
    let folder = mainnet().ok_or("the mainnet blocks are not there")?;
    let blocks = MainnetBlocks::read(&folder, &task.files.state);
    Ok(blocks.map_err(|error| error.to_string())?)
}

/// A measurement that has begun.
struct Span {
    watch: Watch,
    cpu: f64,
    start: Instant,
    measured: Measured,
}

impl Span {
    fn start() -> Result<Self, Failure> {
        let watch = Watch::start()?;
        Ok(Self {
            watch,
            cpu: system::own_cpu_seconds(),
            start: Instant::now(),
            measured: Measured::default(),
        })
    }

    fn did(&mut self, units: u64, gas: u64) {
        self.measured.units += units as f64;
        self.measured.gas += gas as f64;
    }

    fn part(&mut self, name: &str, seconds: f64) {
        *self.measured.parts.entry(name.to_owned()).or_default() += seconds;
    }

    fn parts(&mut self, times: Timings) {
        self.part("prepare", times.recover.as_secs_f64());
        self.part("read", times.read.as_secs_f64());
        self.part("execute", times.execute.as_secs_f64());
        self.part("root", times.root.as_secs_f64());
        self.part("commit", times.commit.as_secs_f64());
    }

    fn end(self) -> Measured {
        let mut measured = self.measured;
        measured.seconds = self.start.elapsed().as_secs_f64();
        measured.cpu_seconds = system::own_cpu_seconds() - self.cpu;
        Used {
            by_name: measured.threads,
            pools: measured.pools,
        } = self.watch.stop();
        measured
    }
}

fn import(files: &Files, way: Way, threads: NonZeroUsize) -> Result<Measured, Failure> {
    let options = Options {
        memory_bytes: MEMORY_BYTES,
        ..Options::default()
    };
    let (chain, _) = Chain::open(Arc::new(StdDisk::new(&files.state)), options)?;
    let chain = way.set(chain, threads);
    let source = BlockSource::open(&files.blocks)?;
    let mut span = Span::start()?;
    let summary = match way.has_lists() {
        false => chain.import(source, &mut |_| {})?,
        true => {
            let lists = AccessListReader::open(&files.lists)?;
            chain.import(WithAccessLists::new(source, lists)?, &mut |_| {})?
        }
    };
    span.did(summary.done.transactions, summary.done.gas);
    span.parts(summary.timings);
    Ok(span.end())
}

fn insert(task: &Task, way: Way, threads: NonZeroUsize) -> Result<Measured, Failure> {
    let folder = mainnet().ok_or("the mainnet blocks are not there")?;
    // The first turn is a warm-up.
    let turns = 1 + task.size.turns();
    let (parent, others) = (&task.files.state, task.size.others());
    let executor = way.executor(threads);
    let blocks = InsertedBlocks::read(&folder, parent, others, turns as u64, executor);
    let mut blocks = blocks.map_err(|error| error.to_string())?;
    let mut insert = || blocks.insert_each().map_err(|error| error.to_string());
    insert()?;
    let mut span = Span::start()?;
    for _ in 1..turns {
        let did = insert()?;
        span.did(did.transactions, did.gas);
        span.parts(did.timings);
    }
    Ok(span.end())
}

fn mega(
    files: &Files,
    workload: &Workload,
    kind: Kinds,
    threads: NonZeroUsize,
    size: Size,
) -> Result<Measured, Failure> {
    let options = Options {
        memory_bytes: MEMORY_BYTES,
        ..Options::default()
    };
    let (chain, _) = Chain::open(Arc::new(StdDisk::new(&files.state)), options)?;
    let block = BalBlock::first(&chain, workload).map_err(|error| error.to_string())?;
    let executor = BlockExecutor::new(kind.executor()).with_threads(threads);
    let execute = || {
        let executed = block.execute(&chain, &executor, Hooks::default());
        let executed = executed.map_err(|error| error.to_string())?;
        match block.is_expected(&executed.outcome) {
            true => Ok(()),
            false => Err("the outcome differs from sequential execution"),
        }
        .map_err(str::to_owned)
    };
    execute()?;
    let mut span = Span::start()?;
    for _ in 0..size.turns() {
        execute()?;
        span.did(block.transactions() as u64, block.gas());
    }
    Ok(span.end())
}

fn batches(kind: Kind, task: &Task) -> Result<Measured, Failure> {
    let setup = setup(task.files.state.clone(), task.size);
    let mut store = kind.open(&setup)?;
    read_all(&mut *store, &setup.workload)?;
    let (measured, before) = task.size.batches();
    for number in 0..before {
        run_batch(&mut *store, &setup, number, false)?;
    }
    let mut span = Span::start()?;
    for number in before..before + measured {
        let batch = run_batch(&mut *store, &setup, number, false)?;
        span.did(batch.transfers as u64, 0);
        span.part("read", batch.read_ms / 1e3);
        span.part("execute", batch.execute_ms / 1e3);
        span.part("commit", batch.commit_ms / 1e3);
        if let Some(root) = batch.root_ms {
            span.part("root", root / 1e3);
        }
    }
    Ok(span.end())
}
