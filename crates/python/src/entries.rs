//! Entries of a transaction in the order of their keys.

use crate::{errors::Failure, transaction::Transaction};
use parking_lot::Mutex;
use pyo3::{prelude::*, types::PyBytes};

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
