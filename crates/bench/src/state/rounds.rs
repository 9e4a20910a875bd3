//! Rounds over the stores: each is loaded once, then they run one after another in every round.
//!
//! Rounds are interleaved, so that changes in the machine's speed or load affect all stores alike.

use super::{
    batch::BatchFigures,
    child::{Batches, Ending, Event, Flat, Task, Work},
    stores::{Kind, Setup},
    workload::{Spread, Workload},
};
use crate::{
    cgroup::Cgroup,
    process::{Next, Process},
    report::{Notes, median},
    system,
};
use alloy_primitives::B256;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Time without an event after which a child counts as hung.
const SILENCE_MAX: Duration = Duration::from_secs(900);
const SILENCE_MAX_LOADING: Duration = Duration::from_secs(3 * 3600);

/// Parameters that all runs share.
pub(crate) struct Plan {
    pub(crate) data_dir: PathBuf,
    pub(crate) workload: Workload,
    pub(crate) memory_bytes: u64,
    /// Whether everything is read into memory first and memory is unlimited. Otherwise the process
    /// is in a cgroup of `memory_bytes`, and cold.
    pub(crate) warm: bool,
    pub(crate) batches: u64,
    pub(crate) witness: bool,
    pub(crate) rounds: u64,
    /// Blocks of an interval of [`Kind::Layered`].
    pub(crate) merge_interval: Option<u64>,
    /// Windows of how many batches, and how many of these, are run in each round before the rate is flat.
    pub(crate) steady: Option<(u64, usize)>,
}

/// Numbers of reading threads that are tried where the benchmark reads by its own, times the number of cores.
const READ_THREADS_A_CORE: [usize; 4] = [2, 4, 8, 16];
/// Batches that each of them is tried with.
const TRIED_BATCHES: u64 = 3;

/// Progress of a store on disk, in a file beside it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Progress {
    /// Whether a child works on the store, or died doing so: its content is then unknown.
    in_doubt: bool,
    /// Number of batches that the store contains.
    batches: u64,
    load: Option<Loading>,
    /// Digest of the values read and root, by batch.
    history: BTreeMap<u64, (u64, Option<B256>)>,
}

/// Figures of loading a store.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Loading {
    pub(crate) seconds: f64,
    pub(crate) rss_peak_bytes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) disk_bytes: u64,
}

/// A store and its measurements.
pub(crate) struct StoreRun {
    pub(crate) kind: Kind,
    folder: PathBuf,
    progress: Progress,
    pub(crate) opened_ms: Vec<f64>,
    /// Batches of all rounds.
    pub(crate) batches: Vec<BatchFigures>,
    /// Indices in `batches` of the first batch of each round.
    pub(crate) cold: Vec<usize>,
    pub(crate) endings: Vec<Ending>,
    /// Transfers per second of each window before the rate was flat, in all rounds.
    pub(crate) windows: Vec<f64>,
    /// Whether the rate became flat in each round.
    pub(crate) flat: Vec<bool>,
    /// The number of reading threads that was fastest.
    read_threads: Option<usize>,
    pub(crate) cgroup_peak_bytes: u64,
    /// Bytes written by deferred work at the end of rounds.
    pub(crate) settled_bytes: u64,
    pub(crate) failure: Option<String>,
}

impl StoreRun {
    pub(crate) const fn load(&self) -> Option<Loading> {
        self.progress.load
    }

    /// Returns the number of batches that the store contains.
    pub(crate) const fn batches_held(&self) -> u64 {
        self.progress.batches
    }

    /// Returns the directory of the store itself.
    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.join("db")
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        system::disk_bytes(&self.dir()).unwrap_or(0)
    }

    /// Returns the bytes of the log, which a chain would keep as its blocks.
    pub(crate) fn log_bytes(&self) -> u64 {
        match self.kind {
            Kind::Cambium | Kind::Layered | Kind::Binary => {
                system::disk_bytes(&self.dir().join("log")).unwrap_or(0)
            }
            _ => 0,
        }
    }

    fn keep_progress(&self) -> Result<(), String> {
        let file = self.folder.join("progress.json");
        let text = serde_json::to_string(&self.progress).map_err(|error| error.to_string())?;
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Forgets the figures of batches that were run for another purpose.
    fn forget_measurements(&mut self) {
        self.opened_ms.clear();
        self.batches.clear();
        self.cold.clear();
        self.endings.clear();
        self.cgroup_peak_bytes = 0;
    }

    /// Records a batch that the store has made durable.
    fn take(&mut self, batch: &BatchFigures) {
        self.progress.batches = batch.number + 1;
        let known = (batch.digest, batch.root);
        self.progress.history.insert(batch.number, known);
    }
}

