//! One store in a process of its own: the parent's request, and the events in response.

use super::{
    batch::{BatchFigures, milliseconds, run_batch},
    probes,
    stores::{Failure, Kind, Setup, Store},
    workload::Workload,
};
use crate::{
    cgroup,
    process::tell,
    system::{self, Io},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{path::PathBuf, time::Instant};

/// Number of keys per read during the warm-up.
const WARM_UP_CHUNK: u64 = 1 << 16;
/// Batches that are run while warming up, so that the pages for commits are in memory, too.
const WARM_UP_BATCHES: u64 = 3;

/// Request to a child process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) store: Kind,
    pub(crate) setup: Setup,
    /// The cgroup that the process joins first.
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) work: Work,
}

/// Work to do with the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Create it.
    Load,
    /// Run some batches.
    Batches(Batches),
    /// Measure Cambium alone.
    Probe(probes::Probe),
}

/// The batches to run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Batches {
    pub(crate) first: u64,
    pub(crate) plain: u64,
    /// Number of additional batches with a witness, if the store can make one.
    pub(crate) with_witness: u64,
    /// Whether to read every account of the first state, and run some batches that are not
    /// measured, before.
    pub(crate) warm_up: bool,
    /// Whether to finish deferred work at the end.
    pub(crate) settle: bool,
}

/// An event, one per line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    Opened { milliseconds: f64 },
    WarmedUp { seconds: f64 },
    Batch(BatchFigures),
    Settled { seconds: f64, io: Io },
    Probed(Map<String, Value>),
    Done(Ending),
}

/// Figures at the end of the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ending {
    pub(crate) seconds: f64,
    pub(crate) configuration: String,
    pub(crate) rss_peak_bytes: u64,
    pub(crate) io: Io,
    pub(crate) figures: Map<String, Value>,
}

/// Executes the request, and prints events to standard output.
pub(crate) fn run(task: &str) -> Result<(), Failure> {
    let task: Task = serde_json::from_str(task)?;
    if let Some(members) = &task.cgroup {
        cgroup::join(members)?;
    }
    let (start, before) = (Instant::now(), Io::now(&task.setup.dir));
    let mut configuration = String::new();
    let mut figures = Map::new();
    match &task.work {
        Work::Load => task.store.load(&task.setup)?,
        Work::Batches(batches) => {
            let mut store = open(&task)?;
            // A store that reads all its files to open would otherwise begin with them in memory.
            if task.cgroup.is_some() {
                system::drop_files(&task.setup.dir)?;
            }
            run_batches(&mut *store, &task.setup, batches)?;
            configuration = store.configuration();
            figures = store.figures()?;
        }
        Work::Probe(probe) => tell(&Event::Probed(probe.run(&task.setup)?))?,
    }
    tell(&Event::Done(Ending {
        seconds: start.elapsed().as_secs_f64(),
        configuration,
        rss_peak_bytes: system::rss_peak_bytes(),
        io: Io::now(&task.setup.dir).since(&before),
        figures,
    }))
}

fn open(task: &Task) -> Result<Box<dyn Store>, Failure> {
    let start = Instant::now();
    let store = task.store.open(&task.setup)?;
    tell(&Event::Opened {
        milliseconds: milliseconds(start),
    })?;
    Ok(store)
}

fn run_batches(store: &mut dyn Store, setup: &Setup, batches: &Batches) -> Result<(), Failure> {
    let mut first = batches.first;
    if batches.warm_up {
        let start = Instant::now();
        read_all(store, &setup.workload)?;
        for _ in 0..WARM_UP_BATCHES {
            let figures = BatchFigures {
                measured: false,
                ..run_batch(store, setup, first, false)?
            };
            tell(&Event::Batch(figures))?;
            first += 1;
        }
        let seconds = start.elapsed().as_secs_f64();
        tell(&Event::WarmedUp { seconds })?;
    }
    for at in 0..batches.plain + batches.with_witness {
        let witness = at >= batches.plain;
        let figures = run_batch(store, setup, first + at, witness)?;
        tell(&Event::Batch(figures))?;
    }
    if batches.settle {
        let (start, before) = (Instant::now(), Io::now(&setup.dir));
        store.settle()?;
        rustix::fs::sync();
        let io = Io::now(&setup.dir).since(&before);
        let seconds = start.elapsed().as_secs_f64();
        tell(&Event::Settled { seconds, io })?;
    }
    Ok(())
}

/// Reads every account of the first state, and checks that it exists.
pub(crate) fn read_all(store: &mut dyn Store, workload: &Workload) -> Result<(), Failure> {
    for start in (0..workload.accounts).step_by(WARM_UP_CHUNK as usize) {
        let keys = workload.keys(start..workload.accounts.min(start + WARM_UP_CHUNK));
        let values = store.read(&keys, false)?;
        if let Some(lost) = values.iter().position(Option::is_none) {
            return Err(format!("the account {} is lost", keys[lost]).into());
        }
    }
    Ok(())
}
