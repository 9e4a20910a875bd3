//! A watchdog for tests whose code under test hangs.

use std::{
    fmt::Display,
    process::abort,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

type Step = Mutex<Option<(Instant, String)>>;

/// Ends the process, and prints the name of the input, if a step of a test takes too long.
#[derive(Debug)]
pub struct Watchdog {
    step: Arc<Step>,
}

impl Watchdog {
    /// Watches steps of at most `limit` each, until it is dropped.
    pub fn new(limit: Duration) -> Self {
        let step: Arc<Step> = Arc::default();
        let watched = Arc::downgrade(&step);
        thread::spawn(move || watch(&watched, limit));
        Self { step }
    }

    /// Runs `work` as a step with this name.
    pub fn step<T>(&self, name: &dyn Display, work: impl FnOnce() -> T) -> T {
        self.set(Some((Instant::now(), name.to_string())));
        let done = work();
        self.set(None);
        done
    }

    fn set(&self, step: Option<(Instant, String)>) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = step;
    }
}

fn watch(step: &Weak<Step>, limit: Duration) {
    while let Some(step) = step.upgrade() {
        let now = step.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, name)) = now.filter(|(begun, _)| begun.elapsed() > limit) {
            eprintln!("HANGS: {name}: no end after {limit:?}");
            abort();
        }
        drop(step);
        thread::sleep(limit / 20);
    }
}
