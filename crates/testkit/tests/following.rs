//! Subscribers beside a writer, in threads and in another opening of the database; cursors from which the chain can't
//! be followed. The events of each subscriber are compared with a model in `engine.rs`.

use alloy_primitives::B256;
use cambium_primitives::{AccountUpdate, BlockId, Changes};
use cambium_state::{
    ChainEvent, Db, FaultyDisk, FileSizes, Options, StateError, Subscription, View,
};
use cambium_testkit::{
    Random, TINY_FILES,
    plain::{commit, make, path, put, random_puts, seal, tiny_options, wait_until_closed},
    say,
};
use std::{
    cmp::Ordering,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{self, AtomicBool},
    },
    thread,
    time::{Duration, Instant},
};

const ACCOUNTS: u64 = 200;
const LONG: Duration = Duration::from_secs(60);

fn database(disk: &FaultyDisk, options: Options) -> Db {
    make(Arc::new(disk.clone()), options, ACCOUNTS, |_| 0)
}

/// Nonces by account, kept by events alone.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Nonces(BTreeMap<B256, u64>);

impl Nonces {
    fn of(view: &View) -> Self {
        let nonce = |index| {
            let account = view.account(&path(index)).expect("readable");
            (path(index), account.expect("an account").nonce)
        };
        Self((0..ACCOUNTS).map(nonce).collect())
    }

    fn apply(&mut self, changes: &Changes) {
        for change in changes.accounts() {
            let AccountUpdate::Put(account) = &change.account else {
                panic!("{change:?}");
            };
            self.0.insert(change.path, account.nonce);
        }
    }

    /// Takes the next event. Returns false if there was none in time.
    fn take(&mut self, events: &mut Subscription, timeout: Duration) -> bool {
        let before = events.cursor();
        match events.wait(timeout).expect("an event") {
            None => return false,
            Some(ChainEvent::Committed(block)) => {
                assert_eq!(block.meta.parent, before.hash);
                assert_eq!(block.meta.id, events.cursor());
                self.apply(&block.changes);
            }
            Some(ChainEvent::Reverted(block)) => {
                assert_eq!(block.meta.id, before);
                assert_eq!(block.meta.parent, events.cursor().hash);
                self.apply(&block.reverts);
            }
            Some(ChainEvent::Finalized(block)) => assert!(block.number <= before.number),
        }
        true
    }
}

/// Commits blocks, and moves the head back now and then, never below a finalized block.
fn write(db: &Db, seed: u64, steps: u64) {
    let mut random = Random::new(seed);
    for step in 0..steps {
        let head = db.head();
        if random.percent(10) {
            let finalized = db.finality().finalized.map_or(0, |block| block.number);
            let to = head.number.saturating_sub(random.below(12)).max(finalized);
            db.unwind(to).expect("kept");
        } else if random.percent(5) {
            let known = db.finality().finalized.map_or(0, |block| block.number);
            let finalized = db.block_id(head.number.saturating_sub(20).max(known));
            let set = db.set_canonical(head, None, finalized.expect("readable"));
            set.expect("an ancestor");
        } else {
            // Named by what is unique, since a branch may begin where another one did.
            let name = [
                head.hash.as_slice(),
                &[seed, step].map(u64::to_le_bytes).concat(),
            ]
            .concat();
            let changes = Changes::new(random_puts(&mut random, 5, ACCOUNTS, 10 + step));
            let sealed = seal(db.view().expect("a head"), name, changes, vec![]);
            sealed.and_then(|sealed| sealed.commit()).expect("a block");
        }
    }
}

