//! A chain with its history, index and preimages.

use crate::{beside::Beside, headers::Headers, open::existing_disk};
use cambium_chain::{Chain, ChainError};
use cambium_disk::Disk;
use cambium_history::{History, HistoryError, HistoryOptions, StateAt};
use cambium_index::{ChainIndex, IndexError, IndexOptions};
use cambium_preimages::Preimages;
use cambium_primitives::BlockId;
use cambium_state::{Db, LeafKind, Options, StateError, Subscription, follower_bytes};
use parking_lot::Mutex;
use std::{
    error::Error,
    path::Path,
    sync::{Arc, OnceLock},
};

/// Receives the error of a history or an index that can't be read.
type Report = Arc<dyn Fn(&dyn Error) + Send + Sync>;

/// The database of a chain with those of its history, index and preimages that exist. Any number of threads may query
/// it at the same time.
pub struct Node {
    db: Db,
    /// Made when blocks are first asked for: a database that was made with [`Db`] alone has states, and no chain.
    chain: OnceLock<Chain>,
    history: Beside<History, HistoryOptions>,
    index: Beside<ChainIndex, IndexOptions>,
    /// Shared with the nodes that this one is moved to.
    headers: Arc<Headers>,
    /// The head, and a state below it of an archive: the trie of its newest block is made for the first proof, and shared by all states
    /// while there are any.
    pub(crate) kept: Mutex<Option<(BlockId, StateAt)>>,
    /// By default the error is that of the question.
    unreadable: Option<Report>,
}

impl Node {
    /// The node of an open database of accounts, with its preimages, and without a history or an index.
    pub fn of(db: Db) -> Self {
        Self {
            db,
            chain: OnceLock::new(),
            history: Beside::None,
            index: Beside::None,
            headers: Arc::default(),
            kept: Mutex::default(),
            unreadable: None,
        }
    }

    /// The node of a chain, with the index that it has, and without a history. [`Node::chain`] is this chain: blocks
    /// are inserted and imported there.
    pub fn of_chain(chain: Chain) -> Self {
        let mut node = Self::of(chain.db().clone());
        if let Some(index) = chain.index() {
            node.index = Beside::Open(index.clone());
        }
        node.chain = OnceLock::from(chain);
        node
    }

    /// Opens the database in a directory for reading, at its newest block, beside a process that may write to it, with
    /// its history, index and preimages. The memory budget of all of it is `memory_bytes`.
    ///
    /// # Errors
    ///
    /// As [`Db::open_read_only`] and [`History::open_read_only`],
    /// [`StoreError::NotADatabase`](cambium_store::StoreError::NotADatabase) if there is no database, and
    /// [`StateError::BadOptions`] for a key-value store.
    pub fn open(directory: &Path, memory_bytes: u64) -> Result<Self, HistoryError> {
        let disk = existing_disk(directory, true)?;
        let of_history = HistoryOptions::beside(memory_bytes);
        let of_index = IndexOptions {
            memory_bytes: follower_bytes(memory_bytes),
            ..IndexOptions::default()
        };
        let indexed = ChainIndex::exists(&*disk).unwrap_or(true);
        let beside = match indexed {
            true => of_history.budget_bytes() + of_index.memory_bytes,
            false => of_history.budget_bytes(),
        };
        let options = Options {
            memory_bytes: memory_bytes.saturating_sub(beside),
            ..Options::default()
        };
        let (db, _) = Db::open_read_only(disk.clone(), options)?;
        if db.options().leaves != LeafKind::Accounts {
            let dir = disk.display_path("");
            let what = format!("{dir} has entries, not accounts: open it as a key-value store");
            return Err(StateError::BadOptions(what).into());
        }
        let node = Self::of(db).with_history_on(disk.clone(), of_history);
        let node = node.with_index_on(disk, of_index);
        // A history that can't be read is found here, rather than by a later question.
        node.history()?;
        Ok(node)
    }

    /// Adds a history of this database.
    #[must_use]
    pub fn with_history(mut self, history: History) -> Self {
        self.history = Beside::Open(history);
        self
    }

    /// Adds the history on `disk`, if there is one. It is opened for reading, when it is first needed.
    #[must_use]
    pub fn with_history_on(mut self, disk: Arc<dyn Disk>, options: HistoryOptions) -> Self {
        self.history = Beside::on(disk, options);
        self
    }

    /// Adds the index on `disk`, if there is one. It is opened for reading, when it is first needed.
    #[must_use]
    pub fn with_index_on(mut self, disk: Arc<dyn Disk>, options: IndexOptions) -> Self {
        self.index = Beside::on(disk, options);
        self
    }

