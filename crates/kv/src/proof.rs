//! Proofs of entries, of ranges of them, and of whole commits: verified against roots, without a
//! store.
//!
//! | what | shows | verified by |
//! |---|---|---|
//! | [`ProvedKeys`] | the values at keys, or that there are none | [`verify`] |
//! | [`ProvedEntries`] | all entries of a range | [`verify_range`] |
//! | [`CommitWitness`] | what a commit read, and the root after its writes | [`verify_commit`], under `layered` [`verify_layered_commit`] |

use crate::range::KeyRange;
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccountUpdate, Changes};
use cambium_state::{StateError, View};
use cambium_trie::{
    Commitment, EMPTY_ROOT, EntryProof, EntryProofError, EntryWrite, LayeredCommit, LeafRange,
    Missing, NoResolve, ProofTargets, ProvedLayeredUpdate, ProvedUpdate, TrieError, UpdateError,
    ValueCommitment, verify_entries, verify_entry_range_up_to, verify_entry_update,
    verify_layered_update,
};
use std::{
    num::{NonZeroU64, NonZeroUsize},
    ops::ControlFlow,
};

/// Values at keys, with a proof of them.
#[derive(Clone, Debug)]
pub struct ProvedKeys {
    /// Each key with its value; `None` if there is no entry.
    pub values: Vec<(B256, Option<Bytes>)>,
    /// Proves the values against the root.
    pub proof: EntryProof,
}

/// All entries of a range, with a proof of completeness.
#[derive(Clone, Debug)]
pub struct ProvedEntries {
    /// The proved range: the range that was asked for, or the part of it within the limit.
    pub range: KeyRange,
    /// The entries, in the order of their keys.
    pub entries: Vec<(B256, Bytes)>,
    /// The first key beyond, within what was asked for: `None` if there is none. It is a hint, and not
    /// proved: a reader that goes on there may miss entries before it, and one that goes on at
    /// [`KeyRange::after`] of `range` misses none.
    pub next: Option<B256>,
    /// Shows what the root commits to within the range.
    pub proof: EntryProof,
}

/// Reads and writes of a commit, and the nodes that computing its root from the root before it needs.
#[derive(Clone, Debug)]
pub struct CommitWitness {
    /// Keys that the commit's transactions read one by one, sorted. Ranges are not among them:
    /// [`ProvedEntries`] proves them.
    pub reads: Vec<B256>,
    /// Its writes, sorted by key: `None` for deletions.
    pub writes: Vec<EntryWrite>,
    /// Proves the reads, and the effect of the writes.
    pub proof: EntryProof,
    /// Under [`Commitment::Layered`], the root of the commit's snapshot, if that is another one than
    /// before the commit: nothing proves it. `None` otherwise.
    pub claimed_snapshot: Option<B256>,
}

