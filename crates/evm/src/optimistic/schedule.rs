//! Which transaction a thread runs next.
//!
//! The *turn* is the first transaction that is not taken in. Whatever else threads do, one of them
//! sees to the turn as soon as that can be done; the others run transactions ahead of it.

use alloy_primitives::{Address, map::HashMap};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How far ahead of the turn transactions are run, for each thread. What ran long ago is more
/// likely to have run on what is no longer so.
const AHEAD_PER_THREAD: usize = 16;

/// What a thread is to do.
pub(super) enum Job<R> {
    /// See to the turn, with what running it ahead gave, if it was.
    Turn(usize, Option<R>),
    /// Run a transaction ahead of its turn.
    Ahead(usize),
}

pub(super) struct Schedule<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
    /// For each transaction the last one before it of the same sender, on whose nonce it depends.
    depends_on: Vec<Option<usize>>,
    ahead_max: usize,
}

struct State<R> {
    turn: usize,
    turn_is_taken: bool,
    stopped: bool,
    transactions: Vec<Stage<R>>,
}

enum Stage<R> {
    Waiting,
    Running,
    /// It ran ahead; `None` if that came to nothing.
    Ran(Option<R>),
    /// A thread has it that sees to its turn, or has seen to it.
    Taken,
}

impl<R> Schedule<R> {
    pub(super) fn new(senders: &[Address], threads: usize) -> Self {
        let mut last = HashMap::<_, _>::default();
        let senders = senders.iter().enumerate();
        let depends_on: Vec<_> = senders
            .map(|(index, sender)| last.insert(*sender, index))
            .collect();
        Self {
            state: Mutex::new(State {
                turn: 0,
                turn_is_taken: false,
                stopped: false,
                transactions: depends_on.iter().map(|_| Stage::Waiting).collect(),
            }),
            changed: Condvar::new(),
            depends_on,
            ahead_max: threads.saturating_mul(AHEAD_PER_THREAD),
        }
    }

    /// Waits for something to do. `None` if there is nothing left.
    pub(super) fn next(&self) -> Option<Job<R>> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.turn == self.depends_on.len() {
                return None;
            }
            if let Some(job) = state.take_turn().or_else(|| self.take_ahead(&mut state)) {
                return Some(job);
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take_ahead(&self, state: &mut State<R>) -> Option<Job<R>> {
        let end = (state.turn + self.ahead_max).min(self.depends_on.len());
        let has_run = |index: usize| match state.transactions[index] {
            Stage::Ran(_) => true,
            Stage::Taken => index < state.turn,
            Stage::Waiting | Stage::Running => false,
        };
        let index = (state.turn..end).find(|index| {
            matches!(state.transactions[*index], Stage::Waiting)
                && self.depends_on[*index].is_none_or(has_run)
        })?;
        state.transactions[index] = Stage::Running;
        Some(Job::Ahead(index))
    }

    /// A transaction has run ahead of its turn.
    pub(super) fn ran(&self, index: usize, result: Option<R>) {
        self.lock().transactions[index] = Stage::Ran(result);
        self.changed.notify_all();
    }

    /// The turn is seen to.
    pub(super) fn turn_is_done(&self) {
        let mut state = self.lock();
        state.turn += 1;
        state.turn_is_taken = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing more is to be done.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> State<R> {
    fn take_turn(&mut self) -> Option<Job<R>> {
        let turn = self.turn;
        if self.turn_is_taken || matches!(self.transactions[turn], Stage::Running) {
            return None;
        }
        self.turn_is_taken = true;
        let stage = std::mem::replace(&mut self.transactions[turn], Stage::Taken);
        Some(match stage {
            Stage::Ran(result) => Job::Turn(turn, result),
            _ => Job::Turn(turn, None),
        })
    }
}
