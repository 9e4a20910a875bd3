//! What may be in a directory before a database is made there.

use cambium_disk::{Disk, DiskError};
use cambium_snapshot::{StateError, remove_spilled};
use cambium_store::{
    BlockLog, Checkpoint, LogOptions, LogPosition, Manifest, StoreError, load_latest_checkpoint,
};
use std::sync::Arc;

/// Directories of the store, and what its files there are called: a number of eight digits or
/// more, and this.
const DIRS: [(&str, &str); 2] = [("segments", ".seg"), ("log", ".log")];

/// Refuses a directory that holds a database, whole or not.
pub(crate) fn refuse_database(disk: &Arc<dyn Disk>) -> Result<(), StateError> {
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

/// A manifest without a checkpoint is an attempt that was cut short, unless the log has blocks
/// after the first: then there were checkpoints.
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
        // Damage that can be told from a torn end was acknowledged once.
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

/// Whether there is a record after the first. One that can't be read is not known to be none.
fn has_second_record(log: &BlockLog) -> Result<bool, StoreError> {
    let mut records = log.scan(LogPosition::START);
    if let Some(first) = records.next() {
        first?;
    }
    Ok(records.next().transpose()?.is_some())
}

/// Removes what an attempt that did not come to its first checkpoint left, and nothing else.
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
            // A log that comes back beside a new manifest would pass for a damaged one.
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
