//! Proofs of entries, of ranges of them, and of whole commits: verified against roots, without a
//! store.
//!
//! | what | shows | verified by |
//! |---|---|---|
//! | [`ProvedKeys`] | the values at keys, or that there are none | [`verify`] |
//! | [`ProvedEntries`] | all entries of a range | [`verify_range`] |
//! | [`CommitWitness`] | what a commit read, and the root after its writes | [`verify_commit`] |

use crate::range::KeyRange;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccountUpdate, Changes};
use cambium_state::{StateError, View};
use cambium_trie::{
    Commitment, EntryProof, EntryProofError, EntryWrite, LeafRange, Missing, NoResolve,
    ProofTargets, ProvedUpdate, TrieError, UpdateError, ValueCommitment, verify_entries,
    verify_entry_range, verify_entry_update,
};
use std::num::NonZeroUsize;

/// Values at keys, with a proof of them.
#[derive(Clone, Debug)]
pub struct ProvedKeys {
    /// Each key with its value; `None` if there is no entry.
    pub values: Vec<(B256, Option<Bytes>)>,
    /// Shows what the root commits to at these keys.
    pub proof: EntryProof,
}

/// All entries of a range, with a proof that there are no others.
#[derive(Clone, Debug)]
pub struct ProvedEntries {
    /// What is proved: the range that was asked for, or as much of it as the limit allows.
    pub range: KeyRange,
    /// The entries, in the order of their keys.
    pub entries: Vec<(B256, Bytes)>,
    /// The first key beyond, within what was asked for: `None` if there is none. It is a hint, and not
    /// proved.
    pub next: Option<B256>,
    /// Shows what the root commits to within the range.
    pub proof: EntryProof,
}

/// What a commit read, what it wrote, and what is needed to compute the root after it from the root
/// before it.
#[derive(Clone, Debug)]
pub struct CommitWitness {
    /// Keys that the commit's transactions read one by one, sorted. Ranges are not among them:
    /// [`ProvedEntries`] proves them.
    pub reads: Vec<B256>,
    /// What it wrote, sorted by key: `None` for deletions.
    pub writes: Vec<EntryWrite>,
    /// Shows what is read, and what the writes change.
    pub proof: EntryProof,
}

/// Why a proof does not show what it claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The proof does not belong to the root, or not to the keys.
    #[error(transparent)]
    Proof(#[from] EntryProofError),
    /// The root commits to another value than the one that is claimed.
    #[error("the claim about the key {0:#x} is not what the root commits to")]
    OtherValue(B256),
    /// The root commits to another number of entries in the range than is claimed.
    #[error("the range has {proved} entries, and {claimed} are claimed")]
    OtherCount {
        /// Number of entries in the range.
        proved: usize,
        /// Number of entries that are claimed.
        claimed: usize,
    },
}

/// Verifies values at keys against a root.
///
/// # Errors
///
/// [`VerifyError`] if the proof does not hold, or one of the values is another one.
pub fn verify(root: B256, commitment: Commitment, proved: &ProvedKeys) -> Result<(), VerifyError> {
    let keys: Vec<_> = proved.values.iter().map(|(key, _)| *key).collect();
    let found = verify_entries(root, commitment, &proved.proof, &keys)?;
    for ((key, value), found) in proved.values.iter().zip(found) {
        let claimed = value.as_ref();
        if claimed.map(|value| ValueCommitment::of(commitment, value)) != found {
            return Err(VerifyError::OtherValue(*key));
        }
    }
    Ok(())
}

/// Verifies all entries of a range against a root.
///
/// # Errors
///
/// [`VerifyError`] if the proof does not hold, or if an entry is another one, missing or too much.
pub fn verify_range(
    root: B256,
    commitment: Commitment,
    proved: &ProvedEntries,
) -> Result<(), VerifyError> {
    let (first, last) = (proved.range.from(), proved.range.through());
    let found = verify_entry_range(root, commitment, &proved.proof, first, last)?;
    if found.len() != proved.entries.len() {
        let (proved, claimed) = (found.len(), proved.entries.len());
        return Err(VerifyError::OtherCount { proved, claimed });
    }
    for ((key, value), (found, is)) in proved.entries.iter().zip(found) {
        if *key != found || !is.is_of(commitment, value) {
            return Err(VerifyError::OtherValue(*key));
        }
    }
    Ok(())
}

/// Verifies a commit's witness against the root before it. Returns what was read, and the root after
/// the commit.
///
/// # Errors
///
/// [`VerifyError`] if the proof does not hold.
pub fn verify_commit(
    root_before: B256,
    commitment: Commitment,
    witness: &CommitWitness,
) -> Result<ProvedUpdate, VerifyError> {
    let CommitWitness {
        reads,
        writes,
        proof,
    } = witness;
    Ok(verify_entry_update(
        root_before,
        commitment,
        proof,
        reads,
        writes,
    )?)
}

/// Proves the values at keys of a view.
pub(crate) fn prove_keys(view: &View, keys: &[B256]) -> Result<ProvedKeys, StateError> {
    let values = view.entries(keys)?;
    let mut part = view.extract(&targets(keys))?;
    Ok(ProvedKeys {
        values: keys.iter().copied().zip(values).collect(),
        proof: part
            .prove_entries(keys, &mut NoResolve)
            .map_err(update_error)?,
    })
}

/// Proves the entries of a range of a view, `limit` of them at most.
pub(crate) fn prove_range(
    view: &View,
    range: KeyRange,
    limit: NonZeroUsize,
) -> Result<ProvedEntries, StateError> {
    let asked = LeafRange::accounts(range.from(), range.through());
    let mut part = view.extract_range(&asked, limit)?;
    let (first, last) = (part.range.first, part.range.last);
    let proved = part
        .trie
        .prove_entry_range(first, last, limit, &mut NoResolve)
        .map_err(update_error)?;
    let leaves = part.trie.leaves(&part.range);
    let leaves = leaves.map_err(|missing| no_node(&missing))?;
    let keys: Vec<_> = leaves.into_iter().map(|(key, _)| key).collect();
    let values = view.entries(&keys)?;
    Ok(ProvedEntries {
        range: KeyRange::new(first, last).unwrap_or(range),
        entries: keys
            .into_iter()
            .zip(values)
            .filter_map(|(key, value)| Some((key, value?)))
            .collect(),
        next: part.next,
        proof: proved.proof,
    })
}

/// Makes the witness of a commit from the proof of its reads and changes.
pub(crate) fn witness_of(
    proof: EntryProof,
    commitment: Commitment,
    reads: Vec<B256>,
    changes: &Changes,
) -> CommitWitness {
    let write = |update: &AccountUpdate| match update {
        AccountUpdate::Entry(value) => Some(ValueCommitment::of_entry(commitment, value)),
        _ => None,
    };
    let writes = changes.accounts().iter();
    CommitWitness {
        reads,
        writes: writes
            .map(|change| (change.path, write(&change.account)))
            .collect(),
        proof,
    }
}

/// The proof targets at keys.
fn targets(keys: &[B256]) -> ProofTargets {
    ProofTargets::new(keys.iter().map(|key| (*key, Vec::new())).collect())
}

/// An extracted part has all that its proof needs: anything else is an inconsistent trie.
fn update_error(error: UpdateError<Missing>) -> StateError {
    match error {
        UpdateError::Resolve(missing) => no_node(&missing),
        UpdateError::Trie(error) => error.into(),
    }
}

fn no_node(missing: &Missing) -> StateError {
    TrieError::NoNode { path: missing.path }.into()
}
