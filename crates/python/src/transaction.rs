//! Transactions: a mapping of keys to values as of one snapshot, with the transaction's own writes.

use crate::{
    commit::Commit,
    convert::{bytes_or, bytes_or_none, key, keys, range},
    errors::Failure,
    proof::RangeProof,
};
use cambium::Bytes;
use parking_lot::{Mutex, RwLock};
use pyo3::{
    exceptions::{PyKeyError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict, PyList},
};
use std::num::NonZeroUsize;

/// Reads one snapshot, and keeps its writes to itself until it is committed. As a context manager it
/// commits at the end, and aborts after an exception. Threads may share it.
#[pyclass(frozen, module = "cambium")]
pub(crate) struct Transaction {
    state: RwLock<State>,
}

enum State {
    Open(cambium_kv::Transaction),
    Committed(cambium_kv::Commit),
    Aborted,
}

const ENDED: Failure = Failure::Closed("the transaction has ended: begin another one");

impl Transaction {
    pub(crate) fn new(transaction: cambium_kv::Transaction) -> Self {
        Self {
            state: RwLock::new(State::Open(transaction)),
        }
    }

    /// Reads without the interpreter's lock.
    pub(crate) fn read<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&cambium_kv::Transaction) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        py.detach(|| match &*self.state.read() {
            State::Open(transaction) => work(transaction),
            _ => Err(ENDED),
        })
    }

    fn write(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut cambium_kv::Transaction) -> Result<(), Failure> + Send,
    ) -> Result<(), Failure> {
        py.detach(|| match &mut *self.state.write() {
            State::Open(transaction) => work(transaction),
            _ => Err(ENDED),
        })
    }

    fn value(&self, py: Python<'_>, at: &[u8]) -> PyResult<Option<Bytes>> {
        let at = key(at)?;
        Ok(self.read(py, |transaction| Ok(transaction.get(&at)?))?)
    }

    fn iterate(
        slf: Bound<'_, Self>,
        first: Option<&[u8]>,
        last: Option<&[u8]>,
        yields: Yields,
    ) -> PyResult<EntryIterator> {
        let range = range(first, last)?;
        let cursor = slf.get().read(slf.py(), |transaction| {
            Ok(transaction.cursor(range.from()..=range.through()))
        })?;
        Ok(EntryIterator::new(slf.unbind(), cursor, yields))
    }
}

#[pymethods]
impl Transaction {
    /// The commit whose entries it reads, without its own writes.
    #[getter]
    fn snapshot(&self, py: Python<'_>) -> PyResult<Commit> {
        Ok(self.read(py, |transaction| Ok(transaction.snapshot().into()))?)
    }

    /// The commit that it has become; None before it is committed.
    #[getter]
    fn committed(&self, py: Python<'_>) -> Option<Commit> {
        py.detach(|| match &*self.state.read() {
            State::Committed(commit) => Some((*commit).into()),
            _ => None,
        })
    }

    /// The value at a key, its own if it has written one; else the default.
    #[pyo3(signature = (key, default=None))]
    fn get(
        &self,
        py: Python<'_>,
        key: &[u8],
        default: Option<Py<PyAny>>,
    ) -> PyResult<Option<Py<PyAny>>> {
        Ok(bytes_or(py, self.value(py, key)?, default))
    }

