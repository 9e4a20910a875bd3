//! A disk that keeps all changes in memory, for trials and for read-only use.

use crate::{
    Access, BLOCK_BYTES, Disk, DiskDescription, DiskError, DiskFile, DiskLock, DiskStats,
    FinishedRead, LockError, QueuedRead, ReadQueue, ReadRequest,
    disk::{PlainQueue, check_write},
};
use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt, io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A wrapper of a disk that never changes it: writes stay in memory, up to a limit. Changes that
/// others make to the disk are visible, except in files that were written or truncated here.
#[derive(Clone)]
pub struct TrialDisk(Arc<Shared>);

struct Shared {
    disk: Arc<dyn Disk>,
    bytes_max: u64,
    bytes: AtomicU64,
    names: Mutex<Names>,
}

/// Names that differ from those on the disk.
#[derive(Default)]
struct Names {
    /// `None` for a removed file.
    files: HashMap<String, Option<Arc<Changed>>>,
    dirs: BTreeSet<String>,
    /// Number of files from which on unchanged files without open handles are dropped.
    files_max: usize,
}

impl Names {
    fn let_go(&mut self) {
        if self.files.len() < self.files_max {
            return;
        }
        self.files.retain(|_, file| {
            let is_idle = |file: &Arc<Changed>| {
                Arc::strong_count(file) == 1 && file.below.is_some() && file.content().is_none()
            };
            !file.as_ref().is_some_and(is_idle)
        });
        self.files_max = (2 * self.files.len()).max(FILES_MAX);
    }
}

/// Smallest number of files from which on unchanged files without open handles are dropped.
const FILES_MAX: usize = 64;

impl TrialDisk {
    /// Wraps `disk`. Keeps at most `bytes_max` bytes of changes in memory; writes beyond that fail.
    pub fn new(disk: Arc<dyn Disk>, bytes_max: u64) -> Self {
        Self(Arc::new(Shared {
            disk,
            bytes_max,
            bytes: AtomicU64::new(0),
            names: Mutex::default(),
        }))
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the file `path` with its changes.
    fn changed(
        &self,
        path: &str,
        op: &'static str,
        access: Access,
    ) -> Result<Arc<Changed>, DiskError> {
        let mut names = self.names();
        match names.files.get(path) {
            Some(Some(changed)) => return Ok(changed.clone()),
            Some(None) => {
                let path = self.display_path(path);
                return Err(DiskError::new(op, path, io::ErrorKind::NotFound.into()));
            }
            None => {}
        }
        let changed = Arc::new(Changed {
            path: self.display_path(path),
            below: Some(self.0.disk.open_with(path, access)?),
            content: Mutex::default(),
        });
        names.let_go();
        names.files.insert(path.to_owned(), Some(changed.clone()));
        Ok(changed)
    }

    fn handle(&self, changed: Arc<Changed>, access: Access) -> Arc<dyn DiskFile> {
        Arc::new(TrialFile {
            disk: self.clone(),
            changed,
            access,
        })
    }
}

impl fmt::Debug for TrialDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrialDisk({:?})", self.0.disk)
    }
}

