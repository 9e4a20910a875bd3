//! Threads on one database, beside the model: one makes blocks, others read and prove states old and
//! new, and one merges, checks and asks for numbers. Faults come meanwhile.
//!
//! ```text
//!   writer    blocks, branches, unwinds  --> known blocks, each with its model --> readers
//!   keeper    flush, check, stats                                                  compare, prove,
//!   disk      failed reads, failures, panics                                       hold views
//! ```
//!
//! The seed decides what each thread does, and which faults are asked for. How threads take turns
//! is for the system to decide, so a failure need not repeat.
//!
//! The rule: a value that is read is the one of its block, or there is an error, which only a fault
//! that was asked for explains. Nobody waits for ever (`watchdog.rs`). After each round nothing is
//! held any more, and the database opens at the acknowledged head.

mod shared;
mod watchdog;
mod reader;
mod writer;
mod driver;
mod settle;
mod rounds;

pub use driver::ConcurrentDriver;
pub use shared::{ConcurrentParams, RoundFaults};
