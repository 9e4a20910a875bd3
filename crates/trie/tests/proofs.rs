//! Proofs: held against alloy-trie's verifier, and mutated in every way.

use crate::common::{
    Hashed, NodeByNode, Random, account_rlp, hashed, root_stub, steps, storage_root, trie_of,
};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_trie::{Nibbles, proof::verify_proof};
use cambium_trie::{
    AccountProof, EMPTY_ROOT, MultiProof, MultiProofError, NoResolve, PartialTrie, ProofError,
    ProofFault, ProofTargets, StorageKey, verify_account_proof,
};

/// Proofs of every account of a state, and of as many absent ones, each with some slots.
fn proofs(state: &Hashed, trie: &mut PartialTrie, random: &mut Random) -> Vec<AccountProof> {
    let whole = trie.clone();
    let prove = |address: &Address| {
        let start = random.below(state.slots.len());
        let slots: Vec<_> = state.slots[start..]
            .iter()
            .map(|slot| StorageKey::from(*slot))
            .collect();
        let from_whole = trie
            .prove_account(*address, &slots, &mut NoResolve)
            .expect("all is here");
        let mut bare = root_stub(&whole);
        let loaded = bare.prove_account(*address, &slots, &mut NodeByNode(&whole));
        assert_eq!(loaded.expect("the whole trie has all of it"), from_whole);
        from_whole
    };
    state.addresses.iter().map(prove).collect()
}

/// A proof survives alloy's type for it, whose JSON is ours, and which is verified by alloy-trie.
#[cfg(feature = "rpc")]
fn is_the_same_in_alloys_type(root: B256, proof: &AccountProof) {
    use alloy_rpc_types_eth::EIP1186AccountProofResponse;

    let response = EIP1186AccountProofResponse::from(proof.clone());
    let json = serde_json::to_value(&response).expect("JSON");
    assert_eq!(json, serde_json::to_value(proof).expect("JSON"));
    let read: EIP1186AccountProofResponse = serde_json::from_value(json).expect("our JSON");
    assert_eq!(read, response);
    assert_eq!(&AccountProof::from(read), proof);

    // Only alloy's types and verifier.
    let account = alloy_trie::TrieAccount {
        nonce: response.nonce,
        balance: response.balance,
        storage_root: response.storage_hash,
        code_hash: response.code_hash,
    };
    let verified = verify_account_proof(root, proof).expect("a true proof");
    let exists = verified.account.is_some();
    let key = Nibbles::unpack(keccak256(response.address));
    let value = exists.then(|| alloy_rlp::encode(account));
    verify_proof(root, key, value, &response.account_proof).expect("the account");
    for slot in &response.storage_proof {
        let value = (!slot.value.is_zero()).then(|| alloy_rlp::encode(slot.value));
        let key = Nibbles::unpack(keccak256(slot.key.as_b256()));
        verify_proof(response.storage_hash, key, value, &slot.proof).expect("the slot");
    }
}

#[cfg(not(feature = "rpc"))]
fn is_the_same_in_alloys_type(_: B256, _: &AccountProof) {}

fn agrees_with_alloy(root: B256, proof: &AccountProof) {
    let absent = proof.nonce == 0 && proof.balance.is_zero() && proof.account_proof.is_empty();
    let verified = verify_account_proof(root, proof).expect("a true proof");
    let value = verified
        .account
        .map(|account| account_rlp(&account, verified.storage_root));
    let key = Nibbles::unpack(keccak256(proof.address));
    verify_proof(root, key, value, &proof.account_proof).expect("alloy agrees on the account");
    for (claim, (slot, value)) in proof.storage_proof.iter().zip(&verified.slots) {
        let value = (!value.is_zero()).then(|| alloy_rlp::encode(value));
        let key = Nibbles::unpack(keccak256(slot));
        verify_proof(verified.storage_root, key, value, &claim.proof).expect("and on the slot");
    }
    assert!(!absent || root == EMPTY_ROOT);
}

#[test]
fn proofs_of_what_is_there_and_what_is_not_verify_here_and_by_alloy() {
    let mut random = Random(11);
    let (mut present, mut absent, mut slots) = (0, 0, 0);
    for round in 0..steps(20, 400) {
        let state = hashed(&mut random, 1 + round % 40, 1 + round % 12);
        let mut trie = trie_of(&state.model);
        let root = state.model.root();
        for proof in proofs(&state, &mut trie, &mut random) {
            agrees_with_alloy(root, &proof);
            is_the_same_in_alloys_type(root, &proof);
            let verified = verify_account_proof(root, &proof).expect("a true proof");
            let expected = state.model.0.get(&keccak256(proof.address));
            assert_eq!(verified.account, expected.map(|(account, _)| *account));
            let root = expected.map_or(EMPTY_ROOT, |(_, slots)| storage_root(slots));
            assert_eq!(verified.storage_root, root);
            for (slot, value) in &verified.slots {
                let held = expected.and_then(|(_, slots)| slots.get(&keccak256(slot)));
                assert_eq!(*value, held.copied().unwrap_or_default());
                slots += 1;
            }
            *(if expected.is_some() {
                &mut present
            } else {
                &mut absent
            }) += 1;
        }
    }
    println!("{present} accounts present, {absent} absent, {slots} slots");
}

