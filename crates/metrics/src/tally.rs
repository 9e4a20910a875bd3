//! Counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter, or a current value. No other memory is ordered by it.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// A counter that begins with a value.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// Adds to it, and returns the value before.
    pub fn add(&self, by: u64) -> u64 {
        self.0.fetch_add(by, Ordering::Relaxed)
    }

    /// Takes from it what was added before.
    pub fn sub(&self, by: u64) {
        self.0.fetch_sub(by, Ordering::Relaxed);
    }

    /// Replaces the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one figure, by the values of its label. All values are known from the beginning, so that a collector sees each
/// counter before its first increment.
#[derive(Debug)]
pub struct Tally(Vec<(&'static str, Count)>);

impl Tally {
    /// Counters with these names, which are 0.
    pub fn new(names: &[&'static str]) -> Self {
        Self(names.iter().map(|name| (*name, Count::default())).collect())
    }

    /// Adds one to a counter. A name that is not among those of [`Tally::new`] is not counted.
    pub fn add(&self, name: &str) {
        let found = self.0.iter().find(|(own, _)| *own == name);
        debug_assert!(found.is_some(), "{name} is counted by no counter");
        if let Some((_, count)) = found {
            count.add(1);
        }
    }

    /// The counters in the order of [`Tally::new`].
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, count.get()))
    }
}
