//! A disk in a directory of the Linux file system.
//!
//! ```text
//!  one read      file.rs      pread, of whole blocks into aligned memory if access is direct
//!  a batch       batch.rs     by a ring: uring.rs    (refused: by threads, threads.rs)
//!  a queue       queue.rs     by a ring: uring.rs    (refused: by threads, background.rs)
//!  a write       file.rs      pwrite
//! ```

mod options;
mod shared;
mod window;
mod file;
mod threads;
mod uring;
mod batch;
mod background;
mod queue;
#[cfg(test)]
mod tests;

pub use options::{IoMethod, StdDiskOptions};

use crate::{
    Access, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats, LockError, ReadQueue,
    ReadRequest, stats::Counters,
};
use batch::BatchReader;
use file::StdFile;
use queue::StdQueue;
use rustix::{
    fs::OFlags,
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use shared::Shared;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf, absolute},
    sync::{Arc, OnceLock},
};
use uring::SetUp;

/// A disk in a directory of the file system. Clones share the disk.
///
/// When the process runs out of file descriptors, the disk raises its limit to the hard limit
/// (`ulimit -Hn`).
#[derive(Clone, Debug)]
pub struct StdDisk {
    root: PathBuf,
    method: IoMethod,
    read_only: bool,
    batches: Arc<BatchReader>,
    shared: Arc<Shared>,
}

/// The path without links and `..`, as far as it exists.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let path = absolute(path)?;
    let there = path
        .ancestors()
        .find_map(|above| Some((above, above.canonicalize().ok()?)));
    Ok(match there {
        Some((above, there)) => there.join(path.strip_prefix(above).unwrap_or(&path)),
        None => path,
    })
}

impl StdDisk {
    /// Creates a disk in the directory `root` with the options of [`StdDiskOptions::from_env`].
    /// Neither checks nor creates the directory; [`Disk::create_dir`] of `""` creates it.
    pub fn new(root: impl AsRef<Path>) -> Self {
        let options = StdDiskOptions::from_env();
        Self::with_set_up(root.as_ref(), &options, uring::set_up)
    }

    /// Creates a disk in the directory `root`.
    ///
    /// # Errors
    ///
    /// Returns an error if the options require io_uring and the system does not permit it.
    pub fn with_options(
        root: impl AsRef<Path>,
        options: &StdDiskOptions,
    ) -> Result<Self, DiskError> {
        Self::with_set_up(root.as_ref(), options, uring::set_up).checked()
    }

    /// Places the directory `dir` of the disk at `to`, on another device for instance: creates the directory `to`, and a
    /// symbolic link to it. Does nothing if `dir` is a link to `to` already.
    ///
    /// # Errors
    ///
    /// Returns an error if `to` is a file, is in the disk's own directory, or has files before `dir` is a link to it, or if
    /// `dir` is something else than such a link.
    pub fn place_dir(&self, dir: &str, to: &Path) -> Result<(), DiskError> {
        self.check_writable("place", dir)?;
        let placed = match self.locate(dir).symlink_metadata() {
            Ok(_) => self.is_linked(dir, to),
            Err(_) => self.link_to(dir, to),
        };
        placed.map_err(self.error("place", dir))
    }

    /// Verifies that the directory `dir` of the disk is at `to`, where [`StdDisk::place_dir`] has placed it. Creates nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if `dir` is missing or elsewhere.
    pub fn check_dir_at(&self, dir: &str, to: &Path) -> Result<(), DiskError> {
        self.is_linked(dir, to).map_err(self.error("find", dir))
    }

