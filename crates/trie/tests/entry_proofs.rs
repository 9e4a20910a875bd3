//! Proofs of entries: they show the entries of the model, nomt-core verifies the same claims, and false claims are
//! rejected.

use crate::common;
use crate::common::{
    NodeByNode, Random,
    entries::{Entries, commitments, expected_root, random_changes, random_value, trie_of_entries},
    root_stub, steps,
};
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue, Path};
use cambium_trie::{
    Batch, BinaryProof, Commitment, EntryProof, EntryWrite, LeafRange, MultiProof, NoResolve,
    PartialTrie, ValueCommitment, commit, verify_entries, verify_entry_range,
    verify_entry_range_up_to, verify_entry_update,
};
use nomt_core::{
    hasher::{Blake3Hasher, NodeHasher, Sha2Hasher},
    proof::{MultiProof as NomtProof, PathProof, PathProofTerminal, verify_multi_proof},
    trie::LeafData,
    trie_pos::TriePosition,
};
use std::{collections::BTreeMap, num::NonZeroUsize};

/// A database, keys of which some are in it, and its trie.
struct World {
    commitment: Commitment,
    entries: Entries,
    keys: Vec<B256>,
    trie: PartialTrie,
    root: B256,
}

impl World {
    fn new(commitment: Commitment, random: &mut Random, count: usize) -> Self {
        let mut keys = match random.one_in(2) {
            true => random.close_keys(2 * count),
            false => (0..2 * count).map(|_| random.b256()).collect(),
        };
        let entries: Entries = keys[..count]
            .iter()
            .map(|key| (*key, random_value(random)))
            .collect();
        for at in 0..count {
            // Keys that part from others at any bit.
            let mut key = keys[at];
            let bit = random.below(256);
            key[bit / 8] ^= 1 << (bit % 8);
            keys.push(key);
        }
        keys.push(random.b256());
        let trie = trie_of_entries(commitment, &entries);
        let root = expected_root(commitment, &entries);
        assert_eq!(trie.state_root(), Some(root));
        Self {
            commitment,
            entries,
            keys,
            trie,
            root,
        }
    }

    fn some_keys(&self, random: &mut Random, max: usize) -> Vec<B256> {
        let count = random.below(max + 1);
        (0..count).map(|_| random.pick(&self.keys)).collect()
    }

    fn value(&self, key: &B256) -> Option<ValueCommitment> {
        let value = self.entries.get(key)?;
        Some(ValueCommitment::of(self.commitment, value))
    }

    fn values(&self, keys: &[B256]) -> Vec<Option<ValueCommitment>> {
        keys.iter().map(|key| self.value(key)).collect()
    }

    fn prove(&self, keys: &[B256]) -> EntryProof {
        let proof = self.trie.clone().prove_entries(keys, &mut NoResolve);
        proof.expect("a whole trie")
    }

    fn refuses(&self, proof: &EntryProof, keys: &[B256]) -> bool {
        verify_entries(self.root, self.commitment, proof, keys).is_err()
    }
}

/// Worlds of every commitment, some of them tiny.
fn for_each_world(seeds: u64, count_max: usize, mut check: impl FnMut(&World, &mut Random)) {
    for seed in cambium_seeds::seeds!(0..seeds) {
        for commitment in commitments() {
            let mut random = Random(seed);
            let count = match seed % 4 {
                0 => random.below(3),
                _ => 1 + random.below(count_max),
            };
            let world = World::new(commitment, &mut random, count);
            check(&world, &mut random);
        }
    }
}

fn coded(proof: &EntryProof) -> EntryProof {
    let bytes = proof.encode();
    let decoded = EntryProof::decode(&bytes).expect("what was just encoded");
    assert_eq!(&decoded, proof);
    assert_eq!(decoded.encode(), bytes);
    decoded
}

