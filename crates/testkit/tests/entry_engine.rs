//! Databases of entries, the leaves of a key-value database: the cases that are not in
//! `tests/engine.rs`.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue};
use cambium_state::{Db, Disk, FaultyDisk, LeafKind, Loader, Options, StateError, repair};
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{first_block, seal, wait_until_closed},
};
use cambium_trie::{Blake3, Commitment, ProofTargets, Sha256};
use std::{collections::BTreeMap, sync::Arc};

type Entries = BTreeMap<B256, Bytes>;

fn options(commitment: Commitment) -> Options {
    let options = Options {
        memory_bytes: 16 << 20,
        files: TINY_FILES,
        commitment,
        leaves: LeafKind::Entries,
        ..Options::default()
    };
    match commitment {
        Commitment::Layered => options.layered(3),
        _ => options,
    }
}

fn make(disk: &FaultyDisk, options: Options, entries: &Entries) -> Db {
    let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
    for (key, value) in entries {
        let value = EntryValue::Inline(value.clone());
        loader.entry(*key, &value).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    loaded.create(meta, vec![]).unwrap()
}

/// Commits a block of random changes of `entries`, whose keys are hashes of numbers.
fn step(db: &Db, random: &mut Random, entries: &mut Entries) {
    let mut changes = BTreeMap::new();
    for _ in 0..200 {
        let key = keccak256(random.below(900).to_le_bytes());
        let value = Bytes::from(vec![random.next() as u8; random.below(120) as usize]);
        let (account, wipe) = match random.below(3) {
            0 => (AccountUpdate::Delete, true),
            _ => (
                AccountUpdate::Entry(EntryValue::Inline(value.clone())),
                false,
            ),
        };
        match wipe {
            true => drop(entries.remove(&key)),
            false => drop(entries.insert(key, value)),
        }
        let (path, slots) = (key, vec![]);
        let change = AccountDiff {
            path,
            account,
            wipe,
            slots,
        };
        changes.insert(key, change);
    }
    let changes = Changes::new(changes.into_values().collect());
    let name = random.next().to_le_bytes();
    let sealed = seal(db.view().unwrap(), name, changes, vec![]);
    sealed.unwrap().commit().unwrap();
}

#[test]
fn an_index_of_entries_is_made_again_from_its_pages() {
    let commitments = [
        Commitment::Mpt,
        Commitment::Binary(&Blake3),
        Commitment::Binary(&Sha256),
        Commitment::Layered,
    ];
    for commitment in commitments {
        let (mut random, disk) = (Random::new(5), FaultyDisk::new(5));
        let mut entries = Entries::new();
        for index in 0..800u64 {
            let value = Bytes::from(vec![1; random.below(512) as usize]);
            entries.insert(keccak256(index.to_le_bytes()), value);
        }
        let db = make(&disk, options(commitment), &entries);
        for _ in 0..20 {
            step(&db, &mut random, &mut entries);
            if random.percent(30) {
                db.flush(0).unwrap();
            }
        }
        let head = db.head();
        drop(db);
        wait_until_closed(&disk);
        // Both checkpoints lose a byte of their index.
        for name in disk.list("").unwrap() {
            if name.starts_with("checkpoint-") {
                let file = disk.open(&name).unwrap();
                let len = file.len().unwrap();
                let mut byte = [0];
                file.read_at(&mut byte, len / 2).unwrap();
                file.write_at(&[byte[0] ^ 1], len / 2).unwrap();
            }
        }
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let unknown = Options {
            commitment: Commitment::Mpt,
            leaves: LeafKind::Accounts,
            merge_interval_blocks: None,
            ..options(commitment)
        };
        let db = match Db::open(shared.clone(), unknown) {
            Ok((db, _)) => db,
            Err(_) => {
                repair(&shared, unknown, false, &mut |_| {}).unwrap();
                Db::open(shared, unknown).unwrap().0
            }
        };
        assert_eq!(db.options().commitment, commitment);
        let is_layered = commitment == Commitment::Layered;
        assert_eq!(db.merge_interval(), is_layered.then_some(3));
        assert_eq!(db.head(), head);
        let view = db.view().unwrap();
        let keys: Vec<_> = (0..900u64).map(|at| keccak256(at.to_le_bytes())).collect();
        let expected = keys.iter().map(|key| entries.get(key).cloned());
        assert!(view.entries(&keys).unwrap().into_iter().eq(expected));
        let report = db.check(&mut |_| {}).unwrap();
        assert_eq!(report.damage, Vec::<String>::new());
        assert_eq!((report.accounts, report.slots), (0, 0));
    }
}

#[test]
fn a_database_takes_no_leaves_of_the_other_kind() {
    let own = options(Commitment::Binary(&Blake3));
    let db = make(&FaultyDisk::new(3), own, &Entries::new());
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
        ..own
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
        ..own
    };
    let refused = Loader::new(Arc::new(FaultyDisk::new(2)), options);
    assert!(matches!(refused, Err(StateError::BadOptions(_))));
}

#[test]
fn a_database_has_intervals_if_and_only_if_its_commitment_is_layered() {
    for leaves in [LeafKind::Accounts, LeafKind::Entries] {
        for (commitment, interval) in [
            (Commitment::Layered, None),
            (Commitment::Mpt, Some(3)),
            (Commitment::Binary(&Blake3), Some(3)),
        ] {
            let options = Options {
                commitment,
                leaves,
                merge_interval_blocks: interval,
                ..options(Commitment::Mpt)
            };
            let refused = Loader::new(Arc::new(FaultyDisk::new(2)), options);
            assert!(matches!(refused, Err(StateError::BadOptions(_))));
        }
        let own = Options {
            leaves,
            ..options(Commitment::Layered)
        };
        let disk = FaultyDisk::new(2);
        let db = make(&disk, own, &Entries::new());
        assert_eq!(
            db.view().unwrap().state_root(),
            Commitment::Layered.empty_root()
        );
        drop(db);
        wait_until_closed(&disk);
        let (db, _) = Db::open(Arc::new(disk), Options::default()).unwrap();
        assert!(db.options().commitment == Commitment::Layered && db.options().leaves == leaves);
    }
}

#[test]
fn proofs_of_entries_and_of_accounts_are_refused_under_layered_where_there_are_the_others() {
    let accounts = Options {
        leaves: LeafKind::Accounts,
        ..options(Commitment::Layered)
    };
    let db = make(&FaultyDisk::new(2), accounts, &Entries::new());
    let view = db.view().unwrap();
    let refused = view.prove_layered_entries(&[B256::ZERO]);
    assert!(matches!(refused, Err(StateError::WrongLeaf { .. })));
    let limit = 1.try_into().unwrap();
    let refused = view.prove_layered_entry_range(B256::ZERO, B256::ZERO, limit);
    assert!(matches!(refused, Err(StateError::WrongLeaf { .. })));
    let entries = make(
        &FaultyDisk::new(2),
        options(Commitment::Layered),
        &Entries::new(),
    );
    let view = entries.view().unwrap();
    let refused = view.prove_layered(&ProofTargets::new(vec![(B256::ZERO, vec![])]));
    assert!(matches!(refused, Err(StateError::WrongLeaf { .. })));
    let mpt = make(
        &FaultyDisk::new(2),
        options(Commitment::Mpt),
        &Entries::new(),
    );
    let refused = mpt.view().unwrap().prove_layered_entries(&[B256::ZERO]);
    assert!(matches!(refused, Err(StateError::NotUnderMpt(_))));
}
