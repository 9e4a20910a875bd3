//! Concurrent tests of the engine against the model: one thread commits blocks, several read and
//! prove old and new states, and one merges, checks and reads statistics, while faults are
//! injected.
//!
//! ```text
//!   writer    blocks, branches, unwinds  --> known blocks, each with its model --> readers
//!   keeper    flush, check, stats                                                  compare, prove,
//!   disk      failed reads, failures, panics                                       hold views
//! ```
//!
//! The seed decides the operations of each thread and the faults. The system schedules the threads,
//! so a failure need not repeat.
//!
//! Every read returns the value of its block, or an error that an injected fault explains. No
//! thread waits forever (`watchdog.rs`). After each round no resources are held, and the database
//! opens at the acknowledged head.

mod shared;
mod watchdog;
mod reader;
mod writer;
mod driver;
mod settle;
mod rounds;

pub use driver::ConcurrentDriver;
pub use shared::{ConcurrentParams, RoundFaults};
