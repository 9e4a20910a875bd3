//! One execution over one store, in a process of its own.

#[cfg(feature = "mdbx")]
use super::mdbx::MdbxValues;
#[cfg(feature = "rocksdb")]
use super::rocksdb::RocksValues;
use super::{
    child_block::{ChildBlock, digest},
    memory::MemoryValues,
    provider::{Flat, Values},
    ways::{Provider, Way},
};
use crate::{
    cgroup,
    process::tell,
    state::stores::Failure,
    system::{self, Io},
};
use alloy_primitives::B256;
use cambium_chain::{BlockExecutor, Chain};
use cambium_evm::{Hooks, Outcome};
use cambium_state::{Disk, Options, StdDisk};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Percentage of the share of memory that is Cambium's budget. The rest is overhead of the
/// allocator.
const BUDGET_PERCENT: u64 = 90;
/// Approximate duration of a read from the disk.
const READ_TIME: Duration = Duration::from_micros(50);

/// Request to a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) provider: Provider,
    /// Directory of the store.
    pub(crate) dir: PathBuf,
    /// Directory of the block's files.
    pub(crate) block: PathBuf,
    pub(crate) way: Way,
    /// Without a store: whether reads take as long as from a disk.
    pub(crate) slow_reads: bool,
    /// The store's share of memory.
    pub(crate) share_bytes: u64,
    /// The cgroup that the process joins first.
    pub(crate) cgroup: Option<PathBuf>,
}

/// Response of a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Executed {
    pub(crate) open_ms: f64,
    pub(crate) ms: f64,
    /// Input and output during the execution.
    pub(crate) io: Io,
    pub(crate) rss_peak_bytes: u64,
    pub(crate) outcome: B256,
    pub(crate) configuration: String,
}

/// Executes the request, and prints the response to standard output.
pub(crate) fn run(task: &str) -> Result<(), Failure> {
    let task: Task = serde_json::from_str(task)?;
    if let Some(members) = &task.cgroup {
        cgroup::join(members)?;
    }
    tell(&execute(&task)?)
}

/// Opens the store and executes the block.
pub(super) fn execute(task: &Task) -> Result<Executed, Failure> {
    let block = ChildBlock::read(&task.block, task.way.list())?;
    let start = Instant::now();
    let state = open(task, &block)?;
    let open_ms = milliseconds(start);
    let (start, before) = (Instant::now(), Io::now(&task.dir));
    let outcome = state.execute(&block, &task.way.executor())?;
    let (ms, io) = (milliseconds(start), Io::now(&task.dir).since(&before));
    Ok(Executed {
        open_ms,
        ms,
        io,
        rss_peak_bytes: system::rss_peak_bytes(),
        outcome: digest(&outcome),
        configuration: state.configuration(),
    })
}

fn milliseconds(start: Instant) -> f64 {
    1e3 * start.elapsed().as_secs_f64()
}

fn open(task: &Task, block: &ChildBlock) -> Result<Box<dyn OpenState>, Failure> {
    Ok(match task.provider {
        Provider::Cambium => Box::new(CambiumState::open(&task.dir, task.share_bytes)?),
        #[cfg(feature = "rocksdb")]
        Provider::Rocksdb => flat(RocksValues::open(&task.dir, task.share_bytes)?, task, block),
        #[cfg(feature = "mdbx")]
        Provider::Mdbx => flat(MdbxValues::open(&task.dir)?, task, block),
        Provider::Memory => {
            let (list, found) = block.found(&task.block)?;
            let read_time = task.slow_reads.then_some(READ_TIME);
            flat(MemoryValues::new(&list, &found, read_time), task, block)
        }
        #[allow(unreachable_patterns)]
        missing => return Err(format!("built without {missing}").into()),
    })
}

fn flat<V: Values + 'static>(values: V, task: &Task, block: &ChildBlock) -> Box<dyn OpenState> {
    let (codes, genesis) = (&block.codes, block.genesis());
    Box::new(Flat::new(values, codes, genesis, task.way.read_threads()))
}

/// An open store, as the state on which a block is executed.
trait OpenState {
    fn execute(&self, block: &ChildBlock, executor: &BlockExecutor) -> Result<Outcome, Failure>;

    /// Description of the store's configuration.
    fn configuration(&self) -> String;
}

impl<V: Values> OpenState for Flat<V> {
    fn execute(&self, block: &ChildBlock, executor: &BlockExecutor) -> Result<Outcome, Failure> {
        let run = block.run();
        Ok(block.spec.dry_run(run, self, executor, Hooks::default())?)
    }

    fn configuration(&self) -> String {
        self.values.configuration()
    }
}

/// Cambium's engine.
struct CambiumState {
    chain: Chain,
    disk: Arc<StdDisk>,
    memory_bytes: u64,
}

impl CambiumState {
    fn open(dir: &Path, share_bytes: u64) -> Result<Self, Failure> {
        let disk = Arc::new(StdDisk::new(dir));
        let memory_bytes = share_bytes / 100 * BUDGET_PERCENT;
        let options = Options {
            memory_bytes,
            ..Options::default()
        };
        let (chain, _) = Chain::open(disk.clone(), options)?;
        Ok(Self {
            chain,
            disk,
            memory_bytes,
        })
    }
}

impl OpenState for CambiumState {
    fn execute(&self, block: &ChildBlock, executor: &BlockExecutor) -> Result<Outcome, Failure> {
        let view = self.chain.db().view()?;
        let run = block.run();
        Ok(self.chain.dry_run(run, view, executor, Hooks::default())?)
    }

    fn configuration(&self) -> String {
        format!(
            "told {} MiB ({BUDGET_PERCENT} % of its share); {}",
            self.memory_bytes >> 20,
            self.disk.describe()
        )
    }
}
