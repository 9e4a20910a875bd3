//! Keys written by the newest commits, against which transactions are validated.
//!
//! ```text
//!            base     commits, each with its sorted keys          newest
//!   .........  40  |  41: a c  |  42: b  |  43: a f g  |  44: d    44
//!                          ^ a transaction that began at 41 is validated against 42, 43 and 44
//! ```
//!
//! The window is bounded by its bytes. A transaction that began before its base can't be validated
//! any more, and says so.

use crate::reads::{ReadTarget, SortedReads};
use alloy_primitives::B256;
use cambium_primitives::{BlockId, BlockNumber};
use std::{collections::VecDeque, fmt};

/// Reason why a transaction lost: a read that would differ for a commit in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The read of the transaction.
    pub read: ReadTarget,
    /// The key in it that was written since.
    pub key: B256,
    /// The commit or transaction that wrote the key.
    pub by: ConflictWriter,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { read, key, by } = self;
        match read {
            ReadTarget::Key(_) => write!(f, "it had read {read}, which was written by {by}"),
            ReadTarget::Range(_) => {
                write!(
                    f,
                    "it had read {read}, and in it the key {key:#x} was written by {by}"
                )
            }
        }
    }
}

/// Writer of a key that another transaction had read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictWriter {
    /// The commit of this number.
    Commit(BlockNumber),
    /// The transaction at this position of the same group, which came before.
    Transaction(usize),
}

impl fmt::Display for ConflictWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Commit(number) => write!(f, "commit {number}"),
            Self::Transaction(at) => write!(f, "transaction {at} of the same group"),
        }
    }
}

/// Why the commits since a snapshot are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoWindow {
    /// The snapshot is older than the base.
    TooOld {
        /// Number of the oldest snapshot that can be validated.
        oldest: BlockNumber,
    },
    /// No commit of the window is the snapshot: it was rolled back, or is not committed.
    NotCommitted,
}

/// One commit of the window.
#[derive(Debug)]
struct RecentCommit {
    id: BlockId,
    /// Sorted and unique.
    keys: Vec<B256>,
}

impl RecentCommit {
    const fn bytes(&self) -> u64 {
        (size_of::<Self>() + self.keys.len() * size_of::<B256>()) as u64
    }
}

/// The newest commits, with the keys that each wrote.
#[derive(Debug)]
pub(crate) struct RecentCommits {
    /// The commit before the oldest one of the window.
    base: BlockId,
    commits: VecDeque<RecentCommit>,
    bytes: u64,
    bytes_max: u64,
}

