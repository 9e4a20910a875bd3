//! Entries under the `layered` commitment against a model of three maps: roots at every commit of
//! random histories, rollbacks, proofs of keys, ranges and commits, and forgeries, of which none holds.

mod common;

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue, StoredValue};
use cambium_trie::{
    Alone, Commitment, EMPTY_ROOT, EntryProof, EntryProofError, EntryWrite, LayeredCommit,
    LayeredEntryProof, LayeredEntryProver, LayeredRoots, LeafRange, MultiProof, NoResolve,
    UpperReverts, UpperTrie, ValueCommitment, encode_leaf, layered_root, net_changes,
    verify_entries, verify_entry_range, verify_entry_update, verify_layered_update,
};
use common::{
    Random,
    entries::{
        Entries, expected_root, mpt_leaf, mpt_root, random_changes, random_value, trie_of_entries,
    },
    steps,
};
use std::{collections::BTreeMap, num::NonZeroU64};

/// What several commits changed; `None` for deleted entries.
type Upper = BTreeMap<B256, Option<Vec<u8>>>;

fn upper_root(upper: &Upper) -> B256 {
    let leaf = |value: &Option<Vec<u8>>| value.as_deref().map_or(vec![34], mpt_leaf);
    match upper.is_empty() {
        true => EMPTY_ROOT,
        false => mpt_root(upper.iter().map(|(key, value)| (key, leaf(value)))),
    }
}

fn state_root(entries: &Entries) -> B256 {
    match entries.is_empty() {
        true => EMPTY_ROOT,
        false => expected_root(Commitment::Layered, entries),
    }
}

fn merge(upper: &mut Upper, before: &Entries, after: &Entries) {
    for key in before.keys().chain(after.keys()) {
        if before.get(key) != after.get(key) {
            upper.insert(*key, after.get(key).cloned());
        }
    }
}

/// Changes that take `changes` back.
fn reverts_of(changes: &Changes, before: &Entries) -> Changes {
    let reverts = changes.accounts().iter().map(|change| {
        let value = before.get(&change.path);
        AccountDiff {
            path: change.path,
            wipe: value.is_none(),
            account: value.map_or(AccountUpdate::Delete, |value| {
                AccountUpdate::Entry(common::entries::value_of(Commitment::Layered, value))
            }),
            slots: vec![],
        }
    });
    Changes::new(reverts.collect())
}

/// Commits of a database, from an entry count of zero or more on.
struct History {
    keys: Vec<B256>,
    interval: usize,
    /// The entries after each commit.
    states: Vec<Entries>,
    /// What commit n + 1 changed.
    changes: Vec<Changes>,
}

