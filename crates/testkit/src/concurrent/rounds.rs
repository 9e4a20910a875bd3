//! A round: runs all threads while faults are injected.

use super::{
    driver::ConcurrentDriver,
    reader::Reader,
    shared::{IN_UPDATE, Refused, RoundFaults, Shared},
};
use crate::Random;
use cambium_state::{Db, Fault, FaultyDisk};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// Average number of the writer's steps between injected faults.
const STEPS_PER_FAULT: u64 = 25;

impl ConcurrentDriver {
    /// Runs `rounds` rounds. Each runs all threads, then closes and opens the database.
    ///
    /// # Panics
    ///
    /// Panics if the engine differs from the model.
    pub fn run(&mut self, rounds: u64) {
        for round in 0..rounds {
            let at = format!("seed {} round {round}", self.shared.params.seed);
            let is_sound = self.round(&at);
            self.end_round(is_sound, &at);
        }
    }

    /// Runs all threads for a round. Returns whether the engine still works afterwards.
    fn round(&mut self, at: &str) -> bool {
        let db = self.db.take().expect("the database is open");
        let shared = &self.shared;
        shared.is_over.store(false, Ordering::SeqCst);
        let steps = shared.params.steps;
        let (disk, random, writer) = (&self.disk, &mut self.random, &mut self.writer);
        let is_sound = thread::scope(|scope| {
            let _over = Over(&shared.is_over);
            for reader in 0..shared.params.readers {
                let mut reader = Reader::new(
                    shared.clone(),
                    db.clone(),
                    Random::new(random.next()),
                    self.watchdog.slot(&format!("reader {reader}")),
                    at,
                );
                scope.spawn(move || {
                    let _over = Over(&shared.is_over);
                    reader.run();
                });
            }
            let keeper = (db.clone(), Random::new(random.next()));
            let slot = self.watchdog.slot("keeper");
            scope.spawn(move || {
                let _over = Over(&shared.is_over);
                let (db, mut random) = keeper;
                while !shared.is_over.load(Ordering::SeqCst) {
                    slot.doing("keeping");
                    let _ = shared.guarded("panics in the keeper", || {
                        keep(shared, &db, &mut random, at)
                    });
                    slot.idle();
                    thread::sleep(Duration::from_micros(random.below(8000)));
                }
            });
            let slot = self.watchdog.slot("writer");
            let mut is_sound = true;
            for step in 0..steps {
                if shared.is_over.load(Ordering::SeqCst) {
                    break;
                }
                if random.below(STEPS_PER_FAULT) == 0 {
                    ask_for_fault(shared, disk, random);
                }
                slot.doing("writing");
                let at = format!("{at} step {step}");
                let done = shared.guarded(IN_UPDATE, || writer.step(&db, &at));
                if done == Err(Refused::Fault) && !writer.goes_on(&db, &at) {
                    is_sound = false;
                    writer.nothing_is_committed(&db, &at);
                    break;
                }
                slot.idle();
            }
            if !is_sound {
                // Readers get errors from an engine that has stopped.
                thread::sleep(Duration::from_millis(random.below(30)));
            }
            is_sound
        });
        self.db = Some(db);
        is_sound
    }
}

/// Ends the round when a thread ends, also by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs one of the operations of an operator: merge, check, statistics.
fn keep(shared: &Shared, db: &Db, random: &mut Random, at: &str) -> Result<(), Refused> {
    match random.below(100) {
        0..60 => {
            shared.count("flushes", 1);
            let keep = random.below(5) as usize;
            shared.outcome(db.flush(keep), at)
        }
        60..95 => {
            let stats = shared.outcome(db.stats(), at)?;
            let known = shared.known(&stats.snapshot.hash);
            assert_eq!(known.id, stats.snapshot, "{at}");
            assert!(stats.segment_live_bytes <= stats.segment_bytes, "{at}");
            Ok(())
        }
        _ => {
            shared.count("checks", 1);
            let report = shared.outcome(db.check(&mut |_| {}), at)?;
            if !shared.is_faulty() {
                assert!(report.damage.is_empty(), "{at}: {:?}", report.damage);
            }
            Ok(())
        }
    }
}

/// Files into which faults are injected.
const FILES: [&str; 5] = [
    "log/",
    "segments/",
    "checkpoint-",
    "blocks.idx",
    "codes.dat",
];

fn ask_for_fault(shared: &Shared, disk: &FaultyDisk, random: &mut Random) {
    if shared.params.faults == RoundFaults::None {
        return;
    }
    shared.is_faulty.store(true, Ordering::SeqCst);
    let file = FILES[random.below(FILES.len() as u64) as usize];
    let count = random.below(4) as u32 + 1;
    match (shared.params.faults, random.below(8)) {
        (RoundFaults::None, _) => {}
        (RoundFaults::Reads, 0..2) => disk.inject(Fault::FailedOpen, file, count),
        (RoundFaults::Reads, 2..5) => disk.inject(Fault::FailedRead, file, count),
        (RoundFaults::Reads, _) => disk.inject(Fault::FailedRead, "", count),
        (RoundFaults::Failures, 0..3) => disk.lose_power_after(random.below(100)),
        (RoundFaults::Failures, 3) => disk.inject(Fault::FailedSync, file, 1),
        (RoundFaults::Failures, 4) => disk.inject(Fault::FailedWrite, file, 1),
        (RoundFaults::Failures, 5) => disk.fill_after(random.below(200)),
        (RoundFaults::Failures, _) => disk.fail_call_after(random.below(400)),
        (RoundFaults::Panics, 0..3) => disk.panic_call_after(random.below(400)),
        (RoundFaults::Panics, _) => disk.panic_operation_after(random.below(100)),
    }
}
