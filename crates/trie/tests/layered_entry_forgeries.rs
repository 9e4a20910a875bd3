//! Forged proofs of entries under the `layered` commitment: all of them are rejected.

use crate::common::{
    entries::{Entries, mpt_leaf},
    history::{History, committed, layers, put, update, verify},
};
use alloy_primitives::{B256, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue, Path};
use cambium_trie::{
    Commitment, EMPTY_ROOT, EntryProof, LayeredCommit, LayeredEntryProof, LayeredRoots, MultiProof,
    encode_leaf, verify_entries, verify_entry_range, verify_layered_update,
};
use std::num::NonZeroU64;

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
            // The nodes that the key needs if the tries above are passed over.
            for node in &all[at].nodes {
                let mut forged = tries(whole);
                if !forged[at].nodes.contains(node) {
                    forged[at].nodes.push(node.clone());
                    assert_refused(root, with(forged), keys, "a node is added");
                }
            }
            let mut forged = tries(whole);
            forged.swap(at, (at + 1) % 3);
            if forged != tries(whole) {
                assert_refused(root, with(forged), keys, "nodes of two tries are swapped");
            }
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
        encode_leaf(&Path::account(&key), &value, &mut node);
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
        encode_leaf(&Path::account(&key), &value, &mut node);
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
