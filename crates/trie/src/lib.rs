//! The partial trie: Ethereum-exact commitments, proofs, witnesses and their verifiers.
//!
//! One structure, [`PartialTrie`], serves as the index of the store, as the changed paths of recent
//! blocks, and as a witness. Any subtrie may be blinded: a [`Stub`] with its hash stands in for it,
//! with the page that holds the subtrie if there is one. The crate has no I/O, no threads and no
//! clock, and is `no_std` with `alloc`. Absent subtries are loaded through a [`Resolve`].
//!
//! | task | item |
//! |---|---|
//! | read | [`PartialTrie::lookup`], [`PartialTrie::visit`], [`PartialTrie::find`] |
//! | change | [`PartialTrie::apply`], then [`commit`] over any number of tries ([`commit_with`]: on several threads) |
//! | join 256 shards to a state root | [`top_levels`] |
//! | build from pages and other tries | [`PartialTrie::graft_leaves`], [`PartialTrie::graft_node`] |
//! | evict | [`PartialTrie::replace_by_stub`] |
//! | serialize | [`PartialTrie::encode_to`], [`PartialTrie::decode`]; subtries: [`PartialTrie::encode_subtrie_to`], [`PartialTrie::graft_encoded`]; differences: [`PartialTrie::encode_changes_to`], [`PartialTrie::decode_changes`] |
//! | prove | [`PartialTrie::prove_account`], [`PartialTrie::prove_many`] |
//! | verify | [`verify_account_proof`], [`MultiProof::verify`] |
//! | prove and verify all accounts or slots of a range | [`PartialTrie::extract_range`], [`RangeProof`] |
//! | prove and verify entries of key-value databases, under any commitment | [`PartialTrie::prove_entries`], [`PartialTrie::prove_entry_range`], [`PartialTrie::prove_entry_update`]; [`verify_entries`], [`verify_entry_range`], [`verify_entry_update`] |
//! | commit to recent changes | [`UpperTrie`], [`net_changes`], [`layered_root`] |
//! | prove and verify under that root | [`LayeredProof`]; entries: [`LayeredEntryProver`], [`verify_entries`], [`verify_entry_range`], [`verify_layered_update`] |
//! | keep several versions in one arena | [`VersionedTrie`] |
//! | give many reads their nodes below a retention level | [`BagMaker`], [`BagNodes`] |
//! | execute statelessly | [`PartialTrie::extract_for_changes`], [`PartialTrie::from_witness`] |
//!
//! A witness of two accounts, to which a transfer between them is applied:
//!
//! ```
//! use alloy_primitives::{B256, U256};
//! use cambium_keccak::Batch;
//! use cambium_primitives::{Account, AccountDiff, AccountUpdate, Path};
//! use cambium_trie::{ProofTargets, NoResolve, PartialTrie, commit};
//!
//! let put = |key: u8, wei: u64| AccountDiff {
//!     path: B256::repeat_byte(key),
//!     account: AccountUpdate::Put(Account { balance: U256::from(wei), ..Account::default() }),
//!     wipe: false,
//!     slots: vec![],
//! };
//! let mut batch = Batch::new();
//! let mut state = PartialTrie::new(Path::EMPTY);
//! state.apply(&(0..200).map(|key| put(key, 5)).collect::<Vec<_>>(), &mut NoResolve).unwrap();
//! commit(&mut [&mut state], &mut batch);
//!
//! let transfer = [put(3, 1), put(77, 9)];
//! let part = state.extract_for_changes(&ProofTargets::default(), &transfer, &mut NoResolve).unwrap();
//! let nodes = part.witness_nodes();
//! let root = state.state_root().unwrap();
//! let (mut witness, _) = PartialTrie::from_witness(root, &nodes).unwrap();
//! assert_eq!(witness.state_root(), Some(root));
//!
//! for trie in [&mut state, &mut witness] {
//!     trie.apply(&transfer, &mut NoResolve).unwrap();
//!     commit(&mut [trie], &mut batch);
//! }
//! assert_eq!(witness.state_root(), state.state_root());
//! ```
#![warn(clippy::missing_errors_doc)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod node_ref;
mod hasher;
mod commitment;
mod value_commitment;
mod rlp;
mod prefetch;
mod slab;
mod arena;
mod sharing;
mod error;
mod partial;
mod binary;
mod join;
mod graft;
mod resolve;
mod slots_job;
mod apply;
mod divide;
mod hash;
mod top_levels;
mod binary_proof;
mod extract;
mod blind;
mod trace;
mod range;
mod encode;
mod versions;
mod witness;
mod range_proof;
mod multiproof;
mod upper;
mod entry_proof;
mod proof;
#[cfg(feature = "serde")]
mod proof_json;
#[cfg(feature = "rpc")]
mod proof_rpc;

#[cfg(feature = "rpc")]
pub use alloy_rpc_types_eth::{EIP1186AccountProofResponse, EIP1186StorageProof};
pub use arena::Link;
pub use binary_proof::{BinaryProof, BinaryProofError, ProofPart};
pub use cambium_keccak::Batch;
pub use commitment::{Commitment, CommitmentName};
pub use divide::DetachedStorage;
pub use entry_proof::{
    ENTRY_PROOF_BYTES_MAX, EntryProof, EntryProofError, EntryWrite, LayeredCommit,
    LayeredEntryProof, LayeredEntryProver, ProvedLayeredUpdate, ProvedRange, ProvedUpdate,
    verify_entries, verify_entry_range, verify_entry_range_up_to, verify_entry_update,
    verify_layered_update,
};
pub use error::{Mismatch, Missing, TrieError, UpdateError};
pub use extract::ProofTargets;
pub use graft::LeafValue;
pub use hash::{Alone, HashJob, LeafHasher, Spread, commit, commit_with};
pub use hasher::{Blake3, Hasher, Pair, Sha256};
pub use multiproof::{MultiProof, MultiProofError, ProvedAccount};
pub use node_ref::{EMPTY_ROOT, NodeKind, NodeRef, Place, Stub};
pub use partial::{Lookup, NodeView, PartialTrie};
pub use proof::{
    AccountProof, ProofError, ProofFault, StorageKey, StorageProof, VerifiedAccount,
    verify_account_proof,
};
#[cfg(feature = "serde")]
pub use proof_json::Quantity;
pub use range::{ExtractedRange, LeafRange};
pub use range_proof::{ProvedPage, RangeProof, RangeProofError, verify_slots_from};
pub use resolve::{NoResolve, Resolve};
pub use rlp::{encode_branch, encode_extension, encode_leaf};
pub use slots_job::{SlotsJob, SpreadSlots};
pub use top_levels::{SHARD_NIBBLES, SHARDS, TopLevelsError, top_levels};
pub use trace::Traced;
pub use upper::{
    LayeredGap, LayeredParts, LayeredProof, LayeredProofError, LayeredProver, LayeredRoots,
    LayeredUpdateError, UpperReverts, UpperTrie, layered_root, net_changes,
};
pub use value_commitment::ValueCommitment;
pub use versions::{Draft, Version, VersionView, VersionedTrie};
pub use witness::{
    BagError, BagLevels, BagMaker, BagNodes, Deletes, HashedNodes, NodesByHash, UnfoldError,
    Unfolder, Witness, WitnessError, WitnessNodes,
};
