//! Stores under `layered`: the proved and the claimed parts of a commit's witness, old commits, long values, and
//! options.

use crate::support::{
    all, key, open, options, options_of, root_after, root_of, store_with, tiny_files,
};
use alloy_primitives::{B256, Bytes};
use cambium_disk::FaultyDisk;
use cambium_kv::{
    Commitment, FileSizes, KeyRange, KvError, KvOptions, StateError, Store, Transaction,
    VerifyError, verify, verify_commit, verify_layered_commit, verify_range,
};
use cambium_seeds::Random;
use std::{collections::BTreeMap, num::NonZeroU64, sync::Arc};

type Entries = BTreeMap<B256, Bytes>;

fn layered(interval: u64) -> KvOptions {
    KvOptions {
        merge_interval_commits: Some(interval),
        ..options_of(Commitment::Layered)
    }
}

/// Writes of a commit, a few of them long.
fn writes(rng: &mut Random) -> Vec<(B256, Option<Bytes>)> {
    let write = |rng: &mut Random| {
        let len = [0, 8, 40, 600, 3000][rng.below(5) as usize];
        let value = match rng.below(4) {
            0 => None,
            _ => Some(Bytes::from(vec![rng.below(250) as u8; len])),
        };
        (key(rng.below(40) as u8), value)
    };
    (0..1 + rng.below(6)).map(|_| write(rng)).collect()
}

/// Makes writes in a transaction and in a model.
fn put_all(
    transaction: &mut Transaction,
    entries: &mut Entries,
    writes: Vec<(B256, Option<Bytes>)>,
) {
    for (key, value) in writes {
        match value {
            Some(value) => {
                transaction.put(key, value.clone()).unwrap();
                entries.insert(key, value);
            }
            None => {
                transaction.delete(key);
                entries.remove(&key);
            }
        }
    }
}

fn write(store: &Store, entries: &mut Entries, writes: Vec<(B256, Option<Bytes>)>) -> B256 {
    let mut transaction = store.begin().unwrap();
    put_all(&mut transaction, entries, writes);
    transaction.commit().unwrap().root
}

#[test]
fn a_follower_with_the_first_root_alone_gets_every_root_and_knows_which_snapshots_are_claimed() {
    for interval in [1, 2, 4] {
        let store = store_with(layered(interval));
        let (mut rng, mut states) = (Random::new(interval), vec![Entries::new()]);
        let trusted = NonZeroU64::new(interval).unwrap();
        let (mut root, mut claims) = (store.root().unwrap(), 0);
        for number in 1..=24 {
            let mut transaction = store.begin().unwrap();
            let mut entries = states[states.len() - 1].clone();
            let asked = key(rng.below(40) as u8);
            transaction.get(&asked).unwrap();
            put_all(&mut transaction, &mut entries, writes(&mut rng));
            let prepared = transaction.prepare_with_witness().unwrap().unwrap();
            let witness = prepared.witness().unwrap().clone();
            let proved = verify_layered_commit(root, number, trusted, &witness).unwrap();
            assert_eq!(proved.root, prepared.root());
            let before = states[states.len() - 1].get(&asked);
            let is_so = proved.values[0]
                .as_ref()
                .map(|found| before.is_some_and(|value| found.is_of(Commitment::Layered, value)));
            assert_eq!(is_so, before.map(|_| true));
            states.push(entries);
            let all: Vec<_> = states.iter().collect();
            let expected = root_after(Commitment::Layered, Some(interval), &all);
            assert_eq!(proved.root, expected, "commit {number}");
            // From the third interval on, each begins with another snapshot.
            let begins = number > 1 && (number - 1) % interval == 0;
            let snapshot = (number - 1) / interval * interval;
            let snapshot = snapshot.saturating_sub(interval) as usize;
            let claimed = (begins && snapshot > 0).then(|| root_of(Commitment::Mpt, all[snapshot]));
            assert_eq!(proved.claimed_snapshot, claimed, "commit {number}");
            if let Some(claimed) = claimed {
                claims += 1;
                assert_eq!(proved.roots.snapshot, claimed);
                let mut silent = witness.clone();
                silent.claimed_snapshot = None;
                assert!(verify_layered_commit(root, number, trusted, &silent).is_err());
                let mut lying = witness.clone();
                lying.claimed_snapshot = Some(key(1));
                let other = verify_layered_commit(root, number, trusted, &lying).unwrap();
                assert_ne!(other.root, proved.root);
            }
            let refused = verify_commit(root, Commitment::Layered, &witness);
            assert_eq!(refused, Err(VerifyError::NeedsNumber));
            let told = VerifyError::NeedsNumber.to_string();
            assert!(told.contains("verify_layered_commit"), "{told}");
            root = prepared.commit().unwrap().root;
        }
        assert!(claims as u64 == 24u64.div_ceil(interval) - 2, "{claims}");
    }
}

