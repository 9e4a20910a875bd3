//! Size and time of proofs of a binary trie beside nomt-core's multiproof of the same keys, on one thread: random keys of
//! a database of random keys, all present, of which all get a new value.
//!
//! `cargo run --release -p cambium-trie --example entry_proofs [ENTRIES] [KEYS] [ROUNDS]`

use alloy_primitives::B256;
use cambium_keccak::{Batch, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};
use cambium_trie::{
    Blake3, Commitment, EntryProof, Hasher, LeafValue, NoResolve, PartialTrie, Sha256,
    ValueCommitment, commit, verify_entries, verify_entry_update,
};
use nomt_core::{
    hasher::{Blake3Hasher, NodeHasher, Sha2Hasher},
    proof::{
        MultiProof, PathProof, PathProofTerminal, verify_multi_proof, verify_multi_proof_update,
    },
    trie::LeafData,
};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

fn key(number: usize) -> B256 {
    keccak256(&(number as u64).to_le_bytes())
}

fn value(number: usize, round: u8) -> Vec<u8> {
    let mut value = vec![round; 32];
    value[..8].copy_from_slice(&(number as u64).to_le_bytes());
    value
}

/// Best time of some rounds.
fn timed<T>(rounds: usize, mut work: impl FnMut() -> T) -> (T, Duration) {
    let mut best = Duration::MAX;
    let mut result = None;
    for _ in 0..rounds.max(1) {
        let start = Instant::now();
        result = Some(black_box(work()));
        best = best.min(start.elapsed());
    }
    (result.expect("one round at least"), best)
}

fn report(what: &str, ours: Duration, theirs: Option<Duration>) {
    let millis = |time: Duration| time.as_secs_f64() * 1_000.0;
    let theirs = theirs.map_or(String::new(), |time| format!("{:>12.1}", millis(time)));
    println!("{what:>36} {:>12.1} {theirs}", millis(ours));
}

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|it| it.parse().expect("a number"));
    let entries: usize = arguments.next().unwrap_or(1_000_000);
    let keys: usize = arguments.next().unwrap_or(25_000);
    let rounds: usize = arguments.next().unwrap_or(5);
    compare::<Blake3Hasher>(&Blake3, entries, keys, rounds);
    compare::<Sha2Hasher>(&Sha256, entries, keys, rounds);
}

