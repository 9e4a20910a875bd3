//! What all executors have in common.

use crate::{BlockInput, ExecutionError, Outcome, StateRead};
use alloy_primitives::{B256, Bytes};
use cambium_primitives::Changes;
use std::time::Duration;

/// Executes blocks. All executors give equal outcomes, and equal errors.
pub trait Executor {
    /// Executes a block on its parent's state.
    fn execute<DB: StateRead>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>>;
}

/// What an executor calls while it executes.
pub struct Hooks<'a, E> {
    /// Asked for the state's root after each transaction if receipts hold it, so before Byzantium.
    pub roots: Option<RootAfter<'a, E>>,
    /// Told, while transactions still run, what the block's access list says that it changes.
    pub foretold: Option<Foretold<'a>>,
    /// Where to add what executing in parallel came to.
    pub counts: Option<&'a mut ExecutionCounts>,
    /// Told of each transaction executed by an access list how long that took, by its place in
    /// the block: on the thread that executed it.
    pub timed: Option<Timed<'a>>,
}

/// What executing in parallel came to. Transactions that were executed in sequence from the start
/// are in neither count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecutionCounts {
    /// Transactions executed in parallel with others.
    pub parallel: u64,
    /// Transactions executed again in sequence, since that was in vain.
    pub again: u64,
}

impl std::ops::AddAssign for ExecutionCounts {
    fn add_assign(&mut self, other: Self) {
        self.parallel += other.parallel;
        self.again += other.again;
    }
}

/// Gives the state's root in mid-block, for receipts before Byzantium. It is told what has
/// changed since it was last asked, first since the block's parent.
pub type RootAfter<'a, E> = &'a mut dyn FnMut(&Changes) -> Result<B256, E>;

/// Takes all that a block changes, and codes that come with it, as far as its access list tells:
/// it may lie. If the outcome has the same changes, it did not.
pub type Foretold<'a> = &'a mut dyn FnMut(&Changes, &[(B256, Bytes)]);

/// Takes how long the transaction at a place took.
pub type Timed<'a> = &'a (dyn Fn(usize, Duration) + Sync);

impl<E> Default for Hooks<'_, E> {
    fn default() -> Self {
        Self {
            roots: None,
            foretold: None,
            counts: None,
            timed: None,
        }
    }
}
