//! Proofs of a store are verified against its roots alone, under each commitment, and forgeries are rejected.

use crate::support::{all, commitments, key, options_of, store_with, value, verify_witness};
use alloy_primitives::{B256, Bytes};
use cambium_kv::{
    Commit, Commitment, EntryProof, KeyRange, KvError, ProvedKeys, Store, ValueCommitment,
    VerifyError, verify, verify_range,
};
use cambium_seeds::Random;
use std::num::NonZeroUsize;

fn limit(entries: usize) -> NonZeroUsize {
    NonZeroUsize::new(entries).unwrap()
}

/// A store with entries at every third key, in pages, and more above them.
fn filled(commitment: Commitment) -> Store {
    let store = store_with(options_of(commitment));
    let mut rng = Random::new(7);
    for round in 0..3 {
        let mut transaction = store.begin().unwrap();
        for number in (round * 3..255).step_by(9) {
            let len = [0, 5, 31, 32, 33, 200][rng.below(6) as usize];
            let bytes = vec![number; len];
            transaction.put(key(number), bytes).unwrap();
        }
        transaction.commit().unwrap();
        if round == 0 {
            store.flush().unwrap();
        }
    }
    store
}

#[test]
fn values_and_absent_keys_are_proved() {
    for commitment in commitments() {
        let store = filled(commitment);
        let (root, other) = (store.root().unwrap(), key(1));
        let reader = store.begin().unwrap();
        for keys in [vec![], vec![0], vec![1], vec![3, 4, 200, 5, 254, 0]] {
            let keys: Vec<_> = keys.into_iter().map(key).collect();
            let proved = reader.prove(&keys).unwrap();
            assert_eq!(verify(root, commitment, &proved), Ok(()), "{keys:?}");
            for ((key, value), asked) in proved.values.iter().zip(&keys) {
                assert_eq!((key, value), (asked, &store.get(key).unwrap()));
            }
            let bytes = proved.proof.encode();
            let proof = EntryProof::decode(&bytes).unwrap();
            let decoded = ProvedKeys {
                proof,
                ..proved.clone()
            };
            assert_eq!(verify(root, commitment, &decoded), Ok(()));
            if keys.is_empty() {
                continue;
            }
            assert!(verify(other, commitment, &proved).is_err());
            for foreign in commitments().into_iter().filter(|it| *it != commitment) {
                assert!(verify(root, foreign, &proved).is_err());
            }
        }
    }
}

#[test]
fn a_claim_that_is_not_so_is_refused() {
    for commitment in commitments() {
        let store = filled(commitment);
        let root = store.root().unwrap();
        // The second one is absent. They are far apart, so that each needs nodes that the others do not.
        let keys = [3, 49, 102].map(key);
        let proved = store.begin().unwrap().prove(&keys).unwrap();
        for (at, own) in keys.iter().enumerate() {
            for lie in [
                None,
                Some(value("lie")),
                Some(Bytes::new()),
                Some(vec![9; 40].into()),
            ] {
                let mut lying = proved.clone();
                if lying.values[at].1 == lie {
                    continue;
                }
                lying.values[at].1 = lie;
                let refused = verify(root, commitment, &lying);
                assert_eq!(refused, Err(VerifyError::OtherValue(*own)));
            }
            let mut lying = proved.clone();
            lying.values[at].0 = key(201);
            assert!(verify(root, commitment, &lying).is_err());
            lying.values.remove(at);
            assert!(
                verify(root, commitment, &lying).is_err(),
                "a proof of more than is claimed"
            );
        }
    }
}

