//! An index that is kept at the head of its database.

use crate::{ChainIndex, IndexError};
use cambium_disk::WritePace;
use cambium_state::{Db, Derived, DerivedFollower, EndSignal, Followers};
use parking_lot::Mutex;

/// A thread that adds each new block to an index, and one that merges its runs. Both end when it is dropped.
/// The block log keeps what is not in the index's files yet: as long as the follower is there, and, if it did not
/// [`finish`](Self::finish), as long as the database is open, or until another follower of the same index has
/// finished.
///
/// An error of the disk is reported, and what failed is tried again after a while. If the index can't
/// follow any more, that is reported, and the log keeps what it needs to go on when it is opened again.
pub struct IndexFollower(DerivedFollower<ChainIndex>);

impl IndexFollower {
    /// Starts to follow.
    pub fn start(index: ChainIndex, db: Db) -> Self {
        Self(DerivedFollower::start(index, db))
    }

    /// The index that follows.
    pub const fn index(&self) -> &ChainIndex {
        self.0.derived()
    }

    /// Catches up with the head, writes what is in memory to files, and ends. The block log keeps nothing
    /// for the index any more.
    ///
    /// # Errors
    ///
    /// The first error of following or merging. The index keeps the blocks that it has reached, and the log still keeps
    /// those that it needs to continue.
    pub fn finish(self) -> Result<ChainIndex, IndexError> {
        self.0.finish()
    }
}

impl Derived for ChainIndex {
    type Error = IndexError;

    const LOG_READER: &'static str = "index";
    const NAME: &'static str = "the index";

    fn may_pass(error: &IndexError) -> bool {
        error.is_of_disk()
    }

    fn panicked() -> IndexError {
        IndexError::Poisoned {
            cause: "a panic".to_owned(),
        }
    }

    fn pace(&self) -> &WritePace {
        &self.keeper.pace
    }

    fn followers(&self) -> &Mutex<Followers> {
        &self.keeper.followers
    }

    fn keep_needed_log(&self, db: &Db) {
        let durable = self.durable().map_or(0, |durable| durable.number);
        db.keep_log_above(Self::LOG_READER, durable);
    }

    fn step(&self, db: &Db) -> impl FnMut(&EndSignal) -> Result<(), IndexError> + Send + 'static {
        let (index, db) = (self.clone(), db.clone());
        move |signal| {
            let mut progress = |_: &_| !signal.is_over();
            index.catch_up(&db, None, &mut progress).map(drop)
        }
    }

    fn merge_due(&self) -> Result<(), IndexError> {
        self.merge()
    }

    fn finish(&self, db: &Db) -> Result<(), IndexError> {
        self.catch_up(db, None, &mut |_| true)?;
        self.flush()
    }
}
