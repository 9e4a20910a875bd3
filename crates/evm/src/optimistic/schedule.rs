//! Which transactions a thread runs next.
//!
//! Transactions are handed out in *portions*: consecutive ones that together are worth meeting
//! other threads for. The *turn* is the first portion that is not taken in. Whatever else threads
//! do, one of them sees to the turn as soon as that can be done; the others run portions ahead of
//! it.

use alloy_primitives::{Address, map::HashMap};
use std::{
    ops::Range,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// How many portions ahead of the turn are run, for each thread, and half as many for each that
/// ran in vain lately. What ran long ago is more likely to have run on what is no longer so.
const AHEAD_PER_THREAD: usize = 8;

/// Gas limits of a portion, unless it is a single transaction. The more transactions have run
/// side by side, the likelier is one to have run without what another left.
const PORTION_GAS: u64 = 400_000;

/// After so many portions, less those that did well meanwhile, of which most ran ahead in vain ...
const VAIN_MAX: usize = 4;
/// ... none is run ahead for as many as this.
const PAUSE: usize = 32;

/// What a thread is to do with the transactions of a range.
pub(super) enum Job<R> {
    /// See to their turn, with what running them ahead gave, if that was done.
    Turn(Range<usize>, Option<R>),
    /// Run them ahead of their turn.
    Ahead(usize, Range<usize>),
}

pub(super) struct Schedule<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
    portions: Vec<Portion>,
    ahead_max: usize,
}

struct Portion {
    transactions: Range<usize>,
    /// Portions before it with transactions of the same senders, on whose nonces it depends.
    depends_on: Vec<usize>,
}

struct State<R> {
    turn: usize,
    turn_is_taken: bool,
    stopped: bool,
    /// Portions that ran ahead in vain lately.
    vain: usize,
    /// Portions before this one are not run ahead.
    paused_until: usize,
    /// Threads that wait for a change.
    waiting: usize,
    stages: Vec<Stage<R>>,
}

enum Stage<R> {
    Waiting,
    Running,
    Ran(R),
    /// A thread has it that sees to its turn, or has seen to it.
    Taken {
        ran_ahead: bool,
    },
}

impl<R> Schedule<R> {
    /// For transactions of these senders and gas limits.
    pub(super) fn new(
        senders: &[Address],
        gas_limits: impl Iterator<Item = u64>,
        threads: usize,
    ) -> Self {
        let portions = portions(senders, gas_limits);
        Self {
            state: Mutex::new(State {
                turn: 0,
                turn_is_taken: false,
                stopped: false,
                vain: 0,
                paused_until: 0,
                waiting: 0,
                stages: portions.iter().map(|_| Stage::Waiting).collect(),
            }),
            changed: Condvar::new(),
            portions,
            ahead_max: threads.saturating_mul(AHEAD_PER_THREAD),
        }
    }

    /// Waits for something to do. `None` if there is nothing left.
    pub(super) fn next(&self) -> Option<Job<R>> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.turn == self.portions.len() {
                return None;
            }
            if let Some(ran) = state.take_turn() {
                let transactions = self.portions[state.turn].transactions.clone();
                return Some(Job::Turn(transactions, ran));
            }
            if let Some(portion) = self.take_ahead(&mut state) {
                let transactions = self.portions[portion].transactions.clone();
                return Some(Job::Ahead(portion, transactions));
            }
            state.waiting += 1;
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    fn take_ahead(&self, state: &mut State<R>) -> Option<usize> {
        let portion = self.find_ahead(state)?;
        state.stages[portion] = Stage::Running;
        Some(portion)
    }

    /// The first portion that can be run ahead.
    fn find_ahead(&self, state: &State<R>) -> Option<usize> {
        let ahead_max = self.ahead_max >> state.vain;
        let end = (state.turn + ahead_max).min(self.portions.len());
        let has_run = |portion: &usize| match state.stages[*portion] {
            Stage::Ran(_) => true,
            Stage::Taken { ran_ahead } => ran_ahead || *portion < state.turn,
            Stage::Waiting | Stage::Running => false,
        };
        let start = state.turn.max(state.paused_until);
        (start..end).find(|portion| {
            matches!(state.stages[*portion], Stage::Waiting)
                && self.portions[*portion].depends_on.iter().all(has_run)
        })
    }

    /// A portion has run ahead of its turn.
    pub(super) fn ran(&self, portion: usize, result: R) {
        let mut state = self.lock();
        state.stages[portion] = Stage::Ran(result);
        self.tell(state);
    }

    /// The turn is seen to, of which `ran` transactions had run ahead, `vain` of them in vain.
    pub(super) fn turn_is_done(&self, ran: usize, vain: usize) {
        let mut state = self.lock();
        state.turn += 1;
        if ran > 0 {
            state.vain = match 3 * vain > 2 * ran {
                true => state.vain + 1,
                false => state.vain.saturating_sub(1),
            };
        }
        if state.vain == VAIN_MAX {
            // One more such portion afterwards is enough.
            state.vain = VAIN_MAX - 1;
            state.paused_until = state.turn + PAUSE;
        }
        state.turn_is_taken = false;
        self.tell(state);
    }

