//! Tries of entries, the leaves of a key-value database: roots equal those of nomt-core and of
//! alloy-trie, for random keys and for keys that share long prefixes.

use crate::common::{
    Random,
    entries::{Entries, commitments, expected_root, random_changes, value_of},
};
use alloy_primitives::B256;
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, AccountUpdate, EntryValue, Path};
use cambium_trie::{
    Blake3, Commitment, Hasher, LeafHasher, LeafValue, Link, Lookup, NodeView, PartialTrie,
    Resolve, SHARDS, Stub, TrieError, commit, top_levels,
};

/// Loads subtries from a copy of the whole trie.
struct From<'a>(&'a PartialTrie);

impl Resolve for From<'_> {
    type Error = TrieError;

    fn resolve(
        &mut self,
        path: &Path,
        _: &Stub,
        into: &mut PartialTrie,
    ) -> Result<Link, TrieError> {
        let link = self.0.find(path).ok_or(TrieError::NoNode { path: *path })?;
        into.graft_node(self.0, link)
    }
}

/// Every path that has a node, leaves at 64 nibbles left out.
fn paths(trie: &PartialTrie, link: Link, at: Path, out: &mut Vec<Path>) {
    if at.len() < 64 && !link.is_empty() {
        out.push(at);
    }
    match trie.visit(link) {
        NodeView::Branch { children } => {
            for (nibble, child) in (0u8..).zip(children) {
                paths(trie, *child, at.child(nibble), out);
            }
        }
        NodeView::Extension { path, child } => paths(trie, child, at.join(&path), out),
        _ => {}
    }
}

fn check_leaves(trie: &PartialTrie, commitment: Commitment, keys: &[B256], entries: &Entries) {
    for key in keys {
        let expected = entries.get(key).map(|value| value_of(commitment, value));
        match trie.lookup(&Path::account(key)) {
            Lookup::Entry(value) => assert_eq!(Some(value), expected),
            Lookup::Absent => assert_eq!(expected, None),
            found => assert!(matches!(found, Lookup::Stub { .. }), "{found:?}"),
        }
    }
}

#[test]
fn roots_equal_those_of_nomt_core_and_alloy_trie_after_any_changes() {
    for seed in cambium_seeds::seeds!(0..60) {
        for commitment in commitments() {
            let mut random = Random(seed);
            let keys = match seed % 3 {
                0 => (0..1 + random.below(300)).map(|_| random.b256()).collect(),
                _ => {
                    let count = 1 + random.below(40);
                    random.close_keys(count)
                }
            };
            let mut entries = Entries::new();
            let mut whole = PartialTrie::new(Path::EMPTY).committed_by(commitment);
            let mut pruned = whole.clone();
            for _ in 0..8 {
                let changes = random_changes(&mut random, commitment, &keys, &mut entries);
                let before = whole.clone();
                whole.apply(changes.accounts(), &mut From(&before)).unwrap();
                pruned
                    .apply(changes.accounts(), &mut From(&before))
                    .unwrap();
                let mut batch = Batch::new();
                commit(&mut [&mut whole, &mut pruned], &mut batch);
                let root = expected_root(commitment, &entries);
                let context = format!("seed {seed}, {}", commitment.name());
                assert_eq!(whole.state_root(), Some(root), "{context}");
                assert_eq!(pruned.state_root(), Some(root), "{context}, pruned");
                check_leaves(&whole, commitment, &keys, &entries);
                check_leaves(&pruned, commitment, &keys, &entries);
                // Some subtries are blinded before the next changes.
                let mut there = Vec::new();
                paths(&pruned, pruned.root(), Path::EMPTY, &mut there);
                if let Some(path) = there.get(random.below(there.len() + 1)) {
                    pruned.replace_by_stub(path, None).unwrap();
                }
            }
        }
    }
}

#[test]
fn known_roots_of_small_tries() {
    let empty = Entries::new();
    let key = |byte| B256::repeat_byte(byte);
    let one: Entries = [(key(0x10), b"one".to_vec())].into();
    let mut two = one.clone();
    two.insert(key(0x11), b"two".to_vec());
    for commitment in commitments() {
        for entries in [&empty, &one, &two] {
            let leaves = entries.iter().map(|(key, value)| {
                let value = LeafValue::Entry(value_of(commitment, value));
                (Path::account(key), value)
            });
            let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
            let root = trie
                .graft_leaves(&Path::EMPTY, leaves, std::iter::empty())
                .unwrap();
            trie.set_root(root);
            commit(&mut [&mut trie], &mut Batch::new());
            assert_eq!(trie.state_root(), Some(expected_root(commitment, entries)));
        }
        assert_eq!(expected_root(commitment, &empty), commitment.empty_root());
    }
    // By hand: a leaf is the hash of its key and of the hash of its value, its first bit set.
    let mut leaf = [key(0x10).0, Blake3.hash(b"one").0].concat();
    let mut expected = Blake3.hash(&leaf);
    expected[0] |= 0x80;
    assert_eq!(expected_root(Commitment::Binary(&Blake3), &one), expected);
    leaf[0] ^= 1;
    assert_ne!(Blake3.hash(&leaf), expected);
}

