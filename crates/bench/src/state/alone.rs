//! Measurements of Cambium alone, in the parent process: `fio` beside random reads, a kill, copies.

use super::{
    child::{Batches, Event, Work},
    probes::Probe,
    rounds::{Plan, StoreRun, gib},
};
use crate::{
    process::Next,
    report::{Notes, median},
    system,
};
use serde_json::{Map, Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Number of requests that `fio` keeps in flight, the same as in a ring of Cambium's disk.
const FIO_DEPTH: u32 = 128;
/// Number of batches before the kill, so that there is a log to replay.
const BATCHES_BEFORE_KILL: u64 = 12;
/// Number of times that reads and `fio` alternate.
const READ_TURNS: u64 = 3;

/// Sizes of the measurements.
struct Size {
    seconds: f64,
    small_blocks: u64,
    fio_file: &'static str,
}

impl Size {
    fn of(quick: bool) -> Self {
        match quick {
            true => Self {
                seconds: 1.0,
                small_blocks: 500,
                fio_file: "512M",
            },
            false => Self {
                seconds: 5.0,
                small_blocks: 10_000,
                fio_file: "2G",
            },
        }
    }
}

/// Makes all measurements of Cambium alone that apply to this plan.
pub(crate) fn measure(
    plan: &Plan,
    run: &StoreRun,
    quick: bool,
    notes: &mut Notes,
) -> Map<String, Value> {
    let size = Size::of(quick);
    let mut all = Map::from_iter([("store".to_owned(), json!("cambium, alone"))]);
    let mut add =
        |name: &str, part: Result<Map<String, Value>, String>, notes: &mut Notes| match part {
            Ok(figures) => all.extend(figures),
            Err(error) => notes.add(format!("{name} failed: {error}")),
        };
    if !plan.warm {
        let reads = random_reads(plan, run, &size, notes);
        add("the random-read phase", reads, notes);
    }
    let seconds = size.seconds;
    let hot = plan.figures_of(&run.dir(), Probe::HotReads { seconds }, notes);
    add("the hot-read phase", hot, notes);
    if !plan.warm {
        let changing = Copied::make(plan, run).and_then(|copy| {
            add("the kill", killed(plan, run, &copy.0, notes), notes);
            let blocks = size.small_blocks;
            plan.figures_of(&copy.0, Probe::SmallBlocks { blocks }, notes)
        });
        add("the phase of small blocks", changing, notes);
    }
    all
}

/// A copy of a database, removed on drop.
struct Copied(PathBuf);

impl Copied {
    fn make(plan: &Plan, run: &StoreRun) -> Result<Self, String> {
        let copy = Self(plan.data_dir.join("copy"));
        copy.remove();
        let needed = 2 * run.disk_bytes();
        let free = system::disk_free_bytes(&plan.data_dir).map_err(|error| error.to_string())?;
        if needed > free {
            let (needed, free) = (gib(needed), gib(free));
            return Err(format!(
                "a copy needs {needed} of disk, and {free} are free"
            ));
        }
        system::copy_dir(&run.dir(), &copy.0)?;
        Ok(copy)
    }

    fn remove(&self) {
        // If the removal fails, the next copy fails with an error that says so.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        self.remove();
    }
}

fn random_reads(
    plan: &Plan,
    run: &StoreRun,
    size: &Size,
    notes: &mut Notes,
) -> Result<Map<String, Value>, String> {
    let mut turns: Vec<Map<String, Value>> = Vec::new();
    let mut device = Vec::new();
    for seed in 0..READ_TURNS {
        match fio(&plan.data_dir, size) {
            Ok(rate) => device.push(rate),
            Err(error) => notes.add(format!("no comparison with the device: {error}")),
        }
        let seconds = size.seconds;
        turns.push(plan.figures_of(&run.dir(), Probe::RandomReads { seconds, seed }, notes)?);
    }
    let names: Vec<_> = turns
        .first()
        .map(|turn| turn.keys().cloned().collect())
        .unwrap_or_default();
    let mut figures = Map::new();
    for name in names {
        let values = turns.iter().filter_map(|turn| turn[&name].as_f64());
        let middle = median(values.collect());
        figures.insert(format!("random_{name}"), json!(middle));
    }
    if !device.is_empty() {
        let device = median(device);
        figures.insert(
            format!("fio_reads_per_second_depth_{FIO_DEPTH}"),
            json!(device),
        );
        let own = figures["random_device_reads_per_second"].as_f64();
        let percent = 100.0 * own.unwrap_or_default() / device;
        figures.insert("random_reads_percent_of_fio".to_owned(), json!(percent));
    }
    Ok(figures)
}

/// Returns the random reads of 4 KiB per second that `fio` gets from the disk.
pub(crate) fn fio_reads_per_second(dir: &Path, quick: bool) -> Result<f64, String> {
    fio(dir, &Size::of(quick))
}

/// Runs `fio` on the same file system, and returns its random reads of 4 KiB per second.
fn fio(dir: &Path, size: &Size) -> Result<f64, String> {
    let file = dir.join("fio.dat");
    let output = Command::new("fio")
        .args(["--name=read", "--rw=randread", "--bs=4k", "--direct=1"])
        .args(["--ioengine=io_uring", "--time_based", "--norandommap"])
        .arg(format!("--iodepth={FIO_DEPTH}"))
        .arg(format!("--runtime={}", size.seconds))
        .arg(format!("--size={}", size.fio_file))
        .arg(format!("--filename={}", file.display()))
        .arg("--output-format=json")
        .output()
        .map_err(|error| format!("fio: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "fio: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let parsed: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("the output of fio: {error}"))?;
    let rate = parsed["jobs"][0]["read"]["iops"].as_f64();
    rate.ok_or_else(|| "the output of fio has no rate".to_owned())
}

/// Runs batches, kills the process during one, and measures the next opening.
fn killed(
    plan: &Plan,
    run: &StoreRun,
    dir: &Path,
    notes: &mut Notes,
) -> Result<Map<String, Value>, String> {
    let first = run.batches_held();
    let batches = Batches {
        first,
        plain: BATCHES_BEFORE_KILL + 1,
        ..Batches::default()
    };
    let mut acknowledged = first;
    plan.probe(dir, Work::Batches(batches), notes, &mut |event| {
        if let Event::Batch(batch) = event {
            acknowledged = batch.number + 1;
        }
        match acknowledged >= first + BATCHES_BEFORE_KILL {
            true => Next::Kill,
            false => Next::GoOn,
        }
    })?;
    let probe = Probe::Reopen {
        batches_acknowledged: acknowledged,
    };
    plan.figures_of(dir, probe, notes)
}
