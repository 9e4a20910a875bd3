//! Commits of stores, and blocks of chains.

use cambium::BlockId;
use pyo3::{prelude::*, types::PyBytes};

/// A commit: a state of the store with its root.
#[pyclass(frozen, eq, hash, module = "cambium")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Commit {
    /// One more than the commit before. The empty store is commit 0.
    #[pyo3(get)]
    number: u64,
    hash: [u8; 32],
    root: [u8; 32],
}

impl From<cambium_kv::Commit> for Commit {
    fn from(commit: cambium_kv::Commit) -> Self {
        Self {
            number: commit.number(),
            hash: commit.id.hash.0,
            root: commit.root.0,
        }
    }
}

#[pymethods]
impl Commit {
    /// Hash of number, parent and root, by which the commit is known: 32 bytes.
    #[getter]
    fn hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.hash)
    }

    /// The root of all entries after it: 32 bytes.
    #[getter]
    fn root<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.root)
    }

    fn __repr__(&self) -> String {
        let root = cambium::B256::new(self.root);
        format!("Commit(number={}, root={root:#x})", self.number)
    }
}

/// A block of a chain.
#[pyclass(frozen, eq, hash, module = "cambium")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Block {
    /// Height of the block.
    #[pyo3(get)]
    number: u64,
    hash: [u8; 32],
}

impl From<BlockId> for Block {
    fn from(id: BlockId) -> Self {
        Self {
            number: id.number,
            hash: id.hash.0,
        }
    }
}

#[pymethods]
impl Block {
    /// Hash of its header: 32 bytes.
    #[getter]
    fn hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.hash)
    }

    fn __repr__(&self) -> String {
        let hash = cambium::B256::new(self.hash);
        format!("Block(number={}, hash={hash:#x})", self.number)
    }
}
