//! The one place where commits are made: validation, the choice of the parent, and durability.
//!
//! ```text
//!   lock -> validate each against the commits since its snapshot, and against earlier winners
//!        -> write large values -> root -> seal (Prepared) -> append, sync -> window -> unlock
//! ```
//!
//! A losing transaction writes nothing: validation comes first. The window gets a commit's keys after it is durable and
//! before the lock is released, so a transaction that began on the commit finds it there.

use crate::{
    batch::WriteBatch,
    error::KvError,
    proof::{CommitWitness, layered_witness_of, witness_of},
    reads::{ReadSet, SortedReads},
    recent::{Conflict, ConflictWriter, NoWindow, RecentCommits},
};
use alloy_primitives::{B256, Bytes, Keccak256};
use cambium_primitives::{AccountDiff, AccountUpdate, BlockId, BlockNumber, Changes};
use cambium_state::{BlockMeta, Db, Recovery, Sealed, View};
use parking_lot::{Mutex, MutexGuard};
use std::{collections::BTreeMap, num::NonZeroU64, sync::Arc};

/// A durable commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Number and hash. The hash is keccak(number, parent's hash, root, extra), with the number as 8
    /// bytes, big-endian.
    pub id: BlockId,
    /// The root of all entries after it.
    pub root: B256,
}

impl Commit {
    /// The commit's number: one more than the one before. An empty store is commit 0.
    pub const fn number(&self) -> BlockNumber {
        self.id.number
    }

    /// The commit at which a view is.
    pub(crate) fn of(view: &View) -> Self {
        Self {
            id: view.block(),
            root: view.state_root(),
        }
    }
}

/// State shared by all handles of an open store.
pub(crate) struct Shared {
    pub(crate) db: Db,
    pub(crate) recovery: Recovery,
    /// Its lock is the one that serializes commits.
    recent: Mutex<RecentCommits>,
}

/// A transaction to be committed.
pub(crate) struct Work {
    pub(crate) snapshot: View,
    /// Whether the snapshot was a prepared commit when the transaction began.
    pub(crate) on_prepared: bool,
    pub(crate) reads: ReadSet,
    pub(crate) writes: WriteBatch,
}

/// A commit that has its root and is not durable yet.
pub(crate) struct PreparedCommit {
    pub(crate) sealed: Sealed,
    pub(crate) parent: BlockId,
    pub(crate) root: B256,
    pub(crate) witness: Option<CommitWitness>,
    /// Sorted keys that it writes.
    keys: Vec<B256>,
}

/// Outcome of a group of transactions.
pub(crate) struct PreparedGroup {
    /// `None` if no transaction that won writes anything.
    pub(crate) prepared: Option<PreparedCommit>,
    pub(crate) outcomes: Vec<Result<(), KvError>>,
}

/// Whether a commit's witness is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum MakeWitness {
    No,
    Yes,
}

/// Parent of a group's commit.
enum Parent {
    /// The newest commit.
    Newest(View),
    /// A prepared commit.
    Prepared(View),
}

/// The right to make commits.
pub(crate) struct Committing<'a> {
    shared: &'a Shared,
    recent: MutexGuard<'a, RecentCommits>,
}

impl Shared {
    pub(crate) fn new(db: Db, recovery: Recovery, window_bytes: u64) -> Self {
        Self {
            recent: Mutex::new(RecentCommits::new(db.head(), window_bytes)),
            db,
            recovery,
        }
    }

    /// Number of commits of an interval, under the `layered` commitment.
    pub(crate) fn merge_interval(&self) -> Option<NonZeroU64> {
        self.db.merge_interval().and_then(NonZeroU64::new)
    }

    /// Waits for the commit at work, and keeps others from beginning.
    pub(crate) fn committing(&self) -> Committing<'_> {
        Committing {
            shared: self,
            recent: self.recent.lock(),
        }
    }
}