#[test]
fn any_keys_are_proved_present_or_absent() {
    for_each_world(60, 120, |world, random| {
        for _ in 0..4 {
            let keys = world.some_keys(random, 30);
            let proof = coded(&world.prove(&keys));
            let values = verify_entries(world.root, world.commitment, &proof, &keys);
            assert_eq!(values, Ok(world.values(&keys)));
            if world.entries.is_empty() {
                continue;
            }
            // The same from a trie of which each node is loaded when it is needed.
            let mut blinded = root_stub(&world.trie).committed_by(world.commitment);
            let loaded = blinded.prove_entries(&keys, &mut NodeByNode(&world.trie));
            assert_eq!(loaded, Ok(proof.clone()));
            // And from a part that was extracted for these keys.
            let targets = keys.iter().map(|key| (*key, vec![])).collect();
            let targets = cambium_trie::ProofTargets::new(targets);
            let mut part = world
                .trie
                .clone()
                .extract(&targets, &mut NoResolve)
                .unwrap();
            assert_eq!(part.prove_entries(&keys, &mut NoResolve), Ok(proof));
        }
    });
}

#[test]
fn a_proof_is_of_its_keys_and_no_others() {
    let mut refused = 0;
    for_each_world(40, 60, |world, random| {
        let keys = world.some_keys(random, 10);
        let proof = world.prove(&keys);
        for _ in 0..10 {
            let others = world.some_keys(random, 10);
            let verified = verify_entries(world.root, world.commitment, &proof, &others);
            // It verifies exactly if it is the proof of the others as well.
            match world.prove(&others) == proof {
                true => assert_eq!(verified, Ok(world.values(&others))),
                false => assert!(verified.is_err()),
            }
            refused += usize::from(verified.is_err());
        }
    });
    assert!(refused > 500);
}

#[test]
fn values_are_confirmed_by_their_commitments() {
    for commitment in commitments() {
        for len in [0, 1, 31, 32, 33, 512, 513, 100_000] {
            let value = vec![9; len];
            let shown = ValueCommitment::of(commitment, &value);
            assert!(shown.is_of(commitment, &value));
            for other in [vec![8; len], vec![9; len + 1]] {
                assert_eq!(shown.is_of(commitment, &other), other == value);
            }
            let entry = common::entries::value_of(commitment, &value);
            assert_eq!(ValueCommitment::of_entry(commitment, &entry), shown);
        }
    }
}

#[test]
fn a_range_has_all_of_its_entries() {
    for_each_world(60, 80, |world, random| {
        for _ in 0..6 {
            let mut ends = [random.pick(&extremes(world)), random.pick(&extremes(world))];
            ends.sort_unstable();
            let [first, last] = ends;
            let limit = NonZeroUsize::new(1 + random.below(40)).unwrap();
            let mut trie = world.trie.clone();
            let proved = trie.prove_entry_range(first, last, limit, &mut NoResolve);
            let proved = proved.unwrap();
            let mut expected = world.entries.range(first..=last).map(|(key, _)| *key);
            let expected_keys: Vec<_> = expected.by_ref().take(limit.get()).collect();
            assert_eq!(proved.next, expected.next());
            let proof = coded(&proved.proof);
            let last = proved.last;
            let found = verify_entry_range(world.root, world.commitment, &proof, first, last);
            let found = found.unwrap();
            let keys: Vec<_> = found.iter().map(|(key, _)| *key).collect();
            assert_eq!(keys, expected_keys);
            for (key, value) in found {
                assert_eq!(Some(value), world.value(&key));
            }
            // Another range needs other nodes, or has the same entries.
            for other in extremes(world) {
                for (first, last) in [(first, other), (other, last)] {
                    let found =
                        verify_entry_range(world.root, world.commitment, &proof, first, last);
                    if let Ok(found) = found {
                        let there = world.entries.range(first..=last);
                        assert!(
                            there
                                .map(|(key, _)| key)
                                .eq(found.iter().map(|(key, _)| key))
                        );
                    }
                }
            }
        }
    });
}

/// Keys, and both ends of all keys.
fn extremes(world: &World) -> Vec<B256> {
    let ends = [B256::ZERO, B256::repeat_byte(255)];
    world.keys.iter().copied().take(20).chain(ends).collect()
}

#[test]
fn a_range_that_ends_before_it_begins_is_an_error() {
    let [one, two] = [1, 2].map(B256::repeat_byte);
    for commitment in commitments() {
        let world = World::new(commitment, &mut Random(1), 20);
        let limit = NonZeroUsize::MIN;
        let mut trie = world.trie.clone();
        assert!(
            trie.prove_entry_range(two, one, limit, &mut NoResolve)
                .is_err()
        );
        let proof = world.prove(&[one, two]);
        assert!(verify_entry_range(world.root, commitment, &proof, two, one).is_err());
    }
}

