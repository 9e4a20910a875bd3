//! The end of a round: checks that no resources are held, and that the database opens at the
//! expected head.

use super::{
    driver::{ConcurrentDriver, options},
    shared::{IN_UPDATE, Refused},
};
use cambium_state::{Db, StateError, Stats, StoreError};
use std::{
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

/// Maximum time until unused memory is freed, which happens on another thread.
const MOMENT: Duration = Duration::from_secs(20);

/// Number of segments beyond those in proportion to live data. A merge moves at most as many bytes
/// as it writes in each shard, so dead space in a shard with few changes stays for some time.
const SEGMENTS_SPARE: u64 = 32;
const SEGMENTS_PER_LIVE: u64 = 10;

impl ConcurrentDriver {
    pub(super) fn end_round(&mut self, is_sound: bool, at: &str) {
        let slot = self.watchdog.slot("end of a round");
        slot.doing("settling");
        self.shared.count("rounds", 1);
        self.count_files();
        let db = self.db.take().expect("the database is open");
        let merges = db.counters().merges;
        self.shared.count("merges", merges);
        let is_faulty = self.shared.is_faulty();
        if is_sound && is_faulty {
            // Removes faults that have not occurred yet.
            self.disk.clear_faults();
        }
        let is_sound = is_sound && self.settled(&db, at);
        drop(db);
        slot.doing("opening");
        if !is_sound && (self.disk.is_off() || self.random.percent(50)) {
            self.shared.count("crashes", 1);
            self.disk = self.disk.crash();
        }
        self.disk.clear_faults();
        self.shared.is_faulty.store(false, Ordering::SeqCst);
        let db = self.open(at);
        self.shared.count("opened", 1);
        self.look(&db, at);
        self.db = Some(db);
    }

    /// Waits until no resources are held. Returns false if the engine stops meanwhile.
    fn settled(&mut self, db: &Db, at: &str) -> bool {
        // The first merge frees what only views held, and the next ones free what the two
        // checkpoints held.
        for _ in 0..3 {
            let head = self.writer.head;
            let shared = self.shared.clone();
            let writer = &mut self.writer;
            let done = shared.guarded(IN_UPDATE, || match writer.block(db, head, at) {
                Err(Refused::Memory) | Ok(()) => shared.outcome(db.flush(0), at),
                Err(refused) => Err(refused),
            });
            if done.is_err() {
                assert!(shared.is_faulty(), "{at}: {done:?}");
                return false;
            }
        }
        let stats = self.let_go(db, at);
        let segment_bytes = self.shared.params.files.segment_bytes_max;
        let bound = SEGMENTS_SPARE + SEGMENTS_PER_LIVE * stats.segment_live_bytes / segment_bytes;
        assert!(stats.segments as u64 <= bound, "{at}: {stats:?}");
        self.whole_state(db, at);
        true
    }

    fn let_go(&self, db: &Db, at: &str) -> Stats {
        let start = Instant::now();
        loop {
            let stats = db.stats().unwrap_or_else(|error| panic!("{at}: {error}"));
            if (
                stats.held_snapshots,
                stats.pinned_bytes,
                stats.restored_states,
            ) == (0, 0, 0)
            {
                return stats;
            }
            assert!(start.elapsed() < MOMENT, "{at}: still held: {stats:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Opens the database, after waiting for a merge that still holds the lock.
    fn open(&self, at: &str) -> Db {
        loop {
            match Db::open(Arc::new(self.disk.clone()), options(&self.shared.params)) {
                Err(StateError::Store(StoreError::InUse { .. })) => {
                    thread::sleep(Duration::from_millis(1));
                }
                Ok((db, _)) => return db,
                Err(error) => panic!("{at}: {error}"),
            }
        }
    }

    /// Checks the head and the blocks of a database that was opened.
    fn look(&mut self, db: &Db, at: &str) {
        let (head, writer) = (db.head(), &mut self.writer);
        assert!(
            head.hash == writer.head || writer.pending.contains(&head.hash),
            "{at}: opened at {head}, acknowledged was {}",
            self.shared.known(&writer.head).id
        );
        writer.head = head.hash;
        writer.pending.clear();
        for known in &self.shared.blocks.read().in_order {
            let has = db
                .has(known.id)
                .unwrap_or_else(|error| panic!("{at}: {error}"));
            assert!(
                has || !known.must_be_there(),
                "{at}: acknowledged block {} is gone",
                known.id
            );
            // Not acknowledged but found on opening, so it must stay from now on.
            known.durable.fetch_or(has, Ordering::SeqCst);
        }
        let report = db.check(&mut |_| {});
        let report = report.unwrap_or_else(|error| panic!("{at}: {error}"));
        assert_eq!(report.damage, Vec::<String>::new(), "{at}");
        self.whole_state(db, at);
    }

    /// Compares the whole state at the head.
    fn whole_state(&self, db: &Db, at: &str) {
        let view = db.view().unwrap_or_else(|error| panic!("{at}: {error}"));
        let known = self.shared.known(&view.block().hash);
        assert_eq!(view.state_root(), known.root, "{at}");
        for (path, expected) in known.model.accounts() {
            let got = view.account(path);
            let got = got.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(got, Some(expected.account), "{at}: account {path}");
            let mut slots = expected.slots.iter().map(|(slot, value)| (*slot, *value));
            let visited = view.each_slot(path, |slot, value| {
                assert_eq!(Some((slot, value)), slots.next(), "{at}: slots of {path}");
                ControlFlow::Continue(())
            });
            visited.unwrap_or_else(|error| panic!("{at}: {error}"));
            assert_eq!(slots.next(), None, "{at}: slots of {path}");
        }
    }

    /// Records the highest numbers of files, which are never used again.
    fn count_files(&self) {
        let newest = |dir: &str, end: &str| {
            let files = self.disk.files().into_iter();
            let numbers = files.filter_map(|name| {
                let number = name.strip_prefix(dir)?.strip_suffix(end)?;
                number.parse::<u64>().ok()
            });
            numbers.max().unwrap_or(0)
        };
        let mut done = self.shared.done.lock();
        done.insert("log files", newest("log/", ".log"));
        done.insert("segment files", newest("segments/", ".seg"));
    }
}
