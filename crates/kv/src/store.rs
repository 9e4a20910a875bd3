//! The store: creating and opening it, transactions, and operations on the whole store.

use crate::{
    batch::{WriteBatch, check_value},
    commit::{Commit, MakeWitness, Shared, Work, check_store, first_meta},
    error::KvError,
    options::{KvOptions, Location},
    prepared::Prepared,
    transaction::Transaction,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::BlockNumber;
use cambium_state::{
    CheckProgress, CheckReport, Db, LeafKind, Loader, Recovery, StateError, Stats, View,
};
use cambium_trie::Commitment;
use std::{num::NonZeroU64, sync::Arc};

/// An open store. Clones are handles of the same store, and threads may share them: readers never wait, and commits are
/// made one after the other.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

/// Outcome of transactions that were committed together: see [`Store::commit_all`].
#[derive(Debug)]
pub struct GroupCommit {
    /// The commit of all that won; `None` if none of these writes anything.
    pub commit: Option<Commit>,
    /// For each transaction, in order, whether it is part of the commit, or why not.
    pub outcomes: Vec<Result<(), KvError>>,
}

/// Outcome of transactions that were prepared together: see [`Store::prepare_all`].
pub struct GroupPrepared {
    /// The prepared commit of all that won; `None` if none of these writes anything.
    pub prepared: Option<Prepared>,
    /// For each transaction, in order, whether it is part of the commit, or why not.
    pub outcomes: Vec<Result<(), KvError>>,
}

impl Store {
    /// Creates an empty store in a directory, which must be empty or not exist, or on a
    /// [`Disk`](cambium_disk::Disk). [`StoreLoader`] creates one with entries.
    ///
    /// # Errors
    ///
    /// [`KvError::State`] if there is something already, or the disk fails.
    pub fn create(location: impl Into<Location>, options: KvOptions) -> Result<Self, KvError> {
        StoreLoader::new(location, options)?.finish()
    }

    /// Opens a store at its newest commit, for writing: by one process at a time. [`Store::recovery`] has the findings.
    ///
    /// # Errors
    ///
    /// [`KvError::NotKeyValue`] for the database of a chain, and [`KvError::State`], which names the
    /// file and says what to do about it.
    pub fn open(location: impl Into<Location>, options: KvOptions) -> Result<Self, KvError> {
        let (db, recovery) = Db::open(location.into().into_disk(), options.for_existing())?;
        Self::of(db, recovery, &options)
    }

    /// Opens a store for reading alone, at its newest commit, whether or not another process writes to
    /// it. Commits fail with [`StateError::ReadOnly`].
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_read_only(
        location: impl Into<Location>,
        options: KvOptions,
    ) -> Result<Self, KvError> {
        let (db, recovery) =
            Db::open_read_only(location.into().into_disk(), options.for_existing())?;
        Self::of(db, recovery, &options)
    }

    fn of(db: Db, recovery: Recovery, options: &KvOptions) -> Result<Self, KvError> {
        if db.options().leaves != LeafKind::Entries {
            return Err(KvError::NotKeyValue);
        }
        let shared = Shared::new(db, recovery, options.window_bytes());
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Findings and actions of opening the store.
    pub fn recovery(&self) -> &Recovery {
        &self.shared.recovery
    }

    /// Commitment of the roots.
    pub fn commitment(&self) -> Commitment {
        self.shared.db.options().commitment
    }

    /// Number of commits of an interval, under [`Commitment::Layered`] alone: see
    /// [`KvOptions::merge_interval_commits`].
    pub fn merge_interval(&self) -> Option<NonZeroU64> {
        self.shared.merge_interval()
    }

    /// Sizes and counts of the database below.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn stats(&self) -> Result<Stats, KvError> {
        Ok(self.shared.db.stats()?)
    }

    /// Reads everything, hashes all entries, and compares the result with the roots. Damage is reported,
    /// not repaired.
    ///
    /// # Errors
    ///
    /// [`KvError::State`] for a reader that the writing process has left behind.
    pub fn check(&self, progress: &mut dyn FnMut(CheckProgress)) -> Result<CheckReport, KvError> {
        Ok(self.shared.db.check(progress)?)
    }

    /// Merges all commits into pages, and waits until that is durable. The next opening has nothing to
    /// replay then.
    ///
    /// # Errors
    ///
    /// [`KvError::State`] if the disk fails.
    pub fn flush(&self) -> Result<(), KvError> {
        Ok(self.shared.db.flush(0)?)
    }

    /// The newest commit.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn newest(&self) -> Result<Commit, KvError> {
        Ok(Commit::of(&self.shared.db.view()?))
    }

    /// The root of all entries at the newest commit.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn root(&self) -> Result<B256, KvError> {
        Ok(self.newest()?.root)
    }

    /// Begins a transaction at the newest commit.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn begin(&self) -> Result<Transaction, KvError> {
        Ok(self.begin_with(self.shared.db.view()?, false))
    }

    /// Begins a transaction at an older commit: to read what was there, or to write if nothing that
    /// it reads has changed since.
    ///
    /// # Errors
    ///
    /// [`KvError::NoSuchCommit`], and [`KvError::NotKept`] if it has left the log.
    pub fn begin_at(&self, number: BlockNumber) -> Result<Transaction, KvError> {
        Ok(self.begin_with(self.shared.db.view_at(number)?, false))
    }

    /// Begins a transaction on a prepared commit, whether or not it is committed by then.
    ///
    /// # Errors
    ///
    /// [`KvError::OtherStore`], and [`KvError::State`] if what it is built on was dropped.
    pub fn begin_on(&self, prepared: &Prepared) -> Result<Transaction, KvError> {
        check_store(&self.shared, &prepared.shared, || prepared.id())?;
        Ok(self.begin_with(prepared.view()?, true))
    }

    /// Finds the newest commit with this root among those that are kept, from the newest one down.
    ///
    /// # Errors
    ///
    /// [`KvError::UnknownRoot`] if there is none.
    pub fn commit_with_root(&self, root: B256) -> Result<Commit, KvError> {
        let db = &self.shared.db;
        let mut number = db.head().number;
        loop {
            match db.block(number) {
                Ok(Some(meta)) if meta.state_root == root => {
                    let id = meta.id;
                    return Ok(Commit { id, root });
                }
                Ok(_) if number > db.genesis().number => number -= 1,
                Err(StateError::NotKept { .. }) | Ok(_) => {
                    let oldest = number;
                    return Err(KvError::UnknownRoot { root, oldest });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the value at `key` at the newest commit.
    ///
    /// # Errors
    ///
    /// [`KvError::State`] if the disk fails or is damaged.
    pub fn get(&self, key: &B256) -> Result<Option<Bytes>, KvError> {
        Ok(self.shared.db.view()?.entry(key)?)
    }

    /// Writes a batch as one commit over any state: it reads nothing, so it conflicts with nothing. An empty batch
    /// makes no commit.
    ///
    /// # Errors
    ///
    /// [`KvError::State`] if the disk fails.
    pub fn write(&self, batch: WriteBatch) -> Result<Commit, KvError> {
        let mut transaction = self.begin()?;
        transaction.write(batch);
        transaction.commit()
    }

    /// Commits transactions together: they are validated in their order, each against the ones
    /// before it, too, and those that win become one commit with one sync.
    ///
    /// # Errors
    ///
    /// [`KvError::OtherStore`] before anything is done, [`KvError::NotNext`] if a transaction with
    /// writes began on a prepared commit that is not committed, and [`KvError::State`] if the disk
    /// fails. That a transaction lost is its own outcome, and no error.
    pub fn commit_all(&self, transactions: Vec<Transaction>) -> Result<GroupCommit, KvError> {
        let works = self.works(transactions)?;
        let mut committing = self.shared.committing();
        let group = committing.prepare(works, MakeWitness::No)?;
        Ok(GroupCommit {
            commit: committing.commit(group.prepared.into_iter().collect())?,
            outcomes: group.outcomes,
        })
    }

    /// Prepares transactions together: see [`Store::commit_all`] and [`Transaction::prepare`].
    ///
    /// # Errors
    ///
    /// As [`Store::commit_all`].
    pub fn prepare_all(&self, transactions: Vec<Transaction>) -> Result<GroupPrepared, KvError> {
        self.prepared(transactions, MakeWitness::No)
    }

    /// Prepares transactions together, with a witness of their reads and writes.
    ///
    /// # Errors
    ///
    /// As [`Store::commit_all`].
    pub fn prepare_all_with_witness(
        &self,
        transactions: Vec<Transaction>,
    ) -> Result<GroupPrepared, KvError> {
        self.prepared(transactions, MakeWitness::Yes)
    }

    fn prepared(
        &self,
        transactions: Vec<Transaction>,
        make_witness: MakeWitness,
    ) -> Result<GroupPrepared, KvError> {
        let works = self.works(transactions)?;
        let group = self.shared.committing().prepare(works, make_witness)?;
        let shared = self.shared.clone();
        Ok(GroupPrepared {
            prepared: group.prepared.map(|commit| Prepared { shared, commit }),
            outcomes: group.outcomes,
        })
    }

    /// Makes prepared commits durable with one sync: the first is built on the newest commit, and each
    /// other one on the one before it. Returns the last.
    ///
    /// # Errors
    ///
    /// [`KvError::NotNext`] if they don't follow each other, and [`KvError::OtherStore`]: none of
    /// them is committed then, and all are taken back.
    pub fn commit_prepared(&self, prepared: Vec<Prepared>) -> Result<Option<Commit>, KvError> {
        for one in &prepared {
            check_store(&self.shared, &one.shared, || one.id())?;
        }
        let commits = prepared.into_iter().map(|one| one.commit).collect();
        self.shared.committing().commit(commits)
    }

    /// Takes the newest `commits` commits back, durably, and returns the newest one then. Transactions that began on
    /// removed commits can still read them.
    ///
    /// # Errors
    ///
    /// [`KvError::RollbackTooFar`] if there are fewer, and [`KvError::NotKept`] if they have left the log.
    pub fn roll_back(&self, commits: u64) -> Result<Commit, KvError> {
        self.shared.committing().roll_back(commits)
    }

    fn works(&self, transactions: Vec<Transaction>) -> Result<Vec<Work>, KvError> {
        for transaction in &transactions {
            check_store(&self.shared, &transaction.shared, || {
                transaction.snapshot().id
            })?;
        }
        Ok(transactions
            .into_iter()
            .map(Transaction::into_work)
            .collect())
    }

    fn begin_with(&self, view: View, on_prepared: bool) -> Transaction {
        Transaction::new(self.shared.clone(), view, on_prepared)
    }
}

/// Creates a store with entries of any number, in any order: they are written straight into pages.
///
/// ```
/// use alloy_primitives::B256;
/// use cambium_disk::FaultyDisk;
/// use cambium_kv::{KvError, KvOptions, StoreLoader};
/// use std::sync::Arc;
///
/// let mut loader = StoreLoader::new(Arc::new(FaultyDisk::new(1)), KvOptions::default())?;
/// for number in (0..=9).rev() {
///     loader.put(B256::repeat_byte(number), vec![number; 3])?;
/// }
/// let store = loader.finish()?;
/// assert_eq!(store.begin()?.range(..).count(), 10);
/// # Ok::<(), KvError>(())
/// ```
pub struct StoreLoader {
    loader: Loader,
    options: KvOptions,
}

impl StoreLoader {
    /// Begins a store in a directory, which must be empty or not exist, or on a
    /// [`Disk`](cambium_disk::Disk). It becomes one when it is finished.
    ///
    /// # Errors
    ///
    /// [`KvError::State`] if there is something already, or the disk fails.
    pub fn new(location: impl Into<Location>, options: KvOptions) -> Result<Self, KvError> {
        let loader = Loader::new(location.into().into_disk(), options.engine())?;
        Ok(Self { loader, options })
    }

    /// Adds an entry. [`StoreLoader::finish`] rejects a key that was added twice.
    ///
    /// # Errors
    ///
    /// [`KvError::ValueTooLarge`], and [`KvError::State`] if the disk fails.
    pub fn put(&mut self, key: B256, value: impl Into<Bytes>) -> Result<(), KvError> {
        let value = value.into();
        check_value(&key, &value)?;
        let value = self.loader.value(&key, value)?;
        Ok(self.loader.entry(key, &value)?)
    }

    /// Writes everything, as commit 0.
    ///
    /// # Errors
    ///
    /// [`KvError::State`] for a key that was added twice, or if the disk fails.
    pub fn finish(self) -> Result<Store, KvError> {
        let loaded = self.loader.finish(&mut |_| {})?;
        let meta = first_meta(loaded.root());
        let db = loaded.create(meta, Vec::new())?;
        Store::of(db, Recovery::default(), &self.options)
    }
}
