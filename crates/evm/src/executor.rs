//! The interface of executors.

use crate::{BlockInput, ExecutionError, Outcome, StateRead};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::Changes;
use std::time::Duration;

/// Executes blocks. All executors return the same outcomes and the same errors.
pub trait Executor {
    /// Executes a block on its parent's state `db`.
    ///
    /// # Errors
    ///
    /// If the block is invalid, or the state can't be read.
    fn execute<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>>;
}

/// Callbacks of an executor.
pub struct Hooks<'a, E> {
    /// Computes the state root after each transaction, which receipts contain before Byzantium.
    pub roots: Option<RootAfter<'a, E>>,
    /// Receives the state diff claimed by the block's access list while transactions still run.
    pub claimed: Option<ClaimedChanges<'a>>,
    /// Counters to add to.
    pub counts: Option<&'a mut ExecutionCounts>,
    /// Receives the execution time of each transaction that is executed by access list.
    pub timed: Option<Timed<'a>>,
}

/// Counts of transactions that were executed in parallel. A transaction that was executed in
/// sequence from the start is in neither count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutionCounts {
    /// Transactions whose parallel execution was used.
    pub parallel: u64,
    /// Transactions that were executed again in sequence, because their parallel execution could
    /// not be used.
    pub again: u64,
}

impl std::ops::AddAssign for ExecutionCounts {
    fn add_assign(&mut self, other: Self) {
        self.parallel += other.parallel;
        self.again += other.again;
    }
}

/// Computes the state root after a transaction, for receipts before Byzantium. It receives the
/// changes since the previous call; the first call receives those since the block's parent.
pub type RootAfter<'a, E> = &'a mut dyn FnMut(&Changes) -> Result<B256, E>;

/// Receives the state diff claimed by the block's access list, and the codes in it. The list is
/// untrusted: the claim holds only if the [`Outcome`] has the same changes and codes.
pub type ClaimedChanges<'a> = &'a mut dyn FnMut(&Changes, &[(B256, Bytes)]);

/// Receives the index of a transaction in the block and its execution time, on the thread that
/// executed it.
pub type Timed<'a> = &'a (dyn Fn(usize, Duration) + Sync);

impl<E> Default for Hooks<'_, E> {
    fn default() -> Self {
        Self {
            roots: None,
            claimed: None,
            counts: None,
            timed: None,
        }
    }
}
