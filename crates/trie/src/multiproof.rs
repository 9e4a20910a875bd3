//! Proofs of many leaves at once: the nodes on the paths to all of them, without repetition.

use crate::{
    error::{Missing, UpdateError},
    extract::ProofTargets,
    partial::PartialTrie,
    resolve::Resolve,
    witness::{UnfoldError, WitnessError, WitnessNodes},
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
        let nodes = WitnessNodes::new(root, &self.nodes)?;
        let surplus = nodes.unused();
        if surplus > 0 {
            return Err(MultiProofError::Surplus { surplus });
        }
        let accounts = keys.accounts().iter();
        let proved = accounts.map(|(path, slots)| proved(&nodes, path, slots));
        let proved = proved.collect::<Result<Vec<_>, _>>()?;
        let slots = keys.accounts().iter().map(|(_, slots)| slots.len());
        let mut unfolder = nodes.unfolder(keys.accounts().len() + slots.sum::<usize>());
        let needed = match nodes.trie().extract(keys, &mut unfolder) {
            Ok(needed) => needed.witness_nodes().len(),
            Err(UpdateError::Resolve(UnfoldError::Witness(error))) => return Err(error.into()),
            // Everything on the paths is there.
            Err(_) => 0,
        };
        match self.nodes.len() - needed {
            0 => Ok(proved),
            surplus => Err(MultiProofError::Surplus { surplus }),
        }
    }
}

fn proved(
    nodes: &WitnessNodes,
    account: &B256,
    slots: &[B256],
) -> Result<ProvedAccount, MultiProofError> {
    let incomplete = |path: Path| {
        move |missing: Missing| MultiProofError::Incomplete {
            path,
            depth: missing.path.len(),
        }
    };
    let fields = nodes.account(account);
    let slots = slots.iter().map(|slot| {
        let value = nodes.slot(account, slot);
        let value = value.map_err(incomplete(Path::slot(account, slot)))?;
        Ok((*slot, value))
    });
    Ok(ProvedAccount {
        path: *account,
        account: fields.map_err(incomplete(Path::account(account)))?,
        slots: slots.collect::<Result<_, MultiProofError>>()?,
    })
}
