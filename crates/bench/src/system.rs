//! Figures of the operating system: input and output, memory, disk space.

use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    process::Command,
};

/// Bytes read and written by this process, and the counters of its disk for all processes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Io {
    /// Bytes that this process read from storage.
    pub(crate) read_bytes: u64,
    /// Bytes that this process sent to storage or dirtied in the page cache.
    pub(crate) write_bytes: u64,
    /// Reads that the disk completed, for all processes.
    pub(crate) device_reads: u64,
    /// Bytes that the disk wrote, for all processes.
    pub(crate) device_write_bytes: u64,
}

impl Io {
    /// Returns the current totals, for the disk of `dir`.
    pub(crate) fn now(dir: &Path) -> Self {
        let own = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let field = |name: &str| {
            let line = own.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.trim().parse().ok())
                .unwrap_or(0)
        };
        let device: Vec<u64> = device_stat(dir)
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        let count = |at: usize| device.get(at).copied().unwrap_or(0);
        Self {
            read_bytes: field("read_bytes:"),
            write_bytes: field("write_bytes:").saturating_sub(field("cancelled_write_bytes:")),
            device_reads: count(0),
            device_write_bytes: count(6) * 512,
        }
    }

    /// Returns the difference to `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            read_bytes: self.read_bytes - earlier.read_bytes,
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            device_reads: self.device_reads - earlier.device_reads,
            device_write_bytes: self.device_write_bytes - earlier.device_write_bytes,
        }
    }
}

/// Reads the counters of the disk that holds `dir`.
fn device_stat(dir: &Path) -> io::Result<String> {
    let device = fs::metadata(dir)?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat"))
}

/// Returns the peak of this process's resident memory, in bytes.
pub(crate) fn rss_peak_bytes() -> u64 {
    kib_field("/proc/self/status", "VmHWM:")
}

/// Lets the peak of this process's resident memory begin again at what it is now.
pub(crate) fn reset_rss_peak() {
    // Where that is refused, the peak stays that of the whole process.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Returns the peak of the resident memory of a process, in bytes, or 0 if it has ended.
pub(crate) fn rss_peak_bytes_of(process: u32) -> u64 {
    kib_field(&format!("/proc/{process}/status"), "VmHWM:")
}

/// Returns the number of processors that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Unit in which Linux reports processor time (`USER_HZ`), on x86-64 and AArch64.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the processor time of this process, user and system.
pub(crate) fn own_cpu_seconds() -> f64 {
    cpu_seconds("/proc/self/stat", [13, 14])
}

/// Returns the processor time of a process, user and system, or 0 if it has ended.
pub(crate) fn cpu_seconds_of(process: u32) -> f64 {
    cpu_seconds(&format!("/proc/{process}/stat"), [13, 14])
}

/// Returns the processor time of this process's children that have ended, user and system.
pub(crate) fn children_cpu_seconds() -> f64 {
    cpu_seconds("/proc/self/stat", [15, 16])
}

/// Returns the sum of two fields of a process's `stat`, numbered from 0, in seconds.
fn cpu_seconds(file: &str, fields: [usize; 2]) -> f64 {
    let stat = fs::read_to_string(file).unwrap_or_default();
    // The second field is the program's name, in parentheses, which may contain spaces.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let rest: Vec<&str> = rest.split(' ').collect();
    let ticks = fields.map(|field| {
        rest.get(field - 2)
            .and_then(|ticks| ticks.parse::<f64>().ok())
    });
    ticks.into_iter().flatten().sum::<f64>() / TICKS_PER_SECOND
}

/// Returns the memory that is available without swapping, in bytes.
pub(crate) fn memory_available_bytes() -> u64 {
    kib_field("/proc/meminfo", "MemAvailable:")
}

fn kib_field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|value| value.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Writes dirty pages and drops the page cache. The error says why that is impossible.
pub(crate) fn drop_caches() -> Result<(), String> {
    rustix::fs::sync();
    let file = "/proc/sys/vm/drop_caches";
    fs::write(file, "3").map_err(|error| format!("{file}: {error}"))
}

/// Drops the page cache of the files in a directory, so that they are read from the disk.
pub(crate) fn drop_files(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            drop_files(&path)?;
        } else {
            drop_file(&path)?;
        }
    }
    Ok(())
}

/// Drops the page cache of a file.
pub(crate) fn drop_file(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // Dirty pages can't be dropped.
    file.sync_all()?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

/// Returns the free space of the disk that holds `dir`, in bytes.
pub(crate) fn disk_free_bytes(dir: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Returns the space that a directory takes on disk, in bytes. Holes in files take none.
pub(crate) fn disk_bytes(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // The file was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        bytes += if metadata.is_dir() {
            disk_bytes(&entry.path())?
        } else {
            metadata.blocks() * 512
        };
    }
    Ok(bytes)
}

/// Copies a directory, and keeps holes in files.
pub(crate) fn copy_dir(from: &Path, to: &Path) -> Result<(), String> {
    let status = Command::new("cp")
        .args(["-a", "--reflink=auto", "--sparse=auto"])
        .args([from, to])
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cp {}: {status}", from.display())),
        Err(error) => Err(format!("cp: {error}")),
    }
}