    /// The values at keys, in their order, None where there is none: with all reads of the disk in
    /// flight at once.
    fn get_many<'py>(
        &self,
        py: Python<'py>,
        keys_to_read: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let keys = keys(keys_to_read)?;
        let found = self.read(py, |transaction| Ok(transaction.get_many(&keys)?))?;
        PyList::new(py, found.into_iter().map(|value| bytes_or_none(py, value)))
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.value(py, key)?;
        bytes_or_none(py, found).ok_or_else(|| PyKeyError::new_err(PyBytes::new(py, key).unbind()))
    }

    fn __contains__(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        Ok(self.value(py, key)?.is_some())
    }

    /// Sets the value at a key. The empty value is a value.
    fn put(&self, py: Python<'_>, at: &[u8], value: &[u8]) -> PyResult<()> {
        let (at, value) = (key(at)?, Bytes::copy_from_slice(value));
        Ok(self.write(py, |transaction| Ok(transaction.put(at, value)?))?)
    }

    fn __setitem__(&self, py: Python<'_>, key: &[u8], value: &[u8]) -> PyResult<()> {
        self.put(py, key, value)
    }

    /// Removes the entry at a key, if there is one. That it is there does not count as read.
    fn delete(&self, py: Python<'_>, at: &[u8]) -> PyResult<()> {
        let at = key(at)?;
        Ok(self.write(py, |transaction| {
            transaction.delete(at);
            Ok(())
        })?)
    }

    fn __delitem__(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        self.__getitem__(py, key)?;
        self.delete(py, key)
    }

    /// Sets all values of a dict, where None removes the entry.
    fn update(&self, py: Python<'_>, writes: &Bound<'_, PyDict>) -> PyResult<()> {
        let batch = batch_of(writes)?;
        Ok(self.write(py, |transaction| {
            transaction.write(batch);
            Ok(())
        })?)
    }

    /// The entries from `first` through `last`, in the order of their keys. As far as the iteration
    /// gets, the range counts as read.
    #[pyo3(signature = (first=None, last=None))]
    fn items(
        slf: Bound<'_, Self>,
        first: Option<&[u8]>,
        last: Option<&[u8]>,
    ) -> PyResult<EntryIterator> {
        Self::iterate(slf, first, last, Yields::Items)
    }

    /// The keys from `first` through `last`, in order.
    #[pyo3(signature = (first=None, last=None))]
    fn keys(
        slf: Bound<'_, Self>,
        first: Option<&[u8]>,
        last: Option<&[u8]>,
    ) -> PyResult<EntryIterator> {
        Self::iterate(slf, first, last, Yields::Keys)
    }

    /// The values from `first` through `last`, in the order of their keys.
    #[pyo3(signature = (first=None, last=None))]
    fn values(
        slf: Bound<'_, Self>,
        first: Option<&[u8]>,
        last: Option<&[u8]>,
    ) -> PyResult<EntryIterator> {
        Self::iterate(slf, first, last, Yields::Values)
    }

    fn __iter__(slf: Bound<'_, Self>) -> PyResult<EntryIterator> {
        Self::iterate(slf, None, None, Yields::Keys)
    }

    /// Proves the values at keys against the root of its snapshot, or that there are none. Returns the
    /// values by key, None where there is none, and the proof. Its own writes are not looked at.
    fn prove<'py>(
        &self,
        py: Python<'py>,
        keys_to_prove: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyDict>, Bound<'py, PyBytes>)> {
        let keys = keys(keys_to_prove)?;
        let (proved, proof) = self.read(py, |transaction| {
            let proved = transaction.prove(&keys)?;
            Ok((proved.values, proved.proof.encode()))
        })?;
        let values = PyDict::new(py);
        for (key, value) in proved {
            values.set_item(PyBytes::new(py, key.as_slice()), bytes_or_none(py, value))?;
        }
        Ok((values, PyBytes::new(py, &proof)))
    }

    /// Proves the entries from `first` through `last` against the root of its snapshot, `limit` of them
    /// at most, and that there are no others. Its own writes are not looked at.
    #[pyo3(signature = (first=None, last=None, *, limit=1000))]
    fn prove_range(
        &self,
        py: Python<'_>,
        first: Option<&[u8]>,
        last: Option<&[u8]>,
        limit: usize,
    ) -> PyResult<RangeProof> {
        let range = range(first, last)?;
        let limit = NonZeroUsize::new(limit);
        let limit = limit.ok_or_else(|| PyValueError::new_err("the limit is 0"))?;
        Ok(self.read(py, |transaction| {
            Ok(RangeProof(transaction.prove_range(range, limit)?))
        })?)
    }

    /// Loads what reading and writing keys needs: a hint, which counts as no read.
    fn warm_up(&self, py: Python<'_>, keys_to_load: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = keys(keys_to_load)?;
        Ok(self.read(py, |transaction| Ok(transaction.warm_up(&keys)?))?)
    }

    /// Commits it. When this returns, the commit survives a loss of power. It has ended, whatever the
    /// outcome.
    fn commit(&self, py: Python<'_>) -> PyResult<Commit> {
        let done = py.detach(|| {
            let mut state = self.state.write();
            match std::mem::replace(&mut *state, State::Aborted) {
                State::Open(transaction) => {
                    let commit = transaction.commit()?;
                    *state = State::Committed(commit);
                    Ok(commit)
                }
                ended => {
                    *state = ended;
                    Err(ENDED)
                }
            }
        })?;
        Ok(done.into())
    }

    /// Aborts it: nothing of it is written. An ended transaction stays as it is.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| {
            let mut state = self.state.write();
            if matches!(*state, State::Open(_)) {
                *state = State::Aborted;
            }
        });
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Commits, or aborts after an exception. Nothing is done if it has ended before.
    fn __exit__(
        &self,
        py: Python<'_>,
        exception_type: Option<&Bound<'_, PyAny>>,
        _exception: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let is_open = py.detach(|| matches!(*self.state.read(), State::Open(_)));
        match (is_open, exception_type) {
            (false, _) => {}
            (true, None) => {
                self.commit(py)?;
            }
            (true, Some(_)) => self.abort(py),
        }
        Ok(false)
    }
}

/// What an iteration yields.
#[derive(Clone, Copy)]
pub(crate) enum Yields {
    Keys,
    Values,
    Items,
}

/// Iterates over entries of a transaction. What the transaction writes ahead of it is visited, too.
#[pyclass(frozen, module = "cambium")]
pub(crate) struct EntryIterator {
    transaction: Py<Transaction>,
    cursor: Mutex<cambium_kv::Cursor>,
    yields: Yields,
}

impl EntryIterator {
    pub(crate) fn new(
        transaction: Py<Transaction>,
        cursor: cambium_kv::Cursor,
        yields: Yields,
    ) -> Self {
        Self {
            transaction,
            cursor: Mutex::new(cursor),
            yields,
        }
    }
}

#[pymethods]
impl EntryIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let next = self.transaction.get().read(py, |transaction| {
            self.cursor.lock().next(transaction).map_err(Failure::from)
        })?;
        let Some((key, value)) = next else {
            return Ok(None);
        };
        let (key, value) = (
            || PyBytes::new(py, key.as_slice()),
            || PyBytes::new(py, &value),
        );
        Ok(Some(match self.yields {
            Yields::Keys => key().into_any().unbind(),
            Yields::Values => value().into_any().unbind(),
            Yields::Items => (key(), value()).into_pyobject(py)?.into_any().unbind(),
        }))
    }
}

/// The writes of a dict, where None removes the entry.
pub(crate) fn batch_of(writes: &Bound<'_, PyDict>) -> PyResult<cambium_kv::WriteBatch> {
    let mut batch = cambium_kv::WriteBatch::new();
    for (at, value) in writes.iter() {
        let at = key(at.cast::<PyBytes>()?.as_bytes())?;
        match value.is_none() {
            true => {
                batch.delete(at);
            }
            false => {
                let value = Bytes::copy_from_slice(value.cast::<PyBytes>()?.as_bytes());
                batch.put(at, value).map_err(Failure::from)?;
            }
        }
    }
    Ok(batch)
}
