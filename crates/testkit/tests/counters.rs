//! The engine's figures, against what the disk saw and what was asked for.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_primitives::{AccountUpdate, Changes};
use cambium_state::{CounterValues, Db, Fault, FaultyDisk, FileSizes, Loader, Options};
use cambium_testkit::plain::{account, change, commit, first_block, path};
use cambium_trie::ProofTargets;
use std::sync::Arc;

const ACCOUNTS: u64 = 60_000;

/// A database with empty caches, and its disk.
fn database() -> (Db, FaultyDisk) {
    database_of(Options::default())
}

fn database_of(options: Options) -> (Db, FaultyDisk) {
    let disk = FaultyDisk::new(1);
    let mut loader = Loader::new(Arc::new(disk.clone()), options).unwrap();
    for index in 0..ACCOUNTS {
        loader.account(path(index), &account(index), []).unwrap();
    }
    let loaded = loader.finish(&mut |_| {}).unwrap();
    let meta = first_block(loaded.root());
    drop(loaded.create(meta, vec![]).unwrap());
    let (db, _) = Db::open(Arc::new(disk.clone()), options).unwrap();
    (db, disk)
}

/// Counts added by `work`. All reads of the disk are pages, parts of the index and entries of the
/// block index.
fn counted(db: &Db, work: impl FnOnce()) -> CounterValues {
    let reads = |counters: &CounterValues| {
        counters.page_reads() + counters.index_reads + counters.block_index_reads
    };
    let before = db.counters();
    work();
    let after = db.counters();
    assert_eq!(
        reads(&after) - reads(&before),
        after.disk_reads - before.disk_reads,
        "reads by cause, and those that the disk saw"
    );
    let bytes = |counters: &CounterValues| counters.bytes_written();
    assert_eq!(
        bytes(&after) - bytes(&before),
        after.disk_bytes_written - before.disk_bytes_written,
        "bytes written by cause, and those that the disk saw"
    );
    let mut added = CounterValues::default();
    macro_rules! subtract {
        ($($name:ident)+) => { $(added.$name = after.$name - before.$name;)+ };
    }
    subtract! {
        reads overlay_hits value_cache_hits value_cache_misses page_cache_hits page_cache_misses
        code_cache_hits code_cache_misses page_reads_value page_reads_trie
        page_reads_merge page_reads_proof page_reads_check page_reads_buffered pages_read_together index_reads block_index_reads node_hashes roots
        blocks_committed log_syncs merges merge_parts pages_written pages_split pages_joined
        pages_moved page_bytes_moved pages_dead page_bytes_written checkpoint_bytes_written log_bytes_written
        block_index_bytes_written code_bytes_written value_bytes_written values_moved value_bytes_moved
    }
    added
}

#[test]
fn every_read_has_one_cause_and_is_one_that_the_disk_saw() {
    let (db, _) = database();
    let view = db.view().unwrap();
    let keys: Vec<B256> = (0..300).map(|index| path(index * 7)).collect();
    let cold = counted(&db, || {
        for key in &keys {
            assert!(view.account(key).unwrap().is_some());
        }
    });
    assert_eq!((cold.reads, cold.overlay_hits), (300, 0));
    assert_eq!((cold.value_cache_hits, cold.value_cache_misses), (0, 300));
    assert_eq!(cold.index_reads, 0, "the index is in memory");
    assert_eq!(cold.page_cache_hits + cold.page_cache_misses, 300);
    assert_eq!(cold.page_reads_value, cold.page_cache_misses);
    assert!(cold.page_reads_value > 200, "{cold:?}");

    let hot = counted(&db, || {
        for key in &keys {
            assert!(view.account(key).unwrap().is_some());
        }
    });
    assert_eq!((hot.value_cache_hits, hot.value_cache_misses), (300, 0));
    assert_eq!(hot.page_cache_hits + hot.page_cache_misses, 0);

    let warm = counted(&db, || drop(view.accounts(&keys).unwrap()));
    assert_eq!((warm.value_cache_hits, warm.value_cache_misses), (300, 0));
    assert_eq!(warm.page_cache_hits + warm.page_cache_misses, 0);
    let brought = counted(&db, || view.prefetch(&keys, &[]).unwrap());
    assert_eq!(
        (brought.page_reads_value, brought.page_cache_hits),
        (0, 300)
    );
    assert_eq!(brought.value_cache_hits, 0, "pages are what it is about");

    let others: Vec<B256> = (0..300).map(|index| path(index * 7 + 30_001)).collect();
    let batch = counted(&db, || drop(view.accounts(&others).unwrap()));
    assert_eq!((batch.reads, batch.page_cache_misses > 100), (300, true));
    assert!(
        batch.page_reads_value <= batch.page_cache_misses,
        "a page once a batch"
    );
    let again = counted(&db, || {
        for key in &others {
            view.account(key).unwrap();
        }
    });
    assert_eq!((again.value_cache_hits, again.page_reads_value), (300, 0));

    // A block's changed leaves are read through the trie; their values need no further reads.
    let fresh: Vec<_> = (0..50).map(|index| path(index * 11 + 50_003)).collect();
    let put = |key: &B256| change(*key, AccountUpdate::Put(account(9)));
    let block = counted(&db, || {
        commit(&db, fresh.iter().map(put).collect(), vec![]);
    });
    assert_eq!(
        (block.roots, block.blocks_committed, block.log_syncs),
        (1, 1, 1)
    );
    assert_eq!(block.page_reads_value, 0);
    assert!(block.page_reads_trie > 0 && block.node_hashes > 50);

    let seen = db.view().unwrap();
    let above = counted(&db, || drop(seen.accounts(&fresh).unwrap()));
    assert_eq!((above.overlay_hits, above.page_cache_hits), (50, 0));

    // The nodes of keys that a session has read are in memory.
    let read: Vec<_> = (0..50).map(|index| path(index * 13 + 20_001)).collect();
    let session = db.view().unwrap().session();
    session.accounts(&read).unwrap();
    let keys = ProofTargets::new(read.iter().map(|path| (*path, vec![])).collect());
    let changes = Changes::new(read.iter().map(put).collect());
    let mut nodes = Vec::new();
    let witness = counted(&db, || {
        let part = session.extract_for_changes(&keys, &changes).unwrap();
        nodes = part.witness_nodes();
    });
    assert_eq!((witness.page_reads(), witness.page_cache_hits), (0, 0));
    let part = seen.extract_for_changes(&keys, &changes).unwrap();
    assert_eq!(nodes, part.witness_nodes());

    let keys = ProofTargets::new(vec![(path(41_000), vec![])]);
    let proof = counted(&db, || drop(seen.extract(&keys).unwrap()));
    assert_eq!((proof.page_reads_proof, proof.page_reads_value), (1, 0));
}

