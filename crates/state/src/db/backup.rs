//! Backups: copying a database while another process may write to it.

use crate::{
    db::handle::Db,
    log::{access::ReadAccess, log_state::LogState},
    options::Options,
};
use cambium_disk::{Disk, DiskError};
use cambium_primitives::BlockId;
use cambium_snapshot::{StateError, checkpoint::read_meta};
use cambium_store::{BackupSizes, BackupSource, Checkpoint, StoreError, copy_files};
use std::sync::Arc;

/// Attempts to copy, if a checkpoint is removed before it was copied.
const TRIES: u32 = 5;

/// The result of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// The copy's newest block.
    pub head: BlockId,
    /// Bytes that are shared with the original, and bytes that were copied.
    pub sizes: BackupSizes,
}

/// Copies the database on the disk `from` to the disk `to`, and opens the copy to verify that it is
/// at the same block. The root directory of `to` must be empty or missing. This process or another
/// one may write to `from` meanwhile: the copy has all blocks that were in the log at the
/// beginning.
///
/// Files that nobody writes to any more (segments, checkpoints and full files of the block log) are
/// linked if both disks are in one file system. That takes no time, and no space until one of the
/// two databases removes the file. A linked file is one file: damage to it damages both databases.
/// `progress` is called as files are copied.
///
/// Damage to the original that does not prevent opening it is copied as it is, except for an index
/// that has to be rebuilt, which is whole in the copy.
///
/// # Errors
///
/// [`StateError::BadStart`] if `to` is not empty. After any other error the copied files are
/// removed, as far as possible. [`StoreError::ReaderBehind`] if the writer gets more than
/// [`Options::reader_lag`] checkpoints ahead of the copy.
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

/// Copies the database once, and verifies the copy.
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
    let rebuilt = &db.inner.store.disk;
    let mut checkpoints = Checkpoint::open(rebuilt, sequence)?.chain()?;
    let mut log_start = db.inner.journal.kept().position;
    // The copy falls back to the older checkpoint if the newest is damaged.
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
    let values = &db.inner.store.values;
    let of = BackupSource {
        checkpoints: &checkpoints,
        rebuilt: &**rebuilt,
        segments: &db.inner.store.pages.segments,
        values: values.as_ref().map(|values| &values.segments),
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

/// Whether `disk` has no file. Empty directories may be left of a backup that failed.
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

/// Removes the files of a backup that failed, as far as possible.
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
