//! The same blocks imported by geth, from a copy of a database that it has initialized once.
//!
//! Geth is told the same memory (`--cache`), and its process has the same limit, page cache
//! included. The path scheme is used. The time is what geth reports: from its first block until
//! its caches are on the disk, without opening and without the compaction that would follow.
//!
//! `geth init` holds the whole genesis state in memory several times: 1.3 GB for 200,000 accounts
//! of which a fifth hold tokens, 7.8 GB for a million. 10 million would take more than 64 GB, so
//! the comparison needs `--accounts 1000000`, or 2 million with 24 GB.

use super::{
    inputs::Inputs,
    rounds::{Copied, Figures, Plan, Setup, drop_inputs},
};
use crate::{
    cgroup::Cgroup,
    report::{Notes, data_dir},
    state::stores::Failure,
    system,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

const MODULE: &str = "github.com/ethereum/go-ethereum/cmd/geth";
const VERSION: &str = "v1.16.9";
const MIB: f64 = (1 << 20) as f64;
/// Time between two looks at the memory of the process.
const POLL: Duration = Duration::from_millis(100);
/// Time after which an import is killed: in too little memory geth reads its own code again and
/// again.
const IMPORT_MAX: Duration = Duration::from_secs(900);
const INIT_MAX: Duration = Duration::from_secs(3 * 3600);
/// Initializing takes the genesis file into memory: it may take this percentage of what is free.
const INIT_PERCENT: u64 = 85;

/// Path of the geth program.
pub(super) struct Program(PathBuf);

/// Figures of initializing a database.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Initialized {
    seconds: f64,
    rss_peak_bytes: u64,
}

/// A process that has ended.
struct Ended {
    status: ExitStatus,
    seconds: f64,
    cpu_seconds: f64,
    rss_peak_bytes: u64,
    cgroup_peak_bytes: Option<u64>,
}

impl Program {
    /// Builds the program from its module, unless it is there.
    pub(super) fn build() -> Result<Self, Failure> {
        let dir = data_dir()?.join(format!("geth-{VERSION}"));
        let program = dir.join("geth");
        if program.exists() {
            return Ok(Self(program));
        }
        eprintln!("building {MODULE}@{VERSION} (once)");
        let status = Command::new("go")
            .arg("install")
            .arg(format!("{MODULE}@{VERSION}"))
            .env("GOBIN", &dir)
            .status()
            .map_err(|error| format!("go, which builds geth: {error}"))?;
        match status.success() {
            true => Ok(Self(program)),
            false => Err(format!("go install {MODULE}@{VERSION}: {status}").into()),
        }
    }

    pub(super) fn name() -> String {
        format!("geth {VERSION}")
    }

    /// Imports the blocks in every round, each time into a new copy of the database.
    pub(super) fn measure(
        &self,
        plan: &Plan,
        setup: &Setup<'_>,
        notes: &mut Notes,
    ) -> Result<Figures, Failure> {
        let (db, initialized) = self.database(setup.inputs, notes)?;
        let mut figures = Figures::default();
        for round in 1..=plan.rounds {
            eprintln!("geth: round {round} of {}", plan.rounds);
            let mut of_round = self.import(plan, setup, &db, notes)?;
            let mut add = |name: &str, value: f64| of_round.insert(name.to_owned(), value);
            add("init_seconds", initialized.seconds);
            let resident = initialized.rss_peak_bytes as f64 / MIB;
            add("init_rss_peak_mib", resident);
            add("database_mib", system::disk_bytes(&db)? as f64 / MIB);
            figures.add(of_round);
        }
        Ok(figures)
    }

    /// Imports the blocks into a copy of `db`.
    fn import(
        &self,
        plan: &Plan,
        setup: &Setup<'_>,
        db: &Path,
        notes: &mut Notes,
    ) -> Result<BTreeMap<String, f64>, Failure> {
        let Setup {
            inputs,
            memory_bytes,
            ..
        } = setup;
        let copy = Copied::of(db, &plan.data)?;
        drop_inputs(inputs)?;
        let mut args = command("import", &copy.path());
        let cache = (memory_bytes >> 20).to_string();
        args.extend(["--nocompaction", "--cache", &cache].map(OsString::from));
        args.push(inputs.blocks().into());
        let log = plan.data.join("geth.log");
        let limit = setup.limit_bytes(plan);
        let ended = self.run(&args, limit, IMPORT_MAX, &log, notes)?;
        let text = fs::read_to_string(&log)?;
        if !ended.status.success() || !has_imported(&text, inputs.facts.blocks) {
            return Err(failed("import", &ended, &text).into());
        }
        let seconds = import_seconds(&text).ok_or("geth reported no time")?;
        let rss = ended.rss_peak_bytes as f64;
        let transactions = inputs.facts.transactions as f64;
        let figures = [
            ("seconds", Some(seconds)),
            ("transactions_per_second", Some(transactions / seconds)),
            ("process_seconds", Some(ended.seconds)),
            ("cpu_seconds", Some(ended.cpu_seconds)),
            ("rss_peak_mib", Some(rss / MIB)),
            (
                "rss_percent_of_memory",
                Some(100.0 * rss / *memory_bytes as f64),
            ),
            (
                "cgroup_peak_mib",
                ended.cgroup_peak_bytes.map(|peak| peak as f64 / MIB),
            ),
        ];
        let figures = figures.into_iter();
        Ok(figures
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect())
    }

