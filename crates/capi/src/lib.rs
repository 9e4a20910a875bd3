//! The C ABI of Cambium: the key-value store with its transactions and proofs, and states and proofs
//! of chains, read-only. `include/cambium.h` is generated from this crate by cbindgen; a test keeps
//! it true. `docs/BINDINGS.md` shows how to build and use it.
//!
//! | concept | file |
//! |---|---|
//! | status codes, messages, and the one place where panics are caught | `status` |
//! | memory that crosses the boundary, and how pointers are read | `memory` |
//! | how a store is created or opened | `options` |
//! | commits | `commit` |
//! | writes that are gathered first | `batch` |
//! | reads and writes of one snapshot | `transaction` |
//! | entries in order | `cursor` |
//! | proofs of entries, verified without a store | `proof` |
//! | the store | `store` |
//! | blocks, accounts, slots, codes and proofs of a chain | `chain` |
//!
//! Rules that hold for every function:
//!
//! - A function that can fail returns a status, and writes its results only if that is `CAMBIUM_STATUS_OK`.
//! - A null handle or a null pointer to a result is refused as `CAMBIUM_STATUS_INVALID_ARGUMENT`. Keys,
//!   roots and hashes are 32 bytes, addresses 20; all other memory has a length beside it.
//! - No panic crosses the boundary: it becomes `CAMBIUM_STATUS_PANIC`.
//! - Whoever gets a handle or a `CambiumBytes` frees it, once, with the function that is named where it
//!   is made.

mod status;
mod memory;
mod options;
mod commit;
mod batch;
mod transaction;
mod cursor;
mod proof;
mod store;
mod chain;

pub use batch::{
    CambiumBatch, cambium_batch_clear, cambium_batch_delete, cambium_batch_free, cambium_batch_len,
    cambium_batch_new, cambium_batch_put,
};
pub use chain::{
    CambiumAccount, CambiumBlock, CambiumChain, CambiumState, cambium_chain_catch_up,
    cambium_chain_close, cambium_chain_head, cambium_chain_open, cambium_chain_state,
    cambium_chain_state_at, cambium_state_account, cambium_state_block, cambium_state_code,
    cambium_state_free, cambium_state_prove, cambium_state_root, cambium_state_slot,
    cambium_verify_account,
};
pub use commit::CambiumCommit;
pub use cursor::{CambiumCursor, cambium_cursor_free, cambium_cursor_new, cambium_cursor_next};
pub use memory::{CambiumBytes, cambium_bytes_free, cambium_bytes_free_many};
pub use options::{CambiumCommitment, CambiumOptions};
pub use proof::{
    CambiumEntry, CambiumRangeProof, CambiumRangeSummary, cambium_range_proof_entry,
    cambium_range_proof_free, cambium_range_proof_summary, cambium_transaction_prove,
    cambium_transaction_prove_range, cambium_verify, cambium_verify_range,
};
pub use status::{CAMBIUM_MESSAGE_BYTES, CambiumError, CambiumStatus, cambium_status_name};
pub use store::{
    CambiumStore, cambium_store_begin, cambium_store_begin_at, cambium_store_close,
    cambium_store_commit_with_root, cambium_store_commitment, cambium_store_create,
    cambium_store_create_in_memory, cambium_store_flush, cambium_store_get, cambium_store_newest,
    cambium_store_open, cambium_store_open_read_only, cambium_store_roll_back, cambium_store_write,
    cambium_value_bytes_max, cambium_version,
};
pub use transaction::{
    CambiumTransaction, cambium_transaction_abort, cambium_transaction_commit,
    cambium_transaction_delete, cambium_transaction_get, cambium_transaction_get_many,
    cambium_transaction_put, cambium_transaction_snapshot, cambium_transaction_write,
};