#[test]
fn what_is_written_is_accounted_for_and_pages_split_and_join() {
    let (db, _) = database();
    let pages = || db.stats().unwrap().pages;
    // Below one page, many more accounts than it holds.
    let owner = path(1);
    let crowd = |index: u64| {
        let mut path = owner;
        path.0[4..12].copy_from_slice(&keccak256(index.to_be_bytes())[..8]);
        path
    };
    let before = pages();
    let code = Bytes::from_static(&[0x5f, 0x5f]);
    let grown = counted(&db, || {
        let put = |index| change(crowd(index), AccountUpdate::Put(account(index)));
        commit(
            &db,
            (0..1000).map(put).collect(),
            vec![(keccak256(&code), code)],
        );
        db.flush(0).unwrap();
    });
    assert_eq!((grown.merges, grown.merge_parts), (1, 256));
    assert_eq!((grown.pages_split, grown.pages_joined), (1, 0));
    assert_eq!(pages(), before + grown.pages_written - grown.pages_dead);
    assert!(
        grown.pages_written > 5 && grown.pages_dead == 1,
        "{grown:?}"
    );
    for bytes in [
        grown.page_bytes_written,
        grown.checkpoint_bytes_written,
        grown.log_bytes_written,
        grown.block_index_bytes_written,
        grown.code_bytes_written,
    ] {
        assert!(bytes > 0, "{grown:?}");
    }

    let shrunk = counted(&db, || {
        let delete = |index| change(crowd(index), AccountUpdate::Delete);
        commit(&db, (0..1000).map(delete).collect(), vec![]);
        db.flush(0).unwrap();
    });
    assert_eq!((shrunk.pages_split, shrunk.pages_joined), (0, 1));
    // The subtrie in which they were stays divided while the index has room.
    assert!(
        (before..before + 16).contains(&pages()),
        "{} pages, {before} before",
        pages()
    );
    assert_eq!(shrunk.code_bytes_written, 0);

    let checked = counted_check(&db);
    assert_eq!(checked, pages());
}

#[test]
fn a_merge_writes_no_page_that_is_as_it_was() {
    let (db, _) = database();
    let put = |index, nonce| change(path(index), AccountUpdate::Put(account(nonce)));
    let accounts = || (0..ACCOUNTS).step_by(600);
    // Changed and changed back, in two blocks of one merge; to the same; and one to another value.
    let same = counted(&db, || {
        commit(
            &db,
            accounts().map(|index| put(index, index + 1)).collect(),
            vec![],
        );
        commit(
            &db,
            accounts().map(|index| put(index, index)).collect(),
            vec![],
        );
        commit(
            &db,
            accounts().map(|index| put(index + 1, index + 1)).collect(),
            vec![],
        );
        commit(&db, vec![put(7, 8)], vec![]);
        db.flush(0).unwrap();
    });
    assert_eq!(
        (same.merges, same.pages_written, same.pages_dead),
        (1, 1, 1)
    );
    assert!(counted_check(&db) > 0);
}

