//! A chain over JSON-RPC: the public cases, and what they do not ask.

#[allow(unreachable_pub)]
mod common;

mod cells;
mod engine;
mod execution_apis;
mod jwt;
mod pool;
mod replay;
mod requests;
mod rest;
mod rest_server;
mod server;
mod simulate;
mod ssz;
