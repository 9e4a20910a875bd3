//! Promises that were once broken, each by itself, with files so small that all that happens to files happens often:
//! see also `damage.rs`, `rebuild.rs`, `every_operation.rs` and the engine's random runs.

use crate::small_database::{
    ACCOUNTS, check, commit_and_merge, database, database_of, open, some_changes,
};
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use cambium_primitives::{Account, AccountDiff, AccountUpdate, BlockId, Changes};
use cambium_state::{
    BlockMeta, Db, Disk, Fault, FaultyDisk, FileSizes, Loader, Options, Sealed, StateError,
    StoreError,
};
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{account, change, commit, path, put, seal, tiny_options, wait_until_closed},
    say,
};
use cambium_trie::ProofTargets;
use std::{collections::BTreeSet, sync::Arc, thread, time::Duration};

fn sealed(db: &Db, changes: Vec<AccountDiff>, body: Bytes) -> Result<Sealed, StateError> {
    let head = db.head();
    let staged = db.view()?.session().finish(Changes::new(changes), vec![])?;
    let meta = BlockMeta {
        body,
        ..child_of(head, staged.root())
    };
    staged.seal(meta)
}

fn child_of(head: BlockId, state_root: B256) -> BlockMeta {
    BlockMeta {
        id: BlockId::new(head.number + 1, keccak256(head.hash)),
        parent: head.hash,
        state_root,
        body: Bytes::new(),
    }
}

fn checkpoints(disk: &FaultyDisk) -> Vec<String> {
    let is_one = |name: &String| {
        name.strip_prefix("checkpoint-")
            .is_some_and(|number| number.parse::<u64>().is_ok())
    };
    disk.files().into_iter().filter(is_one).collect()
}

fn segments(disk: &FaultyDisk) -> usize {
    let files = disk.files();
    files.iter().filter(|name| name.starts_with("seg")).count()
}

/// All files and what is in them, but for the lock.
fn contents(disk: &FaultyDisk) -> Vec<(String, Vec<u8>)> {
    let files = disk.files().into_iter();
    files
        .filter(|name| name != "cambium.lock")
        .map(|name| {
            let bytes = disk.contents(&name).unwrap();
            (name, bytes)
        })
        .collect()
}

/// Keys of accounts alone.
fn keys(indices: impl IntoIterator<Item = u64>) -> ProofTargets {
    let accounts = indices.into_iter().map(|index| (path(index), vec![]));
    ProofTargets::new(accounts.collect())
}

#[test]
fn the_checkpoint_before_opens_after_any_merge() {
    let (db, disk) = database();
    let mut random = Random::new(1);
    let mut removed = 0;
    for round in 0..200 {
        let before = disk.files();
        commit_and_merge(&db, &mut random);
        let after = disk.files();
        let is_gone = |name: &&String| name.starts_with("seg") && !after.contains(name);
        removed += usize::from(before.iter().any(|name| is_gone(&name)));
        let copy = disk.duplicate();
        let newest = checkpoints(&copy).pop().unwrap();
        let len = copy.contents(&newest).unwrap().len() as u64;
        copy.flip_bit(&newest, random.below(len), 3);
        let copied = open(&copy).unwrap_or_else(|error| panic!("merge {round}: {error}"));
        assert_eq!(copied.head(), db.head());
        if round % 10 == 0 {
            check(&copied);
        }
    }
    say(&format!("{removed} of 200 merges removed a segment"));
    assert!(removed > 20);
}

