//! What the system says of the process.

use super::labelled::LabelledMetrics;
use std::{
    fs,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Figures that any process has: memory, descriptors, uptime, build.
#[derive(Debug)]
pub(super) struct Own {
    role: &'static str,
    started: Instant,
    /// The same in seconds since 1970.
    started_at: u64,
}

impl Own {
    pub(super) fn new(role: &'static str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            role,
            started: Instant::now(),
            started_at: now.map_or(0, |now| now.as_secs()),
        }
    }

    pub(super) const fn role(&self) -> &'static str {
        self.role
    }

    /// Figures that the system does not have are left out.
    pub(super) fn report(&self, metrics: &mut dyn LabelledMetrics) {
        metrics.labels(&[("version", env!("CARGO_PKG_VERSION")), ("role", self.role)]);
        metrics.gauge(
            "build_info",
            "1; the labels are the version of the program, and what the process is.",
            1,
        );
        metrics.labels(&[]);
        metrics.gauges([
            (
                "uptime_seconds",
                "Seconds since the process started.",
                self.started.elapsed().as_secs(),
            ),
            (
                "process_start_time_seconds",
                "When the process started, in seconds since 1970.",
                self.started_at,
            ),
        ]);
        let figures = [
            (
                "process_resident_memory_bytes",
                "Resident memory of the process.",
                resident_bytes(),
            ),
            (
                "process_open_fds",
                "Open file descriptors, connections among them.",
                open_descriptors(),
            ),
            (
                "process_max_fds",
                "Most file descriptors that the process may have.",
                descriptors_max(),
            ),
        ];
        for (name, help, value) in figures {
            if let Some(value) = value {
                metrics.gauge(name, help, value);
            }
        }
    }
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

fn open_descriptors() -> Option<u64> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // One of them is that of the directory.
    Some(open.saturating_sub(1))
}

fn descriptors_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let mut lines = limits.lines();
    let line = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}