impl Plan {
    /// Returns what is measured, in a word.
    pub(crate) const fn mode(&self) -> &'static str {
        match (self.steady.is_some(), self.warm) {
            (true, _) => "steady",
            (false, true) => "all in memory",
            (false, false) => "cold",
        }
    }

    /// Returns the directory for a store with these parameters.
    fn folder(&self, kind: Kind) -> PathBuf {
        let Workload {
            seed,
            accounts,
            transfers,
            spread,
        } = self.workload;
        let mut name = format!("{kind}-{accounts}-{transfers}-{seed}");
        if spread == Spread::Zipf {
            name += "-zipf";
        }
        self.data_dir.join(name)
    }

    fn setup(&self, run: &StoreRun) -> Setup {
        Setup {
            dir: run.dir(),
            workload: self.workload,
            memory_bytes: self.memory_bytes,
            merge_interval: self.merge_interval,
            read_threads: run.read_threads,
        }
    }

    /// Runs some batches of a store with each number of reading threads, and keeps the fastest.
    pub(crate) fn choose_threads(&self, run: &mut StoreRun, notes: &mut Notes) {
        let mut tried: Vec<(usize, f64)> = Vec::new();
        for times in READ_THREADS_A_CORE {
            let threads = times * system::cores();
            run.read_threads = Some(threads);
            let batches = Batches {
                first: run.progress.batches,
                plain: TRIED_BATCHES,
                ..Batches::default()
            };
            self.batches(run, batches, true, notes);
            if run.failure.is_some() {
                return;
            }
            let times = run.batches.iter().map(BatchFigures::total_ms);
            tried.push((threads, median(times.collect())));
            run.forget_measurements();
        }
        let best = tried.iter().min_by(|one, other| one.1.total_cmp(&other.1));
        run.read_threads = best.map(|(threads, _)| *threads);
        let tried: Vec<_> = tried
            .iter()
            .map(|(threads, time)| format!("{threads}: {time:.0} ms"))
            .collect();
        notes.add(format!(
            "{}, a batch by reading threads: {}",
            run.kind,
            tried.join(", ")
        ));
    }

    /// Finds existing stores, and loads missing ones. Returns an error if the disk is too small.
    pub(crate) fn prepare(&self, kinds: &[Kind], again: bool) -> Result<Vec<StoreRun>, String> {
        let mut runs: Vec<_> = kinds.iter().map(|kind| self.find(*kind, again)).collect();
        let needed: Vec<_> = runs
            .iter()
            .filter(|run| run.progress.load.is_none())
            .map(|run| {
                (
                    run.kind,
                    run.kind.bytes_an_account() * self.workload.accounts,
                )
            })
            .collect();
        let old: u64 = runs
            .iter()
            .filter(|run| run.progress.load.is_none())
            .map(StoreRun::disk_bytes)
            .sum();
        let free =
            system::disk_free_bytes(&self.data_dir).map_err(|error| error.to_string())? + old;
        let total: u64 = needed.iter().map(|(_, bytes)| bytes).sum();
        if total > free {
            let parts = needed
                .iter()
                .map(|(kind, bytes)| format!("{kind} {}", gib(*bytes)));
            let parts: Vec<_> = parts.collect();
            return Err(format!(
                "not enough room on the disk: {} accounts need about {} ({}), and {} are free in {}. \
                 Use fewer --accounts or --peers, or remove stores of other runs there.",
                self.workload.accounts,
                gib(total),
                parts.join(", "),
                gib(free),
                self.data_dir.display(),
            ));
        }
        for run in &mut runs {
            if run.progress.load.is_none() {
                self.load(run);
            }
        }
        Ok(runs)
    }

    fn find(&self, kind: Kind, again: bool) -> StoreRun {
        let folder = self.folder(kind);
        let text = fs::read_to_string(folder.join("progress.json")).unwrap_or_default();
        let kept: Progress = serde_json::from_str(&text).unwrap_or_default();
        // The first state should remain most of a store's content.
        let grown = kept.batches * self.workload.fresh() > self.workload.accounts / 2;
        let usable = !again && !kept.in_doubt && !grown;
        StoreRun {
            kind,
            folder,
            progress: if usable { kept } else { Progress::default() },
            opened_ms: Vec::new(),
            batches: Vec::new(),
            cold: Vec::new(),
            endings: Vec::new(),
            windows: Vec::new(),
            flat: Vec::new(),
            read_threads: None,
            cgroup_peak_bytes: 0,
            settled_bytes: 0,
            failure: None,
        }
    }

    fn load(&self, run: &mut StoreRun) {
        let work = || -> Result<Loading, String> {
            let dir = run.dir();
            if run.folder.exists() {
                fs::remove_dir_all(&run.folder).map_err(|error| error.to_string())?;
            }
            fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
            eprintln!("loading {} ({} accounts)", run.kind, self.workload.accounts);
            let task = Task {
                store: run.kind,
                setup: self.setup(run),
                cgroup: None,
                work: Work::Load,
            };
            let log = run.folder.join("stderr.log");
            let mut ending = None;
            run_child(&task, &log, &mut |event| {
                if let Event::Done(done) = event {
                    ending = Some(done);
                }
                Next::GoOn
            })?;
            let ending = ending.ok_or("the child ended early")?;
            rustix::fs::sync();
            Ok(Loading {
                seconds: ending.seconds,
                rss_peak_bytes: ending.rss_peak_bytes,
                write_bytes: ending.io.write_bytes,
                disk_bytes: run.disk_bytes(),
            })
        };
        match work() {
            Ok(load) => {
                run.progress.load = Some(load);
                run.failure = run.keep_progress().err();
            }
            Err(error) => run.failure = Some(format!("loading: {error}")),
        }
        if let Some(failure) = &run.failure {
            eprintln!("FAILED: {}: {failure}", run.kind);
        }
    }

    /// Runs batches until all stores contain the same ones, so that they are measured on the same
    /// state.
    pub(crate) fn level(&self, runs: &mut [StoreRun], notes: &mut Notes) {
        let sound = || runs.iter().filter(|run| run.failure.is_none());
        let newest = sound().map(|run| run.progress.batches).max().unwrap_or(0);
        for run in runs.iter_mut().filter(|run| run.failure.is_none()) {
            let first = run.progress.batches;
            if first < newest {
                eprintln!(
                    "{}: {} batches behind, not measured",
                    run.kind,
                    newest - first
                );
                let batches = Batches {
                    first,
                    plain: newest - first,
                    ..Batches::default()
                };
                self.batches(run, batches, false, notes);
            }
        }
    }

    /// Runs all rounds.
    pub(crate) fn run(&self, runs: &mut [StoreRun], notes: &mut Notes) {
        let count = runs.len();
        for round in 0..self.rounds {
            for at in 0..count {
                // Rotated, so that no store is always first, or always follows the merges of the
                // same other one.
                let run = &mut runs[(at + round as usize) % count];
                if run.failure.is_some() {
                    continue;
                }
                eprintln!("round {} of {}: {}", round + 1, self.rounds, run.kind);
                let batches = Batches {
                    first: run.progress.batches,
                    plain: self.batches,
                    with_witness: if self.witness { self.batches } else { 0 },
                    warm_up: self.warm,
                    settle: self.steady.is_none(),
                    until_flat: self.steady.map(|(window, windows_max)| Flat {
                        window,
                        written_bytes: run.disk_bytes(),
                        windows_max,
                    }),
                };
                self.batches(run, batches, true, notes);
            }
        }
    }

    fn batches(&self, run: &mut StoreRun, batches: Batches, measured: bool, notes: &mut Notes) {
        let group = match measured && !self.warm {
            true => self.limited(run.kind, notes),
            false => None,
        };
        let task = Task {
            store: run.kind,
            setup: self.setup(run),
            cgroup: group.as_ref().map(Cgroup::members),
            work: Work::Batches(batches),
        };
        run.progress.in_doubt = true;
        run.failure = run.keep_progress().err();
        let log = run.folder.join("stderr.log");
        let mut first = true;
        let result = run_child(&task, &log, &mut |event| {
            match event {
                Event::Batch(batch) => {
                    run.take(&batch);
                    if measured && batch.measured {
                        if std::mem::take(&mut first) {
                            run.cold.push(run.batches.len());
                        }
                        run.batches.push(batch);
                    }
                }
                Event::Window {
                    transfers_per_second: rate,
                } => run.windows.push(rate),
                Event::Steady { is_flat } => run.flat.push(is_flat),
                Event::Opened { milliseconds } if measured => run.opened_ms.push(milliseconds),
                Event::Settled { io, .. } => run.settled_bytes += io.write_bytes,
                Event::Done(ending) if measured => run.endings.push(ending),
                _ => {}
            }
            Next::GoOn
        });
        if let Some(peak) = group.as_ref().and_then(Cgroup::peak_bytes) {
            run.cgroup_peak_bytes = run.cgroup_peak_bytes.max(peak);
        }
        match result {
            Ok(()) => {
                run.progress.in_doubt = false;
                run.failure = run.keep_progress().err();
            }
            Err(error) => run.failure = Some(error),
        }
        if let Some(failure) = &run.failure {
            notes.add(format!("{} failed: {failure}", run.kind));
        }
    }

    /// Drops the page cache and creates an empty cgroup with the limit. `None` if it is not
    /// permitted.
    pub(crate) fn limited(&self, kind: Kind, notes: &mut Notes) -> Option<Cgroup> {
        if let Err(error) = system::drop_caches() {
            notes.add(format!(
                "THE PAGE CACHE IS NOT DROPPED ({error}): cold figures are not cold"
            ));
        }
        Cgroup::or_note(&kind.to_string(), self.memory_bytes, notes)
    }

    /// Measures Cambium alone, on the database in `dir`.
    pub(crate) fn probe(
        &self,
        dir: &Path,
        work: Work,
        notes: &mut Notes,
        on_event: &mut dyn FnMut(Event) -> Next,
    ) -> Result<(), String> {
        let group = match self.warm {
            true => None,
            false => self.limited(Kind::Cambium, notes),
        };
        let task = Task {
            store: Kind::Cambium,
            setup: Setup {
                dir: dir.to_owned(),
                workload: self.workload,
                memory_bytes: self.memory_bytes,
                merge_interval: None,
                read_threads: None,
            },
            cgroup: group.as_ref().map(Cgroup::members),
            work,
        };
        run_child(&task, &self.data_dir.join("probe.log"), on_event)
    }

    /// As [`Plan::probe`], for a probe that returns figures.
    pub(crate) fn figures_of(
        &self,
        dir: &Path,
        probe: super::probes::Probe,
        notes: &mut Notes,
    ) -> Result<Map<String, Value>, String> {
        let mut figures = Map::new();
        self.probe(dir, Work::Probe(probe), notes, &mut |event| {
            if let Event::Probed(probed) = event {
                figures = probed;
            }
            Next::GoOn
        })?;
        Ok(figures)
    }
}

