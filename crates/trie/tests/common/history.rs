//! A key-value database under `layered` as three maps, with the tries and proofs of each of its commits.

use super::{
    Random,
    entries::{
        Entries, expected_root, mpt_leaf, mpt_root, random_changes, random_value, trie_of_entries,
        value_of,
    },
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue};
use cambium_trie::{
    Commitment, EMPTY_ROOT, EntryProof, EntryProofError, EntryWrite, LayeredCommit,
    LayeredEntryProof, LayeredEntryProver, LayeredRoots, LeafRange, NoResolve, PartialTrie,
    UpperTrie, ValueCommitment, net_changes, verify_entries,
};
use std::{collections::BTreeMap, num::NonZeroU64};

/// Net changes of several commits; `None` for deleted entries.
pub type Upper = BTreeMap<B256, Option<Vec<u8>>>;

pub fn upper_root(upper: &Upper) -> B256 {
    let leaf = |value: &Option<Vec<u8>>| value.as_deref().map_or(vec![34], mpt_leaf);
    match upper.is_empty() {
        true => EMPTY_ROOT,
        false => mpt_root(upper.iter().map(|(key, value)| (key, leaf(value)))),
    }
}

pub fn state_root(entries: &Entries) -> B256 {
    match entries.is_empty() {
        true => EMPTY_ROOT,
        false => expected_root(Commitment::Layered, entries),
    }
}

pub fn merge(upper: &mut Upper, before: &Entries, after: &Entries) {
    for key in before.keys().chain(after.keys()) {
        if before.get(key) != after.get(key) {
            upper.insert(*key, after.get(key).cloned());
        }
    }
}

/// Changes that take `changes` back.
pub fn reverts_of(changes: &Changes, before: &Entries) -> Changes {
    let reverts = changes.accounts().iter().map(|change| {
        let value = before.get(&change.path);
        AccountDiff {
            path: change.path,
            wipe: value.is_none(),
            account: value.map_or(AccountUpdate::Delete, |value| {
                AccountUpdate::Entry(value_of(Commitment::Layered, value))
            }),
            slots: vec![],
        }
    });
    Changes::new(reverts.collect())
}

/// Commits of a database, from its first entries on.
pub struct History {
    pub keys: Vec<B256>,
    pub interval: usize,
    /// The entries after each commit.
    pub states: Vec<Entries>,
    /// Changes of commit n + 1.
    pub changes: Vec<Changes>,
}

impl History {
    pub fn new(random: &mut Random) -> Self {
        let count = 1 + random.below(12);
        let mut keys = match random.one_in(2) {
            true => random.close_keys(count),
            false => (0..count).map(|_| random.b256()).collect(),
        };
        keys.sort_unstable();
        let first = keys.iter().filter(|_| random.one_in(2)).copied();
        let first = first.collect::<Vec<_>>().into_iter();
        let first = first.map(|key| (key, random_value(random))).collect();
        Self {
            keys,
            interval: 1 + random.below(4),
            states: vec![first],
            changes: vec![],
        }
    }

    pub fn with_commits(random: &mut Random) -> Self {
        let mut history = Self::new(random);
        for _ in 0..random.below(4 * history.interval) {
            history.add(random);
        }
        history
    }

    pub fn newest(&self) -> usize {
        self.changes.len()
    }

    pub fn add(&mut self, random: &mut Random) {
        let before = self.states.last().unwrap();
        let mut after = before.clone();
        let changes = match self.states.len().checked_sub(2) {
            // A value comes back.
            Some(two_before) if random.one_in(4) => {
                after = self.states[two_before].clone();
                reverts_of(self.changes.last().unwrap(), &after)
            }
            _ => random_changes(random, Commitment::Layered, &self.keys, &mut after),
        };
        self.states.push(after);
        self.changes.push(changes);
    }

    /// The net changes of commit `n`.
    pub fn net(&self, n: usize) -> Vec<AccountDiff> {
        let changes = &self.changes[n - 1];
        net_changes(changes, &reverts_of(changes, &self.states[n - 1])).unwrap()
    }

    /// The numbers of the commits after which the delta and the intermediate trie of commit `n` begin.
    pub fn starts(&self, n: usize) -> (usize, usize) {
        let q = n.saturating_sub(1) / self.interval;
        (q * self.interval, q.saturating_sub(1) * self.interval)
    }

    pub fn upper(&self, from: usize, to: usize) -> Upper {
        let mut upper = Upper::new();
        for n in from + 1..=to {
            merge(&mut upper, &self.states[n - 1], &self.states[n]);
        }
        upper
    }

