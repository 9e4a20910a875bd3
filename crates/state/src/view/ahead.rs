//! Reads ahead of execution: of keys that the next blocks are likely to touch.

use crate::{
    engine::parts::Engine,
    view::{read::LayeredKey, state::View},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::Account;
use cambium_snapshot::{AheadReader, PagePin, StateError};
use std::{collections::VecDeque, sync::Arc, task::Poll};

/// Reads ahead of execution. A caller asks for keys one at a time, and does other work until their
/// pages have arrived: any number of reads are under way at once, on one thread.
///
/// Pages are kept in a pin, which the block's own view shares ([`View::pinned`]). Reading ahead never changes a result.
/// Execution waits for a page in flight instead of reading it again.
pub struct ReadAhead {
    reader: AheadReader,
}

impl ReadAhead {
    /// A reader for the database, with up to `depth` reads in flight.
    pub(crate) fn new(engine: &Engine, depth: usize) -> Self {
        Self {
            reader: AheadReader::new(engine.store.pages.clone(), depth),
        }
    }

    /// Number of device reads under way.
    pub fn in_flight(&self) -> usize {
        self.reader.in_flight()
    }

    /// Returns the account at keccak(address) if it is in memory. Otherwise a read begins, and
    /// [`ReadAhead::poll`] returns `ticket` when it has ended. Asking again then answers; if the
    /// read failed, another one begins.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn account(
        &mut self,
        view: &View,
        pin: &Arc<PagePin>,
        path: &B256,
        ticket: u64,
    ) -> Result<Poll<Option<Account>>, StateError> {
        self.value(view, pin, path, ticket)
    }

    /// Returns a slot's value if it is in memory, by keccak(address) and keccak(slot): see
    /// [`ReadAhead::account`].
    ///
    /// # Errors
    ///
    /// As [`View::slot`].
    pub fn slot(
        &mut self,
        view: &View,
        pin: &Arc<PagePin>,
        slot: &(B256, B256),
        ticket: u64,
    ) -> Result<Poll<U256>, StateError> {
        view.inner.check_storage_kept(&slot.0)?;
        self.value(view, pin, slot, ticket)
    }

    /// Makes sure that the page is in memory which a change of the account at keccak(address)
    /// needs: it is pinned, or begins to be read.
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn load_account(
        &mut self,
        view: &View,
        pin: &Arc<PagePin>,
        path: &B256,
    ) -> Result<(), StateError> {
        self.load(view, pin, path)
    }

    /// Does the same as [`ReadAhead::load_account`] for a slot, by keccak(address) and keccak(slot).
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn load_slot(
        &mut self,
        view: &View,
        pin: &Arc<PagePin>,
        slot: &(B256, B256),
    ) -> Result<(), StateError> {
        self.load(view, pin, slot)
    }

    /// Takes the finished reads, and adds the tickets that waited for them to `ended`. With `wait`, returns once there
    /// is one, unless none is under way.
    pub fn poll(&mut self, wait: bool, ended: &mut VecDeque<u64>) {
        self.reader.poll(wait, ended);
    }

    fn value<K: LayeredKey>(
        &mut self,
        view: &View,
        pin: &Arc<PagePin>,
        key: &K,
        ticket: u64,
    ) -> Result<Poll<K::Value>, StateError> {
        match key.above(view) {
            Some(value) => Ok(Poll::Ready(value)),
            None => self.reader.value(&view.base.snapshot, key, pin, ticket),
        }
    }

    fn load<K: LayeredKey>(
        &mut self,
        view: &View,
        pin: &Arc<PagePin>,
        key: &K,
    ) -> Result<(), StateError> {
        match key.above(view) {
            // The tries of the layers have what the layers have changed.
            Some(_) => Ok(()),
            None => self.reader.page(&view.base.snapshot, key, pin),
        }
    }
}

impl View {
    /// Whether this view and `other` read the same snapshot below their layers: after a merge,
    /// changed pages are elsewhere, and not in memory.
    pub fn has_snapshot_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.base.snapshot, &other.base.snapshot)
    }

    /// The same state, which keeps the pages that it reads in `pin`. A block that is executed on
    /// such a view finds them in memory when its root is computed.
    #[must_use]
    pub fn pinned(self, pin: Arc<PagePin>) -> Self {
        Self {
            pin: Some(pin),
            ..self
        }
    }
}
