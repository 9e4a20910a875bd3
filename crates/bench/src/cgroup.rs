//! A limit on memory that counts the page cache: a memory cgroup for one process.
//!
//! Without it a store whose files fit into the machine's memory would never be cold.

use crate::report::Notes;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Files of a memory cgroup, by version.
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

/// A memory cgroup, removed when dropped.
pub(crate) struct Cgroup {
    dir: PathBuf,
    version: &'static Version,
}

impl Cgroup {
    /// A group with that limit and nobody in it. The error says why there can be none here.
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
        // Absent where the kernel does not account for swap.
        let _ = fs::write(group.dir.join(version.swap), swap);
        Ok(group)
    }

    /// As [`Cgroup::create`]; where it is not permitted a note says so, and there is none.
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

    /// Where a process writes itself into, to become a member.
    pub(crate) fn members(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The most memory that the group has had, page cache included, in bytes.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        number(&self.dir.join(self.version.peak))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Refused while a member lives; then it stays, empty of harm.
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Becomes a member of the group whose member file this is.
pub(crate) fn join(members: &Path) -> Result<(), String> {
    fs::write(members, "0").map_err(|error| format!("{}: {error}", members.display()))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Where groups are made, by what is mounted.
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