    /// Does without a history or an index that can't be read: `report` gets the error, and the block log answers as
    /// far as it goes. By default the error is that of the question.
    #[must_use]
    pub fn without_unreadable(
        mut self,
        report: impl Fn(&dyn Error) + Send + Sync + 'static,
    ) -> Self {
        self.unreadable = Some(Arc::new(report));
        self
    }

    /// The state engine.
    pub const fn db(&self) -> &Db {
        &self.db
    }

    /// The chain.
    ///
    /// # Errors
    ///
    /// As [`Chain::of`]: [`ChainError::NoRules`] if the database is not a chain's. And the errors of an index that
    /// can't be opened.
    pub fn chain(&self) -> Result<&Chain, ChainError> {
        match self.chain.get() {
            Some(chain) => Ok(chain),
            None => {
                let chain = self.make_chain()?;
                Ok(self.chain.get_or_init(|| chain))
            }
        }
    }

    fn make_chain(&self) -> Result<Chain, ChainError> {
        let chain = Chain::of(self.db.clone())?;
        Ok(match self.index()? {
            Some(index) => chain.with_index(index.clone()),
            None => chain,
        })
    }

    /// The chain alone, with its index.
    ///
    /// # Errors
    ///
    /// As [`Node::chain`].
    pub fn into_chain(mut self) -> Result<Chain, ChainError> {
        match self.chain.take() {
            Some(chain) => Ok(chain),
            None => self.make_chain(),
        }
    }

    /// The history, if there is one.
    ///
    /// # Errors
    ///
    /// As [`History::open_read_only`], unless it is done without.
    pub fn history(&self) -> Result<Option<&History>, HistoryError> {
        self.history.get(
            |disk, options| match History::open_read_only(disk, &self.db, options) {
                Ok(history) => Ok(Some(history)),
                Err(HistoryError::NoHistory { .. }) => Ok(None),
                // Not the history's own: the log would not answer, either.
                Err(error @ HistoryError::State(_)) => Err(error),
                Err(error) => self.do_without(error).map(|()| None),
            },
        )
    }

    /// The index, if there is one.
    ///
    /// # Errors
    ///
    /// As [`ChainIndex::open_read_only`], unless it is done without.
    pub fn index(&self) -> Result<Option<&ChainIndex>, IndexError> {
        self.index.get(
            |disk, options| match ChainIndex::open_read_only(disk, &self.db, options) {
                Ok(index) => Ok(Some(index)),
                Err(IndexError::NoIndex { .. }) => Ok(None),
                Err(error) => self.do_without(error).map(|()| None),
            },
        )
    }

    /// The preimages of all blocks up to the head; `None` if the database keeps none.
    ///
    /// # Errors
    ///
    /// As [`Chain::preimages`].
    pub fn preimages(&self) -> Result<Option<Preimages>, ChainError> {
        match Chain::rules_of(&self.db)? {
            Some(_) => self.chain()?.preimages(),
            None => Ok(None),
        }
    }

    pub(crate) fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Reports the error of something beside the database, which is done without, or returns it.
    pub(crate) fn do_without<E: Error>(&self, error: E) -> Result<(), E> {
        match &self.unreadable {
            Some(report) => {
                report(&error);
                Ok(())
            }
            None => Err(error),
        }
    }

    /// The newest block: of a reader, the newest that it has seen.
    pub fn head(&self) -> BlockId {
        self.db.head()
    }

    /// Moves a reader to the newest block that the writer has written. States that were made before stay as they
    /// are. The writer is at its newest block already.
    ///
    /// # Errors
    ///
    /// As [`Db::catch_up`]. The reader is at its old block then, or at a later one.
    pub fn catch_up(&mut self) -> Result<BlockId, HistoryError> {
        self.db.catch_up()?;
        if self.db.is_read_only() {
            self.chain = OnceLock::new();
            self.history.reopen();
            self.index.reopen();
            self.history()?;
        }
        Ok(self.db.head())
    }

    /// The same node over another handle of its database, which has caught up. History and index are opened as they are now when they
    /// are first needed; this node stays as it is.
    #[must_use]
    pub fn over(&self, db: Db) -> Self {
        Self {
            db,
            chain: OnceLock::new(),
            history: self.history.anew(),
            index: self.index.anew(),
            headers: Arc::clone(&self.headers),
            kept: Mutex::default(),
            unreadable: self.unreadable.clone(),
        }
    }

    /// Follows the chain from `cursor`, as [`Db::subscribe`] does. The subscription looks for later blocks by
    /// itself, whether or not this reader catches up.
    pub fn subscribe(&self, cursor: BlockId) -> Subscription {
        self.db.subscribe(cursor)
    }
}