#[test]
fn moved_pages_are_among_those_read_and_written() {
    let files = FileSizes {
        segment_bytes_max: 11 << 20,
        ..FileSizes::default()
    };
    // All pages are cached, or few.
    for (memory_bytes, are_cached) in [(1 << 30, true), (1 << 20, false)] {
        let (db, _) = database_of(Options {
            files,
            memory_bytes,
            index_bytes_max: Some(1 << 30),
            ..Options::default()
        });
        let put = |nonce: u64, every: usize| {
            let put = |index| change(path(index), AccountUpdate::Put(account(nonce)));
            let changes = (0..ACCOUNTS).step_by(every).map(put).collect();
            counted(&db, || {
                commit(&db, changes, vec![]);
                db.flush(0).unwrap();
            })
        };
        // Every page is written anew, into segments of which most is soon dead, and then a few.
        let moved = (1..12).map(|nonce| {
            put(2 * nonce, 1);
            put(2 * nonce + 1, 300)
        });
        let moved: Vec<_> = moved.filter(|some| some.pages_moved > 0).collect();
        assert!(!moved.is_empty(), "{:?}", db.stats());
        for some in moved {
            assert_eq!(some.page_reads_merge == 0, are_cached, "{some:?}");
            assert!(some.page_reads_merge <= some.pages_moved, "{some:?}");
            assert!(
                some.page_bytes_moved * 2 <= some.page_bytes_written,
                "{some:?}"
            );
        }
    }
}

/// Pages read by a check, which reads the log and the codes besides.
fn counted_check(db: &Db) -> u64 {
    let before = db.counters();
    let report = db.check(&mut |_| {}).unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
    db.counters().page_reads_check - before.page_reads_check
}

#[test]
fn commits_are_timed_and_merging_is_told() {
    let (db, _) = database();
    for index in 0..20 {
        let put = AccountUpdate::Put(account(index));
        commit(&db, vec![change(path(index), put)], vec![]);
    }
    let latency = db.commit_latency();
    assert_eq!(latency.count, 20);
    let times = [
        latency.p50_ns,
        latency.p99_ns,
        latency.p999_ns,
        latency.max_ns,
    ];
    assert!(times[0] > 0 && times.is_sorted(), "{latency:?}");
    let stats = db.stats().unwrap();
    assert_eq!((stats.layers, stats.merging), (20, None));
    assert_eq!(stats.segments_by_live.iter().sum::<usize>(), stats.segments);
    assert_eq!(stats.disk.batch_reads, "memory");
}

#[test]
fn a_merge_under_way_tells_how_far_it_is() {
    let (db, disk) = database();
    let put = |index| change(path(index), AccountUpdate::Put(account(index)));
    commit(&db, (0..1000).map(put).collect(), vec![]);
    let before = db.stats().unwrap();
    // All pages are written, and then the merge stops.
    disk.inject(Fault::FailedWrite, "checkpoint", 1);
    assert!(db.flush(0).is_err());
    let after = db.stats().unwrap();
    let merging = after.merging.expect("a merge that is not done");
    assert_eq!((merging.parts_done, merging.parts), (256, 256));
    assert!(before.merging.is_none());
    // The waiting changes are being merged, and none wait after them.
    let waited = before.overlay_bytes + before.delta_bytes;
    assert!(
        merging.bytes > waited / 2 && merging.bytes < waited * 2,
        "{merging:?} of {waited} bytes"
    );
    assert_eq!((after.layers, after.snapshot), (0, before.snapshot));
}

#[test]
fn what_the_log_has_left_is_merged_in_steps_before_the_first_root() {
    let (counters, delta_bytes) = first_root_after_six_blocks(0);
    assert!(counters.merges >= 4, "{counters:?}");
    assert!(delta_bytes < 28 << 20, "{delta_bytes}");
    // With references in the log, no step waits for the merge of another.
    let (counters, delta_bytes) = first_root_after_six_blocks(8192);
    assert!(counters.merges <= 1, "{counters:?}");
    assert!(counters.subtries_restored > 1_000 && counters.page_reads_trie <= 2);
    assert!(delta_bytes < 28 << 20, "{delta_bytes}");
}

/// Counters after the first root on a log of six blocks of 5,000 changes, with references after so many changes, and the
/// memory of the tries then.
fn first_root_after_six_blocks(log_reference_leaves: u64) -> (CounterValues, usize) {
    let files = FileSizes {
        log_reference_leaves,
        ..FileSizes::default()
    };
    let (db, disk) = database_of(Options {
        files,
        ..Options::default()
    });
    for nonce in 1..=6 {
        let put = |index: u64| change(path(index * 12 + nonce), AccountUpdate::Put(account(nonce)));
        commit(&db, (0..5_000).map(put).collect(), vec![]);
    }
    assert_eq!(db.counters().merges, 0);
    drop(db);
    let options = Options {
        memory_bytes: 64 << 20,
        files,
        ..Options::default()
    };
    let (db, recovery) = Db::open(Arc::new(disk), options).unwrap();
    assert_eq!((recovery.replayed_blocks, db.counters().merges), (6, 0));
    commit(
        &db,
        vec![change(path(1), AccountUpdate::Put(account(9)))],
        vec![],
    );
    let (counters, stats) = (db.counters(), db.stats().unwrap());
    counted_check(&db);
    (counters, stats.delta_bytes)
}