#[test]
fn subscribers_in_threads_end_with_the_state_of_the_head() {
    let db = database(&FaultyDisk::new(1), tiny_options());
    let (first, begun) = (db.genesis(), Nonces::of(&db.view().unwrap()));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for pause in [0, 0, 2] {
            let (db, begun, is_over) = (&db, &begun, &is_over);
            scope.spawn(move || {
                let (mut nonces, mut events) = (begun.clone(), db.subscribe(first));
                loop {
                    let ends = is_over.load(atomic::Ordering::Acquire);
                    let had_one = nonces.take(&mut events, Duration::from_millis(50));
                    thread::sleep(Duration::from_millis(pause));
                    if ends && !had_one {
                        break;
                    }
                }
                assert_eq!(events.cursor(), db.head());
                assert_eq!(nonces, Nonces::of(&db.view().unwrap()));
            });
        }
        write(&db, 1, 1000);
        is_over.store(true, atomic::Ordering::Release);
    });
}

/// As [`write`], until the disk has no power any more.
fn write_until_cut(db: &Db, seed: u64) {
    let mut random = Random::new(seed);
    for step in 0.. {
        let head = db.head();
        let outcome = match random.below(20) {
            0 | 1 => {
                let finalized = db.finality().finalized.map_or(0, |block| block.number);
                let to = head.number.saturating_sub(random.below(12)).max(finalized);
                db.unwind(to).map(drop)
            }
            2 => {
                let known = db.finality().finalized.map_or(0, |block| block.number);
                let finalized = db.block_id(head.number.saturating_sub(20).max(known));
                finalized.and_then(|finalized| db.set_canonical(head, None, finalized))
            }
            3 => db.flush(random.below(4) as usize),
            // A block aside, which may become the head.
            4 => {
                let finalized = db.finality().finalized.map_or(0, |block| block.number);
                let on = head.number.saturating_sub(random.below(6)).max(finalized);
                let changes = Changes::new(random_puts(&mut random, 5, ACCOUNTS, 10 + step));
                let name = [seed, step, 7].map(u64::to_le_bytes).concat();
                let aside = db
                    .view_at(on)
                    .and_then(|view| seal(view, name, changes, vec![]))
                    .and_then(|sealed| sealed.commit_side_branch());
                aside.and_then(|aside| db.set_head(aside.id())).map(drop)
            }
            _ => {
                let changes = Changes::new(random_puts(&mut random, 5, ACCOUNTS, 10 + step));
                let name = [seed, step].map(u64::to_le_bytes).concat();
                let sealed = db.view().and_then(|view| seal(view, name, changes, vec![]));
                sealed.and_then(|sealed| sealed.commit()).map(drop)
            }
        };
        if outcome.is_err() {
            break;
        }
    }
}

