//! Threads that follow a chain in the background, until they are stopped.

use parking_lot::{Condvar, Mutex};
use std::{
    error::Error,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two steps.
const INTERVAL: Duration = Duration::from_millis(20);
/// Pause after an error that may pass. Each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Signal that stops the threads of a [`Background`].
#[derive(Default)]
pub struct EndSignal {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl EndSignal {
    /// Whether the thread is to end.
    pub fn is_over(&self) -> bool {
        *self.is_over.lock()
    }

    /// Waits for the end, for some time at most. Returns whether it has come.
    fn wait(&self, time: Duration) -> bool {
        let mut is_over = self.is_over.lock();
        if !*is_over {
            self.changed.wait_for(&mut is_over, time);
        }
        *is_over
    }

    fn end(&self) {
        *self.is_over.lock() = true;
        self.changed.notify_all();
    }
}

/// Threads of a follower of the chain, such as a history or an index, each of which repeats a step. They end when it is
/// dropped.
pub struct Background<E> {
    signal: Arc<EndSignal>,
    threads: Vec<JoinHandle<Result<(), E>>>,
}

impl<E: Error + Send + 'static> Default for Background<E> {
    fn default() -> Self {
        Self {
            signal: Arc::default(),
            threads: Vec::new(),
        }
    }
}

impl<E: Error + Send + 'static> Background<E> {
    /// Starts a thread that repeats `step`. After an error of which `may_pass` is true it says so, and tries
    /// again after a pause; any other error ends the thread. `what` names it in the log.
    pub fn repeat(
        &mut self,
        what: &'static str,
        may_pass: fn(&E) -> bool,
        mut step: impl FnMut(&EndSignal) -> Result<(), E> + Send + 'static,
    ) {
        let signal = self.signal.clone();
        self.threads.push(thread::spawn(move || {
            let mut pause = FIRST_PAUSE;
            loop {
                let is_over = match step(&signal) {
                    Ok(()) => {
                        pause = FIRST_PAUSE;
                        signal.wait(INTERVAL)
                    }
                    Err(error) if may_pass(&error) => {
                        tracing::warn!(%error, ?pause, "{what} tries again after a pause");
                        let is_over = signal.wait(pause);
                        pause = (pause * 2).min(LONGEST_PAUSE);
                        is_over
                    }
                    Err(error) => {
                        tracing::error!(%error, "{what} does not follow the chain any more");
                        return Err(error);
                    }
                };
                if is_over {
                    return Ok(());
                }
            }
        }));
    }

    /// Ends the threads, and waits for them.
    ///
    /// # Errors
    ///
    /// The first error that ended one. `panicked` is the error of one that panicked.
    pub fn end(&mut self, panicked: impl Fn() -> E) -> Result<(), E> {
        self.signal.end();
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join().unwrap_or_else(|_| Err(panicked()));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl<E> Drop for Background<E> {
    fn drop(&mut self) {
        self.signal.end();
        for thread in self.threads.drain(..) {
            // Its error has been logged.
            _ = thread.join();
        }
    }
}
