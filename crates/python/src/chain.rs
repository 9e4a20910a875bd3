//! States and proofs of a chain's database, read-only.

use crate::{
    commit::Block,
    convert::{address, int, key, slot},
    errors::{Failure, ProofError},
};
use cambium::{AccountProof, Node, StateAt, StorageKey, U256, keccak256, verify_account_proof};
use parking_lot::RwLock;
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict, PyString},
};
use std::path::PathBuf;

/// A chain's database, open for reading beside a process that may write to it. As a context manager it
/// is closed at the end. Threads may share it.
#[pyclass(frozen, module = "cambium")]
pub(crate) struct Chain {
    /// `None` once it is closed.
    node: RwLock<Option<Node>>,
}

/// The state of a chain after one block. It never changes. Threads may share it.
#[pyclass(frozen, module = "cambium")]
pub(crate) struct State(StateAt);

/// The fields of an account.
#[pyclass(frozen, eq, module = "cambium")]
#[derive(PartialEq)]
pub(crate) struct Account(cambium::Account);

const CLOSED: Failure = Failure::Closed("the chain is closed: open it again");

impl Chain {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Node) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        py.detach(|| work(self.node.read().as_ref().ok_or(CLOSED)?))
    }
}

#[pymethods]
impl Chain {
    /// Opens the database in a directory at its newest block.
    #[staticmethod]
    #[pyo3(signature = (path, *, memory_bytes=1 << 30))]
    fn open(py: Python<'_>, path: PathBuf, memory_bytes: u64) -> PyResult<Self> {
        let opened = py.detach(|| Node::open(&path, memory_bytes).map_err(Failure::from))?;
        Ok(Self {
            node: RwLock::new(Some(opened)),
        })
    }

    /// The newest block that this handle has seen.
    #[getter]
    fn head(&self, py: Python<'_>) -> PyResult<Block> {
        Ok(self.with(py, |node| Ok(node.head().into()))?)
    }

    /// Moves to the newest block that was written, and returns it.
    fn catch_up(&self, py: Python<'_>) -> PyResult<Block> {
        let moved = py.detach(|| {
            let mut node = self.node.write();
            Ok::<_, Failure>(node.as_mut().ok_or(CLOSED)?.catch_up()?)
        })?;
        Ok(moved.into())
    }

    /// The state at the head, or after the canonical block of a number.
    #[pyo3(signature = (number=None))]
    fn state(&self, py: Python<'_>, number: Option<u64>) -> PyResult<State> {
        Ok(self.with(py, |node| match number {
            Some(number) => Ok(State(node.kept_state_at(number)?)),
            None => Ok(State(node.db().view()?.into())),
        })?)
    }

    /// Closes it. States stay valid; the files are released with the last of them.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let node = self.node.write().take();
            drop(node);
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

#[pymethods]
impl State {
    /// The block whose state this is.
    #[getter]
    fn block(&self) -> Block {
        self.0.block().into()
    }

    /// The state root: 32 bytes.
    #[getter]
    fn root<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let root = py.detach(|| self.0.state_root().map_err(Failure::from))?;
        Ok(PyBytes::new(py, root.as_slice()))
    }

    /// The account at an address (20 bytes, or hex); None if it does not exist.
    fn account(&self, py: Python<'_>, at: &Bound<'_, PyAny>) -> PyResult<Option<Account>> {
        let path = keccak256(address(at)?);
        let found = py.detach(|| self.0.account(&path).map_err(Failure::from))?;
        Ok(found.map(Account))
    }

    /// The value of a slot (a number, or 32 bytes) of an account; 0 if it is not set.
    fn slot(
        &self,
        py: Python<'_>,
        at: &Bound<'_, PyAny>,
        number: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let (account, slot) = (keccak256(address(at)?), keccak256(slot(number)?));
        let value: U256 = py.detach(|| self.0.slot(&account, &slot).map_err(Failure::from))?;
        int(py, value)
    }

    /// The code with a hash, as an account has it.
    fn code<'py>(&self, py: Python<'py>, hash: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let hash = key(hash)?;
        let code = py.detach(|| self.0.code(&hash).map_err(Failure::from))?;
        Ok(PyBytes::new(py, &code))
    }

    /// Proves an account, or that there is none, and slots of it: what eth_getProof responds (EIP-1186).
    #[pyo3(signature = (at, slots=None))]
    fn prove<'py>(
        &self,
        py: Python<'py>,
        at: &Bound<'py, PyAny>,
        slots: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (address, keys) = (address(at)?, storage_keys(slots)?);
        let proof = py.detach(|| self.0.prove_account(address, &keys).map_err(Failure::from))?;
        let text = serde_json::to_string(&proof)
            .map_err(|error| ProofError::new_err(error.to_string()))?;
        py.import("json")?.call_method1("loads", (text,))
    }
}

fn storage_keys(slots: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<StorageKey>> {
    let Some(slots) = slots else {
        return Ok(Vec::new());
    };
    let storage_key = |item: PyResult<Bound<'_, PyAny>>| {
        Ok(StorageKey {
            slot: slot(&item?)?,
            quantity: false,
        })
    };
    slots.try_iter()?.map(storage_key).collect()
}

#[pymethods]
impl Account {
    /// Number of transactions sent, or of contracts created by a contract.
    #[getter]
    fn nonce(&self) -> u64 {
        self.0.nonce
    }

    /// Balance in wei.
    #[getter]
    fn balance(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        int(py, self.0.balance)
    }

    /// Keccak-256 hash of the code: that of no bytes if there is none.
    #[getter]
    fn code_hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.code_hash.as_slice())
    }

    fn __repr__(&self) -> String {
        let (nonce, balance) = (self.0.nonce, self.0.balance);
        format!("Account(nonce={nonce}, balance={balance})")
    }
}

/// Verifies a response of eth_getProof (a dict, or JSON) about an address against a state root. Returns
/// the account, None if it is proved not to exist, and the values of its slots by their 32 bytes. Raises
/// ProofError if the proof does not show that.
#[pyfunction]
pub(crate) fn verify_account<'py>(
    py: Python<'py>,
    root: &[u8],
    at: &Bound<'py, PyAny>,
    proof: &Bound<'py, PyAny>,
) -> PyResult<(Option<Account>, Bound<'py, PyDict>)> {
    let (root, address) = (key(root)?, address(at)?);
    let text = match proof.cast::<PyString>() {
        Ok(text) => text.to_string(),
        Err(_) => py
            .import("json")?
            .call_method1("dumps", (proof,))?
            .extract()?,
    };
    let bad = |message: String| ProofError::new_err(message);
    let proof: AccountProof = serde_json::from_str(&text)
        .map_err(|error| bad(format!("the response of eth_getProof: {error}")))?;
    if proof.address != address {
        return Err(bad(format!(
            "the proof is of the account {}",
            proof.address
        )));
    }
    let verified = py.detach(|| verify_account_proof(root, &proof));
    let verified = verified.map_err(|error| bad(error.to_string()))?;
    let slots = PyDict::new(py);
    for (slot, value) in verified.slots {
        slots.set_item(PyBytes::new(py, slot.as_slice()), int(py, value)?)?;
    }
    Ok((verified.account.map(Account), slots))
}