    /// Returns geth's database of a workload, and initializes it if it is missing.
    fn database(
        &self,
        inputs: &Inputs,
        notes: &mut Notes,
    ) -> Result<(PathBuf, Initialized), Failure> {
        let dir = inputs.place("geth");
        let done = dir.with_extension("json");
        if done.exists() {
            return Ok((dir, serde_json::from_slice(&fs::read(done)?)?));
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let genesis = inputs.genesis_file()?;
        eprintln!("geth init: {} (once)", dir.display());
        let mut args = command("init", &dir);
        args.push(genesis.into());
        let limit = system::memory_available_bytes() / 100 * INIT_PERCENT;
        let log = inputs.place("geth-init.log");
        let ended = self.run(&args, limit, INIT_MAX, &log, notes)?;
        if !ended.status.success() {
            let error = failed("init", &ended, &fs::read_to_string(&log)?);
            if dir.exists() {
                fs::remove_dir_all(&dir)?;
            }
            return Err(error.into());
        }
        let initialized = Initialized {
            seconds: ended.seconds,
            rss_peak_bytes: ended.rss_peak_bytes,
        };
        fs::write(done, serde_json::to_vec_pretty(&initialized)?)?;
        Ok((dir, initialized))
    }

    /// Runs the program in a cgroup with this limit, until it ends or its time is over.
    fn run(
        &self,
        args: &[OsString],
        limit_bytes: u64,
        time_max: Duration,
        log: &Path,
        notes: &mut Notes,
    ) -> Result<Ended, Failure> {
        let group = Cgroup::or_note("geth", limit_bytes, notes);
        let members = group.as_ref().map(Cgroup::members);
        let out = File::create(log)?;
        let (start, cpu) = (Instant::now(), system::children_cpu_seconds());
        let mut child = Command::new("sh")
            // The shell joins the group and becomes the program.
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(members.unwrap_or_else(|| "/dev/null".into()))
            .arg(&self.0)
            .args(args)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        let (status, rss_peak_bytes) = wait(&mut child, time_max)?;
        Ok(Ended {
            status,
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: system::children_cpu_seconds() - cpu,
            rss_peak_bytes,
            cgroup_peak_bytes: group.as_ref().and_then(Cgroup::peak_bytes),
        })
    }
}

/// Waits for a process, and kills it when its time is over. Returns its status, and the peak of its resident memory when last looked.
fn wait(child: &mut Child, time_max: Duration) -> Result<(ExitStatus, u64), Failure> {
    let (start, mut peak) = (Instant::now(), 0);
    loop {
        peak = system::rss_peak_bytes_of(child.id()).max(peak);
        if let Some(status) = child.try_wait()? {
            return Ok((status, peak));
        }
        if start.elapsed() > time_max {
            child.kill()?;
        }
        thread::sleep(POLL);
    }
}

/// Returns a command with the options that all commands have in common.
fn command(name: &str, dir: &Path) -> Vec<OsString> {
    let command = [name, "--state.scheme", "path", "--datadir"].map(OsString::from);
    command.into_iter().chain([dir.into()]).collect()
}

fn failed(command: &str, ended: &Ended, log: &str) -> String {
    let lines: Vec<_> = log.lines().rev().take(3).collect();
    let lines: Vec<_> = lines.into_iter().rev().collect();
    let peak = ended.rss_peak_bytes as f64 / MIB;
    format!(
        "geth {command}: {}, resident {peak:.0} MiB: {}",
        ended.status,
        lines.join(" / ")
    )
}

/// Whether the log says that the last block was imported. Geth reports errors of an import without
/// an exit code.
fn has_imported(log: &str, last: u64) -> bool {
    let number = format!("number={last} ");
    let imported = |line: &str| line.contains("Imported new") && line.contains(&number);
    log.lines().any(imported) && !log.contains("Import error")
}

/// Returns the time of the import in geth's log, which is a duration as Go prints it.
fn import_seconds(log: &str) -> Option<f64> {
    let lines = log.lines();
    let mut times = lines.filter_map(|line| line.strip_prefix("Import done in "));
    seconds_of(times.next()?.trim_end_matches('.'))
}

/// Parses a duration such as `1m2.5s` or `850.1ms`.
fn seconds_of(duration: &str) -> Option<f64> {
    let mut seconds = 0.0;
    let mut rest = duration;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit());
        let unit_end = unit_end.map_or(rest.len(), |at| end + at);
        seconds += number
            * match &rest[end..unit_end] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "µs" => 1e-6,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    Some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_prints_them() {
        for (text, seconds) in [
            ("850.5ms", 0.8505),
            ("2.25s", 2.25),
            ("1m2.5s", 62.5),
            ("1h0m3s", 3603.0),
            ("12µs", 12e-6),
        ] {
            assert!((seconds_of(text).unwrap() - seconds).abs() < 1e-9, "{text}");
        }
        assert_eq!(seconds_of("7 parsecs"), None);
        assert_eq!(import_seconds("x\nImport done in 1m2.5s.\n\ny"), Some(62.5));
        assert_eq!(import_seconds("nothing"), None);
    }

    #[test]
    fn an_import_counts_if_its_last_block_is_reported() {
        let log = "INFO Imported new potential chain segment number=120 hash=1\n";
        assert!(has_imported(log, 120));
        assert!(!has_imported(log, 12));
        assert!(!has_imported(
            &format!("{log}ERROR Import error err=x"),
            120
        ));
    }
}
