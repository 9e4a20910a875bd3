//! The native module of the Python package `cambium`: the key-value store, and states and proofs of
//! chains, read-only. `python/cambium/_native.pyi` has its types, and `docs/BINDINGS.md` shows how to
//! build and use it.
//!
//! | concept | file |
//! |---|---|
//! | exceptions, by what their catcher does | `errors` |
//! | keys, addresses and numbers from Python and back | `convert` |
//! | commits and blocks | `commit` |
//! | proofs of entries, verified without a store | `proof` |
//! | reads and writes of one snapshot, and its entries in order | `transaction` |
//! | the store | `store` |
//! | accounts, slots, codes and proofs of a chain | `chain` |
//!
//! Whatever may read the disk or wait does so without the interpreter's lock. No lock of this module is
//! waited for while that one is held.

mod errors;
mod convert;
mod commit;
mod proof;
mod transaction;
mod store;
mod chain;

use pyo3::prelude::*;

/// The key-value store, and states and proofs of chains.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::chain::{Account, Chain, State, verify_account};
    #[pymodule_export]
    use crate::commit::{Block, Commit};
    #[pymodule_export]
    use crate::errors::{
        CambiumError, ConflictError, DamagedError, DiskError, NotKeptError, ProofError,
        ReadOnlyError, UnavailableError,
    };
    #[pymodule_export]
    use crate::proof::{RangeProof, verify, verify_range};
    #[pymodule_export]
    use crate::store::Store;
    #[pymodule_export]
    use crate::transaction::{EntryIterator, Transaction};

    /// Longest value, in bytes.
    #[pymodule_export]
    const VALUE_BYTES_MAX: usize = cambium_kv::VALUE_BYTES_MAX;
}
