//! Generated chains, and the contracts in them.

mod support;

mod contracts;
mod workload;
