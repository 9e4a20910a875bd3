//! One import, in a process of its own: the parent's request, and the figures in response.

use super::way::Way;
use crate::{
    cgroup,
    import::inputs::options,
    process::tell,
    state::stores::Failure,
    system::{self, Io},
};
use alloy_primitives::{B256, keccak256};
use cambium_chain::{AccessListReader, BlockSource, Chain, ImportSummary, WithAccessLists};
use cambium_state::{CounterValues, Latency, StdDisk};
use cambium_workload::{Workload, WorkloadParams};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Instant};

const MIB: f64 = (1 << 20) as f64;
/// Number of accounts in a batch of reads that fill the memory.
const FILL_CHUNK: u64 = 20_000;
/// The memory is filled by reading this many times as many bytes.
const FILL_FACTOR: u64 = 2;

/// Request to a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    /// Directory of the database, which the import changes.
    pub(super) state: PathBuf,
    pub(super) blocks: PathBuf,
    pub(super) lists: PathBuf,
    pub(super) way: Way,
    /// The engine's memory budget.
    pub(super) memory_bytes: u64,
    /// The accounts to fill the memory with before the import.
    pub(super) fill: Option<Fill>,
    /// The cgroup that the process joins first.
    pub(super) cgroup: Option<PathBuf>,
}

/// Accounts without keys, of a workload with the default seed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Fill {
    pub(super) first: u64,
    pub(super) end: u64,
}

/// Response of a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Imported {
    pub(super) head: B256,
    pub(super) figures: BTreeMap<String, f64>,
}

/// Executes the request, and prints the response to standard output.
pub(crate) fn run(task: &str) -> Result<(), Failure> {
    let task: Task = serde_json::from_str(task)?;
    if let Some(members) = &task.cgroup {
        cgroup::join(members)?;
    }
    tell(&import(&task)?)
}

/// Opens the database and imports the blocks.
pub(super) fn import(task: &Task) -> Result<Imported, Failure> {
    let start = Instant::now();
    let disk = Arc::new(StdDisk::new(&task.state));
    let (chain, _) = Chain::open(disk, options(task.memory_bytes))?;
    let chain = task.way.set(chain);
    let open_seconds = start.elapsed().as_secs_f64();
    if let Some(fill) = task.fill {
        fill.read(&chain, FILL_FACTOR * task.memory_bytes)?;
        system::reset_rss_peak();
    }
    let (io, cpu) = (Io::now(&task.state), system::own_cpu_seconds());
    let before = chain.db().counters();
    let source = BlockSource::open(&task.blocks)?;
    let summary = match task.way.has_lists() {
        false => chain.import(source, &mut |_| {})?,
        true => {
            let lists = AccessListReader::open(&task.lists)?;
            chain.import(WithAccessLists::new(source, lists)?, &mut |_| {})?
        }
    };
    let after = chain.db().counters();
    let cpu_seconds = system::own_cpu_seconds() - cpu;
    let io = Io::now(&task.state).since(&io);
    let mut figures = of_summary(&summary);
    let mut add = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    add("open_seconds", open_seconds);
    add("cpu_seconds", cpu_seconds);
    add("rss_peak_mib", system::rss_peak_bytes() as f64 / MIB);
    add("process_read_mib", io.read_bytes as f64 / MIB);
    add("process_written_mib", io.write_bytes as f64 / MIB);
    let page_reads = after.page_reads() - before.page_reads();
    add("page_reads", page_reads as f64);
    let longest = |latency: Latency| latency.max_ns as f64 / 1e6;
    add("commit_longest_ms", longest(chain.db().commit_latency()));
    add("seal_wait_longest_ms", longest(chain.db().seal_waits()));
    figures.extend(counted(&before, &after));
    let head = summary.done.head.hash;
    Ok(Imported { head, figures })
}

fn of_summary(summary: &ImportSummary) -> BTreeMap<String, f64> {
    let (done, times) = (&summary.done, &summary.timings);
    let seconds = summary.elapsed.as_secs_f64();
    let execute = times.execute.saturating_sub(times.read);
    let figures = [
        ("seconds", seconds),
        (
            "transactions_per_second",
            done.transactions as f64 / seconds,
        ),
        ("mgas_per_second", done.gas as f64 / 1e6 / seconds),
        ("recover_seconds", times.recover.as_secs_f64()),
        ("read_seconds", times.read.as_secs_f64()),
        ("execute_seconds", execute.as_secs_f64()),
        ("root_seconds", times.root.as_secs_f64()),
        ("commit_seconds", times.commit.as_secs_f64()),
        (
            "read_percent_of_wall",
            100.0 * times.read.as_secs_f64() / seconds,
        ),
    ];
    let figures = figures.into_iter();
    figures
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Counters of the time between two readings. A current value among them may have fallen.
fn counted(
    before: &CounterValues,
    after: &CounterValues,
) -> impl Iterator<Item = (String, f64)> + use<> {
    let pairs = before.named().into_iter().zip(after.named());
    pairs.map(|((name, before), (_, after))| {
        let value = after.saturating_sub(before) as f64;
        (format!("counter_{name}"), value)
    })
}

impl Fill {
    /// Reads accounts until pages of this many bytes are read, or all are.
    fn read(self, chain: &Chain, bytes: u64) -> Result<(), Failure> {
        // Addresses without keys do not depend on the number of those with keys.
        let workload = Workload::new(WorkloadParams {
            accounts: self.end,
            senders: Some(1),
            ..WorkloadParams::default()
        })?;
        let view = chain.db().view()?;
        let mut next = self.first;
        while next < self.end && chain.db().counters().page_bytes_read < bytes {
            let end = self.end.min(next + FILL_CHUNK);
            let paths = (next..end).map(|index| keccak256(workload.address(index)));
            let values = view.accounts(&paths.collect::<Vec<_>>())?;
            if values.iter().any(Option::is_none) {
                return Err(format!("an account from {next} to {end} is lost").into());
            }
            next = end;
        }
        Ok(())
    }
}
