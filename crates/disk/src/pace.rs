//! Background writes that give way to commits.
//!
//! ```text
//!   commit        |--write, sync--|                    |--write, sync--|
//!   background  [piece]            [piece]  [piece]  [piece]            [piece]
//!                  ^ at most one piece is in flight when a commit begins, and none is begun during one
//! ```
//!
//! Pauses between the pieces keep the rate below what the device takes for long: a device with a limit makes all writes
//! wait once it is reached, those of commits too.

use crate::DiskError;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Minimum duration of one piece, which limits the rate of a thread to 128 MiB/s.
const PIECE_TIME: Duration = Duration::from_millis(2);
/// Longest time for which a piece waits for commits. It bounds the wait where commits follow each other
/// without a pause.
const YIELD_MAX: Duration = Duration::from_millis(4);
/// Interval at which a waiting piece looks whether the commit has ended.
const LOOK: Duration = Duration::from_micros(50);

/// Number of commits of this process that are under way. One number for all databases: they may share a device.
static COMMITS: AtomicUsize = AtomicUsize::new(0);
/// Held while a piece of gentle background writes is in flight.
static IN_FLIGHT: Mutex<()> = Mutex::new(());

/// A commit that is under way: background writes that are gentle wait for its end.
#[derive(Debug)]
pub struct CommitUnderWay(());

impl CommitUnderWay {
    /// Begins a commit, which ends when the value is dropped.
    pub fn begin() -> Self {
        COMMITS.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for CommitUnderWay {
    fn drop(&mut self) {
        COMMITS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Throttle for background writes, shared by all threads that write for a merge. While it is gentle, data is
/// written in small pieces with pauses. One piece is in flight in the whole process, and none is begun while a commit is
/// under way.
///
/// A sync of the block log waits for everything the device has queued before it: `docs/DISK.md` has the
/// measurements.
#[derive(Debug, Default)]
pub struct WritePace {
    is_gentle: AtomicBool,
}

impl WritePace {
    /// Size of one throttled write in bytes.
    pub const PIECE_BYTES: usize = 256 << 10;

    /// A pace that is gentle from the beginning.
    pub const fn gentle() -> Self {
        Self {
            is_gentle: AtomicBool::new(true),
        }
    }

    /// Turns throttling on or off. It is off initially.
    pub fn set_gentle(&self, is_gentle: bool) {
        self.is_gentle.store(is_gentle, Ordering::Relaxed);
    }

    /// Returns whether throttling is on.
    pub fn is_gentle(&self) -> bool {
        self.is_gentle.load(Ordering::Relaxed)
    }

    /// Runs the write of one piece, of about 256 KiB. If throttling is on, it waits for other pieces and for
    /// commits first, and pauses after it.
    ///
    /// # Errors
    ///
    /// That of the write.
    pub fn write(&self, piece: impl FnOnce() -> Result<(), DiskError>) -> Result<(), DiskError> {
        if !self.is_gentle() {
            return piece();
        }
        let start = Instant::now();
        self.write_when_idle(piece)?;
        thread::sleep(PIECE_TIME.saturating_sub(start.elapsed()));
        Ok(())
    }

    fn write_when_idle(
        &self,
        piece: impl FnOnce() -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        let _one = IN_FLIGHT.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        while COMMITS.load(Ordering::Acquire) > 0 && self.is_gentle() && start.elapsed() < YIELD_MAX
        {
            thread::sleep(LOOK);
        }
        piece()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_of_a_piece(pace: &WritePace) -> Duration {
        let start = Instant::now();
        pace.write(|| Ok(())).unwrap();
        start.elapsed()
    }

    #[test]
    fn a_gentle_piece_waits_for_a_commit_and_not_for_ever() {
        let pace = WritePace::gentle();
        let commit = CommitUnderWay::begin();
        assert!(time_of_a_piece(&pace) >= YIELD_MAX);
        pace.set_gentle(false);
        assert!(
            (0..10).any(|_| time_of_a_piece(&pace) < YIELD_MAX),
            "a piece at full speed waits for no commit"
        );
        drop(commit);
        pace.set_gentle(true);
        // Other tests of this program may commit meanwhile, but not always.
        assert!((0..50).any(|_| time_of_a_piece(&pace) < YIELD_MAX));
    }

    #[test]
    fn pieces_of_several_threads_are_written_one_at_a_time() {
        let in_flight = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let pace = WritePace::gentle();
                    for _ in 0..20 {
                        pace.write(|| {
                            assert_eq!(in_flight.fetch_add(1, Ordering::SeqCst), 0);
                            thread::sleep(LOOK);
                            in_flight.fetch_sub(1, Ordering::SeqCst);
                            Ok(())
                        })
                        .unwrap();
                    }
                });
            }
        });
    }
}
