//! The measurements of one store over all rounds. Each execution is a process of its own.

use super::{
    child::{Executed, Task},
    ways::{Provider, Way},
};
use crate::{
    bal::plan::Plan,
    cgroup::Cgroup,
    process::{Next, Process},
    report::Notes,
    system,
};
use alloy_primitives::B256;
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Maximum duration of an execution.
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// Parameters that all executions share.
pub(crate) struct Setup {
    /// Directory of the block's files.
    pub(crate) block: PathBuf,
    /// Hash of the expected outcome.
    pub(crate) outcome: B256,
    pub(crate) transactions: usize,
    pub(crate) gas: u64,
    /// Size of Cambium's state in bytes.
    pub(crate) state_bytes: u64,
    /// A store's share of memory in bytes.
    pub(crate) share_bytes: u64,
    /// Memory that execution takes without a store, in bytes.
    pub(crate) process_bytes: u64,
    /// Without a store: whether reads take as long as from a disk.
    pub(crate) slow_reads: bool,
}

impl Setup {
    pub(crate) const fn limit_bytes(&self) -> u64 {
        self.share_bytes + self.process_bytes
    }
}

/// The measurements of a store.
pub(crate) struct Store {
    pub(crate) provider: Provider,
    pub(crate) dir: PathBuf,
    pub(crate) turns: BTreeMap<Way, Turns>,
    pub(crate) open_ms: Vec<f64>,
    pub(crate) cgroup_peak_bytes: u64,
    pub(crate) configuration: String,
    pub(crate) failure: Option<String>,
}

/// Measurements of one way of executing, by round.
#[derive(Default)]
pub(crate) struct Turns {
    pub(crate) ms: Vec<f64>,
    pub(crate) device_reads: Vec<f64>,
    pub(crate) read_bytes: Vec<f64>,
}

impl Store {
    pub(crate) fn new(provider: Provider, dir: PathBuf) -> Self {
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

    /// Executes the block once, cold, within this limit of memory.
    pub(crate) fn execute(
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
            threads: None,
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

    pub(crate) fn take(&mut self, way: Way, executed: Executed) {
        let turns = self.turns.entry(way).or_default();
        turns.ms.push(executed.ms);
        turns.device_reads.push(executed.io.device_reads as f64);
        turns.read_bytes.push(executed.io.read_bytes as f64);
        self.open_ms.push(executed.open_ms);
        self.configuration = executed.configuration;
    }
}
