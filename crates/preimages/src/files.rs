//! The files of a list: opened beside a process that merges them, and those that are left over.

use crate::{
    PreimagesError,
    list::{ListedRun, RUN_LIST, RunList, file_of, run_name},
    run::RunFile,
};
use alloy_primitives::B256;
use cambium_disk::Disk;
use cambium_runs::{ATTEMPTS, while_missing};
use std::{collections::BTreeSet, sync::Arc};

/// Reads the list and opens its runs, beside a process that merges them.
pub(crate) fn read_list(
    disk: &dyn Disk,
    genesis: B256,
) -> Result<(RunList, Vec<Arc<RunFile>>), PreimagesError> {
    while_missing(ATTEMPTS, is_missing, || {
        let list = RunList::read(disk, genesis)?;
        let runs = open_runs(disk, &list)?;
        Ok((list, runs))
    })
}

/// Whether the error is that a file is missing.
pub(crate) const fn is_missing(error: &PreimagesError) -> bool {
    matches!(error, PreimagesError::Missing { .. })
}

pub(crate) fn open_runs(
    disk: &dyn Disk,
    list: &RunList,
) -> Result<Vec<Arc<RunFile>>, PreimagesError> {
    let open = |run: &ListedRun| RunFile::open(disk, &run_name(run.file), run.identity);
    let runs = list.runs.iter().map(|run| open(run).map(Arc::new));
    runs.collect()
}

/// Removes files of runs that are not listed.
pub(crate) fn remove_leftovers(disk: &dyn Disk, list: &RunList) -> Result<(), PreimagesError> {
    let listed: BTreeSet<u64> = list.runs.iter().map(|run| run.file).collect();
    let is_leftover = |name: &str| file_of(name).is_some_and(|file| !listed.contains(&file));
    Ok(RUN_LIST.remove_leftovers(disk, is_leftover)?)
}
