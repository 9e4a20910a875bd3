//! Worker threads that take the steps of a block from one queue, those with most gas first.

use super::{
    parent::Parent,
    state::{ListState, ListStateError},
};
use crate::{
    BlockInput, ExecutionError, StateRead,
    access_list::Unlisted,
    executor::Timed,
    overlay::{Overlay, OverlayMode},
    step::{StepRunner, TransactionResult, set_blooms},
    system::ContractRequest,
};
use alloy_consensus::Transaction as _;
use std::{
    cmp::Reverse,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::Sender,
    },
    time::Instant,
};

/// The result of a step besides its changes.
pub(super) enum StepResult {
    Before,
    Transaction(Box<TransactionResult>),
    After(Vec<ContractRequest>),
}

/// A step whose changes are all in the list.
pub(super) struct Step {
    pub(super) result: StepResult,
    /// Number of changes that it made.
    pub(super) changes: u64,
    pub(super) unlisted: Vec<Unlisted>,
}

/// Indices of some steps with their results; `None` for a step that failed or differs from the
/// list.
pub(super) type StepsDone = Vec<(usize, Option<Step>)>;

/// Number of steps that a thread sends together: waking the receiver takes as long as a short step.
const STEPS_TOGETHER: usize = 64;

/// The queue of a block's steps.
pub(super) struct Work<'a, DB> {
    input: &'a BlockInput<'a>,
    parent: &'a Parent<'a, DB>,
    order: Vec<usize>,
    next: AtomicUsize,
    stopped: AtomicBool,
    timed: Option<Timed<'a>>,
}

type Runner<'a, DB> = StepRunner<'a, ListState<'a, DB>>;
type StepError<DB> = ExecutionError<ListStateError<<DB as revm::DatabaseRef>::Error>>;

impl<'a, DB: StateRead + Sync> Work<'a, DB> {
    pub(super) fn new(
        input: &'a BlockInput<'a>,
        parent: &'a Parent<'a, DB>,
        timed: Option<Timed<'a>>,
    ) -> Self {
        let last = input.transactions.len() + 1;
        let mut order: Vec<_> = (0..=last).collect();
        // The steps around the transactions have no gas limit: they go first.
        order.sort_by_key(|at| {
            let transaction = at.checked_sub(1).and_then(|at| input.transactions.get(at));
            Reverse(transaction.map_or(u64::MAX, |transaction| transaction.gas_limit()))
        });
        Self {
            input,
            parent,
            order,
            next: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            timed,
        }
    }

    /// Number of steps.
    pub(super) const fn steps(&self) -> usize {
        self.order.len()
    }

    /// Stops the workers: no further step starts.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Runs steps until none is left.
    pub(super) fn run(&'a self, done: &Sender<StepsDone>) {
        let (mut runner, mut together) = (None, Vec::new());
        while !self.stopped.load(Ordering::Relaxed) {
            let next = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(at) = self.order.get(next) else {
                break;
            };
            let start = Instant::now();
            let step = self.step(&mut runner, *at);
            if let Some(timed) = self.timed
                && let Some(index) = at.checked_sub(1)
                && index < self.input.transactions.len()
            {
                timed(index, start.elapsed());
            }
            if step.is_none() {
                self.stop();
            }
            together.push((*at, step));
            if together.len() == STEPS_TOGETHER && !hand_on(&mut together, done) {
                return;
            }
        }
        hand_on(&mut together, done);
    }

    fn step(&'a self, runner: &mut Option<Runner<'a, DB>>, at: usize) -> Option<Step> {
        let state = ListState {
            parent: self.parent,
            at: at as u64,
        };
        let runner = match runner {
            Some(runner) => {
                runner.overlay().begin_again(state);
                runner
            }
            None => {
                let mode = OverlayMode {
                    record: true,
                    ..OverlayMode::of(&self.input.rules)
                };
                runner.insert(StepRunner::new(self.input, Overlay::new(state, mode)))
            }
        };
        let result = self.result(runner, at).ok()?;
        let accesses = runner.end()?;
        let mut unlisted = Vec::new();
        let index = self.parent.given().index();
        let changes = index.changes_of(&accesses, at as u64, &mut unlisted)?;
        Some(Step {
            result,
            changes,
            unlisted,
        })
    }

    fn result(&self, runner: &mut Runner<'a, DB>, at: usize) -> Result<StepResult, StepError<DB>> {
        Ok(match at.checked_sub(1) {
            None => {
                runner.before()?;
                StepResult::Before
            }
            Some(index) if index < self.input.transactions.len() => {
                StepResult::Transaction(Box::new(runner.transaction(index)?))
            }
            Some(_) => StepResult::After(runner.after()?),
        })
    }
}

/// Sends steps. Returns whether there is a receiver.
fn hand_on(together: &mut StepsDone, done: &Sender<StepsDone>) -> bool {
    let results = together.iter_mut().filter_map(|(_, step)| match step {
        Some(Step {
            result: StepResult::Transaction(result),
            ..
        }) => Some(&mut **result),
        _ => None,
    });
    set_blooms(results);
    done.send(std::mem::take(together)).is_ok()
}
