//! Promises that readers of the documentation have broken, each with the case that broke it.

use crate::support;
use crate::support::{
    commitments, key, open, options, options_of, store_with, value, verify_witness,
};
use alloy_primitives::{B256, keccak256};
use cambium_disk::FaultyDisk;
use cambium_kv::{
    Commitment, KeyRange, KvError, KvOptions, Store, StoreLoader, WriteBatch, verify, verify_range,
};
use std::{num::NonZeroUsize, sync::Arc};

/// A key in the shard of `first`, at another nibble there for each of 16 numbers.
fn in_shard(first: u8, number: u8) -> B256 {
    let mut key = B256::ZERO;
    (key[0], key[1], key[2]) = (first, first, number << 4);
    key
}

fn write(store: &Store, writes: &[(B256, Option<&[u8]>)]) -> Result<B256, KvError> {
    let mut batch = WriteBatch::new();
    for (key, value) in writes {
        match value {
            Some(value) => {
                batch.put(*key, value.to_vec())?;
            }
            None => {
                batch.delete(*key);
            }
        }
    }
    Ok(store.write(batch)?.root)
}

/// A store in whose trie the shards of 0x33 and of 0x55 have an extension at their root, and one
/// neighbour each.
fn of_lone_shards(disk: &Arc<FaultyDisk>, commitment: Commitment) -> Store {
    let store = Store::create(disk.clone(), options_of(commitment)).unwrap();
    let long: &[u8] = &[7; 100];
    let many = [0x33, 0x55].map(|first| (0..8).map(move |at| (in_shard(first, at), Some(long))));
    let mut writes: Vec<_> = many.into_iter().flatten().collect();
    writes.extend([0x34, 0x56, 0x77].map(|first| (in_shard(first, 0), Some(long))));
    write(&store, &writes).unwrap();
    store
}

#[test]
fn a_shard_that_was_only_read_can_lose_its_neighbour() {
    for commitment in commitments() {
        for (reopened, how) in [(false, "hint"), (false, "witness"), (true, "hint")] {
            let disk = Arc::new(FaultyDisk::new(1));
            let mut store = of_lone_shards(&disk, commitment);
            store.flush().unwrap();
            let fresh = store_with(options_of(commitment));
            if reopened {
                drop(store);
                store = open(&disk, options_of(commitment));
            }
            let read = in_shard(0x33, 0);
            if how == "hint" {
                store.begin().unwrap().warm_up(&[read]).unwrap();
            } else {
                let mut transaction = store.begin().unwrap();
                transaction.get(&read).unwrap();
                transaction.put(in_shard(0x77, 0), value("x")).unwrap();
                drop(transaction.prepare_with_witness().unwrap());
            }
            let root = write(&store, &[(in_shard(0x34, 0), None)])
                .unwrap_or_else(|error| panic!("{commitment:?}, {reopened}, {how}: {error}"));
            if commitment == Commitment::Layered {
                continue;
            }
            // The same entries, written at once.
            let left = store.begin().unwrap();
            let left: Vec<_> = left.range(..).collect::<Result<_, _>>().unwrap();
            let left: Vec<_> = left.iter().map(|(key, it)| (*key, Some(&it[..]))).collect();
            assert_eq!(write(&fresh, &left).unwrap(), root, "{commitment:?}");
        }
    }
}

#[test]
fn hints_about_old_commits_stop_no_merge() {
    for commitment in commitments() {
        for (reopened, hinted) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
            let disk = Arc::new(FaultyDisk::new(1));
            let mut store = of_lone_shards(&disk, commitment);
            store.flush().unwrap();
            write(&store, &[(in_shard(0x77, 0), Some(b"2"))]).unwrap();
            write(&store, &[(in_shard(0x34, 0), None)]).unwrap();
            if reopened {
                drop(store);
                store = open(&disk, options_of(commitment));
            }
            store
                .begin()
                .unwrap()
                .warm_up(&[in_shard(0x55, 0)])
                .unwrap();
            write(&store, &[(in_shard(0x56, 0), None)]).unwrap();
            let old = store.begin_at(hinted).unwrap();
            old.warm_up(&[in_shard(0x33, 0)]).unwrap();
            store.flush().unwrap();
            write(&store, &[(in_shard(0x77, 0), Some(b"3"))]).unwrap();
        }
    }
}

