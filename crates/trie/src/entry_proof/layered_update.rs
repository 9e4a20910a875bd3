//! The root after a commit under the `layered` commitment, from the root before it.
//!
//! A root does not show where in its interval a commit is, so the verifier must be given its number.
//!
//! | commit n, of root p before it | delta | intermediate | snapshot |
//! |---|---|---|---|
//! | within an interval | delta(p) with the net changes | intermediate(p) | snapshot(p) |
//! | first of its interval, intermediate(p) empty | the net changes | delta(p) | snapshot(p) |
//! | first of its interval otherwise | the net changes | delta(p) | *claimed* |

use super::{
    error::EntryProofError,
    layers::{Layers, in_layer},
    mpt::{change, sorted},
    proof::EntryProof,
    verify::{EntryWrite, check_writes, of_another},
};
use crate::{
    commitment::Commitment,
    error::TrieError,
    hash::Alone,
    multiproof::MultiProofError,
    node_ref::EMPTY_ROOT,
    upper::{DELTA, LayeredRoots, MergeError, UpperKind, UpperTrie, net_changes},
    value_commitment::ValueCommitment,
    witness::Wanted,
};
use alloc::{vec, vec::Vec};
use alloy_primitives::B256;
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, Path};
use core::num::NonZeroU64;

/// Position of a commit in its interval, and its claimed snapshot: its root depends on them under `layered`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayeredCommit {
    /// Number of the commit, trusted. The database begins with commit 0.
    pub number: u64,
    /// Number of commits of an interval, trusted: a parameter of the database.
    pub merge_interval: NonZeroU64,
    /// Root of the state that is the commit's snapshot, if it is another one than that of the commit
    /// before. It is claimed, and not proved.
    pub claimed_snapshot: Option<B256>,
}

impl LayeredCommit {
    /// Returns whether the commit begins an interval after the first one.
    pub const fn begins_interval(&self) -> bool {
        self.number > 1 && (self.number - 1).is_multiple_of(self.merge_interval.get())
    }
}

/// Result of verifying a proof of reads and writes under the `layered` commitment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProvedLayeredUpdate {
    /// Commitment of each read key before the writes, in the caller's order, or `None` if it has no leaf.
    pub values: Vec<Option<ValueCommitment>>,
    /// The root after the writes, if [`Self::claimed_snapshot`] is the root of the snapshot.
    pub root: B256,
    /// The roots of the three tries, of which that root is made.
    pub roots: LayeredRoots,
    /// The root of the snapshot, if it is claimed and not proved: the proof does not show that it is the
    /// state before with all changes of the intermediate trie.
    pub claimed_snapshot: Option<B256>,
}

/// Verifies a proof of the reads and writes of a commit under the `layered` commitment, and computes the root
/// after it. `writes` are in strictly ascending order of their keys. Values that are written over, and keys
/// that are deleted, count as read: a write that changes nothing leaves the root as it is.
///
/// # Errors
///
/// Returns an error if the proof is of another commitment or root, does not show one of the keys, or has
/// anything that no read or write needs; if `writes` are not sorted, or have a value that no leaf commits to;
/// or if the root of the snapshot is claimed where it follows from the proof, or is not where it does not.
pub fn verify_layered_update(
    root: B256,
    commit: LayeredCommit,
    proof: &EntryProof,
    reads: &[B256],
    writes: &[EntryWrite],
) -> Result<ProvedLayeredUpdate, EntryProofError> {
    let number = commit.number;
    check_writes(Commitment::Layered, writes)?;
    let EntryProof::Layered(proof) = proof else {
        return Err(of_another(Commitment::Layered, proof));
    };
    if number == 0 {
        return Err(EntryProofError::NoParent);
    }
    let keys = reads.iter().chain(writes.iter().map(|(key, _)| key));
    let keys = sorted(keys.copied());
    let mut layers = Layers::new(root, proof, Wanted::Keys(&keys))?;
    let found = layers.read(&keys)?;
    let before = writes.iter().map(|(key, _)| {
        let value = found.value(key);
        AccountDiff {
            path: *key,
            wipe: value.is_none(),
            account: value.map_or(AccountUpdate::Delete, |value| {
                AccountUpdate::Entry(value.clone())
            }),
            slots: vec![],
        }
    });
    let before = Changes::new(before.collect());
    let changes = Changes::new(writes.iter().map(change).collect());
    let net = net_changes(&changes, &before).ok_or(TrieError::NoAccount { path: Path::EMPTY })?;
    let old = layers.roots();
    let (mut delta, roots) = match commit.begins_interval() {
        false => {
            let delta = layers.into_delta().into_trie();
            (UpperTrie::from_trie(delta, UpperKind::Entries), old)
        }
        true => (
            UpperTrie::of_entries(),
            LayeredRoots {
                intermediate: old.delta,
                ..old
            },
        ),
    };
    let is_claimed = commit.begins_interval() && old.intermediate != EMPTY_ROOT;
    let snapshot = match (is_claimed, commit.claimed_snapshot) {
        (true, claimed) => claimed.ok_or(EntryProofError::NoClaim { number })?,
        (false, None) => old.snapshot,
        (false, Some(_)) => return Err(EntryProofError::SurplusClaim { number }),
    };
    delta.merge(&net).map_err(|error| match error {
        MergeError::Hidden { path, depth } => {
            in_layer(DELTA, MultiProofError::Incomplete { path, depth })
        }
        MergeError::Trie(error) => EntryProofError::Trie(error),
    })?;
    let roots = LayeredRoots {
        delta: delta.hash(&Alone),
        snapshot,
        ..roots
    };
    Ok(ProvedLayeredUpdate {
        values: found.of(reads),
        root: roots.root(),
        roots,
        claimed_snapshot: commit.claimed_snapshot,
    })
}