    fn is_linked(&self, dir: &str, to: &Path) -> io::Result<()> {
        let place = self.locate(dir);
        let to_name = to.display();
        match (place.canonicalize(), to.canonicalize()) {
            (Ok(there), Ok(to)) if there == to => Ok(()),
            (Ok(there), _) => {
                let there = there.display();
                Err(io::Error::other(format!(
                    "it is at {there}, not at {to_name}"
                )))
            }
            (Err(_), _) if place.symlink_metadata().is_ok() => {
                let what = format!("it is a link to nothing, not to {to_name}");
                Err(io::Error::other(what))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn link_to(&self, dir: &str, to: &Path) -> io::Result<()> {
        let place = self.locate(dir);
        // The device has to be another one, and what is in the disk's directory is taken for a file of the database.
        if resolved(to)?.starts_with(resolved(&self.root)?) {
            let (to, root) = (to.display(), self.root.display());
            return Err(io::Error::other(format!(
                "{to} is in {root}: name a directory elsewhere"
            )));
        }
        create_durable_dir(to)?;
        if let Some(found) = fs::read_dir(to)?.next() {
            let name = found?.file_name();
            let (to, name) = (to.display(), name.to_string_lossy());
            return Err(io::Error::other(format!(
                "{to} has the file {name}: name an empty directory"
            )));
        }
        create_durable_dir(&self.root)?;
        symlink(to.canonicalize()?, place)?;
        File::open(&self.root)?.sync_all()
    }

    fn with_set_up(root: &Path, options: &StdDiskOptions, set_up: SetUp) -> Self {
        let set_up = (options.method != IoMethod::Portable).then_some(set_up);
        Self {
            root: root.to_owned(),
            method: options.method,
            read_only: options.read_only,
            batches: Arc::new(BatchReader::new(set_up)),
            shared: Arc::new(Shared {
                counters: Counters::default(),
                wants_direct: options.direct,
                is_direct: OnceLock::new(),
                direct_refusal: OnceLock::new(),
            }),
        }
    }

    /// Returns an error if the required method is unavailable.
    fn checked(self) -> Result<Self, DiskError> {
        if self.method == IoMethod::Uring
            && let Err(why) = self.batches.rings()
        {
            let source = io::Error::new(io::ErrorKind::Unsupported, why.to_owned());
            return Err(self.error("read by io_uring from", "")(source));
        }
        Ok(self)
    }

    fn locate(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        }
    }

    fn open_by(
        &self,
        op: &'static str,
        path: &str,
        access: Access,
        options: &OpenOptions,
    ) -> Result<Arc<dyn DiskFile>, DiskError> {
        let path = self.locate(path);
        if let Some(error) = no_file(&path) {
            return Err(DiskError::new(op, path.display().to_string(), error));
        }
        let opened = match options.open(&path) {
            Err(e) if is_out_of_files(&e) && raise_file_limit() => options.open(&path),
            opened => opened,
        };
        match opened {
            Ok(file) => Ok(Arc::new(StdFile::new(
                file,
                path,
                access,
                Arc::clone(&self.shared),
            ))),
            Err(e) => Err(self.error_at(op, &path, e)),
        }
    }

    /// Returns the error of an operation on `path`. Names a dangling link on the way: the missing thing is then the
    /// disk that the link points to, not this file.
    fn error_at(&self, op: &'static str, path: &Path, error: io::Error) -> DiskError {
        let error = match error.kind() {
            io::ErrorKind::NotFound => self.dangling(path).unwrap_or(error),
            _ => error,
        };
        DiskError::new(op, path.display().to_string(), error)
    }

    /// An error if a link on the way to `path`, from the disk's own directory on, leads to nothing.
    fn dangling(&self, path: &Path) -> Option<io::Error> {
        let own = path
            .ancestors()
            .take_while(|place| place.starts_with(&self.root));
        let is_dangling = |place: &Path| {
            let link = place.symlink_metadata().is_ok_and(|it| it.is_symlink());
            link && matches!(place.metadata(), Err(e) if e.kind() == io::ErrorKind::NotFound)
        };
        let link = own.into_iter().find(|place| is_dangling(place))?;
        let link = link.display();
        Some(io::Error::other(format!(
            "the link {link} leads to nothing (is the disk that it leads to mounted?)"
        )))
    }

    /// Returns an error if the disk is read-only.
    fn check_writable(&self, op: &'static str, path: &str) -> Result<(), DiskError> {
        match self.read_only {
            true => Err(self.error(op, path)(
                io::ErrorKind::ReadOnlyFilesystem.into(),
            )),
            false => Ok(()),
        }
    }

    fn error(&self, op: &'static str, path: &str) -> impl FnOnce(io::Error) -> DiskError {
        let path = self.locate(path);
        move |e| self.error_at(op, &path, e)
    }
}

/// Creates a directory and its parents, and makes their names durable. Also syncs the name of a
/// directory that exists, since the process that created it may have been killed before its sync.
fn create_durable_dir(dir: &Path) -> io::Result<()> {
    let above = match dir.parent() {
        None => return Ok(()),
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
    };
    if !dir.is_dir() {
        if !above.is_dir() {
            create_durable_dir(above)?;
        }
        match fs::create_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            created => created?,
        }
    }
    match File::open(above) {
        Ok(above) => above.sync_all(),
        // The parent may be writable but not readable. Then only the directory itself can be
        // synced.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => File::open(dir)?.sync_all(),
        Err(e) => Err(e),
    }
}

/// An error if there is something else than a file or a directory: a pipe, whose opening would wait for another process,
/// a socket or a device.
fn no_file(path: &Path) -> Option<io::Error> {
    let found = path.metadata().ok()?.file_type();
    let is_usual = found.is_file() || found.is_dir();
    (!is_usual).then(|| io::Error::other("it is a pipe, a socket or a device, and not a file"))
}

fn is_out_of_files(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

/// Raises the limit of open files to the hard limit. Returns false if it is there already or can't
/// be raised.
fn raise_file_limit() -> bool {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        ..limit
    };
    limit.current != limit.maximum && setrlimit(Resource::Nofile, most).is_ok()
}

impl Disk for StdDisk {
    fn create_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.check_writable("create", path)?;
        let mut options = OpenOptions::new();
        self.open_by(
            "create",
            path,
            access,
            options.read(true).write(true).create_new(true),
        )
    }

