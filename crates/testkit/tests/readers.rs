//! Reading a database that another process writes: here in this process, and never by the same handles.

use alloy_primitives::{B256, Bytes, keccak256};
use cambium_primitives::{Account, BlockId, Changes, Path};
use cambium_state::{
    BlockMeta, Db, Disk, FaultyDisk, FileSizes, Options, StateError, StdDisk, StdDiskOptions, View,
    backup, repair,
};
use cambium_store::StoreError;
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{self, path, put, random_puts, tiny_options},
    say,
};
use cambium_trie::{Lookup, ProofTargets};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const ACCOUNTS: u64 = 2000;

fn make(disk: &Arc<dyn Disk>, options: Options) -> Db {
    plain::make(disk.clone(), options, ACCOUNTS, |index| index % 3)
}

/// Runs `case` on disks of both kinds.
fn on_each(case: impl Fn(Arc<dyn Disk>)) {
    case(Arc::new(FaultyDisk::new(1)));
    let dir = tempfile::tempdir().unwrap();
    case(Arc::new(StdDisk::new(dir.path())));
}

fn code(number: u64) -> (B256, Bytes) {
    let code = number.to_le_bytes().repeat(40);
    (keccak256(&code), Bytes::from(code))
}

/// A block that gives accounts its number, and is of no other branch. Returns its name and its root.
fn step(db: &Db, random: &mut Random) -> (BlockId, B256) {
    let parent = db.head();
    let number = parent.number + 1;
    let changes = random_puts(random, 40, ACCOUNTS, number);
    let session = db.view().unwrap().session();
    let staged = session.finish(Changes::new(changes), vec![code(number)]);
    let staged = staged.unwrap();
    let salt = random.below(u64::MAX);
    let meta = BlockMeta {
        id: BlockId::new(number, keccak256(format!("{} {salt}", parent.hash))),
        parent: parent.hash,
        state_root: staged.root(),
        body: Bytes::from(vec![1; random.below(900) as usize]),
    };
    let made = (meta.id, meta.state_root);
    staged.seal(meta).unwrap().commit().unwrap();
    made
}

/// An account by the nodes on the way to it, which lead to the root.
fn proved(view: &View, account: &B256) -> Option<Account> {
    let trie = view
        .extract(&ProofTargets::new(vec![(*account, vec![])]))
        .unwrap();
    assert_eq!(trie.state_root(), Some(view.state_root()));
    match trie.lookup(&Path::account(account)) {
        Lookup::Account(account) => Some(account),
        Lookup::Absent => None,
        other => panic!("{other:?}"),
    }
}

/// The reader has the same state as the writer.
fn assert_same(reader: &Db, writer: &Db) {
    assert_eq!(reader.head(), writer.head());
    let (ours, theirs) = (reader.view().unwrap(), writer.view().unwrap());
    assert_eq!(ours.state_root(), theirs.state_root());
    for index in 0..ACCOUNTS + 5 {
        let at = path(index);
        assert_eq!(ours.account(&at).unwrap(), theirs.account(&at).unwrap());
    }
    let (hash, bytes) = code(reader.head().number);
    assert_eq!(ours.code(&hash).unwrap(), bytes);
    let head = reader.head().number;
    let numbers = (head.saturating_sub(150)..head).step_by(7);
    for number in numbers {
        let (ours, theirs) = (reader.view_at(number), writer.view_at(number));
        let (ours, theirs) = (ours.unwrap(), theirs.unwrap());
        assert_eq!(ours.state_root(), theirs.state_root());
        let at = path(number * 31 % ACCOUNTS);
        assert_eq!(ours.account(&at).unwrap(), theirs.account(&at).unwrap());
    }
    assert!(reader.check(&mut |_| {}).unwrap().damage.is_empty());
}

