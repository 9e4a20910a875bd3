//! Proofs of many leaves at once: the nodes on the paths to all of them, without repetition.

use crate::{
    error::UpdateError,
    extract::ProofTargets,
    partial::{Lookup, PartialTrie},
    resolve::Resolve,
    witness::WitnessError,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{Account, Path};

/// A Merkle proof of many accounts and slots, present or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MultiProof {
    /// RLP of the nodes, sorted by hash and unique.
    pub nodes: Vec<Bytes>,
}

/// Verified values of one account and its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedAccount {
    /// Path of the account, `keccak(address)`.
    pub path: B256,
    /// The account, or `None` if it does not exist.
    pub account: Option<Account>,
    /// `keccak(slot)` and value of each slot among the targets. The value is zero if there is no
    /// leaf.
    pub slots: Vec<(B256, U256)>,
}

/// Error of [`MultiProof::verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultiProofError {
    /// A node is malformed.
    #[error(transparent)]
    Nodes(#[from] WitnessError),
    /// The proof lacks a node on the path of a target.
    #[error("no node at depth {depth} on the way to {path}")]
    Incomplete {
        /// Path of the target.
        path: Path,
        /// Depth of the missing node, in nibbles.
        depth: usize,
    },
    /// The proof has nodes that are not on the path of any target, or duplicates.
    #[error("{surplus} nodes are not needed")]
    Surplus {
        /// Number of these nodes.
        surplus: usize,
    },
}

impl PartialTrie {
    /// Proves the values, or the absence, of all accounts and slots in `keys`. Loads absent
    /// subtries.
    ///
    /// # Errors
    ///
    /// Returns an error if a target is outside the trie or loading fails.
    pub fn prove_many<R: Resolve>(
        &mut self,
        keys: &ProofTargets,
        resolver: &mut R,
    ) -> Result<MultiProof, UpdateError<R::Error>> {
        Ok(MultiProof {
            nodes: self.extract(keys, resolver)?.witness_nodes(),
        })
    }
}

impl MultiProof {
    /// Verifies the proof against the state root `root`. Returns the values at `keys`, in their
    /// order.
    ///
    /// # Errors
    ///
    /// Returns an error if a node is malformed, missing or not needed.
    pub fn verify(
        &self,
        root: B256,
        keys: &ProofTargets,
    ) -> Result<Vec<ProvedAccount>, MultiProofError> {
        let (mut trie, surplus) = PartialTrie::from_witness(root, &self.nodes)?;
        if surplus > 0 {
            return Err(MultiProofError::Surplus { surplus });
        }
        let accounts = keys.accounts().iter();
        let proved = accounts.map(|(path, slots)| proved(&trie, path, slots));
        let proved = proved.collect::<Result<Vec<_>, _>>()?;
        let needed = trie.extract(keys, &mut crate::NoResolve);
        let needed = needed.map_or(0, |needed| needed.witness_nodes().len());
        match self.nodes.len() - needed {
            0 => Ok(proved),
            surplus => Err(MultiProofError::Surplus { surplus }),
        }
    }
}

fn proved(
    trie: &PartialTrie,
    account: &B256,
    slots: &[B256],
) -> Result<ProvedAccount, MultiProofError> {
    let read = |path: Path| match trie.lookup(&path) {
        Lookup::Stub { depth, .. } => Err(MultiProofError::Incomplete { path, depth }),
        found => Ok(found),
    };
    let fields = match read(Path::account(account))? {
        Lookup::Account(account) => Some(account),
        _ => None,
    };
    let slots = slots
        .iter()
        .map(|slot| match read(Path::slot(account, slot))? {
            Lookup::Slot(value) => Ok((*slot, value)),
            _ => Ok((*slot, U256::ZERO)),
        });
    Ok(ProvedAccount {
        path: *account,
        account: fields,
        slots: slots.collect::<Result<_, MultiProofError>>()?,
    })
}
