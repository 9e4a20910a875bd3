//! The same executor over Cambium's engine and other stores, as providers of the state.
//!
//! ```text
//!   workload -> genesis state in each store, made once        pairs.rs, rocksdb.rs, mdbx.rs
//!            -> block, its lists and senders, in files         child_block.rs
//!   round    -> way of executing -> store after store, each    child.rs, provider.rs
//!               in a process of its own with limited memory,
//!               nothing of its files in the page cache
//!   report   -> times, rates, reads                            summary.rs
//! ```
//!
//! A store has a tenth of the size of Cambium's state as memory, its part of the page cache
//! included; and the process has what it takes over no store at all besides, which is measured
//! (`memory.rs`). Every outcome is held against the sequential one over Cambium.

mod child;
mod child_block;
#[cfg(feature = "mdbx")]
mod mdbx;
mod memory;
#[cfg(any(test, feature = "mdbx", feature = "rocksdb"))]
mod pairs;
mod provider;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod summary;

use super::{
    Case, Plan,
    block::{BalBlock, dir_of, state_in},
    cold::{MEMORY_BYTES_MIN, STATE_OVER_MEMORY},
};
use crate::{
    cgroup::Cgroup,
    process::{Next, Process},
    report::{Notes, Report},
    state::{fio_reads_per_second, stores::Failure},
    system,
};
use alloy_primitives::B256;
use cambium_chain::{BlockExecutor, Chain, ExecutorKind, Workload};
use cambium_state::{Options, StdDisk};
use child::{Executed, Task};
use child_block::ListGiven;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    error::Error,
    fmt, fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

pub(crate) use child::run as child;

/// Memory while the state and the block are made.
const MAKING_BYTES: u64 = 1 << 30;
/// Threads that read what `batched` wants at once, from stores that can't do it without.
const BATCH_THREADS: NonZeroUsize = NonZeroUsize::new(32).unwrap();
/// How long an execution may take.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// What a state is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Provider {
    Cambium,
    Rocksdb,
    Mdbx,
    /// No store.
    Memory,
}

impl Provider {
    const PEERS: [Self; 2] = [Self::Rocksdb, Self::Mdbx];

    /// The peers of a list of names, all or none.
    pub(crate) fn peers(list: &str) -> Result<Vec<Self>, String> {
        let named = |name: &str| {
            let peer = Self::PEERS
                .into_iter()
                .find(|peer| peer.to_string() == name);
            peer.ok_or_else(|| format!("no peer {name:?}: there are rocksdb and mdbx"))
        };
        let mut peers = match list {
            "none" => Vec::new(),
            "all" => Self::PEERS.to_vec(),
            list => list.split(',').map(named).collect::<Result<_, _>>()?,
        };
        peers.sort_unstable();
        peers.dedup();
        match peers.iter().find(|peer| !peer.is_built()) {
            Some(peer) => Err(format!(
                "built without {peer}: `./bench bal --peers {peer}` builds it in"
            )),
            None => Ok(peers),
        }
    }

    const fn is_built(self) -> bool {
        match self {
            Self::Cambium | Self::Memory => true,
            Self::Rocksdb => cfg!(feature = "rocksdb"),
            Self::Mdbx => cfg!(feature = "mdbx"),
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cambium => "cambium",
            Self::Rocksdb => "rocksdb",
            Self::Mdbx => "mdbx",
            Self::Memory => "no store",
        })
    }
}

/// How a block is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Way {
    Sequential,
    /// Given changes alone, on so many threads.
    Parallel(NonZeroUsize),
    /// Given the whole list: all reads at once, then on as many threads as there are processors.
    Batched,
}

impl Way {
    fn all() -> impl Iterator<Item = Self> {
        let threads = [1, 2, 4, 8, 16, 32]
            .into_iter()
            .filter_map(NonZeroUsize::new);
        [Self::Sequential]
            .into_iter()
            .chain(threads.map(Self::Parallel))
            .chain([Self::Batched])
    }

    const fn list(self) -> ListGiven {
        match self {
            Self::Sequential => ListGiven::None,
            Self::Parallel(_) => ListGiven::Changes,
            Self::Batched => ListGiven::Whole,
        }
    }

    /// Threads that read what executors want at once, from stores that can't do it without.
    fn read_threads(self) -> NonZeroUsize {
        match self {
            Self::Sequential => NonZeroUsize::MIN,
            Self::Parallel(threads) => threads,
            Self::Batched => BATCH_THREADS,
        }
    }

    fn executor(self) -> BlockExecutor {
        match self {
            Self::Sequential => BlockExecutor::new(ExecutorKind::Sequential),
            Self::Parallel(threads) => {
                BlockExecutor::new(ExecutorKind::Parallel).with_threads(threads)
            }
            Self::Batched => BlockExecutor::new(ExecutorKind::Batched),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => f.write_str("sequential"),
            Self::Parallel(threads) => write!(f, "parallel_{threads}"),
            Self::Batched => f.write_str("batched"),
        }
    }
}