#[test]
fn ranges_are_proved_page_by_page() {
    for commitment in commitments() {
        let store = filled(commitment);
        let root = store.root().unwrap();
        let reader = store.begin().unwrap();
        let mut range = KeyRange::within(key(10)..=key(240)).unwrap();
        let mut entries = Vec::new();
        for _ in 0..100 {
            let proved = reader.prove_range(range, limit(7)).unwrap();
            assert_eq!(
                verify_range(root, commitment, &proved),
                Ok(()),
                "{commitment:?} {range}"
            );
            assert!(proved.entries.len() <= 7 && proved.range.from() == range.from());
            let mut lying = proved.clone();
            if let Some(entry) = lying.entries.first_mut() {
                entry.1 = vec![1, 2, 3].into();
                let refused = VerifyError::OtherValue(entry.0);
                assert_eq!(verify_range(root, commitment, &lying), Err(refused));
                let count = lying.entries.len();
                lying.entries.pop();
                let (proved, claimed) = (count, count - 1);
                let refused = VerifyError::OtherCount { proved, claimed };
                assert_eq!(verify_range(root, commitment, &lying), Err(refused));
            }
            entries.extend(proved.entries);
            let Some(next) = proved.next else { break };
            range = KeyRange::new(next, range.through()).unwrap();
        }
        let expected: Vec<_> = all(&reader)
            .into_iter()
            .filter(|(at, _)| key(10) <= *at && *at <= key(240))
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(entries, expected, "{commitment:?}");
        for empty in [key(1)..=key(2), B256::ZERO..=B256::with_last_byte(9)] {
            let range = KeyRange::within(empty).unwrap();
            let proved = reader.prove_range(range, limit(7)).unwrap();
            assert!(proved.entries.is_empty());
            assert_eq!(verify_range(root, commitment, &proved), Ok(()));
        }
    }
}

#[test]
fn a_proof_is_a_read() {
    let store = filled(Commitment::default());
    for is_range in [false, true] {
        let mut prover = store.begin().unwrap();
        match is_range {
            true => drop(prover.prove_range(KeyRange::of(key(1)), limit(9)).unwrap()),
            false => drop(prover.prove(&[key(1)]).unwrap()),
        }
        prover.put(key(99), value("x")).unwrap();
        let mut other = store.begin().unwrap();
        other.put(key(1), value("y")).unwrap();
        other.commit().unwrap();
        assert!(matches!(prover.commit(), Err(KvError::Conflict(_))));
        store.roll_back(1).unwrap();
    }
}

#[test]
fn a_commit_is_proved_to_who_has_only_the_root_before_it() {
    for commitment in commitments() {
        let store = filled(commitment);
        let mut rng = Random::new(3);
        for round in 0..40 {
            let before = store.newest().unwrap();
            let transactions = (0..3u8).map(|at| {
                let mut transaction = store.begin().unwrap();
                // Apart from each other, so that all of them win.
                let mut own = || key(at * 80 + rng.below(80) as u8);
                for _ in 0..3 {
                    transaction.get(&own()).unwrap();
                    let (put, gone) = (own(), own());
                    transaction.put(put, vec![round; 40]).unwrap();
                    transaction.delete(gone);
                }
                transaction
            });
            let group = store
                .prepare_all_with_witness(transactions.collect())
                .unwrap();
            assert!(group.outcomes.iter().all(Result::is_ok));
            let prepared = group.prepared.unwrap();
            let witness = prepared.witness().unwrap().clone();
            let update = verify_witness(&store, before, &witness).unwrap();
            assert_eq!(update.root, prepared.root(), "{commitment:?} round {round}");
            for (key, read) in witness.reads.iter().zip(&update.values) {
                let there = store.get(key).unwrap();
                let there = there.map(|value| ValueCommitment::of(commitment, &value));
                assert_eq!(*read, there);
            }
            let other = Commit {
                root: key(1),
                ..before
            };
            assert!(verify_witness(&store, other, &witness).is_err());
            let mut lying = witness.clone();
            lying.writes[0].1 = Some(ValueCommitment::of(
                commitment,
                b"another value of 33 bytes or more",
            ));
            let other = verify_witness(&store, before, &lying);
            assert!(other.is_err() || other.unwrap().root != prepared.root());
            prepared.commit().unwrap();
        }
    }
}

#[test]
fn an_empty_store_proves_that_it_is_empty() {
    for commitment in commitments() {
        let store = store_with(options_of(commitment));
        let root = store.root().unwrap();
        let reader = store.begin().unwrap();
        let proved = reader.prove(&[key(1), key(2)]).unwrap();
        assert_eq!(verify(root, commitment, &proved), Ok(()));
        let proved = reader.prove_range(KeyRange::ALL, limit(1)).unwrap();
        assert_eq!(verify_range(root, commitment, &proved), Ok(()));
        let mut first = store.begin().unwrap();
        first.put(key(1), value("a")).unwrap();
        let first = first.prepare_with_witness().unwrap().unwrap();
        let before = store.newest().unwrap();
        let update = verify_witness(&store, before, first.witness().unwrap());
        assert_eq!(update.unwrap().root, first.root());
    }
}
