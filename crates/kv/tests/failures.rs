//! Effects of a failing disk on a store, and databases that are not stores.

use crate::support::{all, commitments, key, options, tiny_files, value};
use alloy_primitives::{B256, Bytes};
use cambium_disk::{Disk, Fault, FaultyDisk};
use cambium_kv::{Blake3, Commitment, Hasher, KvError, KvOptions, StateError, Store, StoreLoader};
use cambium_state::{Options, RepairFinding, repair};
use std::sync::Arc;

fn put(store: &Store, number: u8) -> Result<(), KvError> {
    let mut transaction = store.begin()?;
    transaction.put(key(number), value("x"))?;
    transaction.commit()?;
    Ok(())
}

#[test]
fn after_a_failed_sync_no_commit_is_made_until_the_store_is_opened_again() {
    let disk = Arc::new(FaultyDisk::new(1));
    let store = Store::create(disk.clone(), options()).unwrap();
    put(&store, 1).unwrap();
    let waiting = {
        let mut transaction = store.begin().unwrap();
        transaction.put(key(3), value("x")).unwrap();
        transaction
    };
    disk.inject(Fault::FailedSync, "", 1);
    assert!(matches!(put(&store, 2), Err(KvError::State(_))));
    disk.clear_faults();
    assert!(matches!(waiting.commit(), Err(KvError::State(_))));
    assert!(matches!(put(&store, 4), Err(KvError::State(_))));
    assert!(matches!(store.roll_back(1), Err(KvError::State(_))));
    // Readers go on.
    assert_eq!(store.get(&key(1)).unwrap(), Some(value("x")));
    drop(store);
    let store = Store::open(disk, options()).unwrap();
    let newest = store.newest().unwrap().number();
    assert!(newest == 1 || newest == 2, "{newest}");
    put(&store, 5).unwrap();
    assert_eq!(store.newest().unwrap().number(), newest + 1);
    assert_eq!(store.get(&key(4)).unwrap(), None);
}

#[test]
fn a_reader_beside_the_writer_can_not_commit() {
    let disk = Arc::new(FaultyDisk::new(1));
    let store = Store::create(disk.clone(), options()).unwrap();
    put(&store, 1).unwrap();
    assert!(Store::open(disk.clone(), options()).is_err(), "two writers");
    let reader = Store::open_read_only(disk, options()).unwrap();
    assert_eq!(reader.newest().unwrap(), store.newest().unwrap());
    assert_eq!(all(&reader.begin().unwrap()), all(&store.begin().unwrap()));
    let refused = put(&reader, 2).unwrap_err();
    assert!(
        matches!(refused, KvError::State(StateError::ReadOnly { .. })),
        "{refused:?}"
    );
}

#[test]
fn the_database_of_a_chain_is_no_store() {
    let disk: Arc<FaultyDisk> = Arc::new(FaultyDisk::new(1));
    let loader = cambium_state::Loader::new(disk.clone(), Default::default()).unwrap();
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let genesis = cambium_state::BlockMeta {
        id: cambium_primitives::BlockId::new(0, key(1)),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Bytes::new(),
    };
    drop(loaded.create(genesis, vec![]).unwrap());
    assert!(matches!(
        Store::open(disk, options()),
        Err(KvError::NotKeyValue)
    ));
}

#[test]
fn a_store_is_created_once_and_a_key_loaded_once() {
    let disk = Arc::new(FaultyDisk::new(1));
    drop(Store::create(disk.clone(), options()).unwrap());
    assert!(matches!(
        Store::create(disk, options()),
        Err(KvError::State(_))
    ));
    let empty: Arc<FaultyDisk> = Arc::new(FaultyDisk::new(1));
    assert!(matches!(
        Store::open(empty, options()),
        Err(KvError::State(_))
    ));
    let mut loader = StoreLoader::new(Arc::new(FaultyDisk::new(1)), options()).unwrap();
    for _ in 0..2 {
        loader.put(key(1), value("x")).unwrap();
    }
    assert!(loader.finish().is_err());
}

#[test]
fn a_store_is_a_directory_too() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("store");
    let store = Store::create(place.as_path(), options()).unwrap();
    put(&store, 1).unwrap();
    let newest = store.newest().unwrap();
    drop(store);
    let store = Store::open(place.to_str().unwrap(), options()).unwrap();
    assert_eq!(store.newest().unwrap(), newest);
}

/// What the device can't read, and no other file has, is reported by a trial as by the repair itself.
#[test]
fn a_repair_reports_unreadable_entries_as_its_trial_did() {
    for commitment in commitments() {
        let options = KvOptions {
            files: tiny_files(),
            commitment,
            merge_interval_commits: (commitment == Commitment::Layered).then_some(2),
            ..options()
        };
        let disk = Arc::new(FaultyDisk::new(1));
        let mut loader = StoreLoader::new(disk.clone(), options).unwrap();
        for number in 0..=255 {
            loader.put(key(number), value("loaded")).unwrap();
        }
        drop(loader.finish().unwrap());
        let files = disk.files();
        let pages = files.iter().find(|name| name.starts_with("segments/"));
        let pages = pages.unwrap();
        disk.spoil(pages, disk.contents(pages).unwrap().len() as u64 / 2, 1);
        let disk: Arc<dyn Disk> = disk;
        let planned = repair(&disk, Options::default(), true, &mut |_| {}).unwrap();
        let done = repair(&disk, Options::default(), false, &mut |_| {}).unwrap();
        assert_eq!(planned.findings, done.findings);
        let unread = |finding: &RepairFinding| finding.damage.contains("were not checked");
        assert!(done.findings.iter().any(unread), "{:?}", done.findings);
    }
}

/// A hash function of an application's own: the store does not know it by its name.
struct Upside(Blake3);

impl Hasher for Upside {
    fn name(&self) -> &'static str {
        "upside"
    }

    fn hash(&self, bytes: &[u8]) -> B256 {
        let mut hash = self.0.hash(bytes);
        hash.reverse();
        hash
    }
}

static UPSIDE: Upside = Upside(Blake3);

#[test]
fn a_hash_function_of_the_callers_own_is_given_again_at_opening() {
    let disk = Arc::new(FaultyDisk::new(1));
    let own = KvOptions {
        commitment: Commitment::Binary(&UPSIDE),
        ..options()
    };
    let store = Store::create(disk.clone(), own).unwrap();
    put(&store, 1).unwrap();
    let root = store.root().unwrap();
    drop(store);
    let refused = Store::open(disk.clone(), options());
    assert!(matches!(
        refused,
        Err(KvError::State(StateError::BadOptions(_)))
    ));
    assert_eq!(Store::open(disk, own).unwrap().root().unwrap(), root);
}