#[test]
fn subscribers_that_a_crash_ends_go_on_from_their_cursors_with_nothing_lost() {
    const SUBSCRIBERS: usize = 3;
    let cycles = if cambium_seeds::is_long() { 2_000 } else { 60 };
    let mut disk = FaultyDisk::new(3);
    let db = database(&disk, tiny_options());
    let begun = (db.genesis(), Nonces::of(&db.view().unwrap()));
    // Data that each of them stores with its cursor. The last one is often far behind.
    let mut stored: [_; SUBSCRIBERS] = std::array::from_fn(|_| begun.clone());
    drop(db);
    let (mut events_seen, mut behind, mut aside) = (0u64, 0, 0);
    for cycle in 0..cycles {
        let (db, _) = Db::open(Arc::new(disk.clone()), tiny_options()).unwrap();
        let mut random = Random::new(cycle);
        disk.lose_power_after(20 + random.below(900));
        thread::scope(|scope| {
            scope.spawn(|| write_until_cut(&db, cycle));
            for (at, stored) in stored.iter_mut().enumerate() {
                let (db, disk) = (&db, &disk);
                scope.spawn(move || {
                    let (cursor, nonces) = stored;
                    let mut events = db.subscribe(*cursor);
                    let most = if at + 1 < SUBSCRIBERS { u64::MAX } else { 40 };
                    for _ in 0..most {
                        let before = events.cursor();
                        match events.wait(Duration::from_millis(40)) {
                            Ok(Some(ChainEvent::Committed(block))) => {
                                assert_eq!(block.meta.parent, before.hash);
                                nonces.apply(&block.changes);
                            }
                            Ok(Some(ChainEvent::Reverted(block))) => {
                                assert_eq!(block.meta.id, before);
                                nonces.apply(&block.reverts);
                            }
                            Ok(Some(ChainEvent::Finalized(_))) => {}
                            Ok(None) if disk.is_off() => break,
                            Ok(None) => {}
                            Err(_) => break,
                        }
                        *cursor = events.cursor();
                    }
                });
            }
        });
        drop(db);
        disk = disk.crash();
        let (db, _) = Db::open(Arc::new(disk.clone()), tiny_options()).unwrap();
        // The chain changes its branch before they are back.
        if random.percent(40) {
            let finalized = db.finality().finalized.map_or(0, |block| block.number);
            let to = db
                .head()
                .number
                .saturating_sub(random.below(9))
                .max(finalized);
            db.unwind(to).unwrap();
            let name = [cycle, 9, 9].map(u64::to_le_bytes).concat();
            let changes = Changes::new(random_puts(&mut random, 5, ACCOUNTS, 5));
            let sealed = seal(db.view().unwrap(), name, changes, vec![]).unwrap();
            sealed.commit().unwrap();
        }
        let expected = Nonces::of(&db.view().unwrap());
        for (at, (cursor, nonces)) in stored.iter_mut().enumerate() {
            behind += u64::from(*cursor != db.head());
            aside += u64::from(!db.is_canonical(*cursor).unwrap());
            // The last one goes on when the others have all, now and then.
            if at + 1 == SUBSCRIBERS && !random.percent(20) {
                continue;
            }
            let mut events = db.subscribe(*cursor);
            while events.cursor() != db.head() {
                let is_more = nonces.take(&mut events, Duration::ZERO);
                assert!(is_more, "cycle {cycle}, subscriber {at}");
                events_seen += 1;
            }
            assert_eq!(*nonces, expected, "cycle {cycle}, subscriber {at}");
            *cursor = events.cursor();
        }
        drop(db);
        wait_until_closed(&disk);
    }
    say(&format!(
        "{cycles} crashes; cursors: {behind} behind the head, {aside} on another branch; \
         {events_seen} events afterwards"
    ));
    assert!(behind > 60 && aside > 10, "{behind}, {aside}");
}

/// A service has one handle for all its clients, each of which comes with a cursor of its own.
#[test]
fn a_reader_that_is_behind_serves_cursors_that_are_not() {
    let disk = FaultyDisk::new(5);
    let db = database(&disk, tiny_options());
    let blocks = |count: u64| {
        for _ in 0..count {
            commit(&db, vec![put(path(1), db.head().number)], vec![]);
        }
    };
    blocks(10);
    let ten = db.head();
    db.unwind(5).unwrap();
    let open = || Db::open_read_only(Arc::new(disk.clone()), tiny_options());
    let (reader, _) = open().unwrap();
    // The writer is elsewhere by now, with a newer checkpoint.
    db.set_head(ten).unwrap();
    db.flush(0).unwrap();
    let mut first = reader.subscribe(reader.head());
    let mut count = 0;
    while first.try_next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!((count, first.cursor()), (5, ten));
    assert_eq!(reader.head().number, 5);
    // Nothing was reverted since.
    assert_eq!(reader.subscribe(ten).try_next().unwrap(), None);
    commit(&db, vec![put(path(2), 7)], vec![]);
    let next = reader.subscribe(ten).try_next().unwrap();
    assert!(matches!(next, Some(ChainEvent::Committed(block)) if block.meta.id == db.head()));
    let (behind, _) = open().unwrap();
    let eleven = db.head();
    commit(&db, vec![put(path(2), 8)], vec![]);
    db.flush(0).unwrap();
    let mut to_the_end = behind.subscribe(eleven);
    while to_the_end.try_next().unwrap().is_some() {}
    let again = behind.subscribe(to_the_end.cursor()).try_next();
    assert_eq!(again.unwrap(), None);
}

