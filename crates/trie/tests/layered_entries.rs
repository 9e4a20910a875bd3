//! Entries under the `layered` commitment against a model of three maps: roots at every commit of
//! random histories, rollbacks, and proofs of keys, ranges and commits.

use crate::common::{
    Random,
    history::{History, Upper, coded, committed, put, update, upper_root, verify},
    steps,
};
use alloy_primitives::{B256, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue, Path, StoredValue};
use cambium_trie::{
    Alone, Commitment, EMPTY_ROOT, EntryProofError, LayeredCommit, PartialTrie, UpperReverts,
    UpperTrie, ValueCommitment, layered_root, net_changes, verify_entry_range, verify_entry_update,
    verify_layered_update,
};
use std::num::NonZeroU64;

#[test]
fn roots_are_those_of_three_maps_at_every_commit_and_after_every_rollback() {
    for seed in cambium_seeds::seeds!(0..steps(80, 3_000) as u64) {
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
                if newest > 0 && newest.is_multiple_of(history.interval) && !reverts.is_empty() {
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
    let trie = PartialTrie::new(Path::EMPTY);
    let trie = trie.committed_by(Commitment::Layered);
    assert!(trie.commitment() == Commitment::Mpt && Commitment::Layered != Commitment::Mpt);
}

#[test]
fn keys_and_ranges_are_proved_present_or_absent() {
    for seed in cambium_seeds::seeds!(0..steps(150, 4_000) as u64) {
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
    for seed in cambium_seeds::seeds!(0..steps(100, 3_000) as u64) {
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