/// What all executions have in common.
struct Setup {
    /// Where the block is.
    block: PathBuf,
    /// What every outcome must be.
    outcome: B256,
    transactions: usize,
    gas: u64,
    /// The size of Cambium's state.
    state_bytes: u64,
    /// A store's share of memory.
    share_bytes: u64,
    /// What executing takes over no store.
    process_bytes: u64,
    /// Over no store: whether reads take as long as from a disk.
    slow_reads: bool,
}

impl Setup {
    const fn limit_bytes(&self) -> u64 {
        self.share_bytes + self.process_bytes
    }
}

/// A store in the course of the rounds.
struct Store {
    provider: Provider,
    dir: PathBuf,
    turns: BTreeMap<Way, Turns>,
    open_ms: Vec<f64>,
    cgroup_peak_bytes: u64,
    configuration: String,
    failure: Option<String>,
}

/// What a store took for one way of executing, in each round.
#[derive(Default)]
struct Turns {
    ms: Vec<f64>,
    device_reads: Vec<f64>,
    read_bytes: Vec<f64>,
}

pub(crate) fn run(
    plan: &Plan,
    case: &Case,
    peers: &[Provider],
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let workload = Workload::new(case.params.clone())?;
    let dir = dir_of(&plan.data_dir, &case.params);
    state_in(&dir, &workload)?;
    let mut setup = prepare(plan, &dir, &workload)?;
    let mut stores = vec![Store::new(Provider::Cambium, dir.clone())];
    for peer in peers {
        stores.push(Store::new(*peer, load(*peer, &dir, &workload)?));
    }
    drop(workload);
    let mut bare = Store::new(Provider::Memory, setup.block.clone());
    let mut notes = Notes::default();
    setup.process_bytes = process_bytes(plan, &mut setup, &mut bare, &mut notes)?;
    stores.push(bare);
    rustix::fs::sync();
    let mut device = Vec::new();
    for round in 1..=plan.rounds {
        eprintln!("stores: round {round} of {}", plan.rounds);
        device.extend(fio_reads_per_second(&plan.data_dir, plan.quick).ok());
        for way in Way::all() {
            // Nobody is always the first.
            stores.rotate_left(1);
            for store in stores.iter_mut().filter(|store| store.failure.is_none()) {
                let limit = setup.limit_bytes();
                match store.execute(plan, &setup, way, limit, &mut notes) {
                    Ok(executed) if executed.outcome != setup.outcome => {
                        let provider = store.provider;
                        let error = format!("{way} over {provider} differs from sequential");
                        report.errors.push(error);
                    }
                    Ok(executed) => store.take(way, executed),
                    Err(error) => {
                        let error = format!("{way} over {}: {error}", store.provider);
                        report.errors.push(error.clone());
                        store.failure = Some(error);
                    }
                }
            }
        }
    }
    stores.sort_unstable_by_key(|store| store.provider);
    summary::add(case, &setup, &stores, device, report);
    report.notes.extend(notes.into_lines());
    Ok(())
}

/// Makes the block, over Cambium's state in `dir`.
fn prepare(plan: &Plan, dir: &Path, workload: &Workload) -> Result<Setup, Box<dyn Error>> {
    let options = Options {
        memory_bytes: MAKING_BYTES,
        ..Options::default()
    };
    let (chain, _) = Chain::open(Arc::new(StdDisk::new(dir)), options)?;
    let block = BalBlock::first(&chain, workload)?;
    let files = plan.data_dir.join("child-block");
    child_block::write(&files, &block, &chain)?;
    let state_bytes = chain.db().stats()?.segment_bytes;
    Ok(Setup {
        block: files,
        outcome: child_block::digest(&block.expected),
        transactions: block.transactions(),
        gas: block.gas(),
        state_bytes,
        share_bytes: (state_bytes / STATE_OVER_MEMORY).max(MEMORY_BYTES_MIN),
        process_bytes: 0,
        slow_reads: false,
    })
}

/// Where a peer's store of the state is, made if it is not there yet.
fn load(peer: Provider, dir: &Path, workload: &Workload) -> Result<PathBuf, Box<dyn Error>> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let dir = dir.with_file_name(format!("{peer}-{name}"));
    let done = dir.with_extension("done");
    if done.exists() {
        return Ok(dir);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir)?;
    eprintln!("loading {} (once)", dir.display());
    make(peer, &dir, workload).map_err(|error| error as Box<dyn Error>)?;
    fs::write(done, "")?;
    Ok(dir)
}

