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
    /// Whether to run windows of batches that are not measured before, until their rate is flat.
    pub(crate) until_flat: Option<Flat>,
}

/// When the rate of a store counts as flat.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Flat {
    /// Number of batches of a window.
    pub(crate) window: u64,
    /// Bytes that the store must have written first: as many as it has, so that deferred work has begun.
    pub(crate) written_bytes: u64,
    /// Largest number of windows.
    pub(crate) windows_max: usize,
}

/// Windows that must have the same rate.
const SAME_WINDOWS: usize = 3;
/// Largest difference between the rates of such windows, as a share of the least.
const SAME_SHARE: f64 = 0.1;

impl Flat {
    /// Returns whether the last windows had the same rate, and enough was written before.
    fn is_flat(&self, rates: &[f64], written_bytes: u64) -> bool {
        let Some(last) = rates.last_chunk::<SAME_WINDOWS>() else {
            return false;
        };
        let most = last.iter().copied().fold(0.0, f64::max);
        let least = last.iter().copied().fold(f64::INFINITY, f64::min);
        written_bytes >= self.written_bytes && most <= least * (1.0 + SAME_SHARE)
    }
}

/// An event, one per line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    Opened {
        milliseconds: f64,
    },
    WarmedUp {
        seconds: f64,
    },
    Batch(BatchFigures),
    /// The rate of a window of batches before the rate is flat.
    Window {
        transfers_per_second: f64,
    },
    /// Whether the rate has become flat within the largest number of windows.
    Steady {
        is_flat: bool,
    },
    Settled {
        seconds: f64,
        io: Io,
    },
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
    pub(crate) processor_seconds: f64,
    pub(crate) figures: Map<String, Value>,
}

/// What the process had used before what is measured.
struct Before {
    io: Io,
    processor_seconds: f64,
}

impl Before {
    fn now(setup: &Setup) -> Self {
        Self {
            io: Io::now(&setup.dir),
            processor_seconds: system::own_cpu_seconds(),
        }
    }
}

/// Executes the request, and prints events to standard output.
pub(crate) fn run(task: &str) -> Result<(), Failure> {
    let task: Task = serde_json::from_str(task)?;
    if let Some(members) = &task.cgroup {
        cgroup::join(members)?;
    }
    let (start, mut before) = (Instant::now(), Before::now(&task.setup));
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
            before = run_batches(&mut *store, &task.setup, batches)?;
            configuration = store.configuration();
            figures = store.figures()?;
        }
        Work::Probe(probe) => tell(&Event::Probed(probe.run(&task.setup)?))?,
    }
    tell(&Event::Done(Ending {
        seconds: start.elapsed().as_secs_f64(),
        configuration,
        rss_peak_bytes: system::rss_peak_bytes(),
        io: Io::now(&task.setup.dir).since(&before.io),
        processor_seconds: system::own_cpu_seconds() - before.processor_seconds,
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

/// Runs the batches. Returns what was used before the first one that is measured.
fn run_batches(store: &mut dyn Store, setup: &Setup, batches: &Batches) -> Result<Before, Failure> {
    let mut first = batches.first;
    if batches.warm_up {
        let start = Instant::now();
        read_all(store, &setup.workload)?;
        run_window(store, setup, &mut first, WARM_UP_BATCHES)?;
        let seconds = start.elapsed().as_secs_f64();
        tell(&Event::WarmedUp { seconds })?;
    }
    if let Some(flat) = &batches.until_flat {
        let opened = Io::now(&setup.dir);
        let written = || Io::now(&setup.dir).since(&opened).write_bytes;
        let mut rates = Vec::new();
        while rates.len() < flat.windows_max && !flat.is_flat(&rates, written()) {
            let rate = run_window(store, setup, &mut first, flat.window)?;
            tell(&Event::Window {
                transfers_per_second: rate,
            })?;
            rates.push(rate);
        }
        let is_flat = flat.is_flat(&rates, written());
        tell(&Event::Steady { is_flat })?;
    }
    let measured_from = Before::now(setup);
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
    Ok(measured_from)
}

/// Runs batches from `first` on that are not measured, and returns their transfers per second.
fn run_window(
    store: &mut dyn Store,
    setup: &Setup,
    first: &mut u64,
    batches: u64,
) -> Result<f64, Failure> {
    let (mut transfers, mut milliseconds) = (0, 0.0);
    for _ in 0..batches {
        let figures = BatchFigures {
            measured: false,
            ..run_batch(store, setup, *first, false)?
        };
        transfers += figures.transfers;
        milliseconds += figures.total_ms();
        tell(&Event::Batch(figures))?;
        *first += 1;
    }
    Ok(1e3 * transfers as f64 / milliseconds)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_flat_once_three_windows_agree_and_as_much_is_written_as_there_is() {
        let flat = Flat {
            window: 10,
            written_bytes: 100,
            windows_max: 9,
        };
        assert!(!flat.is_flat(&[10.0, 10.0], 100));
        assert!(flat.is_flat(&[30.0, 10.0, 10.5, 10.9], 100));
        assert!(!flat.is_flat(&[10.0, 10.5, 10.9], 99));
        assert!(!flat.is_flat(&[10.0, 9.0, 8.1], 100));
    }
}