impl Committing<'_> {
    /// Makes one commit of the transactions that win, in their order. Nothing is durable yet.
    ///
    /// # Errors
    ///
    /// An error of the engine, for all of them. An error of a single transaction is its outcome.
    pub(crate) fn prepare(
        &mut self,
        group: Vec<Work>,
        make_witness: MakeWitness,
    ) -> Result<PreparedGroup, KvError> {
        let parent = self.parent_of(&group)?;
        let mut writes = WriteBatch::new();
        let mut writers = Writers::default();
        let mut outcomes = Vec::with_capacity(group.len());
        let mut read = Vec::new();
        for (position, work) in group.into_iter().enumerate() {
            if work.writes.is_empty() {
                outcomes.push(self.validate_reader(&work, &parent));
                continue;
            }
            let reads = work.reads.sorted();
            let done = self.validate(&work.snapshot, &reads, &parent, &writers);
            if done.is_ok() {
                writers.add(position, &work.writes);
                writes.append(work.writes);
                read.extend_from_slice(reads.keys());
            }
            outcomes.push(done);
        }
        let (Parent::Newest(view) | Parent::Prepared(view)) = parent;
        let prepared = match writes.is_empty() {
            true => None,
            false => Some(self.build(
                view,
                writes,
                (make_witness == MakeWitness::Yes).then_some(read),
            )?),
        };
        Ok(PreparedGroup { prepared, outcomes })
    }

    /// A group is built on the newest commit, unless one of its writers began on a prepared one.
    fn parent_of(&self, group: &[Work]) -> Result<Parent, KvError> {
        let db = &self.shared.db;
        let writers = group.iter().filter(|work| !work.writes.is_empty());
        let snapshots = writers.map(|work| &work.snapshot);
        let is_in_window = |view: &&View| self.recent.knows(view.block()) == Some(true);
        for view in snapshots.filter(|view| !is_in_window(view)) {
            let block = view.block();
            // Rolled-back commits are committed, on another branch.
            if db.find(&block.hash).is_some() && !db.has(block)? {
                return Ok(Parent::Prepared(view.clone()));
            }
        }
        Ok(Parent::Newest(db.view()?))
    }

    /// A transaction that writes nothing is valid where it began, unless that was never committed.
    fn validate_reader(&self, work: &Work, parent: &Parent) -> Result<(), KvError> {
        let block = work.snapshot.block();
        let is_parent = matches!(parent, Parent::Prepared(view) if view.block() == block);
        let is_in_window = self.recent.knows(block) == Some(true);
        let is_valid = !work.on_prepared || is_parent || is_in_window;
        match is_valid || self.shared.db.has(block)? {
            true => Ok(()),
            false => Err(KvError::SnapshotNotCommitted(block)),
        }
    }

    /// Checks that a transaction would read the same if it ran now, after the earlier winners of its
    /// group.
    fn validate(
        &self,
        snapshot: &View,
        reads: &SortedReads,
        parent: &Parent,
        writers: &Writers,
    ) -> Result<(), KvError> {
        let before = match parent {
            Parent::Newest(_) => self.conflict_with_commits(snapshot.block(), reads)?,
            Parent::Prepared(view) if view.block() == snapshot.block() => None,
            Parent::Prepared(view) => {
                return Err(KvError::OtherParent {
                    snapshot: snapshot.block(),
                    parent: view.block(),
                });
            }
        };
        match before.or_else(|| writers.conflict(reads)) {
            Some(conflict) => Err(KvError::Conflict(Box::new(conflict))),
            None => Ok(()),
        }
    }

    fn conflict_with_commits(
        &self,
        snapshot: BlockId,
        reads: &SortedReads,
    ) -> Result<Option<Conflict>, KvError> {
        match self.recent.validate(snapshot, reads) {
            Ok(conflict) => Ok(conflict),
            Err(NoWindow::NotCommitted) => Err(KvError::SnapshotNotCommitted(snapshot)),
            Err(NoWindow::TooOld { oldest }) => {
                let committed = self.shared.db.block_id(snapshot.number)?;
                if committed != Some(snapshot) {
                    return Err(KvError::SnapshotNotCommitted(snapshot));
                }
                let snapshot = snapshot.number;
                match reads.is_empty() {
                    true => Ok(None),
                    false => Err(KvError::SnapshotTooOld { snapshot, oldest }),
                }
            }
        }
    }

    /// Computes the root after `writes` on `view`, and seals the commit. Its witness is made if there
    /// are keys that it `read`.
    fn build(
        &self,
        view: View,
        writes: WriteBatch,
        read: Option<Vec<B256>>,
    ) -> Result<PreparedCommit, KvError> {
        let db = &self.shared.db;
        let (parent, keys) = (view.block(), writes.keys());
        let session = view.session();
        let mut changes = Vec::with_capacity(writes.len());
        for (path, value) in writes {
            let account = match value {
                Some(value) => AccountUpdate::Entry(session.value(&path, value)?),
                None => AccountUpdate::Delete,
            };
            changes.push(AccountDiff {
                path,
                wipe: account == AccountUpdate::Delete,
                account,
                slots: Vec::new(),
            });
        }
        let changes = Changes::new(changes);
        let mut witness = None;
        if let Some(mut read) = read {
            read.sort_unstable();
            read.dedup();
            witness = Some(match self.shared.merge_interval() {
                Some(interval) => layered_witness_of(session.view(), interval, read, &changes)?,
                None => {
                    let proof = session.prove_entry_update(&read, &changes)?;
                    witness_of(proof, db.options().commitment, read, &changes)
                }
            });
        }
        let staged = session.finish(changes, vec![])?;
        let root = staged.root();
        let mut again = 0;
        let meta = loop {
            let meta = commit_meta(parent, root, again);
            // The same changes on the same parent were sealed before, or rolled back.
            match db.find(&meta.id.hash).is_some() || db.has(meta.id)? {
                true => again += 1,
                false => break meta,
            }
        };
        Ok(PreparedCommit {
            sealed: staged.seal(meta)?,
            parent,
            root,
            witness,
            keys,
        })
    }

    /// Makes prepared commits durable with one sync: the first is built on the newest commit, and each
    /// other one on the one before it.
    ///
    /// # Errors
    ///
    /// [`KvError::NotNext`] for one that is built on something else; then none was written. After
    /// a failed write or sync it is not known which are durable, and no more commits are made.
    pub(crate) fn commit(&mut self, group: Vec<PreparedCommit>) -> Result<Option<Commit>, KvError> {
        let mut newest = self.recent.newest();
        let mut last = None;
        for next in &group {
            let commit = next.sealed.id();
            if next.parent != newest {
                return Err(KvError::NotNext {
                    commit,
                    parent: next.parent.hash,
                    newest,
                });
            }
            newest = commit;
            let root = next.root;
            last = Some(Commit { id: commit, root });
        }
        let (sealed, keys): (Vec<_>, Vec<_>) = group
            .into_iter()
            .map(|next| (next.sealed.id(), next.sealed, next.keys))
            .map(|(id, sealed, keys)| (sealed, (id, keys)))
            .unzip();
        self.shared.db.commit_all(sealed)?;
        for (id, keys) in keys {
            self.recent.push(id, keys);
        }
        Ok(last)
    }

    /// Takes the newest `commits` commits back, durably.
    pub(crate) fn roll_back(&mut self, commits: u64) -> Result<Commit, KvError> {
        let db = &self.shared.db;
        let newest = self.recent.newest().number;
        let to = newest.checked_sub(commits);
        let Some(to) = to.filter(|to| *to >= db.genesis().number) else {
            return Err(KvError::RollbackTooFar { commits, newest });
        };
        let moved = db.unwind(to);
        // A long way down takes several steps, of which some may be done.
        self.recent.roll_back_to(db.head());
        moved?;
        Ok(Commit::of(&db.view()?))
    }
}

