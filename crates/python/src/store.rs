//! The store: created, opened, closed, and what is done to all of it.

use crate::{
    commit::Commit,
    convert::{bytes_or, bytes_or_none, commitment_of, key},
    errors::Failure,
    transaction::{Transaction, batch_of},
};
use cambium::{Bytes, FaultyDisk, disk::existing_disk};
use cambium_kv::KvOptions;
use parking_lot::RwLock;
use pyo3::{
    exceptions::PyKeyError,
    prelude::*,
    types::{PyBytes, PyDict},
};
use std::{path::PathBuf, sync::Arc};

/// An authenticated key-value store. As a context manager it is closed at the end. Threads may share it.
#[pyclass(frozen, module = "cambium")]
pub(crate) struct Store {
    /// `None` once it is closed.
    store: RwLock<Option<cambium_kv::Store>>,
}

const CLOSED: Failure = Failure::Closed("the store is closed: open it again");

fn options(
    memory_bytes: u64,
    keep_commits: Option<u64>,
    conflict_window_bytes: Option<u64>,
) -> KvOptions {
    KvOptions {
        memory_bytes,
        keep_commits,
        conflict_window_bytes,
        ..KvOptions::default()
    }
}

fn committed_by(
    commitment: &str,
    merge_interval: Option<u64>,
    options: KvOptions,
) -> PyResult<KvOptions> {
    Ok(KvOptions {
        commitment: commitment_of(commitment)?,
        merge_interval_commits: merge_interval,
        ..options
    })
}

impl Store {
    fn opened(
        py: Python<'_>,
        open: impl FnOnce() -> Result<cambium_kv::Store, Failure> + Send,
    ) -> PyResult<Self> {
        let store = py.detach(open)?;
        Ok(Self {
            store: RwLock::new(Some(store)),
        })
    }

    /// Works without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&cambium_kv::Store) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        py.detach(|| {
            // Not held during the work: closing waits for nobody.
            let store = self.store.read().clone();
            work(&store.ok_or(CLOSED)?)
        })
    }

    fn value(&self, py: Python<'_>, at: &[u8]) -> PyResult<Option<Bytes>> {
        let at = key(at)?;
        Ok(self.with(py, |store| Ok(store.get(&at)?))?)
    }
}

#[pymethods]
impl Store {
    /// Creates an empty store in a directory, which must be empty or not exist. The commitment "layered"
    /// needs the number of commits of its intervals.
    #[staticmethod]
    #[pyo3(signature = (path, *, commitment="binary-blake3", memory_bytes=1 << 30, keep_commits=None, conflict_window_bytes=None, merge_interval=None))]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        commitment: &str,
        memory_bytes: u64,
        keep_commits: Option<u64>,
        conflict_window_bytes: Option<u64>,
        merge_interval: Option<u64>,
    ) -> PyResult<Self> {
        let options = options(memory_bytes, keep_commits, conflict_window_bytes);
        let options = committed_by(commitment, merge_interval, options)?;
        Self::opened(py, || Ok(cambium_kv::Store::create(&*path, options)?))
    }

    /// Creates an empty store in memory: for tests, and for what need not last.
    #[staticmethod]
    #[pyo3(signature = (*, commitment="binary-blake3", memory_bytes=1 << 30, keep_commits=None, conflict_window_bytes=None, merge_interval=None))]
    fn in_memory(
        py: Python<'_>,
        commitment: &str,
        memory_bytes: u64,
        keep_commits: Option<u64>,
        conflict_window_bytes: Option<u64>,
        merge_interval: Option<u64>,
    ) -> PyResult<Self> {
        let options = options(memory_bytes, keep_commits, conflict_window_bytes);
        let options = committed_by(commitment, merge_interval, options)?;
        let disk = Arc::new(FaultyDisk::new(1));
        Self::opened(py, || Ok(cambium_kv::Store::create(disk, options)?))
    }

    /// Opens the store in a directory at its newest commit. One process at a time opens it for writing;
    /// any number read beside it.
    #[staticmethod]
    #[pyo3(signature = (path, *, read_only=false, memory_bytes=1 << 30, keep_commits=None, conflict_window_bytes=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        read_only: bool,
        memory_bytes: u64,
        keep_commits: Option<u64>,
        conflict_window_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let options = options(memory_bytes, keep_commits, conflict_window_bytes);
        Self::opened(py, || {
            let disk = existing_disk(&path, read_only)?;
            Ok(match read_only {
                true => cambium_kv::Store::open_read_only(disk, options)?,
                false => cambium_kv::Store::open(disk, options)?,
            })
        })
    }

    /// The name of its commitment: what its roots commit to, and how.
    #[getter]
    fn commitment(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.with(py, |store| Ok(store.commitment().name().to_string()))?)
    }

    /// The number and root of the newest commit, from which transactions begin.
    #[getter]
    fn newest(&self, py: Python<'_>) -> PyResult<Commit> {
        Ok(self.with(py, |store| Ok(store.newest()?.into()))?)
    }

    /// The root of all entries at the newest commit: 32 bytes.
    #[getter]
    fn root<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let root = self.with(py, |store| Ok(store.root()?))?;
        Ok(PyBytes::new(py, root.as_slice()))
    }

    /// Begins a transaction at the newest commit, or at the one of a number.
    #[pyo3(signature = (number=None))]
    fn begin(&self, py: Python<'_>, number: Option<u64>) -> PyResult<Transaction> {
        let begun = self.with(py, |store| match number {
            Some(number) => Ok(store.begin_at(number)?),
            None => Ok(store.begin()?),
        })?;
        Ok(Transaction::new(begun))
    }

    /// Finds the newest commit with a root.
    fn commit_with_root(&self, py: Python<'_>, root: &[u8]) -> PyResult<Commit> {
        let root = key(root)?;
        Ok(self.with(py, |store| Ok(store.commit_with_root(root)?.into()))?)
    }

    /// The value at a key at the newest commit; else the default.
    #[pyo3(signature = (key, default=None))]
    fn get(
        &self,
        py: Python<'_>,
        key: &[u8],
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        Ok(bytes_or(py, self.value(py, key)?, default))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.value(py, key)?;
        bytes_or_none(py, found).ok_or_else(|| PyKeyError::new_err(PyBytes::new(py, key).unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        Ok(self.value(py, key)?.is_some())
    }

    /// Writes a dict as one commit, whatever was there before; None removes the entry. When this
    /// returns, the commit survives a loss of power.
    fn write(&self, py: Python<'_>, writes: &Bound<'_, PyDict>) -> PyResult<Commit> {
        let batch = batch_of(writes)?;
        Ok(self.with(py, |store| Ok(store.write(batch)?.into()))?)
    }

    /// Takes the newest commits back, durably. Returns what is the newest then.
    fn roll_back(&self, py: Python<'_>, commits: u64) -> PyResult<Commit> {
        Ok(self.with(py, |store| Ok(store.roll_back(commits)?.into()))?)
    }

    /// Merges all commits into pages, and waits until that is durable: the next opening is faster then.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        Ok(self.with(py, |store| Ok(store.flush()?))?)
    }

    /// Closes it. Transactions stay open; the files are released with the last of them.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let store = self.store.write().take();
            drop(store);
        });
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _exception_type: Option<&Bound<'_, PyAny>>,
        _exception: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> bool {
        self.close(py);
        false
    }
}