#[test]
fn what_has_left_the_log_meanwhile_is_no_damage_to_a_reader() {
    let few = Options {
        keep_blocks: Some(40),
        unfinalized_blocks: 4,
        files: FileSizes {
            log_file_bytes_max: 4 << 10,
            ..TINY_FILES
        },
        ..tiny_options()
    };
    let disk = FaultyDisk::new(6);
    let db = database(&disk, few);
    let blocks = |numbers: std::ops::RangeInclusive<u64>| {
        for number in numbers {
            commit(&db, vec![put(path(number % 50), number)], vec![]);
            if number % 20 == 0 {
                db.flush(0).unwrap();
            }
        }
    };
    blocks(1..=5);
    let changes = Changes::new(vec![put(path(1), 99)]);
    let aside = seal(db.view().unwrap(), "aside", changes, vec![]).unwrap();
    let aside = aside.commit_side_branch().unwrap().id();
    blocks(6..=30);
    db.flush(0).unwrap();
    let (reader, _) = Db::open_read_only(Arc::new(disk.clone()), few).unwrap();
    let reverted = reader.subscribe(aside).try_next().unwrap();
    assert!(matches!(reverted, Some(ChainEvent::Reverted(block)) if block.meta.id == aside));
    blocks(31..=400);
    let told = reader.subscribe(aside).try_next().unwrap_err();
    assert!(matches!(told, StateError::CannotFollow { .. }), "{told}");
    assert!(db.check(&mut |_| {}).unwrap().damage.is_empty());
}

#[test]
fn a_commit_wakes_a_subscriber_and_does_not_wait_for_one() {
    let db = database(&FaultyDisk::new(2), tiny_options());
    let idle = db.subscribe(db.head());
    let mut events = db.subscribe(db.head());
    let none = events.wait(Duration::from_millis(20)).unwrap();
    assert_eq!(none, None);
    let start = Instant::now();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || events.wait(LONG).unwrap());
        thread::sleep(Duration::from_millis(50));
        commit(&db, vec![put(path(1), 9)], vec![]);
        let event = waiting.join().unwrap();
        let Some(ChainEvent::Committed(block)) = event else {
            panic!("{event:?}");
        };
        assert_eq!(block.meta.id, db.head());
        assert_eq!(block.changes, Changes::new(vec![put(path(1), 9)]));
        assert_eq!(block.reverts, Changes::new(vec![put(path(1), 0)]));
    });
    assert!(start.elapsed() < LONG / 2);
    // No event has been taken from it.
    write(&db, 1, 300);
    drop(idle);
}

#[test]
fn a_reader_follows_what_another_opening_writes() {
    let disk = FaultyDisk::new(3);
    let db = database(&disk, tiny_options());
    let (reader, _) = Db::open_read_only(Arc::new(disk.clone()), tiny_options()).unwrap();
    let (mut nonces, mut events) = (
        Nonces::of(&reader.view().unwrap()),
        reader.subscribe(reader.head()),
    );
    for seed in cambium_seeds::seeds!(0..40) {
        write(&db, seed, 25);
        if db.head().number.is_multiple_of(3) {
            db.flush(0).unwrap();
        }
        while nonces.take(&mut events, Duration::ZERO) {}
        assert_eq!(events.cursor(), db.head());
        assert_eq!(nonces, Nonces::of(&db.view().unwrap()));
    }
}

#[test]
fn finalized_blocks_alone_are_followed_as_they_become_final() {
    let db = database(&FaultyDisk::new(4), tiny_options());
    let mut nonces = Nonces::of(&db.view().unwrap());
    let mut events = db.subscribe_finalized(db.genesis());
    for number in 1..=30 {
        commit(&db, vec![put(path(number), 100 + number)], vec![]);
        let (head, finalized) = (db.head(), number / 2);
        let id = db.block_id(finalized).unwrap();
        db.set_canonical(head, None, id).unwrap();
        while nonces.take(&mut events, Duration::ZERO) {}
        assert_eq!(Some(events.cursor()), id);
        assert_eq!(nonces, Nonces::of(&db.view_at(finalized).unwrap()));
    }
}

