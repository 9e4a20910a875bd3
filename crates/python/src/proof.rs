//! Proofs of entries and of ranges of them, verified against roots without a store.

use crate::{
    convert::{commitment_of, key, range},
    errors::{Failure, ProofError},
};
use cambium::{B256, Bytes};
use cambium_kv::{EntryProof, ProvedEntries, ProvedKeys};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

/// All entries of a range, with the proof that there are no others.
#[pyclass(frozen, module = "cambium")]
pub(crate) struct RangeProof(pub(crate) ProvedEntries);

#[pymethods]
impl RangeProof {
    /// First key of the range that is proved.
    #[getter]
    fn first<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.range.from().as_slice())
    }

    /// Last key of the range that is proved: less than what was asked for if the limit was reached.
    #[getter]
    fn last<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.0.range.through().as_slice())
    }

    /// The entries, in the order of their keys.
    #[getter]
    fn entries<'py>(&self, py: Python<'py>) -> Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let entries = self.0.entries.iter();
        entries
            .map(|(key, value)| (PyBytes::new(py, key.as_slice()), PyBytes::new(py, value)))
            .collect()
    }

    /// Whether there are further entries in what was asked for. A hint, and not proved.
    #[getter]
    fn more(&self) -> bool {
        self.0.next.is_some()
    }

    /// The encoded proof of the entries listed here, and that there are none between them.
    #[getter]
    fn proof<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.proof.encode())
    }
}

fn decoded(proof: &[u8]) -> PyResult<EntryProof> {
    EntryProof::decode(proof).map_err(|error| ProofError::new_err(format!("the proof: {error}")))
}

/// Verifies that the entries of a root have these values, where None claims that there is no entry.
/// Raises ProofError if the proof does not show that.
#[pyfunction]
pub(crate) fn verify(
    py: Python<'_>,
    root: &[u8],
    commitment: &str,
    values: &Bound<'_, PyDict>,
    proof: &[u8],
) -> PyResult<()> {
    let (root, commitment) = (key(root)?, commitment_of(commitment)?);
    let mut claimed = Vec::with_capacity(values.len());
    for (at, value) in values.iter() {
        let value = value.extract::<Option<&[u8]>>()?;
        let value = value.map(Bytes::copy_from_slice);
        claimed.push((key(at.extract()?)?, value));
    }
    let proved = ProvedKeys {
        values: claimed,
        proof: decoded(proof)?,
    };
    py.detach(|| cambium_kv::verify(root, commitment, &proved).map_err(Failure::from))?;
    Ok(())
}

/// Verifies that a root has these entries from `first` through `last`, and no others. Raises
/// ProofError if the proof does not show that.
#[pyfunction]
pub(crate) fn verify_range(
    py: Python<'_>,
    root: &[u8],
    commitment: &str,
    first: &[u8],
    last: &[u8],
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    proof: &[u8],
) -> PyResult<()> {
    let (root, commitment) = (key(root)?, commitment_of(commitment)?);
    let entry = |(at, value): (Vec<u8>, Vec<u8>)| Ok((key(&at)?, Bytes::from(value)));
    let entries: PyResult<Vec<(B256, Bytes)>> = entries.into_iter().map(entry).collect();
    let proved = ProvedEntries {
        range: range(Some(first), Some(last))?,
        entries: entries?,
        next: None,
        proof: decoded(proof)?,
    };
    py.detach(|| cambium_kv::verify_range(root, commitment, &proved).map_err(Failure::from))?;
    Ok(())
}