impl Disk for TrialDisk {
    fn create_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let refused = match (self.exists(path)?, self.exists(dir)?) {
            (true, _) => Some(io::ErrorKind::AlreadyExists),
            (false, false) => Some(io::ErrorKind::NotFound),
            (false, true) => None,
        };
        if let Some(kind) = refused {
            return Err(DiskError::new(
                "create",
                self.display_path(path),
                kind.into(),
            ));
        }
        let changed = Arc::new(Changed {
            path: self.display_path(path),
            below: None,
            content: Mutex::new(Some(Content::default())),
        });
        let files = &mut self.names().files;
        files.insert(path.to_owned(), Some(changed.clone()));
        Ok(self.handle(changed, access))
    }

    fn open_with(&self, path: &str, access: Access) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(self.handle(self.changed(path, "open", access)?, access))
    }

    fn exists(&self, path: &str) -> Result<bool, DiskError> {
        let names = self.names();
        if let Some(file) = names.files.get(path) {
            return Ok(file.is_some());
        }
        Ok(names.dirs.contains(path) || self.0.disk.exists(path)?)
    }

    fn has_dir(&self, dir: &str) -> bool {
        self.names().dirs.contains(dir) || self.0.disk.has_dir(dir)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let changed = self.changed(from, "rename", Access::Cached)?;
        let files = &mut self.names().files;
        files.insert(from.to_owned(), None);
        files.insert(to.to_owned(), Some(changed));
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<(), DiskError> {
        self.changed(path, "remove", Access::Cached)?;
        self.names().files.insert(path.to_owned(), None);
        Ok(())
    }

    fn list(&self, dir: &str) -> Result<Vec<String>, DiskError> {
        let names = self.names();
        let mut found = BTreeSet::new();
        if !names.dirs.contains(dir) || self.0.disk.exists(dir)? {
            found.extend(self.0.disk.list(dir)?);
        }
        let in_dir = |path: &str| {
            let name = match dir {
                "" => Some(path),
                dir => path.strip_prefix(dir)?.strip_prefix('/'),
            };
            name.filter(|name| !name.contains('/')).map(str::to_owned)
        };
        for (path, file) in &names.files {
            if let Some(name) = in_dir(path) {
                match file {
                    Some(_) => found.insert(name),
                    None => found.remove(&name),
                };
            }
        }
        found.extend(names.dirs.iter().filter_map(|path| in_dir(path)));
        Ok(found.into_iter().collect())
    }

    fn create_dir(&self, dir: &str) -> Result<(), DiskError> {
        let above = dir.match_indices('/').map(|(end, _)| &dir[..end]);
        for dir in above.chain([dir]) {
            if !self.0.disk.exists(dir)? {
                self.names().dirs.insert(dir.to_owned());
            }
        }
        Ok(())
    }

    fn sync_dir(&self, _: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn lock(&self, path: &str) -> Result<DiskLock, LockError> {
        self.0.disk.lock(path)
    }

    fn free_bytes(&self) -> Result<u64, DiskError> {
        self.0.disk.free_bytes()
    }

    fn display_path(&self, path: &str) -> String {
        self.0.disk.display_path(path)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        let mut unchanged = Vec::with_capacity(requests.len());
        for request in requests {
            let file = (request.file as &dyn Any).downcast_ref::<TrialFile>();
            let below = file.and_then(|file| file.unchanged(request.buf.len(), request.offset));
            match below {
                Some(below) => unchanged.push((below, request)),
                None => request.outcome = request.file.read_at(request.buf, request.offset),
            }
        }
        let below = unchanged
            .iter_mut()
            .map(|(below, request)| ReadRequest::new(&**below, request.offset, &mut *request.buf));
        let mut below: Vec<_> = below.collect();
        self.0.disk.read_batch(&mut below);
        let outcomes: Vec<_> = below.into_iter().map(|request| request.outcome).collect();
        for ((_, request), outcome) in unchanged.into_iter().zip(outcomes) {
            request.outcome = outcome;
        }
    }

    fn read_queue(&self, depth: usize) -> Box<dyn ReadQueue> {
        Box::new(TrialQueue {
            unchanged: self.0.disk.read_queue(depth),
            changed: PlainQueue::default(),
        })
    }

    fn memory_bytes(&self) -> u64 {
        self.0.disk.memory_bytes() + self.0.bytes.load(Ordering::Relaxed)
    }

    fn stats(&self) -> DiskStats {
        self.0.disk.stats()
    }

    fn describe(&self) -> DiskDescription {
        self.0.disk.describe()
    }
}

/// A queue of reads: unchanged ranges are read from the underlying disk.
struct TrialQueue {
    unchanged: Box<dyn ReadQueue>,
    changed: PlainQueue,
}

impl ReadQueue for TrialQueue {
    fn submit(&mut self, read: QueuedRead) {
        let file = (&*read.file as &dyn Any).downcast_ref::<TrialFile>();
        let below = file.and_then(|file| file.unchanged(read.bytes.len(), read.offset));
        match below {
            Some(file) => self.unchanged.submit(QueuedRead { file, ..read }),
            None => self.changed.submit(read),
        }
    }

    fn in_flight(&self) -> usize {
        self.unchanged.in_flight() + self.changed.in_flight()
    }

    fn poll(&mut self, wait: bool, finished: &mut Vec<FinishedRead>) {
        let wait = wait && self.changed.in_flight() == 0;
        self.changed.poll(wait, finished);
        self.unchanged.poll(wait, finished);
    }
}

/// A file with its changes.
struct Changed {
    path: String,
    below: Option<Arc<dyn DiskFile>>,
    /// `None` until the file is written to or truncated.
    content: Mutex<Option<Content>>,
}

#[derive(Default)]
struct Content {
    len: u64,
    /// Visible length of the underlying file. The rest was truncated.
    visible: u64,
    /// Changed blocks by number.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

const BLOCK: u64 = BLOCK_BYTES as u64;

impl Changed {
    fn content(&self) -> MutexGuard<'_, Option<Content>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the content that is to be changed.
    fn content_in<'a>(
        &self,
        content: &'a mut Option<Content>,
    ) -> Result<&'a mut Content, DiskError> {
        let content = match (content.take(), &self.below) {
            (None, Some(below)) => {
                let len = below.len()?;
                content.insert(Content {
                    len,
                    visible: len,
                    blocks: BTreeMap::new(),
                })
            }
            (found, _) => content.insert(found.unwrap_or_default()),
        };
        Ok(content)
    }

    /// Fills `buf` with the bytes at `at`, a part of one block within the file.
    fn read_block(&self, content: &Content, buf: &mut [u8], at: u64) -> Result<(), DiskError> {
        if let Some(block) = content.blocks.get(&(at / BLOCK)) {
            let from = (at % BLOCK) as usize;
            buf.copy_from_slice(&block[from..from + buf.len()]);
            return Ok(());
        }
        let below = content.visible.saturating_sub(at).min(buf.len() as u64) as usize;
        buf[below..].fill(0);
        match &self.below {
            Some(file) if below > 0 => file.read_at(&mut buf[..below], at),
            _ => Ok(()),
        }
    }
}

