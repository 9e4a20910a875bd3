//! The engine and the chain on public fixtures, chains of other clients and real mainnet blocks.

mod blockchain_tests;
mod era1;
mod genesis_roots;
mod public_chains;
mod real_chains;
mod witnesses;
