//! What every benchmark gives: the machine, its parameters, results, and targets met or missed.

use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// One figure that a benchmark is held against.
#[derive(Debug, Serialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) target: String,
    pub(crate) met: bool,
}

#[derive(Debug, Serialize)]
struct Machine {
    cores: usize,
    processor: String,
    memory_gib: f64,
    kernel: String,
    /// Other work at the start of the run: what makes figures worse than they are.
    load: String,
}

/// What is going on, and what the reader of the report should know.
#[derive(Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// Says it now and in the report, once.
    pub(crate) fn add(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.0.contains(&note) {
            eprintln!("NOTE: {note}");
            self.0.push(note);
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.0
    }
}

/// A finished benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    benchmark: &'static str,
    machine: Machine,
    pub(crate) parameters: Map<String, Value>,
    pub(crate) results: Vec<Map<String, Value>>,
    /// The main ones of `results` side by side, for people: a row is a name and a figure for each.
    #[serde(skip)]
    pub(crate) comparison: Vec<(String, Vec<String>)>,
    pub(crate) targets: Vec<Target>,
    /// What makes figures other than they should be: read these first.
    pub(crate) notes: Vec<String>,
    /// What must not be: the benchmark fails.
    pub(crate) errors: Vec<String>,
}

impl Report {
    pub(crate) fn new(benchmark: &'static str) -> Self {
        Self {
            benchmark,
            machine: Machine::here(),
            parameters: Map::new(),
            results: Vec::new(),
            comparison: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Prints a table for people, or one JSON object.
    pub(crate) fn print(&self, json: bool) {
        if json {
            println!("{}", serde_json::to_string_pretty(self).unwrap_or_default());
            return;
        }
        let Machine {
            cores,
            processor,
            memory_gib,
            kernel,
            load,
        } = &self.machine;
        println!(
            "{} on {cores} x {processor}, {memory_gib:.0} GiB, {kernel}",
            self.benchmark
        );
        println!("load at the start: {load}");
        for (name, value) in &self.parameters {
            println!("  {name}: {}", plain(value));
        }
        for result in &self.results {
            println!();
            // Lists are for machines.
            let figures = result.iter().filter(|(_, value)| !value.is_array());
            let width = figures.clone().map(|(name, _)| name.len()).max();
            let width = width.unwrap_or(0);
            for (name, value) in figures {
                println!("  {name:<width$}  {}", plain(value));
            }
        }
        if !self.comparison.is_empty() {
            println!();
        }
        for (name, figures) in &self.comparison {
            let figures: Vec<_> = figures
                .iter()
                .map(|figure| format!("{figure:>12}"))
                .collect();
            println!("  {name:<42}{}", figures.join(""));
        }
        println!();
        for Target {
            name,
            value,
            unit,
            target,
            met,
        } in &self.targets
        {
            let met = if *met { "met" } else { "MISSED" };
            println!("  {met:<6}  {name}: {value:.1} {unit} (target: {target})");
        }
        for note in &self.notes {
            println!("  NOTE    {note}");
        }
        for error in &self.errors {
            println!("  ERROR   {error}");
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => {
            format!("{:.2}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

impl Machine {
    fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split(':').nth(1))
                .unwrap_or("?")
                .trim()
                .to_owned()
        };
        let memory_kib: f64 = field(&read("/proc/meminfo"), "MemTotal")
            .split_whitespace()
            .next()
            .and_then(|number| number.parse().ok())
            .unwrap_or_default();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: field(&read("/proc/cpuinfo"), "model name"),
            memory_gib: memory_kib / f64::from(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: read("/proc/loadavg").trim().to_owned(),
        }
    }
}

/// Where generated chains and databases go: beside the build, on the same disk.
pub(crate) fn data_dir() -> io::Result<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-data");
    fs::create_dir_all(&dir)?;
    dir.canonicalize()
}

/// The figure that `part` (0 to 1) of some sorted figures do not exceed.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    let at = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// The middle one of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => figures[len / 2],
        len => (figures[len / 2 - 1] + figures[len / 2]) / 2.0,
    }
}
