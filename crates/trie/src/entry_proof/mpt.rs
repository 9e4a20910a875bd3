//! Entries from the nodes of a Merkle Patricia trie: a state's, or an upper trie of `layered`.

use super::error::EntryProofError;
use crate::{
    arena::NodeId,
    commitment::Commitment,
    error::{Missing, UpdateError},
    extract::ProofTargets,
    hash::commit,
    multiproof::{MultiProof, MultiProofError},
    partial::PartialTrie,
    range::LeafRange,
    resolve::NoResolve,
    rlp::stored_nowhere,
    value_commitment::ValueCommitment,
    witness::Wanted,
};
use alloc::{vec, vec::Vec};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};

/// The trie of a proof's nodes.
pub(super) struct Nodes<'a> {
    proof: &'a MultiProof,
    trie: PartialTrie,
}

/// Proof targets of entries.
pub(super) fn targets(keys: impl IntoIterator<Item = B256>) -> ProofTargets {
    ProofTargets::new(keys.into_iter().map(|key| (key, vec![])).collect())
}

/// Keys in ascending order, each once.
pub(super) fn sorted(keys: impl IntoIterator<Item = B256>) -> Vec<B256> {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

impl<'a> Nodes<'a> {
    pub(super) fn new(
        root: B256,
        proof: &'a MultiProof,
        wanted: Wanted<'_>,
    ) -> Result<Self, MultiProofError> {
        let unfolded = PartialTrie::from_entry_witness_of(root, &proof.nodes, wanted)?;
        Self::of(proof, unfolded)
    }

    /// The nodes of an upper trie, whose leaves may be tombstones.
    pub(super) fn of_upper(
        root: B256,
        proof: &'a MultiProof,
        wanted: Wanted<'_>,
    ) -> Result<Self, MultiProofError> {
        let unfolded = PartialTrie::from_upper_entry_witness_of(root, &proof.nodes, wanted)?;
        Self::of(proof, unfolded)
    }

    fn of(
        proof: &'a MultiProof,
        (trie, surplus): (PartialTrie, usize),
    ) -> Result<Self, MultiProofError> {
        match surplus {
            0 => Ok(Self { proof, trie }),
            surplus => Err(MultiProofError::Surplus { surplus }),
        }
    }

    /// The trie, of which everything that the proof lacks is blinded.
    pub(super) fn into_trie(self) -> PartialTrie {
        self.trie
    }

    /// Returns the leaf of a key: `None` if there is none, `Some(None)` for a tombstone.
    pub(super) fn find(&self, key: &B256) -> Result<Option<Option<EntryValue>>, MultiProofError> {
        match self.trie.walk(self.trie.root, &key.0, 0) {
            (NodeId::Stub(_), depth) => {
                let path = Path::account(key);
                Err(MultiProofError::Incomplete { path, depth })
            }
            (NodeId::Entry(index), _) => {
                let node = &self.trie.arena.entries[index];
                Ok(Some((!node.is_tombstone).then(|| node.value.clone())))
            }
            _ => Ok(None),
        }
    }

    pub(super) fn read(
        &self,
        keys: &[B256],
    ) -> Result<Vec<Option<ValueCommitment>>, MultiProofError> {
        let read = |key| Ok(self.find(key)?.flatten().as_ref().map(commitment_to));
        keys.iter().map(read).collect()
    }

    /// Returns an error if the proof has nodes that are not in `needed`.
    pub(super) fn check_needed(&self, needed: &PartialTrie) -> Result<(), MultiProofError> {
        match self.proof.nodes.len() - needed.witness_nodes().len() {
            0 => Ok(()),
            surplus => Err(MultiProofError::Surplus { surplus }),
        }
    }

    /// Returns an error if the proof has nodes that reading `keys` does not need.
    pub(super) fn check_keys(&mut self, keys: &[B256]) -> Result<(), EntryProofError> {
        let keys = targets(keys.iter().copied());
        let needed = self.trie.extract(&keys, &mut NoResolve).map_err(refused)?;
        Ok(self.check_needed(&needed)?)
    }

    /// Returns the leaves of a range, `None` for tombstones. The proof leaves out none of them, and has
    /// nothing that the range does not need.
    pub(super) fn read_range(
        &mut self,
        first: B256,
        last: B256,
    ) -> Result<Vec<(B256, Option<EntryValue>)>, EntryProofError> {
        let range = LeafRange::accounts(first, last);
        let leaves = self.trie.leaves(&range).map_err(incomplete)?;
        let mut keys: Vec<_> = leaves.into_iter().map(|(key, _)| key).collect();
        let leaf = |key: &B256| Ok(self.find(key)?.map(|value| (*key, value)));
        let found = keys.iter().filter_map(|key| leaf(key).transpose());
        let found = found.collect::<Result<Vec<_>, MultiProofError>>()?;
        keys.extend([first, last]);
        self.check_keys(&keys)?;
        Ok(found)
    }

    /// Returns the root after writes. Refuses nodes that reading `keys` and the writes do not need.
    pub(super) fn update(
        mut self,
        keys: &[B256],
        writes: &[(B256, Option<ValueCommitment>)],
    ) -> Result<B256, EntryProofError> {
        let changes: Vec<_> = writes.iter().map(change).collect();
        let keys = targets(keys.iter().copied());
        let needed = self
            .trie
            .extract_for_changes(&keys, &changes, &mut NoResolve)
            .map_err(refused)?;
        self.check_needed(&needed)?;
        self.trie.apply(&changes, &mut NoResolve).map_err(refused)?;
        commit(&mut [&mut self.trie], &mut Batch::new());
        Ok(self.trie.state_root().expect("the trie is hashed"))
    }
}

pub(super) fn commitment_to(value: &EntryValue) -> ValueCommitment {
    ValueCommitment::of_entry(Commitment::Mpt, value)
}

/// The change of an entry, whose value is known by what its leaf commits to.
pub(super) fn change((key, value): &(B256, Option<ValueCommitment>)) -> AccountDiff {
    let account = match value {
        None => AccountUpdate::Delete,
        Some(ValueCommitment::Value(bytes)) => {
            AccountUpdate::Entry(EntryValue::Inline(bytes.clone()))
        }
        Some(ValueCommitment::Hashed { len, hash }) => {
            AccountUpdate::Entry(stored_nowhere(*len, *hash))
        }
        Some(ValueCommitment::Hash(_)) => unreachable!("writes are checked before"),
    };
    AccountDiff {
        path: *key,
        wipe: account == AccountUpdate::Delete,
        account,
        slots: vec![],
    }
}

fn incomplete(missing: Missing) -> MultiProofError {
    MultiProofError::Incomplete {
        path: missing.path,
        depth: missing.path.len(),
    }
}

fn refused(error: UpdateError<Missing>) -> EntryProofError {
    match error {
        UpdateError::Resolve(missing) => EntryProofError::Mpt(incomplete(missing)),
        UpdateError::Trie(error) => EntryProofError::Trie(error),
    }
}
