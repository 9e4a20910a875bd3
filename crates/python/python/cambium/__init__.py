"""Cambium: an authenticated key-value store with serializable transactions, and states and proofs of
EVM chains, read-only.

    import cambium

    with cambium.Store.create("data") as store:
        with store.begin() as transaction:  # commits at the end, aborts after an exception
            transaction[key] = b"value"  # keys have 32 bytes
        values, proof = store.begin().prove([key])
        cambium.verify(store.root, store.commitment, values, proof)

A commit whose transaction lost against another one raises ConflictError: run the transaction again.
"""

from ._native import (
    VALUE_BYTES_MAX,
    Account,
    Block,
    CambiumError,
    Chain,
    Commit,
    ConflictError,
    DamagedError,
    DiskError,
    EntryIterator,
    NotKeptError,
    ProofError,
    RangeProof,
    ReadOnlyError,
    State,
    Store,
    Transaction,
    UnavailableError,
    verify,
    verify_account,
    verify_range,
)

__all__ = [
    "VALUE_BYTES_MAX",
    "Account",
    "Block",
    "CambiumError",
    "Chain",
    "Commit",
    "ConflictError",
    "DamagedError",
    "DiskError",
    "EntryIterator",
    "NotKeptError",
    "ProofError",
    "RangeProof",
    "ReadOnlyError",
    "State",
    "Store",
    "Transaction",
    "UnavailableError",
    "verify",
    "verify_account",
    "verify_range",
]
