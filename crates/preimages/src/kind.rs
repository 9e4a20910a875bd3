//! The two kinds of preimages.

use alloy_primitives::{B256, keccak256};

/// A kind of preimages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Addresses of accounts.
    Address,
    /// Keys of slots.
    Slot,
}

impl Kind {
    /// Both, in the order in which a run has them.
    pub(crate) const ALL: [Self; 2] = [Self::Address, Self::Slot];

    /// Size of a preimage, in bytes.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Address => 20,
            Self::Slot => 32,
        }
    }
}

/// A preimage with its hash: sorted by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) hash: B256,
    /// The preimage, padded with zeros behind its end.
    pub(crate) preimage: [u8; 32],
}

impl Entry {
    /// The entry of a preimage of [`Kind::bytes`].
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut preimage = [0; 32];
        preimage[..bytes.len()].copy_from_slice(bytes);
        Self {
            hash: keccak256(bytes),
            preimage,
        }
    }

    /// The first 8 bytes of the hash, in its order.
    pub(crate) fn prefix(&self) -> u64 {
        prefix_of(&self.hash)
    }
}

/// The first 8 bytes of a hash, in its order.
pub(crate) fn prefix_of(hash: &B256) -> u64 {
    u64::from_be_bytes(hash[..8].try_into().expect("eight bytes"))
}
