//! Reading a chain's database beside a process that may write to it: states at any block that is
//! kept, and proofs.
//!
//! ```text
//!   block asked for      answered by
//!   the head             the snapshot and the layers above it
//!   any, in an archive   the history's runs and nodes
//!   near the head        reverts from the block log
//!   any, in a history    the history's runs: values, no proofs
//! ```

use cambium_disk::{Disk, StdDisk, StdDiskOptions};
use cambium_history::{History, HistoryError, HistoryOptions, HistoryView};
use cambium_primitives::{BlockId, BlockNumber};
use cambium_state::{Db, LeafKind, Options, StateError, Subscription};
use cambium_store::StoreError;
use std::{path::Path, sync::Arc};

/// Opens the directory of an existing database as a disk, for reading alone if `read_only`. Creates
/// nothing.
///
/// # Errors
///
/// [`StoreError::NotADatabase`] if the directory is missing or has no database, and an error if the
/// disk fails.
pub fn existing_disk(directory: &Path, read_only: bool) -> Result<Arc<dyn Disk>, StateError> {
    let options = StdDiskOptions {
        read_only,
        ..StdDiskOptions::from_env()
    };
    let found = Db::exists(&StdDisk::new(directory))?;
    let disk = StdDisk::with_options(directory, &options).map_err(StoreError::from)?;
    if !found {
        let dir = disk.display_path("");
        return Err(StoreError::NotADatabase { dir }.into());
    }
    Ok(Arc::new(disk))
}

/// A chain's database, open for reading, with its history if there is one.
pub struct ChainReader {
    disk: Arc<dyn Disk>,
    db: Db,
    history: Option<History>,
    options: HistoryOptions,
}

impl ChainReader {
    /// Opens the database in a directory at its newest block, with a memory budget of `memory_bytes`.
    ///
    /// # Errors
    ///
    /// As [`Db::open_read_only`] and [`History::open_read_only`], [`StoreError::NotADatabase`] if
    /// there is no database, and [`StateError::BadOptions`] for a key-value store.
    pub fn open(directory: &Path, memory_bytes: u64) -> Result<Self, HistoryError> {
        let disk = existing_disk(directory, true)?;
        let of_history = HistoryOptions::beside(memory_bytes);
        let options = Options {
            memory_bytes: memory_bytes.saturating_sub(of_history.budget_bytes()),
            ..Options::default()
        };
        let (db, _) = Db::open_read_only(disk.clone(), options)?;
        if db.options().leaves != LeafKind::Accounts {
            let dir = disk.display_path("");
            let what = format!("{dir} has entries, not accounts: open it as a key-value store");
            return Err(StateError::BadOptions(what).into());
        }
        let mut reader = Self {
            disk,
            db,
            history: None,
            options: of_history,
        };
        reader.open_history()?;
        Ok(reader)
    }

    /// The newest block that this reader has seen.
    pub fn head(&self) -> BlockId {
        self.db.head()
    }

    /// Moves to the newest block that the writer has written. States that were made before stay as they
    /// are.
    ///
    /// # Errors
    ///
    /// As [`Db::catch_up`]. The reader is at its old block then, or at a later one.
    pub fn catch_up(&mut self) -> Result<BlockId, HistoryError> {
        self.db.catch_up()?;
        self.open_history()?;
        Ok(self.db.head())
    }

    /// Follows the chain from `cursor`, as [`Db::subscribe`] does. The subscription looks for later blocks by itself,
    /// whether or not this reader catches up.
    pub fn subscribe(&self, cursor: BlockId) -> Subscription {
        self.db.subscribe(cursor)
    }

    /// The state at the head.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn state(&self) -> Result<HistoryView, HistoryError> {
        Ok(self.db.view()?.into())
    }

    /// The state after the canonical block at `number`: from an archive, or else from the block log, or
    /// else from a history of values, which has no proofs.
    ///
    /// # Errors
    ///
    /// [`StateError::NoSuchBlock`] above the head, and [`StateError::TooFar`] or one that
    /// [has left the log](StateError::has_left_log) for a block that neither the log nor a history can restore.
    pub fn state_at(&self, number: BlockNumber) -> Result<HistoryView, HistoryError> {
        let Some(history) = &self.history else {
            return Ok(self.db.view_at(number)?.into());
        };
        if history.has_nodes() {
            return match history.view_at(&self.db, number) {
                Err(HistoryError::NotKept { .. }) => Ok(self.db.view_at(number)?.into()),
                view => view,
            };
        }
        match self.db.view_at(number) {
            Ok(view) => Ok(view.into()),
            Err(error) if error.has_left_log() || matches!(error, StateError::TooFar { .. }) => {
                match history.view_at(&self.db, number) {
                    Err(HistoryError::NotKept { .. }) => Err(error.into()),
                    view => view,
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn open_history(&mut self) -> Result<(), HistoryError> {
        let found = History::open_read_only(self.disk.clone(), &self.db, self.options);
        self.history = match found {
            Ok(history) => Some(history),
            Err(HistoryError::NoHistory { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }
}