#[test]
fn old_commits_are_proved_against_their_own_roots() {
    let disk = Arc::new(FaultyDisk::new(3));
    let options = KvOptions {
        files: tiny_files(),
        ..layered(4)
    };
    let store = Store::create(disk, options).unwrap();
    let (mut rng, mut entries) = (Random::new(5), Entries::new());
    let mut states = vec![Entries::new()];
    for number in 1..=30 {
        write(&store, &mut entries, writes(&mut rng));
        states.push(entries.clone());
        if number % 7 == 0 {
            store.flush().unwrap();
        }
    }
    let limit = 5.try_into().unwrap();
    for (number, entries) in states.iter().enumerate() {
        let reader = store.begin_at(number as u64).unwrap();
        let root = reader.root();
        let keys = [1, 2, 3, 39, 200].map(key);
        let proved = reader.prove(&keys).unwrap();
        assert_eq!(
            verify(root, Commitment::Layered, &proved),
            Ok(()),
            "{number}"
        );
        let expected = keys.map(|key| (key, entries.get(&key).cloned()));
        assert_eq!(proved.values, expected);
        let (mut range, mut found) = (KeyRange::ALL, Vec::new());
        loop {
            let proved = reader.prove_range(range, limit).unwrap();
            assert_eq!(
                verify_range(root, Commitment::Layered, &proved),
                Ok(()),
                "{number}"
            );
            found.extend(proved.entries);
            let Some(next) = proved.next else { break };
            range = KeyRange::new(next, range.through()).unwrap();
        }
        assert!(found.iter().map(|(key, value)| (key, value)).eq(entries));
    }
}

#[test]
fn the_oldest_commit_that_is_kept_is_proved_though_its_snapshot_is_not_kept() {
    let disk = Arc::new(FaultyDisk::new(4));
    let options = KvOptions {
        files: tiny_files(),
        keep_commits: Some(6),
        ..layered(4)
    };
    let store = Store::create(disk, options).unwrap();
    let (mut rng, mut states) = (Random::new(6), vec![Entries::new()]);
    let mut proofs = 0;
    for _ in 0..200 {
        let mut entries = states[states.len() - 1].clone();
        write(&store, &mut entries, writes(&mut rng));
        states.push(entries);
        if rng.percent(20) {
            store.flush().unwrap();
        }
        let kept = store.stats().unwrap().kept_from;
        let Ok(reader) = store.begin_at(kept) else {
            continue;
        };
        let proved = reader.prove(&[key(3), key(17)]).unwrap();
        assert_eq!(verify(reader.root(), Commitment::Layered, &proved), Ok(()));
        let entries = &states[kept as usize];
        assert!(
            all(&reader)
                .iter()
                .map(|(key, value)| (key, value))
                .eq(entries)
        );
        proofs += usize::from(kept > 20);
    }
    assert!(proofs > 100, "{proofs}");
    // And blocks are built on it.
    let newest = store.newest().unwrap().number();
    let back = newest - store.stats().unwrap().kept_from;
    store.roll_back(back).unwrap();
    states.truncate((newest - back) as usize + 1);
    for _ in 0..6 {
        let mut entries = states[states.len() - 1].clone();
        let root = write(&store, &mut entries, writes(&mut rng));
        states.push(entries);
        let all: Vec<_> = states.iter().collect();
        assert_eq!(root, root_after(Commitment::Layered, Some(4), &all));
    }
    assert!(store.check(&mut |_| {}).unwrap().damage.is_empty());
}

#[test]
fn roots_are_the_same_whatever_files_and_memory_a_store_has() {
    let tiny = KvOptions {
        files: tiny_files(),
        memory_bytes: 8 << 20,
        keep_commits: Some(8),
        ..layered(2)
    };
    let large = KvOptions {
        files: FileSizes::default(),
        memory_bytes: 256 << 20,
        ..layered(2)
    };
    let disk = Arc::new(FaultyDisk::new(8));
    let mut one = Store::create(disk.clone(), tiny).unwrap();
    let other = store_with(large);
    let mut rng = Random::new(9);
    let (mut entries, mut same) = (Entries::new(), Entries::new());
    for round in 0..1500 {
        let mut writes = vec![(
            key(rng.below(6) as u8),
            Some(vec![round as u8; 2500].into()),
        )];
        if round % 30 == 0 {
            // One value of these stays in a segment of dead ones, until it is moved.
            let stays = key(100 + (round / 30) as u8);
            writes.push((stays, Some(vec![1; 2000].into())));
        }
        let root = write(&one, &mut entries, writes.clone());
        assert_eq!(root, write(&other, &mut same, writes), "round {round}");
        if rng.percent(3) {
            one.flush().unwrap();
        }
        if rng.percent(1) {
            drop(one);
            one = open(&disk, tiny);
        }
    }
    let values = disk
        .files()
        .into_iter()
        .filter(|file| file.starts_with("values/"));
    let bytes = values.map(|file| disk.contents(&file).map_or(0, |bytes| bytes.len()));
    let (bytes, written) = (bytes.sum::<usize>(), 1500 * 2500);
    assert!(
        bytes < written / 4,
        "{bytes} of {written}: values were not moved"
    );
    assert!(all(&one.begin().unwrap()).into_iter().eq(entries));
    assert!(one.check(&mut |_| {}).unwrap().damage.is_empty());
}

#[test]
fn an_interval_belongs_to_layered_and_to_no_other_commitment() {
    let create = |options| Store::create(Arc::new(FaultyDisk::new(1)), options);
    let refused = |options, word: &str| match create(options) {
        Err(KvError::State(error @ (StateError::BadOptions(_) | StateError::BadStart(_)))) => {
            assert!(error.to_string().contains(word), "{error}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("a store was created"),
    };
    let without = KvOptions {
        merge_interval_commits: None,
        ..layered(2)
    };
    refused(without, "needs a merge interval");
    for commitment in [Commitment::Mpt, Commitment::default(), options().commitment] {
        let with = KvOptions {
            commitment,
            ..layered(2)
        };
        refused(with, "has no intervals");
    }
    refused(layered(0), "interval");
    assert_eq!(
        create(layered(3)).unwrap().merge_interval(),
        NonZeroU64::new(3)
    );
    assert_eq!(create(options()).unwrap().merge_interval(), None);
    let empty = create(layered(3)).unwrap().root().unwrap();
    assert_eq!(empty, Commitment::Layered.empty_root());
}
