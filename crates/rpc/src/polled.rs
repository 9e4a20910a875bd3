//! Filters that clients ask now and then, and how far each has been told.

use crate::{error::RpcError, filter::FilterObject};
use cambium_index::LogFilter;
use cambium_state::Subscription;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::{Duration, Instant},
};

/// Most filters.
const FILTERS: usize = 1024;
/// Time after which a filter that nobody asks is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// What a filter asks for.
pub(crate) enum Asks {
    Blocks,
    Logs(Box<(FilterObject, LogFilter)>),
    /// Pending transactions.
    Pending {
        /// Whether with all their fields.
        whole: bool,
        /// How many the client was told of, or was there before.
        told: Mutex<u64>,
    },
}

/// A filter.
pub(crate) struct Filter {
    pub(crate) asks: Asks,
    pub(crate) since: Mutex<Subscription>,
    used: Mutex<Instant>,
}

/// All filters of a server.
#[derive(Default)]
pub(crate) struct Filters {
    all: Mutex<HashMap<u64, Arc<Filter>>>,
}

impl Filters {
    /// Adds a filter. Its name can't be guessed, since whoever knows it may use it.
    pub(crate) fn add(&self, asks: Asks, since: Subscription) -> Result<u64, RpcError> {
        let mut all = self.all.lock();
        all.retain(|_, filter| filter.used.lock().elapsed() < FORGOTTEN);
        if all.len() >= FILTERS {
            return Err(RpcError::new(
                RpcError::LIMIT,
                format!("there are {FILTERS} filters: subscribe over a WebSocket instead"),
            ));
        }
        let id = RandomState::new().hash_one(all.len());
        let filter = Filter {
            asks,
            since: Mutex::new(since),
            used: Mutex::new(Instant::now()),
        };
        all.insert(id, Arc::new(filter));
        Ok(id)
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<Filter>> {
        let filter = self.all.lock().get(&id).cloned()?;
        *filter.used.lock() = Instant::now();
        Some(filter)
    }

    /// Removes a filter. False if there is none of this name.
    pub(crate) fn remove(&self, id: u64) -> bool {
        self.all.lock().remove(&id).is_some()
    }
}
