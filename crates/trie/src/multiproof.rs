//! Proofs of many leaves at once: the nodes on the way to all of them, each once.

use crate::{
    error::UpdateError,
    extract::Keys,
    partial::{Lookup, PartialTrie},
    resolve::Resolve,
    witness::WitnessError,
};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes, U256};
use cambium_primitives::{Account, Path};

/// A proof of many leaves, present or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MultiProof {
    /// RLP of the nodes, sorted by hash.
    pub nodes: Vec<Bytes>,
}

/// What a multiproof proves of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedAccount {
    /// keccak(address).
    pub path: B256,
    /// The account; `None` if it does not exist.
    pub account: Option<Account>,
    /// keccak(slot) and value of the slots asked for; zero where there is none.
    pub slots: Vec<(B256, U256)>,
}

/// Why a multiproof proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultiProofError {
    /// A node is malformed.
    #[error(transparent)]
    Nodes(#[from] WitnessError),
    /// A node on the way to a key is not there.
    #[error("no node at depth {depth} on the way to {path}")]
    Incomplete {
        /// The key.
        path: Path,
        /// Nibbles of it down to where the node would sit.
        depth: usize,
    },
    /// Nodes are listed that are not on the way to any key, or twice.
    #[error("{surplus} nodes are not needed")]
    Surplus {
        /// How many.
        surplus: usize,
    },
}

impl PartialTrie {
    /// Proves what is at `keys` to whoever knows the root. Loads what is absent.
    pub fn prove_many<R: Resolve>(
        &mut self,
        keys: &Keys,
        resolver: &mut R,
    ) -> Result<MultiProof, UpdateError<R::Error>> {
        Ok(MultiProof {
            nodes: self.extract(keys, resolver)?.witness_nodes(),
        })
    }
}

impl MultiProof {
    /// What is at `keys` in the state with that root, in the order of `keys`. Every node listed
    /// must be needed.
    pub fn verify(&self, root: B256, keys: &Keys) -> Result<Vec<ProvedAccount>, MultiProofError> {
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
