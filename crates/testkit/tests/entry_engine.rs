//! The engine with entries, the leaves of a key-value database, beside a model: every commitment, random
//! keys and keys that share long prefixes, merges with tiny files, crashes, unwinds and checks.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_keccak::Batch;
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, Changes, EntryValue, Path};
use cambium_state::{BlockMeta, Db, FaultyDisk, LeafKind, Loader, Options, StateError, repair};
use cambium_testkit::{Random, TINY_FILES, plain::wait_until_closed, say};
use cambium_trie::{
    Blake3, Commitment, LeafRange, LeafValue, Lookup, PartialTrie, ProofTargets, Sha256, commit,
};
use std::{collections::BTreeMap, num::NonZeroUsize, ops::ControlFlow, sync::Arc};

type Entries = BTreeMap<B256, Bytes>;

fn commitments() -> [Commitment; 3] {
    [
        Commitment::Mpt,
        Commitment::Binary(&Blake3),
        Commitment::Binary(&Sha256),
    ]
}

fn options(commitment: Commitment, memory_bytes: u64) -> Options {
    Options {
        memory_bytes,
        files: TINY_FILES,
        commitment,
        leaves: LeafKind::Entries,
        ..Options::default()
    }
}

/// The root of a trie built from scratch. `crates/trie/tests/entries.rs` compares such tries with
/// nomt-core and alloy-trie.
fn root_of(commitment: Commitment, entries: &Entries) -> B256 {
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

/// Keys of which many share prefixes of up to 63 nibbles, in long runs of neighbours.
fn keys(random: &mut Random, count: usize) -> Vec<B256> {
    let mut keys = Vec::new();
    while keys.len() < count {
        let mut key = keccak256(random.below(u64::MAX).to_le_bytes());
        if random.below(3) == 0 {
            keys.push(key);
            continue;
        }
        if let Some(before) = keys.get(random.below(keys.len().max(1) as u64) as usize) {
            let shared = random.below(32) as usize;
            key[..shared].copy_from_slice(&before[..shared]);
        }
        for last in 0..random.below(40) {
            key[31] = last as u8;
            keys.push(key);
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn value(random: &mut Random) -> Bytes {
    let len = match random.below(8) {
        0 => 0,
        1 => 512,
        2 => 33,
        _ => random.below(120),
    };
    (0..len).map(|_| random.below(256) as u8).collect()
}

fn change(key: B256, value: Option<&Bytes>) -> AccountDiff {
    AccountDiff {
        path: key,
        account: match value {
            Some(value) => AccountUpdate::Entry(EntryValue::Inline(value.clone())),
            None => AccountUpdate::Delete,
        },
        wipe: value.is_none(),
        slots: vec![],
    }
}

struct World {
    commitment: Commitment,
    memory_bytes: u64,
    random: Random,
    keys: Vec<B256>,
    /// The state after each block.
    states: Vec<Entries>,
    /// Blocks whose number is used again have other hashes.
    salt: u64,
}

impl World {
    fn new(
        seed: u64,
        commitment: Commitment,
        memory_bytes: u64,
        count: usize,
    ) -> (Self, FaultyDisk) {
        let mut random = Random::new(seed);
        let keys = keys(&mut random, count);
        let mut first = Entries::new();
        for key in &keys {
            if random.below(2) == 0 {
                let value = value(&mut random);
                first.insert(*key, value);
            }
        }
        let world = Self {
            commitment,
            memory_bytes,
            random,
            keys,
            states: vec![first],
            salt: seed,
        };
        (world, FaultyDisk::new(seed))
    }

    fn options(&self) -> Options {
        options(self.commitment, self.memory_bytes)
    }

    fn create(&self, disk: &FaultyDisk) -> Db {
        let mut loader = Loader::new(Arc::new(disk.clone()), self.options()).unwrap();
        for (key, value) in &self.states[0] {
            loader
                .entry(*key, &EntryValue::Inline(value.clone()))
                .unwrap();
        }
        let loaded = loader.finish(&mut |_| {}).unwrap();
        assert_eq!(loaded.root(), root_of(self.commitment, &self.states[0]));
        let meta = BlockMeta {
            id: BlockId::new(0, B256::with_last_byte(1)),
            parent: B256::ZERO,
            state_root: loaded.root(),
            body: Bytes::new(),
        };
        loaded.create(meta, vec![]).unwrap()
    }

    /// Commits a block of random changes.
    fn step(&mut self, db: &Db, most: u64) {
        let parent = db.head();
        let mut state = self.states[parent.number as usize].clone();
        let mut changes = BTreeMap::new();
        for _ in 0..1 + self.random.below(most) {
            let key = self.keys[self.random.below(self.keys.len() as u64) as usize];
            let value = (self.random.below(3) > 0).then(|| value(&mut self.random));
            changes.insert(key, change(key, value.as_ref()));
            match value {
                Some(value) => _ = state.insert(key, value),
                None => _ = state.remove(&key),
            }
        }
        let keys: Vec<_> = changes.keys().copied().collect();
        let session = db.view().unwrap().session();
        if self.random.below(2) == 0 {
            let before = &self.states[parent.number as usize];
            let expected: Vec<_> = keys.iter().map(|key| before.get(key).cloned()).collect();
            assert_eq!(session.entries(&keys).unwrap(), expected);
        }
        let changes = Changes::new(changes.into_values().collect());
        let staged = session.finish(changes, vec![]).unwrap();
        let expected = root_of(self.commitment, &state);
        assert_eq!(
            staged.root(),
            expected,
            "{} {}",
            self.commitment.name(),
            parent.number
        );
        self.salt += 1;
        let meta = BlockMeta {
            id: BlockId::new(parent.number + 1, keccak256(self.salt.to_le_bytes())),
            parent: parent.hash,
            state_root: expected,
            body: Bytes::new(),
        };
        staged.seal(meta).unwrap().commit().unwrap();
        self.states.truncate(parent.number as usize + 1);
        self.states.push(state);
    }

    /// Compares all reads at the head, and at an older block, with the model.
    fn check(&mut self, db: &Db) {
        let head = db.head().number;
        let older = head.saturating_sub(self.random.below(6));
        for number in [head, older] {
            let view = db.view_at(number).unwrap();
            let state = &self.states[number as usize];
            let expected: Vec<_> = self
                .keys
                .iter()
                .map(|key| state.get(key).cloned())
                .collect();
            assert_eq!(view.entries(&self.keys).unwrap(), expected);
            let key = self.keys[self.random.below(self.keys.len() as u64) as usize];
            assert_eq!(view.entry(&key).unwrap(), state.get(&key).cloned());
            for from in [B256::ZERO, key] {
                let mut found = Vec::new();
                let limit = if from == key { 30 } else { usize::MAX };
                view.each_entry(&from, |key, value| {
                    found.push((key, value));
                    match found.len() < limit {
                        true => ControlFlow::Continue(()),
                        false => ControlFlow::Break(()),
                    }
                })
                .unwrap();
                let expected = state.range(from..).take(limit);
                let expected: Vec<_> = expected.map(|(k, v)| (*k, v.clone())).collect();
                assert_eq!(found, expected);
            }
            let targets = ProofTargets::new(vec![(key, vec![])]);
            let part = view.extract(&targets).unwrap();
            assert_eq!(part.state_root(), Some(view.state_root()));
            let found = match part.lookup(&Path::account(&key)) {
                Lookup::Entry(EntryValue::Inline(value)) => Some(value),
                Lookup::Absent => None,
                other => panic!("{other:?}"),
            };
            assert_eq!(found, state.get(&key).cloned());
            let range = LeafRange::accounts(key, B256::repeat_byte(0xff));
            let limit = NonZeroUsize::new(7).unwrap();
            let extracted = view.extract_range(&range, limit).unwrap();
            let leaves = extracted.trie.leaves(&extracted.range).unwrap();
            let leaves = leaves.into_iter().map(|(key, leaf)| match leaf {
                LeafValue::Entry(EntryValue::Inline(value)) => (key, value),
                other => panic!("{other:?}"),
            });
            let expected = state.range(key..).take(7).map(|(k, v)| (*k, v.clone()));
            assert!(leaves.eq(expected));
        }
    }
}

#[test]
fn entries_agree_with_the_model_through_merges_unwinds_and_crashes() {
    let (mut merges, mut steps) = (0, 0);
    for seed in 0..4 {
        for commitment in commitments() {
            // Little memory: merges come every few blocks.
            let (mut world, mut disk) = World::new(seed, commitment, 4 << 20, 600);
            let mut db = world.create(&disk);
            for round in 0..60 {
                world.step(&db, 300);
                steps += 1;
                if world.random.below(4) == 0 {
                    world.check(&db);
                }
                if world.random.below(12) == 0 {
                    let to = db.head().number.saturating_sub(1 + world.random.below(8));
                    db.unwind(to).unwrap();
                    assert_eq!(db.head().number, to);
                    world.check(&db);
                }
                if world.random.below(10) == 0 {
                    merges += db.counters().merges;
                    let head = db.head();
                    drop(db);
                    wait_until_closed(&disk);
                    wait_until_closed(&disk);
                    if world.random.below(2) == 0 {
                        disk = disk.crash();
                    }
                    db = Db::open(
                        Arc::new(disk.clone()),
                        Options {
                            commitment: Commitment::Mpt,
                            leaves: LeafKind::Accounts,
                            ..world.options()
                        },
                    )
                    .unwrap()
                    .0;
                    assert_eq!(db.head(), head);
                    assert_eq!(db.options().commitment, commitment);
                    world.check(&db);
                }
                if round % 20 == 19 {
                    let report = db.check(&mut |_| {}).unwrap();
                    assert_eq!(report.damage, Vec::<String>::new());
                    assert_eq!((report.accounts, report.slots), (0, 0));
                }
            }
            merges += db.counters().merges;
        }
    }
    say(&format!("entries: {steps} blocks, {merges} merges"));
    assert!(merges > 50, "{merges} merges");
}

#[test]
fn an_index_of_entries_on_disk_agrees_with_the_model() {
    for commitment in [Commitment::Mpt, Commitment::Binary(&Blake3)] {
        let (mut world, disk) = World::new(77, commitment, 8 << 20, 3000);
        let db = world.create(&disk);
        drop(db);
        wait_until_closed(&disk);
        let options = Options {
            index_bytes_max: Some(4 << 10),
            ..world.options()
        };
        let (db, _) = Db::open(Arc::new(disk.clone()), options).unwrap();
        for _ in 0..40 {
            world.step(&db, 200);
            world.check(&db);
        }
        let report = db.check(&mut |_| {}).unwrap();
        assert_eq!(report.damage, Vec::<String>::new());
    }
}

#[test]
fn an_index_of_entries_is_made_again_from_its_pages() {
    for commitment in commitments() {
        let (mut world, disk) = World::new(5, commitment, 4 << 20, 800);
        let db = world.create(&disk);
        for _ in 0..20 {
            world.step(&db, 300);
        }
        let head = db.head();
        drop(db);
        wait_until_closed(&disk);
        // Both checkpoints lose a byte of their index.
        let checkpoints: Vec<_> = {
            use cambium_state::Disk;
            let names = disk.list("").unwrap();
            names
                .into_iter()
                .filter(|name| name.starts_with("checkpoint-"))
                .collect()
        };
        for name in &checkpoints {
            use cambium_state::Disk;
            let file = disk.open(name).unwrap();
            let len = file.len().unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, len / 2).unwrap();
            file.write_at(&[byte[0] ^ 1], len / 2).unwrap();
        }
        let shared: Arc<dyn cambium_state::Disk> = Arc::new(disk.clone());
        let opened = Db::open(shared.clone(), world.options());
        let db = match opened {
            Ok((db, _)) => db,
            Err(_) => {
                repair(&shared, world.options(), false, &mut |_| {}).unwrap();
                Db::open(shared, world.options()).unwrap().0
            }
        };
        assert_eq!(db.head(), head);
        world.check(&db);
        assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
    }
}

#[test]
fn a_database_takes_no_leaves_of_the_other_kind() {
    let (world, disk) = World::new(3, Commitment::Binary(&Blake3), 16 << 20, 10);
    let db = world.create(&disk);
    let put = AccountDiff {
        path: B256::ZERO,
        account: AccountUpdate::Put(Default::default()),
        wipe: false,
        slots: vec![],
    };
    let refused = db
        .view()
        .unwrap()
        .session()
        .finish(Changes::new(vec![put]), vec![]);
    assert!(matches!(
        refused,
        Err(StateError::WrongLeaf {
            leaves: "entries",
            ..
        })
    ));
    let options = Options {
        leaves: LeafKind::Accounts,
        commitment: Commitment::Mpt,
        ..world.options()
    };
    let mut loader = Loader::new(Arc::new(FaultyDisk::new(2)), options).unwrap();
    let refused = loader.entry(B256::ZERO, &EntryValue::Inline(Bytes::new()));
    assert!(matches!(
        refused,
        Err(StateError::WrongLeaf {
            leaves: "accounts",
            ..
        })
    ));
    let options = Options {
        leaves: LeafKind::Accounts,
        ..world.options()
    };
    let refused = Loader::new(Arc::new(FaultyDisk::new(2)), options);
    assert!(matches!(refused, Err(StateError::BadOptions(_))));
}
