//! Keys, addresses, numbers and names from Python, and back.

use cambium::{Address, B256, U256};
use cambium_kv::{Blake3, Commitment, KeyRange, Sha256};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyInt, PyString},
};

/// A key, a root or a hash: exactly 32 bytes.
pub(crate) fn key(bytes: &[u8]) -> PyResult<B256> {
    B256::try_from(bytes).map_err(|_| {
        PyValueError::new_err(format!("a key has 32 bytes, and this has {}", bytes.len()))
    })
}

/// Keys of any iterable of `bytes`.
pub(crate) fn keys(iterable: &Bound<'_, PyAny>) -> PyResult<Vec<B256>> {
    let mut keys = Vec::with_capacity(iterable.len().unwrap_or(0));
    for item in iterable.try_iter()? {
        keys.push(key(item?.cast::<PyBytes>()?.as_bytes())?);
    }
    Ok(keys)
}

/// The range from `first` through `last`, with the ends where there is none.
pub(crate) fn range(first: Option<&[u8]>, last: Option<&[u8]>) -> PyResult<KeyRange> {
    let all = KeyRange::ALL;
    let first = first.map_or(Ok(all.from()), key)?;
    let last = last.map_or(Ok(all.through()), key)?;
    KeyRange::new(first, last).ok_or_else(|| {
        let text = format!("the range ends at {last:#x}, before it begins at {first:#x}");
        PyValueError::new_err(text)
    })
}

/// An address: 20 bytes, or 40 hex digits with or without `0x`.
pub(crate) fn address(given: &Bound<'_, PyAny>) -> PyResult<Address> {
    let bad = |what| PyValueError::new_err(format!("an address has 20 bytes: {what}"));
    if let Ok(text) = given.cast::<PyString>() {
        let text = text.to_string();
        return text.parse().map_err(|_| bad(format!("{text:?}")));
    }
    let bytes = given.cast::<PyBytes>()?.as_bytes();
    Address::try_from(bytes).map_err(|_| bad(format!("this has {}", bytes.len())))
}

/// A slot: its number, or 32 bytes.
pub(crate) fn slot(given: &Bound<'_, PyAny>) -> PyResult<B256> {
    match given.cast::<PyInt>() {
        Ok(number) => {
            let bytes = number.call_method1("to_bytes", (32, "big"))?;
            key(bytes.cast::<PyBytes>()?.as_bytes())
        }
        Err(_) => key(given.cast::<PyBytes>()?.as_bytes()),
    }
}

/// A number of 256 bits.
pub(crate) fn int(py: Python<'_>, number: U256) -> PyResult<Py<PyAny>> {
    let bytes = PyBytes::new(py, &number.to_be_bytes::<32>());
    let int = py.get_type::<PyInt>();
    Ok(int.call_method1("from_bytes", (bytes, "big"))?.unbind())
}

/// `bytes` of what may be none.
pub(crate) fn bytes_or_none<'py>(
    py: Python<'py>,
    value: Option<impl AsRef<[u8]>>,
) -> Option<Bound<'py, PyBytes>> {
    value.map(|value| PyBytes::new(py, value.as_ref()))
}

/// `bytes` of a value, or else the default, whatever it is.
pub(crate) fn bytes_or(
    py: Python<'_>,
    value: Option<impl AsRef<[u8]>>,
    default: Option<Py<PyAny>>,
) -> Option<Py<PyAny>> {
    let bytes = bytes_or_none(py, value);
    bytes.map(|bytes| bytes.into_any().unbind()).or(default)
}

/// The commitment of a name.
pub(crate) fn commitment_of(name: &str) -> PyResult<Commitment> {
    let known = [
        Commitment::Binary(&Blake3),
        Commitment::Binary(&Sha256),
        Commitment::Mpt,
        Commitment::Layered,
    ];
    let found = known
        .into_iter()
        .find(|known| known.name().to_string() == name);
    found.ok_or_else(|| {
        let names = known.map(|known| known.name().to_string()).join(", ");
        PyValueError::new_err(format!("no commitment {name:?}: there are {names}"))
    })
}
