//! Verifying proofs of entries against a root.

use super::{
    error::EntryProofError,
    layers::Layers,
    mpt::{Nodes, commitment_to, sorted},
    proof::EntryProof,
};
use crate::{commitment::Commitment, value_commitment::ValueCommitment, witness::Wanted};
use alloc::vec::Vec;
use alloy_primitives::B256;

/// A key, and what its leaf is to commit to; `None` deletes it, or leaves it absent.
pub type EntryWrite = (B256, Option<ValueCommitment>);

/// Result of verifying a proof of reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedUpdate {
    /// Commitment of each read key before the writes, in the caller's order, or `None` if it has no leaf.
    pub values: Vec<Option<ValueCommitment>>,
    /// The root after the writes.
    pub root: B256,
}

/// Verifies a proof of `keys` against the root of a trie. Returns the commitment of each key's leaf, in their order, or
/// `None` if it has none.
///
/// # Errors
///
/// Returns an error if the proof is of another commitment or root, does not show one of `keys`, or has anything
/// that none of them needs.
///
/// ```
/// use alloy_primitives::B256;
/// use cambium_keccak::Batch;
/// use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};
/// use cambium_trie::{
///     Blake3, Commitment, EntryProof, NoResolve, PartialTrie, ValueCommitment, commit, verify_entries,
/// };
///
/// let commitment = Commitment::Binary(&Blake3);
/// let put = |key: u8| AccountDiff {
///     path: B256::repeat_byte(key),
///     account: AccountUpdate::Entry(EntryValue::Inline(vec![key; 3].into())),
///     wipe: false,
///     slots: vec![],
/// };
/// let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
/// trie.apply(&(0..100).map(put).collect::<Vec<_>>(), &mut NoResolve).unwrap();
/// commit(&mut [&mut trie], &mut Batch::new());
///
/// let keys = [B256::repeat_byte(7), B256::repeat_byte(200)];
/// let bytes = trie.prove_entries(&keys, &mut NoResolve).unwrap().encode();
///
/// let proof = EntryProof::decode(&bytes).unwrap();
/// let root = trie.state_root().unwrap();
/// let values = verify_entries(root, commitment, &proof, &keys).unwrap();
/// assert_eq!(values, [Some(ValueCommitment::of(commitment, &[7, 7, 7])), None]);
/// ```
pub fn verify_entries(
    root: B256,
    commitment: Commitment,
    proof: &EntryProof,
    keys: &[B256],
) -> Result<Vec<Option<ValueCommitment>>, EntryProofError> {
    match (commitment, proof) {
        (Commitment::Mpt, EntryProof::Mpt(proof)) => {
            let sorted = sorted(keys.iter().copied());
            let mut nodes = Nodes::new(root, proof, Wanted::Keys(&sorted))?;
            let values = nodes.read(keys)?;
            nodes.check_keys(keys)?;
            Ok(values)
        }
        (Commitment::Layered, EntryProof::Layered(proof)) => {
            let sorted = sorted(keys.iter().copied());
            let mut layers = Layers::new(root, proof, Wanted::Keys(&sorted))?;
            Ok(layers.read(&sorted)?.of(keys))
        }
        (Commitment::Binary(hasher), EntryProof::Binary(proof)) => {
            Ok(hashes(proof.verify(root, hasher, keys)?))
        }
        _ => Err(of_another(commitment, proof)),
    }
}

/// Verifies a proof of all entries from `first` to `last`, both included, against the root of a trie. Returns their
/// keys in ascending order, and what their leaves commit to.
///
/// # Errors
///
/// Returns an error if the proof is of another commitment or root, leaves out a part of the range, or has anything
/// that the range does not need; or if `last` is before `first`.
pub fn verify_entry_range(
    root: B256,
    commitment: Commitment,
    proof: &EntryProof,
    first: B256,
    last: B256,
) -> Result<Vec<(B256, ValueCommitment)>, EntryProofError> {
    verify_entry_range_up_to(root, commitment, proof, first, last, 0)
}

