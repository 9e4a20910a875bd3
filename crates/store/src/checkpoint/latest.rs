//! Finding the checkpoint that a start goes by.

use super::{
    names::{DAMAGED, name_of, usable},
    reader::Checkpoint,
};
use crate::StoreError;
use cambium_disk::Disk;
use std::sync::Arc;

/// What was found of checkpoints.
#[derive(Debug)]
pub struct FoundCheckpoints<T, E> {
    /// What was made of the newest whole one.
    pub loaded: Option<T>,
    /// Those newer than it, the newest first, and what is wrong with them.
    pub damaged: Vec<(u64, E)>,
}

/// Looks for the newest checkpoint that `load` takes, which is to read all of it. Nothing is
/// changed: those found damaged are to be set aside by [`set_aside`] when all else is open, too.
///
/// # Errors
///
/// The first error that is no damage by `is_damage`, whatever older checkpoints there are: another
/// format, a file that can't be read now.
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

/// Gives checkpoints that were found damaged another name, with `.damaged` behind it. One that is
/// gone is none.
pub fn set_aside(disk: &dyn Disk, sequences: &[u64]) -> Result<(), StoreError> {
    for sequence in sequences {
        let name = name_of(*sequence);
        match disk.rename(&name, &(name.clone() + DAMAGED)) {
            Err(error) if error.is_not_found() => {}
            renamed => renamed?,
        }
    }
    Ok(disk.sync_dir("")?)
}
