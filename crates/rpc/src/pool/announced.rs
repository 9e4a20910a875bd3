//! Transactions that became executable, in this order, for those who ask for news.

use super::transaction::PooledTransaction;
use alloy_primitives::B256;
use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
};
use tokio::sync::watch;

/// A transaction that became executable. It is not kept for that: it may have left the pool.
#[derive(Clone, Debug)]
pub(crate) struct Announcement {
    pub(crate) hash: B256,
    transaction: Weak<PooledTransaction>,
}

impl Announcement {
    pub(super) fn of(transaction: &Arc<PooledTransaction>) -> Self {
        Self {
            hash: transaction.hash(),
            transaction: Arc::downgrade(transaction),
        }
    }

    /// The transaction, if it still waits.
    pub(crate) fn transaction(&self) -> Option<Arc<PooledTransaction>> {
        self.transaction.upgrade()
    }
}

/// The newest announcements. Readers remember how many they have seen; one that is further behind than `most` has missed some.
pub(super) struct Announced {
    kept: VecDeque<Announcement>,
    most: usize,
    /// How many there ever were.
    count: watch::Sender<u64>,
}

impl Announced {
    pub(super) fn new(most: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            most,
            count: watch::Sender::new(0),
        }
    }

    pub(super) fn add(&mut self, new: Vec<Announcement>) {
        let added = new.len() as u64;
        if added == 0 {
            return;
        }
        self.kept.extend(new);
        let over = self.kept.len().saturating_sub(self.most);
        self.kept.drain(..over);
        self.count.send_modify(|count| *count += added);
    }

    /// How many there ever were, with news of it.
    pub(super) fn count(&self) -> watch::Receiver<u64> {
        self.count.subscribe()
    }

    /// Those after the first `seen`; `None` if some of them are not kept any more.
    pub(super) fn since(&self, seen: u64) -> Option<Vec<Announcement>> {
        let new = self.count.borrow().saturating_sub(seen);
        let new = usize::try_from(new).ok()?;
        let first = self.kept.len().checked_sub(new)?;
        Some(self.kept.range(first..).cloned().collect())
    }
}
