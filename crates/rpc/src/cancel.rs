//! When work on an answer has to end.

use crate::error::RpcError;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Whether an answer is still wanted. Whoever works long asks now and then.
#[derive(Clone, Debug)]
pub struct Cancel {
    deadline: Instant,
    limit: Duration,
    gone: Arc<AtomicBool>,
}

/// Ends the work for a client that leaves.
#[derive(Debug)]
pub(crate) struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Cancel {
    /// From now on for this long.
    pub fn after(limit: Duration) -> Self {
        Self {
            deadline: Instant::now() + limit,
            limit,
            gone: Arc::default(),
        }
    }

    /// What ends the work when it is dropped.
    pub(crate) fn leaving(&self) -> Leaving {
        Leaving(Arc::clone(&self.gone))
    }

    /// From now on for this long, for the same client.
    pub(crate) fn renewed(&self, limit: Duration) -> Self {
        Self {
            deadline: Instant::now() + limit,
            limit,
            gone: Arc::clone(&self.gone),
        }
    }

    /// Whether the client has left.
    pub fn has_left(&self) -> bool {
        // Nothing else is told by the flag.
        self.gone.load(Ordering::Relaxed)
    }

    /// Fails once the answer is not wanted any more.
    ///
    /// # Errors
    ///
    /// [`RpcError::TIMEOUT`].
    pub fn check(&self) -> Result<(), RpcError> {
        if self.has_left() {
            return Err(RpcError::new(RpcError::TIMEOUT, "the client has left"));
        }
        if Instant::now() >= self.deadline {
            let limit = self.limit.as_secs_f32();
            let what = format!("the answer takes longer than {limit} s, the limit of this server");
            return Err(RpcError::new(RpcError::TIMEOUT, what));
        }
        Ok(())
    }
}
