//! Copying an index to the copy of its database, while another process follows the chain.
//!
//! The list is read after the database was copied: so what it has in files and what the copy's log has
//! leave no block out. Runs are written once, and so are data files but the newest: these are linked if both
//! directories are in one file system. Blocks that the copy's chain does not have are taken back in the copy.

use crate::{
    ChainIndex, IndexError, IndexOptions,
    counters::Counters,
    keeper::open_runs,
    list::{DIR, RunList, data_name, run_name},
};
use cambium_disk::{Disk, FileCopier, name_in_original};
use cambium_primitives::BlockId;
use cambium_runs::{ATTEMPTS, RunError, share_file, while_missing};
use cambium_state::{BackupSizes, Db, StateError, StoreError};
use std::{collections::BTreeSet, sync::Arc};

/// The copy of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexCopy {
    /// The newest block that it has.
    pub upto: Option<BlockId>,
    /// Bytes that are shared with the original, and bytes that were copied.
    pub sizes: BackupSizes,
}

/// Copies the index of the database on `from`, if it has one, to the disk `to`, which has the copy `copy` of
/// the database. The copy of the index is complete up to the head of `copy`.
///
/// # Errors
///
/// [`IndexError::OtherDatabase`], [`IndexError::Damaged`] and [`IndexError::Missing`] if the index can't be opened, and
/// errors of the disks. The copied files are then unusable: their list is written last.
pub fn copy_index(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    copy: &Db,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<Option<IndexCopy>, IndexError> {
    let genesis = copy.genesis().hash;
    let Some(mut list) = RunList::read(&**from, genesis)? else {
        return Ok(None);
    };
    to.create_dir(DIR)?;
    let mut copier = FileCopier::new(&**from, &**to, progress);
    let mut held = BTreeSet::new();
    // The other process may merge runs, or take blocks back, after the list was read.
    let is_missing = |error: &IndexError| matches!(error, IndexError::Missing { .. });
    while_missing(ATTEMPTS, is_missing, || {
        if let Some(newer) = RunList::read(&**from, genesis)? {
            list = newer;
        }
        hold(&**from, &mut copier, &list, &mut held)
    })?;
    let sizes = copier.sizes();
    list.write(&**to)?;
    let opened = ChainIndex::open(to.clone(), copy, IndexOptions::default());
    let caught_up = opened.and_then(|index| {
        index.catch_up(copy, None, &mut |_| true)?;
        index.flush()?;
        Ok(index)
    });
    let index = caught_up.map_err(|error| of_original(error, &**from, &**to))?;
    Ok(Some(IndexCopy {
        upto: index.durable(),
        sizes,
    }))
}

/// An error that was met in a file of the copy, as one of the file that was copied: the copy does not remain.
fn of_original(error: IndexError, from: &dyn Disk, to: &dyn Disk) -> IndexError {
    let renamed = |file| name_in_original(file, from, to);
    match error {
        IndexError::Damaged { file, offset, what } => IndexError::Damaged {
            file: renamed(file),
            offset,
            what,
        },
        IndexError::Missing { file } => IndexError::Missing {
            file: renamed(file),
        },
        error => error,
    }
}

/// Links or copies the files of a list that are not there yet.
fn hold(
    from: &dyn Disk,
    copier: &mut FileCopier<'_>,
    list: &RunList,
    held: &mut BTreeSet<String>,
) -> Result<(), IndexError> {
    let runs = open_runs(from, list, &Arc::<Counters>::default())?;
    let data = runs.iter().flat_map(|run| run.run.extents().files());
    let data: BTreeSet<u64> = data.collect();
    let runs = list.runs.iter().map(|run| (run_name(run.file), None));
    let data = data.into_iter().map(|file| {
        // The newest one is still written to.
        let len = (file == list.data_file).then_some(list.data_end);
        (data_name(file), len)
    });
    for (name, len) in runs.chain(data) {
        if !held.contains(&name) {
            let shared = share_file(from, copier, &name, len);
            shared.map_err(|error| match error {
                RunError::Disk(error) => StateError::from(StoreError::from(error)).into(),
                error => IndexError::from(error),
            })?;
            held.insert(name);
        }
    }
    Ok(())
}
