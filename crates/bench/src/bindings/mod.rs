//! `./bench bindings`: the same reads and writes of a key-value store from Rust, C and Python, in memory,
//! on one core.
//!
//! ```text
//!   one process     write batches of 1,000 entries; get entry by entry; get batches of 1,000 entries
//!   one round       a process in each language, one after the other
//!   reported        the median of the rounds, and its ratio to Rust's
//! ```
//!
//! `program.rs`, `program.c` and `program.py` are the same program. Each transaction reads 1,000 keys
//! in an order that is not that of the keys, and each program sums what it has read, for all to be equal.

mod program;

use crate::report::{Report, Target, data_dir, median};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) use program::child;

#[derive(Debug, Args)]
pub(crate) struct BindingsArgs {
    /// Number of entries [default: 500,000, with --quick 100,000]
    #[arg(long)]
    entries: Option<u64>,
    /// Number of rounds
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Rates measured by one process, in entries per second.
#[derive(Debug, Deserialize)]
pub(crate) struct Rates {
    write_batches: f64,
    gets: f64,
    get_batches: f64,
    /// Sum of the first bytes of all values that were read.
    sum: u64,
}

impl Rates {
    fn figures(&self) -> [f64; 3] {
        [self.gets, self.get_batches, self.write_batches]
    }
}

const FIGURES: [&str; 3] = ["gets/s", "gets/s in batches", "puts/s in batches"];

/// A program to run.
struct Language {
    name: &'static str,
    /// With its arguments, but for the number of entries.
    command: Vec<PathBuf>,
    package: Option<PathBuf>,
    measured: Vec<Rates>,
}

impl Language {
    fn measure(&mut self, entries: u64) -> Result<(), String> {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).arg(entries.to_string());
        if let Some(package) = &self.package {
            command.env("PYTHONPATH", package);
        }
        let failed = |why: String| format!("{}: {why}", self.name);
        let output = command
            .output()
            .map_err(|error| failed(error.to_string()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(failed(errors.trim().to_owned()));
        }
        let rates = serde_json::from_slice(&output.stdout);
        let rates = rates.map_err(|error| failed(error.to_string()))?;
        self.measured.push(rates);
        Ok(())
    }

    fn median(&self, figure: usize) -> f64 {
        let rates = self.measured.iter();
        median(rates.map(|rates| rates.figures()[figure]).collect())
    }
}

/// The directory with what cargo has built.
fn built() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().unwrap_or(Path::new(".")).to_path_buf())
}

/// Compiles the program in C.
fn c_program(source: &Path, dir: &Path) -> Result<Language, Box<dyn Error>> {
    let (libraries, program) = (built()?, dir.join("program"));
    let compiled = Command::new("cc")
        .args(["-std=c11", "-O2", "-I"])
        .arg(source.join("../../../capi/include"))
        .arg(source.join("program.c"))
        .arg("-L")
        .arg(&libraries)
        .arg("-lcambium_capi")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-o")
        .arg(&program)
        .output()?;
    if !compiled.status.success() {
        return Err(String::from_utf8_lossy(&compiled.stderr).into());
    }
    Ok(Language {
        name: "C",
        command: vec![program],
        package: None,
        measured: Vec::new(),
    })
}

/// Puts the Python package together.
fn python_program(source: &Path, dir: &Path) -> Result<Language, Box<dyn Error>> {
    let package = dir.join("cambium");
    fs::create_dir_all(&package)?;
    let files = source.join("../../../python/python/cambium/__init__.py");
    fs::copy(files, package.join("__init__.py"))?;
    let module = built()?.join("libcambium_python.so");
    fs::copy(module, package.join("_native.abi3.so"))?;
    Ok(Language {
        name: "Python",
        command: vec!["python3".into(), source.join("program.py")],
        package: Some(dir.to_path_buf()),
        measured: Vec::new(),
    })
}

/// Keeps this process and its children on one core.
fn use_one_core() -> Result<(), Box<dyn Error>> {
    let mut one = CpuSet::new();
    one.set(0);
    Ok(sched_setaffinity(None, &one)?)
}

pub(crate) fn run(args: &BindingsArgs, quick: bool) -> Result<Report, Box<dyn Error>> {
    let usual = if quick { 100_000 } else { 500_000 };
    let entries = args.entries.unwrap_or(usual).max(1000) / 1000 * 1000;
    let dir = data_dir()?.join("bindings");
    fs::create_dir_all(&dir)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings");
    let mut report = Report::new("bindings");
    let mut languages = vec![Language {
        name: "Rust",
        command: vec![std::env::current_exe()?, "bindings-child".into()],
        package: None,
        measured: Vec::new(),
    }];
    languages.push(c_program(&source, &dir)?);
    match Command::new("python3").arg("--version").output() {
        Ok(_) => languages.push(python_program(&source, &dir)?),
        Err(error) => report.notes.push(format!("Python was not run: {error}")),
    }
    use_one_core()?;
    for _ in 0..args.rounds.max(1) {
        for language in &mut languages {
            language.measure(entries)?;
        }
    }
    let sum = languages[0].measured[0].sum;
    for language in &languages {
        if language.measured.iter().any(|rates| rates.sum != sum) {
            let error = format!("{} has read other values", language.name);
            report.errors.push(error);
        }
    }
    report.parameters = Map::from_iter([
        ("entries".to_owned(), json!(entries)),
        ("bytes of a key, and of a value".to_owned(), json!(32)),
        ("entries of a batch".to_owned(), json!(1000)),
        ("rounds".to_owned(), json!(args.rounds)),
        ("cores used".to_owned(), json!(1)),
    ]);
    summarize(&languages, &mut report);
    Ok(report)
}

fn summarize(languages: &[Language], report: &mut Report) {
    let names = languages.iter().map(|language| language.name.to_owned());
    let ratios = languages.iter().skip(1);
    let ratio_names = ratios.map(|language| format!("{}/Rust", language.name));
    let header = names.chain(ratio_names).collect();
    report.comparison.push((String::new(), header));
    for (at, name) in FIGURES.iter().enumerate() {
        let rates: Vec<_> = languages.iter().map(|one| one.median(at)).collect();
        let ratios = rates.iter().skip(1).map(|rate| rate / rates[0]);
        let shown = rates.iter().map(|rate| format!("{rate:.0}"));
        let shown = shown.chain(ratios.map(|ratio| format!("{ratio:.2}")));
        report
            .comparison
            .push(((*name).to_owned(), shown.collect()));
    }
    for language in languages {
        let mut result = Map::new();
        result.insert("language".to_owned(), json!(language.name));
        for (at, name) in FIGURES.iter().enumerate() {
            result.insert((*name).to_owned(), json!(language.median(at)));
            let all = language.measured.iter().map(|rates| rates.figures()[at]);
            result.insert(format!("{name}, all"), all.collect::<Value>());
        }
        report.results.push(result);
    }
    let gets = |name: &str, target: f64| {
        let language = languages.iter().find(|language| language.name == name)?;
        Some(Target {
            name: format!("gets/s from {name}"),
            value: language.median(0),
            unit: "gets/s",
            target: format!("at least {target}"),
            met: language.median(0) >= target,
        })
    };
    report.targets.extend(gets("C", 1e6));
    report.targets.extend(gets("Python", 300e3));
    for language in languages.iter().skip(1) {
        for at in [1, 2] {
            let ratio = language.median(at) / languages[0].median(at);
            report.targets.push(Target {
                name: format!("{} from {}", FIGURES[at], language.name),
                value: ratio,
                unit: "of Rust's",
                target: "at least 0.8".to_owned(),
                met: ratio >= 0.8,
            });
        }
    }
}
