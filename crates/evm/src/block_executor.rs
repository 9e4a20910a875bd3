//! The executors by name, and an executor of any kind.

use crate::{
    BlockInput, ExecutionError, Executor, Hooks, ListReads, Listed, Optimistic, Outcome,
    Sequential, StateRead,
};
use alloy_consensus::Transaction as _;
use alloy_primitives::map::HashMap;
use std::{num::NonZeroUsize, thread};

/// Which executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExecutorKind {
    /// One transaction after another.
    #[default]
    Sequential,
    /// Transactions in parallel, given what they change and all values that they find.
    Full,
    /// Transactions in parallel, given what they change and all keys that they touch.
    Batched,
    /// Transactions in parallel, given what they change.
    Parallel,
    /// Transactions ahead of their turn, given nothing.
    Optimistic,
}

impl ExecutorKind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Sequential,
        Self::Full,
        Self::Batched,
        Self::Parallel,
        Self::Optimistic,
    ];
}

/// An executor of any kind.
#[derive(Clone, Copy, Debug)]
pub struct BlockExecutor {
    /// Which.
    pub kind: ExecutorKind,
    /// Threads that transactions run on, besides the caller's.
    pub threads: NonZeroUsize,
    /// Blocks whose transactions' gas limits come to less are executed sequentially whatever the
    /// kind. If it is zero, nothing else is looked at either to tell whether the kind is worth it.
    pub gas_min: u64,
}

/// Blocks of less are not worth waking threads for: that takes some 0.2 ms, in which a thread
/// executes about 300,000 gas of real blocks whose state is in memory, and about half of what
/// limits allow is used.
pub const PARALLEL_GAS_MIN: u64 = 1_000_000;

impl BlockExecutor {
    /// On as many threads as there are processors.
    pub fn new(kind: ExecutorKind) -> Self {
        let threads = thread::available_parallelism();
        Self {
            kind,
            threads: threads.unwrap_or(NonZeroUsize::MIN),
            gas_min: PARALLEL_GAS_MIN,
        }
    }

    /// On so many threads.
    #[must_use]
    pub fn with_threads(self, threads: NonZeroUsize) -> Self {
        Self { threads, ..self }
    }

    /// Executes smaller blocks in parallel, too, or fewer.
    #[must_use]
    pub const fn with_gas_min(self, gas_min: u64) -> Self {
        Self { gas_min, ..self }
    }
}

impl Default for BlockExecutor {
    fn default() -> Self {
        Self::new(ExecutorKind::default())
    }
}

impl Executor for BlockExecutor {
    fn execute<DB: StateRead>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>> {
        let threads = self.threads;
        let limits = gas_limits(input);
        let reads = match self.kind {
            _ if limits < self.gas_min => None,
            ExecutorKind::Sequential => None,
            ExecutorKind::Full => Some(ListReads::Values),
            ExecutorKind::Batched => Some(ListReads::Keys),
            ExecutorKind::Parallel => Some(ListReads::Changes),
            ExecutorKind::Optimistic if self.gas_min > 0 && is_one_senders(input, limits) => None,
            ExecutorKind::Optimistic => {
                return Optimistic { threads }.execute(input, db, hooks);
            }
        };
        match reads {
            None => Sequential.execute(input, db, hooks),
            Some(reads) => Listed { reads, threads }.execute(input, db, hooks),
        }
    }
}

/// Whether one sender's transactions have more than half of the gas limits. They wait for each
/// other, and there is not enough besides to make up for running it ahead.
fn is_one_senders(input: &BlockInput<'_>, limits: u64) -> bool {
    let mut by_sender = HashMap::<_, u64>::default();
    let transactions = input.senders.iter().zip(input.transactions);
    transactions.into_iter().any(|(sender, transaction)| {
        let sum = by_sender.entry(*sender).or_default();
        *sum = sum.saturating_add(transaction.gas_limit());
        *sum > limits / 2
    })
}

/// Gas that a block's transactions may use together.
fn gas_limits(input: &BlockInput<'_>) -> u64 {
    let limits = input
        .transactions
        .iter()
        .map(|transaction| transaction.gas_limit());
    limits.fold(0, u64::saturating_add)
}
