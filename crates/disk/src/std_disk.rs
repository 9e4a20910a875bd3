//! A directory of the system's own file system, with plain positioned reads and writes.

use crate::{Disk, DiskError, DiskFile, DiskLock, LockError};
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A directory of the file system.
#[derive(Clone, Debug)]
pub struct StdDisk {
    root: PathBuf,
}

impl StdDisk {
    /// The disk whose root is the directory `root`. It is neither checked nor created here: see
    /// [`Disk::create_dir`] with `""`.
    pub fn new(root: impl AsRef<Path>) -> Self {
        Self {
            root: root.as_ref().to_owned(),
        }
    }

    fn locate(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        }
    }

    fn open_with(
        &self,
        op: &'static str,
        path: &str,
        options: &OpenOptions,
    ) -> Result<Arc<dyn DiskFile>, DiskError> {
        let path = self.locate(path);
        match options.open(&path) {
            Ok(file) => Ok(Arc::new(StdFile { file, path })),
            Err(e) => Err(DiskError::new(op, path.display().to_string(), e)),
        }
    }

    fn error(&self, op: &'static str, path: &str) -> impl FnOnce(std::io::Error) -> DiskError {
        let path = self.display_path(path);
        move |e| DiskError::new(op, path, e)
    }
}

impl Disk for StdDisk {
    fn create(&self, path: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.open_with(
            "create",
            path,
            OpenOptions::new().read(true).write(true).create_new(true),
        )
    }

    fn open(&self, path: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.open_with("open", path, OpenOptions::new().read(true).write(true))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        self.locate(path)
            .try_exists()
            .map_err(self.error("look for", path))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        fs::rename(self.locate(from), self.locate(to)).map_err(self.error("rename", from))
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
        fs::create_dir_all(self.locate(dir)).map_err(self.error("create directory", dir))
    }

    fn sync_dir(&self, dir: &str) -> Result<(), DiskError> {
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
}

#[derive(Debug)]
struct StdFile {
    file: File,
    path: PathBuf,
}

impl StdFile {
    fn error(&self, op: &'static str) -> impl FnOnce(std::io::Error) -> DiskError {
        move |e| DiskError::new(op, self.path.display().to_string(), e)
    }

    fn error_at(&self, op: &'static str, offset: u64) -> impl FnOnce(std::io::Error) -> DiskError {
        move |e| DiskError::at(op, self.path.display().to_string(), offset, e)
    }
}

impl DiskFile for StdFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(self.error_at("read", offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(self.error_at("write", offset))
    }

    fn len(&self) -> Result<u64, DiskError> {
        Ok(self
            .file
            .metadata()
            .map_err(self.error("ask the length of"))?
            .len())
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.file
            .set_len(len)
            .map_err(self.error_at("set the length of", len))
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(self.error("sync"))
    }
}