fn writes_of(world: &World, changes: &Changes) -> Vec<EntryWrite> {
    let value = |update: &AccountUpdate| match update {
        AccountUpdate::Entry(value) => Some(ValueCommitment::of_entry(world.commitment, value)),
        _ => None,
    };
    let changes = changes.accounts().iter();
    changes
        .map(|change| (change.path, value(&change.account)))
        .collect()
}

#[test]
fn the_root_after_any_writes_follows_from_the_proof_alone() {
    for_each_world(80, 60, |world, random| {
        for round in 0..5 {
            let mut after = world.entries.clone();
            // All of the keys, a few, or those that are there, to the last one.
            let count = 1 + random.below(world.keys.len() + 1);
            let mut keys: Vec<_> = match round {
                0 => world.entries.keys().copied().collect(),
                _ => world.keys.iter().copied().take(count).collect(),
            };
            keys.push(random.b256());
            let changes = random_changes(random, world.commitment, &keys, &mut after);
            let reads = world.some_keys(random, 10);
            let mut trie = world.trie.clone();
            let proof = trie.prove_entry_update(&reads, changes.accounts(), &mut NoResolve);
            let proof = coded(&proof.unwrap());
            let writes = writes_of(world, &changes);
            let update = verify_entry_update(world.root, world.commitment, &proof, &reads, &writes);
            let update = update.unwrap();
            assert_eq!(update.values, world.values(&reads));
            assert_eq!(update.root, expected_root(world.commitment, &after));
            check_with_nomt(world, &reads, &writes, &proof, update.root);
            // Surplus reads, and writes that are not proved, are refused.
            let [fewer, none] = [&writes[..writes.len() - 1], &[]];
            for writes in [fewer, none] {
                let same = trie.prove_entries(
                    &reads
                        .iter()
                        .copied()
                        .chain(writes.iter().map(|(key, _)| *key))
                        .collect::<Vec<_>>(),
                    &mut NoResolve,
                );
                if same.as_ref() != Ok(&proof) && world.commitment != Commitment::Mpt {
                    let commitment = world.commitment;
                    let refused =
                        verify_entry_update(world.root, commitment, &proof, &reads, writes);
                    assert!(refused.is_err());
                }
            }
        }
    });
}

#[test]
fn deleting_everything_or_one_of_two_needs_nothing_else() {
    for_each_world(40, 20, |world, random| {
        let keys: Vec<_> = world.entries.keys().copied().collect();
        let kept = random.below(2).min(keys.len());
        let mut after = world.entries.clone();
        let writes: Vec<EntryWrite> = keys[kept..].iter().map(|key| (*key, None)).collect();
        let changes = writes.iter().map(|(path, _)| {
            after.remove(path);
            cambium_primitives::AccountDiff {
                path: *path,
                account: AccountUpdate::Delete,
                wipe: true,
                slots: vec![],
            }
        });
        let changes: Vec<_> = changes.collect();
        let mut trie = world.trie.clone();
        let proof = trie
            .prove_entry_update(&[], &changes, &mut NoResolve)
            .unwrap();
        let update = verify_entry_update(world.root, world.commitment, &proof, &[], &writes);
        assert_eq!(
            update.unwrap().root,
            expected_root(world.commitment, &after)
        );
    });
}

#[test]
fn writes_out_of_order_or_of_another_commitment_are_refused() {
    for commitment in commitments() {
        let world = World::new(commitment, &mut Random(6), 20);
        let mut keys = world.keys[..2].to_vec();
        keys.sort_unstable();
        let proof = world.prove(&keys);
        let verify = |writes: &[EntryWrite]| {
            verify_entry_update(world.root, commitment, &proof, &keys, writes)
        };
        let value = ValueCommitment::of(commitment, b"new");
        let write = |key: usize| (keys[key], Some(value.clone()));
        assert!(verify(&[write(0), write(1)]).is_ok());
        assert!(verify(&[write(1), write(0)]).is_err());
        assert!(verify(&[write(0), write(0)]).is_err());
        let foreign = match commitment {
            Commitment::Mpt | Commitment::PartialMpt | Commitment::Layered => vec![
                ValueCommitment::Hash(B256::ZERO),
                ValueCommitment::Value(vec![1; 33].into()),
                ValueCommitment::Hashed {
                    len: 32,
                    hash: B256::ZERO,
                },
                ValueCommitment::Hashed {
                    len: (16 << 20) + 1,
                    hash: B256::ZERO,
                },
            ],
            Commitment::Binary(_) => vec![
                ValueCommitment::Value(vec![1].into()),
                ValueCommitment::Hashed {
                    len: 40,
                    hash: B256::ZERO,
                },
            ],
        };
        for value in foreign {
            assert!(verify(&[(keys[0], Some(value))]).is_err());
        }
    }
}