#[test]
fn a_trie_of_nothing_proves_that_all_is_absent() {
    let mut empty = PartialTrie::new(cambium_primitives::Path::EMPTY);
    let slots = [B256::ZERO.into()];
    let mut proof = empty
        .prove_account(Address::ZERO, &slots, &mut NoResolve)
        .expect("empty");
    assert!(proof.account_proof.is_empty());
    for nodes in [vec![], vec![Bytes::from_static(&[0x80])]] {
        proof.account_proof = nodes;
        let verified = verify_account_proof(EMPTY_ROOT, &proof).expect("absent");
        assert_eq!(verified.account, None);
        assert!(verify_account_proof(B256::repeat_byte(1), &proof).is_err());
    }
    // Some nodes claim zero hashes of absent accounts.
    (proof.code_hash, proof.storage_hash) = (B256::ZERO, B256::ZERO);
    assert!(verify_account_proof(EMPTY_ROOT, &proof).is_ok());
    proof.balance = U256::ONE;
    let fault = ProofFault::Claim { field: "balance" };
    let expected = ProofError::Account {
        address: Address::ZERO,
        fault,
    };
    assert_eq!(verify_account_proof(EMPTY_ROOT, &proof), Err(expected));
}

/// Every proof that differs from `proof` in one byte, or lacks, repeats or swaps a node.
fn mutants(proof: &AccountProof) -> Vec<AccountProof> {
    let mut mutants = vec![];
    let mut add = |change: &mut dyn FnMut(&mut AccountProof)| {
        let mut mutant = proof.clone();
        change(&mut mutant);
        if mutant != *proof {
            mutants.push(mutant);
        }
    };
    add(&mut |proof| proof.nonce ^= 1);
    add(&mut |proof| proof.balance ^= U256::from(0x100));
    add(&mut |proof| proof.code_hash[3] ^= 1);
    add(&mut |proof| proof.storage_hash[3] ^= 1);
    let lists = 1 + proof.storage_proof.len();
    for at in 0..lists {
        if at > 0 {
            add(&mut |proof| proof.storage_proof[at - 1].value ^= U256::ONE);
            add(&mut |proof| proof.storage_proof[at - 1].value = U256::ZERO);
        }
        let list = |proof: &AccountProof| match at.checked_sub(1) {
            None => proof.account_proof.clone(),
            Some(at) => proof.storage_proof[at].proof.clone(),
        };
        let mut put = |nodes: Vec<Bytes>| {
            add(&mut |proof| match at.checked_sub(1) {
                None => proof.account_proof = nodes.clone(),
                Some(at) => proof.storage_proof[at].proof = nodes.clone(),
            });
        };
        let nodes = list(proof);
        put(vec![]);
        // Of a trie of nothing that would be another form of the same proof.
        if !nodes.is_empty() {
            put([nodes.clone(), vec![Bytes::from_static(&[0x80])]].concat());
        }
        for index in 0..nodes.len() {
            put([&nodes[..index], &nodes[index + 1..]].concat());
            put([&nodes[..=index], &nodes[index..]].concat());
            let mut swapped = nodes.clone();
            swapped.swap(index, 0);
            put(swapped);
            for byte in 0..nodes[index].len() {
                let mut flipped = nodes.clone();
                let mut bytes = flipped[index].to_vec();
                bytes[byte] ^= 1 << (byte % 8);
                flipped[index] = bytes.into();
                put(flipped);
            }
            let mut cut = nodes.clone();
            cut[index] = nodes[index].slice(..nodes[index].len() - 1);
            put(cut);
        }
    }
    mutants
}

#[test]
fn no_mutant_of_a_proof_verifies() {
    let mut random = Random(5);
    let (mut tried, mut seen) = (0, 0);
    for accounts in steps_of_sizes() {
        let state = hashed(&mut random, accounts, 6);
        let mut trie = trie_of(&state.model);
        let root = state.model.root();
        for proof in proofs(&state, &mut trie, &mut random).iter().step_by(3) {
            seen += 1;
            for mutant in mutants(proof) {
                tried += 1;
                assert!(verify_account_proof(root, &mutant).is_err(), "{mutant:?}");
            }
        }
    }
    println!("{tried} mutants of {seen} proofs");
}

fn steps_of_sizes() -> Vec<usize> {
    (0..steps(1, 8)).flat_map(|_| [1, 2, 3, 9, 30]).collect()
}

