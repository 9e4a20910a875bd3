//! Copying a database with its history, while others import blocks, follow them, and merge and remove files
//! of the history.
//!
//! ```text
//! a reader opens the database     at the block that is going to be the copy's head
//! the list of runs is read        its files are linked or opened: whatever goes now, they stay
//! the database is copied
//! the files are copied, and the list, which names nothing that the copy's chain does not have
//! ```
//!
//! The list is read after the head is known. Blocks that were in files before that moment may have left the log, and
//! the copy has them from the files; later ones are in the copy's log. In the other order blocks between might be in
//! neither. So the list may name blocks above the copy's head, or of a branch that the chain has taken since: these are
//! cut off at the fork, as if they had been taken back.

use crate::{
    HistoryError,
    keeper::{HistoryOptions, canonical_ancestor, newest_canonical_in, open_runs},
    list::{DIR, RunList, run_name},
};
use cambium_disk::{Disk, DiskError, FileCopier, name_in_original};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_runs::{ATTEMPTS, HeldFile, RunError, hold_file};
use cambium_state::{
    BackupPart, BackupReport, BackupSizes, Db, Options, StateError, StoreError, backup_with,
};
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

/// The copy of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryCopy {
    /// The oldest block whose state it has.
    pub first: BlockId,
    /// The newest block that is in its files.
    pub upto: BlockId,
    /// Bytes that are shared with the original, and bytes that were copied.
    pub sizes: BackupSizes,
}

/// Copies a database as [`backup`](cambium_state::backup) does, and its history, if it has one. Others
/// may import, follow, merge and prune meanwhile. The copy of the history has no block that the copy of the
/// database does not have, and an import that follows it goes on from there. Files of the history are
/// linked if both disks are in one file system. The list of its files is written last; the copied files are
/// opened before.
///
/// A history that begins above the copy's head, because it was begun meanwhile, is left out.
///
/// # Errors
///
/// The errors of [`backup`](cambium_state::backup). [`HistoryError::OtherDatabase`],
/// [`HistoryError::Damaged`] and [`HistoryError::Missing`] if the history can't be opened. The copied files
/// are then removed if possible.
pub fn backup_with_history(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    options: Options,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<(BackupReport, Option<HistoryCopy>), HistoryError> {
    let mut part = HistoryPart::new(from, to);
    let report = backup_with(from, to, options, &mut part, progress)?;
    Ok((report, part.copied()))
}

/// The history, as a part of a backup: see [`backup_with_history`].
pub struct HistoryPart<'a> {
    from: &'a Arc<dyn Disk>,
    to: &'a Arc<dyn Disk>,
    held: Option<Held>,
    copy: Option<HistoryCopy>,
}

/// A list, and its files, which can be removed now.
struct Held {
    list: RunList,
    files: HeldFiles,
    linked: BackupSizes,
}

/// Files of runs by their numbers.
type HeldFiles = BTreeMap<u64, HeldFile>;

impl<'a> HistoryPart<'a> {
    /// The history on `from`, if there is one, which is going to be copied to `to`.
    pub fn new(from: &'a Arc<dyn Disk>, to: &'a Arc<dyn Disk>) -> Self {
        Self {
            from,
            to,
            held: None,
            copy: None,
        }
    }

    /// Returns the copied history after the backup; `None` if there was none.
    pub const fn copied(&self) -> Option<HistoryCopy> {
        self.copy
    }
}