    pub fn roots(&self, n: usize) -> LayeredRoots {
        let (start, below) = self.starts(n);
        LayeredRoots {
            delta: upper_root(&self.upper(start, n)),
            intermediate: upper_root(&self.upper(below, start)),
            snapshot: state_root(&self.states[below]),
        }
    }

    pub fn upper_trie(&self, from: usize, to: usize) -> UpperTrie {
        let mut trie = UpperTrie::of_entries();
        for n in from + 1..=to {
            trie.apply(&self.net(n)).unwrap();
        }
        trie
    }

    pub fn tries(&self, n: usize) -> (UpperTrie, UpperTrie) {
        let (start, below) = self.starts(n);
        (self.upper_trie(start, n), self.upper_trie(below, start))
    }

    pub fn prove(&self, n: usize, keys: &[B256]) -> EntryProof {
        let (mut delta, mut intermediate) = self.tries(n);
        let prover = LayeredEntryProver::new(&mut delta, &mut intermediate, keys);
        let mut snapshot = self.snapshot(n);
        let part = snapshot.extract(&prover.snapshot_targets(), &mut NoResolve);
        prover.finish(&part.unwrap())
    }

    pub fn prove_range(&self, n: usize, first: B256, last: B256) -> EntryProof {
        let (mut delta, mut intermediate) = self.tries(n);
        let prover = LayeredEntryProver::of_range(&mut delta, &mut intermediate, first, last);
        let range = LeafRange::accounts(first, last);
        let all = usize::MAX.try_into().unwrap();
        let mut snapshot = self.snapshot(n);
        let part = snapshot.extract_range(&range, all, &mut NoResolve);
        prover.finish(&part.unwrap().trie)
    }

    pub fn snapshot(&self, n: usize) -> PartialTrie {
        let (_, below) = self.starts(n);
        trie_of_entries(Commitment::Layered, &self.states[below])
    }

    pub fn values(&self, n: usize, keys: &[B256]) -> Vec<Option<ValueCommitment>> {
        let value = |key| self.states[n].get(key).map(|value| committed(value));
        keys.iter().map(value).collect()
    }

    /// Keys of the history, and others.
    pub fn some_keys(&self, random: &mut Random) -> Vec<B256> {
        let mut keys: Vec<_> = (0..random.below(8))
            .map(|_| random.pick(&self.keys))
            .collect();
        keys.extend((0..random.below(2)).map(|_| random.b256()));
        keys
    }

    pub fn writes(&self, n: usize) -> Vec<EntryWrite> {
        let writes = self.changes[n - 1].accounts().iter();
        let write = |change: &AccountDiff| match &change.account {
            AccountUpdate::Entry(value) => {
                Some(ValueCommitment::of_entry(Commitment::Layered, value))
            }
            _ => None,
        };
        writes.map(|change| (change.path, write(change))).collect()
    }

    /// Commit `n`, with the claim that it needs.
    pub fn commit(&self, n: usize) -> LayeredCommit {
        let mut commit = LayeredCommit {
            number: n as u64,
            merge_interval: NonZeroU64::new(self.interval as u64).unwrap(),
            claimed_snapshot: None,
        };
        if commit.begins_interval() && self.roots(n - 1).intermediate != EMPTY_ROOT {
            commit.claimed_snapshot = Some(self.roots(n).snapshot);
        }
        commit
    }
}

pub fn committed(value: &[u8]) -> ValueCommitment {
    ValueCommitment::of(Commitment::Layered, value)
}

pub fn verify(
    root: B256,
    proof: &EntryProof,
    keys: &[B256],
) -> Result<Vec<Option<ValueCommitment>>, EntryProofError> {
    verify_entries(root, Commitment::Layered, proof, keys)
}

pub fn coded(proof: &EntryProof) -> EntryProof {
    let bytes = proof.encode();
    let decoded = EntryProof::decode(&bytes).expect("what was just encoded");
    assert_eq!((&decoded, decoded.encode()), (proof, bytes));
    decoded
}

pub fn layers(proof: &EntryProof) -> &LayeredEntryProof {
    match proof {
        EntryProof::Layered(proof) => proof,
        _ => panic!("a proof of another commitment"),
    }
}

pub fn update(key: B256, account: AccountUpdate) -> AccountDiff {
    AccountDiff {
        path: key,
        wipe: account == AccountUpdate::Delete,
        account,
        slots: vec![],
    }
}

pub fn put(key: B256, value: &[u8]) -> AccountDiff {
    let value = EntryValue::Inline(Bytes::copy_from_slice(value));
    update(key, AccountUpdate::Entry(value))
}