#[test]
fn a_multiproof_has_each_node_once_and_proves_all_its_keys() {
    let mut random = Random(23);
    let (mut single, mut shared) = (0, 0);
    for round in 0..steps(20, 400) {
        let state = hashed(&mut random, 1 + 3 * round % 60, 8);
        let mut trie = trie_of(&state.model);
        let root = state.model.root();
        let mut names = vec![];
        for _ in 0..1 + random.below(12) {
            let slots = (0..random.below(4)).map(|_| keccak256(random.pick(&state.slots)));
            let slots = slots.collect::<Vec<_>>();
            names.push((keccak256(random.pick(&state.addresses)), slots));
        }
        let keys = ProofTargets::new(names);
        let whole = trie.clone();
        let proof = root_stub(&whole)
            .prove_many(&keys, &mut NodeByNode(&whole))
            .expect("there");
        assert_eq!(
            trie.prove_many(&keys, &mut NoResolve).expect("there"),
            proof
        );
        for proved in proof.verify(root, &keys).expect("a true proof") {
            let held = state.model.0.get(&proved.path);
            assert_eq!(proved.account, held.map(|(account, _)| *account));
            for (slot, value) in proved.slots {
                let held = held.and_then(|(_, slots)| slots.get(&slot));
                assert_eq!(value, held.copied().unwrap_or_default());
            }
        }
        shared += proof.nodes.len();
        single += keys.accounts().iter().fold(0, |sum, name| {
            let alone = trie.prove_many(&ProofTargets::new(vec![name.clone()]), &mut NoResolve);
            sum + alone.expect("there").nodes.len()
        });
        for index in 0..proof.nodes.len() {
            let mut fewer = proof.clone();
            let node = fewer.nodes.remove(index);
            assert!(fewer.verify(root, &keys).is_err(), "without node {index}");
            let mut twice = proof.clone();
            twice.nodes.push(node.clone());
            let surplus = MultiProofError::Surplus { surplus: 1 };
            assert_eq!(twice.verify(root, &keys), Err(surplus));
            let byte = random.below(node.len());
            let mut flipped = node.to_vec();
            flipped[byte] ^= 0x10;
            let mut mutant = proof.clone();
            mutant.nodes[index] = flipped.into();
            assert!(
                mutant.verify(root, &keys).is_err(),
                "node {index} byte {byte}"
            );
        }
    }
    println!("{shared} nodes shared, {single} in proofs of one account each");
}

#[test]
fn a_node_beside_the_way_is_surplus_in_a_multiproof() {
    let state = hashed(&mut Random(3), 30, 3);
    let mut trie = trie_of(&state.model);
    let paths: Vec<_> = state.model.0.keys().map(|path| (*path, vec![])).collect();
    let all = trie
        .prove_many(&ProofTargets::new(paths.clone()), &mut NoResolve)
        .expect("there");
    let error = all
        .verify(state.model.root(), &ProofTargets::new(paths[..1].to_vec()))
        .unwrap_err();
    assert!(matches!(error, MultiProofError::Surplus { .. }), "{error}");
    let none = MultiProof::default().verify(state.model.root(), &ProofTargets::default());
    assert_eq!(none, Ok(vec![]));
}

#[cfg(feature = "serde")]
#[test]
fn a_proof_has_the_json_form_of_eth_get_proof() {
    let mut random = Random(2);
    let state = hashed(&mut random, 12, 3);
    let mut trie = trie_of(&state.model);
    let slots = [
        StorageKey {
            slot: B256::with_last_byte(2),
            quantity: true,
        },
        StorageKey::from(B256::ZERO),
        StorageKey {
            slot: B256::ZERO,
            quantity: true,
        },
    ];
    let proof = trie
        .prove_account(state.addresses[0], &slots, &mut NoResolve)
        .expect("there");
    let json = serde_json::to_value(&proof).expect("JSON");
    let names: Vec<_> = json.as_object().expect("an object").keys().collect();
    let expected = [
        "accountProof",
        "address",
        "balance",
        "codeHash",
        "nonce",
        "storageHash",
        "storageProof",
    ];
    let mut names: Vec<_> = names.into_iter().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, expected);
    assert_eq!(json["nonce"], format!("{:#x}", proof.nonce));
    assert_eq!(json["balance"], format!("{:#x}", proof.balance));
    let keys: Vec<_> = (0..3)
        .map(|at| json["storageProof"][at]["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["0x2", format!("{:#x}", B256::ZERO).as_str(), "0x0"]);
    assert_eq!(json["storageProof"][0]["value"], "0x0");
    let back: AccountProof = serde_json::from_value(json.clone()).expect("what was just written");
    assert_eq!(back, proof);
    for (key, fine) in [("0x02", true), ("0x", false), ("0xg", false), ("", false)] {
        let mut json = json.clone();
        json["storageProof"][0]["key"] = key.into();
        assert_eq!(
            serde_json::from_value::<AccountProof>(json).is_ok(),
            fine,
            "{key}"
        );
    }
}

#[test]
fn the_root_of_an_empty_trie_is_that_of_alloy() {
    assert_eq!(cambium_trie::EMPTY_ROOT, alloy_trie::EMPTY_ROOT_HASH);
}
