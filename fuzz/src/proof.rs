//! Proofs of an account and its slots.

use crate::{input::Input, links::linked};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_trie::{Nibbles, TrieAccount, proof::verify_proof};
use cambium_primitives::{Account, Path};
use cambium_trie::{
    AccountProof, EMPTY_ROOT, Lookup, PartialTrie, StorageKey, StorageProof, verify_account_proof,
};

/// Input: a byte that decides whether a claim is falsified, the number of an address, the nodes of
/// its account, and the number and nodes of each slot. Marks in nodes are replaced by hashes. If
/// the first byte is 0xff, the rest is a proof in JSON.
///
/// A proof is verified exactly if another implementation verifies it, and its values equal those in
/// a trie of the same nodes. A false claim is rejected.
pub fn proof(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (claims, address) = (input.u8(), Address::with_last_byte(input.u8()));
    if claims == 0xff {
        return json(input.rest());
    }
    let mut nodes = input.pieces(8);
    let mut ends = vec![nodes.len()];
    let mut slots = Vec::new();
    for _ in 0..input.below(4) {
        slots.push(B256::with_last_byte(input.u8()));
        nodes.extend(input.pieces(8));
        ends.push(nodes.len());
    }
    let nodes = linked(nodes);
    let root = nodes[..ends[0]].first().map_or(EMPTY_ROOT, keccak256);
    let Ok((trie, _)) = PartialTrie::from_witness(root, &nodes) else {
        // The trie may reject nodes beside the path, at which a proof does not look.
        let _ = verify_account_proof(root, &empty(address, &nodes));
        return;
    };
    let path = keccak256(address);
    let account = match trie.lookup(&Path::account(&path)) {
        Lookup::Account(account) => Some(account),
        _ => None,
    };
    let storage = account.and_then(|_| trie.find(&Path::account(&path)));
    let storage_hash = storage.and_then(|link| trie.storage_root_at(link));
    let value_of = |slot: &B256| match trie.lookup(&Path::slot(&path, &keccak256(slot))) {
        Lookup::Slot(value) => value,
        _ => U256::ZERO,
    };
    let fields = account.unwrap_or_default();
    let storage_proof = slots
        .iter()
        .zip(ends.windows(2))
        .map(|(slot, range)| StorageProof {
            key: StorageKey::from(*slot),
            value: value_of(slot),
            proof: nodes[range[0]..range[1]].to_vec(),
        });
    let honest = AccountProof {
        address,
        account_proof: nodes[..ends[0]].to_vec(),
        balance: fields.balance,
        code_hash: fields.code_hash,
        nonce: fields.nonce,
        storage_hash: storage_hash.unwrap_or(EMPTY_ROOT),
        storage_proof: storage_proof.collect(),
    };
    let Ok(verified) = verify_account_proof(root, &honest) else {
        return;
    };
    assert_eq!(verified.account, account, "another account than the trie's");
    assert_eq!(verified.storage_root, honest.storage_hash);
    let claimed = honest
        .storage_proof
        .iter()
        .map(|slot| (slot.key.slot, slot.value));
    assert!(
        verified.slots.iter().copied().eq(claimed),
        "other slots than the trie's"
    );
    check_elsewhere(root, account, &honest);
    let false_proof = falsified(honest, claims);
    let refused = verify_account_proof(root, &false_proof);
    assert!(
        refused.is_err(),
        "a false claim is verified: {false_proof:?}"
    );
}

fn empty(address: Address, nodes: &[Bytes]) -> AccountProof {
    AccountProof {
        address,
        account_proof: nodes.to_vec(),
        balance: U256::ZERO,
        code_hash: KECCAK256_EMPTY,
        nonce: 0,
        storage_hash: EMPTY_ROOT,
        storage_proof: vec![],
    }
}

/// Verifies the same proof with another implementation.
fn check_elsewhere(root: B256, account: Option<Account>, proof: &AccountProof) {
    let rlp = account.map(|account| {
        let account = TrieAccount {
            nonce: account.nonce,
            balance: account.balance,
            storage_root: proof.storage_hash,
            code_hash: account.code_hash,
        };
        alloy_rlp::encode(account)
    });
    let key = Nibbles::unpack(keccak256(proof.address));
    let nodes = &proof.account_proof;
    if !nodes.is_empty() {
        let verified = verify_proof(root, key, rlp, nodes);
        verified.expect("the account's proof holds elsewhere");
    }
    for slot in proof
        .storage_proof
        .iter()
        .filter(|slot| !slot.proof.is_empty())
    {
        let value = (!slot.value.is_zero()).then(|| alloy_rlp::encode(slot.value));
        let key = Nibbles::unpack(keccak256(slot.key.slot));
        let verified = verify_proof(proof.storage_hash, key, value, &slot.proof);
        verified.expect("a slot's proof holds elsewhere");
    }
}

/// Returns the proof with one change.
fn falsified(mut proof: AccountProof, how: u8) -> AccountProof {
    let slots = proof.storage_proof.len();
    match how % 6 {
        0 => proof.nonce ^= 1,
        1 => proof.balance ^= U256::ONE,
        2 => proof.code_hash = B256::repeat_byte(7),
        3 => proof.storage_hash = B256::repeat_byte(7),
        4 if slots > 0 => proof.storage_proof[slots - 1].value ^= U256::ONE,
        _ => proof.account_proof.push(Bytes::from_static(&[0xc0])),
    }
    proof
}

/// Reads a proof from JSON.
fn json(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<AccountProof>(bytes) else {
        return;
    };
    let text = serde_json::to_string(&read).expect("a proof has its form");
    assert_eq!(
        serde_json::from_str::<AccountProof>(&text).expect("its form"),
        read
    );
}
