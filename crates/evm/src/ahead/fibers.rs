//! Stackful coroutines, one per scout, suspended while a read is in flight.

use super::scout::{AheadState, Wait, run};
use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use std::{cell::RefCell, collections::HashMap, rc::Rc};

/// Size of a stack, in bytes. revm keeps the frames of calls on the heap; precompiled contracts need most of a stack.
/// Only used pages take memory.
const STACK_BYTES: usize = 1 << 20;

/// Message that resumes a fiber.
enum Wake<S: AheadState> {
    Run(Job<S>),
    /// The value that the scout waits for may be there.
    GoOn,
    /// The scout ends as soon as it can.
    Abandon,
}

/// Why a fiber gave way.
enum Paused {
    Waiting,
    Done,
}

struct Job<S: AheadState> {
    block: Rc<S::Block>,
    index: usize,
    ticket: u64,
}

type Fiber<S> = Coroutine<Wake<S>, Paused, (), DefaultStack>;

/// Scouts that run on stacks of their own, and are parked while a page is read.
pub(super) struct Fibers<S: AheadState> {
    state: Rc<RefCell<S>>,
    count: usize,
    idle: Vec<Fiber<S>>,
    /// Fibers that wait, by their scout's ticket.
    parked: HashMap<u64, Fiber<S>>,
}

/// Parks the fiber that it belongs to.
struct Park<'a, S: AheadState>(&'a Yielder<Wake<S>, Paused>);

impl<S: AheadState> Wait for Park<'_, S> {
    fn wait(&self) -> bool {
        matches!(self.0.suspend(Paused::Waiting), Wake::GoOn)
    }
}

impl<S: AheadState> Fibers<S> {
    /// Up to `count` scouts. Stacks are made as they are needed.
    pub(super) fn new(state: Rc<RefCell<S>>, count: usize) -> Self {
        Self {
            state,
            count,
            idle: Vec::new(),
            parked: HashMap::new(),
        }
    }

    /// Makes a fiber. `None` if the system gives no memory for its stack.
    fn fiber(&self) -> Option<Fiber<S>> {
        let stack = DefaultStack::new(STACK_BYTES).ok()?;
        let state = self.state.clone();
        Some(Coroutine::with_stack(stack, move |yielder, first| {
            let mut wake = first;
            loop {
                if let Wake::Run(job) = wake {
                    run(&state, &job.block, job.index, job.ticket, &Park(yielder));
                }
                wake = yielder.suspend(Paused::Done);
            }
        }))
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
        // Without a stack, execution finds the keys.
        if let Some(fiber) = self.idle.pop().or_else(|| self.fiber()) {
            let job = Job {
                block,
                index,
                ticket,
            };
            self.resume_fiber(fiber, ticket, Wake::Run(job));
        }
    }

    /// Runs the scout of a ticket further, or ends it. Does nothing if it does not wait.
    pub(super) fn resume(&mut self, ticket: u64, goes_on: bool) {
        if let Some(fiber) = self.parked.remove(&ticket) {
            let wake = if goes_on { Wake::GoOn } else { Wake::Abandon };
            self.resume_fiber(fiber, ticket, wake);
        }
    }

    /// Ends all scouts, including those that wait for a read.
    pub(super) fn abandon_all(&mut self) {
        let tickets: Vec<_> = self.parked.keys().copied().collect();
        tickets
            .into_iter()
            .for_each(|ticket| self.resume(ticket, false));
    }

    fn resume_fiber(&mut self, mut fiber: Fiber<S>, ticket: u64, wake: Wake<S>) {
        match fiber.resume(wake) {
            CoroutineResult::Yield(Paused::Waiting) => drop(self.parked.insert(ticket, fiber)),
            CoroutineResult::Yield(Paused::Done) => self.idle.push(fiber),
            CoroutineResult::Return(()) => unreachable!("a fiber runs until it is dropped"),
        }
    }
}

impl<S: AheadState> Drop for Fibers<S> {
    /// A parked scout catches panics, and dropping its fiber would unwind it by one.
    fn drop(&mut self) {
        self.abandon_all();
    }
}
