//! Comparisons of a key-value database with the model: entries, their order, proofs and witnesses.

use super::{
    driver::{EngineDriver, Failed},
    faults::assert_names_the_way_back,
};
use crate::{Model, random};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccountUpdate, Changes, EntryValue, Path};
use cambium_state::{Session, View};
use cambium_trie::{
    Commitment, EMPTY_ROOT, EntryProof, EntryWrite, LayeredCommit, LeafRange, LeafValue, Lookup,
    NoResolve, ProofTargets, ValueCommitment, verify_entries, verify_entry_range,
    verify_entry_update, verify_layered_update,
};
use std::{num::NonZeroUsize, ops::ControlFlow};

impl EngineDriver {
    fn any_key(&mut self) -> B256 {
        random::entry_key(self.random.below(self.params.accounts * 5 / 4))
    }

    /// `count` entries, alone or in a batch, and those that follow some key; now and then all.
    pub(super) fn compare_entries(
        &mut self,
        view: &View,
        model: &Model,
        count: u64,
        at: &str,
    ) -> Result<(), Failed> {
        let keys: Vec<_> = (0..count).map(|_| self.any_key()).collect();
        let expected = |key: &B256| model.entries().get(key).cloned();
        match self.random.percent(50) {
            true => {
                let got = self.outcome(view.entries(&keys), at)?;
                assert!(
                    got.into_iter().eq(keys.iter().map(expected)),
                    "{at}: a batch"
                );
            }
            false => {
                for key in &keys {
                    let got = self.outcome(view.entry(key), at)?;
                    assert_eq!(got, expected(key), "{at}: entry {key}");
                }
            }
        }
        let (from, limit) = match self.random.percent(10) {
            true => (B256::ZERO, usize::MAX),
            false => (self.any_key(), 30),
        };
        let mut found = Vec::new();
        let visited = view.each_entry(&from, |key, value| {
            found.push((key, value));
            match found.len() < limit {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        self.outcome(visited, at)?;
        let expected = model.entries().range(from..).take(limit);
        let expected: Vec<_> = expected.map(|(key, value)| (*key, value.clone())).collect();
        assert_eq!(found, expected, "{at}: entries from {from} on");
        Ok(())
    }

    /// Checks that entries are correct, or are reported as damaged.
    pub(super) fn compare_readable_entries(&mut self, view: &View, model: &Model, at: &str) {
        for _ in 0..60 {
            let key = self.any_key();
            match view.entry(&key) {
                Ok(got) => assert_eq!(got.as_ref(), model.entries().get(&key), "{at}: {key}"),
                Err(error) => assert_names_the_way_back(&error, at),
            }
        }
    }

    /// An entry and the range from it on in extracts, and a proof of the entry.
    pub(super) fn prove_entries(
        &mut self,
        view: &View,
        commitment: Commitment,
        key: B256,
        at: &str,
    ) -> Result<(), Failed> {
        self.count("prove entries");
        let known = &self.known[&view.block().hash];
        let (model, root) = (known.model.clone(), known.root);
        let there = model.entries().get(&key);
        let targets = ProofTargets::new(vec![(key, vec![])]);
        let mut part = self.outcome(view.extract(&targets), at)?;
        assert_eq!(part.state_root(), Some(root), "{at}: root of an extract");
        let found = match part.lookup(&Path::account(&key)) {
            Lookup::Entry(EntryValue::Inline(value)) => Some(value),
            Lookup::Absent => None,
            other => panic!("{at}: {other:?}"),
        };
        assert_eq!(found.as_ref(), there, "{at}: entry in an extract");
        let proof = part.prove_entries(&[key], &mut NoResolve);
        let proof = proof.unwrap_or_else(|error| panic!("{at}: {error}"));
        let shown = verify_entries(root, commitment, &proof, &[key]);
        let expected = vec![there.map(|value| ValueCommitment::of(commitment, value))];
        assert_eq!(shown, Ok(expected), "{at}: entry in a proof");
        let range = LeafRange::accounts(key, B256::repeat_byte(0xff));
        let limit = NonZeroUsize::new(7).expect("not zero");
        let extracted = self.outcome(view.extract_range(&range, limit), at)?;
        let leaves = extracted.trie.leaves(&extracted.range);
        let leaves = leaves.unwrap_or_else(|missing| panic!("{at}: {missing}"));
        let leaves = leaves.into_iter().map(|(key, leaf)| match leaf {
            LeafValue::Entry(EntryValue::Inline(value)) => (key, value),
            other => panic!("{at}: {other:?}"),
        });
        let expected = model.entries().range(key..).take(7);
        let expected = expected.map(|(key, value)| (*key, value.clone()));
        assert!(leaves.eq(expected), "{at}: a range from {key} on");
        Ok(())
    }

    /// An entry, and the range from it on, in proofs of three tries.
    pub(super) fn prove_layered_entries(
        &mut self,
        view: &View,
        key: B256,
        at: &str,
    ) -> Result<(), Failed> {
        self.count("prove layered entries");
        let hash = view.block().hash;
        let known = &self.known[&hash];
        let (model, root) = (known.model.clone(), known.root);
        let committed = |value: &Bytes| ValueCommitment::of(Commitment::Layered, value);
        let keys = [key, self.any_key(), self.any_key()];
        let proof = self.outcome_at(hash, view.prove_layered_entries(&keys), at)?;
        let shown = verify_entries(root, Commitment::Layered, &proof, &keys);
        let expected = keys.map(|key| model.entries().get(&key).map(committed));
        assert_eq!(shown, Ok(expected.to_vec()), "{at}: entries in a proof");
        let limit = NonZeroUsize::new(7).expect("not zero");
        let proved = view.prove_layered_entry_range(key, B256::repeat_byte(0xff), limit);
        let proved = self.outcome_at(hash, proved, at)?;
        let (first, last) = (proved.first, proved.last);
        let shown = verify_entry_range(root, Commitment::Layered, &proved.proof, first, last);
        let mut expected = model.entries().range(key..);
        let first: Vec<_> = expected.by_ref().take(7).collect();
        let first = first
            .into_iter()
            .map(|(key, value)| (*key, committed(value)));
        assert_eq!(shown, Ok(first.collect()), "{at}: a range from {key} on");
        let next = expected.next().map(|(key, _)| *key);
        assert_eq!(proved.next, next, "{at}: behind a range from {key} on");
        Ok(())
    }

    /// A proof of a block's reads and writes determines the root after it.
    pub(super) fn layered_entry_witness(
        &mut self,
        view: &View,
        interval: u64,
        changes: &Changes,
        root: B256,
        at: &str,
    ) -> Result<(), Failed> {
        self.count("layered witness");
        let reads: Vec<_> = (0..20).map(|read| self.next_hash * 31 + read * 7).collect();
        let reads = reads.into_iter();
        let reads = reads.map(|index| random::entry_key(index % (self.params.accounts * 5 / 4)));
        let reads: Vec<_> = reads.collect();
        let committed = |value: &Bytes| ValueCommitment::of(Commitment::Layered, value);
        let writes = entry_writes(changes, committed);
        let keys = writes.iter().map(|(key, _)| key);
        let keys: Vec<_> = reads.iter().chain(keys).copied().collect();
        let hash = view.block().hash;
        let proof = self.outcome_at(hash, view.prove_layered_entries(&keys), at)?;
        let EntryProof::Layered(layers) = &proof else {
            panic!("{at}: a proof of another commitment");
        };
        let mut block = LayeredCommit {
            number: view.block().number + 1,
            merge_interval: interval.try_into().expect("an interval of blocks"),
            claimed_snapshot: None,
        };
        if block.begins_interval() && layers.roots.intermediate != EMPTY_ROOT {
            let claimed = self.outcome_at(hash, view.next_snapshot_root(), at)?;
            block.claimed_snapshot = claimed;
        }
        let before = view.state_root();
        let shown = verify_layered_update(before, block, &proof, &reads, &writes);
        let shown = shown.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(shown.root, root, "{at}: root by a witness");
        let model = &self.known[&hash].model;
        let expected = reads
            .iter()
            .map(|key| model.entries().get(key).map(committed));
        assert!(shown.values.into_iter().eq(expected), "{at}: a witness");
        Ok(())
    }

    /// From a witness alone follows the root after the changes.
    pub(super) fn entry_witness(
        &mut self,
        session: &Session,
        commitment: Commitment,
        changes: &Changes,
        root: B256,
        at: &str,
    ) -> Result<(), Failed> {
        self.count("witness");
        let reads = (0..20).map(|read| self.next_hash * 31 + read * 7);
        let reads = reads.map(|index| random::entry_key(index % (self.params.accounts * 5 / 4)));
        let mut reads: Vec<_> = reads.collect();
        reads.sort_unstable();
        reads.dedup();
        let targets = ProofTargets::new(reads.iter().map(|key| (*key, vec![])).collect());
        let part = session.extract_for_changes(&targets, changes);
        let mut part = self.outcome(part, at)?;
        let proof = part.prove_entry_update(&reads, changes.accounts(), &mut NoResolve);
        let proof = proof.unwrap_or_else(|error| panic!("{at}: {error}"));
        let committed = |value: &Bytes| ValueCommitment::of(commitment, value);
        let writes = entry_writes(changes, committed);
        let before = session.view().state_root();
        let shown = verify_entry_update(before, commitment, &proof, &reads, &writes);
        let shown = shown.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(shown.root, root, "{at}: root by a witness");
        let model = &self.known[&session.view().block().hash].model;
        let expected = reads
            .iter()
            .map(|key| model.entries().get(key).map(committed));
        assert!(shown.values.into_iter().eq(expected), "{at}: a witness");
        Ok(())
    }
}

/// Writes in a verifier's form.
fn entry_writes(
    changes: &Changes,
    committed: impl Fn(&Bytes) -> ValueCommitment,
) -> Vec<EntryWrite> {
    let writes = changes.accounts().iter().map(|change| {
        let value = match &change.account {
            AccountUpdate::Entry(EntryValue::Inline(value)) => Some(committed(value)),
            _ => None,
        };
        (change.path, value)
    });
    writes.collect()
}