/// The encoding of a binary proof, taken apart as its description says.
#[derive(Clone, Debug)]
struct Raw {
    /// 0 nothing, 1 blinded, 2 leaf, 3 inner, in the order of levels.
    kinds: Vec<u8>,
    hashes: Vec<B256>,
    /// For each leaf, the bytes of its key that are encoded.
    keys: Vec<Vec<u8>>,
    values: Vec<B256>,
}

impl Raw {
    fn new(proof: &BinaryProof) -> Self {
        let mut bytes = Vec::new();
        proof.encode_to(&mut bytes);
        let kind = |at: usize| bytes[at / 4] >> (2 * (at % 4)) & 3;
        let (mut kinds, mut depths) = (vec![], vec![]);
        let (mut width, mut depth) = (1, 0);
        while width > 0 {
            let level: Vec<_> = (kinds.len()..kinds.len() + width).map(kind).collect();
            depths.extend(level.iter().filter(|kind| **kind == 2).map(|_| depth));
            width = 2 * level.iter().filter(|kind| **kind == 3).count();
            kinds.extend(level);
            depth += 1;
        }
        let mut rest = &bytes[kinds.len().div_ceil(4)..];
        let mut take = |len: usize| {
            let (taken, others) = rest.split_at(len);
            rest = others;
            taken.to_vec()
        };
        let blinded = kinds.iter().filter(|kind| **kind == 1);
        let hashes = blinded.map(|_| B256::from_slice(&take(32))).collect();
        let keys = depths.iter().map(|depth| take(32 - depth / 8)).collect();
        let values = depths.iter().map(|_| B256::from_slice(&take(32))).collect();
        assert!(rest.is_empty());
        Self {
            kinds,
            hashes,
            keys,
            values,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![2];
        for kinds in self.kinds.chunks(4) {
            bytes.push(kinds.iter().rev().fold(0, |byte, kind| byte << 2 | kind));
        }
        bytes.extend(self.hashes.iter().flat_map(|hash| hash.0));
        bytes.extend(self.keys.iter().flatten());
        bytes.extend(self.values.iter().flat_map(|hash| hash.0));
        bytes
    }

    /// Siblings from the root down and the leaf at the end, in the proof of one key.
    fn path(&self, key: &B256) -> (Vec<[u8; 32]>, Option<LeafData>) {
        let mut siblings = vec![];
        let mut hashes = self.hashes.iter();
        let mut kind = self.kinds[0];
        for (depth, pair) in self.kinds[1..].chunks(2).enumerate() {
            assert_eq!(kind, 3);
            let one = key[depth / 8] & (0x80 >> (depth % 8)) != 0;
            let (own, sibling) = match one {
                true => (pair[1], pair[0]),
                false => (pair[0], pair[1]),
            };
            siblings.push(match sibling {
                0 => [0; 32],
                1 => hashes.next().unwrap().0,
                kind => panic!("{kind} beside the way of a single key"),
            });
            kind = own;
        }
        let leaf = (kind == 2).then(|| {
            let rest = &self.keys[0];
            let mut path = key.0;
            let known = siblings.len() % 8;
            let at = 32 - rest.len();
            path[at..].copy_from_slice(rest);
            if known > 0 {
                path[at] |= key[at] & !(0xff >> known);
            }
            LeafData {
                key_path: path,
                value_hash: self.values[0].0,
            }
        });
        (siblings, leaf)
    }
}

fn binary(proof: &EntryProof) -> &BinaryProof {
    match proof {
        EntryProof::Binary(proof) => proof,
        EntryProof::Mpt(_) | EntryProof::Layered(_) => panic!("a proof of another commitment"),
    }
}

/// nomt-core's proof of one key.
fn path_proof(world: &World, key: &B256) -> PathProof {
    let proof = world.prove(&[*key]);
    let (siblings, leaf) = Raw::new(binary(&proof)).path(key);
    let position = match siblings.len() as u16 {
        0 => TriePosition::new(),
        depth => TriePosition::from_path_and_depth(key.0, depth),
    };
    let terminal = leaf.map_or(
        PathProofTerminal::Terminator(position),
        PathProofTerminal::Leaf,
    );
    PathProof { terminal, siblings }
}

/// Least bytes that nomt-core's proof takes: a byte for the kind and two for the depth of each terminal.
fn nomt_bytes(proof: &NomtProof) -> usize {
    let terminal = |terminal: &PathProofTerminal| match terminal {
        PathProofTerminal::Leaf(_) => 64,
        PathProofTerminal::Terminator(_) => 32,
    };
    let paths = proof.paths.iter().map(|path| 3 + terminal(&path.terminal));
    paths.sum::<usize>() + 32 * proof.siblings.len()
}

/// Verifies the same reads and writes with nomt-core, whose proof is at least as large.
fn check_with_nomt(
    world: &World,
    reads: &[B256],
    writes: &[EntryWrite],
    proof: &EntryProof,
    root_after: B256,
) {
    match world.commitment {
        Commitment::Mpt | Commitment::PartialMpt | Commitment::Layered => {}
        Commitment::Binary(hasher) if hasher.name() == "blake3" => {
            nomt::<Blake3Hasher>(world, reads, writes, proof, root_after);
        }
        Commitment::Binary(_) => nomt::<Sha2Hasher>(world, reads, writes, proof, root_after),
    }
}

fn nomt<H: NodeHasher>(
    world: &World,
    reads: &[B256],
    writes: &[EntryWrite],
    proof: &EntryProof,
    root_after: B256,
) {
    let written = writes.iter().map(|(key, _)| key);
    let keys: Vec<B256> = reads.iter().chain(written).copied().collect();
    let mut paths = BTreeMap::new();
    for key in &keys {
        let path = path_proof(world, key);
        let bits = TriePosition::from_path_and_depth(key.0, 256);
        let verified = path.verify::<H>(bits.path(), world.root.0);
        assert!(verified.is_ok(), "nomt-core verifies the path of one key");
        paths.insert(path.terminal.path().to_bitvec(), path);
    }
    let theirs = NomtProof::from_path_proofs(paths.into_values().collect());
    let mut bytes = vec![];
    binary(proof).encode_to(&mut bytes);
    assert!(
        bytes.len() <= nomt_bytes(&theirs),
        "{} > {}",
        bytes.len(),
        nomt_bytes(&theirs)
    );
    let verified = verify_multi_proof::<H>(&theirs, world.root.0).expect("nomt-core verifies it");
    for key in &keys {
        match world.value(key) {
            Some(ValueCommitment::Hash(hash)) => {
                let leaf = LeafData {
                    key_path: key.0,
                    value_hash: hash.0,
                };
                assert!(verified.confirm_value(&leaf).unwrap());
            }
            _ => assert!(verified.confirm_nonexistence(&key.0).unwrap()),
        }
    }
    let ops = writes.iter().map(|(key, value)| match value {
        Some(ValueCommitment::Hash(hash)) => (key.0, Some(hash.0)),
        _ => (key.0, None),
    });
    let root = nomt_core::proof::verify_multi_proof_update::<H>(&verified, ops.collect());
    assert_eq!(root.expect("nomt-core updates it"), root_after.0);
}

#[test]
fn no_flipped_bit_and_no_cut_proof_is_verified() {
    for_each_world(steps(8, 60) as u64, 25, |world, random| {
        let keys = world.some_keys(random, 6);
        let bytes = world.prove(&keys).encode();
        let mut after = world.entries.clone();
        let changes = random_changes(random, world.commitment, &world.keys[..], &mut after);
        let writes = writes_of(world, &changes);
        let mut trie = world.trie.clone();
        let update = trie.prove_entry_update(&[], changes.accounts(), &mut NoResolve);
        let update = update.unwrap().encode();
        let ends = [B256::ZERO, random.pick(&extremes(world))];
        let range = trie.prove_entry_range(ends[0], ends[1], NonZeroUsize::MAX, &mut NoResolve);
        let range = range.unwrap().proof.encode();
        let (root, commitment) = (world.root, world.commitment);
        let refused = |which: usize, bytes: &[u8]| {
            let Ok(proof) = EntryProof::decode(bytes) else {
                return;
            };
            assert_eq!(proof.encode(), bytes, "read, so it is in its only form");
            match which {
                0 => assert!(verify_entries(root, commitment, &proof, &keys).is_err()),
                1 => {
                    assert!(verify_entry_range(root, commitment, &proof, ends[0], ends[1]).is_err())
                }
                _ => assert!(verify_entry_update(root, commitment, &proof, &[], &writes).is_err()),
            }
        };
        for (which, bytes) in [bytes, range, update].into_iter().enumerate() {
            for at in 0..bytes.len() {
                let mut flipped = bytes.clone();
                for bit in [1 << random.below(8), 1, 0x80] {
                    flipped[at] ^= bit;
                    refused(which, &flipped);
                    flipped[at] = bytes[at];
                }
                refused(which, &bytes[..at]);
                flipped.remove(at);
                refused(which, &flipped);
            }
            let longer = [&bytes[..], &[0]].concat();
            assert!(EntryProof::decode(&longer).is_err());
        }
    });
}

#[test]
fn forged_nodes_are_refused() {
    let mut tried = 0;
    for_each_world(30, 40, |world, random| {
        let keys = world.some_keys(random, 8);
        let EntryProof::Binary(proof) = world.prove(&keys) else {
            return;
        };
        let raw = Raw::new(&proof);
        let others = World::new(world.commitment, random, 20);
        let foreign = Raw::new(binary(&others.prove(&others.keys[..3])));
        let own = Raw::new(binary(&world.prove(&world.some_keys(random, 8))));
        let mut refuse = |forged: Raw| {
            if forged.encode() == raw.encode() {
                return;
            }
            tried += 1;
            if let Ok(proof) = EntryProof::decode(&forged.encode()) {
                assert!(world.refuses(&proof, &keys), "{forged:?}");
            }
        };
        for at in 0..raw.hashes.len() {
            // Dropped, made nothing, swapped, or taken from elsewhere.
            let mut forged = raw.clone();
            forged.hashes.remove(at);
            refuse(forged.clone());
            let blinded = (0..raw.kinds.len()).filter(|at| raw.kinds[*at] == 1);
            forged.kinds[blinded.into_iter().nth(at).unwrap()] = 0;
            refuse(forged);
            let mut forged = raw.clone();
            forged.hashes.swap(0, at);
            refuse(forged);
            for other in foreign.hashes.iter().chain(&own.hashes) {
                let mut forged = raw.clone();
                forged.hashes[at] = *other;
                refuse(forged);
            }
        }
        let leaves: Vec<_> = (0..raw.kinds.len())
            .filter(|at| raw.kinds[*at] == 2)
            .collect();
        for (at, node) in leaves.into_iter().enumerate() {
            // The leaf of a present key becomes nothing, or is blinded, or has another value or key.
            let mut forged = raw.clone();
            forged.kinds[node] = 0;
            forged.keys.remove(at);
            let value = forged.values.remove(at);
            refuse(forged.clone());
            forged.kinds[node] = 1;
            let before = raw.kinds[..node].iter().filter(|kind| **kind == 1).count();
            for hash in [value, B256::repeat_byte(0x80)] {
                let mut forged = forged.clone();
                forged.hashes.insert(before, hash);
                refuse(forged);
            }
            for other in foreign.values.iter().chain(&own.values) {
                let mut forged = raw.clone();
                forged.values[at] = *other;
                refuse(forged);
            }
            let mut forged = raw.clone();
            if let Some(last) = forged.keys[at].last_mut() {
                *last ^= 1;
                refuse(forged);
            }
        }
        for node in 0..raw.kinds.len() {
            for kind in 0..4 {
                let mut forged = raw.clone();
                forged.kinds[node] = kind;
                refuse(forged);
            }
            if raw.kinds[node] == 0 {
                // A leaf of an absent key.
                let mut forged = raw.clone();
                forged.kinds[node] = 2;
                let before = raw.kinds[..node].iter().filter(|kind| **kind == 2).count();
                forged.keys.insert(before, vec![1; 32]);
                forged.values.insert(before, B256::repeat_byte(1));
                refuse(forged);
            }
        }
    });
    assert!(tried > 5000, "{tried}");
}

#[test]
fn a_proof_is_refused_by_any_other_root_and_commitment() {
    for_each_world(20, 30, |world, random| {
        let keys = world.some_keys(random, 6);
        let proof = world.prove(&keys);
        for commitment in commitments() {
            let same = commitment == world.commitment;
            let verified = verify_entries(world.root, commitment, &proof, &keys);
            // An empty trie, and a root alone, do not depend on the hash function.
            let hashed = !world.entries.is_empty() && !keys.is_empty();
            let mpt = commitment == Commitment::Mpt || world.commitment == Commitment::Mpt;
            if !same && (hashed || mpt) {
                assert!(verified.is_err());
            }
            let ends = [B256::ZERO, B256::repeat_byte(255)];
            if mpt && !same {
                assert!(
                    verify_entry_range(world.root, commitment, &proof, ends[0], ends[1]).is_err()
                );
                assert!(verify_entry_update(world.root, commitment, &proof, &keys, &[]).is_err());
            }
        }
        // A proof of no keys shows nothing, of any root.
        if !keys.is_empty() {
            let mut root = world.root;
            root[random.below(32)] ^= 1 << random.below(8);
            assert!(verify_entries(root, world.commitment, &proof, &keys).is_err());
        }
    });
}

#[test]
fn nodes_of_a_merkle_patricia_trie_are_refused_if_any_is_missing_or_surplus() {
    let mut random = Random(3);
    let world = World::new(Commitment::Mpt, &mut random, 60);
    let keys = world.keys[50..70].to_vec();
    let EntryProof::Mpt(proof) = world.prove(&keys) else {
        panic!("a proof under mpt")
    };
    for at in 0..proof.nodes.len() {
        let mut nodes = proof.nodes.clone();
        let dropped = nodes.remove(at);
        let fewer = EntryProof::Mpt(MultiProof {
            nodes: nodes.clone(),
        });
        assert!(world.refuses(&fewer, &keys));
        nodes.extend([dropped.clone(), dropped]);
        nodes.sort_unstable_by_key(|node| keccak256(node));
        let twice = EntryProof::Mpt(MultiProof { nodes });
        assert!(world.refuses(&twice, &keys));
        assert!(EntryProof::decode(&twice.encode()).is_err());
    }
    let mut unsorted = proof;
    unsorted.nodes.swap(0, 1);
    assert!(EntryProof::decode(&EntryProof::Mpt(unsorted).encode()).is_err());
    let whole = world.prove(&world.keys);
    assert!(world.refuses(&whole, &keys));
}

#[test]
fn leaves_of_accounts_are_no_entries() {
    let state = common::hashed(&mut Random(4), 20, 3);
    let mut trie = common::trie_of(&state.model);
    let key = keccak256(state.addresses[0]);
    let proof = trie.prove_entries(&[key], &mut NoResolve).unwrap();
    let root = trie.state_root().unwrap();
    assert!(verify_entries(root, Commitment::Mpt, &proof, &[key]).is_err());
}

#[test]
fn keys_that_part_at_the_last_bit_are_proved_and_updated() {
    let mut random = Random(11);
    let key = random.b256();
    let beside = |bit: usize| {
        let mut key = key;
        key[bit / 8] ^= 0x80 >> (bit % 8);
        key
    };
    for commitment in commitments() {
        let keys: Vec<_> = (0..256).map(beside).chain([key]).collect();
        for there in [&keys[..], &keys[254..], &keys[255..]] {
            let entries: Entries = there.iter().map(|key| (*key, key[..5].to_vec())).collect();
            let world = World {
                trie: trie_of_entries(commitment, &entries),
                root: expected_root(commitment, &entries),
                keys: keys.clone(),
                commitment,
                entries,
            };
            let proof = coded(&world.prove(&keys));
            let values = verify_entries(world.root, commitment, &proof, &keys);
            assert_eq!(values, Ok(world.values(&keys)));
            let mut writes: Vec<EntryWrite> = keys[1..].iter().map(|key| (*key, None)).collect();
            writes.sort_unstable_by_key(|(key, _)| *key);
            let changes = writes
                .iter()
                .map(|(path, _)| cambium_primitives::AccountDiff {
                    path: *path,
                    account: AccountUpdate::Delete,
                    wipe: true,
                    slots: vec![],
                });
            let changes: Vec<_> = changes.collect();
            let mut trie = world.trie.clone();
            let proof = trie
                .prove_entry_update(&[], &changes, &mut NoResolve)
                .unwrap();
            let update = verify_entry_update(world.root, commitment, &proof, &[], &writes).unwrap();
            let mut after = world.entries.clone();
            keys[1..].iter().for_each(|key| drop(after.remove(key)));
            assert_eq!(update.root, expected_root(commitment, &after));
            check_with_nomt(&world, &[], &writes, &proof, update.root);
        }
    }
}

#[test]
fn a_proof_in_shards_joined_by_their_top_is_that_of_the_whole() {
    for commitment in commitments() {
        for seed in cambium_seeds::seeds!(0..20) {
            let mut random = Random(seed);
            let count = 1 + random.below(6);
            let world = World::new(commitment, &mut random, count);
            let keys = world.some_keys(&mut random, 6);
            // Only the two top levels are there, and the rest is loaded.
            let mut top = world.trie.clone();
            for shard in 0..256usize {
                let base = Path::from_nibbles(&[(shard >> 4) as u8, (shard & 15) as u8]);
                _ = top.replace_by_stub(&base, None);
            }
            let proof = top
                .prove_entries(&keys, &mut NodeByNode(&world.trie))
                .unwrap();
            assert_eq!(proof, world.prove(&keys));
        }
    }
}

#[test]
fn noise_is_read_in_its_only_form_or_refused() {
    let mut random = Random(23);
    let mut read = 0;
    for _ in 0..steps(200_000, 10_000_000) {
        let len = random.below(140);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        // Few inner nodes, so that one kind runs out of nodes.
        bytes.splice(
            ..0,
            [2, random.next() as u8 & 0x2b, random.next() as u8 & 0x0a],
        );
        if let Ok(proof) = EntryProof::decode(&bytes) {
            assert_eq!(proof.encode(), bytes);
            read += 1;
            for commitment in commitments() {
                let range = LeafRange::accounts(B256::ZERO, B256::repeat_byte(255));
                assert!(verify_entries(B256::ZERO, commitment, &proof, &[range.first]).is_err());
                _ = verify_entry_range(B256::ZERO, commitment, &proof, range.first, range.last);
            }
        }
    }
    // Inner nodes without an end, and with no end before the last bit of a key.
    for byte in [0xff, 0x3f, 0x37] {
        assert!(EntryProof::decode(&vec![byte; 100_000]).is_err());
        assert!(EntryProof::decode(&[&[2], &vec![byte; 100_000][..]].concat()).is_err());
    }
    println!("{read} proofs were read");
}

/// Equal entries have equal nodes: a proof of a million of them has a few kilobytes, and is valid for a verifier that
/// expects that many.
#[test]
fn a_range_of_equal_entries_is_proved_however_many_they_are() {
    const BITS: usize = 20;
    let put = |number: u64| AccountDiff {
        path: B256::from(U256::from(number) << (256 - BITS)),
        account: AccountUpdate::Entry(EntryValue::Inline(Bytes::from_static(b"1"))),
        wipe: false,
        slots: vec![],
    };
    let mut trie = PartialTrie::new(Path::EMPTY);
    for chunk in 0..16 {
        let each = chunk << (BITS - 4)..(chunk + 1) << (BITS - 4);
        let entries: Vec<_> = each.map(put).collect();
        trie.apply(&entries, &mut NoResolve).unwrap();
    }
    commit(&mut [&mut trie], &mut Batch::new());
    let root = trie.state_root().unwrap();
    let (first, last) = (B256::ZERO, B256::repeat_byte(0xff));
    let proved = trie.prove_entry_range(first, last, NonZeroUsize::MAX, &mut NoResolve);
    let bytes = proved.unwrap().proof.encode();
    assert!(bytes.len() < 10_000, "{}", bytes.len());
    let proof = EntryProof::decode(&bytes).unwrap();
    let unexpected = verify_entry_range(root, Commitment::Mpt, &proof, first, last).unwrap_err();
    assert!(
        unexpected.to_string().contains("the reader's limit"),
        "{unexpected}"
    );
    let found = verify_entry_range_up_to(root, Commitment::Mpt, &proof, first, last, 1 << BITS);
    let found = found.unwrap();
    assert_eq!(found.len(), 1 << BITS);
    let value = ValueCommitment::of(Commitment::Mpt, b"1");
    assert!(found.iter().all(|(_, found)| *found == value));
}
