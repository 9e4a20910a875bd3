//! Proofs of entries of key-value databases.

use crate::{input::Input, links::linked};
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};
use cambium_trie::{
    BinaryProofError, Blake3, Commitment, EntryProof, EntryProofError, EntryWrite, MultiProof,
    NoResolve, PartialTrie, Sha256, ValueCommitment, commit, verify_entries, verify_entry_range,
    verify_entry_update,
};

/// Entries of the database that true proofs are of.
const ENTRIES: u8 = 24;

/// Input: a commitment; keys; then an encoded proof, or, where the commitment is 3, nodes of a Merkle
/// Patricia trie with marks in place of hashes.
///
/// A proof that is read is in its only form. What it shows of a true root is true. Of its own root, whatever
/// that is, it shows the same before and after writes that change nothing, and in a range what it shows of the keys
/// in it.
pub fn entry_proof(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let number = input.u8();
    let commitment = commitment(number);
    let keys: Vec<_> = (0..input.below(16)).map(|_| key(input.u8())).collect();
    let proof = match number {
        3 => {
            let mut nodes = linked(input.pieces(32));
            nodes.sort_unstable_by_key(|node| keccak256(node));
            nodes.dedup();
            nodes.retain(|node| !node.is_empty());
            let proof = EntryProof::Mpt(MultiProof { nodes });
            assert_eq!(EntryProof::decode(&proof.encode()), Ok(proof.clone()));
            proof
        }
        _ => {
            let Ok(proof) = EntryProof::decode(input.rest()) else {
                return;
            };
            assert_eq!(
                proof.encode(),
                input.rest(),
                "another form of the same proof"
            );
            proof
        }
    };
    let trie = database(commitment);
    let root = trie.state_root().expect("hashed");
    if let Ok(shown) = verify_entries(root, commitment, &proof, &keys) {
        let known = keys.iter().map(|key| known(commitment, key));
        assert!(shown.into_iter().eq(known), "what is shown is false");
    }
    for root in own_roots(commitment, &proof) {
        check(root, commitment, &proof, &keys);
    }
}

/// The commitment of a number.
pub(crate) fn commitment(number: u8) -> Commitment {
    match number {
        1 => Commitment::Binary(&Blake3),
        2 => Commitment::Binary(&Sha256),
        _ => Commitment::Mpt,
    }
}

/// The key of a number: keys share long and short prefixes.
pub(crate) fn key(number: u8) -> B256 {
    let mut key = B256::repeat_byte(number % 4);
    key[usize::from(number) % 32] ^= number;
    key
}

fn value(number: u8) -> Vec<u8> {
    vec![number; usize::from(number) * 3]
}

/// What is known of a key of the database.
fn known(commitment: Commitment, asked: &B256) -> Option<ValueCommitment> {
    // The last one counts, if two numbers have one key.
    let number = (0..ENTRIES).rev().find(|number| key(*number) == *asked)?;
    Some(ValueCommitment::of(commitment, &value(number)))
}

/// The database that true proofs are of.
pub(crate) fn database(commitment: Commitment) -> PartialTrie {
    let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
    for number in 0..ENTRIES {
        let put = AccountDiff {
            path: key(number),
            account: AccountUpdate::Entry(EntryValue::Inline(Bytes::from(value(number)))),
            wipe: false,
            slots: vec![],
        };
        trie.apply(&[put], &mut NoResolve)
            .expect("nothing is missing");
    }
    commit(&mut [&mut trie], &mut Default::default());
    trie
}

/// Roots that the proof may be of.
fn own_roots(commitment: Commitment, proof: &EntryProof) -> Vec<B256> {
    match proof {
        EntryProof::Mpt(proof) => proof.nodes.iter().map(keccak256).collect(),
        EntryProof::Binary(_) => {
            match verify_entries(B256::repeat_byte(1), commitment, proof, &[]) {
                Err(EntryProofError::Binary(BinaryProofError::Root { got, .. })) => vec![got],
                _ => vec![],
            }
        }
    }
}

fn check(root: B256, commitment: Commitment, proof: &EntryProof, keys: &[B256]) {
    let Ok(shown) = verify_entries(root, commitment, proof, keys) else {
        return;
    };
    let mut writes: Vec<EntryWrite> = keys.iter().copied().zip(shown.clone()).collect();
    writes.sort_unstable_by_key(|(key, _)| *key);
    writes.dedup_by_key(|(key, _)| *key);
    let same = verify_entry_update(root, commitment, proof, keys, &writes).expect("keys are shown");
    assert_eq!((same.values, same.root), (shown, root));
    let deleted: Vec<EntryWrite> = writes.iter().map(|(key, _)| (*key, None)).collect();
    let _ = verify_entry_update(root, commitment, proof, keys, &deleted);
    let (Some((first, _)), Some((last, _))) = (writes.first(), writes.last()) else {
        return;
    };
    if let Ok(found) = verify_entry_range(root, commitment, proof, *first, *last) {
        for (key, value) in &writes {
            let there = found.iter().find(|(other, _)| other == key);
            assert_eq!(there.map(|(_, value)| value), value.as_ref());
        }
    }
}
