//! Transactions: reads of one snapshot, and writes that only the transaction sees until it is
//! committed.
//!
//! ```text
//!   begin            get, range         put, delete        commit
//!   snapshot 41  ->  recorded as read   kept in memory  ->  validated against 42, 43, 44;
//!                                                           written as 45, or Conflict
//! ```
//!
//! A commit succeeds only if all reads of the transaction would return the same at the newest commit. So committed
//! transactions are *serializable* in the order of their commits: each acts as if it had run alone, at the moment of
//! its commit. A transaction without writes acts as if it had run at its snapshot, and never conflicts.

use crate::{
    batch::WriteBatch,
    commit::{Commit, MakeWitness, Shared, Work},
    error::KvError,
    prepared::Prepared,
    proof::{ProvedEntries, ProvedKeys, prove_keys, prove_range},
    range::{KeyRange, successor},
    reads::ReadSet,
};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::BlockId;
use cambium_state::View;
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    ops::{ControlFlow, RangeBounds},
    sync::Arc,
};

/// A transaction. Dropping it aborts it.
///
/// Threads may share a transaction for its reads.
pub struct Transaction {
    pub(crate) shared: Arc<Shared>,
    snapshot: View,
    on_prepared: bool,
    reads: Mutex<ReadSet>,
    writes: WriteBatch,
}

impl Transaction {
    pub(crate) fn new(shared: Arc<Shared>, snapshot: View, on_prepared: bool) -> Self {
        Self {
            shared,
            snapshot,
            on_prepared,
            reads: Mutex::new(ReadSet::default()),
            writes: WriteBatch::new(),
        }
    }

    /// The commit whose entries it reads: committed, or prepared.
    pub fn snapshot(&self) -> Commit {
        Commit::of(&self.snapshot)
    }

    /// The root of the entries that it reads, without its own writes.
    pub fn root(&self) -> B256 {
        self.snapshot.state_root()
    }

    /// Reads the value at `key`: the transaction's own, if it has written one.
    ///
    /// # Errors
    ///
    /// [`KvError::State`] if the disk fails or is damaged.
    pub fn get(&self, key: &B256) -> Result<Option<Bytes>, KvError> {
        if let Some(own) = self.writes.get(key) {
            return Ok(own.clone());
        }
        self.reads.lock().add_keys(&[*key]);
        Ok(self.snapshot.entry(key)?)
    }

