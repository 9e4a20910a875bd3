//! Copying a database with all that is beside it.

use cambium_disk::Disk;
use cambium_history::{HistoryCopy, HistoryError, HistoryPart};
use cambium_index::{IndexCopy, IndexError, copy_index};
use cambium_preimages::{PreimagesError, copy_preimages};
use cambium_state::{BackupPart, BackupReport, BackupSizes, Db, Options, backup_with};
use std::sync::Arc;

/// Parts to copy beside the database, where they exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupParts {
    /// The history.
    pub history: bool,
    /// The index of blocks, transactions and logs.
    pub index: bool,
    /// The preimages.
    pub preimages: bool,
}

impl BackupParts {
    /// All that there is.
    pub const ALL: Self = Self {
        history: true,
        index: true,
        preimages: true,
    };
}

/// Report of a backup with its parts.
#[derive(Debug)]
pub struct WholeBackup {
    /// The copy of the database.
    pub database: BackupReport,
    /// The copy of the history, if there was one.
    pub history: Option<HistoryCopy>,
    /// The copy of the index, if there was one, or why the copy has none.
    pub index: Result<Option<IndexCopy>, IndexError>,
    /// Whether there were preimages, or why the copy has none.
    pub preimages: Result<bool, PreimagesError>,
}

impl WholeBackup {
    /// All files that were shared or copied, but the preimages.
    pub fn sizes(&self) -> BackupSizes {
        let history = self.history.map(|history| history.sizes);
        let index = self.index.as_ref().ok().copied().flatten();
        let beside = history.into_iter().chain(index.map(|index| index.sizes));
        beside.fold(self.database.sizes, |sum, sizes| sum + sizes)
    }
}

/// Copies a database as [`backup`](cambium_state::backup()) does, with its history as
/// [`backup_with_history`](cambium_history::backup_with_history), its index ([`copy_index`]) and its preimages
/// ([`copy_preimages`]). Others may write to all of them meanwhile. Until all is copied, the copy can't be opened, so
/// that one whose backup was killed is not taken for a whole one.
///
/// The chain needs neither index nor preimages: with an error of one of them the copy is whole without it, and the
/// result says so.
///
/// # Errors
///
/// The errors of [`backup_with_history`](cambium_history::backup_with_history). The copied files are then removed if
/// possible.
pub fn backup_with_parts(
    from: &Arc<dyn Disk>,
    to: &Arc<dyn Disk>,
    options: Options,
    parts: BackupParts,
    progress: &mut dyn FnMut(&BackupSizes),
) -> Result<WholeBackup, HistoryError> {
    let mut beside = Beside {
        from,
        to,
        parts,
        history: HistoryPart::new(from, to),
        index: Ok(None),
        preimages: Ok(false),
    };
    let database = backup_with(from, to, options, &mut beside, progress)?;
    Ok(WholeBackup {
        database,
        history: beside.history.copied(),
        index: beside.index,
        preimages: beside.preimages,
    })
}

/// The parts, while they are copied.
struct Beside<'a> {
    from: &'a Arc<dyn Disk>,
    to: &'a Arc<dyn Disk>,
    parts: BackupParts,
    history: HistoryPart<'a>,
    index: Result<Option<IndexCopy>, IndexError>,
    preimages: Result<bool, PreimagesError>,
}

impl BackupPart for Beside<'_> {
    type Error = HistoryError;

    fn begin(&mut self, db: &Db) -> Result<(), HistoryError> {
        match self.parts.history {
            true => self.history.begin(db),
            false => Ok(()),
        }
    }

    fn finish(
        &mut self,
        db: Db,
        copy: &Db,
        progress: &mut dyn FnMut(&BackupSizes),
    ) -> Result<(), HistoryError> {
        if self.parts.history {
            self.history.finish(db, copy, progress)?;
        }
        if self.parts.index {
            self.index = copy_index(self.from, self.to, copy, progress);
            if self.index.is_err() {
                self.remove_all_in("index");
            }
        }
        // After the log, which has what they lack.
        if self.parts.preimages {
            self.preimages = copy_preimages(&**self.from, &**self.to, copy.genesis().hash);
            if self.preimages.is_err() {
                self.remove_all_in("preimages");
            }
        }
        Ok(())
    }
}

impl Beside<'_> {
    /// Removes what was copied of a part that could not be copied whole.
    fn remove_all_in(&self, dir: &str) {
        for name in self.to.list(dir).unwrap_or_default() {
            // Without a list of them, these files are nothing.
            let _ = self.to.remove(&format!("{dir}/{name}"));
        }
    }
}
