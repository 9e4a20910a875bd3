//! Reading a database that another process may have open.
//!
//! ```text
//!   whoever writes   checkpoint 7 ............ 8 ................ 9
//!                    log  -a--b--c--d--e--f--g--h--i--j--k--l--m--
//!   a reader         opens at 7: a b c d          catches up: opens anew, at 9: l m
//!                       catches up: e f
//! ```
//!
//! A reader is the engine above a disk on which what is written stays in memory. It opens what the
//! newest checkpoint names, and takes what the log has since: so it is at the newest block that was
//! written, and knows of no later one until it catches up. What it has opened stays readable when it
//! is removed. Of what changes in place there is the end of the log, and the block index below a
//! chain that is taken back, which is noticed by its entry for the newest block that a reader has
//! from there.
//!
//! While it opens, files come and go: whatever does not fit together then is opened again.

use crate::log::access::ReadAccess;
use crate::{
    db::{
        handle::Db,
        open::Opener,
        recovery::{Recovery, Unsettled},
        replay::Replay,
    },
    log::block_index::MayRebuild,
    options::Options,
};
use cambium_disk::{Disk, TrialDisk};
use cambium_snapshot::StateError;
use cambium_store::{Checkpoint, StoreError};
use std::{sync::Arc, thread, time::Duration};

/// What looks like damage is read again so often: it may be in the middle of being written.
const TRIES: u32 = 10;
/// So often it is opened again at most since there was a newer checkpoint each time.
const RACES_MAX: u32 = 200;
/// Pause between two of these.
const PAUSE: Duration = Duration::from_millis(20);

/// Whether another attempt may see what belongs together.
fn may_be_half_written(error: &StateError) -> bool {
    match error {
        StateError::Store(StoreError::ReaderBehind { .. }) | StateError::Unfinished => true,
        StateError::CheckpointsLost { .. } => true,
        error => error.is_damage(),
    }
}

impl Db {
    /// Opens the database on `disk` for reading alone, whether or not another process has it open for
    /// writing: at the newest block that is in its log. Nothing on the disk is changed, but for a file
    /// in `readers/` that tells whoever writes that there is a reader, where that can be made; so a
    /// directory that may not be written to can be read, on a disk with
    /// [`read_only`](cambium_disk::StdDiskOptions::read_only).
    ///
    /// A block is seen once it is written, which is a moment before it is durable. What came since the
    /// newest checkpoint is in memory, however much [`Options`] allow; [`StateError::ReadOnly`] is what
    /// comes of sealing a block, committing, moving the head or merging.
    ///
    /// # Errors
    ///
    /// As [`Db::open`], but that another process has it open. [`StateError::TooFar`] while whoever
    /// writes takes the head far below what is in pages, if that is more than the memory here.
    pub fn open_read_only(
        disk: Arc<dyn Disk>,
        options: Options,
    ) -> Result<(Self, Recovery), StateError> {
        options.check()?;
        let (mut tries, mut races) = (1, 0);
        loop {
            let newest = Checkpoint::newest(&*disk)?;
            let is_last = tries >= TRIES;
            let above: Arc<dyn Disk> = Arc::new(TrialDisk::new(disk.clone(), options.memory_bytes));
            let opener = Opener::Reader(disk.clone(), MayRebuild(is_last));
            match Self::open_as(above, options, opener) {
                Err(error) if may_be_half_written(&error) => {
                    // Whoever writes was faster, which tells nothing of what is on the disk.
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

    /// Whether it was opened with [`Db::open_read_only`].
    pub fn is_read_only(&self) -> bool {
        self.inner.journal.is_read_only()
    }

    /// Takes a database that is open for reading alone to the newest block that the process which
    /// writes it has written since. Views stay what they are; other handles are taken along only if
    /// there is no newer checkpoint: a database that is, after all, opened again. One that is open for
    /// writing is at its newest block already.
    ///
    /// # Errors
    ///
    /// As [`Db::open_read_only`]. The database is at the block at which it was then, or at one of
    /// those that were the head since; the next attempt goes on from the disk.
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

    /// Takes what the log has since it was looked at last.
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
        let mut replay = Replay::new(inner, Unsettled::default(), Vec::new());
        replay.run(from)?;
        let recovery = replay.finish()?;
        *is_partial = false;
        Ok(recovery)
    }

    /// An error if something that a reader reads was taken away by whoever writes.
    pub(crate) fn check_not_behind(&self) -> Result<(), StateError> {
        if self.is_read_only() {
            self.inner.journal.blocks.index().check_anchor()?;
            self.inner.store.pages.segments.check_cuts()?;
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