#[cfg_attr(
    not(any(feature = "mdbx", feature = "rocksdb")),
    expect(unused_variables, reason = "no peer is built in")
)]
fn make(peer: Provider, dir: &Path, workload: &Workload) -> Result<(), Failure> {
    match peer {
        #[cfg(feature = "rocksdb")]
        Provider::Rocksdb => rocksdb::load(dir, &pairs::Pairs::of(workload)),
        #[cfg(feature = "mdbx")]
        Provider::Mdbx => mdbx::load(dir, &pairs::Pairs::of(workload)),
        missing => Err(format!("no store to load: {missing}").into()),
    }
}

/// The most memory that executing the block takes over no store. Reads take as long as from a disk:
/// otherwise hardly more threads than processors would be at work at a time, each with its memory.
/// With a quarter more, by which one run differs from another.
fn process_bytes(
    plan: &Plan,
    setup: &mut Setup,
    bare: &mut Store,
    notes: &mut Notes,
) -> Result<u64, Box<dyn Error>> {
    let mut most = 0;
    setup.slow_reads = true;
    for way in Way::all() {
        let limit = system::memory_available_bytes();
        let executed = bare.execute(plan, setup, way, limit, notes)?;
        most = most.max(executed.rss_peak_bytes);
    }
    setup.slow_reads = false;
    // Where there are no cgroups, what is resident.
    let most = match std::mem::take(&mut bare.cgroup_peak_bytes) {
        0 => most,
        peak => peak,
    };
    Ok(most / 4 * 5)
}

impl Store {
    fn new(provider: Provider, dir: PathBuf) -> Self {
        Self {
            provider,
            dir,
            turns: BTreeMap::new(),
            open_ms: Vec::new(),
            cgroup_peak_bytes: 0,
            configuration: String::new(),
            failure: None,
        }
    }

    /// Executes the block once, cold, within so much memory.
    fn execute(
        &mut self,
        plan: &Plan,
        setup: &Setup,
        way: Way,
        limit_bytes: u64,
        notes: &mut Notes,
    ) -> Result<Executed, String> {
        let dropped = match self.provider {
            Provider::Memory => Ok(()),
            _ => system::drop_files(&self.dir),
        };
        dropped.map_err(|error| format!("{}: {error}", self.dir.display()))?;
        let name = self.provider.to_string().replace(' ', "-");
        let group = Cgroup::or_note(&name, limit_bytes, notes);
        let task = Task {
            provider: self.provider,
            dir: self.dir.clone(),
            block: setup.block.clone(),
            way,
            slow_reads: setup.slow_reads,
            share_bytes: setup.share_bytes,
            cgroup: group.as_ref().map(Cgroup::members),
        };
        let process = Process {
            command: "bal-child",
            log: &plan.data_dir.join("child.log"),
            silence_max: SILENCE_MAX,
        };
        let mut executed = None;
        process.run(&task, &mut |event| {
            executed = Some(event);
            Next::GoOn
        })?;
        let peak = group.as_ref().and_then(Cgroup::peak_bytes).unwrap_or(0);
        self.cgroup_peak_bytes = self.cgroup_peak_bytes.max(peak);
        executed.ok_or_else(|| "the child told nothing".to_owned())
    }

    fn take(&mut self, way: Way, executed: Executed) {
        let turns = self.turns.entry(way).or_default();
        turns.ms.push(executed.ms);
        turns.device_reads.push(executed.io.device_reads as f64);
        turns.read_bytes.push(executed.io.read_bytes as f64);
        self.open_ms.push(executed.open_ms);
        self.configuration = executed.configuration;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cambium_chain::{BlockSize, WorkloadParams};

    #[test]
    fn a_block_does_the_same_over_every_provider_in_every_way() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan {
            data_dir: folder.path().to_owned(),
            rounds: 1,
            readers: 1,
            quick: true,
        };
        let workload = Workload::new(WorkloadParams {
            accounts: 1000,
            senders: Some(100),
            holders: Some(1000),
            erc20_percent: 80,
            block_size: BlockSize::Gas(4_000_000),
            ..crate::bal::base()
        });
        let workload = workload.unwrap();
        let dir = folder.path().join("state");
        state_in(&dir, &workload).unwrap();
        let setup = prepare(&plan, &dir, &workload).unwrap();
        let mut providers = vec![Provider::Cambium, Provider::Memory];
        providers.extend(Provider::PEERS.iter().filter(|peer| peer.is_built()));
        for provider in providers {
            let dir = match provider {
                Provider::Cambium | Provider::Memory => dir.clone(),
                peer => load(peer, &dir, &workload).unwrap(),
            };
            for way in Way::all() {
                let task = Task {
                    provider,
                    dir: dir.clone(),
                    block: setup.block.clone(),
                    way,
                    slow_reads: false,
                    share_bytes: setup.share_bytes,
                    cgroup: None,
                };
                let executed = child::execute(&task).unwrap();
                assert_eq!(executed.outcome, setup.outcome, "{way} over {provider}");
            }
        }
    }
}
