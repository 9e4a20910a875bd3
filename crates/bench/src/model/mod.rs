//! `./bench model`: what a state of any size costs, told from the counters of one run and held against others.
//!
//! ```text
//!   runs        figures of `./bench state --json`                    runs.rs
//!   mechanics   pages, index, memory, reads, writes, hashes, time    mechanics.rs
//!   report      measured beside predicted; larger states             mod.rs
//!   plot        the same as SVG                                      plot.rs
//! ```

mod figures;
mod runs;
mod mechanics;
mod plot;

use crate::report::{Report, data_dir};
use clap::Args;
use figures::{Figures, Load, Machine};
use mechanics::Costs;
use plot::{Line, Panel};
use runs::Run;
use serde_json::{Map, Value, json};
use std::{error::Error, fs, path::PathBuf};

const GIB: f64 = (1u64 << 30) as f64;
/// States that are told: accounts and slots of mainnet, and six times as many.
const TOLD_KEYS: [f64; 2] = [1.6e9, 1e10];
/// Memory of the machines that are told, in GiB.
const TOLD_GIB: [f64; 3] = [32.0, 64.0, 128.0];
/// Keys that a block of mainnet reads and changes.
const BLOCK_CHANGES: f64 = 2_000.0;
/// Sizes of states in the plot: from 2^20 keys to 2^34, in steps of a quarter of a doubling.
const PLOTTED: std::ops::RangeInclusive<i32> = 80..=136;

#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Reports of `./bench state --json`: the costs are taken from the first, and all are held against the model
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Cores of the machines that are told
    #[arg(long, default_value_t = 16.0)]
    cores: f64,
    /// Random reads a second of the machines that are told, with 128 in flight
    #[arg(long, default_value_t = 500_000.0)]
    reads: f64,
    /// File for the plot [default: model.svg beside the data of benchmarks]
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// A figure that is measured and predicted, by its name in reports.
struct Quantity {
    name: &'static str,
    get: fn(&Figures) -> f64,
}

const QUANTITIES: [Quantity; 7] = [
    Quantity {
        name: "accounts_a_page",
        get: |figures| figures.accounts_a_page,
    },
    Quantity {
        name: "index_bytes",
        get: |figures| figures.index_bytes,
    },
    Quantity {
        name: "reads_a_change",
        get: |figures| figures.reads_a_change,
    },
    Quantity {
        name: "bytes_written_a_change",
        get: |figures| figures.bytes_written_a_change,
    },
    Quantity {
        name: "hashes_a_change",
        get: |figures| figures.hashes_a_change,
    },
    Quantity {
        name: "processor_us_a_change",
        get: |figures| figures.processor_us_a_change,
    },
    Quantity {
        name: "batch_ms",
        get: |figures| figures.batch_ms,
    },
];

/// Takes the costs from the first run, holds the model against all of them, and tells larger states.
pub(crate) fn run(args: &ModelArgs) -> Result<Report, Box<dyn Error>> {
    let runs = args
        .runs
        .iter()
        .map(|path| Run::read(path))
        .collect::<Result<Vec<_>, _>>()?;
    let costs = Costs::of(&runs[0]);
    let mut report = Report::new("model");
    report
        .parameters
        .insert("costs".into(), serde_json::to_value(costs)?);
    report.is_table = true;
    let mut worst: Map<String, Value> = Map::new();
    for run in &runs {
        let (measured, predicted) = (run.figures(), costs.predict(&run.load, &run.machine));
        let mut result = Map::new();
        let mut add = |name: String, value: f64| result.insert(name, json!(value));
        add("keys".into(), run.load.keys);
        add("memory_bytes".into(), run.machine.memory_bytes);
        for Quantity { name, get } in &QUANTITIES {
            let (measured, predicted) = (get(&measured), get(&predicted));
            let percent = 100.0 * (predicted / measured - 1.0);
            add(format!("{name}_measured"), measured);
            add(format!("{name}_predicted"), predicted);
            add(format!("{name}_error_percent"), percent);
            let known = worst.get(*name).and_then(Value::as_f64).unwrap_or(0.0);
            if percent.abs() >= known.abs() {
                worst.insert((*name).to_owned(), json!(percent));
            }
        }
        report.results.push(result);
    }
    report.comparison = table(&report.results);
    report.results.push(Map::from_iter([(
        "largest_errors_percent".to_owned(),
        Value::Object(worst),
    )]));
    let told = told(args, &costs);
    report.comparison.push((String::new(), Vec::new()));
    report.comparison.extend(told_table(&told));
    report.results.extend(told);
    let plot = match &args.plot {
        Some(plot) => plot.clone(),
        None => data_dir()?.join("model.svg"),
    };
    fs::write(&plot, picture(args, &costs, &runs))?;
    report
        .parameters
        .insert("plot".to_owned(), json!(plot.display().to_string()));
    Ok(report)
}

