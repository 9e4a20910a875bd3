//! A memory limit that includes the page cache: a memory cgroup for one process.
//!
//! Without it, a store whose files fit into the machine's memory would never be cold.

use crate::report::Notes;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names of files in a memory cgroup, which depend on the version.
struct Version {
    limit: &'static str,
    swap: &'static str,
    swap_value: Option<&'static str>,
    peak: &'static str,
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    swap_value: None,
    peak: "memory.max_usage_in_bytes",
};
const V2: Version = Version {
    limit: "memory.max",
    swap: "memory.swap.max",
    swap_value: Some("0"),
    peak: "memory.peak",
};

/// A memory cgroup, removed on drop.
pub(crate) struct Cgroup {
    dir: PathBuf,
    version: &'static Version,
}

impl Cgroup {
    /// Creates an empty group with a limit. The error says why that is impossible.
    pub(crate) fn create(name: &str, limit_bytes: u64) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mounts")
            .map_err(|error| format!("/proc/self/mounts: {error}"))?;
        let (root, version) =
            memory_root(&mounts).ok_or("no memory controller of cgroups is mounted")?;
        let dir = root.join(format!("cambium-bench-{}-{name}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let group = Self { dir, version };
        let limit = group.dir.join(version.limit);
        fs::write(&limit, limit_bytes.to_string())
            .map_err(|error| format!("{}: {error}", limit.display()))?;
        let swap = version
            .swap_value
            .map_or_else(|| limit_bytes.to_string(), str::to_owned);
        // Absent if the kernel does not account for swap.
        let _ = fs::write(group.dir.join(version.swap), swap);
        Ok(group)
    }

    /// As [`Cgroup::create`]. If it is not permitted, adds a note and returns `None`.
    pub(crate) fn or_note(name: &str, limit_bytes: u64, notes: &mut Notes) -> Option<Self> {
        match Self::create(name, limit_bytes) {
            Ok(group) => Some(group),
            Err(error) => {
                notes.add(format!(
                    "MEMORY IS NOT LIMITED ({error}): files may stay in the page cache, so cold \
                     figures are not cold"
                ));
                None
            }
        }
    }

    /// Returns the file to which a process writes its id in order to join.
    pub(crate) fn members(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// Returns the peak of the group's memory in bytes, including page cache.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        number(&self.dir.join(self.version.peak))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The removal fails while a member lives. An empty group that stays does no harm.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Joins the group of this member file.
pub(crate) fn join(members: &Path) -> Result<(), String> {
    fs::write(members, "0").map_err(|error| format!("{}: {error}", members.display()))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the directory below which groups are created, according to the mounted file systems.
fn memory_root(mounts: &str) -> Option<(PathBuf, &'static Version)> {
    let rows = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?, fields.next()?))
    });
    let mut unified = None;
    for (path, kind, options) in rows {
        if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
            return Some((path.into(), &V1));
        }
        if kind == "cgroup2" {
            unified = Some((path.into(), &V2));
        }
    }
    unified
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_controller_is_found_in_either_version() {
        let one = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                   cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
                   cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                   cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let (root, version) = memory_root(one).unwrap();
        assert_eq!(root, Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(version.limit, "memory.limit_in_bytes");
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let (root, version) = memory_root(two).unwrap();
        assert_eq!(root, Path::new("/sys/fs/cgroup"));
        assert_eq!(version.limit, "memory.max");
        assert!(memory_root("tmpfs /tmp tmpfs rw 0 0\n").is_none());
    }
}
