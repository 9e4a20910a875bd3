//! Subscribers: each keeps a naive state by the events alone, which must be the model's at each step.

use crate::Model;
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use cambium_state::Subscription;
use std::{collections::HashSet, sync::Arc};

/// When a subscriber takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// All that there are, after each operation.
    Eager,
    /// One now and then, so that it is ever farther behind until it catches up.
    Slow,
    /// Some, seldom, with a new subscription from the stored cursor, which is sometimes an old one.
    Away,
    /// All finalized blocks, after each operation.
    Finalized,
}

/// A subscriber with its data derived from the events.
pub(super) struct Subscriber {
    pub(super) habit: Habit,
    /// None while it is away, or the database is closed.
    pub(super) subscription: Option<Subscription>,
    pub(super) cursor: BlockId,
    pub(super) state: Arc<Model>,
    pub(super) finalized: Option<BlockId>,
    /// Blocks that the subscription has committed.
    pub(super) received: HashSet<B256>,
    /// An earlier cursor, with its state.
    pub(super) stored: (BlockId, Arc<Model>),
}

impl Subscriber {
    /// One of each habit, at the first block.
    pub(super) fn all(first: BlockId, state: &Arc<Model>) -> Vec<Self> {
        let habits = [Habit::Eager, Habit::Slow, Habit::Away, Habit::Finalized];
        let subscriber = |habit| Self {
            habit,
            subscription: None,
            cursor: first,
            state: state.clone(),
            finalized: None,
            received: HashSet::new(),
            stored: (first, state.clone()),
        };
        habits.map(subscriber).into()
    }

    /// The database is closed.
    pub(super) fn close(&mut self) {
        self.subscription = None;
    }

    /// The same one, which begins again at another block.
    pub(super) fn begun_at(&self, block: BlockId, state: &Arc<Model>) -> Self {
        Self {
            habit: self.habit,
            subscription: None,
            cursor: block,
            state: state.clone(),
            finalized: None,
            received: HashSet::new(),
            stored: (block, state.clone()),
        }
    }
}
