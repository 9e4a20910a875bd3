//! A copy of a database, made while another process may write to it.

use crate::{
    db::handle::Db,
    log::{access::ReadAccess, log_state::LogState},
    options::Options,
};
use cambium_disk::{Disk, DiskError};
use cambium_primitives::BlockId;
use cambium_snapshot::{StateError, checkpoint::read_meta};
use cambium_store::{BackupOf, BackupSizes, Checkpoint, StoreError, copy_files};
use std::sync::Arc;

/// Another attempt is made so often where a checkpoint is gone before it was copied.
const TRIES: u32 = 5;

/// What a backup is of, and what it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// The copy's newest block.
    pub head: BlockId,
    /// How much of it is shared with the original, and how much was copied.
    pub sizes: BackupSizes,
}

/// Copies the database on the disk `from` to the disk `to`, whose root must be empty or not there,
/// and opens the copy to see that it is at the same block. Another process, or this one, may write to
/// `from` meanwhile: the copy has all blocks that were in the log when it was begun.
///
/// Files that nobody writes to any more (segments, checkpoints and files of the block log that are
/// full) get a second name where both disks are of one file system: that takes no time, and no space until
/// one of the two databases does without them. Such files are the same bytes: damage to one is damage to
/// both. `progress` is told what is done.
///
/// What is damaged or missing in the original, and does not keep it from being opened, is so in the copy;
/// but an index that has to be made again is whole there.
///
/// # Errors
///
/// [`StateError::BadStart`] if `to` is not empty; the files that were copied are removed after any
/// other, as far as they can be. [`StoreError::ReaderBehind`] where copying takes so long that whoever
/// writes is more than [`Options::reader_lag`] checkpoints ahead.
pub fn backup(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    options: Options,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<BackupReport, StateError> {
    if !is_empty(&**to).map_err(StoreError::from)? {
        let what = format!("{} is not empty", to.display_path(""));
        return Err(StateError::BadStart(what));
    }
    to.create_dir("").map_err(StoreError::from)?;
    let mut tries = 0;
    loop {
        tries += 1;
        let done = attempt(from, to, options, progress);
        let Err(error) = done else {
            return done;
        };
        remove_all(&**to);
        let is_gone =
            matches!(&error, StateError::Store(StoreError::Disk(error)) if error.is_not_found());
        if !is_gone {
            return Err(error);
        }
        if tries == TRIES {
            let what = "what is to be copied".to_owned();
            return Err(StoreError::ReaderBehind { what }.into());
        }
    }
}

fn attempt(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    options: Options,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<BackupReport, StateError> {
    let (db, _) = Db::open_read_only(from.clone(), options)?;
    let sequence = db
        .inner
        .journal
        .read_access()
        .map_or(0, ReadAccess::sequence);
    let made_again = &db.inner.store.disk;
    let mut checkpoints = Checkpoint::open(made_again, sequence)?.chain()?;
    let mut log_start = db.inner.journal.kept().position;
    // That to which a damaged one falls back, if it is there still.
    for older in Checkpoint::usable(from)?
        .into_iter()
        .filter(|one| *one < sequence)
    {
        let read = |older: &Checkpoint| {
            Ok((
                older.chain()?,
                read_meta::<LogState>(older)?.log.kept.position,
            ))
        };
        let older = Checkpoint::open(from, older).map_err(StateError::from);
        if let Ok((chain, kept)) = older.and_then(|older| read(&older)) {
            checkpoints.extend(chain);
            log_start = log_start.min(kept);
        }
    }
    checkpoints.sort_unstable();
    checkpoints.dedup();
    let of = BackupOf {
        checkpoints: &checkpoints,
        made_again: &**made_again,
        segments: &db.inner.store.pages.segments,
        log_start,
        log_end: db.inner.journal.log.end(),
    };
    let sizes = copy_files(&**from, &**to, &of, progress)?;
    let (copy, _) = Db::open_read_only(to.clone(), options)?;
    let (head, expected) = (copy.head(), db.head());
    if head != expected {
        return Err(StateError::BadStart(format!(
            "the copy is at block {head}, and the original was at block {expected}"
        )));
    }
    Ok(BackupReport { head, sizes })
}

/// Whether there is no file, but perhaps directories that a backup which failed has left.
fn is_empty(disk: &dyn Disk) -> Result<bool, DiskError> {
    if disk.exists("")? {
        for name in disk.list("")? {
            if !disk.list(&name).is_ok_and(|inside| inside.is_empty()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Removes the files that a backup which failed has left, as far as that can be.
fn remove_all(disk: &dyn Disk) {
    for name in disk.list("").unwrap_or_default() {
        match disk.list(&name) {
            Ok(inside) => {
                for inner in inside {
                    let _ = disk.remove(&format!("{name}/{inner}"));
                }
            }
            Err(_) => _ = disk.remove(&name),
        }
    }
}