struct TrialFile {
    disk: TrialDisk,
    changed: Arc<Changed>,
    access: Access,
}

impl fmt::Debug for TrialFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrialFile({:?})", self.changed.path)
    }
}

impl TrialFile {
    /// Returns the underlying file if a range of it is unchanged.
    fn unchanged(&self, len: usize, offset: u64) -> Option<Arc<dyn DiskFile>> {
        let content = self.changed.content();
        let is_unchanged = content.as_ref().is_none_or(|content| {
            let end = offset.saturating_add(len as u64);
            let mut touched = content.blocks.range(offset / BLOCK..end.div_ceil(BLOCK));
            end <= content.visible.min(content.len) && touched.next().is_none()
        });
        self.changed.below.clone().filter(|_| is_unchanged)
    }

    fn error(&self, op: &'static str, offset: u64, source: io::Error) -> DiskError {
        DiskError::at(op, self.changed.path.clone(), offset, source)
    }
}

impl DiskFile for TrialFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DiskError> {
        // An unchanged range is read with one call.
        if let Some(below) = self.unchanged(buf.len(), offset) {
            return below.read_at(buf, offset);
        }
        let mut content = self.changed.content();
        let content = self.changed.content_in(&mut content)?;
        let end = offset.checked_add(buf.len() as u64);
        let Some(end) = end.filter(|end| *end <= content.len) else {
            return Err(self.error("read", offset, io::ErrorKind::UnexpectedEof.into()));
        };
        let mut at = offset;
        while at < end {
            let next = ((at / BLOCK + 1) * BLOCK).min(end);
            let part = &mut buf[(at - offset) as usize..(next - offset) as usize];
            self.changed.read_block(content, part, at)?;
            at = next;
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        check_write(self.access, bytes.len(), offset)
            .map_err(|source| self.error("write", offset, source))?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut content = self.changed.content();
        let content = self.changed.content_in(&mut content)?;
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let number = at / BLOCK;
            let next = ((number + 1) * BLOCK).min(end);
            if !content.blocks.contains_key(&number) {
                let shared = &self.disk.0;
                if shared.bytes.fetch_add(BLOCK, Ordering::Relaxed) + BLOCK > shared.bytes_max {
                    let what = format!(
                        "more than {} bytes would be changed, and they are kept in memory here: \
                         give it more (`--memory`)",
                        shared.bytes_max
                    );
                    return Err(self.error("try to write", offset, io::Error::other(what)));
                }
                let mut block = vec![0; BLOCK_BYTES];
                self.changed
                    .read_block(content, &mut block, number * BLOCK)?;
                content.blocks.insert(number, block.into());
            }
            let block = content.blocks.get_mut(&number).expect("just seen to");
            let part = &bytes[(at - offset) as usize..(next - offset) as usize];
            block[(at % BLOCK) as usize..][..part.len()].copy_from_slice(part);
            at = next;
        }
        content.len = content.len.max(end);
        Ok(())
    }

    fn names(&self) -> Result<u64, DiskError> {
        match &self.changed.below {
            Some(below) => below.names(),
            None => Ok(1),
        }
    }

    fn len(&self) -> Result<u64, DiskError> {
        match (&*self.changed.content(), &self.changed.below) {
            (None, Some(below)) => below.len(),
            (content, _) => Ok(content.as_ref().map_or(0, |content| content.len)),
        }
    }

    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        let mut content = self.changed.content();
        let content = self.changed.content_in(&mut content)?;
        if len < content.len {
            content.visible = content.visible.min(len);
            let gone = content.blocks.split_off(&len.div_ceil(BLOCK));
            let bytes = gone.len() as u64 * BLOCK;
            self.disk.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
            if let Some(block) = content.blocks.get_mut(&(len / BLOCK)) {
                block[(len % BLOCK) as usize..].fill(0);
            }
        }
        content.len = len;
        Ok(())
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let end = offset.saturating_add(len).min(self.len()?);
        let zeros = vec![0; end.saturating_sub(offset) as usize];
        match self.access {
            Access::Cached => self.write_at(&zeros, offset),
            Access::Direct => {
                let what = io::ErrorKind::Unsupported.into();
                Err(self.error("punch a hole in", offset, what))
            }
        }
    }

    fn sync(&self) -> Result<(), DiskError> {
        Ok(())
    }
}
