//! The report of a benchmark: machine, parameters, results, and targets that were met or missed.

use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A figure with its target.
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
    /// Other load at the start of the run, which makes figures worse.
    load: String,
}

/// Remarks for the reader of the report.
#[derive(Default)]
pub(crate) struct Notes(Vec<String>);

impl Notes {
    /// Prints a remark and adds it to the report, unless it is there already.
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

/// The result of a benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    benchmark: &'static str,
    machine: Machine,
    pub(crate) parameters: Map<String, Value>,
    pub(crate) results: Vec<Map<String, Value>>,
    /// The main figures of `results` as a table for people: name, and one figure for each result.
    #[serde(skip)]
    pub(crate) comparison: Vec<(String, Vec<String>)>,
    /// Whether people see `comparison` alone: `results` have much that is for programs.
    #[serde(skip)]
    pub(crate) is_table: bool,
    pub(crate) targets: Vec<Target>,
    /// Conditions that distort the figures. Read these first.
    pub(crate) notes: Vec<String>,
    /// Violations that fail the benchmark, such as a wrong outcome.
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
            is_table: false,
            targets: Vec::new(),
            notes: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Prints the report as a table, or as one JSON object.
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
        let shown = match self.is_table {
            true => &[],
            false => &self.results[..],
        };
        for result in shown {
            println!();
            // Lists are only printed as JSON.
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
            println!("  {met:<6}  {name}: {value:.2} {unit} (target: {target})");
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

/// The figures of a result, by name.
pub(crate) fn object<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    let entries = entries.into_iter();
    entries
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Returns the directory for generated chains and databases: beside the build, on the same disk.
pub(crate) fn data_dir() -> io::Result<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-data");
    fs::create_dir_all(&dir)?;
    dir.canonicalize()
}

/// Returns the quantile `part` (0 to 1) of sorted figures.
pub(crate) fn quantile(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    let at = rank.clamp(1, sorted.len().max(1)) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Returns the median.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    match figures.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => figures[len / 2],
        len => (figures[len / 2 - 1] + figures[len / 2]) / 2.0,
    }
}
