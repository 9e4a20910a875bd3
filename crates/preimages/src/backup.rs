//! Copies of preimages, to go with a copy of their database.

use crate::{
    PreimagesError,
    files::{is_missing, open_runs, remove_leftovers},
    list::{DIR, RUN_LIST, RunList, file_of, run_name},
};
use alloy_primitives::B256;
use cambium_disk::{Disk, FileCopier};
use cambium_runs::{ATTEMPTS, share_file, while_missing};
use std::collections::BTreeSet;

/// Copies the preimages of the database whose first block has the hash `genesis` from one disk to another, while
/// another process may write to them: after the database was copied. False if there are none.
///
/// # Errors
///
/// [`PreimagesError::Exists`] if there are some on `to`, those of [`open`](crate::Preimages::open), and errors of the
/// disks. The copied files are then unusable: the list is written last, and another attempt begins again.
pub fn copy_preimages(
    from: &dyn Disk,
    to: &dyn Disk,
    genesis: B256,
) -> Result<bool, PreimagesError> {
    if !RunList::exists(from)? {
        return Ok(false);
    }
    to.create_dir(DIR)?;
    to.sync_dir("")?;
    let _lock = RUN_LIST.lock(to)?;
    if to.exists(RUN_LIST.name)? {
        let dir = to.display_path("");
        return Err(PreimagesError::Exists { dir });
    }
    // Of an attempt that was interrupted.
    RUN_LIST.remove_leftovers(to, |name| file_of(name).is_some())?;
    let mut nothing = |_: &_| {};
    let mut copier = FileCopier::new(from, to, &mut nothing);
    let mut held = BTreeSet::new();
    while_missing(ATTEMPTS, is_missing, || {
        let list = RunList::read(from, genesis)?;
        open_runs(from, &list)?;
        for run in &list.runs {
            if !held.contains(&run.file) {
                share_file(from, &mut copier, &run_name(run.file), None)?;
                held.insert(run.file);
            }
        }
        remove_leftovers(to, &list)?;
        list.write(to)?;
        Ok(true)
    })
}