#[test]
fn an_error_that_passes_is_no_damage() {
    let (db, disk) = database();
    let mut random = Random::new(2);
    for _ in 0..5 {
        commit_and_merge(&db, &mut random);
    }
    commit(&db, some_changes(&mut random, 60), vec![]);
    let head = db.head();
    drop(db);
    wait_until_closed(&disk);
    for fault in [Fault::FailedRead, Fault::FailedOpen] {
        for name in [
            "checkpoint-",
            "segments/",
            "log/",
            "cambium.db",
            "codes",
            "blocks.idx",
        ] {
            for count in 1..4 {
                let before = contents(&disk);
                disk.inject(fault, name, count);
                let opened = open(&disk);
                let hits = disk.take_hits().len();
                disk.clear_faults();
                match opened {
                    Ok(db) => assert_eq!(db.head(), head, "{fault:?} on {name}, {hits} hits"),
                    Err(error) => {
                        assert!(!error.is_damage(), "{fault:?} on {name}: {error}");
                        assert_eq!(contents(&disk), before, "{fault:?} on {name}");
                    }
                }
                let db = open(&disk).unwrap();
                assert_eq!(db.head(), head);
                assert!(disk.files().iter().all(|name| !name.contains("damaged")));
            }
        }
    }
    // Nor does it make a directory free for another database.
    for fault in [Fault::FailedRead, Fault::FailedOpen] {
        let before = contents(&disk);
        disk.inject(fault, "checkpoint-", 1);
        assert!(Loader::new(Arc::new(disk.clone()), tiny_options()).is_err());
        disk.clear_faults();
        assert_eq!(contents(&disk), before);
        assert!(Loader::new(Arc::new(disk.clone()), tiny_options()).is_err());
        assert_eq!(open(&disk).unwrap().head(), head);
    }
}

#[test]
fn a_rotten_page_that_nobody_reads_stops_nothing() {
    let (db, disk) = database();
    let mut random = Random::new(3);
    commit_and_merge(&db, &mut random);
    drop(db);
    wait_until_closed(&disk);
    // A bit in every segment, so that each cleaned one has a bad page.
    for name in disk.files() {
        if name.starts_with("seg") && name.contains('/') {
            let len = disk.contents(&name).unwrap().len() as u64;
            disk.flip_bit(&name, len / 2 + random.below(len / 4), 5);
        }
    }
    // Accounts whose pages can still be read and written.
    let db = open(&disk).unwrap();
    let view = db.view().unwrap();
    let good: Vec<_> = (0..ACCOUNTS)
        .filter(|index| view.account(&path(*index)).is_ok())
        .collect();
    drop(view);
    assert!(good.len() as u64 > ACCOUNTS / 2 && (good.len() as u64) < ACCOUNTS);
    // Leaves in one page with a good account are good; a neighbour that is joined may not be.
    let mut seen = 0;
    let mut db = db;
    for round in 0..60 {
        let changes = good.iter().step_by(3).map(|index| put(path(*index), round));
        let mut changes: Vec<_> = changes.collect();
        changes.sort_unstable_by_key(|change| change.path);
        commit(&db, changes, vec![]);
        db.flush(0)
            .unwrap_or_else(|error| panic!("merge {round}: {error}"));
        seen = seen.max(db.stats().unwrap().unreadable_pages);
        if round % 20 == 19 {
            let head = db.head();
            drop(db);
            wait_until_closed(&disk);
            db = open(&disk).unwrap();
            assert_eq!(db.head(), head);
        }
    }
    say(&format!(
        "{seen} pages could not be read; {} segments",
        segments(&disk)
    ));
    assert!(seen > 0);
    let report = db.check(&mut |_| {}).unwrap();
    assert!(!report.damage.is_empty());
    let view = db.view().unwrap();
    for index in good.iter().step_by(3) {
        assert_eq!(view.account(&path(*index)).unwrap().unwrap().nonce, 59);
    }
}