/// Does the same as [`verify_entry_range`], where up to `entries` entries are expected. Equal entries have equal nodes,
/// which a proof lists once, so a small proof may be of many entries. A proof of over a million nodes, and of far more
/// than it has, is rejected unless that many entries are expected.
///
/// # Errors
///
/// As [`verify_entry_range`].
pub fn verify_entry_range_up_to(
    root: B256,
    commitment: Commitment,
    proof: &EntryProof,
    first: B256,
    last: B256,
    entries: usize,
) -> Result<Vec<(B256, ValueCommitment)>, EntryProofError> {
    if first > last {
        return Err(EntryProofError::Unsorted { key: last });
    }
    match (commitment, proof) {
        (Commitment::Mpt, EntryProof::Mpt(proof)) => {
            let entries = Nodes::new(root, proof, Wanted::Range(&first, &last, entries))?
                .read_range(first, last)?
                .into_iter();
            let value = |(key, value): (B256, Option<_>)| Some((key, commitment_to(&value?)));
            Ok(entries.filter_map(value).collect())
        }
        (Commitment::Layered, EntryProof::Layered(proof)) => {
            Layers::new(root, proof, Wanted::Range(&first, &last, entries))?.read_range(first, last)
        }
        (Commitment::Binary(hasher), EntryProof::Binary(proof)) => {
            let entries = proof.verify_range(root, hasher, first, last)?.into_iter();
            Ok(entries
                .map(|(key, hash)| (key, ValueCommitment::Hash(hash)))
                .collect())
        }
        _ => Err(of_another(commitment, proof)),
    }
}

/// Verifies a proof of reads and writes against the root of a trie, and computes the root after the writes
/// from it alone. `writes` are in strictly ascending order of their keys.
///
/// # Errors
///
/// Returns an error if the proof is of another commitment or root, does not show one of the keys, or has
/// anything that no read or write needs; or if `writes` are not sorted, or the trie cannot commit to one of their
/// values. Under [`Commitment::Layered`] it always does, since the root depends on where the commit is in its
/// interval: [`verify_layered_update`](crate::verify_layered_update) takes that besides.
pub fn verify_entry_update(
    root: B256,
    commitment: Commitment,
    proof: &EntryProof,
    reads: &[B256],
    writes: &[EntryWrite],
) -> Result<ProvedUpdate, EntryProofError> {
    if commitment == Commitment::Layered {
        return Err(EntryProofError::NeedsNumber);
    }
    check_writes(commitment, writes)?;
    match (commitment, proof) {
        (Commitment::Mpt, EntryProof::Mpt(proof)) => {
            let keys = reads.iter().chain(writes.iter().map(|(key, _)| key));
            let keys = sorted(keys.copied());
            let nodes = Nodes::new(root, proof, Wanted::Keys(&keys))?;
            let values = nodes.read(reads)?;
            let root = nodes.update(reads, writes)?;
            Ok(ProvedUpdate { values, root })
        }
        (Commitment::Binary(hasher), EntryProof::Binary(proof)) => {
            let hash = |value: &ValueCommitment| match value {
                ValueCommitment::Hash(hash) => Some(*hash),
                _ => None,
            };
            let writes = writes.iter();
            let writes = writes.map(|(key, value)| (*key, value.as_ref().and_then(hash)));
            let writes: Vec<_> = writes.collect();
            let (values, root) = proof.verify_update(root, hasher, reads, &writes)?;
            Ok(ProvedUpdate {
                values: hashes(values),
                root,
            })
        }
        _ => Err(of_another(commitment, proof)),
    }
}

/// Checks that writes are sorted, and that leaves can commit to their values.
pub(super) fn check_writes(
    commitment: Commitment,
    writes: &[EntryWrite],
) -> Result<(), EntryProofError> {
    if let Some(two) = writes.windows(2).find(|two| two[0].0 >= two[1].0) {
        return Err(EntryProofError::Unsorted { key: two[1].0 });
    }
    for (key, value) in writes {
        if value.as_ref().is_some_and(|value| !value.fits(commitment)) {
            return Err(EntryProofError::Value {
                key: *key,
                commitment: name_of(commitment),
            });
        }
    }
    Ok(())
}

fn hashes(values: Vec<Option<B256>>) -> Vec<Option<ValueCommitment>> {
    let values = values.into_iter();
    values
        .map(|value| value.map(ValueCommitment::Hash))
        .collect()
}

const fn name_of(commitment: Commitment) -> &'static str {
    match commitment {
        Commitment::Mpt => "mpt",
        Commitment::PartialMpt => "mpt-partial",
        Commitment::Layered => "layered",
        Commitment::Binary(_) => "binary",
    }
}

/// The error for a proof of another commitment.
pub(super) fn of_another(commitment: Commitment, proof: &EntryProof) -> EntryProofError {
    EntryProofError::Commitment {
        expected: name_of(commitment),
        got: proof.commitment_name(),
    }
}
