//! Readers: opening a database that another process may have open for writing.
//!
//! ```text
//!   the writer   checkpoint 7 ............ 8 ................ 9
//!                log  -a--b--c--d--e--f--g--h--i--j--k--l--m--
//!   a reader     opens at 7: a b c d          catches up: opens again, at 9: l m
//!                   catches up: e f
//! ```
//!
//! A reader is the engine above a disk that keeps its writes in memory. It opens the newest
//! checkpoint and replays the log, so it is at the newest block that was written, and learns of
//! later ones when it catches up. Files that it has opened stay readable after their removal. Two
//! things change in place: the end of the log, and the block index below a chain that is unwound. A
//! reader notices the latter by the entry for the newest block that it takes from the index.
//!
//! Files appear and disappear while a reader opens the database. If they do not fit together, it
//! opens the database again.

use crate::log::access::ReadAccess;
use crate::{
    db::{handle::Db, open::Opener, recovery::Recovery, replay::Replay},
    log::block_index::MayRebuild,
    options::Options,
};
use cambium_disk::{Disk, TrialDisk};
use cambium_snapshot::StateError;
use cambium_store::{Checkpoint, StoreError};
use std::{sync::Arc, thread, time::Duration};

/// Attempts to open what looks like damage, since it may be in the middle of being written.
const TRIES: u32 = 10;
/// Most attempts that fail because the writer finished another checkpoint meanwhile.
const RACES_MAX: u32 = 200;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// Whether another attempt may find files that fit together.
fn may_be_half_written(error: &StateError) -> bool {
    match error {
        StateError::Store(StoreError::ReaderBehind { .. }) | StateError::Unfinished => true,
        StateError::CheckpointsLost { .. } => true,
        error => error.is_damage(),
    }
}

impl Db {
    /// Opens the database on `disk` for reading alone, at the newest block in its log, whether or
    /// not another process has it open for writing. Nothing on the disk changes, except that a file
    /// in `readers/` announces the reader to the writer. If that file can't be created, the reader
    /// does without it; so a directory without write permission can be read, on a disk with
    /// [`read_only`](cambium_disk::StdDiskOptions::read_only).
    ///
    /// A block is visible once it is written, which is a moment before it is durable. Everything
    /// since the newest checkpoint is held in memory, regardless of [`Options::memory_bytes`].
    /// Sealing or committing a block, moving the head and merging fail with
    /// [`StateError::ReadOnly`].
    ///
    /// # Errors
    ///
    /// The errors of [`Db::open`], except for another process that has the database open.
    /// [`StateError::TooFar`] while the writer moves the head so far below the newest pages that
    /// the changes between exceed the reader's memory.
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        options: Options,
    ) -> Result<(Self, Recovery), StateError> {
        options.check()?;
        Self::check_exists(&*disk)?;
        Self::open_copy(disk, options)
    }

    /// As [`Db::open_read_only`], also for a copy that is not finished.
    pub(crate) fn open_copy(
        disk: Arc<dyn Disk>,
        options: Options,
    ) -> Result<(Self, Recovery), StateError> {
        let (mut tries, mut races) = (1, 0);
        loop {
            let newest = Checkpoint::newest(&*disk)?;
            let is_last = tries >= TRIES;
            let above: Arc<dyn Disk> = Arc::new(TrialDisk::new(disk.clone(), options.memory_bytes));
            let opener = Opener::Reader(disk.clone(), MayRebuild(is_last));
            match Self::open_as(above, options, opener) {
                Err(error) if may_be_half_written(&error) => {
                    // The writer was faster, which proves no damage.
                    let was_race = Checkpoint::newest(&*disk)? != newest;
                    match was_race && races < RACES_MAX {
                        true => races += 1,
                        false if is_last => return Err(error),
                        false => tries += 1,
                    }
                    thread::sleep(PAUSE);
                }
                opened => return opened,
            }
        }
    }

    /// Whether the database was opened with [`Db::open_read_only`].
    pub fn is_read_only(&self) -> bool {
        self.inner.journal.is_read_only()
    }

    /// Moves a reader to the newest block that the writer has written. Existing views don't change.
    /// If there is a newer checkpoint, the database is opened again and other handles stay behind;
    /// otherwise they move too. A database that is open for writing is at its newest block already.
    ///
    /// # Errors
    ///
    /// The errors of [`Db::open_read_only`]. After an error the database is where it was, or at a
    /// later head; the next attempt starts from the disk.
    pub fn catch_up(&mut self) -> Result<Recovery, StateError> {
        let Some(reading) = self.inner.journal.read_access() else {
            return Ok(Recovery::default());
        };
        if Checkpoint::newest(&**reading.disk())? == Some(reading.sequence()) {
            match self.follow_log(reading) {
                Err(error) if may_be_half_written(&error) => {}
                done => return done,
            }
        }
        let (db, recovery) = Self::open_read_only(reading.disk().clone(), self.inner.options)?;
        *self = db;
        Ok(recovery)
    }

    /// Replays the records that the log has gained since the last look.
    fn follow_log(&self, reading: &ReadAccess) -> Result<Recovery, StateError> {
        let inner = &self.inner;
        let mut is_partial = reading.is_partial.lock();
        if std::mem::replace(&mut *is_partial, true) {
            let what = "a part of the log that could not be read".to_owned();
            return Err(StoreError::ReaderBehind { what }.into());
        }
        let from = inner.journal.log.end();
        let mut tries = 0;
        loop {
            tries += 1;
            match inner.journal.log.refresh() {
                Err(error) if tries < TRIES && error.is_corruption() => thread::sleep(PAUSE),
                Err(error) => return Err(error.into()),
                Ok(_) => break,
            }
        }
        if let Some(values) = &inner.store.values {
            // The records refer to values that were there before.
            values.segments.refresh()?;
        }
        let mut replay = Replay::going_on(inner);
        replay.run(from)?;
        let recovery = replay.finish()?;
        *is_partial = false;
        Ok(recovery)
    }

    /// Fails with [`StoreError::ReaderBehind`] if the writer has removed something that this reader
    /// reads.
    pub(crate) fn check_not_behind(&self) -> Result<(), StateError> {
        if self.is_read_only() {
            self.inner.journal.blocks.index().check_anchor()?;
            self.inner.store.pages.segments.check_truncation()?;
            if let Some(values) = &self.inner.store.values {
                values.segments.check_truncation()?;
            }
            if self
                .inner
                .journal
                .was_removed(self.inner.journal.log.start())?
            {
                let what = "a file of the block log".to_owned();
                return Err(StoreError::ReaderBehind { what }.into());
            }
        }
        Ok(())
    }
}