/// Segments after 120 merges, beside what `hold` gives and keeps.
fn segments_after_merges<T>(seed: u64, mut hold: impl FnMut(&Db, u64) -> T) -> usize {
    let (db, disk) = database();
    let mut random = Random::new(seed);
    let mut held = Vec::new();
    for round in 0..120 {
        commit_and_merge(&db, &mut random);
        held.push(hold(&db, round));
    }
    let most = segments(&disk);
    drop(held);
    commit_and_merge(&db, &mut random);
    commit_and_merge(&db, &mut random);
    let pinned = || {
        thread::sleep(Duration::from_millis(10));
        db.stats().unwrap().pinned_bytes
    };
    // A merge that is over may still be letting go.
    let left = (0..500).map(|_| pinned()).find(|bytes| *bytes == 0);
    assert_eq!(left, Some(0));
    check(&db);
    most
}

#[test]
fn what_is_held_keeps_no_more_than_it_needs() {
    let nothing = segments_after_merges(4, |_, _| ());
    // A view at the beginning, and of it a proof that was served.
    let one_view = segments_after_merges(4, |db, round| {
        let view = (round == 0).then(|| db.view().unwrap());
        if let Some(view) = &view {
            let keys = &keys(0..50);
            view.extract(keys).unwrap();
        }
        view
    });
    // A proof each time, of which nothing is kept.
    let proofs = segments_after_merges(4, |db, round| {
        let keys = &keys(round..round + 20);
        db.view().unwrap().extract(keys).unwrap();
    });
    // A view of an old block, kept for all the time.
    let old_view = segments_after_merges(4, |db, round| {
        (round == 10).then(|| {
            let view = db.view_at(3).unwrap();
            view.account(&path(1)).unwrap();
            view
        })
    });
    say(&format!(
        "segments after 120 merges: {nothing}; with one old view {one_view}, after proofs \
         {proofs}, with a view of an old block {old_view}"
    ));
    assert!(
        proofs <= nothing + nothing / 4 + 2,
        "{proofs} for {nothing}"
    );
    // A view holds the segments of its time besides.
    for held in [one_view, old_view] {
        assert!(held <= 3 * nothing, "{held} for {nothing}");
    }
}

#[test]
fn views_of_old_blocks_take_their_memory_along() {
    let few = Options {
        unfinalized_blocks: 4,
        ..tiny_options()
    };
    let (db, _disk) = database_of(ACCOUNTS, few);
    let mut random = Random::new(5);
    for _ in 0..200 {
        commit(&db, some_changes(&mut random, 40), vec![]);
    }
    db.flush(0).unwrap();
    let genesis = db.view_at(0).unwrap();
    assert_eq!(genesis.account(&path(1)).unwrap(), Some(account(0)));
    let one = db.stats().unwrap().pinned_bytes;
    drop(genesis);
    for number in 0..190 {
        let view = db.view_at(number).unwrap();
        view.account(&path(1)).unwrap();
        let keys = &keys([1]);
        view.extract(keys).unwrap();
        let stats = db.stats().unwrap();
        assert_eq!(stats.restored_states, 1);
        assert!(stats.pinned_bytes < 3 * one, "{}", stats.pinned_bytes);
        assert_eq!(
            stats.layers, 0,
            "what is brought back is no layer of the head's"
        );
    }
    let stats = db.stats().unwrap();
    assert_eq!((stats.restored_states, stats.pinned_bytes), (0, 0));
    // Together they have a budget, and fail beyond it.
    let old = db.head().number - db.options().unfinalized_blocks as u64;
    let (mut views, mut refused) = (Vec::new(), None);
    for number in (0..old).chain((0..old).rev()) {
        match db.view_at(number) {
            Ok(view) => views.push(view),
            Err(error) => refused = Some(error),
        }
    }
    let most = db.stats().unwrap().pinned_bytes;
    say(&format!(
        "{} views of old blocks took {most} bytes",
        views.len()
    ));
    assert!(
        matches!(refused, Some(StateError::TooFar { .. })),
        "{refused:?}"
    );
    assert!(most <= 16 << 20);
    // Neither commits nor other views wait for them, nor does a change of the branch.
    commit_and_merge(&db, &mut random);
    for depth in 1..4 {
        db.flush(0).unwrap();
        let parent = db.block_id(db.head().number - depth).unwrap().unwrap();
        let changes = Changes::new(some_changes(&mut random, 50));
        let name = format!("a sibling {depth} below the head");
        let sibling = seal(db.view_of(parent).unwrap(), name, changes, vec![]).unwrap();
        let sibling = sibling.commit_side_branch().unwrap().id();
        db.set_head(sibling).unwrap();
        commit_and_merge(&db, &mut random);
    }
    db.view().unwrap().account(&path(1)).unwrap();
    drop(views);
    assert!(db.view_at(150).is_ok());
}

