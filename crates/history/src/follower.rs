//! A thread that keeps a history at the head of its database.

use crate::{History, HistoryError};
use cambium_state::{Db, lower_priority};
use parking_lot::{Condvar, Mutex};
use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two looks at the head.
const INTERVAL: Duration = Duration::from_millis(20);
/// Pause after an error of the disk. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Signal {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn is_over(&self) -> bool {
        *self.is_over.lock()
    }

    /// Waits for the end, for some time at most. Returns whether it has come.
    fn wait(&self, time: Duration) -> bool {
        let mut is_over = self.is_over.lock();
        if !*is_over {
            self.changed.wait_for(&mut is_over, time);
        }
        *is_over
    }

    /// Repeats a step until the end. After an error of the disk it waits longer.
    fn repeat(
        &self,
        mut step: impl FnMut() -> Result<(), HistoryError>,
    ) -> Result<(), HistoryError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let is_over = match step() {
                Ok(()) => {
                    pause = FIRST_PAUSE;
                    self.wait(INTERVAL)
                }
                Err(error) if error.is_of_disk() => {
                    tracing::warn!(%error, ?pause, "the history tries again after a pause");
                    let is_over = self.wait(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    is_over
                }
                Err(error) => {
                    tracing::error!(%error, "the history does not follow the chain any more");
                    return Err(error);
                }
            };
            if is_over {
                return Ok(());
            }
        }
    }

    fn end(&self) {
        *self.is_over.lock() = true;
        self.changed.notify_all();
    }
}

/// A thread that adds each new block to a history, and one that merges its files. Both end when it
/// is dropped. The block log keeps what is not in the history's files yet.
///
/// An error of the disk is reported, and what failed is tried again after a while. If the history can't
/// follow any more, that is reported, and the log keeps what it needs to go on when it is opened again:
/// as long as the follower is there.
pub struct Follower {
    history: History,
    db: Db,
    signal: Arc<Signal>,
    threads: Vec<JoinHandle<Result<(), HistoryError>>>,
}

impl Follower {
    /// Starts to follow.
    pub fn start(history: History, db: Db) -> Self {
        let signal = Arc::<Signal>::default();
        // The syncs of commits wait for whatever the device was given before them.
        history.pace().set_gentle(true);
        history.add_follower(&db);
        let following = {
            let (history, db, signal) = (history.clone(), db.clone(), signal.clone());
            thread::spawn(move || {
                let mut held = None;
                signal.repeat(|| {
                    let caught_up = history.follow(&db, &mut |_| !signal.is_over());
                    history.keep_log(&db);
                    caught_up?;
                    history.hold_present(&db, &mut held)
                })
            })
        };
        let merging = {
            let (history, signal) = (history.clone(), signal.clone());
            thread::spawn(move || {
                lower_priority();
                signal.repeat(|| history.merge())
            })
        };
        Self {
            history,
            db,
            signal,
            threads: vec![following, merging],
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
    /// The first error of following or merging. The history is as far as it got.
    pub fn finish(mut self) -> Result<History, HistoryError> {
        self.end()?;
        self.history.catch_up(&self.db, &mut |_| true)?;
        self.history.flush()?;
        Ok(self.history.clone())
    }

    fn end(&mut self) -> Result<(), HistoryError> {
        self.signal.end();
        self.history.pace().set_gentle(false);
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| {
                Err(HistoryError::Poisoned {
                    cause: "a panic".to_owned(),
                })
            });
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.end();
        self.history.remove_follower(&self.db);
    }
}
