//! Proofs of entries of key-value databases.

use crate::{input::Input, links::linked};
use alloy_primitives::{B256, Bytes, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};
use cambium_trie::{
    Alone, BinaryProofError, Blake3, Commitment, EMPTY_ROOT, EntryProof, EntryProofError,
    EntryWrite, LayeredCommit, LayeredEntryProof, LayeredEntryProver, LayeredRoots, MultiProof,
    NoResolve, PartialTrie, Sha256, UpperTrie, ValueCommitment, commit, layered_root,
    verify_entries, verify_entry_range, verify_entry_update, verify_layered_update,
};
use std::{collections::BTreeMap, num::NonZeroU64};

/// Entries of the database that true proofs are of.
const ENTRIES: u8 = 24;

/// Input: a commitment; keys; then an encoded proof, or, where the commitment is 3, nodes of a Merkle
/// Patricia trie with marks in place of hashes. With 4, the proof is one of three tries, and with 5 it is
/// given as nodes of each of these.
///
/// A proof that is read is in its only form. Its values under a true root are true. Under its own root, true or not, it
/// shows the same values before and after writes that change nothing, and in a range the same as for the keys in it.
pub fn entry_proof(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let number = input.u8();
    let commitment = commitment(number);
    let keys: Vec<_> = (0..input.below(16)).map(|_| key(input.u8())).collect();
    let proof = match number {
        3 => {
            let (_, proof) = nodes(&mut input);
            let proof = EntryProof::Mpt(proof);
            assert_eq!(EntryProof::decode(&proof.encode()), Ok(proof.clone()));
            proof
        }
        5 => {
            let tries = [(); 3].map(|()| nodes(&mut input));
            let [delta, intermediate, snapshot] = tries;
            let roots = LayeredRoots {
                delta: delta.0,
                intermediate: intermediate.0,
                snapshot: snapshot.0,
            };
            let proof = EntryProof::Layered(Box::new(LayeredEntryProof {
                roots,
                delta: delta.1,
                intermediate: intermediate.1,
                snapshot: snapshot.1,
            }));
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
    let (root, known) = match commitment {
        Commitment::Layered => {
            let layers = Layers::new();
            let known = keys.iter().map(|key| layers.known(key));
            (layers.root, known.collect::<Vec<_>>())
        }
        _ => {
            let root = database(commitment).state_root().expect("hashed");
            let known = keys.iter().map(|key| known(commitment, key));
            (root, known.collect())
        }
    };
    if let Ok(shown) = verify_entries(root, commitment, &proof, &keys) {
        assert_eq!(shown, known, "what is shown is false");
    }
    for root in own_roots(commitment, &proof) {
        check(root, commitment, &proof, &keys);
    }
}

/// Nodes that refer to each other by marks, in the order of a proof, and the hash of the first one.
fn nodes(input: &mut Input<'_>) -> (B256, MultiProof) {
    let mut nodes = linked(input.pieces(32));
    nodes.retain(|node| !node.is_empty());
    let root = nodes.first().map_or(EMPTY_ROOT, keccak256);
    nodes.sort_unstable_by_key(|node| keccak256(node));
    nodes.dedup();
    (root, MultiProof { nodes })
}

/// The commitment of a number.
pub(crate) fn commitment(number: u8) -> Commitment {
    match number {
        1 => Commitment::Binary(&Blake3),
        2 => Commitment::Binary(&Sha256),
        4 | 5 => Commitment::Layered,
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

/// Known value of a key of the database.
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
        EntryProof::Layered(proof) => vec![proof.roots.root()],
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
    let deleted: Vec<EntryWrite> = writes.iter().map(|(key, _)| (*key, None)).collect();
    if commitment == Commitment::Layered {
        check_layered_update(root, proof, keys, &shown, &writes, &deleted);
    } else {
        let same = verify_entry_update(root, commitment, proof, keys, &writes);
        let same = same.expect("keys are shown");
        assert_eq!((same.values, same.root), (shown, root));
        let _ = verify_entry_update(root, commitment, proof, keys, &deleted);
    }
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

/// Writes that change nothing leave the roots as they are within an interval; the first ones of an interval
/// leave an empty delta.
fn check_layered_update(
    root: B256,
    proof: &EntryProof,
    keys: &[B256],
    shown: &[Option<ValueCommitment>],
    writes: &[EntryWrite],
    deleted: &[EntryWrite],
) {
    let commit = |number, claimed_snapshot| LayeredCommit {
        number,
        merge_interval: NonZeroU64::new(2).expect("not zero"),
        claimed_snapshot,
    };
    let within = commit(2, None);
    let same = verify_layered_update(root, within, proof, keys, writes).expect("keys are shown");
    assert_eq!((&same.values[..], same.root), (shown, root));
    let _ = verify_layered_update(root, within, proof, keys, deleted);
    let first = [None, Some(B256::ZERO)].map(|claimed| {
        let _ = verify_layered_update(root, commit(3, claimed), proof, keys, deleted);
        verify_layered_update(root, commit(3, claimed), proof, keys, writes)
    });
    // A claim is either needed or refused.
    let mut begun = first.into_iter().flatten();
    let proved = begun.next().expect("keys are shown");
    assert!(begun.next().is_none());
    assert_eq!(proved.roots.delta, EMPTY_ROOT);
    assert_eq!(proved.roots.intermediate, same.roots.delta);
}

/// The three tries of the database under `layered` that true proofs are of, and its entries.
pub(crate) struct Layers {
    delta: UpperTrie,
    intermediate: UpperTrie,
    snapshot: PartialTrie,
    entries: BTreeMap<B256, Vec<u8>>,
    root: B256,
}

impl Layers {
    pub(crate) fn new() -> Self {
        let snapshot = database(Commitment::Layered);
        let mut entries = BTreeMap::new();
        for number in 0..ENTRIES {
            entries.insert(key(number), value(number));
        }
        let mut uppers = [(5, 3), (7, 4)].map(|(step, odds)| {
            let mut upper = UpperTrie::of_entries();
            for number in (0..2 * ENTRIES).step_by(step) {
                let value = (number % odds > 0).then(|| value(number + 1));
                match &value {
                    Some(value) => drop(entries.insert(key(number), value.clone())),
                    None => drop(entries.remove(&key(number))),
                }
                let value = value.map(|value| EntryValue::Inline(value.into()));
                let change = AccountDiff {
                    path: key(number),
                    account: value.map_or(AccountUpdate::Delete, AccountUpdate::Entry),
                    wipe: false,
                    slots: vec![],
                };
                upper.apply(&[change]).expect("one change");
            }
            upper
        });
        let roots = uppers.each_mut().map(|upper| upper.hash(&Alone));
        let [intermediate, delta] = uppers;
        let below = snapshot.state_root().expect("hashed");
        Self {
            delta,
            intermediate,
            snapshot,
            entries,
            root: layered_root(roots[1], roots[0], below),
        }
    }

    /// Known value of a key of the database.
    fn known(&self, asked: &B256) -> Option<ValueCommitment> {
        let value = self.entries.get(asked)?;
        Some(ValueCommitment::of(Commitment::Layered, value))
    }

    pub(crate) fn prove(&mut self, keys: &[B256]) -> EntryProof {
        let prover = LayeredEntryProver::new(&mut self.delta, &mut self.intermediate, keys);
        let targets = prover.snapshot_targets();
        let part = self.snapshot.extract(&targets, &mut NoResolve);
        prover.finish(&part.expect("nothing is missing"))
    }
}
