//! The workloads to import.

use cambium_workload::{BlockSize, WorkloadParams};
use clap::ValueEnum;

/// Number of transactions in a block.
const BLOCK_TRANSACTIONS: u64 = 500;
/// Percentage of receivers that are new.
const FRESH_PERCENT: u8 = 10;

/// The kind of transactions in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaseKind {
    /// Payments between accounts chosen uniformly.
    Payments,
    /// Transfers of an ERC-20 token between holders chosen uniformly.
    Tokens,
    /// Swaps in hundreds of pools, by senders that hold every token.
    Swaps,
}

/// Minimum and maximum that targets demand of a case.
pub(super) struct Limits {
    /// Speed with reading ahead over that without.
    pub(super) gain_min: f64,
    /// Time with reading ahead over that of parallel execution with access lists.
    pub(super) over_lists_max: f64,
}

impl CaseKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Payments => "payments",
            Self::Tokens => "tokens",
            Self::Swaps => "swaps",
        }
    }

    pub(super) const fn limits(self) -> Limits {
        let (gain_min, over_lists_max) = match self {
            Self::Payments => (4.0, 1.15),
            Self::Tokens => (3.5, 1.3),
            Self::Swaps => (3.5, 1.5),
        };
        Limits {
            gain_min,
            over_lists_max,
        }
    }

    /// Parameters of the workload. Nearly every account and slot that a block touches is touched by
    /// that block alone.
    pub(super) fn params(self, accounts: u64, quick: bool) -> WorkloadParams {
        let base = payments(accounts, if quick { 8 } else { 100 });
        match self {
            Self::Payments => base,
            Self::Tokens => WorkloadParams {
                holders: Some(base.accounts),
                erc20_percent: 100,
                ..base
            },
            // Each sender has a balance and an allowance in the token of each pool.
            Self::Swaps => WorkloadParams {
                senders: Some(accounts / 125),
                pools: if quick { 50 } else { 200 },
                swap_percent: 100,
                ..base
            },
        }
    }
}

/// Parameters of payments between this number of accounts, a fifth of which send.
pub(super) fn payments(accounts: u64, blocks: u64) -> WorkloadParams {
    WorkloadParams {
        accounts,
        senders: Some((accounts / 5).min(2_000_000)),
        blocks,
        block_size: BlockSize::Transactions(BLOCK_TRANSACTIONS),
        erc20_percent: 0,
        fresh_percent: FRESH_PERCENT,
        ..WorkloadParams::default()
    }
}
