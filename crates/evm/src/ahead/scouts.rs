//! Many scouts on one thread.

use super::{fibers::Fibers, restarts::Restarts, scout::AheadState};
use std::{cell::RefCell, rc::Rc};

/// Transactions that are run for their reads, many at once on one thread.
pub struct Scouts<S: AheadState> {
    runner: Runner<S>,
    state: Rc<RefCell<S>>,
    next_ticket: u64,
}

enum Runner<S: AheadState> {
    Fibers(Fibers<S>),
    Restarts(Restarts<S>),
}

macro_rules! on_runner {
    ($runner:expr, $scouts:ident => $do:expr) => {
        match $runner {
            Runner::Fibers($scouts) => $do,
            Runner::Restarts($scouts) => $do,
        }
    };
}

impl<S: AheadState> Scouts<S> {
    /// Up to `count` scouts at once on `state`, each with a stack of its own. On systems whose
    /// stacks can't be switched, as [`Scouts::restarting`].
    pub fn new(state: S, count: usize) -> Self {
        let state = Rc::new(RefCell::new(state));
        let fibers = Fibers::new(state.clone(), count);
        Self::with(state, Runner::Fibers(fibers))
    }

    /// Up to `count` scouts at once on `state`, which start again when a value has arrived.
    pub fn restarting(state: S, count: usize) -> Self {
        let state = Rc::new(RefCell::new(state));
        let restarts = Restarts::new(state.clone(), count);
        Self::with(state, Runner::Restarts(restarts))
    }

    const fn with(state: Rc<RefCell<S>>, runner: Runner<S>) -> Self {
        Self {
            runner,
            state,
            next_ticket: 0,
        }
    }

    /// The state that the scouts read.
    ///
    /// # Panics
    ///
    /// If `work` runs scouts.
    pub fn with_state<T>(&mut self, work: impl FnOnce(&mut S) -> T) -> T {
        work(&mut self.state.borrow_mut())
    }

    /// Number of scouts that can be started now.
    pub fn idle(&self) -> usize {
        on_runner!(&self.runner, scouts => scouts.idle())
    }

    /// Number of scouts that wait.
    pub fn waiting(&self) -> usize {
        on_runner!(&self.runner, scouts => scouts.waiting())
    }

    /// Runs a transaction of a block until it waits for a read, or ends. Returns whether it ended:
    /// all that it needs is in memory. Does nothing, and returns false, if no scout is idle.
    pub fn start(&mut self, block: Rc<S::Block>, index: usize) -> bool {
        if self.idle() == 0 {
            return false;
        }
        let waiting = self.waiting();
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        on_runner!(&mut self.runner, scouts => scouts.start(block, index, ticket));
        self.waiting() == waiting
    }

    /// Runs the scout with this ticket further. Does nothing if there is none.
    pub fn resume(&mut self, ticket: u64) {
        on_runner!(&mut self.runner, scouts => scouts.resume(ticket, true));
    }

    /// Ends the scout with this ticket. Does nothing if there is none.
    pub fn abandon(&mut self, ticket: u64) {
        on_runner!(&mut self.runner, scouts => scouts.resume(ticket, false));
    }

    /// Ends all scouts that wait.
    pub fn abandon_all(&mut self) {
        on_runner!(&mut self.runner, scouts => scouts.abandon_all());
    }
}
