//! Backups: copying a database while another process may write to it.

use crate::{
    db::{handle::Db, unfinished},
    log::{access::ReadAccess, log_state::LogState},
    options::Options,
};
use cambium_disk::{BackupSizes, Disk, DiskError};
use cambium_primitives::BlockId;
use cambium_snapshot::{StateError, checkpoint::read_meta};
use cambium_store::{BackupSource, Checkpoint, StoreError, copy_files};
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
/// Files that are no longer written to (segments, checkpoints and full files of the block log) are linked if both disks
/// are in one file system. That takes no time, and no space until one of the two databases removes the file. A linked
/// file is one file: damage to it damages both databases.
/// `progress` is called as files are copied.
///
/// Damage to the original that does not prevent opening it is copied as it is, except for an index
/// that has to be rebuilt, which is whole in the copy.
///
/// # Errors
///
/// [`StateError::BadStart`] if `to` is not empty, or [`StateError::UnfinishedBackup`] if that is a copy whose backup
/// was interrupted, which can't be opened. After any other error the copied files are removed if possible.
/// [`StoreError::ReaderBehind`] if the writer gets more than [`Options::reader_lag`] checkpoints ahead of the copy.
pub fn backup(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    options: Options,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<BackupReport, StateError> {
    backup_with(from, to, options, &mut DatabaseAlone, progress)
}

/// Files beside a database that a backup copies with it, and of which the database knows nothing.
pub trait BackupPart {
    /// Error of copying them.
    type Error: From<StateError>;

    /// Holds the files: a file that is opened or linked here can't be removed before it is copied. `db` is the original
    /// at the block that is going to be the copy's newest. May be called again, if the database has to be copied again;
    /// the files of the attempt before are then removed.
    ///
    /// # Errors
    ///
    /// Any error ends the backup.
    fn begin(&mut self, db: &Db) -> Result<(), Self::Error>;

    /// Copies them, after the database. `db` is a reader of the original that may catch up, and `copy` the
    /// copy. Adds their sizes.
    ///
    /// # Errors
    ///
    /// Any error ends the backup, and what was copied is removed.
    fn finish(
        &mut self,
        db: Db,
        copy: &Db,
        progress: &mut dyn FnMut(&BackupSizes),
    ) -> Result<(), Self::Error>;
}

/// No other files.
struct DatabaseAlone;

impl BackupPart for DatabaseAlone {
    type Error = StateError;

    fn begin(&mut self, _db: &Db) -> Result<(), StateError> {
        Ok(())
    }

    fn finish(
        &mut self,
        _db: Db,
        _copy: &Db,
        _progress: &mut dyn FnMut(&BackupSizes),
    ) -> Result<(), StateError> {
        Ok(())
    }
}

/// Copies a database as [`backup`] does, and other files with it.
///
/// # Errors
///
/// As [`backup`], and the errors of `part`.
pub fn backup_with<P: BackupPart>(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    options: Options,
    part: &mut P,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<BackupReport, P::Error> {
    unfinished::refuse(&**to)?;
    create_empty(&**to)?;
    let mut tries = 0;
    let (db, copy, report) = loop {
        tries += 1;
        match attempt(from, to, options, part, progress) {
            Ok(Attempt::Copied(copied)) => break *copied,
            Ok(Attempt::Gone) => {
                remove_all(&**to);
                if tries == TRIES {
                    let what = "what is to be copied".to_owned();
                    return Err(StateError::from(StoreError::ReaderBehind { what }).into());
                }
            }
            Err(error) => {
                remove_all(&**to);
                return Err(error);
            }
        }
    };
    part.finish(db, &copy, &mut |more| progress(&(report.sizes + *more)))
        .and_then(|()| Ok(unfinished::unmark(&**to)?))
        .inspect_err(|_| remove_all(&**to))?;
    Ok(report)
}

/// Creates the root directory, or finds it empty.
fn create_empty(disk: &dyn Disk) -> Result<(), StateError> {
    if !is_empty(disk).map_err(StoreError::from)? {
        let what = format!("{} is not empty", disk.display_path(""));
        return Err(StateError::BadStart(what));
    }
    Ok(disk.create_dir("").map_err(StoreError::from)?)
}

/// How an attempt to copy a database ended.
enum Attempt {
    /// The original, the copy, and its size.
    Copied(Box<(Db, Db, BackupReport)>),
    /// A file was removed before it was copied.
    Gone,
}

/// Copies the database once, after `part` has taken hold of its files.
fn attempt<P: BackupPart>(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    options: Options,
    part: &mut P,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<Attempt, P::Error> {
    let gone = |error: StateError| match &error {
        StateError::Store(StoreError::Disk(error)) if error.is_not_found() => Ok(Attempt::Gone),
        StateError::Store(StoreError::ReaderBehind { .. }) => Ok(Attempt::Gone),
        _ => Err(error.into()),
    };
    let db = match Db::open_read_only(from.clone(), options) {
        Ok((db, _)) => db,
        Err(error) => return gone(error),
    };
    unfinished::mark(&**to)?;
    part.begin(&db)?;
    match copy_database(&db, from, to, options, progress) {
        Ok((copy, report)) => Ok(Attempt::Copied(Box::new((db, copy, report)))),
        Err(error) => gone(error),
    }
}

/// Copies the database `db` on the disk `from`, and opens the copy to verify it.
fn copy_database(
    db: &Db,
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    options: Options,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<(Db, BackupReport), StateError> {
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
    let (copy, _) = Db::open_copy(to.clone(), options)?;
    let (head, expected) = (copy.head(), db.head());
    if head != expected {
        return Err(StateError::BadStart(format!(
            "the copy is at block {head}, and the original was at block {expected}"
        )));
    }
    Ok((copy, BackupReport { head, sizes }))
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

/// Removes the files of a failed backup where possible, the mark last.
fn remove_all(disk: &dyn Disk) {
    let names = disk.list("").unwrap_or_default().into_iter();
    for name in names.filter(|name| name != unfinished::MARK) {
        match disk.list(&name) {
            Ok(inside) => {
                for inner in inside {
                    let _ = disk.remove(&format!("{name}/{inner}"));
                }
            }
            Err(_) => _ = disk.remove(&name),
        }
    }
    let _ = disk.remove(unfinished::MARK);
}
