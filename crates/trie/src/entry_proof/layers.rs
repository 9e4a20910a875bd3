//! Entries from the three tries of the `layered` commitment, looked up from the top down.
//!
//! ```text
//!   delta          all keys
//!   intermediate   those about which the delta says nothing
//!   snapshot       those about which the intermediate trie says nothing either
//! ```
//!
//! A key ends at a value, or at a tombstone, which proves its absence. A range is read whole in each
//! trie.

use super::{
    error::EntryProofError,
    mpt::{Nodes, commitment_to},
    proof::LayeredEntryProof,
};
use crate::{
    multiproof::MultiProofError,
    upper::{DELTA, INTERMEDIATE, LayeredRoots, SNAPSHOT},
    value_commitment::ValueCommitment,
    witness::Wanted,
};
use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use alloy_primitives::B256;
use cambium_primitives::EntryValue;

const NAMES: [&str; 3] = [DELTA, INTERMEDIATE, SNAPSHOT];

/// The tries of a proof's nodes: the delta, the intermediate trie and the snapshot.
pub(super) struct Layers<'a> {
    tries: [Nodes<'a>; 3],
    roots: LayeredRoots,
}

/// Values at keys, sorted by key: `None` for absent ones.
pub(super) struct Found(Vec<(B256, Option<EntryValue>)>);

impl Found {
    /// The value at one of the keys that were read.
    pub(super) fn value(&self, key: &B256) -> Option<&EntryValue> {
        let at = self.0.binary_search_by_key(key, |(key, _)| *key).ok()?;
        self.0[at].1.as_ref()
    }

    /// Returns the commitments to the values of `keys`, which were read, in their order.
    pub(super) fn of(&self, keys: &[B256]) -> Vec<Option<ValueCommitment>> {
        let values = keys.iter().map(|key| self.value(key).map(commitment_to));
        values.collect()
    }
}

/// Says in which trie an error is.
fn within(trie: &'static str) -> impl Fn(EntryProofError) -> EntryProofError {
    move |error| match error {
        EntryProofError::Mpt(source) => in_layer(trie, source),
        error => error,
    }
}

/// The error for nodes of one of the three tries.
pub(super) fn in_layer(trie: &'static str, source: MultiProofError) -> EntryProofError {
    let source = Box::new(source);
    EntryProofError::Layer { trie, source }
}

impl<'a> Layers<'a> {
    pub(super) fn new(
        root: B256,
        proof: &'a LayeredEntryProof,
        wanted: Wanted<'_>,
    ) -> Result<Self, EntryProofError> {
        let roots = proof.roots;
        let (expected, got) = (root, roots.root());
        if got != expected {
            return Err(EntryProofError::WrongRoot { expected, got });
        }
        let in_trie = |trie, nodes: Result<Nodes<'a>, MultiProofError>| {
            nodes.map_err(|source| in_layer(trie, source))
        };
        let delta = Nodes::of_upper(roots.delta, &proof.delta, wanted);
        let intermediate = Nodes::of_upper(roots.intermediate, &proof.intermediate, wanted);
        let snapshot = Nodes::new(roots.snapshot, &proof.snapshot, wanted);
        Ok(Self {
            tries: [
                in_trie(DELTA, delta)?,
                in_trie(INTERMEDIATE, intermediate)?,
                in_trie(SNAPSHOT, snapshot)?,
            ],
            roots,
        })
    }

    /// The roots of the three tries.
    pub(super) const fn roots(&self) -> LayeredRoots {
        self.roots
    }

    /// The trie of the delta.
    pub(super) fn into_delta(self) -> Nodes<'a> {
        let [delta, ..] = self.tries;
        delta
    }

    /// Returns the values at `keys`, sorted and unique. Refuses nodes that none of them needs.
    pub(super) fn read(&mut self, keys: &[B256]) -> Result<Found, EntryProofError> {
        let mut open = keys.to_vec();
        let mut found = Vec::with_capacity(open.len());
        for (name, nodes) in NAMES.into_iter().zip(&mut self.tries) {
            nodes.check_keys(&open).map_err(within(name))?;
            let mut rest = Vec::new();
            for key in open {
                match nodes
                    .find(&key)
                    .map_err(|error| within(name)(error.into()))?
                {
                    Some(value) => found.push((key, value)),
                    None => rest.push(key),
                }
            }
            open = rest;
        }
        found.extend(open.into_iter().map(|key| (key, None)));
        found.sort_unstable_by_key(|(key, _)| *key);
        Ok(Found(found))
    }

    /// Returns all entries from `first` to `last`. Refuses nodes that the range does not need.
    pub(super) fn read_range(
        &mut self,
        first: B256,
        last: B256,
    ) -> Result<Vec<(B256, ValueCommitment)>, EntryProofError> {
        let mut merged = BTreeMap::new();
        for (name, nodes) in NAMES.into_iter().zip(&mut self.tries) {
            let leaves = nodes.read_range(first, last).map_err(within(name))?;
            for (key, value) in leaves {
                // The uppermost trie that has a key counts.
                merged.entry(key).or_insert(value);
            }
        }
        let value = |(key, value): (B256, Option<_>)| Some((key, commitment_to(&value?)));
        Ok(merged.into_iter().filter_map(value).collect())
    }
}