impl History {
    fn new(random: &mut Random) -> Self {
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

    fn with_commits(random: &mut Random) -> Self {
        let mut history = Self::new(random);
        for _ in 0..random.below(4 * history.interval) {
            history.add(random);
        }
        history
    }

    fn newest(&self) -> usize {
        self.changes.len()
    }

    fn add(&mut self, random: &mut Random) {
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
    fn net(&self, n: usize) -> Vec<AccountDiff> {
        let changes = &self.changes[n - 1];
        net_changes(changes, &reverts_of(changes, &self.states[n - 1])).unwrap()
    }

    /// The numbers of the commits after which the delta and the intermediate trie of commit `n` begin.
    fn starts(&self, n: usize) -> (usize, usize) {
        let q = n.saturating_sub(1) / self.interval;
        (q * self.interval, q.saturating_sub(1) * self.interval)
    }

    fn upper(&self, from: usize, to: usize) -> Upper {
        let mut upper = Upper::new();
        for n in from + 1..=to {
            merge(&mut upper, &self.states[n - 1], &self.states[n]);
        }
        upper
    }

    fn roots(&self, n: usize) -> LayeredRoots {
        let (start, below) = self.starts(n);
        LayeredRoots {
            delta: upper_root(&self.upper(start, n)),
            intermediate: upper_root(&self.upper(below, start)),
            snapshot: state_root(&self.states[below]),
        }
    }

    fn upper_trie(&self, from: usize, to: usize) -> UpperTrie {
        let mut trie = UpperTrie::of_entries();
        for n in from + 1..=to {
            trie.apply(&self.net(n)).unwrap();
        }
        trie
    }

    fn tries(&self, n: usize) -> (UpperTrie, UpperTrie) {
        let (start, below) = self.starts(n);
        (self.upper_trie(start, n), self.upper_trie(below, start))
    }

    fn prove(&self, n: usize, keys: &[B256]) -> EntryProof {
        let (mut delta, mut intermediate) = self.tries(n);
        let prover = LayeredEntryProver::new(&mut delta, &mut intermediate, keys);
        let mut snapshot = self.snapshot(n);
        let part = snapshot.extract(&prover.snapshot_targets(), &mut NoResolve);
        prover.finish(&part.unwrap())
    }

    fn prove_range(&self, n: usize, first: B256, last: B256) -> EntryProof {
        let (mut delta, mut intermediate) = self.tries(n);
        let prover = LayeredEntryProver::of_range(&mut delta, &mut intermediate, first, last);
        let range = LeafRange::accounts(first, last);
        let all = usize::MAX.try_into().unwrap();
        let mut snapshot = self.snapshot(n);
        let part = snapshot.extract_range(&range, all, &mut NoResolve);
        prover.finish(&part.unwrap().trie)
    }

    fn snapshot(&self, n: usize) -> cambium_trie::PartialTrie {
        let (_, below) = self.starts(n);
        trie_of_entries(Commitment::Layered, &self.states[below])
    }

    fn values(&self, n: usize, keys: &[B256]) -> Vec<Option<ValueCommitment>> {
        let value = |key| self.states[n].get(key).map(|value| committed(value));
        keys.iter().map(value).collect()
    }

    /// Keys of the history, and others.
    fn some_keys(&self, random: &mut Random) -> Vec<B256> {
        let mut keys: Vec<_> = (0..random.below(8))
            .map(|_| random.pick(&self.keys))
            .collect();
        keys.extend((0..random.below(2)).map(|_| random.b256()));
        keys
    }

    fn writes(&self, n: usize) -> Vec<EntryWrite> {
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
    fn commit(&self, n: usize) -> LayeredCommit {
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

fn committed(value: &[u8]) -> ValueCommitment {
    ValueCommitment::of(Commitment::Layered, value)
}

fn verify(
    root: B256,
    proof: &EntryProof,
    keys: &[B256],
) -> Result<Vec<Option<ValueCommitment>>, EntryProofError> {
    verify_entries(root, Commitment::Layered, proof, keys)
}

fn coded(proof: &EntryProof) -> EntryProof {
    let bytes = proof.encode();
    let decoded = EntryProof::decode(&bytes).expect("what was just encoded");
    assert_eq!((&decoded, decoded.encode()), (proof, bytes));
    decoded
}

fn layers(proof: &EntryProof) -> &LayeredEntryProof {
    match proof {
        EntryProof::Layered(proof) => proof,
        _ => panic!("a proof of another commitment"),
    }
}

#[test]
fn roots_are_those_of_three_maps_at_every_commit_and_after_every_rollback() {
    for seed in 0..steps(80, 3_000) as u64 {
        let mut random = Random(seed);
        let mut history = History::new(&mut random);
        let mut reverts: Vec<UpperReverts> = vec![];
        let (mut delta, mut intermediate) = (UpperTrie::of_entries(), UpperTrie::of_entries());
        for _ in 0..30 {
            if random.one_in(3) && !reverts.is_empty() {
                delta.revert(&reverts.pop().unwrap());
                history.changes.pop();
                history.states.pop();
            } else {
                let newest = history.newest();
                if newest > 0 && newest % history.interval == 0 && !reverts.is_empty() {
                    (intermediate, delta) = (delta.clone(), delta.new_like());
                    reverts.clear();
                }
                history.add(&mut random);
                reverts.push(delta.apply(&history.net(history.newest())).unwrap());
            }
            if reverts.is_empty() {
                continue;
            }
            let n = history.newest();
            let roots = history.roots(n);
            assert_eq!(delta.hash(&Alone), roots.delta, "delta, seed {seed}");
            let root = intermediate.hash(&Alone);
            assert_eq!(root, roots.intermediate, "intermediate trie, seed {seed}");
            let model = history.upper(history.starts(n).0, n);
            for key in &history.keys {
                let found = delta.entry(key);
                let found = found.map(|value| {
                    value.map(|value| ValueCommitment::of_entry(Commitment::Layered, &value))
                });
                let expected = model.get(key).map(|value| value.as_deref().map(committed));
                assert_eq!(found, expected);
            }
        }
    }
}

fn update(key: B256, account: AccountUpdate) -> AccountDiff {
    AccountDiff {
        path: key,
        wipe: account == AccountUpdate::Delete,
        account,
        slots: vec![],
    }
}

fn put(key: B256, value: &[u8]) -> AccountDiff {
    let value = EntryValue::Inline(Bytes::copy_from_slice(value));
    update(key, AccountUpdate::Entry(value))
}

#[test]
fn a_value_that_comes_back_stays_a_member_until_it_is_rolled_back() {
    let key = B256::repeat_byte(7);
    let mut delta = UpperTrie::of_entries();
    let first = delta.apply(&[put(key, b"new")]).unwrap();
    let second = delta.apply(&[put(key, b"old")]).unwrap();
    let member = Upper::from([(key, Some(b"old".to_vec()))]);
    assert_eq!(delta.hash(&Alone), upper_root(&member));
    let third = delta.apply(&[update(key, AccountUpdate::Delete)]).unwrap();
    assert_eq!(delta.hash(&Alone), upper_root(&Upper::from([(key, None)])));
    assert_eq!(delta.entry(&key), Some(None));
    delta.revert(&third);
    assert_eq!(delta.hash(&Alone), upper_root(&member));
    delta.revert(&second);
    delta.revert(&first);
    assert_eq!(delta.hash(&Alone), EMPTY_ROOT);
    assert_eq!(delta.entry(&key), None);
}

#[test]
fn writes_that_change_no_value_are_no_net_changes_wherever_the_value_is() {
    let stored = |place: u64, hash: u8| {
        update(
            B256::repeat_byte(1),
            AccountUpdate::Entry(EntryValue::Stored(StoredValue {
                hash: B256::repeat_byte(hash),
                len: 5000,
                place: NonZeroU64::new(place).unwrap(),
            })),
        )
    };
    let delete = |key: u8| update(B256::repeat_byte(key), AccountUpdate::Delete);
    let net = |change: AccountDiff, before: AccountDiff| {
        net_changes(&Changes::new(vec![change]), &Changes::new(vec![before])).unwrap()
    };
    let key = B256::repeat_byte(1);
    assert_eq!(net(stored(9, 1), stored(2, 1)), []);
    assert_eq!(net(stored(2, 1), stored(2, 2)), [stored(2, 1)]);
    assert_eq!(net(put(key, b"x"), put(key, b"x")), []);
    assert_eq!(net(put(key, b""), put(key, b"x")), [put(key, b"")]);
    assert_eq!(net(put(key, b""), delete(1)), [put(key, b"")]);
    assert_eq!(net(delete(1), delete(1)), []);
    assert_eq!(net(delete(1), put(key, b"")), [delete(1)]);
    // A value that is known by its hash alone, as verifiers know it.
    let value = [5; 40];
    let known = update(
        key,
        AccountUpdate::Entry(EntryValue::Stored(StoredValue {
            hash: keccak256(value),
            len: 40,
            place: NonZeroU64::MAX,
        })),
    );
    assert_eq!(net(put(key, &value), known.clone()), []);
    assert_eq!(net(known.clone(), put(key, &[6; 40])), [known]);
}

#[test]
fn an_upper_trie_takes_no_changes_of_the_other_kind() {
    let key = B256::repeat_byte(7);
    let account = update(key, AccountUpdate::Put(Default::default()));
    let mut entries = UpperTrie::of_entries();
    assert!(entries.apply(&[account]).is_err());
    assert!(entries.is_empty());
    let mut accounts = UpperTrie::new();
    assert!(accounts.apply(&[put(key, b"x")]).is_err());
    assert!(accounts.is_empty());
}

#[test]
fn an_empty_database_has_the_root_of_three_empty_tries() {
    let root = layered_root(EMPTY_ROOT, EMPTY_ROOT, EMPTY_ROOT);
    assert_eq!(Commitment::Layered.empty_root(), root);
    assert_eq!(Commitment::Layered.name().to_string(), "layered");
    let trie = cambium_trie::PartialTrie::new(cambium_primitives::Path::EMPTY);
    let trie = trie.committed_by(Commitment::Layered);
    assert!(trie.commitment() == Commitment::Mpt && Commitment::Layered != Commitment::Mpt);
}

#[test]
fn keys_and_ranges_are_proved_present_or_absent() {
    for seed in 0..steps(150, 4_000) as u64 {
        let mut random = Random(seed);
        let history = History::with_commits(&mut random);
        let n = history.newest();
        let root = history.roots(n).root();
        for _ in 0..3 {
            let keys = history.some_keys(&mut random);
            let proof = coded(&history.prove(n, &keys));
            let shown = verify(root, &proof, &keys);
            assert_eq!(shown, Ok(history.values(n, &keys)), "seed {seed}");
            let mut ends = [random.pick(&history.keys), random.b256()];
            ends.sort_unstable();
            let [first, last] = ends;
            let proof = coded(&history.prove_range(n, first, last));
            let shown = verify_entry_range(root, Commitment::Layered, &proof, first, last);
            let expected = history.states[n].range(first..=last);
            let expected = expected.map(|(key, value)| (*key, committed(value)));
            assert_eq!(shown, Ok(expected.collect()), "seed {seed}");
            assert!(
                first == last
                    || verify_entry_range(root, Commitment::Layered, &proof, last, first).is_err()
            );
        }
    }
}

#[test]
fn the_root_after_each_commit_follows_from_the_one_before_it_and_what_is_claimed() {
    let (mut claims, mut seen) = (0, 0);
    for seed in 0..steps(100, 3_000) as u64 {
        let mut random = Random(seed);
        let history = History::with_commits(&mut random);
        for n in 1..=history.newest() {
            let before = history.roots(n - 1).root();
            let (writes, reads) = (history.writes(n), history.some_keys(&mut random));
            let keys = reads.iter().chain(writes.iter().map(|(key, _)| key));
            let keys: Vec<_> = keys.copied().collect();
            let proof = coded(&history.prove(n - 1, &keys));
            let commit = history.commit(n);
            let shown = verify_layered_update(before, commit, &proof, &reads, &writes).unwrap();
            assert_eq!(shown.roots, history.roots(n), "seed {seed}, commit {n}");
            assert_eq!(shown.root, history.roots(n).root());
            assert_eq!(shown.values, history.values(n - 1, &reads));
            assert_eq!(shown.claimed_snapshot, commit.claimed_snapshot);
            seen += 1;
            claims += usize::from(commit.claimed_snapshot.is_some());
            // A claim is needed or refused; a false one makes another root.
            let claimed = |claimed_snapshot| {
                let commit = LayeredCommit {
                    claimed_snapshot,
                    ..commit
                };
                verify_layered_update(before, commit, &proof, &reads, &writes)
            };
            let number = n as u64;
            match commit.claimed_snapshot {
                Some(_) => {
                    assert_eq!(claimed(None), Err(EntryProofError::NoClaim { number }));
                    let other = claimed(Some(B256::repeat_byte(1))).unwrap();
                    assert_ne!(other.root, shown.root);
                    assert_eq!(other.claimed_snapshot, Some(B256::repeat_byte(1)));
                }
                None => {
                    let refused = EntryProofError::SurplusClaim { number };
                    assert_eq!(claimed(Some(EMPTY_ROOT)), Err(refused));
                }
            }
            // Of other writes, reads or roots.
            let mut other = writes.clone();
            other[0].1 = Some(committed(b"something else"));
            let other = verify_layered_update(before, commit, &proof, &reads, &other);
            let is_same = writes[0].1 == Some(committed(b"something else"));
            assert!(is_same || other.unwrap().root != shown.root);
            let foreign = [&reads[..], &[B256::repeat_byte(0x5c)]].concat();
            let foreign = verify_layered_update(before, commit, &proof, &foreign, &writes);
            assert!(foreign.is_err() || foreign.unwrap().root == shown.root);
            let wrong = verify_layered_update(shown.root, commit, &proof, &reads, &writes);
            assert!(wrong.is_err() || shown.root == before);
            let first = LayeredCommit {
                number: 0,
                ..commit
            };
            let refused = verify_layered_update(before, first, &proof, &reads, &writes);
            assert_eq!(refused, Err(EntryProofError::NoParent));
            let refused = verify_entry_update(before, Commitment::Layered, &proof, &reads, &writes);
            assert_eq!(refused, Err(EntryProofError::NeedsNumber));
        }
    }
    assert!(claims > 20 && seen > 5 * claims / 2, "{claims} of {seen}");
    let told = EntryProofError::NeedsNumber.to_string();
    assert!(told.contains("verify_layered_update"), "{told}");
}

/// A history in which each trie says something: of a key in the delta, deleted there, in the intermediate
/// trie, deleted there, and in the snapshot alone.
fn telling() -> (History, [B256; 5]) {
    let keys: Vec<_> = (0..40u8).map(keccak256_of).collect();
    let first: Entries = keys.iter().map(|key| (*key, key[..30].to_vec())).collect();
    let mut history = History {
        keys: keys.clone(),
        interval: 1,
        states: vec![first],
        changes: vec![],
    };
    let steps: [&[AccountDiff]; 2] = [
        &[
            put(keys[2], b"middle"),
            update(keys[3], AccountUpdate::Delete),
            put(keys[20], b"x"),
        ],
        &[
            put(keys[0], b"top"),
            update(keys[1], AccountUpdate::Delete),
            put(keys[21], b"y"),
        ],
    ];
    for step in steps {
        let mut after = history.states.last().unwrap().clone();
        for change in step {
            match &change.account {
                AccountUpdate::Entry(EntryValue::Inline(value)) => {
                    after.insert(change.path, value.to_vec());
                }
                _ => drop(after.remove(&change.path)),
            }
        }
        history.states.push(after);
        history.changes.push(Changes::new(step.to_vec()));
    }
    (history, [keys[0], keys[1], keys[2], keys[3], keys[4]])
}

fn keccak256_of(number: u8) -> B256 {
    keccak256([number])
}

#[test]
fn a_proof_has_nothing_of_tries_in_which_nothing_is_looked_up() {
    let (history, keys) = telling();
    let root = history.roots(2).root();
    let lens = keys.map(|key| {
        let proof = history.prove(2, &[key]);
        let shown = verify(root, &proof, &[key]);
        assert_eq!(shown, Ok(history.values(2, &[key])));
        let proof = layers(&proof);
        [&proof.delta, &proof.intermediate, &proof.snapshot].map(|nodes| !nodes.nodes.is_empty())
    });
    let (top, middle, bottom) = ([true, false, false], [true, true, false], [true; 3]);
    assert_eq!(lens, [top, top, middle, middle, bottom]);
    assert_eq!(history.values(2, &keys[1..2]), [None]);
    let none = history.prove(2, &[]);
    assert_eq!(none.encode().len(), 1 + 96 + 3);
    assert_eq!(verify(root, &none, &[]), Ok(vec![]));
}

/// Fails unless a forged proof is refused, of keys and of a commit.
fn assert_refused(root: B256, proof: LayeredEntryProof, keys: &[B256], what: &str) {
    let proof = EntryProof::Layered(Box::new(proof));
    assert!(verify(root, &proof, keys).is_err(), "{what}");
    let commit = LayeredCommit {
        number: 3,
        merge_interval: NonZeroU64::new(5).unwrap(),
        claimed_snapshot: None,
    };
    let update = verify_layered_update(root, commit, &proof, keys, &[]);
    assert!(update.is_err(), "{what}");
}

#[test]
fn proofs_with_nodes_that_are_left_out_added_or_in_another_trie_are_refused() {
    let (history, keys) = telling();
    let root = history.roots(2).root();
    for count in 1..=keys.len() {
        let keys = &keys[..count];
        let whole = history.prove(2, keys);
        let whole = layers(&whole);
        let tries = |proof: &LayeredEntryProof| {
            [
                proof.delta.clone(),
                proof.intermediate.clone(),
                proof.snapshot.clone(),
            ]
        };
        let with = |[delta, intermediate, snapshot]: [MultiProof; 3]| LayeredEntryProof {
            delta,
            intermediate,
            snapshot,
            ..whole.clone()
        };
        let all = history.prove(2, &history.keys);
        let all = tries(layers(&all));
        for at in 0..3 {
            for node in 0..tries(whole)[at].nodes.len() {
                let mut forged = tries(whole);
                forged[at].nodes.remove(node);
                assert_refused(root, with(forged), keys, "a node is left out");
            }
            // What the key needs if the tries above are passed over.
            for node in &all[at].nodes {
                let mut forged = tries(whole);
                if !forged[at].nodes.contains(node) {
                    forged[at].nodes.push(node.clone());
                    assert_refused(root, with(forged), keys, "a node is added");
                }
            }
            let mut forged = tries(whole);
            forged.swap(at, (at + 1) % 3);
            assert_refused(root, with(forged), keys, "nodes of two tries are swapped");
            let roots = whole.roots;
            let swapped = [
                LayeredRoots {
                    delta: roots.intermediate,
                    intermediate: roots.delta,
                    ..roots
                },
                LayeredRoots {
                    delta: EMPTY_ROOT,
                    ..roots
                },
                LayeredRoots {
                    snapshot: EMPTY_ROOT,
                    ..roots
                },
            ];
            let forged = LayeredEntryProof {
                roots: swapped[at],
                ..whole.clone()
            };
            assert_refused(root, forged, keys, "other roots");
        }
    }
}

#[test]
fn a_tombstone_is_neither_forged_nor_left_out() {
    let (history, keys) = telling();
    let roots = history.roots(2);
    // A delta of one leaf, which says that a present key is deleted, or that a deleted one is there.
    for (key, value) in [(keys[4], vec![34]), (keys[1], mpt_leaf(b"there"))] {
        let mut node = Vec::new();
        encode_leaf(&cambium_primitives::Path::account(&key), &value, &mut node);
        let delta = MultiProof {
            nodes: vec![node.clone().into()],
        };
        let (empty, forged_root) = (MultiProof::default(), keccak256(&node));
        let forged = LayeredEntryProof {
            roots: LayeredRoots {
                delta: forged_root,
                ..roots
            },
            delta: delta.clone(),
            intermediate: empty.clone(),
            snapshot: empty.clone(),
        };
        assert_refused(roots.root(), forged.clone(), &[key], "another delta");
        let kept = LayeredEntryProof {
            roots,
            ..forged.clone()
        };
        assert_refused(roots.root(), kept, &[key], "a delta of another root");
        // With the root that belongs to it, it is what it says.
        let shown = verify(
            forged.roots.root(),
            &EntryProof::Layered(Box::new(forged)),
            &[key],
        );
        let expected = (value != [34]).then(|| committed(b"there"));
        assert_eq!(shown, Ok(vec![expected]));
        // A state has no tombstones.
        let in_snapshot = LayeredEntryProof {
            roots: LayeredRoots {
                delta: EMPTY_ROOT,
                intermediate: EMPTY_ROOT,
                snapshot: forged_root,
            },
            delta: empty.clone(),
            intermediate: empty,
            snapshot: delta.clone(),
        };
        let root = in_snapshot.roots.root();
        let shown = verify(root, &EntryProof::Layered(Box::new(in_snapshot)), &[key]);
        assert_eq!(shown.is_err(), value == [34]);
        let alone = verify_entries(
            forged_root,
            Commitment::Mpt,
            &EntryProof::Mpt(delta),
            &[key],
        );
        assert_eq!(alone.is_err(), value == [34]);
    }
}

#[test]
fn other_values_of_tombstones_are_refused() {
    let key = B256::repeat_byte(9);
    for value in [
        vec![34, 0],
        vec![35],
        vec![33],
        vec![],
        vec![34; 33],
        vec![1],
    ] {
        let mut node = Vec::new();
        encode_leaf(&cambium_primitives::Path::account(&key), &value, &mut node);
        let proof = LayeredEntryProof {
            roots: LayeredRoots {
                delta: keccak256(&node),
                intermediate: EMPTY_ROOT,
                snapshot: EMPTY_ROOT,
            },
            delta: MultiProof {
                nodes: vec![node.into()],
            },
            intermediate: MultiProof::default(),
            snapshot: MultiProof::default(),
        };
        let root = proof.roots.root();
        assert_refused(root, proof, &[key], "a leaf of no meaning");
    }
}

#[test]
fn a_proof_with_any_byte_changed_cut_off_or_added_is_refused() {
    let (history, keys) = telling();
    let root = history.roots(2).root();
    let refuses = |bytes: &[u8]| match EntryProof::decode(bytes) {
        Err(_) => true,
        Ok(proof) => verify(root, &proof, &keys).is_err(),
    };
    let (first, last) = (B256::ZERO, B256::repeat_byte(0xff));
    let refuses_range = |bytes: &[u8]| match EntryProof::decode(bytes) {
        Err(_) => true,
        Ok(proof) => verify_entry_range(root, Commitment::Layered, &proof, first, last).is_err(),
    };
    let proof = history.prove(2, &keys).encode();
    let range = history.prove_range(2, first, last).encode();
    assert!(!refuses(&proof) && !refuses_range(&range));
    for at in 0..proof.len().max(range.len()) {
        for flip in [1, 0x80, 0xff] {
            let flipped = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= flip;
                }
                bytes
            };
            assert!(at >= proof.len() || refuses(&flipped(&proof)), "byte {at}");
            assert!(
                at >= range.len() || refuses_range(&flipped(&range)),
                "byte {at}"
            );
        }
        assert!(at >= proof.len() || refuses(&proof[..at]));
        assert!(at >= range.len() || refuses_range(&range[..at]));
    }
    assert!(refuses(&[&proof[..], &[0]].concat()));
}

#[test]
fn a_range_leaves_out_no_trie_and_no_key() {
    let (history, keys) = telling();
    let root = history.roots(2).root();
    let mut sorted = history.keys.clone();
    sorted.sort_unstable();
    let (first, last) = (sorted[3], sorted[30]);
    let whole = history.prove_range(2, first, last);
    let check = |proof: &LayeredEntryProof| {
        let proof = EntryProof::Layered(Box::new(proof.clone()));
        verify_entry_range(root, Commitment::Layered, &proof, first, last)
    };
    let shown = check(layers(&whole)).unwrap();
    assert!(
        shown
            .iter()
            .all(|(key, _)| *key != keys[1] && *key != keys[3])
    );
    for at in 0..3 {
        let nodes = |proof: &mut LayeredEntryProof| match at {
            0 => std::mem::take(&mut proof.delta.nodes),
            1 => std::mem::take(&mut proof.intermediate.nodes),
            _ => std::mem::take(&mut proof.snapshot.nodes),
        };
        let mut forged = layers(&whole).clone();
        let all = nodes(&mut forged);
        assert!(!all.is_empty() && check(&forged).is_err(), "trie {at}");
        for gone in 0..all.len() {
            let mut forged = layers(&whole).clone();
            let kept = all.iter().enumerate().filter(|(at, _)| *at != gone);
            let kept: Vec<_> = kept.map(|(_, node)| node.clone()).collect();
            _ = nodes(&mut forged);
            match at {
                0 => forged.delta.nodes = kept,
                1 => forged.intermediate.nodes = kept,
                _ => forged.snapshot.nodes = kept,
            }
            assert!(check(&forged).is_err(), "trie {at}, node {gone}");
        }
    }
    let EntryProof::Layered(_) = &whole else {
        panic!("a proof of three tries");
    };
    assert!(verify_entry_range(root, Commitment::Layered, &whole, sorted[2], last).is_err());
    assert!(verify_entry_range(root, Commitment::Mpt, &whole, first, last).is_err());
}
