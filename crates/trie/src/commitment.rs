//! Commitments: how a trie's nodes are hashed.
//!
//! The structure of a trie does not depend on its commitment, and neither do pages, merges and
//! reads. A [`Commitment`] matters where nodes are hashed and proved, and for which values leaves
//! commit to.

use crate::hasher::Hasher;
use alloy_primitives::{B256, b256};
use cambium_keccak::keccak256;
use cambium_primitives::EntryValue;
use core::fmt;

/// Root of `layered` of an empty database: of three tries without leaves.
const LAYERED_EMPTY_ROOT: B256 =
    b256!("878d8d2744e81c36704988e733ac2a73ac69a801d402e673219af4208f7489fe");

/// Commitment of a database's root, which defines how nodes are hashed.
#[derive(Clone, Copy, Default)]
pub enum Commitment {
    /// Ethereum's Merkle Patricia trie: Keccak-256 of RLP (Yellow Paper, appendix D).
    #[default]
    Mpt,
    /// The same trie with the same roots, in which a leaf can stand for the storage trie of a contract: a leaf with the key
    /// [`STORAGE_ROOT_KEY`](cambium_primitives::STORAGE_ROOT_KEY), alone in its storage trie, is hashed to its value, which
    /// is the root of the trie that it stands for. For databases that keep the storage of some contracts alone. Tries of
    /// proofs and witnesses, which others make, never have this commitment.
    PartialMpt,
    /// A binary trie over keys of 32 bytes, with any hash function. Its roots are those of
    /// nomt-core 1.0; see `binary.rs` for the rules.
    Binary(&'static dyn Hasher),
    /// The root of three tries, whose nodes are hashed by [`Commitment::Mpt`]: recent changes, those
    /// before them, and an older state. See `docs/COMMITMENTS.md`. No single trie has this commitment.
    Layered,
}

impl Commitment {
    /// Returns the name: `mpt`, `mpt-partial`, `layered`, or `binary-` and the name of the hash function.
    pub const fn name(&self) -> CommitmentName {
        CommitmentName(*self)
    }

    /// Returns the commitment of a single trie: how its nodes are hashed.
    #[must_use]
    pub const fn nodes(self) -> Self {
        match self {
            Self::Mpt | Self::Layered => Self::Mpt,
            Self::PartialMpt => Self::PartialMpt,
            Self::Binary(hasher) => Self::Binary(hasher),
        }
    }

    /// Returns the root of a trie, or of a database under `layered`, without leaves.
    pub const fn empty_root(&self) -> B256 {
        match self {
            Self::Mpt | Self::PartialMpt => crate::EMPTY_ROOT,
            Self::Binary(_) => B256::ZERO,
            Self::Layered => LAYERED_EMPTY_ROOT,
        }
    }

    /// Returns the hash of an entry's value, to which its leaf commits.
    pub fn value_hash(&self, value: &[u8]) -> B256 {
        match self {
            Self::Mpt | Self::PartialMpt | Self::Layered => keccak256(value),
            Self::Binary(hasher) => hasher.hash(value),
        }
    }

    /// Returns the hash of an entry's value, stored or not.
    pub fn entry_hash(&self, value: &EntryValue) -> B256 {
        match value {
            EntryValue::Inline(bytes) => self.value_hash(bytes),
            EntryValue::Stored(stored) => stored.hash,
        }
    }
}

impl PartialEq for Commitment {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mpt, Self::Mpt)
            | (Self::PartialMpt, Self::PartialMpt)
            | (Self::Layered, Self::Layered) => true,
            (Self::Binary(one), Self::Binary(other)) => one.name() == other.name(),
            _ => false,
        }
    }
}

impl Eq for Commitment {}

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commitment({})", self.name())
    }
}

/// Displays the name of a commitment.
#[derive(Clone, Copy)]
pub struct CommitmentName(Commitment);

impl fmt::Display for CommitmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Commitment::Mpt => f.write_str("mpt"),
            Commitment::PartialMpt => f.write_str("mpt-partial"),
            Commitment::Layered => f.write_str("layered"),
            Commitment::Binary(hasher) => write!(f, "binary-{}", hasher.name()),
        }
    }
}