#[test]
fn segments_come_and_go_without_end() {
    let files = FileSizes {
        segments_max: 30,
        ..TINY_FILES
    };
    let options = Options {
        files,
        ..tiny_options()
    };
    let (db, disk) = database_of(500, options);
    let mut random = Random::new(6);
    let mut seen = BTreeSet::new();
    for _ in 0..1_600 {
        let changes = (0..60).map(|_| random.below(500)).collect::<BTreeSet<_>>();
        let mut changes: Vec<_> = changes
            .into_iter()
            .map(|index| put(path(index), random.below(1 << 40)))
            .collect();
        changes.sort_unstable_by_key(|change| change.path);
        commit(&db, changes, vec![]);
        db.flush(0).unwrap();
        seen.extend(
            disk.files()
                .into_iter()
                .filter(|name| name.starts_with("seg")),
        );
    }
    let written = db.counters().page_bytes_written;
    let room = u64::from(files.segments_max) * files.segment_bytes_max;
    say(&format!(
        "{written} bytes of pages written, {} names of segments, room for {room} at a time",
        seen.len()
    ));
    assert!(written > 4 * room);
    check(&db);
    drop(db);
    wait_until_closed(&disk);
    let (db, _) = Db::open(Arc::new(disk.clone()), options).unwrap();
    check(&db);
}

#[test]
fn what_a_commit_returns_is_true_of_its_block() {
    for seed in cambium_seeds::seeds!(0..30) {
        let (db, disk) = database();
        let mut random = Random::new(seed);
        commit_and_merge(&db, &mut random);
        commit(&db, some_changes(&mut random, 60), vec![]);
        // The merge fails, and with it the engine, at some operation of its.
        disk.inject(Fault::FailedWrite, "seg", 1);
        let merged = db.flush(0);
        disk.clear_faults();
        assert!(merged.is_err());
        let before = db.head();
        let outcome = sealed(&db, some_changes(&mut random, 60), Bytes::new())
            .and_then(|sealed| sealed.commit());
        let head = db.head();
        drop(db);
        wait_until_closed(&disk);
        let db = open(&disk).unwrap();
        match outcome {
            Ok(committed) => assert_eq!(db.head(), committed.id()),
            Err(_) => assert_eq!(db.head(), before),
        }
        assert_eq!(db.head(), head);
        check(&db);
    }
}

#[test]
fn an_unknown_hash_costs_no_read() {
    let (db, disk) = database();
    let mut random = Random::new(8);
    for _ in 0..300 {
        commit(&db, some_changes(&mut random, 5), vec![]);
    }
    db.flush(0).unwrap();
    for number in [0, 1, 150, 299, 300, 301, u64::MAX] {
        let unknown = BlockId::new(number, B256::repeat_byte(0xee));
        let before = disk.stats();
        assert!(matches!(
            db.view_of(unknown),
            Err(StateError::UnknownBlock(_))
        ));
        assert!(matches!(
            db.set_head(unknown),
            Err(StateError::UnknownBlock(_))
        ));
        let entries = disk.stats().reads - before.reads;
        let bytes = disk.stats().bytes_read - before.bytes_read;
        assert!(
            entries <= 4 && bytes <= 4 * 4096,
            "{entries} reads of {bytes} bytes"
        );
    }
}