#[test]
fn a_reader_sees_what_is_written_when_it_catches_up() {
    on_each(|disk| {
        let writer = make(&disk, tiny_options());
        let mut random = Random::new(5);
        step(&writer, &mut random);
        let (mut reader, _) = Db::open_read_only(disk.clone(), tiny_options()).unwrap();
        assert!(reader.is_read_only() && !writer.is_read_only());
        assert_same(&reader, &writer);
        for round in 0..30 {
            let (before, view) = (reader.head(), reader.view().unwrap());
            let first = view.account(&path(1)).unwrap();
            for _ in 0..round % 4 + 1 {
                step(&writer, &mut random);
            }
            if round % 5 == 2 {
                writer.flush(0).unwrap();
            }
            if round % 7 == 4 {
                writer.unwind(writer.head().number - 3).unwrap();
                step(&writer, &mut random);
            }
            // It knows of nothing until it asks.
            assert_eq!(reader.head(), before);
            reader.catch_up().unwrap();
            assert_same(&reader, &writer);
            // And views stay what they are.
            assert_eq!(
                (view.block(), view.account(&path(1)).unwrap()),
                (before, first)
            );
        }
        // A deep unwind, after which all is another chain.
        let left = reader.clone();
        writer.unwind(5).unwrap();
        writer.flush(0).unwrap();
        for _ in 0..90 {
            step(&writer, &mut random);
        }
        writer.flush(0).unwrap();
        let view = left.view().unwrap();
        assert!(view.account(&path(3)).is_ok());
        reader.catch_up().unwrap();
        assert_same(&reader, &writer);
        // The writer goes, and another comes.
        drop((writer, view, left));
        let writer = loop {
            match Db::open(disk.clone(), tiny_options()) {
                Ok((writer, _)) => break writer,
                Err(StateError::Store(StoreError::InUse { .. })) => {
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        };
        step(&writer, &mut random);
        reader.catch_up().unwrap();
        assert_same(&reader, &writer);
    });
}

#[test]
fn a_reader_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
    let writer = make(&disk, tiny_options());
    let mut random = Random::new(5);
    (0..20).for_each(|_| _ = step(&writer, &mut random));
    writer.flush(3).unwrap();
    let contents = || {
        let mut found = HashMap::new();
        for sub in ["", "log", "segments"] {
            for entry in std::fs::read_dir(dir.path().join(sub)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    let bytes = std::fs::read(&path).unwrap();
                    found.insert(path, bytes);
                }
            }
        }
        found
    };
    let head = writer.head();
    writer.close().unwrap();
    let before = contents();
    let read_only = StdDiskOptions {
        read_only: true,
        ..StdDiskOptions::default()
    };
    let disk = StdDisk::with_options(dir.path(), &read_only).unwrap();
    let (mut reader, _) = Db::open_read_only(Arc::new(disk), tiny_options()).unwrap();
    assert_eq!(reader.head(), head);
    let view = reader.view().unwrap();
    let staged = view
        .clone()
        .session()
        .finish(Changes::new(vec![put(path(1), 9)]), vec![])
        .unwrap();
    let meta = BlockMeta {
        id: BlockId::new(head.number + 1, B256::repeat_byte(7)),
        parent: head.hash,
        state_root: staged.root(),
        body: Bytes::new(),
    };
    // A root can be had of a block that can't be kept.
    assert!(matches!(staged.seal(meta), Err(StateError::ReadOnly(_))));
    assert!(matches!(reader.unwind(3), Err(StateError::ReadOnly(_))));
    assert!(matches!(reader.flush(0), Err(StateError::ReadOnly(_))));
    assert!(reader.check(&mut |_| {}).unwrap().damage.is_empty());
    assert_eq!(proved(&view, &path(1)), view.account(&path(1)).unwrap());
    reader.catch_up().unwrap();
    drop((reader, view));
    assert_eq!(contents(), before);
    assert_eq!(
        std::fs::read_dir(dir.path().join("readers"))
            .unwrap()
            .count(),
        0
    );
}

