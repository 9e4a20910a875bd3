//! A chain over JSON-RPC: the public cases, and what they do not ask.

#[allow(unreachable_pub)]
mod common;

mod engine;
mod execution_apis;
mod figures;
mod jwt;
mod pool;
mod requests;
mod server;
mod promises;
mod simulate;