/// Checks that stores which ran the same batches read the same values, and that those with
/// Ethereum's root have the same roots. Returns a line for each disagreement, and the number of
/// roots compared.
pub(crate) fn compare(runs: &[StoreRun]) -> (Vec<String>, u64) {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (at, one) in runs.iter().enumerate() {
        for other in &runs[at + 1..] {
            let exact = one.kind.is_exact() && other.kind.is_exact();
            for (number, (digest, root)) in &one.progress.history {
                let Some((other_digest, other_root)) = other.progress.history.get(number) else {
                    continue;
                };
                let (names, roots) = ((one.kind, other.kind), (root, other_root));
                if digest != other_digest {
                    let (one, other) = names;
                    wrong.push(format!(
                        "batch {number}: {one} and {other} read different values"
                    ));
                }
                if exact {
                    compared += 1;
                    if roots.0 != roots.1 {
                        let (one, other) = names;
                        wrong.push(format!(
                            "batch {number}: the root of {one} is {root:?}, of {other} {other_root:?}"
                        ));
                    }
                }
            }
        }
    }
    (wrong, compared)
}

pub(crate) fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn run_child(
    task: &Task,
    log: &Path,
    on_event: &mut dyn FnMut(Event) -> Next,
) -> Result<(), String> {
    let process = Process {
        command: "state-child",
        log,
        silence_max: match task.work {
            Work::Load => SILENCE_MAX_LOADING,
            Work::Batches(_) | Work::Probe(_) => SILENCE_MAX,
        },
        threads: None,
    };
    process.run(task, on_event)
}