    /// Whether there is a value at `key`.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn contains(&self, key: &B256) -> Result<bool, KvError> {
        Ok(self.get(key)?.is_some())
    }

    /// Reads the values at `keys`, in their order, with all reads of the disk in flight at once.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn get_many(&self, keys: &[B256]) -> Result<Vec<Option<Bytes>>, KvError> {
        let is_foreign = |key: &&B256| self.writes.get(key).is_none();
        let foreign: Vec<B256> = keys.iter().filter(is_foreign).copied().collect();
        self.reads.lock().add_keys(&foreign);
        let mut read = self.snapshot.entries(&foreign)?.into_iter();
        let value = |key| match self.writes.get(key) {
            Some(own) => own.clone(),
            None => read.next().flatten(),
        };
        Ok(keys.iter().map(value).collect())
    }

    /// Iterates over the entries within `bounds` in the order of their keys, the transaction's own writes among them.
    /// The visited part of the range counts as read: an entry that another transaction adds there before the commit is
    /// a conflict.
    pub fn range(&self, bounds: impl RangeBounds<B256>) -> Entries<'_> {
        Entries {
            transaction: self,
            cursor: self.cursor(bounds),
        }
    }

    /// Begins an iteration as [`Transaction::range`] does, which does not borrow the transaction: later writes ahead of
    /// the cursor are visited, too.
    pub fn cursor(&self, bounds: impl RangeBounds<B256>) -> Cursor {
        Cursor::new(self.snapshot.block(), KeyRange::within(bounds))
    }

    /// Sets the value at `key`. The empty value is a value.
    ///
    /// # Errors
    ///
    /// [`KvError::ValueTooLarge`] above [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX).
    pub fn put(&mut self, key: B256, value: impl Into<Bytes>) -> Result<(), KvError> {
        self.writes.put(key, value)?;
        Ok(())
    }

    /// Removes the entry at `key`, if there is one. That it is there is not read: see
    /// [`Transaction::contains`].
    pub fn delete(&mut self, key: B256) {
        self.writes.delete(key);
    }

    /// Adds the writes of a batch.
    pub fn write(&mut self, batch: WriteBatch) {
        self.writes.append(batch);
    }

    /// Its writes so far.
    pub const fn writes(&self) -> &WriteBatch {
        &self.writes
    }

    /// Proves the values at `keys` against [`Transaction::root`], or that there are none. The keys count
    /// as read. The transaction's own writes have no root, and are not looked at.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn prove(&self, keys: &[B256]) -> Result<ProvedKeys, KvError> {
        self.reads.lock().add_keys(keys);
        let is_layered = self.shared.merge_interval().is_some();
        Ok(prove_keys(&self.snapshot, is_layered, keys)?)
    }

    /// Proves the entries of a range against [`Transaction::root`], `limit` of them at most, and the absence of others.
    /// The proved range counts as read. The transaction's own writes have no root, and are ignored.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn prove_range(
        &self,
        range: KeyRange,
        limit: NonZeroUsize,
    ) -> Result<ProvedEntries, KvError> {
        let is_layered = self.shared.merge_interval().is_some();
        let proved = prove_range(&self.snapshot, is_layered, range, limit)?;
        self.reads.lock().add_range(proved.range);
        Ok(proved)
    }

    /// Loads what reading and writing `keys` needs, so that both find it in memory: a hint, which
    /// counts as no read. It returns when everything is there; call it on a thread of its own to go
    /// on meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`].
    pub fn warm_up(&self, keys: &[B256]) -> Result<(), KvError> {
        self.snapshot.clone().session().entries(keys)?;
        Ok(())
    }

    /// Commits it: validates what it read, and makes its writes durable. A transaction without
    /// writes makes no commit, and returns its snapshot.
    ///
    /// # Errors
    ///
    /// [`KvError::Conflict`] if what it read was written since its snapshot, and
    /// [`KvError::SnapshotTooOld`] if that is not known any more: it can be run again. In both cases
    /// nothing was written. [`KvError::NotNext`] if it began on a prepared commit that is not
    /// committed, and [`KvError::SnapshotNotCommitted`] if that was dropped, or if its snapshot was
    /// rolled back. One without writes fails only if it began on a prepared commit that is not
    /// committed. After a failed write or sync ([`KvError::State`]) the store refuses further commits.
    pub fn commit(self) -> Result<Commit, KvError> {
        let (shared, snapshot) = (self.shared.clone(), self.snapshot());
        let mut committing = shared.committing();
        let group = committing.prepare(vec![self.into_work()], MakeWitness::No)?;
        group.outcomes.into_iter().collect::<Result<(), _>>()?;
        let commit = committing.commit(group.prepared.into_iter().collect())?;
        Ok(commit.unwrap_or(snapshot))
    }

    /// Validates it and computes its root, but makes nothing durable: `None` if it has no writes.
    /// Begun on a committed snapshot, it is built on the newest commit; begun on a prepared commit,
    /// on that one.
    ///
    /// # Errors
    ///
    /// As [`Transaction::commit`].
    pub fn prepare(self) -> Result<Option<Prepared>, KvError> {
        self.prepared(MakeWitness::No)
    }

    /// Prepares it as [`Transaction::prepare`] does, with a witness of its reads and writes.
    ///
    /// # Errors
    ///
    /// As [`Transaction::commit`].
    pub fn prepare_with_witness(self) -> Result<Option<Prepared>, KvError> {
        self.prepared(MakeWitness::Yes)
    }

    fn prepared(self, make_witness: MakeWitness) -> Result<Option<Prepared>, KvError> {
        if self.writes.is_empty() {
            return Ok(None);
        }
        let shared = self.shared.clone();
        let works = vec![self.into_work()];
        let group = shared.committing().prepare(works, make_witness)?;
        group.outcomes.into_iter().collect::<Result<(), _>>()?;
        Ok(group.prepared.map(|commit| Prepared { shared, commit }))
    }

    /// Aborts it, as dropping it does.
    pub fn abort(self) {}

    pub(crate) fn into_work(self) -> Work {
        Work {
            snapshot: self.snapshot,
            on_prepared: self.on_prepared,
            reads: self.reads.into_inner(),
            writes: self.writes,
        }
    }
}

/// Entries that are read from the snapshot at once: at first, and at most.
const BATCH: (usize, usize) = (16, 1024);
/// A batch ends when its values have this many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Entries of a transaction in the order of their keys: see [`Transaction::range`].
pub struct Entries<'a> {
    transaction: &'a Transaction,
    cursor: Cursor,
}