impl BackupPart for HistoryPart<'_> {
    type Error = HistoryError;

    fn begin(&mut self, db: &Db) -> Result<(), HistoryError> {
        self.held = None;
        if !RunList::exists(&**self.from)? {
            return Ok(());
        }
        self.to.create_dir(DIR)?;
        let (mut files, mut ignore) = (HeldFiles::new(), |_: &BackupSizes| {});
        let mut copier = FileCopier::new(&**self.from, &**self.to, &mut ignore);
        let mut attempt = 1;
        while let Some(mut list) = RunList::read(&**self.from)? {
            list.check_genesis(&**self.from, db.genesis().hash)?;
            let mut held = hold(&**self.from, &mut copier, list.files(), &mut files);
            if attempt == ATTEMPTS {
                // A waiting run was removed, unless the other runs are missing, too. The copy makes it again.
                for run in &list.waiting {
                    _ = hold(&**self.from, &mut copier, [run.file], &mut files);
                }
                list.waiting.retain(|run| files.contains_key(&run.file));
                held = hold(&**self.from, &mut copier, list.files(), &mut files);
            }
            match held {
                // The other process has merged it meanwhile.
                Err(HistoryError::Missing { .. }) if attempt < ATTEMPTS => attempt += 1,
                held => {
                    held?;
                    let linked = copier.sizes();
                    self.held = Some(Held {
                        list,
                        files,
                        linked,
                    });
                    break;
                }
            }
        }
        Ok(())
    }

    fn finish(
        &mut self,
        db: Db,
        copy: &Db,
        progress: &mut dyn FnMut(&BackupSizes),
    ) -> Result<(), HistoryError> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        let Held {
            mut list,
            files,
            linked,
        } = held;
        let shared = newest_shared(db, copy, list.upto())?;
        if let Some(fork) = shared {
            if fork.number < list.first.number {
                return self.remove_all_but(&files, &BTreeSet::new());
            }
            list.cut(fork);
        }
        let listed: BTreeSet<_> = list.files().collect();
        let mut progress = |sizes: &BackupSizes| progress(&(linked + *sizes));
        let mut copier = FileCopier::new(&**self.from, &**self.to, &mut progress);
        for (file, held) in &files {
            if let HeldFile::Open(open) = held
                && listed.contains(file)
            {
                let copied = copier.copy(&**open, &run_name(*file), open.len()?);
                copied.map_err(of_copying)?;
            }
        }
        let sizes = linked + copier.sizes();
        self.remove_all_but(&files, &listed)?;
        let no_memory = HistoryOptions {
            memory_bytes: 0,
            cache_bytes: 0,
            ..HistoryOptions::default()
        };
        let opened = open_runs(self.to, &list, &no_memory);
        let opened = opened.map_err(|error| self.of_original(error))?;
        if shared.is_none() {
            let known = newest_canonical_in(copy, &list, &opened.runs);
            let known = known.map_err(|error| self.of_original(error))?;
            let gone: BTreeSet<_> = match known {
                Some(fork) => list.cut(fork).iter().map(|run| run.file).collect(),
                None => listed,
            };
            for file in gone {
                self.to.remove(&run_name(file))?;
            }
            if known.is_none() {
                return Ok(());
            }
        }
        list.write(&**self.to)?;
        self.copy = Some(HistoryCopy {
            first: list.first,
            upto: list.upto(),
            sizes,
        });
        Ok(())
    }
}

impl HistoryPart<'_> {
    /// An error that was met in a file of the copy, as one of the file that was copied: the copy does not remain.
    fn of_original(&self, error: HistoryError) -> HistoryError {
        let renamed = |file| name_in_original(file, &**self.from, &**self.to);
        match error {
            HistoryError::Damaged { file, offset, what } => HistoryError::Damaged {
                file: renamed(file),
                offset,
                what,
            },
            HistoryError::Missing { file } => HistoryError::Missing {
                file: renamed(file),
            },
            HistoryError::Disk(error) => HistoryError::Disk(DiskError {
                path: renamed(error.path),
                ..error
            }),
            error => error,
        }
    }

    /// Removes links to files that are not listed.
    fn remove_all_but(
        &self,
        files: &HeldFiles,
        listed: &BTreeSet<u64>,
    ) -> Result<(), HistoryError> {
        for (file, held) in files {
            if matches!(held, HeldFile::Linked) && !listed.contains(file) {
                self.to.remove(&run_name(*file))?;
            }
        }
        Ok(())
    }
}

/// Links or opens the files of these numbers that are not held yet.
fn hold(
    from: &dyn Disk,
    copier: &mut FileCopier<'_>,
    numbers: impl IntoIterator<Item = u64>,
    files: &mut HeldFiles,
) -> Result<(), HistoryError> {
    for file in numbers {
        if let Entry::Vacant(vacant) = files.entry(file) {
            let held = hold_file(from, copier, &run_name(file));
            vacant.insert(held.map_err(|error| match error {
                RunError::Disk(error) => of_copying(error),
                error => error.into(),
            })?);
        }
    }
    Ok(())
}

/// An error of the disk while the database is copied with its history.
fn of_copying(error: DiskError) -> HistoryError {
    StateError::from(StoreError::from(error)).into()
}

/// The newest block at or below `upto` that the copy's chain has. `db` is a reader of the original. `None` if it does
/// not have the branch of `upto`: the fork is then found in the files.
fn newest_shared(mut db: Db, copy: &Db, upto: BlockId) -> Result<Option<BlockId>, HistoryError> {
    if copy.block_id(upto.number)? == Some(upto) {
        return Ok(Some(upto));
    }
    db.catch_up()?;
    match canonical_ancestor(&db, upto)? {
        Some(fork) => newest_of_both(&db, copy, fork.number),
        None => Ok(None),
    }
}

/// The newest block up to `number` that is canonical in both.
fn newest_of_both(
    db: &Db,
    copy: &Db,
    number: BlockNumber,
) -> Result<Option<BlockId>, HistoryError> {
    for number in (0..=number.min(copy.head().number)).rev() {
        let id = copy.block_id(number)?;
        if id.is_some() && id == db.block_id(number)? {
            return Ok(id);
        }
    }
    Ok(None)
}