/// Why a proof does not show what it claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The proof does not belong to the root, or not to the keys.
    #[error(transparent)]
    Proof(#[from] EntryProofError),
    /// The root after a commit under `layered` depends on its number.
    #[error(
        "the root after a commit under layered depends on its number: use verify_layered_commit"
    )]
    NeedsNumber,
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
    /// The key at which to go on is not beyond the range.
    #[error("the next key {next:#x} is not beyond the last one of the range, {last:#x}")]
    WrongNext {
        /// [`ProvedEntries::next`].
        next: B256,
        /// The last key of the range.
        last: B256,
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
/// [`VerifyError`] if the proof does not hold, if an entry is another one, missing or too much, or if the next key
/// is not beyond the range.
pub fn verify_range(
    root: B256,
    commitment: Commitment,
    proved: &ProvedEntries,
) -> Result<(), VerifyError> {
    let (first, last) = (proved.range.from(), proved.range.through());
    if let Some(next) = proved.next.filter(|next| *next <= last) {
        return Err(VerifyError::WrongNext { next, last });
    }
    let claimed = proved.entries.len();
    let found = verify_entry_range_up_to(root, commitment, &proved.proof, first, last, claimed)?;
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
/// [`VerifyError`] if the proof does not hold. [`VerifyError::NeedsNumber`] under [`Commitment::Layered`]:
/// [`verify_layered_commit`] verifies it.
pub fn verify_commit(
    root_before: B256,
    commitment: Commitment,
    witness: &CommitWitness,
) -> Result<ProvedUpdate, VerifyError> {
    let CommitWitness {
        reads,
        writes,
        proof,
        claimed_snapshot: _,
    } = witness;
    if commitment == Commitment::Layered {
        return Err(VerifyError::NeedsNumber);
    }
    Ok(verify_entry_update(
        root_before,
        commitment,
        proof,
        reads,
        writes,
    )?)
}

/// Verifies the witness of commit `number` under [`Commitment::Layered`] against the root before it. Both the number
/// and the store's merge interval are trusted: the position of a commit in its interval determines its root, and does
/// not follow from any root.
///
/// Where [`ProvedLayeredUpdate::claimed_snapshot`] is a root, the root after the commit rests on it. It is the root of
/// an earlier state, with all changes of an interval, and is **not** proved. A caller that needs a proof computes it
/// from these changes, or compares it with one that it trusts.
///
/// # Errors
///
/// [`VerifyError`] if the proof does not hold.
pub fn verify_layered_commit(
    root_before: B256,
    number: u64,
    merge_interval: NonZeroU64,
    witness: &CommitWitness,
) -> Result<ProvedLayeredUpdate, VerifyError> {
    let commit = LayeredCommit {
        number,
        merge_interval,
        claimed_snapshot: witness.claimed_snapshot,
    };
    let (reads, writes) = (&witness.reads, &witness.writes);
    Ok(verify_layered_update(
        root_before,
        commit,
        &witness.proof,
        reads,
        writes,
    )?)
}

/// Proves the values at keys of a view.
pub(crate) fn prove_keys(
    view: &View,
    is_layered: bool,
    keys: &[B256],
) -> Result<ProvedKeys, StateError> {
    let values = view.entries(keys)?;
    let proof = match is_layered {
        true => view.prove_layered_entries(keys)?,
        false => {
            let mut part = view.extract(&targets(keys))?;
            part.prove_entries(keys, &mut NoResolve)
                .map_err(update_error)?
        }
    };
    Ok(ProvedKeys {
        values: keys.iter().copied().zip(values).collect(),
        proof,
    })
}

/// Proves the entries of a range of a view, `limit` of them at most.
pub(crate) fn prove_range(
    view: &View,
    is_layered: bool,
    range: KeyRange,
    limit: NonZeroUsize,
) -> Result<ProvedEntries, StateError> {
    if is_layered {
        return prove_layered_range(view, range, limit);
    }
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

fn prove_layered_range(
    view: &View,
    range: KeyRange,
    limit: NonZeroUsize,
) -> Result<ProvedEntries, StateError> {
    let proved = view.prove_layered_entry_range(range.from(), range.through(), limit)?;
    let mut entries = Vec::new();
    view.each_entry(&proved.first, |key, value| {
        if key > proved.last {
            return ControlFlow::Break(());
        }
        entries.push((key, value));
        ControlFlow::Continue(())
    })?;
    Ok(ProvedEntries {
        range: KeyRange::new(proved.first, proved.last).unwrap_or(range),
        entries,
        next: proved.next,
        proof: proved.proof,
    })
}

/// Makes the witness of a commit on `view` under the `layered` commitment.
pub(crate) fn layered_witness_of(
    view: &View,
    merge_interval: NonZeroU64,
    reads: Vec<B256>,
    changes: &Changes,
) -> Result<CommitWitness, StateError> {
    let writes = writes_of(changes, Commitment::Layered);
    let keys = reads.iter().chain(writes.iter().map(|(key, _)| key));
    let proof = view.prove_layered_entries(&keys.copied().collect::<Vec<_>>())?;
    let commit = LayeredCommit {
        number: view.block().number + 1,
        merge_interval,
        claimed_snapshot: None,
    };
    let has_intermediate = match &proof {
        EntryProof::Layered(proof) => proof.roots.intermediate != EMPTY_ROOT,
        _ => false,
    };
    let claimed_snapshot = match commit.begins_interval() && has_intermediate {
        true => view.next_snapshot_root()?,
        false => None,
    };
    Ok(CommitWitness {
        reads,
        writes,
        proof,
        claimed_snapshot,
    })
}

/// Makes the witness of a commit from the proof of its reads and changes.
pub(crate) fn witness_of(
    proof: EntryProof,
    commitment: Commitment,
    reads: Vec<B256>,
    changes: &Changes,
) -> CommitWitness {
    CommitWitness {
        reads,
        writes: writes_of(changes, commitment),
        proof,
        claimed_snapshot: None,
    }
}

/// Writes in a verifier's form.
fn writes_of(changes: &Changes, commitment: Commitment) -> Vec<EntryWrite> {
    let write = |update: &AccountUpdate| match update {
        AccountUpdate::Entry(value) => Some(ValueCommitment::of_entry(commitment, value)),
        _ => None,
    };
    let writes = changes.accounts().iter();
    writes
        .map(|change| (change.path, write(&change.account)))
        .collect()
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
