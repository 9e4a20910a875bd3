//! Copies of preimages, to go with a copy of their database.

use crate::{
    PreimagesError,
    files::{ATTEMPTS, open_runs, remove_leftovers},
    list::{DIR, RUN_LIST, RunList, file_of, run_name},
};
use alloy_primitives::B256;
use cambium_disk::{Access, Disk, DiskError};
use cambium_store::{FileCopier, StoreError};
use std::collections::BTreeSet;

/// Copies the preimages of the database whose first block has the hash `genesis` from one disk to another, while
/// another process may write to them: after the database was copied. False if there are none.
///
/// # Errors
///
/// [`PreimagesError::Exists`] if there are some on `to`, those of [`Preimages::open`], and errors of the disks. What
/// was copied is no copy then: its list is written last, and another attempt begins again.
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
    let mut attempt = 1;
    loop {
        let list = RunList::read(from, genesis)?;
        match hold(from, &mut copier, &list, &mut held) {
            // The other process has merged them meanwhile.
            Err(PreimagesError::Missing { .. }) if attempt < ATTEMPTS => attempt += 1,
            held => {
                held?;
                remove_leftovers(to, &list)?;
                list.write(to)?;
                return Ok(true);
            }
        }
    }
}

/// Links or copies the runs of a list that are not there yet.
fn hold(
    from: &dyn Disk,
    copier: &mut FileCopier<'_>,
    list: &RunList,
    held: &mut BTreeSet<u64>,
) -> Result<(), PreimagesError> {
    open_runs(from, list)?;
    for run in &list.runs {
        if held.contains(&run.file) {
            continue;
        }
        let name = run_name(run.file);
        let gone = |error: DiskError| match error.is_not_found() {
            true => PreimagesError::Missing {
                file: from.display_path(&name),
            },
            false => error.into(),
        };
        let linked = copier.link(&name, &name).map_err(|error| match error {
            StoreError::Disk(error) => gone(error),
            error => error.into(),
        })?;
        if !linked {
            let file = from.open_with(&name, Access::Cached).map_err(gone)?;
            copier.copy(&*file, &name, file.len()?)?;
        }
        held.insert(run.file);
    }
    Ok(())
}