#[test]
fn a_branch_that_is_forgotten_is_reverted_from_the_log() {
    let options = Options {
        unfinalized_blocks: 8,
        ..tiny_options()
    };
    let disk = FaultyDisk::new(7);
    let db = database(&disk, options);
    let block = |name: u64| {
        let changes = Changes::new(vec![put(path(name % ACCOUNTS), name)]);
        let sealed = seal(db.view().unwrap(), name.to_le_bytes(), changes, vec![]);
        sealed.unwrap().commit().unwrap().id()
    };
    let old: Vec<_> = (1..=30).map(block).collect();
    let tip = old[29];
    let mut nonces = Nonces::of(&db.view().unwrap());
    db.unwind(5).unwrap();
    (1000..1055).for_each(|name| _ = block(name));
    let finalized = db.block_id(50).unwrap();
    db.set_canonical(db.head(), None, finalized).unwrap();
    db.flush(0).unwrap();
    assert!(old[5..].iter().all(|id| !db.has(*id).unwrap()));

    let mut events = db.subscribe(tip);
    let mut counts = [0; 3];
    loop {
        let before = events.cursor();
        if !nonces.take(&mut events, Duration::ZERO) {
            break;
        }
        let after = events.cursor();
        counts[match after.number.cmp(&before.number) {
            Ordering::Less => 0,
            Ordering::Greater => 1,
            Ordering::Equal => 2,
        }] += 1;
    }
    assert_eq!(counts, [25, 55, 1]);
    assert_eq!(events.cursor(), db.head());
    assert_eq!(nonces, Nonces::of(&db.view().unwrap()));
}

/// The error of a subscription's next event.
fn refused(db: &Db, cursor: BlockId) -> String {
    let error = db.subscribe(cursor).try_next().unwrap_err();
    let StateError::CannotFollow { oldest, head, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*head, db.head());
    db.view_at(*oldest).expect("a state to begin again from");
    error.to_string()
}

#[test]
fn a_block_that_is_not_there_is_refused_with_what_to_do() {
    let db = database(&FaultyDisk::new(5), tiny_options());
    write(&db, 1, 50);
    let head = db.head();
    let other = B256::repeat_byte(0xee);
    for number in [0, 1, head.number, head.number + 1, u64::MAX] {
        let error = refused(&db, BlockId::new(number, other));
        assert!(error.contains("it is not in the database"), "{error}");
        assert!(
            error.contains("begin again with the state at a block from 0 to"),
            "{error}"
        );
    }
    // A block that is sealed and not committed is not announced.
    let changes = Changes::new(vec![put(path(1), 1000)]);
    let sealed = seal(db.view().unwrap(), b"sealed", changes, vec![]).unwrap();
    refused(&db, sealed.id());
}

#[test]
fn blocks_that_have_left_the_log_are_missed_and_nothing_else() {
    let options = Options {
        keep_blocks: Some(10),
        files: FileSizes {
            log_file_bytes_max: 8 << 10,
            log_extend_bytes: 4 << 10,
            log_spare_blocks: 0,
            ..TINY_FILES
        },
        ..tiny_options()
    };
    let db = database(&FaultyDisk::new(6), options);
    let mut random = Random::new(1);
    let genesis = db.genesis();
    let mut cursors = vec![genesis];
    for number in 1..=200 {
        commit(&db, random_puts(&mut random, 40, ACCOUNTS, number), vec![]);
        cursors.push(db.head());
        if number % 7 == 0 {
            db.flush(0).unwrap();
        }
    }
    let kept_from = db.stats().unwrap().kept_from;
    assert!(kept_from > 100, "{kept_from}");
    let error = refused(&db, genesis);
    assert!(
        error.contains("blocks that it needs have left the block log"),
        "{error}"
    );
    for cursor in &cursors[kept_from as usize..] {
        let mut events = db.subscribe(*cursor);
        let mut nonces = Nonces::of(&db.view_at(cursor.number).unwrap());
        while nonces.take(&mut events, Duration::ZERO) {}
        assert_eq!(events.cursor(), db.head());
        assert_eq!(nonces, Nonces::of(&db.view().unwrap()));
    }
}
