//! The complete forger of proofs of entries. A node that is not of a true trie has a hash that no other refers to, so a
//! proof that can be accepted is a subset of the true nodes: each of them is tried, on all questions, and what is
//! accepted is true. The nodes are alloy-trie's.

use crate::common::{
    Random,
    entries::{Entries, mpt_leaf, random_value},
    history::{Upper, state_root, upper_root},
    steps,
};
use alloy_primitives::{B256, Bytes, U256};
use alloy_trie::{HashBuilder, Nibbles, proof::ProofRetainer};
use cambium_trie::{
    Commitment, EMPTY_ROOT, EntryProof, EntryWrite, LayeredCommit, LayeredEntryProof, LayeredRoots,
    MultiProof, ValueCommitment, layered_root, verify_entries, verify_entry_range,
    verify_entry_update, verify_layered_update,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU64,
};

/// Values of entries that are written; `None` for deleted ones.
type Writes = BTreeMap<B256, Option<Vec<u8>>>;

/// Keys and ranges that a verifier is asked for.
struct Questions {
    keys: Vec<Vec<B256>>,
    ranges: Vec<(B256, B256)>,
    /// Keys that are read, and what is written.
    updates: Vec<(Vec<B256>, Writes)>,
}

#[derive(Default)]
struct Counts {
    proofs: u64,
    accepted: u64,
    /// Questions that more than one proof answers.
    ambiguous: u64,
}

/// Root and nodes of a trie.
fn nodes_of(leaves: &BTreeMap<B256, Vec<u8>>) -> (B256, Vec<Bytes>) {
    let keys = leaves.keys().map(Nibbles::unpack).collect();
    let mut builder = HashBuilder::default().with_proof_retainer(ProofRetainer::new(keys));
    for (key, value) in leaves {
        builder.add_leaf(Nibbles::unpack(key), value);
    }
    let root = builder.root();
    let nodes = builder.take_proof_nodes().into_inner();
    // A shorter one is within its parent.
    let is_hashed = |(path, node): &(Nibbles, Bytes)| path.is_empty() || node.len() >= 32;
    let nodes: BTreeSet<Bytes> = nodes
        .into_iter()
        .filter(is_hashed)
        .map(|(_, node)| node)
        .collect();
    match leaves.is_empty() {
        true => (EMPTY_ROOT, Vec::new()),
        false => (root, nodes.into_iter().collect()),
    }
}

fn leaves_of(entries: &Entries) -> BTreeMap<B256, Vec<u8>> {
    let leaves = entries.iter();
    leaves.map(|(key, value)| (*key, mpt_leaf(value))).collect()
}

fn upper_leaves(upper: &Upper) -> BTreeMap<B256, Vec<u8>> {
    let leaf = |value: &Option<Vec<u8>>| value.as_deref().map_or(vec![34], mpt_leaf);
    upper
        .iter()
        .map(|(key, value)| (*key, leaf(value)))
        .collect()
}

/// Some keys that are there, their neighbours, the ends, and some that leave the trie on the way.
fn asked(random: &mut Random, keys: &[B256], most: usize) -> Vec<B256> {
    let mut asked: BTreeSet<B256> = keys.iter().copied().collect();
    for key in keys {
        let number = U256::from_be_bytes(key.0);
        let neighbours = [number.checked_add(U256::ONE), number.checked_sub(U256::ONE)];
        asked.extend(neighbours.into_iter().flatten().map(B256::from));
        let mut other = *key;
        other[random.below(32)] ^= 1 << random.below(8);
        asked.insert(other);
    }
    asked.extend([B256::ZERO, B256::repeat_byte(0xff)]);
    let mut asked: Vec<_> = asked.into_iter().collect();
    while asked.len() > most {
        asked.remove(random.below(asked.len()));
    }
    asked
}