fn compare<H: NodeHasher>(hasher: &'static dyn Hasher, entries: usize, keys: usize, rounds: usize) {
    let commitment = Commitment::Binary(hasher);
    let mut numbers: Vec<_> = (0..entries).map(|number| (key(number), number)).collect();
    numbers.sort_unstable();
    let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
    let leaves = numbers.iter().map(|(key, number)| {
        let value = EntryValue::Inline(value(*number, 0).into());
        (Path::account(key), LeafValue::Entry(value))
    });
    let root = trie.graft_leaves(&Path::EMPTY, leaves, std::iter::empty());
    trie.set_root(root.expect("sorted"));
    commit(&mut [&mut trie], &mut Batch::new());
    let root = trie.state_root().expect("hashed");
    let mut asked: Vec<_> = (0..keys)
        .map(|number| key(number * 7919 % entries))
        .collect();
    asked.sort_unstable();
    asked.dedup();
    let changes = asked.iter().map(|key| AccountDiff {
        path: *key,
        account: AccountUpdate::Entry(EntryValue::Inline(key.0[..16].to_vec().into())),
        wipe: false,
        slots: vec![],
    });
    let changes: Vec<_> = changes.collect();
    println!(
        "{}: {} keys of {entries}, all present; milliseconds, best of {rounds}",
        commitment.name(),
        asked.len()
    );

    let (proof, prove) = timed(rounds, || {
        trie.prove_entries(&asked, &mut NoResolve).expect("whole")
    });
    let (bytes, encode) = timed(rounds, || proof.encode());
    let (_, decode) = timed(rounds, || EntryProof::decode(&bytes).expect("encoded"));
    let (shown, verify) = timed(rounds, || {
        verify_entries(root, commitment, &proof, &asked).expect("true")
    });
    let writes: Vec<_> = changes
        .iter()
        .map(|change| {
            (
                change.path,
                Some(ValueCommitment::of(commitment, &change.path[..16])),
            )
        })
        .collect();
    let (update, updated) = timed(rounds, || {
        verify_entry_update(root, commitment, &proof, &[], &writes).expect("true")
    });
    trie.apply(&changes, &mut NoResolve).expect("whole");
    commit(&mut [&mut trie], &mut Batch::new());
    assert_eq!(Some(update.root), trie.state_root());

    let leaves: Vec<_> = numbers
        .iter()
        .map(|(key, number)| LeafData {
            key_path: key.0,
            value_hash: hasher.hash(&value(*number, 0)).0,
        })
        .collect();
    let mut paths = vec![vec![]; asked.len()];
    assert_eq!(siblings::<H>(&leaves, 0, &asked, &mut paths), root.0);
    let paths = asked
        .iter()
        .zip(paths)
        .zip(&shown)
        .map(|((key, mut siblings), shown)| {
            siblings.reverse();
            let Some(ValueCommitment::Hash(hash)) = shown else {
                panic!("all keys are present")
            };
            let terminal = PathProofTerminal::Leaf(LeafData {
                key_path: key.0,
                value_hash: hash.0,
            });
            PathProof { terminal, siblings }
        });
    let paths: Vec<_> = paths.collect();
    let start = Instant::now();
    let theirs = MultiProof::from_path_proofs(paths);
    let their_prove = start.elapsed();
    let (_, their_verify) = timed(rounds, || {
        let verified = verify_multi_proof::<H>(&theirs, root.0).expect("true");
        for path in &theirs.paths {
            let leaf = path
                .terminal
                .as_leaf_option()
                .expect("all keys are present");
            assert!(verified.confirm_value(&leaf).expect("in scope"));
        }
    });
    let ops: Vec<_> = writes
        .iter()
        .map(|(key, value)| match value {
            Some(ValueCommitment::Hash(hash)) => (key.0, Some(hash.0)),
            _ => (key.0, None),
        })
        .collect();
    let (their_root, their_update) = timed(rounds, || {
        let verified = verify_multi_proof::<H>(&theirs, root.0).expect("true");
        verify_multi_proof_update::<H>(&verified, ops.clone()).expect("true")
    });
    assert_eq!(their_root, update.root.0);

    // By Borsh: a byte for the kind of terminal, its leaf, eight bytes for its depth; siblings.
    let their_bytes = 8 + theirs.paths.len() * (1 + 64 + 8) + 32 * theirs.siblings.len();
    println!("{:>36} {:>12} {:>12}", "", "here", "nomt-core");
    println!("{:>36} {:>12} {their_bytes:>12}", "bytes", bytes.len());
    println!(
        "{:>36} {:>12} {:>12}",
        "hashes of siblings",
        "",
        theirs.siblings.len()
    );
    report(
        "prove (nomt-core: merge path proofs)",
        prove,
        Some(their_prove),
    );
    report("encode", encode, None);
    report("decode", decode, None);
    report("verify, confirm values", verify, Some(their_verify));
    report("verify, root after writes", updated, Some(their_update));
}

/// Collects the siblings on the paths to the keys `asked`, from the lowest up, in the trie of sorted `leaves` that share
/// all bits before `depth`. Returns the root.
fn siblings<H: NodeHasher>(
    leaves: &[LeafData],
    depth: usize,
    asked: &[B256],
    paths: &mut [Vec<[u8; 32]>],
) -> [u8; 32] {
    let one = |key: &[u8; 32]| key[depth / 8] & (0x80 >> (depth % 8)) != 0;
    match leaves {
        [] => return [0; 32],
        [leaf] => return H::hash_leaf(leaf),
        _ => {}
    }
    let (zeros, ones) = leaves.split_at(leaves.partition_point(|leaf| !one(&leaf.key_path)));
    let middle = asked.partition_point(|key| !one(&key.0));
    let (left_paths, right_paths) = paths.split_at_mut(middle);
    let left = siblings::<H>(zeros, depth + 1, &asked[..middle], left_paths);
    let right = siblings::<H>(ones, depth + 1, &asked[middle..], right_paths);
    left_paths.iter_mut().for_each(|path| path.push(right));
    right_paths.iter_mut().for_each(|path| path.push(left));
    H::hash_internal(&nomt_core::trie::InternalData { left, right })
}