#[test]
fn a_lost_block_index_is_made_from_the_heads_of_records() {
    let (db, disk) = database();
    let body = Bytes::from(vec![7; 100_000]);
    let mut random = Random::new(9);
    for _ in 0..50 {
        let sealed = sealed(&db, some_changes(&mut random, 5), body.clone()).unwrap();
        sealed.commit().unwrap();
    }
    db.flush(0).unwrap();
    let head = db.head();
    drop(db);
    wait_until_closed(&disk);
    let read_by_opening = |disk: &FaultyDisk| {
        let before = disk.stats().bytes_read;
        let db = open(disk).unwrap();
        assert_eq!(db.head(), head);
        for number in 0..=head.number {
            assert!(db.block_id(number).unwrap().is_some());
        }
        disk.stats().bytes_read - before
    };
    let whole = read_by_opening(&disk.duplicate());
    let without = disk.duplicate();
    without.remove("blocks.idx").unwrap();
    let lost = read_by_opening(&without);
    say(&format!(
        "opening reads {whole} bytes, without the block index {lost}"
    ));
    assert!(
        lost < whole + (1 << 20),
        "{lost} bytes, with 5 MB of bodies in the log"
    );
}

#[test]
fn what_is_too_large_is_refused_and_changes_nothing() {
    let (db, disk) = database();
    let head = db.head();
    let before = contents(&disk);
    // Of memory that is not touched, since nothing is put together for it.
    let body = Bytes::from(vec![0; (1 << 30) + 1]);
    let refused = sealed(&db, vec![put(path(1), 9)], body);
    assert!(matches!(
        refused.err(),
        Some(StateError::Store(StoreError::TooLarge { .. }))
    ));
    assert_eq!((db.head(), contents(&disk)), (head, before));
    let mut random = Random::new(10);
    commit_and_merge(&db, &mut random);
    check(&db);
}

#[test]
fn the_head_goes_back_any_way() {
    let (db, disk) = database();
    let mut random = Random::new(11);
    let mut roots = vec![db.view().unwrap().state_root()];
    for _ in 0..1500 {
        roots.push(commit(&db, some_changes(&mut random, 150), vec![]));
    }
    // More than all old states may take.
    assert!(matches!(db.view_at(0), Err(StateError::TooFar { .. })));
    for number in [700, 3] {
        db.unwind(number).unwrap();
        let view = db.view().unwrap();
        assert_eq!(view.state_root(), roots[number as usize]);
        let keys = &keys((0..ACCOUNTS).step_by(100));
        assert_eq!(
            view.extract(keys).unwrap().state_root(),
            Some(roots[number as usize])
        );
    }
    let head = db.head();
    drop(db);
    wait_until_closed(&disk);
    let db = open(&disk).unwrap();
    assert_eq!(db.head(), head);
    let ancestor = db.block_id(1).unwrap().unwrap();
    let mut child = child_of(head, roots[3]);
    child.id.hash = ancestor.hash;
    let staged = db
        .view()
        .unwrap()
        .session()
        .finish(Changes::default(), vec![]);
    assert!(matches!(
        staged.unwrap().seal(child),
        Err(StateError::BlockExists(_))
    ));
    // The names of blocks taken back stay taken.
    assert!(matches!(
        sealed(&db, vec![], Bytes::new()),
        Err(StateError::BlockExists(_))
    ));
    let mut child = child_of(head, roots[3]);
    child.id.hash = B256::repeat_byte(0xab);
    let staged = db
        .view()
        .unwrap()
        .session()
        .finish(Changes::default(), vec![])
        .unwrap();
    staged.seal(child).unwrap().commit().unwrap();
    check(&db);
}