impl Iterator for Entries<'_> {
    type Item = Result<(B256, Bytes), KvError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next(self.transaction).transpose()
    }
}

impl std::iter::FusedIterator for Entries<'_> {}

/// A position in a range of a transaction's entries: see [`Transaction::cursor`].
pub struct Cursor {
    /// The snapshot of the transaction.
    snapshot: BlockId,
    /// `None` if there are no keys in the range, and once all are visited.
    range: Option<KeyRange>,
    /// Where to read on in the transaction's own writes; `None` if there is nothing left.
    own_next: Option<B256>,
    /// Entries of the snapshot that were read and not visited yet.
    below: VecDeque<(B256, Bytes)>,
    /// Where to read on in the snapshot; `None` if there is nothing left.
    below_next: Option<B256>,
    batch: usize,
}

impl Cursor {
    fn new(snapshot: BlockId, range: Option<KeyRange>) -> Self {
        let from = range.map(|range| range.from());
        Self {
            snapshot,
            range,
            own_next: from,
            below: VecDeque::new(),
            below_next: from,
            batch: BATCH.0,
        }
    }

    /// The commit whose entries it visits, beside the writes of the transaction.
    pub const fn snapshot(&self) -> BlockId {
        self.snapshot
    }

    /// Moves to the next entry and returns it; `None` if there are no more. Up to there the range counts
    /// as read.
    ///
    /// # Errors
    ///
    /// As [`Transaction::get`]. There are no more entries after an error.
    ///
    /// # Panics
    ///
    /// If `transaction` has another snapshot than the one that made the cursor.
    pub fn next(&mut self, transaction: &Transaction) -> Result<Option<(B256, Bytes)>, KvError> {
        assert_eq!(
            self.snapshot,
            transaction.snapshot.block(),
            "a cursor of another snapshot"
        );
        let Some(range) = self.range else {
            return Ok(None);
        };
        let next = self.merged(transaction, range);
        let read = match &next {
            Ok(Some((key, _))) => KeyRange::new(range.from(), *key),
            Ok(None) => Some(range),
            Err(_) => None,
        };
        if let Some(read) = read {
            transaction.reads.lock().add_range(read);
        }
        if !matches!(next, Ok(Some(_))) {
            self.range = None;
        }
        next
    }

    /// Reads the next entries of the snapshot, unless there are some.
    fn fill(&mut self, snapshot: &View, range: KeyRange) -> Result<(), KvError> {
        let Some(from) = self.below_next.filter(|_| self.below.is_empty()) else {
            return Ok(());
        };
        let (mut bytes, mut last) = (0, None);
        let (batch, below) = (self.batch, &mut self.below);
        snapshot.each_entry(&from, |key, value| {
            if !range.contains(&key) {
                return ControlFlow::Break(());
            }
            bytes += value.len();
            below.push_back((key, value));
            if below.len() < batch && bytes < BATCH_BYTES {
                return ControlFlow::Continue(());
            }
            last = Some(key);
            ControlFlow::Break(())
        })?;
        self.below_next = last
            .and_then(|last| successor(&last))
            .filter(|next| range.contains(next));
        self.batch = (2 * batch).min(BATCH.1);
        Ok(())
    }

    /// The next entry, of the transaction's own writes or of the snapshot; deletions are skipped.
    fn merged(
        &mut self,
        transaction: &Transaction,
        range: KeyRange,
    ) -> Result<Option<(B256, Bytes)>, KvError> {
        loop {
            self.fill(&transaction.snapshot, range)?;
            let below = self.below.front().map(|(key, _)| *key);
            let own = self
                .own_next
                .filter(|_| !transaction.writes.is_empty())
                .and_then(|next| KeyRange::new(next, range.through()))
                .and_then(|rest| transaction.writes.range(rest).next());
            let Some((key, own)) = own.filter(|(key, _)| below.is_none_or(|below| **key <= below))
            else {
                let next = self.below.pop_front();
                // A write behind the cursor is not visited, whenever it is made.
                self.own_next = next.as_ref().and_then(|(key, _)| successor(key));
                return Ok(next);
            };
            if below == Some(*key) {
                self.below.pop_front();
            }
            self.own_next = successor(key);
            if let Some(value) = own {
                return Ok(Some((*key, value.clone())));
            }
        }
    }
}