/// Neither a reader nor a blind writer has seen what counts, whether or not the window still knows.
#[test]
fn what_was_begun_on_a_dropped_commit_is_refused_however_old_it_is() {
    for window in [Some(0), Some(1000), None] {
        let store = store_with(KvOptions {
            conflict_window_bytes: window,
            ..options()
        });
        let read = key(7);
        let mut transaction = store.begin().unwrap();
        transaction.put(read, value("never committed")).unwrap();
        let prepared = transaction.prepare().unwrap().unwrap();
        let reader = store.begin_on(&prepared).unwrap();
        assert_eq!(reader.get(&read).unwrap(), Some(value("never committed")));
        let mut blind = store.begin_on(&prepared).unwrap();
        blind.put(key(9), value("x")).unwrap();
        drop(prepared);
        for number in 0..50 {
            write(&store, &[(key(number), Some(b"other"))]).unwrap();
        }
        let refused =
            |outcome: Result<_, KvError>| matches!(outcome, Err(KvError::SnapshotNotCommitted(_)));
        assert!(refused(reader.commit()), "{window:?}");
        assert!(refused(blind.commit()), "{window:?}");
    }
}

#[test]
fn a_blind_write_on_what_was_rolled_back_is_refused_however_old_it_is() {
    for window in [Some(0), None] {
        let store = store_with(KvOptions {
            conflict_window_bytes: window,
            ..options()
        });
        write(&store, &[(key(1), Some(b"v"))]).unwrap();
        let mut blind = store.begin().unwrap();
        blind.put(key(9), value("x")).unwrap();
        store.roll_back(1).unwrap();
        for number in 2..5 {
            write(&store, &[(key(number), Some(b"v"))]).unwrap();
        }
        let refused = matches!(blind.commit(), Err(KvError::SnapshotNotCommitted(_)));
        assert!(refused, "{window:?}");
    }
}

/// A reader that began on a prepared commit is valid once that is committed, however long ago.
#[test]
fn a_reader_of_a_commit_that_was_prepared_is_valid_once_it_is_committed() {
    let store = store_with(KvOptions {
        conflict_window_bytes: Some(0),
        ..options()
    });
    let mut transaction = store.begin().unwrap();
    transaction.put(key(7), value("committed")).unwrap();
    let prepared = transaction.prepare().unwrap().unwrap();
    let reader = store.begin_on(&prepared).unwrap();
    let mut blind = store.begin_on(&prepared).unwrap();
    blind.put(key(200), value("x")).unwrap();
    prepared.commit().unwrap();
    for number in 0..100 {
        write(&store, &[(key(number), Some(b"other"))]).unwrap();
    }
    assert_eq!(reader.get(&key(7)).unwrap(), Some(value("committed")));
    assert_eq!(reader.commit().unwrap().number(), 1);
    blind.commit().unwrap();
    assert_eq!(store.get(&key(200)).unwrap(), Some(value("x")));
}

