//! A key-value database with tiny files, its blocks, and what they take on disk.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes, EntryValue, Path};
use cambium_state::{
    BlockMeta, Db, FaultyDisk, LeafKind, Loader, Options, Sealed, Session, StateError, View,
};
use cambium_testkit::{Random, TINY_FILES};
use cambium_trie::{Commitment, EMPTY_ROOT, LeafValue, PartialTrie, commit, layered_root};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

pub(crate) type Entries = BTreeMap<B256, Bytes>;

/// Bytes of a value's record besides the value, without what aligns it.
pub(crate) const HEAD_BYTES: u64 = 80;
/// Bytes of a segment's header.
pub(crate) const HEADER_BYTES: u64 = 24;
pub(crate) const KEEP_BLOCKS: u64 = 16;
/// Few, so that segments are soon of no block that is kept.
pub(crate) const MODEL_KEEP_BLOCKS: u64 = 8;

pub(crate) fn options(commitment: Commitment) -> Options {
    Options {
        memory_bytes: 8 << 20,
        unfinalized_blocks: 8,
        keep_blocks: Some(KEEP_BLOCKS),
        files: TINY_FILES,
        commitment,
        leaves: LeafKind::Entries,
        ..Options::default()
    }
}

pub(crate) fn key(index: u64) -> B256 {
    keccak256(index.to_le_bytes())
}

/// A value of which every byte depends on `name`.
pub(crate) fn value_of(name: u64, len: usize) -> Bytes {
    let mut random = Random::new(name);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(random.below(u64::MAX).to_le_bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// The root of a trie built from scratch, with all values in its leaves.
pub(crate) fn root_of(commitment: Commitment, entries: &Entries) -> B256 {
    let leaves = entries.iter().map(|(key, value)| {
        let value = LeafValue::Entry(EntryValue::Inline(value.clone()));
        (Path::account(key), value)
    });
    let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
    let root = trie
        .graft_leaves(&Path::EMPTY, leaves, std::iter::empty())
        .unwrap();
    trie.set_root(root);
    commit(&mut [&mut trie], &mut Batch::new());
    trie.state_root().unwrap()
}

pub(crate) fn put(
    session: &Session,
    key: B256,
    value: Option<&Bytes>,
) -> Result<AccountDiff, StateError> {
    Ok(AccountDiff {
        path: key,
        account: match value {
            Some(value) => AccountUpdate::Entry(session.value(&key, value.clone())?),
            None => AccountUpdate::Delete,
        },
        wipe: value.is_none(),
        slots: vec![],
    })
}

/// Seals a block of puts and deletions, in the order of their keys.
pub(crate) fn seal(
    view: View,
    name: u64,
    writes: &BTreeMap<B256, Option<Bytes>>,
) -> Result<Sealed, StateError> {
    let parent = view.block();
    let session = view.session();
    let changes: Result<Vec<_>, _> = writes
        .iter()
        .map(|(key, value)| put(&session, *key, value.as_ref()))
        .collect();
    let staged = session.finish(Changes::new(changes?), vec![])?;
    let meta = BlockMeta {
        id: BlockId::new(parent.number + 1, keccak256(name.to_le_bytes())),
        parent: parent.hash,
        state_root: staged.root(),
        body: Bytes::new(),
    };
    staged.seal(meta)
}

pub(crate) fn create(disk: &FaultyDisk, options: Options, entries: &Entries) -> Db {
    let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
    for (key, value) in entries {
        let value = loader.value(key, value.clone()).unwrap();
        loader.entry(*key, &value).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let root = match options.commitment {
        Commitment::Layered => {
            layered_root(EMPTY_ROOT, EMPTY_ROOT, root_of(Commitment::Mpt, entries))
        }
        commitment => root_of(commitment, entries),
    };
    assert_eq!(loaded.root(), root);
    let meta = BlockMeta {
        id: BlockId::new(0, B256::with_last_byte(1)),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Bytes::new(),
    };
    loaded.create(meta, vec![]).unwrap()
}

pub(crate) fn open(disk: &FaultyDisk, options: Options) -> Db {
    let (db, recovery) = Db::open(Arc::new(disk.clone()), options).unwrap();
    assert_eq!(recovery.skipped_records, 0, "{:?}", recovery.notes);
    db
}

/// Paths of all value segments, in the order of their numbers.
pub(crate) fn segments(disk: &FaultyDisk) -> Vec<String> {
    let mut files = disk.files();
    files.retain(|file| file.starts_with("values/"));
    files.sort();
    files
}

pub(crate) fn value_bytes_on_disk(disk: &FaultyDisk) -> u64 {
    let files = segments(disk);
    let len = |file: &String| disk.contents(file).map_or(0, |bytes| bytes.len() as u64);
    files.iter().map(len).sum()
}

pub(crate) fn assert_reads(view: &View, keys: &[B256], expected: &Entries, at: &str) {
    let values: Vec<_> = keys.iter().map(|key| expected.get(key).cloned()).collect();
    assert!(view.entries(keys).unwrap() == values, "{at}");
    let one = keys[keys.len() / 2];
    assert!(
        view.entry(&one).unwrap().as_ref() == expected.get(&one),
        "{at}"
    );
    let mut found = Entries::new();
    let each = |key, value| {
        found.insert(key, value);
        ControlFlow::Continue(())
    };
    view.each_entry(&B256::ZERO, each).unwrap();
    assert!(found == *expected, "{at}");
}

/// Overwrites one value `times` times, with blocks of one write.
pub(crate) fn overwrite(db: &Db, len: usize, times: u64) {
    for name in 0..times {
        let writes = [(key(1), Some(value_of(name, len)))].into();
        let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
        sealed.commit().unwrap();
    }
}
