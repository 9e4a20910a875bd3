//! Choice of an executor at run time.

use crate::{
    BlockInput, ExecutionError, Executor, Hooks, ListReads, Listed, Optimistic, Outcome,
    Sequential, StateRead,
};
use alloy_consensus::Transaction as _;
use alloy_primitives::map::HashMap;
use std::{num::NonZeroUsize, thread};

/// How a block's transactions are executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ExecutorKind {
    /// For each block as suits it: [`ExecutorKind::for_block`].
    #[default]
    Auto,
    /// Runs transactions one after another.
    Sequential,
    /// In parallel, given an access list and pre-state values for all keys in it.
    Full,
    /// In parallel, given an access list with the changes and all keys that the block touches.
    Batched,
    /// In parallel, given the changes of an access list.
    Parallel,
    /// In parallel without an access list: speculatively, before their commit position.
    Optimistic,
}

/// Number of threads from which [`ExecutorKind::Auto`] runs blocks without lists speculatively. On
/// fewer, recovering senders, reading ahead and computing roots leave no processor idle for it.
pub const OPTIMISTIC_THREADS_MIN: usize = 4;

impl ExecutorKind {
    /// Every kind but [`ExecutorKind::Auto`], the sequential executor first.
    pub const ALL: [Self; 5] = [
        Self::Sequential,
        Self::Full,
        Self::Batched,
        Self::Parallel,
        Self::Optimistic,
    ];

    /// The kind to execute a block with on `threads` threads. [`ExecutorKind::Auto`] becomes
    /// [`Parallel`](Self::Parallel) for a block that comes with an access list; without one
    /// [`Optimistic`](Self::Optimistic) from [`OPTIMISTIC_THREADS_MIN`] threads on, and
    /// [`Sequential`](Self::Sequential) on fewer. Any other kind is kept. Where `Optimistic` is the
    /// answer, a caller with several blocks leaves the choice to a
    /// [`MeasuredChoice`](crate::MeasuredChoice).
    #[must_use]
    pub const fn for_block(self, has_list: bool, threads: usize) -> Self {
        match self {
            Self::Auto if has_list => Self::Parallel,
            Self::Auto if threads >= OPTIMISTIC_THREADS_MIN => Self::Optimistic,
            Self::Auto => Self::Sequential,
            kind => kind,
        }
    }
}

/// An executor of any kind.
#[derive(Clone, Copy, Debug)]
pub struct BlockExecutor {
    /// The kind of executor.
    pub kind: ExecutorKind,
    /// Number of threads that transactions run on.
    pub threads: NonZeroUsize,
    /// A block whose transactions have lower gas limits in sum is executed sequentially by every
    /// kind. Zero also turns off every other heuristic that prefers sequential execution.
    pub gas_min: u64,
}

/// Default of [`BlockExecutor::gas_min`], in gas. Waking threads takes about 0.2 ms. In that time
/// one thread executes about 300,000 gas of real blocks whose state is in memory, and blocks use
/// about half of their gas limits.
pub const PARALLEL_GAS_MIN: u64 = 1_000_000;

impl BlockExecutor {
    /// An executor with as many threads as there are processors.
    pub fn new(kind: ExecutorKind) -> Self {
        let threads = thread::available_parallelism();
        Self {
            kind,
            threads: threads.unwrap_or(NonZeroUsize::MIN),
            gas_min: PARALLEL_GAS_MIN,
        }
    }

    /// Sets the number of threads.
    #[must_use]
    pub fn with_threads(self, threads: NonZeroUsize) -> Self {
        Self { threads, ..self }
    }

    /// Sets [`Self::gas_min`].
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

impl BlockExecutor {
    /// The kind that executes a block: [`Self::kind`] as [`ExecutorKind::for_block`] resolves it, or
    /// [`ExecutorKind::Sequential`] if nothing in the block is worth executing in parallel.
    pub fn kind_for(&self, input: &BlockInput<'_>) -> ExecutorKind {
        let limits = gas_limits(input);
        let has_list = input.access_list.is_some();
        match self.kind.for_block(has_list, self.threads.get()) {
            _ if limits < self.gas_min => ExecutorKind::Sequential,
            ExecutorKind::Optimistic if self.gas_min > 0 && is_one_senders(input, limits) => {
                ExecutorKind::Sequential
            }
            kind => kind,
        }
    }
}

impl Executor for BlockExecutor {
    fn execute<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>> {
        let threads = self.threads;
        let reads = match self.kind_for(input) {
            ExecutorKind::Auto | ExecutorKind::Sequential => {
                return Sequential.execute(input, db, hooks);
            }
            ExecutorKind::Optimistic => return Optimistic { threads }.execute(input, db, hooks),
            ExecutorKind::Full => ListReads::Values,
            ExecutorKind::Batched => ListReads::Keys,
            ExecutorKind::Parallel => ListReads::Changes,
        };
        Listed { reads, threads }.execute(input, db, hooks)
    }
}

/// Whether one sender's transactions have more than half of the block's gas limits. They depend on
/// each other, and the rest of the block does not make up for the cost of running ahead.
fn is_one_senders(input: &BlockInput<'_>, limits: u64) -> bool {
    let mut by_sender = HashMap::<_, u64>::default();
    let transactions = input.senders.iter().zip(input.transactions);
    transactions.into_iter().any(|(sender, transaction)| {
        let sum = by_sender.entry(*sender).or_default();
        *sum = sum.saturating_add(transaction.gas_limit());
        *sum > limits / 2
    })
}

/// Sum of the transactions' gas limits.
fn gas_limits(input: &BlockInput<'_>) -> u64 {
    let limits = input
        .transactions
        .iter()
        .map(|transaction| transaction.gas_limit());
    limits.fold(0, u64::saturating_add)
}