/// 2^20 keys that count in their first 20 bits, all with one value: in the trie are 16 equal subtries at
/// each branch, and a proof has one node a level.
#[test]
fn a_proof_from_a_trie_of_equal_subtries_holds() {
    let numbered = |number: u32| {
        let mut key = B256::ZERO;
        key[..4].copy_from_slice(&(number << 12).to_be_bytes());
        key
    };
    for commitment in [Commitment::Mpt, Commitment::Layered] {
        let options = options_of(commitment);
        let mut loader = StoreLoader::new(Arc::new(FaultyDisk::new(1)), options).unwrap();
        for number in 0..1 << 20 {
            loader.put(numbered(number), value("1")).unwrap();
        }
        let store = loader.finish().unwrap();
        let transaction = store.begin().unwrap();
        let (root, absent) = (transaction.root(), keccak256("absent"));
        let keys = [numbered(0), numbered(77_777), absent];
        let proved = transaction.prove(&keys).unwrap();
        let values = proved.values.iter().map(|(_, value)| value.is_some());
        assert_eq!(values.collect::<Vec<_>>(), [true, true, false]);
        verify(root, commitment, &proved).unwrap();
        let range = KeyRange::new(numbered(1000), numbered(2000)).unwrap();
        let limit = NonZeroUsize::new(5000).unwrap();
        let proved = transaction.prove_range(range, limit).unwrap();
        assert_eq!(proved.entries.len(), 1001);
        verify_range(root, commitment, &proved).unwrap();
        // The deletion leaves a branch whose children are not on the way.
        let mut update = store.begin().unwrap();
        update.get(&numbered(5)).unwrap();
        update.delete(numbered(5));
        update.put(numbered(6), value("2")).unwrap();
        let before = store.newest().unwrap();
        let prepared = update.prepare_with_witness().unwrap().unwrap();
        let witness = prepared.witness().unwrap();
        let verified = verify_witness(&store, before, witness).unwrap();
        assert_eq!(verified.root, prepared.root());
    }
}

#[test]
fn an_existing_store_knows_its_commitment_and_its_interval() {
    for created in commitments() {
        let disk = Arc::new(FaultyDisk::new(1));
        drop(Store::create(disk.clone(), options_of(created)).unwrap());
        for commitment in commitments() {
            for interval in [None, Some(0), Some(77)] {
                let given = KvOptions {
                    commitment,
                    merge_interval_commits: interval,
                    ..options()
                };
                let store = open(&disk, given);
                assert!(store.commitment() == created, "{created:?}");
                let own = options_of(created).merge_interval_commits;
                assert_eq!(store.merge_interval().map(u64::from), own);
            }
        }
    }
}

#[test]
fn the_newest_64_commits_can_always_be_read() {
    let store = store_with(KvOptions {
        keep_commits: Some(2),
        files: support::tiny_files(),
        ..options()
    });
    for number in 0..1000u32 {
        let bytes = number.to_be_bytes();
        write(&store, &[(key(1), Some(&bytes[..]))]).unwrap();
        if number % 100 == 99 {
            store.flush().unwrap();
        }
    }
    for back in 0..64 {
        let number = 1000 - back;
        let old = store.begin_at(number).unwrap();
        let bytes = (number as u32 - 1).to_be_bytes();
        assert_eq!(
            old.get(&key(1)).unwrap().unwrap(),
            bytes.to_vec(),
            "{number}"
        );
    }
    // Commits that left the log have another error than those that never existed, and don't come back with a rollback.
    let oldest_of = |number| match store.begin_at(number) {
        Err(KvError::NotKept { oldest }) => oldest,
        other => panic!("{number}: {:?}", other.map(drop)),
    };
    let oldest = oldest_of(3);
    assert!(oldest <= 1000 - 63, "{oldest}");
    let told = store.begin_at(3).err().unwrap().to_string();
    assert!(
        told.contains("`keep_commits`") && !told.contains("block"),
        "{told}"
    );
    let above = store.begin_at(1001).err().unwrap();
    assert!(matches!(
        above,
        KvError::NoSuchCommit {
            number: 1001,
            newest: 1000
        }
    ));
    store.roll_back(40).unwrap();
    assert_eq!(oldest_of(3), oldest);
    (oldest.max(1000 - 63)..=960).for_each(|number| drop(store.begin_at(number).unwrap()));
    let refused = store.roll_back(900).err().unwrap();
    assert!(matches!(refused, KvError::NotKept { .. }), "{refused}");
}