    fn open_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        let mut options = OpenOptions::new();
        options.read(true).write(!self.read_only);
        self.open_by("open", path, access, &options)
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        let place = self.locate(path);
        let found = match place.try_exists() {
            Ok(false) => self.dangling(&place).map_or(Ok(false), Err),
            found => found,
        };
        found.map_err(self.error("look for", path))
    }

    fn has_dir(&self, dir: &str) -> bool {
        fs::symlink_metadata(self.locate(dir)).is_ok_and(|found| found.is_dir())
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.check_writable("rename", from)?;
        fs::rename(self.locate(from), self.locate(to)).map_err(self.error("rename", from))
    }

    fn link(&self, from: &dyn Disk, path: &str, to: &str) -> Result<bool, DiskError> {
        self.check_writable("link", to)?;
        let Some(source) = from.real_path(path) else {
            return Ok(false);
        };
        match fs::hard_link(source, self.locate(to)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(self.error("link", to)(e)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(self.error("link", to)(e)),
            // The target is on another file system, or the file system has no links, or the file
            // has too many.
            Err(_) => Ok(false),
        }
    }

    fn real_path(&self, path: &str) -> Option<PathBuf> {
        Some(self.locate(path))
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        fs::remove_file(self.locate(path)).map_err(self.error("remove", path))
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let list = || {
            let mut names = Vec::new();
            for entry in fs::read_dir(self.locate(dir))? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            Ok(names)
        };
        list().map_err(self.error("list", dir))
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.check_writable("create directory", dir)?;
        let place = self.locate(dir);
        let made = self.dangling(&place).map_or(Ok(()), Err);
        made.and_then(|()| create_durable_dir(&place))
            .map_err(self.error("create directory", dir))
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
        self.check_writable("sync directory", dir)?;
        self.shared.counters.add_sync();
        File::open(self.locate(dir))
            .and_then(|dir| dir.sync_all())
            .map_err(self.error("sync directory", dir))
    }

    fn lock(&self, path: &str) -> Result<DiskLock, LockError> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // The target of a symbolic link may be another program's file, and would be overwritten.
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(self.locate(path))
            .map_err(self.error("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message: a holder that has not yet written its id stays unnamed.
                let _ = (&file).take(20).read_to_string(&mut holder);
                let pid = holder.trim().parse().ok();
                return Err(LockError::Held {
                    path: self.display_path(path),
                    pid,
                });
            }
            Err(TryLockError::Error(e)) => return Err(self.error("lock", path)(e).into()),
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(self.error("write", path))?;
        Ok(DiskLock::new(file))
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        let stat = rustix::fs::statvfs(&self.root)
            .map_err(|e| self.error("ask for free space of", "")(e.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn display_path(&self, path: &str) -> String {
        self.locate(path).display().to_string()
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        self.shared.counters.add_batch();
        match requests {
            [] => {}
            [one] => one.outcome = one.file.read_at(one.buf, one.offset),
            many => self.batches.read(many, &self.shared),
        }
    }

    fn read_queue(&self, depth: usize) -> Box<dyn ReadQueue> {
        let (batches, shared) = (Arc::clone(&self.batches), Arc::clone(&self.shared));
        Box::new(StdQueue::new(batches, shared, depth))
    }

    fn memory_bytes(&self) -> u64 {
        self.batches.memory_bytes()
    }

    fn stats(&self) -> DiskStats {
        self.shared.counters.snapshot()
    }

    fn describe(&self) -> DiskDescription {
        let rings = self.batches.rings();
        DiskDescription {
            batch_reads: if rings.is_ok() { "io_uring" } else { "threads" },
            no_uring_because: rings.err().map(str::to_owned),
            is_direct: self.shared.is_direct.get().is_some(),
            not_direct_because: match self.shared.direct_refusal.get() {
                None if !self.shared.wants_direct => Some("not wanted".into()),
                refusal => refusal.cloned(),
            },
        }
    }
}