/// Measured figures beside predicted ones, a column for each run.
fn table(results: &[Map<String, Value>]) -> Vec<(String, Vec<String>)> {
    let number = |value: f64| match value.abs() {
        large if large >= 1e6 => format!("{:.1} Mi", value / f64::from(1 << 20)),
        large if large >= 100.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    };
    let row = |name: &str| {
        let figures = results.iter().map(|result| {
            let value = result[name].as_f64().unwrap_or(f64::NAN);
            match name.ends_with("percent") {
                true => format!("{value:+.0} %"),
                false => number(value),
            }
        });
        (name.replace('_', " "), figures.collect())
    };
    let mut rows = vec![row("keys"), row("memory_bytes")];
    for Quantity { name, .. } in &QUANTITIES {
        for kind in ["measured", "predicted", "error_percent"] {
            rows.push(row(&format!("{name}_{kind}")));
        }
    }
    rows
}

fn told_machine(args: &ModelArgs, gib: f64) -> Machine {
    Machine {
        memory_bytes: gib * GIB,
        cores: args.cores,
        reads_per_second: args.reads,
    }
}

/// Predictions for states that were not measured: batches as the benchmark's, and blocks of mainnet.
fn told(args: &ModelArgs, costs: &Costs) -> Vec<Map<String, Value>> {
    let sizes = TOLD_KEYS
        .iter()
        .flat_map(|keys| TOLD_GIB.map(|gib| (*keys, gib)));
    sizes
        .map(|(keys, gib)| {
            let machine = told_machine(args, gib);
            let load = |changes| Load { keys, changes };
            let batch = costs.predict(&load(50_000.0), &machine);
            let block = costs.predict(&load(BLOCK_CHANGES), &machine);
            let mut told = Map::new();
            let mut add = |name: &str, value: f64| told.insert(name.to_owned(), json!(value));
            add("told_keys", keys);
            add("told_memory_gib", gib);
            add("told_accounts_a_page", batch.accounts_a_page);
            add("told_index_gib", batch.index_bytes / GIB);
            add("told_cached_percent", 100.0 * batch.cached_share);
            add("told_reads_a_change", batch.reads_a_change);
            add("told_bytes_written_a_change", batch.bytes_written_a_change);
            add("told_hashes_a_change", batch.hashes_a_change);
            add("told_changes_per_second", 5e7 / batch.batch_ms);
            add("told_block_ms", block.batch_ms);
            told
        })
        .collect()
}

fn told_table(told: &[Map<String, Value>]) -> Vec<(String, Vec<String>)> {
    let names: Vec<_> = told.first().into_iter().flat_map(Map::keys).collect();
    let text = |value: f64| match value {
        large if large >= 1e9 => format!("{:.1} G", large / 1e9),
        large if large >= 100.0 => format!("{large:.0}"),
        small => format!("{small:.2}"),
    };
    names
        .into_iter()
        .map(|name| {
            let values = told
                .iter()
                .map(|told| text(told[name].as_f64().unwrap_or(f64::NAN)));
            (
                name.replace("told_", "").replace('_', " "),
                values.collect(),
            )
        })
        .collect()
}

/// A quantity over the size of the state: measured runs as points, the model as lines for several memories.
fn picture(args: &ModelArgs, costs: &Costs, runs: &[Run]) -> String {
    let base = runs[0].machine;
    let here = format!("{:.1} GiB, this machine", base.memory_bytes / GIB);
    let machines: Vec<_> = [(here, base)]
        .into_iter()
        .chain(TOLD_GIB.map(|gib| {
            let name = format!("{gib} GiB, {} cores", args.cores);
            (name, told_machine(args, gib))
        }))
        .collect();
    let sizes = || PLOTTED.map(|step| 2f64.powf(f64::from(step) / 4.0));
    let panel = |title: &str, get: &dyn Fn(&Load, &Figures) -> f64| Panel {
        title: title.to_owned(),
        lines: machines
            .iter()
            .map(|(name, machine)| Line {
                name: name.clone(),
                points: sizes()
                    .map(|keys| {
                        let load = Load {
                            keys,
                            changes: runs[0].load.changes,
                        };
                        (keys, get(&load, &costs.predict(&load, machine)))
                    })
                    .collect(),
            })
            .collect(),
        measured: runs
            .iter()
            .map(|run| (run.load.keys, get(&run.load, &run.figures())))
            .collect(),
    };
    let panels = [
        panel("keys changed a second", &|load, figures| {
            1e3 * load.changes / figures.batch_ms
        }),
        panel("device reads a changed key", &|_, figures| {
            figures.reads_a_change
        }),
        panel("bytes written a changed key", &|_, figures| {
            figures.bytes_written_a_change
        }),
        panel("bytes of index a key", &|load, figures| {
            figures.index_bytes / load.keys
        }),
    ];
    plot::draw(
        "Costs by the size of the state",
        "keys of the state; lines are the model, points are measured",
        2,
        &panels,
    )
}