/// The keys that the winners of a group write so far, with the position of their first writer.
#[derive(Default)]
struct Writers(BTreeMap<B256, usize>);

impl Writers {
    fn add(&mut self, position: usize, writes: &WriteBatch) {
        for key in writes.keys() {
            self.0.entry(key).or_insert(position);
        }
    }

    fn conflict(&self, reads: &SortedReads) -> Option<Conflict> {
        reads.targets().find_map(|read| {
            let range = read.range();
            let (key, position) = self.0.range(range.from()..=range.through()).next()?;
            let by = ConflictWriter::Transaction(*position);
            Some(Conflict {
                read,
                key: *key,
                by,
            })
        })
    }
}

/// Names a commit. Its body is what the hash covers beside number, parent and root:
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 8 | how many commits of the same changes on the same parent there were before, big-endian |
pub(crate) fn commit_meta(parent: BlockId, root: B256, again: u64) -> BlockMeta {
    named(parent.number + 1, parent.hash, root, again)
}

/// The name of the first commit, of which the store is made.
pub(crate) fn first_meta(root: B256) -> BlockMeta {
    named(0, B256::ZERO, root, 0)
}

fn named(number: BlockNumber, parent: B256, state_root: B256, again: u64) -> BlockMeta {
    let body = again.to_be_bytes();
    let mut hash = Keccak256::new();
    hash.update(number.to_be_bytes());
    hash.update(parent);
    hash.update(state_root);
    hash.update(body);
    BlockMeta {
        id: BlockId::new(number, hash.finalize()),
        parent,
        state_root,
        body: Bytes::copy_from_slice(&body),
    }
}

/// Fails with [`KvError::OtherStore`] if something belongs to another store.
pub(crate) fn check_store(
    one: &Arc<Shared>,
    other: &Arc<Shared>,
    id: impl FnOnce() -> BlockId,
) -> Result<(), KvError> {
    match Arc::ptr_eq(one, other) {
        true => Ok(()),
        false => Err(KvError::OtherStore(id())),
    }
}