    /// Nothing more is to be done.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        self.tell(state);
    }

    /// Wakes threads that wait, if there are any, and something for them to do: that takes as long
    /// as a short transaction. The turn is nothing to wake for: this thread will see to it.
    fn tell(&self, state: MutexGuard<'_, State<R>>) {
        let is_over = state.stopped || state.turn == self.portions.len();
        let is_wanted = state.waiting > 0 && (is_over || self.find_ahead(&state).is_some());
        drop(state);
        if is_wanted {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> State<R> {
    /// The turn, if it can be seen to, with what running it ahead gave.
    fn take_turn(&mut self) -> Option<Option<R>> {
        let turn = &mut self.stages[self.turn];
        if self.turn_is_taken || matches!(turn, Stage::Running) {
            return None;
        }
        self.turn_is_taken = true;
        let ran_ahead = matches!(turn, Stage::Ran(_));
        match std::mem::replace(turn, Stage::Taken { ran_ahead }) {
            Stage::Ran(result) => Some(Some(result)),
            _ => Some(None),
        }
    }
}

fn portions(senders: &[Address], gas_limits: impl Iterator<Item = u64>) -> Vec<Portion> {
    let mut portions: Vec<Portion> = Vec::new();
    let mut last = HashMap::<_, _>::default();
    let mut gas_left = 0;
    for ((index, sender), gas) in senders.iter().enumerate().zip(gas_limits) {
        if gas > gas_left || portions.is_empty() {
            gas_left = PORTION_GAS;
            portions.push(Portion {
                transactions: index..index,
                depends_on: Vec::new(),
            });
        }
        gas_left = gas_left.saturating_sub(gas);
        let here = portions.len() - 1;
        let portion = &mut portions[here];
        portion.transactions.end = index + 1;
        if let Some(before) = last.insert(*sender, here)
            && before < here
        {
            portion.depends_on.push(before);
        }
    }
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(senders: &[u8], gas: &[u64]) -> Schedule<()> {
        let senders: Vec<_> = senders
            .iter()
            .map(|byte| Address::repeat_byte(*byte))
            .collect();
        Schedule::new(&senders, gas.iter().copied(), 1)
    }

    fn ahead(schedule: &Schedule<()>) -> Option<usize> {
        let mut state = schedule.lock();
        schedule.take_ahead(&mut state)
    }

    #[test]
    fn short_transactions_go_together_and_long_ones_alone() {
        let third = PORTION_GAS / 3;
        let schedule = schedule(&[1; 8], &[third, third, third, third, u64::MAX, 0, 1, 1]);
        let ranges: Vec<_> = schedule
            .portions
            .iter()
            .map(|p| p.transactions.clone())
            .collect();
        assert_eq!(ranges, [0..3, 3..4, 4..6, 6..8]);
    }

    #[test]
    fn a_sender_waits_for_what_it_sent_before() {
        let gas = [PORTION_GAS; 4];
        let schedule = schedule(&[1, 2, 1, 1], &gas);
        assert_eq!([ahead(&schedule), ahead(&schedule)], [Some(0), Some(1)]);
        assert_eq!(ahead(&schedule), None, "2 and 3 wait for 0");
        schedule.ran(1, ());
        assert_eq!(ahead(&schedule), None);
        schedule.ran(0, ());
        assert_eq!([ahead(&schedule), ahead(&schedule)], [Some(2), None]);
    }

    #[test]
    fn the_turn_comes_before_running_ahead_and_once() {
        let gas = [PORTION_GAS; 2];
        let schedule = schedule(&[1, 2], &gas);
        assert!(matches!(schedule.next(), Some(Job::Turn(range, None)) if range == (0..1)));
        assert!(matches!(schedule.next(), Some(Job::Ahead(1, _))));
        schedule.ran(1, ());
        schedule.turn_is_done(0, 0);
        assert!(matches!(schedule.next(), Some(Job::Turn(range, Some(()))) if range == (1..2)));
        schedule.turn_is_done(1, 0);
        assert!(schedule.next().is_none());
    }

    #[test]
    fn the_more_ran_in_vain_the_less_runs_ahead() {
        let count = 4 * AHEAD_PER_THREAD;
        let senders: Vec<_> = (0..count as u8).collect();
        let schedule = schedule(&senders, &vec![PORTION_GAS; count]);
        let farthest = || {
            let state = schedule.lock();
            let mut stages = state.stages.iter();
            stages.rposition(|stage| matches!(stage, Stage::Running))
        };
        while ahead(&schedule).is_some() {}
        assert_eq!(farthest(), Some(AHEAD_PER_THREAD - 1));
        (0..AHEAD_PER_THREAD).for_each(|portion| schedule.ran(portion, ()));
        for turn in 0..2 {
            assert!(
                matches!(schedule.next(), Some(Job::Turn(range, Some(()))) if range.start == turn)
            );
            schedule.turn_is_done(10, 7);
            assert_eq!(ahead(&schedule), None, "as many ran already");
        }
        for turn in 2..AHEAD_PER_THREAD {
            assert!(
                matches!(schedule.next(), Some(Job::Turn(range, Some(()))) if range.start == turn)
            );
            schedule.turn_is_done(10, 0);
        }
        while ahead(&schedule).is_some() {}
        assert_eq!(farthest(), Some(2 * AHEAD_PER_THREAD - 1));
    }

    #[test]
    fn what_runs_ahead_in_vain_is_given_up_for_a_while() {
        let count = 2 * PAUSE;
        let senders: Vec<_> = (0..count as u8).collect();
        let schedule = schedule(&senders, &vec![PORTION_GAS; count]);
        for turn in 0..VAIN_MAX {
            assert_eq!(ahead(&schedule), Some(turn));
            schedule.ran(turn, ());
            assert!(matches!(schedule.next(), Some(Job::Turn(_, Some(())))));
            schedule.turn_is_done(10, 7);
        }
        let mut first = None;
        for turn in VAIN_MAX..count {
            first = first.or_else(|| ahead(&schedule));
            if first.is_some() {
                break;
            }
            assert!(matches!(schedule.next(), Some(Job::Turn(range, None)) if range.start == turn));
            schedule.turn_is_done(0, 0);
        }
        assert_eq!(first, Some(VAIN_MAX + PAUSE));
        schedule.ran(VAIN_MAX + PAUSE, ());
    }
}
