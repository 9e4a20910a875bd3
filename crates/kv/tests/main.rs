//! The key-value face: transactions, proofs, faults and promises.

mod support;

mod checker;
mod failures;
mod layered;
mod model;
mod promises;
mod proofs;
mod serializability;
mod transactions;
