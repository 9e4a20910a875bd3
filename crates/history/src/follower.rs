//! A thread that keeps a history at the head of its database.

use crate::{History, HistoryError};
use cambium_state::{Background, Db, lower_priority};

/// A thread that adds each new block to a history, and one that merges its files. Both end when it
/// is dropped. The block log keeps what is not in the history's files yet: as long as the follower is there,
/// and, if it did not [`finish`](Self::finish), as long as the database is open, or until another follower of
/// the same history has finished.
///
/// An error of the disk is reported, and what failed is tried again after a while. If the history can't
/// follow any more, that is reported, and the log keeps what it needs to go on when it is opened again.
pub struct Follower {
    history: History,
    db: Db,
    threads: Background<HistoryError>,
    is_finished: bool,
}

impl Follower {
    /// Starts to follow.
    pub fn start(history: History, db: Db) -> Self {
        // The syncs of commits wait for whatever the device was given before them.
        history.pace().set_gentle(true);
        history.start_follower(&db);
        let mut threads = Background::default();
        {
            let (history, db, mut held) = (history.clone(), db.clone(), None);
            threads.repeat("the history", HistoryError::is_of_disk, move |signal| {
                let caught_up = history.follow(&db, &mut |_| !signal.is_over());
                history.keep_log(&db);
                caught_up?;
                history.hold_present(&db, &mut held)
            });
        }
        {
            let (history, mut is_lowered) = (history.clone(), false);
            threads.repeat("the history", HistoryError::is_of_disk, move |_| {
                if !is_lowered {
                    lower_priority();
                    is_lowered = true;
                }
                history.merge()
            });
        }
        Self {
            history,
            db,
            threads,
            is_finished: false,
        }
    }

    /// The history that follows.
    pub const fn history(&self) -> &History {
        &self.history
    }

    /// Catches up with the head, writes what is in memory to a file, and ends. The block log keeps
    /// nothing for the history any more.
    ///
    /// # Errors
    ///
    /// The first error of following or merging. The history is as far as it got, and the log still keeps
    /// what it needs to go on.
    pub fn finish(mut self) -> Result<History, HistoryError> {
        self.end()?;
        self.history.catch_up(&self.db, &mut |_| true)?;
        self.history.flush()?;
        self.is_finished = true;
        Ok(self.history.clone())
    }

    fn end(&mut self) -> Result<(), HistoryError> {
        self.history.pace().set_gentle(false);
        self.threads.end(|| HistoryError::Poisoned {
            cause: "a panic".to_owned(),
        })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.end();
        self.history.end_follower(&self.db, self.is_finished);
    }
}
