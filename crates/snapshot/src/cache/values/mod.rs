//! The value cache: accounts and slots of the snapshot by their paths. A hit touches two or three
//! cache lines, and neither the index nor a page.
//!
//! The cache is a table of fixed size, divided into *buckets*. Each key belongs to one bucket. A
//! keyed hash chooses it, so that an attacker can't fill one on purpose; keys are compared in
//! full. The absence of an account or slot is cached, too.
//!
//! The eviction policy resists scans: see [`bucket`].
//!
//! # Consistency with snapshots
//!
//! Each merge makes the snapshot of the next *generation*, while views of older ones live on. The
//! entries of a bucket are correct for the newest generation, and for older ones down to the
//! bucket's own generation, in which it was last changed:
//!
//! 1. A view of generation *g* uses a bucket only if the bucket's generation is at most *g*.
//! 2. A view of generation *g* inserts an entry only if *g* is the table's newest generation, and
//!    sets the bucket's generation to *g*. It checks this while it holds the bucket's lock.
//! 3. A merge sets the newest generation to *g* + 1, and *then*, for each value that it changed,
//!    locks the bucket; if the bucket has an entry for it, the merge replaces the entry and sets
//!    the bucket's generation to *g* + 1. If it clears all slots of an account, it goes through all
//!    buckets and removes them. Views of generation *g* + 1 are created only after that.
//!
//! A slow reader can't restore a value that a merge has replaced. If it locks the bucket before the
//! merge does, the merge replaces its entry. If it locks it later, it sees the new generation,
//! since it acquires the lock after the merge released it, and inserts nothing.
//!
//! Readers never wait: if the lock is taken, a look-up is a miss, and an insert does nothing.

mod bucket;
mod table;
#[cfg(all(test, feature = "loom"))]
mod model;
#[cfg(test)]
mod tests;

pub use table::ValueCache;