fn questions(random: &mut Random, entries: &Entries, keys: &[B256]) -> Questions {
    let asked = asked(random, keys, 8);
    let some = |random: &mut Random, most: usize| -> Vec<B256> {
        let number = random.below(most + 1);
        (0..number).map(|_| random.pick(&asked)).collect()
    };
    let mut of_keys: Vec<_> = asked.iter().map(|key| vec![*key]).collect();
    of_keys.extend((0..5).map(|_| some(random, 4)));
    let mut ranges = vec![(B256::ZERO, B256::repeat_byte(0xff))];
    ranges.extend((0..6).map(|_| {
        let (one, other) = (random.pick(&asked), random.pick(&asked));
        (one.min(other), one.max(other))
    }));
    let updates = (0..6).map(|_| {
        let mut writes = Writes::new();
        for _ in 0..1 + random.below(3) {
            let key = random.pick(&asked);
            let value = match random.below(3) {
                // Often what is there already.
                0 => entries.get(&key).cloned(),
                1 => None,
                _ => Some(random_value(random)),
            };
            writes.insert(key, value);
        }
        (some(random, 2), writes)
    });
    let updates = updates.collect();
    Questions {
        keys: of_keys,
        ranges,
        updates,
    }
}

fn committed(commitment: Commitment, value: Option<&Vec<u8>>) -> Option<ValueCommitment> {
    value.map(|value| ValueCommitment::of(commitment, value))
}

fn written(commitment: Commitment, writes: &Writes) -> Vec<EntryWrite> {
    let writes = writes.iter();
    writes
        .map(|(key, value)| (*key, committed(commitment, value.as_ref())))
        .collect()
}

/// Whether two keys differ in the last nibble alone: the leaf of one may come with the other's.
fn has_twins(keys: &[B256]) -> bool {
    let above = |key: &B256| (key[..31].to_vec(), key[31] >> 4);
    let distinct: BTreeSet<_> = keys.iter().map(above).collect();
    distinct.len() < keys.len()
}

/// Asks about keys and ranges. Returns which questions were answered, all of them truly.
fn ask(
    commitment: Commitment,
    root: B256,
    proof: &EntryProof,
    questions: &Questions,
    entries: &Entries,
    what: &str,
) -> Vec<usize> {
    let mut answered = Vec::new();
    for (at, keys) in questions.keys.iter().enumerate() {
        if let Ok(values) = verify_entries(root, commitment, proof, keys) {
            let truth = keys
                .iter()
                .map(|key| committed(commitment, entries.get(key)));
            assert_eq!(values, truth.collect::<Vec<_>>(), "{what}: {keys:?}");
            answered.push(at);
        }
    }
    for (at, (first, last)) in questions.ranges.iter().enumerate() {
        if let Ok(found) = verify_entry_range(root, commitment, proof, *first, *last) {
            let truth = entries.range(*first..=*last);
            let truth = truth.map(|(key, value)| (*key, ValueCommitment::of(commitment, value)));
            assert_eq!(
                found,
                truth.collect::<Vec<_>>(),
                "{what}: {first} to {last}"
            );
            answered.push(questions.keys.len() + at);
        }
    }
    answered
}

/// Each question has an answer, and one only, but for keys that are twins.
fn count(answers: &[u64], keys: &[B256], counts: &mut Counts, what: &str) {
    for (at, answers) in answers.iter().enumerate() {
        assert!(*answers > 0, "{what}: question {at} has no proof");
        if *answers > 1 {
            assert!(has_twins(keys), "{what}: question {at} has {answers}");
            counts.ambiguous += 1;
        }
    }
}

