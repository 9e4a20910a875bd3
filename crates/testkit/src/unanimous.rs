//! Execution by all executors, whose outcomes must be equal.

use crate::scouted::scout;
use alloy_primitives::{B256, Bytes};
use cambium_evm::{
    BlockExecutor, BlockInput, ExecutionCounts, ExecutionError, Executor, ExecutorKind, Hooks,
    Outcome, Sequential, StateRead, account,
};
use cambium_primitives::{AccessList, Changes, PreStateValues};
use revm::primitives::hardfork::SpecId;
use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// Executes blocks sequentially, then by all other executors, with the access list that came with
/// the block and with the true one. Panics if an outcome or error differs. Executors by lists take turns where
/// a block has no list, since they all run it sequentially, and for blocks that use [`HEAVY_GAS`].
#[derive(Clone, Debug, Default)]
pub struct Unanimous {
    counts: Arc<Counts>,
    is_thorough: bool,
}

#[derive(Debug, Default)]
struct Counts {
    listed: AtomicUsize,
    ahead: AtomicUsize,
    /// Number of executions by access lists.
    by_lists: AtomicUsize,
    /// Number of executions by the optimistic executor.
    optimistic: AtomicUsize,
    /// Number of choices among the executors by lists.
    turns: AtomicUsize,
}

/// Numbers of threads, which executions take in turn.
const THREADS: [usize; 4] = [1, 2, 16, 64];

/// Gas used from which on a block takes each executor up to seconds.
const HEAVY_GAS: u64 = 30_000_000;

/// The executors that use access lists.
const BY_LISTS: [ExecutorKind; 3] = [
    ExecutorKind::Full,
    ExecutorKind::Batched,
    ExecutorKind::Parallel,
];

impl Unanimous {
    /// Executes each block by the optimistic executor with all numbers of threads: it is the one whose threads depend on
    /// each other. For blocks that are made for it, since it takes a while.
    pub fn thorough() -> Self {
        Self {
            is_thorough: true,
            ..Self::default()
        }
    }

    /// Returns how many blocks were executed in parallel by a true access list.
    pub fn listed(&self) -> usize {
        self.counts.listed.load(Ordering::Relaxed)
    }

    /// Returns how many transactions ran ahead of their commit position with reads that were still
    /// valid there.
    pub fn ahead(&self) -> usize {
        self.counts.ahead.load(Ordering::Relaxed)
    }

    /// One of the executors by lists, and the optimistic one.
    fn in_turn(&self) -> [ExecutorKind; 2] {
        let turn = self.counts.turns.fetch_add(1, Ordering::Relaxed);
        [BY_LISTS[turn % BY_LISTS.len()], ExecutorKind::Optimistic]
    }

    fn next_threads(&self) -> usize {
        let number = self.counts.by_lists.fetch_add(1, Ordering::Relaxed);
        // Kinds take turns as well.
        THREADS[(number + number / THREADS.len()) % THREADS.len()]
    }

    /// Executes the block by all of `kinds`, with the list in `input`, and compares the results.
    pub fn compare<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: &DB,
        expected: &Result<Outcome, ExecutionError<DB::Error>>,
        kinds: &[ExecutorKind],
    ) {
        let true_list = expected.as_ref().ok().and_then(|o| o.access_list.as_ref());
        for kind in kinds {
            let found = input.access_list.map(|list| found_values(list, db));
            let input = BlockInput {
                pre_state: found.as_ref(),
                ..*input
            };
            if *kind == ExecutorKind::Optimistic {
                let number = self.counts.optimistic.fetch_add(1, Ordering::Relaxed);
                let one = number % THREADS.len();
                let chosen = match self.is_thorough {
                    true => &THREADS[..],
                    false => &THREADS[one..=one],
                };
                for &threads in chosen {
                    let mut seen = Seen::default();
                    same(*kind, &run(*kind, threads, &input, db, &mut seen), expected);
                    let ahead = seen.counts.parallel;
                    self.counts
                        .ahead
                        .fetch_add(ahead as usize, Ordering::Relaxed);
                }
                continue;
            }
            let mut seen = Seen::default();
            let got = run(*kind, self.next_threads(), &input, db, &mut seen);
            same(*kind, &got, expected);
            let is_true = input.access_list.is_some() && input.access_list == true_list;
            if is_true && input.rules.is(SpecId::CANCUN) {
                if seen.counts.again > 0 {
                    assert!(has_empty_account(true_list, db), "{kind:?} gives up");
                    continue;
                }
                self.counts.listed.fetch_add(1, Ordering::Relaxed);
                let outcome = expected.as_ref().expect("it has a list");
                let claimed = seen.claimed.expect("the list claims changes");
                assert_eq!(claimed.0, outcome.changes, "changes by the list, {kind:?}");
                assert_eq!(claimed.1, outcome.codes, "codes by the list, {kind:?}");
            }
            if *kind == ExecutorKind::Parallel
                && let Some(list) = true_list.filter(|_| input.rules.is(SpecId::CANCUN))
            {
                let changes = list.changes_only();
                let input = BlockInput {
                    access_list: Some(&changes),
                    ..input
                };
                let mut seen = Seen::default();
                let got = run(*kind, self.next_threads(), &input, db, &mut seen);
                same(*kind, &got, expected);
                let gives_up = seen.counts.again > 0;
                assert!(
                    !gives_up || has_empty_account(true_list, db),
                    "{kind:?} gives up, given changes alone"
                );
            }
        }
    }
}