impl RecentCommits {
    /// A window without commits above `base`, for at most `bytes_max` bytes of keys.
    pub(crate) const fn new(base: BlockId, bytes_max: u64) -> Self {
        Self {
            base,
            commits: VecDeque::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// The newest commit.
    pub(crate) fn newest(&self) -> BlockId {
        self.commits.back().map_or(self.base, |commit| commit.id)
    }

    /// Adds a commit on top of the newest one, which wrote `keys`: sorted and unique.
    ///
    /// # Panics
    ///
    /// If its number does not follow.
    pub(crate) fn push(&mut self, id: BlockId, keys: Vec<B256>) {
        assert_eq!(id.number, self.newest().number + 1, "commits are in order");
        let commit = RecentCommit { id, keys };
        self.bytes += commit.bytes();
        self.commits.push_back(commit);
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.commits.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes();
            self.base = oldest.id;
        }
    }

    /// Forgets the commits above `id`, which is the newest one now.
    pub(crate) fn roll_back_to(&mut self, id: BlockId) {
        while let Some(newest) = self
            .commits
            .pop_back_if(|newest| newest.id.number > id.number)
        {
            self.bytes -= newest.bytes();
        }
        if self.newest() != id {
            *self = Self::new(id, self.bytes_max);
        }
    }

    /// Looks for a commit after `snapshot` that wrote what was read.
    pub(crate) fn validate(
        &self,
        snapshot: BlockId,
        reads: &SortedReads,
    ) -> Result<Option<Conflict>, NoWindow> {
        let after = self.after(snapshot)?;
        let conflict = self.commits.range(after..).find_map(|commit| {
            let (read, key) = reads.overlap(&commit.keys)?;
            let by = ConflictWriter::Commit(commit.id.number);
            Some(Conflict { read, key, by })
        });
        Ok(conflict)
    }

    /// Whether `snapshot` is a commit of the window, or the one before it; `None` if it is older.
    pub(crate) fn knows(&self, snapshot: BlockId) -> Option<bool> {
        match self.after(snapshot) {
            Ok(_) => Some(true),
            Err(NoWindow::NotCommitted) => Some(false),
            Err(NoWindow::TooOld { .. }) => None,
        }
    }

    /// The number of commits of the window up to `snapshot`, which are not after it.
    fn after(&self, snapshot: BlockId) -> Result<usize, NoWindow> {
        if snapshot.number < self.base.number {
            let oldest = self.base.number;
            return Err(NoWindow::TooOld { oldest });
        }
        let after = usize::try_from(snapshot.number - self.base.number).unwrap_or(usize::MAX);
        let there = match after.checked_sub(1) {
            None => Some(self.base),
            Some(at) => self.commits.get(at).map(|commit| commit.id),
        };
        match there == Some(snapshot) {
            true => Ok(after),
            false => Err(NoWindow::NotCommitted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{range::KeyRange, reads::ReadSet};

    fn id(number: u64, branch: u8) -> BlockId {
        BlockId::new(number, B256::left_padding_from(&[branch, number as u8]))
    }

    fn keys(bytes: &[u8]) -> Vec<B256> {
        bytes
            .iter()
            .map(|byte| B256::with_last_byte(*byte))
            .collect()
    }

    fn reads(read: &[u8], range: Option<(u8, u8)>) -> SortedReads {
        let mut reads = ReadSet::default();
        reads.add_keys(&keys(read));
        if let Some((from, through)) = range {
            let [from, through] = [from, through].map(B256::with_last_byte);
            reads.add_range(KeyRange::new(from, through).unwrap());
        }
        reads.sorted()
    }

    fn window() -> RecentCommits {
        let mut recent = RecentCommits::new(id(40, 0), 10_000);
        for (number, written) in [(41, &[1, 3][..]), (42, &[2]), (43, &[1, 6, 7]), (44, &[4])] {
            recent.push(id(number, 0), keys(written));
        }
        recent
    }

    #[test]
    fn a_transaction_conflicts_with_the_first_later_commit_that_wrote_what_it_read() {
        let recent = window();
        let conflict = |snapshot, reads| recent.validate(id(snapshot, 0), &reads).unwrap();
        let by = |snapshot, reads| conflict(snapshot, reads).map(|conflict| conflict.by);
        let commit = |number| Some(ConflictWriter::Commit(number));
        assert_eq!(by(40, reads(&[1], None)), commit(41));
        assert_eq!(by(41, reads(&[1], None)), commit(43));
        assert_eq!(by(43, reads(&[1], None)), None);
        assert_eq!(by(44, reads(&[4], Some((0, 255)))), None);
        assert_eq!(by(41, reads(&[3, 5], None)), None);
        let phantom = conflict(42, reads(&[], Some((5, 6)))).unwrap();
        assert_eq!(phantom.key, B256::with_last_byte(6));
        assert_eq!(
            phantom.to_string(),
            format!(
                "it had read the range {:#x} through {:#x}, and in it the key {:#x} was written by \
                 commit 43",
                B256::with_last_byte(5),
                B256::with_last_byte(6),
                B256::with_last_byte(6)
            )
        );
    }

    #[test]
    fn snapshots_before_the_window_are_too_old_and_others_unknown() {
        let recent = window();
        let failure = |id| recent.validate(id, &reads(&[9], None)).unwrap_err();
        assert_eq!(failure(id(39, 0)), NoWindow::TooOld { oldest: 40 });
        for unknown in [id(45, 0), id(43, 1), id(40, 1)] {
            assert_eq!(failure(unknown), NoWindow::NotCommitted);
            assert_eq!(recent.knows(unknown), Some(false));
        }
        assert_eq!(recent.knows(id(44, 0)), Some(true));
        assert_eq!(recent.knows(id(39, 0)), None);
    }

    #[test]
    fn the_window_keeps_within_its_bytes_and_forgets_the_oldest_first() {
        let of_one = (size_of::<RecentCommit>() + 10 * 32) as u64;
        let mut recent = RecentCommits::new(id(0, 0), 3 * of_one);
        for number in 1..=10 {
            recent.push(id(number, 0), keys(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
            assert!(recent.bytes <= 3 * of_one);
        }
        let oldest = recent.after(id(0, 0)).unwrap_err();
        assert_eq!(oldest, NoWindow::TooOld { oldest: 7 });
        assert_eq!(recent.after(id(7, 0)), Ok(0));
        // A commit that alone is too large leaves nothing to validate earlier snapshots with.
        let mut recent = RecentCommits::new(id(0, 0), of_one - 1);
        recent.push(id(1, 0), keys(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
        assert_eq!((recent.newest(), recent.bytes), (id(1, 0), 0));
        assert_eq!(recent.after(id(0, 0)), Err(NoWindow::TooOld { oldest: 1 }));
    }

    #[test]
    fn what_is_rolled_back_is_no_snapshot_any_more() {
        let mut recent = window();
        recent.roll_back_to(id(42, 0));
        assert_eq!(recent.newest(), id(42, 0));
        assert_eq!(recent.after(id(43, 0)), Err(NoWindow::NotCommitted));
        recent.push(id(43, 1), keys(&[8]));
        assert_eq!(recent.after(id(43, 0)), Err(NoWindow::NotCommitted));
        assert_eq!(recent.after(id(43, 1)), Ok(3));
        // Below the base, nothing of the window is left.
        recent.roll_back_to(id(12, 0));
        assert_eq!(recent.after(id(12, 0)), Ok(0));
        assert_eq!((recent.bytes, recent.newest()), (0, id(12, 0)));
        assert_eq!(recent.after(id(41, 0)), Err(NoWindow::NotCommitted));
    }
}
