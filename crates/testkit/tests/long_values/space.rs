//! Space of values on disk, the number of their writes, and readers meanwhile.

use super::database::{
    Entries, HEAD_BYTES, HEADER_BYTES, KEEP_BLOCKS, assert_reads, create, key, open, options, put,
    seal, segments, value_bytes_on_disk, value_of,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::{BlockId, Changes};
use cambium_state::{
    BlockMeta, Db, FaultyDisk, LeafKind, Loader, Options, StateError, StdDisk, StoreError,
};
use cambium_testkit::plain::wait_until_closed;
use cambium_testkit::say;
use cambium_trie::{Blake3, Commitment};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn a_value_that_is_overwritten_leaves_three_windows_of_it_at_most() {
    let len = 64 << 10;
    let disk = FaultyDisk::new(1);
    let db = create(&disk, options(Commitment::Mpt), &Entries::new());
    let (mut most, mut names) = (0, 0);
    for _ in 0..20 {
        for _ in 0..50 {
            names += 1;
            let writes = [(key(1), Some(value_of(names, len)))].into();
            let sealed = seal(db.view().unwrap(), names, &writes).unwrap();
            sealed.commit().unwrap();
        }
        most = most.max(value_bytes_on_disk(&disk));
    }
    assert_eq!(names, 1000);
    let written = db.counters().value_bytes_written;
    let record = HEAD_BYTES + len as u64;
    assert_eq!(
        written,
        names * (record + HEADER_BYTES),
        "each value has a segment of its own"
    );
    // The checkpoint before the newest one may still need what that one does not.
    db.flush(0).unwrap();
    names += 1;
    let writes = [(key(1), Some(value_of(names, len)))].into();
    let sealed = seal(db.view().unwrap(), names, &writes).unwrap();
    sealed.commit().unwrap();
    db.flush(0).unwrap();
    let written = db.counters().value_bytes_written;
    let window = KEEP_BLOCKS * len as u64;
    let left = value_bytes_on_disk(&disk);
    say(&format!(
        "overwritten: {written} bytes written, {most} at most, {left} left"
    ));
    assert!(left <= 3 * window, "{left} bytes are left");
    // There were no explicit merges: blocks wait for one that values have run ahead of.
    assert!(most <= 4 * window, "{most} bytes");
    // All that can be unwound to is there.
    let kept = db.stats().unwrap().kept_from;
    assert!(names - kept >= KEEP_BLOCKS);
    for number in kept..=names {
        let view = db.view_at(number).unwrap();
        assert!(
            view.entry(&key(1)).unwrap() == Some(value_of(number, len)),
            "{number}"
        );
    }
    assert_eq!(db.counters().value_bytes_written, written);
    assert_eq!(db.stats().unwrap().values.live_bytes, record);
}

/// Blocks between two merges that a test asks for.
const BLOCKS_PER_MERGE: u64 = 60;

/// Overwrites one key again and again, with a value of its own for another key from time to time, so
/// that each segment keeps a live value among dead ones. Returns the state, and the most bytes on disk
/// after a merge.
fn leave_one_live_value_in_each_segment(
    db: &Db,
    disk: &FaultyDisk,
    len: usize,
    blocks: u64,
) -> (Entries, u64) {
    let (mut expected, mut most) = (Entries::new(), 0);
    for name in 1..=blocks {
        let hot = value_of(name, len);
        let mut writes = BTreeMap::from([(key(0), Some(hot))]);
        if name % 30 == 0 {
            writes.insert(key(name), Some(value_of(name << 32, len)));
        }
        seal(db.view().unwrap(), name, &writes)
            .unwrap()
            .commit()
            .unwrap();
        if name % BLOCKS_PER_MERGE == 0 {
            db.flush(0).unwrap();
            most = most.max(value_bytes_on_disk(disk));
        }
        expected.extend(writes.into_iter().filter_map(|(key, it)| Some((key, it?))));
    }
    (expected, most)
}

#[test]
fn segments_with_one_live_value_among_dead_ones_do_not_pile_up() {
    let (len, blocks) = (2_000, 6_000);
    let disk = FaultyDisk::new(7);
    let mut db = create(&disk, options(Commitment::Binary(&Blake3)), &Entries::new());
    let (expected, held) = leave_one_live_value_in_each_segment(&db, &disk, len, blocks);
    db.flush(0).unwrap();
    let counters = db.counters();
    let (written, moved) = (counters.value_bytes_written, counters.value_bytes_moved);
    let live = db.stats().unwrap().values.live_bytes;
    say(&format!(
        "one live value a segment: {written} bytes written, {moved} of them moved, {live} live, {held} on disk at most"
    ));
    assert_eq!(live, expected.len() as u64 * (HEAD_BYTES + len as u64));
    // Without moves each of the 180 segments would stay.
    let window = KEEP_BLOCKS * len as u64;
    let merges = 3 * BLOCKS_PER_MERGE * len as u64;
    assert!(held < 2 * live + 3 * window + merges, "{held}");
    assert!(moved * 5 < written, "{moved} of {written} bytes moved");
    let keys: Vec<_> = expected.keys().copied().collect();
    assert_reads(&db.view().unwrap(), &keys, &expected, "after cleaning");
    let kept = db.stats().unwrap().kept_from;
    for number in kept..=blocks {
        let view = db.view_at(number).unwrap();
        assert!(view.entry(&key(0)).unwrap() == Some(value_of(number, len)));
    }
    assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
    drop(db);
    wait_until_closed(&disk);
    db = open(&disk.crash(), options(Commitment::Binary(&Blake3)));
    assert_reads(
        &db.view().unwrap(),
        &keys,
        &expected,
        "after a loss of power",
    );
}

#[test]
fn under_layered_values_that_are_moved_change_no_root() {
    let (len, blocks) = (2_000, 1_500);
    let [tiny, large] = [
        options(Commitment::Mpt).layered(2),
        // Values are never moved here.
        Options {
            memory_bytes: 256 << 20,
            keep_blocks: None,
            files: Options::default().files,
            ..options(Commitment::Mpt).layered(2)
        },
    ];
    let (disk, other_disk) = (FaultyDisk::new(7), FaultyDisk::new(8));
    let db = create(&disk, tiny, &Entries::new());
    let other = create(&other_disk, large, &Entries::new());
    let mut expected = Entries::new();
    for name in 1..=blocks {
        let mut writes = BTreeMap::from([(key(0), Some(value_of(name, len)))]);
        if name % 30 == 0 {
            writes.insert(key(name), Some(value_of(name << 32, len)));
        }
        let roots = [&db, &other].map(|db| {
            let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
            let root = sealed.view().unwrap().state_root();
            sealed.commit().unwrap();
            root
        });
        assert_eq!(roots[0], roots[1], "block {name}");
        if name % BLOCKS_PER_MERGE == 0 {
            db.flush(0).unwrap();
        }
        expected.extend(writes.into_iter().filter_map(|(key, it)| Some((key, it?))));
    }
    let moved = [&db, &other].map(|db| db.counters().values_moved);
    assert!(moved[0] > 20 && moved[1] == 0, "{moved:?}");
    let keys: Vec<_> = expected.keys().copied().collect();
    for db in [db, other] {
        assert_reads(&db.view().unwrap(), &keys, &expected, "after moves");
        assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
    }
}

#[test]
fn while_all_blocks_are_kept_no_value_is_moved_or_removed() {
    let options = Options {
        keep_blocks: None,
        ..options(Commitment::Mpt)
    };
    let disk = FaultyDisk::new(8);
    let db = create(&disk, options, &Entries::new());
    leave_one_live_value_in_each_segment(&db, &disk, 2_000, 300);
    db.flush(0).unwrap();
    assert_eq!(db.counters().values_moved, 0);
    for number in 1..=300 {
        let view = db.view_at(number).unwrap();
        assert!(view.entry(&key(0)).unwrap() == Some(value_of(number, 2_000)));
    }
}

#[test]
fn the_same_bytes_at_another_place_are_read_after_their_first_place_is_gone() {
    for commitment in [Commitment::Mpt, Commitment::Binary(&Blake3)] {
        let disk = FaultyDisk::new(9);
        let entries: Entries = (0..5).map(|at| (key(at), value_of(at, 900))).collect();
        let db = create(&disk, options(commitment), &entries);
        let root = db.view().unwrap().state_root();
        let writes = entries.iter().map(|(key, it)| (*key, Some(it.clone())));
        let writes: BTreeMap<_, _> = writes.collect();
        for name in 0..100 {
            let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
            assert_eq!(sealed.view().unwrap().state_root(), root);
            sealed.commit().unwrap();
            if name % 10 == 9 {
                db.flush(0).unwrap();
            }
        }
        assert!(!segments(&disk)[0].contains("00000001"), "the first place");
        let keys: Vec<_> = entries.keys().copied().collect();
        assert_reads(&db.view().unwrap(), &keys, &entries, "written again");
        assert_eq!(db.check(&mut |_| {}).unwrap().damage, Vec::<String>::new());
        assert!(value_bytes_on_disk(&disk) < 300_000);
    }
}

#[test]
fn pages_whose_values_were_only_read_are_not_written_again() {
    let disk = FaultyDisk::new(10);
    let options = Options {
        files: Options::default().files,
        ..options(Commitment::Mpt)
    };
    let entries: Entries = (0..3_000).map(|at| (key(at), value_of(at, 520))).collect();
    let db = create(&disk, options, &entries);
    let keys: Vec<_> = entries.keys().copied().collect();
    let session = db.view().unwrap().session();
    assert_eq!(session.entries(&keys).unwrap().len(), keys.len());
    let change = put(&session, keys[17], Some(&value_of(1 << 40, 520))).unwrap();
    let staged = session.finish(Changes::new(vec![change]), vec![]).unwrap();
    let meta = BlockMeta {
        id: BlockId::new(1, B256::with_last_byte(2)),
        parent: B256::with_last_byte(1),
        state_root: staged.root(),
        body: Bytes::new(),
    };
    staged.seal(meta).unwrap().commit().unwrap();
    let before = db.counters().pages_written;
    db.flush(0).unwrap();
    assert_eq!(db.counters().pages_written - before, 1);
}

/// Writes 10 GB to a directory: `cargo test --release -- --ignored`.
#[test]
#[ignore = "writes 10 GB"]
fn ten_thousand_values_of_1_mib_leave_three_windows_of_them_at_most() {
    let (len, times, keep) = (1 << 20, 10_000_u64, 256);
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        memory_bytes: 256 << 20,
        unfinalized_blocks: 64,
        keep_blocks: Some(keep),
        leaves: LeafKind::Entries,
        ..Options::default()
    };
    let disk = Arc::new(StdDisk::new(dir.path()));
    let loaded = Loader::new(disk, options).unwrap().finish(&mut |_| {});
    let loaded = loaded.unwrap();
    let meta = BlockMeta {
        id: BlockId::new(0, B256::with_last_byte(1)),
        parent: B256::ZERO,
        state_root: loaded.root(),
        body: Bytes::new(),
    };
    let db = loaded.create(meta, vec![]).unwrap();
    let on_disk = || -> u64 {
        let files = std::fs::read_dir(dir.path().join("values")).unwrap();
        files
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum()
    };
    let (mut value, mut most) = (value_of(1, len).to_vec(), 0);
    let start = std::time::Instant::now();
    for name in 0..times {
        value[..8].copy_from_slice(&name.to_le_bytes());
        let writes = [(key(1), Some(value.clone().into()))].into();
        let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
        sealed.commit().unwrap();
        if name % 16 == 0 {
            most = most.max(on_disk());
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let left = on_disk();
    say(&format!(
        "10,000 times 1 MiB: {seconds:.0} s, {} MiB on disk at most, {} MiB at the end",
        most >> 20,
        left >> 20
    ));
    assert!(left <= 3 * keep * len as u64, "{left}");
}

#[test]
fn a_value_is_written_once_before_merging() {
    let disk = FaultyDisk::new(2);
    let db = create(&disk, options(Commitment::Mpt), &Entries::new());
    let mut expected = 0;
    for (name, len) in (0u64..).zip([513, 600, 1_000, 4_096, 20_001]) {
        let writes = [(key(name), Some(value_of(name, len)))].into();
        let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
        sealed.commit().unwrap();
        expected += (HEAD_BYTES + len as u64).next_multiple_of(8);
    }
    let written = db.counters();
    assert_eq!(written.value_bytes_written, HEADER_BYTES + expected);
    assert!(written.log_bytes_written < 20_000, "{written:?}");
    db.flush(0).unwrap();
    let merged = db.counters();
    assert_eq!(merged.value_bytes_written, HEADER_BYTES + expected);
    assert_eq!(db.stats().unwrap().values.live_bytes, expected);
}

#[test]
fn another_process_reads_values_while_they_are_replaced_and_moved() {
    let disk = FaultyDisk::new(12);
    let options = options(Commitment::Mpt);
    let db = create(&disk, options, &Entries::new());
    let mut name = 0;
    let mut write = || {
        for _ in 0..40 {
            name += 1;
            let mut writes = BTreeMap::from([(key(0), Some(value_of(name, 1_500)))]);
            if name % 20 == 0 {
                writes.insert(key(name), Some(value_of(name << 32, 1_500)));
            }
            let sealed = seal(db.view().unwrap(), name, &writes).unwrap();
            sealed.commit().unwrap();
        }
        name
    };
    let mut newest = write();
    let (mut reader, _) = Db::open_read_only(Arc::new(disk.clone()), options).unwrap();
    for _ in 0..30 {
        let expected = Some(value_of(newest, 1_500));
        assert!(reader.view().unwrap().entry(&key(0)).unwrap() == expected);
        let session = reader.view().unwrap().session();
        let refused = session.value(&key(0), value_of(1, 600)).unwrap_err();
        assert!(matches!(refused, StateError::ReadOnly(..)), "{refused}");
        newest = write();
        // A reader that is behind gets its own error for a removed value.
        match reader.view().unwrap().entry(&key(0)) {
            Ok(value) => assert!(value == expected),
            Err(error) => assert!(
                matches!(error, StateError::Store(StoreError::ReaderBehind { .. })),
                "{error}"
            ),
        }
        reader.catch_up().unwrap();
    }
    assert!(db.counters().values_moved > 0);
}
