//! What stands in for fibers where stacks can't be switched.

pub(super) use super::restarts::Restarts as Fibers;
use super::scout::AheadState;
use std::{cell::RefCell, io, rc::Rc};

impl<S: AheadState> Fibers<S> {
    /// Up to `count` scouts. Never fails.
    pub(super) fn new(state: Rc<RefCell<S>>, count: usize) -> io::Result<Self> {
        Ok(Self::with_state(state, count))
    }
}
