//! Proofs of ranges: pages of accounts and slots that add up to the state, and are rejected for every other state.

use crate::common;
use crate::common::{Hashed, NodeByNode, Random, hashed, root_stub, steps, trie_of};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use cambium_primitives::Account;
use cambium_trie::{LeafRange, NoResolve, PartialTrie, ProvedPage, RangeProof, RangeProofError};
use std::num::NonZeroUsize;

const LAST: B256 = B256::repeat_byte(0xff);

/// A page, extracted from a trie of which only the root is in memory.
fn prove(whole: &PartialTrie, address: Option<Address>, from: B256, limit: usize) -> RangeProof {
    let range = LeafRange {
        account: address.map(keccak256),
        first: from,
        last: LAST,
    };
    let limit = NonZeroUsize::new(limit).unwrap();
    let extracted = match whole.root().is_empty() {
        true => whole.clone().extract_range(&range, limit, &mut NoResolve),
        false => root_stub(whole)
            .extract_range(&range, limit, &mut NodeByNode(whole))
            .map_err(|error| panic!("{error:?}")),
    };
    RangeProof::new(address, &extracted.unwrap())
}

/// All accounts, page by page.
fn accounts(
    whole: &PartialTrie,
    root: B256,
    from: B256,
    mut limit: impl FnMut() -> usize,
) -> Vec<(B256, Account)> {
    let (mut all, mut next) = (Vec::new(), Some(from));
    while let Some(from) = next {
        let proof = prove(whole, None, from, limit());
        let page = proof.verify_accounts(root, from).unwrap();
        all.extend(page.values);
        next = page.next;
    }
    all
}

fn slots(
    whole: &PartialTrie,
    root: B256,
    address: Address,
    from: B256,
    mut limit: impl FnMut() -> usize,
) -> Vec<(B256, U256)> {
    let (mut all, mut next) = (Vec::new(), Some(from));
    while let Some(from) = next {
        let proof = prove(whole, Some(address), from, limit());
        let page = proof.verify_slots(root, address, from).unwrap();
        all.extend(page.values);
        next = page.next;
    }
    all
}

#[test]
fn pages_of_accounts_and_slots_add_up_to_the_state() {
    let mut random = Random(19);
    let (mut pages_of_slots, mut absent) = (0, 0);
    for round in 0..steps(25, 300) {
        let Hashed {
            model, addresses, ..
        } = hashed(&mut random, round % 60, 1 + round % 30);
        let whole = trie_of(&model);
        let root = model.root();
        for from in [B256::ZERO, random.b256(), LAST] {
            let found = accounts(&whole, root, from, || 1 + random.below(9));
            let expected = model.0.range(from..);
            let expected: Vec<_> = expected
                .map(|(path, (account, _))| (*path, *account))
                .collect();
            assert_eq!(found, expected);
        }
        for address in addresses {
            let from = match random.one_in(2) {
                true => B256::ZERO,
                false => random.b256(),
            };
            let found = slots(&whole, root, address, from, || 1 + random.below(5));
            let stored = model.0.get(&keccak256(address));
            let expected: Vec<_> = stored
                .map(|(_, slots)| slots.range(from..).map(|(key, value)| (*key, *value)))
                .into_iter()
                .flatten()
                .collect();
            pages_of_slots += usize::from(!expected.is_empty());
            absent += usize::from(stored.is_none());
            assert_eq!(found, expected);
        }
    }
    assert!(pages_of_slots > 20 && absent > 20);
}

/// A proof that lacks a node, or has another one, fails, or proves the same.
#[test]
fn a_proof_with_other_nodes_proves_nothing_else() {
    let mut random = Random(20);
    let (mut refused, mut same) = (0, 0);
    for round in 0..steps(12, 100) {
        let Hashed {
            model, addresses, ..
        } = hashed(&mut random, 30 + round, 20);
        let whole = trie_of(&model);
        let root = model.root();
        let address = addresses[random.below(20)];
        for of in [None, Some(address)] {
            let from = random.b256();
            let proof = prove(&whole, of, from, 1 + random.below(20));
            let (expected, unused) = proof.verify(root).unwrap();
            assert_eq!(unused, 0);
            let mut check = |other: RangeProof| match other.verify(root) {
                Ok((leaves, _)) => {
                    assert_eq!(leaves, expected);
                    same += 1;
                }
                Err(_) => refused += 1,
            };
            for at in 0..proof.nodes.len() {
                let mut other = proof.clone();
                other.nodes.remove(at);
                check(other);
                let mut other = proof.clone();
                let mut node = other.nodes[at].to_vec();
                let byte = random.below(node.len());
                node[byte] ^= 1 << random.below(8);
                other.nodes[at] = node.into();
                check(other);
            }
            let mut other = proof.clone();
            other.nodes.push(Bytes::from(random.b256().0));
            check(other);
        }
    }
    assert!(
        refused > 100 && same >= 24,
        "{refused} refused, {same} same"
    );
}

#[test]
fn a_proof_of_another_range_is_refused_by_name() {
    let mut random = Random(21);
    let Hashed {
        model, addresses, ..
    } = hashed(&mut random, 200, 20);
    let whole = trie_of(&model);
    let root = model.root();
    let from = B256::repeat_byte(0x40);
    let proof = prove(&whole, None, from, 10);
    let page = proof.verify_accounts(root, from).unwrap();
    assert_eq!(page.values.len(), 10);

    let expected = B256::repeat_byte(0x30);
    let error = RangeProofError::OtherStart {
        expected,
        first: from,
    };
    assert_eq!(proof.verify_accounts(root, expected), Err(error));
    let error = proof.verify_slots(root, addresses[0], from).unwrap_err();
    let text = format!("it is of accounts, not of slots of {}", addresses[0]);
    assert_eq!(error.to_string(), text);
    // The nodes don't cover the keys before and behind the range.
    for (first, last) in [(expected, proof.last), (from, B256::repeat_byte(0xf0))] {
        let wider = RangeProof {
            first,
            last,
            ..proof.clone()
        };
        let error = wider.verify(root);
        assert!(matches!(error, Err(RangeProofError::Missing(_))));
    }
    let backwards = RangeProof {
        last: expected,
        ..proof.clone()
    };
    let error = backwards.verify(root).unwrap_err().to_string();
    assert!(error.contains("before it begins"), "{error}");
    let error = proof.verify(B256::repeat_byte(1));
    assert!(matches!(error, Err(RangeProofError::Missing(_))));
}

#[test]
fn an_empty_state_is_proved_by_nothing() {
    let model = common::Model::default();
    let whole = trie_of(&model);
    let proof = prove(&whole, None, B256::ZERO, 5);
    let page = proof.verify_accounts(model.root(), B256::ZERO).unwrap();
    let values = Vec::new();
    assert_eq!(page, ProvedPage { values, next: None });
}
