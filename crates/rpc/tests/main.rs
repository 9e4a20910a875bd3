//! A chain over JSON-RPC: the public cases, and what they do not ask.

#[allow(unreachable_pub)]
mod common;

mod access_lists;
mod discovery;
mod engine;
mod execution_apis;
mod figures;
mod fill;
mod gas;
mod held;
mod jwt;
mod pending;
mod pool;
mod ranges;
mod requests;
mod server;
mod simulate;