#[test]
fn blocks_and_codes_of_others_are_refused() {
    let (one, _) = database();
    let (other, disk) = database();
    let before = contents(&disk);
    let sealed_in_one = sealed(&one, vec![put(path(1), 5)], Bytes::new()).unwrap();
    assert!(matches!(
        other.commit_all(vec![sealed_in_one]),
        Err(StateError::OtherDatabase(_))
    ));
    assert_eq!(contents(&disk), before);
    assert_eq!(one.head().number, 0);
    let unknown = Account {
        code_hash: keccak256(b"nobody has it"),
        ..Account::default()
    };
    let finish = |changes, codes| {
        let session = other.view().unwrap().session();
        session.finish(Changes::new(changes), codes).err()
    };
    let with = |code_hash| {
        let account = Account {
            code_hash,
            ..unknown
        };
        vec![change(path(1), AccountUpdate::Put(account))]
    };
    assert!(matches!(
        finish(with(unknown.code_hash), vec![]),
        Some(StateError::UnknownCode { .. })
    ));
    let code = Bytes::from_static(b"code");
    assert!(matches!(
        finish(
            with(keccak256(&code)),
            vec![(keccak256(b"other"), code.clone())]
        ),
        Some(StateError::WrongCode { .. })
    ));
    assert!(finish(with(KECCAK256_EMPTY), vec![]).is_none());
    assert!(finish(with(keccak256(&code)), vec![(keccak256(&code), code)]).is_none());
    // Both go on.
    for db in [one, other] {
        commit(&db, vec![put(path(1), 6)], vec![]);
        check(&db);
    }
}

#[test]
fn a_block_that_is_dropped_leaves_its_name_to_others() {
    let (db, _disk) = database();
    let first = sealed(&db, vec![put(path(1), 5)], Bytes::new()).unwrap();
    assert!(matches!(
        sealed(&db, vec![put(path(1), 6)], Bytes::new()),
        Err(StateError::BlockExists(_))
    ));
    drop(first);
    let second = sealed(&db, vec![put(path(1), 6)], Bytes::new()).unwrap();
    second.commit().unwrap();
    assert_eq!(
        db.view().unwrap().account(&path(1)).unwrap().unwrap().nonce,
        6
    );
    db.flush(0).unwrap();
    check(&db);
}

/// A session reads a shard, whose root is an extension or an account with storage, and deletes the only
/// account beside it: the root of the first shard moves up, though nothing in it has changed.
#[test]
fn a_shard_that_was_only_read_moves_up_when_its_neighbour_goes() {
    let path = |first: u8, third: u8| {
        let mut path = B256::ZERO;
        (path[0], path[1], path[2]) = (first, first, third);
        path
    };
    for accounts in [8, 1] {
        let read: Vec<_> = (0..accounts).map(|at| path(0x33, at << 4)).collect();
        let slots: Vec<_> = (1..4).map(|at| (path(at, 0), U256::from(at))).collect();
        let database = |beside: &[u8]| {
            let disk = Arc::new(FaultyDisk::new(1));
            let mut loader = Loader::new(disk, Options::default()).unwrap();
            for path in &read {
                loader.account(*path, &account(1), slots.clone()).unwrap();
            }
            for first in beside {
                loader.account(path(*first, 0), &account(1), []).unwrap();
            }
            let loaded = loader.finish(&mut |_| {}).unwrap();
            let meta = BlockMeta {
                id: BlockId::new(0, B256::repeat_byte(1)),
                parent: B256::ZERO,
                state_root: loaded.root(),
                body: Bytes::new(),
            };
            loaded.create(meta, vec![]).unwrap()
        };
        let expected = database(&[0x77]).view().unwrap().state_root();
        let db = database(&[0x34, 0x77]);
        let session = db.view().unwrap().session();
        session.accounts(&read).unwrap();
        session.storage(&[(read[0], slots[0].0)]).unwrap();
        let gone = AccountDiff {
            path: path(0x34, 0),
            account: AccountUpdate::Delete,
            wipe: true,
            slots: vec![],
        };
        let staged = session.finish(Changes::new(vec![gone]), vec![]).unwrap();
        assert_eq!(staged.root(), expected, "{accounts} accounts");
    }
}
