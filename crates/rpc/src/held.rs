//! Bytes that requests and their answers hold in memory, bounded for a server as a whole.

use crate::error::RpcError;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in units of this size.
const UNIT_BYTES: usize = 1024;

/// The room of a server.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    units: usize,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Self {
        let units = bytes.div_ceil(UNIT_BYTES).min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(units)),
            units,
        }
    }

    /// Bytes that are held now.
    pub(crate) fn held_bytes(&self) -> usize {
        (self.units - self.free.available_permits()) * UNIT_BYTES
    }

    /// The share of a request, which is empty.
    pub(crate) fn share(&self) -> Arc<Held> {
        Arc::new(Held {
            free: Arc::clone(&self.free),
            own: Mutex::default(),
        })
    }
}

/// What a request and its answer hold. The room has it back when the last of those who hold it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    free: Arc<Semaphore>,
    own: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Held {
    /// Holds at least this many bytes from now on. False if there is no room for them: then it holds what it did.
    #[must_use]
    pub(crate) fn grow_to(&self, bytes: usize) -> bool {
        let wanted = bytes.div_ceil(UNIT_BYTES);
        let mut own = self.own.lock();
        let has = own.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = wanted.checked_sub(has).filter(|more| *more > 0) else {
            return true;
        };
        let Ok(more) = u32::try_from(more) else {
            return false;
        };
        let Ok(more) = Arc::clone(&self.free).try_acquire_many_owned(more) else {
            return false;
        };
        match &mut *own {
            Some(own) => own.merge(more),
            none => *none = Some(more),
        }
        true
    }
}

/// The error of a request for which there is no room.
pub(crate) fn no_room() -> RpcError {
    RpcError::new(
        RpcError::LIMIT,
        "requests and answers have too many bytes together: ask again later",
    )
}
