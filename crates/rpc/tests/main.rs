//! A chain over JSON-RPC: the public cases, and what they do not ask.

#[allow(unreachable_pub)]
mod common;

mod access_lists;
mod cells;
mod discovery;
mod engine;
mod execution_apis;
mod explorer;
mod figures;
mod fill;
mod gas;
mod held;
mod jwt;
mod pending;
mod pool;
mod ranges;
mod replay;
mod requests;
mod rest;
mod rest_server;
mod server;
mod promises;
mod simulate;
mod ssz;
