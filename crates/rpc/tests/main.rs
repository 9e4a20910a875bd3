//! A chain over JSON-RPC: the public cases, and what they do not ask.

mod common;

mod execution_apis;
mod requests;
