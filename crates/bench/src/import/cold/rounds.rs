//! Rounds over the ways of importing. Each import is a process of its own, on a new copy of the
//! state, with nothing of its files in the page cache.

use super::{
    child::{Fill, Imported, Task},
    way::Way,
};
use crate::{
    cgroup::Cgroup,
    import::{Copied, Inputs},
    process::{Next, Process},
    report::{Notes, median},
    state::fio_reads_per_second,
    system,
};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

const MIB: f64 = (1 << 20) as f64;
/// Maximum duration of an import.
const SILENCE_MAX: Duration = Duration::from_secs(3600);
/// Ratio of the state's size to the memory budget.
const STATE_OVER_MEMORY: u64 = 10;
/// Minimum memory budget that holds what the engine needs for a block.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// Parameters of a run.
pub(super) struct Plan {
    pub(super) data: PathBuf,
    pub(super) rounds: u64,
    /// Memory that the limit of a process leaves beside the budget.
    pub(super) spare_bytes: u64,
    pub(super) quick: bool,
}

/// How an import is run.
pub(super) struct Setup<'a> {
    pub(super) inputs: &'a Inputs,
    pub(super) memory_bytes: u64,
    pub(super) fill: Option<Fill>,
}

impl Setup<'_> {
    /// Returns the limit of memory of a process, including page cache.
    pub(super) const fn limit_bytes(&self, plan: &Plan) -> u64 {
        self.memory_bytes + plan.spare_bytes
    }
}

/// The figures of one way, by name, each with its value in every round.
#[derive(Default)]
pub(super) struct Figures(BTreeMap<String, Vec<f64>>);

/// The measurements of a case.
#[derive(Default)]
pub(super) struct Measured {
    pub(super) ways: BTreeMap<Way, Figures>,
    /// Other clients, by name.
    pub(super) peers: BTreeMap<String, Figures>,
    /// Random reads per second that `fio` gets from the disk, by round.
    pub(super) device: Vec<f64>,
    /// Errors of ways that failed.
    pub(super) failures: Vec<String>,
}

impl Figures {
    pub(super) fn add(&mut self, figures: BTreeMap<String, f64>) {
        for (name, value) in figures {
            self.0.entry(name).or_default().push(value);
        }
    }

    /// Returns the median of a figure, or `None` if it was not measured.
    pub(super) fn median(&self, name: &str) -> Option<f64> {
        self.0.get(name).map(|values| median(values.clone()))
    }

    pub(super) fn medians(&self) -> impl Iterator<Item = (&String, f64)> {
        let figures = self.0.iter();
        figures.map(|(name, values)| (name, median(values.clone())))
    }
}

/// Returns a tenth of the state's size.
pub(super) fn memory_for(inputs: &Inputs) -> u64 {
    (inputs.facts.state_bytes / STATE_OVER_MEMORY).max(MEMORY_BYTES_MIN)
}

/// Imports in every way, in every round. A way that fails is left out of later rounds.
pub(super) fn run(plan: &Plan, name: &str, setup: &Setup<'_>, notes: &mut Notes) -> Measured {
    let mut measured = Measured::default();
    let mut ways = Way::ALL.to_vec();
    for round in 1..=plan.rounds {
        match fio_reads_per_second(&plan.data, plan.quick) {
            Ok(rate) => measured.device.push(rate),
            Err(error) => notes.add(format!("no comparison with the device: {error}")),
        }
        ways.retain(|way| {
            let way = *way;
            eprintln!("{name}: round {round} of {}: {}", plan.rounds, way.name());
            match import(plan, setup, way, notes) {
                Ok(imported) => {
                    measured.ways.entry(way).or_default().add(imported);
                    true
                }
                Err(error) => {
                    let error = format!("{name}: {}: {error}", way.name());
                    measured.failures.push(error);
                    false
                }
            }
        });
        if !ways.is_empty() {
            // So that no way always comes first.
            ways.rotate_left(1);
        }
    }
    measured
}

/// Imports in one way.
pub(super) fn import(
    plan: &Plan,
    setup: &Setup<'_>,
    way: Way,
    notes: &mut Notes,
) -> Result<BTreeMap<String, f64>, String> {
    let inputs = setup.inputs;
    let copy = Copied::of(&inputs.state(), &plan.data)?;
    drop_inputs(inputs)?;
    let group = Cgroup::or_note("import", setup.limit_bytes(plan), notes);
    let task = Task {
        state: copy.path(),
        blocks: inputs.blocks(),
        lists: inputs.lists(),
        way,
        memory_bytes: setup.memory_bytes,
        fill: setup.fill,
        cgroup: group.as_ref().map(Cgroup::members),
    };
    let process = Process {
        command: "import-child",
        log: &plan.data.join("child.log"),
        silence_max: SILENCE_MAX,
        threads: None,
    };
    let mut imported: Option<Imported> = None;
    process.run(&task, &mut |event| {
        imported = Some(event);
        Next::GoOn
    })?;
    let Imported { head, mut figures } = imported.ok_or("the child told nothing")?;
    if head != inputs.facts.head {
        return Err(format!(
            "the head is {head} instead of {}",
            inputs.facts.head
        ));
    }
    let peak = group.as_ref().and_then(Cgroup::peak_bytes);
    figures.extend(peak.map(|peak| ("cgroup_peak_mib".to_owned(), peak as f64 / MIB)));
    let memory_mib = setup.memory_bytes as f64 / MIB;
    let rss = figures["rss_peak_mib"];
    figures.insert("rss_percent_of_memory".to_owned(), 100.0 * rss / memory_mib);
    Ok(figures)
}

/// Drops the files of blocks and lists from the page cache.
pub(super) fn drop_inputs(inputs: &Inputs) -> Result<(), String> {
    for file in [inputs.blocks(), inputs.lists()] {
        let dropped = system::drop_file(&file);
        dropped.map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}
