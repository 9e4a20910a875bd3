//! Finding the checkpoint from which the database opens.

use super::{
    names::{DAMAGED, name_of, usable},
    reader::Checkpoint,
};
use crate::StoreError;
use cambium_disk::Disk;
use std::sync::Arc;

/// Result of the search for the newest intact checkpoint.
#[derive(Debug)]
pub struct FoundCheckpoints<T, E> {
    /// Result of `load` for the newest intact checkpoint. `None` if there is none.
    pub loaded: Option<T>,
    /// Newer checkpoints that are damaged, the newest first: sequence number and error of each.
    pub damaged: Vec<(u64, E)>,
}

/// Searches for the newest checkpoint that `load` accepts. `load` should read and verify every
/// section. No file is changed: the caller passes the damaged ones to [`quarantine`] once the
/// database is open.
///
/// # Errors
///
/// The first error for which `is_damage` returns false, such as another format or a file that is
/// temporarily unreadable. Older checkpoints are not tried then.
pub fn load_latest_checkpoint<T, E: From<StoreError>>(
    disk: &Arc<dyn Disk>,
    is_damage: impl Fn(&E) -> bool,
    mut load: impl FnMut(&Checkpoint) -> Result<T, E>,
) -> Result<FoundCheckpoints<T, E>, E> {
    let mut damaged = Vec::new();
    for sequence in usable(&**disk)? {
        let opened = Checkpoint::open(disk, sequence).map_err(E::from);
        match opened.and_then(|checkpoint| load(&checkpoint)) {
            Ok(loaded) => {
                let loaded = Some(loaded);
                return Ok(FoundCheckpoints { loaded, damaged });
            }
            Err(error) if is_damage(&error) => damaged.push((sequence, error)),
            Err(error) => return Err(error),
        }
    }
    let loaded = None;
    Ok(FoundCheckpoints { loaded, damaged })
}

/// Renames damaged checkpoints by appending `.damaged` to their names. Missing files are skipped.
///
/// # Errors
///
/// [`StoreError::Disk`] if a file can't be renamed.
pub fn quarantine(disk: &dyn Disk, sequences: &[u64]) -> Result<(), StoreError> {
    for sequence in sequences {
        let name = name_of(*sequence);
        match disk.rename(&name, &(name.clone() + DAMAGED)) {
            Err(error) if error.is_not_found() => {}
            renamed => renamed?,
        }
    }
    Ok(disk.sync_dir("")?)
}
