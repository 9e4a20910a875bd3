//! Sizes of the benchmark, its parts, and the chains that it serves.

use cambium_workload::{BlockSize, WorkloadParams};
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use std::{path::PathBuf, time::Duration};

/// Memory that both servers are told, in bytes: `--memory` of Cambium, `--cache` of geth.
pub(super) const MEMORY_BYTES: u64 = 1 << 30;
/// Calls of a batch.
pub(super) const BATCH_CALLS: usize = 100;
/// Transactions of a block of the wide chain.
const WIDE_TRANSACTIONS: u64 = 500;
/// Transactions of a block of the deep chain.
const DEEP_TRANSACTIONS: u64 = 4;
/// Accounts of the deep chain.
const DEEP_ACCOUNTS: u64 = 50_000;

/// A part of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Batches of 100 calls: processor time of the server for each call.
    Batch,
    /// One call after another at 1, 4 and 16 connections: rate and latency.
    Single,
    /// Proofs with one thread of Cambium's server and with two.
    Threads,
    /// Proofs at the head, and at old blocks, in memory and not.
    Old,
    /// `eth_getLogs` over many blocks.
    Logs,
    /// Blocks of 500 payments through the Engine API.
    Payload,
    /// Transactions of mainnet blocks through the Engine API.
    Mainnet,
    /// An import by Cambium while its server answers 1,000 requests a second.
    Beside,
}

/// Sizes of a run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    pub(super) rounds: u64,
    /// Time of one measurement.
    pub(super) window: Duration,
    /// Accounts of the wide chain.
    pub(super) accounts: u64,
    /// Blocks of the wide chain that the servers have from the start.
    pub(super) blocks: u64,
    /// Blocks of the wide chain after these, which the Engine API brings.
    pub(super) payloads: u64,
    /// Blocks of the deep chain.
    pub(super) deep_blocks: u64,
    /// Blocks below the head of the deep chain at which proofs are made.
    pub(super) depths: Vec<u64>,
    /// Blocks over which logs are looked for.
    pub(super) log_blocks: u64,
    /// Mainnet blocks whose transactions are sent.
    pub(super) mainnet_blocks: usize,
    /// Cold proofs of a round at each depth.
    pub(super) cold_reads: u64,
    pub(super) data: PathBuf,
}

impl Plan {
    pub(super) fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }

    /// A chain of large blocks of payments. Holders of tokens are in its genesis state.
    pub(super) fn wide(&self) -> WorkloadParams {
        WorkloadParams {
            accounts: self.accounts,
            blocks: self.blocks + self.payloads,
            block_size: BlockSize::Transactions(WIDE_TRANSACTIONS),
            erc20_percent: 0,
            ..WorkloadParams::default()
        }
    }

    /// A chain of many small blocks, half of whose transactions move tokens.
    pub(super) fn deep(&self) -> WorkloadParams {
        WorkloadParams {
            accounts: DEEP_ACCOUNTS.min(self.accounts),
            senders: Some(DEEP_ACCOUNTS.min(self.accounts) / 5),
            blocks: self.deep_blocks,
            block_size: BlockSize::Transactions(DEEP_TRANSACTIONS),
            erc20_percent: 50,
            fresh_percent: 0,
            ..WorkloadParams::default()
        }
    }

    pub(super) fn parameters(&self) -> Map<String, Value> {
        let parameters = json!({
            "rounds": self.rounds,
            "window_ms": self.window.as_millis() as u64,
            "memory_mib": MEMORY_BYTES >> 20,
            "accounts": self.accounts,
            "blocks": self.blocks,
            "transactions_per_block": WIDE_TRANSACTIONS,
            "payloads": self.payloads,
            "deep_blocks": self.deep_blocks,
            "deep_transactions_per_block": DEEP_TRANSACTIONS,
            "log_blocks": self.log_blocks,
            "batch_calls": BATCH_CALLS,
        });
        parameters.as_object().cloned().unwrap_or_default()
    }
}
