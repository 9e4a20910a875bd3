//! Proofs of entries, the leaves of a key-value database, under any commitment.
//!
//! ```text
//!                 prove_entries  prove_entry_range  prove_entry_update      PartialTrie
//! EntryProof  -> verify_entries  verify_entry_range  verify_entry_update     a root and keys alone
//! ```
//!
//! Under `layered` a [`LayeredEntryProver`] proves keys and ranges, and [`verify_layered_update`] verifies
//! a commit: its root depends on where in an interval it is.
//!
//! A proof shows the commitment of a leaf ([`ValueCommitment`](crate::ValueCommitment)), not the value. The holder of
//! the value compares the two. A proof has nothing that its keys, range or writes do not need: it is refused for any
//! others.

mod error;
mod proof;
mod mpt;
mod layers;
mod prove;
mod layered_prove;
mod verify;
mod layered_update;

pub use error::EntryProofError;
pub use layered_prove::LayeredEntryProver;
pub use layered_update::{LayeredCommit, ProvedLayeredUpdate, verify_layered_update};
pub use proof::{ENTRY_PROOF_BYTES_MAX, EntryProof, LayeredEntryProof};
pub use prove::ProvedRange;
pub use verify::{
    EntryWrite, ProvedUpdate, verify_entries, verify_entry_range, verify_entry_range_up_to,
    verify_entry_update,
};
