//! Scouts that start again once the value that they lacked has arrived, for systems whose stacks
//! can't be switched.

use super::scout::{AheadState, Wait, run};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
};

/// Number of times that a scout is started. Each time it gets one value further.
const STARTS_MAX: u32 = 32;

/// Scouts that are started again.
pub(super) struct Restarts<S: AheadState> {
    state: Rc<RefCell<S>>,
    count: usize,
    /// Scouts that wait, by ticket.
    parked: HashMap<u64, Parked<S>>,
}

struct Parked<S: AheadState> {
    block: Rc<S::Block>,
    index: usize,
    starts: u32,
}

/// Notes that the scout lacks a value, and ends it.
#[derive(Default)]
struct Lack(Cell<bool>);

impl Wait for Lack {
    fn wait(&self) -> bool {
        self.0.set(true);
        false
    }
}

impl<S: AheadState> Restarts<S> {
    /// Up to `count` scouts.
    pub(super) fn new(state: Rc<RefCell<S>>, count: usize) -> Self {
        Self {
            state,
            count,
            parked: HashMap::new(),
        }
    }

    /// Number of scouts that can be started now.
    pub(super) fn idle(&self) -> usize {
        self.count.saturating_sub(self.parked.len())
    }

    /// Number of scouts that wait.
    pub(super) fn waiting(&self) -> usize {
        self.parked.len()
    }

    /// Runs a scout until it waits or ends.
    pub(super) fn start(&mut self, block: Rc<S::Block>, index: usize, ticket: u64) {
        let starts = 0;
        self.run(
            ticket,
            Parked {
                block,
                index,
                starts,
            },
        );
    }

    /// Starts the scout of a ticket again, or ends it. Does nothing if it does not wait.
    pub(super) fn resume(&mut self, ticket: u64, goes_on: bool) {
        if let Some(parked) = self.parked.remove(&ticket)
            && goes_on
        {
            self.run(ticket, parked);
        }
    }

    /// Ends all scouts, including those that wait for a read.
    pub(super) fn abandon_all(&mut self) {
        self.parked.clear();
    }

    fn run(&mut self, ticket: u64, mut scout: Parked<S>) {
        let lack = Lack::default();
        run(&self.state, &scout.block, scout.index, ticket, &lack);
        scout.starts += 1;
        if lack.0.get() && scout.starts < STARTS_MAX {
            self.parked.insert(ticket, scout);
        }
    }
}
