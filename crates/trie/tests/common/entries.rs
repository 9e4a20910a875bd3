//! A model of a key-value database too simple to be wrong, whose roots nomt-core and alloy-trie compute.

use super::Random;
use alloy_primitives::{B256, keccak256};
use alloy_trie::{HashBuilder, Nibbles};
use cambium_keccak::Batch;
use cambium_primitives::{
    AccountDiff, AccountUpdate, Changes, EntryValue, INLINE_VALUE_BYTES_MAX, Path, StoredValue,
};
use cambium_trie::{Blake3, Commitment, LeafValue, PartialTrie, Sha256, commit};
use nomt_core::hasher::{Blake3Hasher, NodeHasher, Sha2Hasher, ValueHasher};
use std::{collections::BTreeMap, num::NonZeroU64};

pub type Entries = BTreeMap<B256, Vec<u8>>;

/// The root that the peers compute from scratch.
pub fn expected_root(commitment: Commitment, entries: &Entries) -> B256 {
    fn nomt<H: NodeHasher + ValueHasher>(entries: &Entries) -> B256 {
        let leaves = entries
            .iter()
            .map(|(key, value)| (key.0, H::hash_value(value)));
        B256::new(nomt_core::update::build_trie::<H>(0, leaves, |_| {}))
    }
    match commitment {
        Commitment::Binary(hasher) if hasher.name() == "blake3" => nomt::<Blake3Hasher>(entries),
        Commitment::Binary(_) => nomt::<Sha2Hasher>(entries),
        Commitment::Mpt | Commitment::PartialMpt | Commitment::Layered => {
            let leaves = entries.iter();
            mpt_root(leaves.map(|(key, value)| (key, mpt_leaf(value))))
        }
    }
}

/// The value of an entry's leaf in a Merkle Patricia trie.
pub fn mpt_leaf(value: &[u8]) -> Vec<u8> {
    let mut leaf = vec![value.len() as u8];
    leaf.extend_from_slice(value);
    if value.len() > 32 {
        leaf = vec![33];
        leaf.extend_from_slice(&(value.len() as u32).to_be_bytes());
        leaf.extend_from_slice(keccak256(value).as_slice());
    }
    leaf
}

/// The root of a Merkle Patricia trie of leaves with these values, sorted by key.
pub fn mpt_root<'a>(leaves: impl Iterator<Item = (&'a B256, Vec<u8>)>) -> B256 {
    let mut builder = HashBuilder::default();
    for (key, value) in leaves {
        builder.add_leaf(Nibbles::unpack(key), &value);
    }
    builder.root()
}

pub fn commitments() -> [Commitment; 3] {
    [
        Commitment::Mpt,
        Commitment::Binary(&Blake3),
        Commitment::Binary(&Sha256),
    ]
}

/// A value as leaves have it.
pub fn value_of(commitment: Commitment, value: &[u8]) -> EntryValue {
    if value.len() <= INLINE_VALUE_BYTES_MAX {
        return EntryValue::Inline(value.to_vec().into());
    }
    EntryValue::Stored(StoredValue {
        hash: commitment.value_hash(value),
        len: value.len() as u32,
        place: NonZeroU64::MIN,
    })
}

pub fn random_value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(6) {
        0 => 0,
        1 => 32,
        2 => 33,
        3 => INLINE_VALUE_BYTES_MAX + random.below(3),
        _ => random.below(100),
    };
    (0..len).map(|_| random.next() as u8).collect()
}

/// Changes some of `keys` in the model, and returns the changes.
pub fn random_changes(
    random: &mut Random,
    commitment: Commitment,
    keys: &[B256],
    entries: &mut Entries,
) -> Changes {
    let mut changes = BTreeMap::new();
    let deletes = random.below(4);
    for _ in 0..1 + random.below(keys.len()) {
        let key = random.pick(keys);
        let account = if random.below(4) < deletes {
            entries.remove(&key);
            AccountUpdate::Delete
        } else {
            let value = random_value(random);
            let update = AccountUpdate::Entry(value_of(commitment, &value));
            entries.insert(key, value);
            update
        };
        changes.insert(key, account);
    }
    let changes = changes.into_iter().map(|(path, account)| AccountDiff {
        path,
        account,
        wipe: false,
        slots: vec![],
    });
    Changes::new(changes.collect())
}

/// The whole trie of a model, hashed.
pub fn trie_of_entries(commitment: Commitment, entries: &Entries) -> PartialTrie {
    let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
    let leaves = entries.iter().map(|(key, value)| {
        let value = LeafValue::Entry(value_of(commitment, value));
        (Path::account(key), value)
    });
    let root = trie
        .graft_leaves(&Path::EMPTY, leaves, std::iter::empty())
        .expect("sorted leaves");
    trie.set_root(root);
    commit(&mut [&mut trie], &mut Batch::new());
    trie
}
