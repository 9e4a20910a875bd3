//! Threads that keep an index at the head of its database.

use crate::{ChainIndex, IndexError};
use cambium_state::{Background, Db, lower_priority};

/// A thread that adds each new block to an index, and one that merges its runs. Both end when it is dropped.
/// The block log keeps what is not in the index's files yet: as long as the follower is there, and, if it did
/// not [`finish`](Self::finish), as long as the database is open, or until another follower of the same index
/// has finished.
///
/// An error of the disk is reported, and what failed is tried again after a while. If the index can't
/// follow any more, that is reported, and the log keeps what it needs to go on when it is opened again.
pub struct IndexFollower {
    index: ChainIndex,
    db: Db,
    threads: Background<IndexError>,
    is_finished: bool,
}

impl IndexFollower {
    /// Starts to follow.
    pub fn start(index: ChainIndex, db: Db) -> Self {
        // The syncs of commits wait for whatever the device was given before them.
        index.pace().set_gentle(true);
        index.start_follower(&db);
        let mut threads = Background::default();
        {
            let (index, db) = (index.clone(), db.clone());
            threads.repeat("the index", IndexError::is_of_disk, move |signal| {
                let mut progress = |_: &_| !signal.is_over();
                let caught_up = index.catch_up(&db, None, &mut progress);
                index.keep_log(&db);
                caught_up.map(|_| ())
            });
        }
        {
            let (index, mut is_lowered) = (index.clone(), false);
            threads.repeat("the index", IndexError::is_of_disk, move |_| {
                if !is_lowered {
                    lower_priority();
                    is_lowered = true;
                }
                index.merge()
            });
        }
        Self {
            index,
            db,
            threads,
            is_finished: false,
        }
    }

    /// The index that follows.
    pub const fn index(&self) -> &ChainIndex {
        &self.index
    }

    /// Catches up with the head, writes what is in memory to files, and ends. The block log keeps nothing
    /// for the index any more.
    ///
    /// # Errors
    ///
    /// The first error of following or merging. The index is as far as it got, and the log still keeps what
    /// it needs to go on.
    pub fn finish(mut self) -> Result<ChainIndex, IndexError> {
        self.end()?;
        self.index.catch_up(&self.db, None, &mut |_| true)?;
        self.index.flush()?;
        self.is_finished = true;
        Ok(self.index.clone())
    }

    fn end(&mut self) -> Result<(), IndexError> {
        self.index.pace().set_gentle(false);
        self.threads.end(|| IndexError::Poisoned {
            cause: "a panic".to_owned(),
        })
    }
}

impl Drop for IndexFollower {
    fn drop(&mut self) {
        _ = self.end();
        self.index.end_follower(&self.db, self.is_finished);
    }
}
