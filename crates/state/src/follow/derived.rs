//! Keeping files that are made from the block log at the head of their database.
//!
//! ```text
//!   follower thread   catch up with the head, then say from which block on the log is needed
//!   merging thread    merge files as long as any are due, at low priority
//! ```
//!
//! The block log keeps what is not in files: after a crash it is read again.

use crate::db::handle::Db;
use cambium_disk::WritePace;
use cambium_primitives::BlockNumber;
use cambium_runs::{Background, EndSignal};
use cambium_snapshot::pool::lower_priority;
use parking_lot::Mutex;
use std::error::Error;

/// Divisor of the memory budget for the share of one follower.
const FOLLOWER_DIVISOR: u64 = 16;
/// Least and largest memory of a follower, in bytes. With the least, files are small and look-ups have no
/// filters.
const FOLLOWER_BYTES_MIN: u64 = 64 << 10;
const FOLLOWER_BYTES_MAX: u64 = 256 << 20;

/// Memory in bytes for a history, an index or preimages that follow a database, where all together have a
/// budget of `memory_bytes`. It is never 0. The caller subtracts it from the database's memory.
pub fn follower_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / FOLLOWER_DIVISOR).clamp(FOLLOWER_BYTES_MIN, FOLLOWER_BYTES_MAX)
}

/// Counts the followers of one history or index, for which the block log is kept: while there are any, and
/// after one that ended before everything was in files, until another one finishes.
#[derive(Debug, Default)]
pub struct Followers {
    count: usize,
    is_owed: bool,
}

impl Followers {
    fn start(&mut self) {
        self.count += 1;
    }

    /// `is_finished`: everything up to the head is in files.
    fn end(&mut self, is_finished: bool) {
        self.count -= 1;
        self.is_owed = !is_finished;
    }

    const fn need_log(&self) -> bool {
        self.count > 0 || self.is_owed
    }
}

/// Files that are made from the block log of a database, such as a history or an index. Clones are handles of
/// the same files.
pub trait Derived: Clone + Send + 'static {
    /// Error of following or merging.
    type Error: Error + Send + 'static;

    /// Name by which the log is kept: see [`Db::keep_log_above`].
    const LOG_READER: &'static str;
    /// Name in messages.
    const NAME: &'static str;

    /// Returns whether an error is one of the disk, which may pass.
    fn may_pass(error: &Self::Error) -> bool;

    /// Returns the error of a thread that panicked.
    fn panicked() -> Self::Error;

    /// Returns the throttle of writes.
    fn pace(&self) -> &WritePace;

    /// Returns the count of followers.
    fn followers(&self) -> &Mutex<Followers>;

    /// Makes the log keep the blocks that are not in files.
    fn keep_needed_log(&self, db: &Db);

    /// Returns a function that catches up with the head, until its signal ends. It is repeated on a thread of
    /// its own.
    fn step(&self, db: &Db) -> impl FnMut(&EndSignal) -> Result<(), Self::Error> + Send + 'static;

    /// Merges files as long as any are due.
    ///
    /// # Errors
    ///
    /// Errors of the disk, and of damaged files.
    fn merge_due(&self) -> Result<(), Self::Error>;

    /// Catches up with the head, and writes everything to files.
    ///
    /// # Errors
    ///
    /// Errors of the disk and of the database.
    fn finish(&self, db: &Db) -> Result<(), Self::Error>;

    /// Makes the log keep what followers need.
    fn keep_log(&self, db: &Db) {
        let followers = self.followers().lock();
        match followers.need_log() {
            true => self.keep_needed_log(db),
            false => db.keep_log_above(Self::LOG_READER, BlockNumber::MAX),
        }
    }
}

/// Two threads: one adds each new block to the files, and one merges these. Both end when it is dropped. The
/// log keeps what followers need: see [`Followers`].
pub struct DerivedFollower<D: Derived> {
    derived: D,
    db: Db,
    threads: Background<D::Error>,
    is_finished: bool,
}

impl<D: Derived> DerivedFollower<D> {
    /// Starts to follow.
    pub fn start(derived: D, db: Db) -> Self {
        // Syncs of commits wait for all writes that the device has queued before them.
        derived.pace().set_gentle(true);
        derived.followers().lock().start();
        derived.keep_log(&db);
        let mut threads = Background::default();
        {
            let (derived, db, mut step) = (derived.clone(), db.clone(), derived.step(&db));
            threads.repeat(D::NAME, D::may_pass, move |signal| {
                let stepped = step(signal);
                derived.keep_log(&db);
                stepped
            });
        }
        {
            let (derived, mut is_lowered) = (derived.clone(), false);
            threads.repeat(D::NAME, D::may_pass, move |_| {
                if !is_lowered {
                    lower_priority();
                    is_lowered = true;
                }
                derived.merge_due()
            });
        }
        Self {
            derived,
            db,
            threads,
            is_finished: false,
        }
    }

    /// Returns what follows.
    pub const fn derived(&self) -> &D {
        &self.derived
    }

    /// Catches up with the head, writes everything to files, and ends. The log keeps nothing for it any more.
    ///
    /// # Errors
    ///
    /// The first error of following or merging. The log still keeps what the files lack.
    pub fn finish(mut self) -> Result<D, D::Error> {
        self.end()?;
        self.derived.finish(&self.db)?;
        self.is_finished = true;
        Ok(self.derived.clone())
    }

    fn end(&mut self) -> Result<(), D::Error> {
        self.derived.pace().set_gentle(false);
        self.threads.end(D::panicked)
    }
}

impl<D: Derived> Drop for DerivedFollower<D> {
    fn drop(&mut self) {
        _ = self.end();
        self.derived.followers().lock().end(self.is_finished);
        self.derived.keep_log(&self.db);
    }
}
