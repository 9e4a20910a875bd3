//! Files that may be in a directory before a database is created there.

use super::unfinished;
use cambium_disk::{Disk, DiskError};
use cambium_snapshot::{StateError, remove_spilled};
use cambium_store::{
    BlockLog, Checkpoint, LogOptions, LogPosition, Manifest, StoreError, load_latest_checkpoint,
};
use std::sync::Arc;

/// Directories of the store, and the endings of its files there, whose names begin with a number of
/// at least eight digits.
const DIRS: [(&str, &str); 3] = [("segments", ".seg"), ("log", ".log"), ("values", ".val")];

/// Rejects a directory that holds a database, whole or damaged, or a copy that was not finished.
pub(crate) fn refuse_database(disk: &Arc<dyn Disk>) -> Result<(), StateError> {
    unfinished::refuse(&**disk)?;
    let found = load_latest_checkpoint(disk, StoreError::is_corruption, Checkpoint::verify)?;
    if found.loaded.is_some() {
        return Err(StoreError::AlreadyADatabase {
            dir: disk.display_path(""),
        }
        .into());
    }
    if let Some((_, damage)) = found.damaged.into_iter().next() {
        return Err(damage.into());
    }
    refuse_lost_checkpoints(disk)
}

/// Rejects a directory whose checkpoints were lost: it has a manifest and no checkpoint, and its
/// log has blocks after the first. Without such blocks it is an unfinished creation.
pub(crate) fn refuse_lost_checkpoints(disk: &Arc<dyn Disk>) -> Result<(), StateError> {
    if !Manifest::exists(&**disk)? || !disk.exists("log").map_err(StoreError::from)? {
        return Ok(());
    }
    let options = LogOptions {
        salt: Manifest::open(&**disk)?.salt(),
        ..LogOptions::default()
    };
    let has_blocks = match BlockLog::open(disk.clone(), options, LogPosition::START) {
        Ok((log, _)) => has_second_record(&log),
        Err(error) => Err(error),
    };
    let has_blocks = match has_blocks {
        // A torn end is not an error here, so this damage hit acknowledged blocks.
        Err(error) if error.is_corruption() => true,
        has_blocks => has_blocks?,
    };
    match has_blocks {
        true => Err(StateError::CheckpointsLost {
            dir: disk.display_path(""),
        }),
        false => Ok(()),
    }
}

/// Whether the log has a record after the first. Fails if that record can't be read.
fn has_second_record(log: &BlockLog) -> Result<bool, StoreError> {
    let mut records = log.scan(LogPosition::START);
    if let Some(first) = records.next() {
        first?;
    }
    Ok(records.next().transpose()?.is_some())
}

/// Removes the files of a creation that did not finish its first checkpoint, and no others.
pub(crate) fn remove_unfinished(disk: &dyn Disk) -> Result<(), DiskError> {
    for (dir, ending) in DIRS {
        if disk.exists(dir)? {
            let ours = |name: &String| {
                let number = name.strip_suffix(ending);
                number.is_some_and(|number| number.len() >= 8 && number.parse::<u64>().is_ok())
            };
            for name in disk.list(dir)?.into_iter().filter(ours) {
                disk.remove(&format!("{dir}/{name}"))?;
            }
            // After a power failure, an old log beside a new manifest would look like a damaged
            // one.
            disk.sync_dir(dir)?;
        }
    }
    for name in disk.list("")? {
        let ours = ["cambium.db", "cambium.db.tmp", "codes.dat", "blocks.idx"].contains(&&*name);
        if ours || name.starts_with("checkpoint-") {
            disk.remove(&name)?;
        }
    }
    remove_spilled(disk)?;
    disk.sync_dir("")
}
