//! An authenticated key-value store with serializable transactions.
//!
//! Keys have 32 bytes, values up to [`VALUE_BYTES_MAX`], 16 MiB. Each commit has a root that commits to
//! all entries.
//! A [`Transaction`] reads one snapshot and keeps its writes to itself until it is committed. It is
//! committed only if everything that it read, absent keys and ranges included, is still so.
//!
//! ```
//! use alloy_primitives::{B256, Bytes};
//! use cambium_disk::FaultyDisk;
//! use cambium_kv::{KvError, KvOptions, Store};
//! use std::sync::Arc;
//!
//! // A disk in memory; a path makes a directory.
//! let store = Store::create(Arc::new(FaultyDisk::new(1)), KvOptions::default())?;
//! let [alice, bob] = [0xa1, 0xb0].map(B256::repeat_byte);
//!
//! let mut deposit = store.begin()?;
//! deposit.put(alice, &b"100"[..])?;
//! let first = deposit.commit()?;
//! assert_eq!(store.root()?, first.root);
//!
//! // Two transactions that read the same balance: one of them has to begin again.
//! let (mut one, mut two) = (store.begin()?, store.begin()?);
//! assert_eq!(one.get(&alice)?, two.get(&alice)?);
//! one.put(alice, &b"90"[..])?;
//! two.put(bob, &b"100"[..])?;
//! one.commit()?;
//! assert!(matches!(two.commit(), Err(KvError::Conflict(conflict)) if conflict.key == alice));
//!
//! let entries = store.begin()?.range(..).collect::<Result<Vec<_>, _>>()?;
//! assert_eq!(entries, [(alice, Bytes::from_static(b"90"))]);
//! assert_eq!(store.begin_at(first.number())?.get(&alice)?, Some(Bytes::from_static(b"100")));
//! # Ok::<(), KvError>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | read and write | [`Store::begin`], [`Transaction::get`], [`Transaction::range`], [`Transaction::put`], [`Transaction::delete`] |
//! | read an older state | [`Store::begin_at`], [`Store::commit_with_root`] |
//! | write without reading | [`Store::write`] with a [`WriteBatch`] |
//! | load what is going to be used | [`Transaction::warm_up`] |
//! | prove what is there, and verify it elsewhere | [`Transaction::prove`], [`Transaction::prove_range`], [`verify`], [`verify_range`] |
//! | prove a commit to who has only roots | [`Transaction::prepare_with_witness`], [`verify_commit`]; under [`Commitment::Layered`]: [`verify_layered_commit`] |
//! | commit many at once | [`Store::commit_all`] |
//! | build on what is not durable yet | [`Transaction::prepare`], [`Store::begin_on`], [`Prepared::commit`] |
//! | take commits back | [`Store::roll_back`] |
//!
//! Below is the engine that keeps the state of EVM chains (`cambium_state`): a commit is a block
//! there, with entries instead of accounts.

#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod range;
mod reads;
mod recent;
mod error;
mod options;
mod batch;
mod proof;
mod commit;
mod prepared;
mod transaction;
mod store;

pub use cambium_state::{CheckProgress, CheckReport, FileSizes, Recovery, StateError, Stats};
pub use cambium_trie::{
    Blake3, Commitment, EntryProof, EntryProofError, Hasher, ProvedLayeredUpdate, ProvedUpdate,
    Sha256, ValueCommitment,
};

pub use batch::{VALUE_BYTES_MAX, WriteBatch};
pub use commit::Commit;
pub use error::KvError;
pub use options::{KvOptions, Location};
pub use prepared::Prepared;
pub use proof::{
    CommitWitness, ProvedEntries, ProvedKeys, VerifyError, verify, verify_commit,
    verify_layered_commit, verify_range,
};
pub use range::KeyRange;
pub use reads::ReadTarget;
pub use recent::{Conflict, ConflictWriter};
pub use store::{GroupCommit, GroupPrepared, Store, StoreLoader};
pub use transaction::{Cursor, Entries, Transaction};
