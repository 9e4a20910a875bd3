//! A history that is kept at the head of its database.

use crate::{
    History, HistoryError,
    keeper::{WAYPOINT_DISTANCE, canonical_ancestor},
};
use cambium_disk::WritePace;
use cambium_primitives::BlockId;
use cambium_state::{Db, Derived, DerivedFollower, EndSignal, Followers};
use parking_lot::Mutex;

/// A thread that adds each new block to a history, and one that merges its files. Both end when it is dropped.
/// The block log keeps what is not in the history's files yet: as long as the follower is there, and, if it did not
/// [`finish`](Self::finish), as long as the database is open, or until another follower of the same history has
/// finished.
///
/// An error of the disk is reported, and what failed is tried again after a while. If the history can't
/// follow any more, that is reported, and the log keeps what it needs to go on when it is opened again.
pub struct HistoryFollower(DerivedFollower<History>);

impl HistoryFollower {
    /// Starts to follow.
    pub fn start(history: History, db: Db) -> Self {
        Self(DerivedFollower::start(history, db))
    }

    /// The history that follows.
    pub const fn history(&self) -> &History {
        self.0.derived()
    }

    /// Catches up with the head, writes what is in memory to a file, and ends. The block log keeps
    /// nothing for the history any more.
    ///
    /// # Errors
    ///
    /// The first error of following or merging. The history keeps the blocks that it has reached, and the log still
    /// keeps those that it needs to continue.
    pub fn finish(self) -> Result<History, HistoryError> {
        self.0.finish()
    }
}

impl Derived for History {
    type Error = HistoryError;

    const LOG_READER: &'static str = "history";
    const NAME: &'static str = "the history";

    fn may_pass(error: &HistoryError) -> bool {
        error.is_of_disk()
    }

    fn panicked() -> HistoryError {
        HistoryError::Poisoned {
            cause: "a panic".to_owned(),
        }
    }

    fn pace(&self) -> &WritePace {
        &self.inner.pace
    }

    fn followers(&self) -> &Mutex<Followers> {
        &self.inner.followers
    }

    fn keep_needed_log(&self, db: &Db) {
        let durable = self.durable();
        // From here on the database itself keeps more when the chain leaves that block.
        db.keep_log_above(Self::LOG_READER, durable.number);
        if db
            .block_id(durable.number)
            .is_ok_and(|id| id != Some(durable))
        {
            let fork = canonical_ancestor(db, durable).ok().flatten();
            let first = self.blocks().0.number;
            let known = |fork: BlockId| fork.number.saturating_sub(WAYPOINT_DISTANCE);
            db.keep_log_above(Self::LOG_READER, fork.map_or(first, known));
        }
    }

    fn step(&self, db: &Db) -> impl FnMut(&EndSignal) -> Result<(), HistoryError> + Send + 'static {
        let (history, db, mut held) = (self.clone(), db.clone(), None);
        move |signal| {
            history.follow(&db, &mut |_| !signal.is_over())?;
            history.hold_present(&db, &mut held)
        }
    }

    fn merge_due(&self) -> Result<(), HistoryError> {
        self.merge()
    }

    fn finish(&self, db: &Db) -> Result<(), HistoryError> {
        self.catch_up(db, &mut |_| true)?;
        self.flush()
    }
}
