//! geth, built once from its module, and run in processes with limited memory.

use crate::{
    cgroup::Cgroup,
    report::{Notes, data_dir},
    state::stores::Failure,
    system,
};
use std::{
    ffi::OsString,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

const MODULE: &str = "github.com/ethereum/go-ethereum/cmd/geth";
/// The version beside which imports and histories are measured.
pub(crate) const VERSION: &str = "v1.16.9";
const MIB: f64 = (1 << 20) as f64;
/// Time between two looks at the memory of the process.
const POLL: Duration = Duration::from_millis(100);

/// Path of the geth program.
pub(crate) struct Program(PathBuf);

/// A process that runs. It is killed on drop.
pub(crate) struct Running {
    child: Child,
    group: Option<Cgroup>,
}

/// A process that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) rss_peak_bytes: u64,
    pub(crate) cgroup_peak_bytes: Option<u64>,
}

impl Program {
    /// Builds a version of the program from its module, unless it is there.
    pub(crate) fn build(version: &str) -> Result<Self, Failure> {
        let dir = data_dir()?.join(format!("geth-{version}"));
        let program = dir.join("geth");
        if program.exists() {
            return Ok(Self(program));
        }
        eprintln!("building {MODULE}@{version} (once)");
        let status = Command::new("go")
            .arg("install")
            .arg(format!("{MODULE}@{version}"))
            .env("GOBIN", &dir)
            .status()
            .map_err(|error| format!("go, which builds geth: {error}"))?;
        match status.success() {
            true => Ok(Self(program)),
            false => Err(format!("go install {MODULE}@{version}: {status}").into()),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn name() -> String {
        format!("geth {VERSION}")
    }

    /// Starts the program in a cgroup with this limit.
    pub(crate) fn start(
        &self,
        args: &[OsString],
        limit_bytes: u64,
        log: &Path,
        notes: &mut Notes,
    ) -> Result<Running, Failure> {
        let group = Cgroup::or_note("geth", limit_bytes, notes);
        let members = group.as_ref().map(Cgroup::members);
        let out = File::create(log)?;
        let child = Command::new("sh")
            // The shell joins the group and becomes the program.
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(members.unwrap_or_else(|| "/dev/null".into()))
            .arg(&self.0)
            .args(args)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()?;
        Ok(Running { child, group })
    }

    /// Runs the program in a cgroup with this limit, until it ends or its time is over.
    pub(crate) fn run(
        &self,
        args: &[OsString],
        limit_bytes: u64,
        time_max: Duration,
        log: &Path,
        notes: &mut Notes,
    ) -> Result<Ended, Failure> {
        let (start, cpu) = (Instant::now(), system::children_cpu_seconds());
        let mut running = self.start(args, limit_bytes, log, notes)?;
        let (status, rss_peak_bytes) = wait(&mut running.child, time_max)?;
        Ok(Ended {
            status,
            seconds: start.elapsed().as_secs_f64(),
            cpu_seconds: system::children_cpu_seconds() - cpu,
            rss_peak_bytes,
            cgroup_peak_bytes: running.cgroup_peak_bytes(),
        })
    }
}

impl Running {
    /// The status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        Ok(self.child.try_wait()?)
    }

    pub(crate) fn cgroup_peak_bytes(&self) -> Option<u64> {
        self.group.as_ref().and_then(Cgroup::peak_bytes)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a process, and kills it when its time is over. Returns its status, and the peak of its
/// resident memory when last looked.
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
pub(crate) fn command(name: &str, scheme: &str, dir: &Path) -> Vec<OsString> {
    let command = [name, "--state.scheme", scheme, "--datadir"].map(OsString::from);
    command.into_iter().chain([dir.into()]).collect()
}

/// Says how a command has failed, with the end of its log.
pub(crate) fn failed(command: &str, ended: &Ended, log: &str) -> String {
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
pub(crate) fn has_imported(log: &str, last: u64) -> bool {
    let number = last.to_string();
    let imported = |line: &str| {
        let mut words = line.split_whitespace();
        // It writes large numbers with commas.
        let found = words.find_map(|word| word.strip_prefix("number="));
        line.contains("Imported new") && found.is_some_and(|it| it.replace(',', "") == number)
    };
    log.lines().any(imported) && !log.contains("Import error")
}

/// Returns the time of the import in geth's log, which is a duration as Go prints it.
pub(crate) fn import_seconds(log: &str) -> Option<f64> {
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
        let large = "INFO [t] Imported new chain segment               number=100,100 hash=1\n";
        assert!(has_imported(large, 100_100));
        assert!(!has_imported(
            &format!("{log}ERROR Import error err=x"),
            120
        ));
    }
}