#[test]
fn no_subset_of_the_nodes_of_a_trie_proves_what_is_not_so() {
    let (mut counts, mut worlds) = (Counts::default(), 0);
    for seed in cambium_seeds::seeds!(0..steps(60, 3_000) as u64) {
        let random = &mut Random(seed);
        let number = 1 + random.below(6);
        let keys = random.close_keys(number);
        let entries: Entries = keys
            .iter()
            .map(|key| (*key, random_value(random)))
            .collect();
        let (root, nodes) = nodes_of(&leaves_of(&entries));
        if nodes.len() > 9 {
            continue;
        }
        worlds += 1;
        let commitment = Commitment::Mpt;
        let questions = questions(random, &entries, &keys);
        let plain = questions.keys.len() + questions.ranges.len();
        let mut answers = vec![0; plain + questions.updates.len()];
        for mask in 0..1u32 << nodes.len() {
            let what = format!("seed {seed}, subset {mask:b}");
            let some = nodes.iter().enumerate();
            let some = some.filter(|(at, _)| mask >> at & 1 == 1);
            let nodes = some.map(|(_, node)| node.clone()).collect();
            let proof = EntryProof::Mpt(MultiProof { nodes });
            counts.proofs += 1;
            let answered = ask(commitment, root, &proof, &questions, &entries, &what);
            answered.into_iter().for_each(|at| answers[at] += 1);
            for (at, (reads, writes)) in questions.updates.iter().enumerate() {
                let given = written(commitment, writes);
                let updated = verify_entry_update(root, commitment, &proof, reads, &given);
                let Ok(updated) = updated else { continue };
                answers[plain + at] += 1;
                let mut after = entries.clone();
                for (key, value) in writes {
                    match value {
                        Some(value) => drop(after.insert(*key, value.clone())),
                        None => drop(after.remove(key)),
                    }
                }
                let truth = reads
                    .iter()
                    .map(|key| committed(commitment, entries.get(key)));
                assert_eq!(
                    updated.values,
                    truth.collect::<Vec<_>>(),
                    "{what}: {reads:?}"
                );
                assert_eq!(updated.root, state_root(&after), "{what}: {writes:?}");
            }
        }
        counts.accepted += answers.iter().sum::<u64>();
        count(&answers, &keys, &mut counts, &format!("seed {seed}"));
    }
    assert!(worlds > 30 && counts.proofs > 1_000, "{worlds}");
    assert!(counts.accepted > 1_000, "{}", counts.accepted);
}

/// Two maps of changes above a map of values, by their tries.
struct Layers {
    delta: Upper,
    intermediate: Upper,
    snapshot: Entries,
}

impl Layers {
    fn random(random: &mut Random, keys: &[B256]) -> Self {
        let upper = |random: &mut Random| -> Upper {
            let mut upper = Upper::new();
            for key in keys {
                if random.one_in(2) {
                    upper.insert(*key, (!random.one_in(2)).then(|| random_value(random)));
                }
            }
            upper
        };
        let (delta, mut intermediate) = (upper(random), upper(random));
        if random.one_in(4) {
            intermediate.clear();
        }
        let snapshot = keys.iter().filter(|_| random.one_in(2));
        let snapshot: Vec<B256> = snapshot.copied().collect();
        let snapshot = snapshot.into_iter().map(|key| (key, random_value(random)));
        Self {
            snapshot: snapshot.collect(),
            delta,
            intermediate,
        }
    }

    fn entries(&self) -> Entries {
        let mut entries = self.snapshot.clone();
        for (key, value) in self.intermediate.iter().chain(&self.delta) {
            match value {
                Some(value) => drop(entries.insert(*key, value.clone())),
                None => drop(entries.remove(key)),
            }
        }
        entries
    }

    /// The root after a commit, and whether its snapshot has to be claimed.
    fn root_after(&self, commit: &LayeredCommit, writes: &Writes) -> (B256, bool) {
        let before = self.entries();
        let net = writes.iter();
        let net = net.filter(|(key, value)| before.get(*key) != value.as_ref());
        let net: Upper = net.map(|(key, value)| (*key, value.clone())).collect();
        let (intermediate, snapshot) = (upper_root(&self.intermediate), state_root(&self.snapshot));
        if commit.begins_interval() {
            let has_merged = !self.intermediate.is_empty();
            let snapshot = match has_merged {
                true => commit.claimed_snapshot.unwrap_or_default(),
                false => snapshot,
            };
            let root = layered_root(upper_root(&net), upper_root(&self.delta), snapshot);
            return (root, has_merged);
        }
        let mut delta = self.delta.clone();
        delta.extend(net);
        (
            layered_root(upper_root(&delta), intermediate, snapshot),
            false,
        )
    }
}