#[test]
fn a_trie_in_shards_has_the_root_of_the_whole() {
    for commitment in commitments() {
        for seed in cambium_seeds::seeds!(0..30) {
            let mut random = Random(seed);
            let count = 1 + random.below(60);
            let mut keys = random.close_keys(count);
            if seed % 2 == 0 {
                // All in one or two shards.
                let first = keys[0][0];
                keys.iter_mut()
                    .for_each(|key| key[0] = first ^ (key[1] & 1));
                keys.sort_unstable();
                keys.dedup();
            }
            let mut entries = Entries::new();
            let changes = random_changes(&mut random, commitment, &keys, &mut entries);
            let mut shards: Vec<_> = (0..SHARDS)
                .map(|shard| {
                    let base = Path::from_nibbles(&[(shard >> 4) as u8, (shard & 15) as u8]);
                    PartialTrie::new(base).committed_by(commitment)
                })
                .collect();
            for (number, shard) in shards.iter_mut().enumerate() {
                let own: Vec<_> = changes
                    .accounts()
                    .iter()
                    .filter(|change| usize::from(change.path[0]) == number)
                    .cloned()
                    .collect();
                shard.apply(&own, &mut cambium_trie::NoResolve).unwrap();
            }
            let mut all: Vec<_> = shards.iter_mut().collect();
            commit(&mut all, &mut Batch::new());
            let all: Vec<_> = shards.iter().collect();
            let top = top_levels(&all).unwrap();
            assert_eq!(top.state_root(), Some(expected_root(commitment, &entries)));
        }
    }
}

#[test]
fn leaves_hashed_alone_have_the_references_of_the_trie() {
    for commitment in commitments() {
        let mut random = Random(5);
        let keys: Vec<_> = (0..300).map(|_| random.b256()).collect();
        let mut entries = Entries::new();
        let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
        while entries.len() < 100 {
            let changes = random_changes(&mut random, commitment, &keys, &mut entries);
            trie.apply(changes.accounts(), &mut cambium_trie::NoResolve)
                .unwrap();
        }
        commit(&mut [&mut trie], &mut Batch::new());
        let mut hasher = LeafHasher::new(commitment);
        let mut expected = Vec::new();
        let mut todo = vec![(trie.root(), 0)];
        while let Some((link, depth)) = todo.pop() {
            match trie.visit(link) {
                NodeView::Branch { children } => {
                    todo.extend(children.iter().map(|child| (*child, depth + 1)));
                }
                NodeView::Entry { key, value, .. } => {
                    hasher.entry(depth, &key, value);
                    expected.extend(trie.cached_ref(link));
                }
                _ => {}
            }
        }
        assert!(expected.len() > 50);
        assert_eq!(hasher.finish().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn tries_of_entries_survive_their_encoding_and_differences() {
    for commitment in commitments() {
        let mut random = Random(8);
        let keys = random.close_keys(50);
        let mut entries = Entries::new();
        let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
        for _ in 0..20 {
            let before = trie.clone();
            let changes = random_changes(&mut random, commitment, &keys, &mut entries);
            trie.apply(changes.accounts(), &mut cambium_trie::NoResolve)
                .unwrap();
            commit(&mut [&mut trie], &mut Batch::new());
            let (mut bytes, mut difference, mut again) = (vec![], vec![], vec![]);
            trie.encode_to(&mut bytes);
            let decoded = PartialTrie::decode(&bytes)
                .unwrap()
                .committed_by(commitment);
            decoded.encode_to(&mut again);
            assert_eq!(again, bytes);
            assert_eq!(decoded.state_root(), trie.state_root());
            trie.encode_changes_to(&before, &mut difference);
            let decoded = PartialTrie::decode_changes(&before, &difference).unwrap();
            again.clear();
            decoded.encode_to(&mut again);
            assert_eq!(again, bytes);
            assert_eq!(decoded.commitment(), commitment);
            for end in 0..bytes.len() {
                assert!(PartialTrie::decode(&bytes[..end]).is_err());
            }
        }
    }
}

#[test]
fn memory_of_values_is_counted_and_freed() {
    let mut trie = PartialTrie::new(Path::EMPTY);
    let put = |key: u8, len: usize| AccountDiff {
        path: B256::repeat_byte(key),
        account: AccountUpdate::Entry(EntryValue::Inline(vec![1; len].into())),
        wipe: false,
        slots: vec![],
    };
    let none = &mut cambium_trie::NoResolve;
    trie.apply(&[put(1, 500), put(2, 500)], none).unwrap();
    let full = trie.memory_bytes();
    trie.apply(&[put(1, 0)], none).unwrap();
    assert_eq!(trie.memory_bytes(), full - 500);
    let delete = AccountDiff {
        account: AccountUpdate::Delete,
        ..put(2, 0)
    };
    trie.apply(&[delete], none).unwrap();
    // The list of freed nodes takes some.
    assert!(trie.memory_bytes() < full - 900);
}
