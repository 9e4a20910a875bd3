//! Commitment of an entry's leaf: the value, or a hash of it.

use crate::commitment::Commitment;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{EntryValue, VALUE_BYTES_MAX};

/// Longest value, in bytes, that is part of its leaf's node under [`Commitment::Mpt`] and
/// [`Commitment::Layered`].
pub(crate) const NODE_VALUE_BYTES_MAX: usize = 32;

/// Commitment to an entry's value in a proof. Values are equal if and only if these are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueCommitment {
    /// The value itself, of at most 32 bytes, under [`Commitment::Mpt`] and [`Commitment::Layered`].
    Value(Bytes),
    /// Length in bytes and Keccak-256 hash of a longer value, under the same.
    Hashed {
        /// Length of the value in bytes.
        len: u32,
        /// Keccak-256 hash of the value.
        hash: B256,
    },
    /// Hash of a value of any length, under [`Commitment::Binary`].
    Hash(B256),
}

impl ValueCommitment {
    /// Returns the commitment to a value, of at most [`cambium_primitives::VALUE_BYTES_MAX`] bytes.
    pub fn of(commitment: Commitment, value: &[u8]) -> Self {
        match commitment {
            Commitment::Binary(hasher) => Self::Hash(hasher.hash(value)),
            _ if value.len() <= NODE_VALUE_BYTES_MAX => Self::Value(Bytes::copy_from_slice(value)),
            Commitment::Mpt | Commitment::PartialMpt | Commitment::Layered => Self::Hashed {
                len: value.len() as u32,
                hash: commitment.value_hash(value),
            },
        }
    }

    /// Returns the commitment to an entry's value, stored or not.
    pub fn of_entry(commitment: Commitment, value: &EntryValue) -> Self {
        match value {
            EntryValue::Inline(bytes) => Self::of(commitment, bytes),
            EntryValue::Stored(stored) => match commitment {
                Commitment::Binary(_) => Self::Hash(stored.hash),
                Commitment::Mpt | Commitment::PartialMpt | Commitment::Layered => Self::Hashed {
                    len: stored.len,
                    hash: stored.hash,
                },
            },
        }
    }

    /// Returns whether a leaf under `commitment` can commit to a value in this way.
    pub(crate) fn fits(&self, commitment: Commitment) -> bool {
        let hashed = NODE_VALUE_BYTES_MAX + 1..=VALUE_BYTES_MAX;
        match (self, commitment.nodes()) {
            (Self::Hash(_), Commitment::Binary(_)) => true,
            (Self::Value(bytes), Commitment::Mpt) => bytes.len() <= NODE_VALUE_BYTES_MAX,
            (Self::Hashed { len, .. }, Commitment::Mpt) => hashed.contains(&(*len as usize)),
            _ => false,
        }
    }

    /// Returns whether this is the commitment to `value`.
    pub fn is_of(&self, commitment: Commitment, value: &[u8]) -> bool {
        *self == Self::of(commitment, value)
    }
}