#[test]
fn no_subset_of_the_nodes_of_three_layers_proves_what_is_not_so() {
    let (mut counts, mut worlds, mut updates) = (Counts::default(), 0, 0);
    for seed in cambium_seeds::seeds!(0..steps(80, 3_000) as u64) {
        let random = &mut Random(seed);
        let number = 1 + random.below(4);
        let keys = random.close_keys(number);
        let layers = Layers::random(random, &keys);
        let three = [
            nodes_of(&upper_leaves(&layers.delta)),
            nodes_of(&upper_leaves(&layers.intermediate)),
            nodes_of(&leaves_of(&layers.snapshot)),
        ];
        let nodes: Vec<(usize, &Bytes)> = three
            .iter()
            .enumerate()
            .flat_map(|(trie, (_, nodes))| nodes.iter().map(move |node| (trie, node)))
            .collect();
        if nodes.len() > 9 {
            continue;
        }
        worlds += 1;
        let commitment = Commitment::Layered;
        let entries = layers.entries();
        let questions = questions(random, &entries, &keys);
        let commits: Vec<_> = questions
            .updates
            .iter()
            .map(|_| LayeredCommit {
                number: 1 + random.below(7) as u64,
                merge_interval: NonZeroU64::new(1 + random.below(3) as u64).unwrap(),
                claimed_snapshot: random.one_in(2).then(|| random.b256()),
            })
            .collect();
        let true_root = layered_root(three[0].0, three[1].0, three[2].0);
        let mut answers = vec![0; questions.keys.len() + questions.ranges.len()];
        for mask in 0..1u32 << nodes.len() {
            // The tries in their places, and in those of others.
            for order in [
                [0, 1, 2],
                [1, 0, 2],
                [2, 1, 0],
                [0, 2, 1],
                [0, 0, 2],
                [0, 1, 1],
            ] {
                let is_true = order == [0, 1, 2];
                if !is_true && mask % 7 != 3 {
                    continue;
                }
                let what = format!("seed {seed}, subset {mask:b}, order {order:?}");
                let part = |place: usize| {
                    let some = nodes.iter().enumerate();
                    let some =
                        some.filter(|(at, (trie, _))| mask >> at & 1 == 1 && *trie == order[place]);
                    let nodes = some.map(|(_, (_, node))| (*node).clone()).collect();
                    MultiProof { nodes }
                };
                let root = |place: usize| three[place].0;
                let roots = LayeredRoots {
                    delta: root(0),
                    intermediate: root(1),
                    snapshot: root(2),
                };
                let moved = LayeredRoots {
                    delta: root(order[0]),
                    intermediate: root(order[1]),
                    snapshot: root(order[2]),
                };
                let mut given = vec![roots];
                if !is_true {
                    given.push(moved);
                }
                for roots in given {
                    let proof = EntryProof::Layered(Box::new(LayeredEntryProof {
                        roots,
                        delta: part(0),
                        intermediate: part(1),
                        snapshot: part(2),
                    }));
                    counts.proofs += 1;
                    let answered = ask(commitment, true_root, &proof, &questions, &entries, &what);
                    if is_true {
                        answered.into_iter().for_each(|at| answers[at] += 1);
                    }
                    for ((reads, writes), commit) in questions.updates.iter().zip(&commits) {
                        let given = written(commitment, writes);
                        // With the claim, and without it.
                        for claimed_snapshot in [commit.claimed_snapshot, None] {
                            let commit = LayeredCommit {
                                claimed_snapshot,
                                ..*commit
                            };
                            let updated =
                                verify_layered_update(true_root, commit, &proof, reads, &given);
                            let Ok(updated) = updated else { continue };
                            updates += 1;
                            let truth = reads.iter();
                            let truth = truth.map(|key| committed(commitment, entries.get(key)));
                            assert_eq!(updated.values, truth.collect::<Vec<_>>(), "{what}");
                            let (root, is_claimed) = layers.root_after(&commit, writes);
                            assert_eq!(updated.root, root, "{what}: {commit:?}, {writes:?}");
                            assert_eq!(updated.claimed_snapshot.is_some(), is_claimed, "{what}");
                        }
                    }
                }
            }
        }
        counts.accepted += answers.iter().sum::<u64>();
        count(&answers, &keys, &mut counts, &format!("seed {seed}"));
    }
    assert!(worlds > 30 && counts.proofs > 1_000, "{worlds}");
    assert!(counts.accepted > 1_000 && updates > 200, "{updates}");
}
