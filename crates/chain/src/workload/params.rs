//! What a workload is made from.

use super::transactions::{PAYMENT_GAS, TOKEN_TRANSFER_GAS_LIMIT};
use crate::{BlobSchedule, ChainSpec, Fork};
use alloy_eips::eip7840::BlobParams;
use alloy_primitives::U256;

/// Accounts with keys, unless the parameters say otherwise.
const SENDERS_DEFAULT: u64 = 50_000;
/// Keeps a block of transfers under Osaka's 8 MiB of RLP (EIP-7934).
const TRANSFERS_PER_BLOCK_MAX: u64 = 40_000;
/// Keeps every sender solvent, even if one should send everything.
const TRANSFERS_MAX: u64 = 1_000_000_000;
const SENDERS_MAX: u64 = 1 << 24;
const GAS_LIMIT_MIN: u64 = 36_000_000;

/// How transfers are spread over accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Spread {
    /// Every account as often as any other.
    #[default]
    Uniform,
    /// Like Zipf's law: account n about n times as rarely as the first, so that few are hot.
    Zipf,
}

/// What a [`Workload`](super::Workload) is made from. The same parameters give the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadParams {
    /// Everything random follows from it.
    pub seed: u64,
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// The fork in force from genesis: Prague, Osaka or Amsterdam.
    pub fork: Fork,
    /// Accounts at genesis, contracts aside.
    pub accounts: u64,
    /// How many of them, the first ones, have keys and send: 50,000 or all, unless given.
    pub senders: Option<u64>,
    /// Blocks after genesis.
    pub blocks: u64,
    /// Transactions in each.
    pub transfers_per_block: u64,
    /// Transfers of tokens rather than ether, in 100.
    pub erc20_percent: u8,
    /// Receivers that nothing was ever sent to and that are not in the genesis, in 100.
    pub fresh_percent: u8,
    /// How senders, and receivers that are not fresh, are chosen.
    pub spread: Spread,
}

impl Default for WorkloadParams {
    /// 10,000 accounts; 20 blocks of 200 transfers, a fifth of them of tokens.
    fn default() -> Self {
        Self {
            seed: 1,
            chain_id: 4_093,
            fork: Fork::Osaka,
            accounts: 10_000,
            senders: None,
            blocks: 20,
            transfers_per_block: 200,
            erc20_percent: 20,
            fresh_percent: 25,
            spread: Spread::Uniform,
        }
    }
}

/// Parameters of which no chain can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// A number out of its range.
    #[error("{name} is {value}: it must be from {min} to {max}")]
    Range {
        /// Which.
        name: &'static str,
        /// What was given.
        value: u64,
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// A fork that workloads are not made for.
    #[error("workloads are made for Prague and Osaka, not for {0:?}")]
    Fork(Fork),
}

impl WorkloadParams {
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let transfers_max = TRANSFERS_MAX / self.blocks.max(1);
        for (name, value, min, max) in [
            ("chain_id", self.chain_id, 1, u64::MAX / 2 - 36),
            ("accounts", self.accounts, 1, u64::from(u32::MAX)),
            ("senders", self.senders(), 1, self.accounts.min(SENDERS_MAX)),
            ("blocks", self.blocks, 0, TRANSFERS_MAX),
            (
                "transfers_per_block",
                self.transfers_per_block,
                0,
                TRANSFERS_PER_BLOCK_MAX.min(transfers_max),
            ),
            ("erc20_percent", self.erc20_percent.into(), 0, 100),
            ("fresh_percent", self.fresh_percent.into(), 0, 100),
        ] {
            if !(min..=max).contains(&value) {
                return Err(WorkloadError::Range {
                    name,
                    value,
                    min,
                    max,
                });
            }
        }
        match self.fork {
            Fork::Prague | Fork::Osaka | Fork::Amsterdam => Ok(()),
            fork => Err(WorkloadError::Fork(fork)),
        }
    }

    /// How many accounts have keys.
    pub fn senders(&self) -> u64 {
        self.senders.unwrap_or(SENDERS_DEFAULT.min(self.accounts))
    }

    /// The gas limit of every block: twice what its transfers may use, so that the base fee falls
    /// and every transaction stays valid.
    pub fn gas_limit(&self) -> u64 {
        let gas = if self.erc20_percent == 0 {
            PAYMENT_GAS
        } else {
            TOKEN_TRANSFER_GAS_LIMIT
        };
        (2 * gas * self.transfers_per_block).max(GAS_LIMIT_MIN)
    }

    /// The fork rules of the chain.
    pub fn spec(&self) -> ChainSpec {
        let mainnet = BlobSchedule::mainnet();
        let is_osaka = self.fork >= Fork::Osaka;
        ChainSpec {
            chain_id: self.chain_id,
            homestead_block: Some(0),
            eip150_block: Some(0),
            eip155_block: Some(0),
            eip158_block: Some(0),
            byzantium_block: Some(0),
            constantinople_block: Some(0),
            petersburg_block: Some(0),
            istanbul_block: Some(0),
            berlin_block: Some(0),
            london_block: Some(0),
            merge_netsplit_block: Some(0),
            terminal_total_difficulty: Some(U256::ZERO),
            terminal_total_difficulty_passed: true,
            shanghai_time: Some(0),
            cancun_time: Some(0),
            prague_time: Some(0),
            osaka_time: is_osaka.then_some(0),
            amsterdam_time: (self.fork >= Fork::Amsterdam).then_some(0),
            blob_schedule: BlobSchedule {
                // Osaka and Amsterdam bring no other targets.
                osaka: is_osaka.then(BlobParams::prague),
                bpo: [None; 5],
                ..mainnet
            },
            ..ChainSpec::default()
        }
    }
}