/// Whether an account in the list exists and is empty. Touching it deletes it, which no list says.
fn has_empty_account<DB: StateRead + Sync>(list: Option<&AccessList>, db: &DB) -> bool {
    let mut accounts = list.into_iter().flat_map(AccessList::accounts);
    accounts.any(|listed| {
        let account = db.basic_ref(listed.address);
        account.is_ok_and(|account| account.is_some_and(|account| account.is_empty()))
    })
}

#[derive(Default)]
struct Seen {
    claimed: Option<(Changes, Vec<(B256, Bytes)>)>,
    counts: ExecutionCounts,
}

fn run<DB: StateRead + Sync>(
    kind: ExecutorKind,
    threads: usize,
    input: &BlockInput<'_>,
    db: &DB,
    seen: &mut Seen,
) -> Result<Outcome, ExecutionError<DB::Error>> {
    let threads = NonZeroUsize::new(threads).expect("a thread");
    let executor = BlockExecutor::new(kind).with_threads(threads);
    let mut claimed = |changes: &Changes, codes: &[(B256, Bytes)]| {
        seen.claimed = Some((changes.clone(), codes.to_vec()));
    };
    let hooks = Hooks {
        claimed: Some(&mut claimed),
        counts: Some(&mut seen.counts),
        ..Hooks::default()
    };
    executor.with_gas_min(0).execute(input, db, hooks)
}

fn found_values<DB: StateRead + Sync>(list: &AccessList, db: &DB) -> PreStateValues {
    let read = PreStateValues::read(
        list,
        |address| Ok::<_, DB::Error>(db.basic_ref(address)?.as_ref().map(account)),
        |address, slot| db.storage_ref(address, slot),
    );
    let found = read.unwrap_or_else(|error| panic!("a state that can be read: {error}"));
    let decoded = PreStateValues::decode(&found.encode(), list);
    assert_eq!(decoded.as_ref(), Ok(&found));
    found
}

fn same<E: std::fmt::Display>(
    kind: ExecutorKind,
    got: &Result<Outcome, ExecutionError<E>>,
    expected: &Result<Outcome, ExecutionError<E>>,
) {
    match (got, expected) {
        (Ok(got), Ok(expected)) => assert_same_outcome(got, expected, &format!("{kind:?}")),
        (Err(got), Err(expected)) => {
            assert_eq!(got.to_string(), expected.to_string(), "{kind:?}");
        }
        (Ok(_), Err(error)) => panic!("{kind:?} does what should fail: {error}"),
        (Err(error), Ok(_)) => panic!("{kind:?} fails: {error}"),
    }
}

/// Panics with `who` in the message unless both outcomes are equal in every field.
pub fn assert_same_outcome(got: &Outcome, expected: &Outcome, who: &str) {
    assert_eq!(got.receipts, expected.receipts, "{who}");
    assert_eq!(got.gas_used, expected.gas_used, "{who}");
    assert_eq!(got.blob_gas_used, expected.blob_gas_used, "{who}");
    assert_eq!(got.requests, expected.requests, "{who}");
    assert_eq!(got.changes, expected.changes, "{who}");
    assert_eq!(got.codes, expected.codes, "{who}");
    assert_eq!(got.access_list, expected.access_list, "{who}");
}

impl Executor for Unanimous {
    fn execute<DB: StateRead + Sync>(
        &self,
        input: &BlockInput<'_>,
        db: DB,
        hooks: Hooks<'_, DB::Error>,
    ) -> Result<Outcome, ExecutionError<DB::Error>> {
        let all = &ExecutorKind::ALL[1..];
        let outcome = Sequential.execute(input, &db, hooks);
        if !input.rules.is(SpecId::BYZANTIUM) {
            return outcome;
        }
        let gas_used = outcome.as_ref().map_or(0, |outcome| outcome.gas_used);
        let is_heavy = gas_used >= HEAVY_GAS && !self.is_thorough;
        let some = self.in_turn();
        let kinds = if is_heavy { &some[..] } else { all };
        let without_list = match is_heavy {
            // The one by lists follows with the true list.
            true => &some[1..],
            false => &some,
        };
        let first = match input.access_list {
            Some(_) => kinds,
            None => without_list,
        };
        self.compare(input, &db, &outcome, first);
        let mut recorded = *input;
        recorded.rules.block_access_list = true;
        let with_list = Sequential.execute(&recorded, &db, Hooks::default());
        let list = with_list.as_ref().ok().and_then(|o| o.access_list.as_ref());
        if let Some(list) = list {
            scout(input, &db, list);
        }
        if list.is_some() && list != input.access_list {
            let input = BlockInput {
                access_list: list,
                ..recorded
            };
            self.compare(&input, &db, &with_list, kinds);
        }
        outcome
    }
}