/// Space of removed files is kept for a reader, while it exists and within the limit.
#[test]
fn readers_keep_what_they_read_up_to_a_limit() {
    on_each(|disk| {
        let options = Options {
            reader_lag: 6,
            ..tiny_options()
        };
        let writer = make(&disk, options);
        let mut random = Random::new(5);
        let mut merge = |writer: &Db| {
            (0..6).for_each(|_| _ = step(writer, &mut random));
            writer.flush(0).unwrap();
            writer.stats().unwrap().reader_held_bytes
        };
        let without: u64 = (0..12).map(|_| merge(&writer)).sum();
        assert_eq!(without, 0);
        let (mut reader, _) = Db::open_read_only(disk.clone(), options).unwrap();
        let head = reader.head();
        let (mut lent, mut behind) = (0, None);
        for round in 0..16 {
            lent = merge(&writer).max(lent);
            match reader.check(&mut |_| {}) {
                Ok(report) => assert!(behind.is_none() && report.damage.is_empty()),
                Err(StateError::Store(StoreError::ReaderBehind { .. })) => {
                    behind.get_or_insert(round);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(behind.is_some_and(|round| round >= 6), "{behind:?}");
        say(&format!(
            "{lent} bytes lent at most, cut off after {behind:?} merges"
        ));
        assert!(lent > 0);
        assert_eq!(reader.head(), head);
        reader.catch_up().unwrap();
        assert_same(&reader, &writer);
        merge(&writer);
        let lent = (0..4).map(|_| merge(&writer)).max().unwrap();
        assert!(lent > 0);
        drop(reader);
        assert_eq!(merge(&writer), 0);
    });
}

/// Readers open, read and catch up at any moment of a writer's work.
#[test]
fn readers_see_whole_blocks_while_a_writer_works() {
    readers_beside_a_writer(None);
}

#[test]
fn readers_see_whole_blocks_while_old_ones_leave() {
    readers_beside_a_writer(Some(10));
}

fn readers_beside_a_writer(keep_blocks: Option<u64>) {
    let seconds = if cambium_seeds::is_long() { 300 } else { 6 };
    let files = FileSizes {
        log_file_bytes_max: 16 << 10,
        segment_bytes_max: 32 << 10,
        ..TINY_FILES
    };
    let options = Options {
        unfinalized_blocks: 8,
        keep_blocks,
        files,
        ..tiny_options()
    };
    let dir = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path()));
    let writer = make(&disk, options);
    let known = Mutex::new(HashMap::from([(
        writer.head(),
        writer.view().unwrap().state_root(),
    )]));
    let is_done = AtomicBool::new(false);
    let counts: [AtomicU64; 5] = Default::default();
    let [opened, caught_up, checked, refused, not_kept] = &counts;
    thread::scope(|scope| {
        for number in 0..3 {
            let (disk, known, is_done) = (&disk, &known, &is_done);
            scope.spawn(move || {
                let mut random = Random::new(100 + number);
                while !is_done.load(Ordering::Relaxed) {
                    let (mut reader, _) = Db::open_read_only(disk.clone(), options).unwrap();
                    opened.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..random.below(12) {
                        let view = reader.view().unwrap();
                        // It is in the log before its writer has recorded it.
                        let root = loop {
                            if let Some(root) = known.lock().unwrap().get(&view.block()) {
                                break *root;
                            }
                            thread::sleep(Duration::from_millis(1));
                        };
                        assert_eq!(view.state_root(), root);
                        // The root is that of the values that are read.
                        let at = path(random.below(ACCOUNTS));
                        assert_eq!(proved(&view, &at), view.account(&at).unwrap());
                        let below = view.block().number.saturating_sub(random.below(30));
                        match reader.view_at(below) {
                            Ok(old) => {
                                let root = known.lock().unwrap()[&old.block()];
                                assert_eq!(old.state_root(), root);
                                assert!(old.account(&at).is_ok());
                            }
                            Err(StateError::Store(StoreError::ReaderBehind { .. })) => {
                                refused.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(StateError::NotKept { oldest }) => {
                                assert!(keep_blocks.is_some() && below < oldest);
                                not_kept.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error) => panic!("{error}"),
                        }
                        if random.below(5) == 0 {
                            match reader.check(&mut |_| {}) {
                                Ok(report) => assert!(report.damage.is_empty(), "{report:?}"),
                                Err(StateError::Store(StoreError::ReaderBehind { .. })) => {
                                    refused.fetch_add(1, Ordering::Relaxed);
                                }
                                Err(error) => panic!("{error}"),
                            }
                            checked.fetch_add(1, Ordering::Relaxed);
                        }
                        reader.catch_up().unwrap();
                        caught_up.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let start = Instant::now();
        let mut random = Random::new(9);
        let mut count = 0;
        // On a machine that is busy they take their time.
        let is_enough =
            || opened.load(Ordering::Relaxed) > 10 && checked.load(Ordering::Relaxed) > 10;
        while start.elapsed() < Duration::from_secs(seconds)
            || (!is_enough() && start.elapsed() < Duration::from_secs(seconds + 300))
        {
            let (id, root) = step(&writer, &mut random);
            known.lock().unwrap().insert(id, root);
            count += 1;
            let head = writer.head().number;
            match random.below(40) {
                0..4 => writer.flush(random.below(3) as usize).unwrap(),
                4..6 => drop(writer.unwind(head - random.below(head.min(5) + 1)).unwrap()),
                6 => match writer.unwind(head - random.below(head.min(60) + 1)) {
                    Err(StateError::NotKept { .. }) if keep_blocks.is_some() => {}
                    unwound => drop(unwound.unwrap()),
                },
                _ => thread::sleep(Duration::from_millis(random.below(3))),
            }
        }
        is_done.store(true, Ordering::Relaxed);
        say(&format!(
            "{count} blocks; {opened:?} openings, {caught_up:?} times caught up, {checked:?} whole \
             checks, {refused:?} times of a chain that was taken back, {not_kept:?} times of blocks \
             that are not kept"
        ));
    });
    assert!(opened.load(Ordering::Relaxed) > 10 && checked.load(Ordering::Relaxed) > 10);
    assert_eq!(not_kept.load(Ordering::Relaxed) > 0, keep_blocks.is_some());
}

/// When any call to the disk fails while it catches up, a reader is unchanged, or at the newest block; and there when
/// it is asked again.
#[test]
fn a_reader_that_fails_to_catch_up_does_so_later() {
    let disk = FaultyDisk::new(1);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let writer = make(&shared, tiny_options());
    let mut random = Random::new(5);
    step(&writer, &mut random);
    let (mut reader, _) = Db::open_read_only(shared.clone(), tiny_options()).unwrap();
    let mut failed = 0;
    // How often the disk is called, by the log alone and by a new checkpoint.
    let mut calls = [0; 2];
    for attempt in 0..50 {
        let by_log = attempt % 2 > 0;
        if by_log {
            writer.unwind(writer.head().number - 1).unwrap();
        }
        (0..4).for_each(|_| _ = step(&writer, &mut random));
        if !by_log {
            writer.flush(1).unwrap();
        }
        let (before, begun) = (reader.head(), disk.calls());
        let all = &mut calls[usize::from(by_log)];
        let call = *all * (attempt / 2) / 24;
        if attempt > 1 {
            disk.fail_call_after(call);
        }
        match reader.catch_up() {
            Ok(_) => *all = (*all).max(disk.calls() - begun),
            Err(error) => {
                failed += 1;
                assert!(!error.is_damage(), "call {call}: {error}");
                disk.clear_faults();
                let head = reader.head();
                assert!(head == before || head.number <= writer.head().number);
                assert!(reader.view().unwrap().account(&path(1)).is_ok());
                reader.catch_up().unwrap();
            }
        }
        disk.clear_faults();
        assert_eq!(reader.head(), writer.head(), "call {call}");
        let (ours, theirs) = (reader.view().unwrap(), writer.view().unwrap());
        assert_eq!(ours.state_root(), theirs.state_root());
        for index in 0..50 {
            let at = path(index);
            assert_eq!(proved(&ours, &at), theirs.account(&at).unwrap());
        }
    }
    say(&format!(
        "{failed} of 48 attempts to catch up failed, within {calls:?} calls"
    ));
    assert!(failed > 20);
    assert_same(&reader, &writer);
}

/// A copy has all that was there, and neither database can do anything to the other.
#[test]
fn a_backup_of_a_database_that_is_written_to_is_one_of_its_own() {
    let (there, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let on_disk = |name: &str| -> Arc<dyn Disk> { Arc::new(StdDisk::new(dir.path().join(name))) };
    let in_memory = || -> Arc<dyn Disk> { Arc::new(FaultyDisk::new(3)) };
    let from: Arc<dyn Disk> = Arc::new(StdDisk::new(there.path()));
    let options = Options {
        reader_lag: 1,
        ..tiny_options()
    };
    let writer = make(&from, options);
    let mut random = Random::new(5);
    let mut copies = Vec::new();
    let mut shared = 0;
    for round in 0..12 {
        for _ in 0..30 {
            step(&writer, &mut random);
        }
        if round % 3 == 1 {
            writer.flush(2).unwrap();
        }
        if round % 4 == 3 {
            writer.unwind(writer.head().number - 4).unwrap();
        }
        let to = match round % 2 {
            0 => on_disk(&round.to_string()),
            _ => in_memory(),
        };
        let report = backup(&from, &to, options, &mut |_| {}).unwrap();
        assert_eq!(report.head, writer.head());
        shared += report.sizes.linked_bytes;
        assert!(matches!(
            backup(&from, &to, options, &mut |_| {}),
            Err(StateError::BadStart(_))
        ));
        let (copy, recovery) = Db::open(to.clone(), options).unwrap();
        assert!(recovery.notes.is_empty(), "{recovery:?}");
        assert_same(&copy, &writer);
        // It goes its own way, and merges, and so does the original.
        for _ in 0..20 {
            step(&copy, &mut random);
        }
        copy.flush(0).unwrap();
        let head = copy.head();
        copy.close().unwrap();
        copies.push((to, head));
    }
    assert!(shared > 0);
    // Copies that lose their newest checkpoint, or the newest file of their log, and make do with the rest: the files
    // that they cut off are not shared ones.
    for number in 0..4 {
        (0..40).for_each(|_| _ = step(&writer, &mut random));
        if number % 2 == 0 {
            writer.flush(0).unwrap();
        }
        let to = on_disk(&format!("damaged-{number}"));
        backup(&from, &to, options, &mut |_| {}).unwrap();
        let newest = |dir: &str, prefix: &str| {
            let names = to.list(dir).unwrap().into_iter();
            names.filter(|name| name.starts_with(prefix)).max().unwrap()
        };
        to.remove(&newest("", "checkpoint-")).unwrap();
        if number > 1 {
            to.remove(&format!("log/{}", newest("log", "0"))).unwrap();
            let report = repair(&to, options, false, &mut |_| {}).unwrap();
            assert!(report.lost_blocks);
        }
        let (copy, _) = Db::open(to.clone(), options).unwrap();
        (0..40).for_each(|_| _ = step(&copy, &mut random));
        copy.flush(0).unwrap();
        assert!(copy.check(&mut |_| {}).unwrap().damage.is_empty());
        let report = writer.check(&mut |_| {}).unwrap();
        assert!(report.damage.is_empty(), "{report:?}");
    }
    writer.flush(0).unwrap();
    assert!(writer.check(&mut |_| {}).unwrap().damage.is_empty());
    for (to, head) in copies {
        let (copy, _) = Db::open(to, options).unwrap();
        assert_eq!(copy.head(), head);
        assert!(copy.check(&mut |_| {}).unwrap().damage.is_empty());
    }
}

/// After any failure there is a whole copy or none.
#[test]
fn a_backup_that_fails_leaves_nothing() {
    let disk = FaultyDisk::new(1);
    let from: Arc<dyn Disk> = Arc::new(disk.clone());
    let writer = make(&from, tiny_options());
    let mut random = Random::new(5);
    (0..30).for_each(|_| _ = step(&writer, &mut random));
    let to = FaultyDisk::new(2);
    let onto: Arc<dyn Disk> = Arc::new(to.clone());
    backup(&from, &onto, tiny_options(), &mut |_| {}).unwrap();
    let calls = to.calls();
    let mut cleared = 0;
    for call in (0..calls).step_by(1 + calls as usize / 60) {
        let to = FaultyDisk::new(2);
        to.fail_call_after(call);
        let onto: Arc<dyn Disk> = Arc::new(to.clone());
        let done = backup(&from, &onto, tiny_options(), &mut |_| {});
        to.clear_faults();
        match done {
            Ok(report) => assert_eq!(report.head, writer.head()),
            Err(error) => {
                assert!(!error.is_damage(), "call {call}: {error}");
                // The call that failed may have been that which removes a file.
                if to.files().is_empty() {
                    cleared += 1;
                    let report = backup(&from, &onto, tiny_options(), &mut |_| {}).unwrap();
                    assert_eq!(report.head, writer.head());
                }
            }
        }
    }
    assert!(cleared > 20, "{cleared}");
    assert!(writer.check(&mut |_| {}).unwrap().damage.is_empty());
}
