//! Parameters of a workload.

use crate::{Spread, kind::Kind};
use alloy_eips::eip7840::BlobParams;
use cambium_chain::{BlobSchedule, ChainSpec, Fork};
use cambium_evm::new_slot_gas;

/// Default number of accounts with keys.
const SENDERS_DEFAULT: u64 = 50_000;
const SENDERS_MAX: u64 = 1 << 24;
/// Keeps a block's transactions below Osaka's limit of 8 MiB of RLP (EIP-7934).
const BLOCK_BYTES_MAX: u64 = 7 << 20;
/// Keeps every sender solvent, even if it sends everything: it has a million ether, and gas costs
/// at most 2 gwei.
const GAS_MAX: u64 = 80_000 * 1_000_000_000;
const BLOCKS_MAX: u64 = 1_000_000_000;
const GAS_LIMIT_MIN: u64 = 36_000_000;
/// Maximum gas limit of a transaction from Osaka on (EIP-7825).
const TRANSACTION_GAS_MAX: u64 = 1 << 24;

/// Size of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// Number of transactions.
    Transactions(u64),
    /// Approximate gas used by the transactions, of which there is at least one.
    Gas(u64),
}

/// Parameters of a [`Workload`](crate::Workload). The same parameters give the same chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadParams {
    /// Seed of everything random.
    pub seed: u64,
    /// EIP-155 chain id.
    pub chain_id: u64,
    /// The fork that is active from genesis: Prague, Osaka or Amsterdam.
    pub fork: Fork,
    /// Number of accounts at genesis, without contracts.
    pub accounts: u64,
    /// Number of accounts, from the first, that have keys and send. Default: 50,000, or all.
    pub senders: Option<u64>,
    /// Number of accounts, from the first, that hold tokens; at least the senders, which are the
    /// default.
    pub holders: Option<u64>,
    /// Number of pools, each of the token and a token of its own that all senders hold. Ignored
    /// without swaps.
    pub pools: u64,
    /// Number of slots of the slot reader contract. Ignored without slot reads.
    pub slots: u64,
    /// Number of blocks after genesis.
    pub blocks: u64,
    /// Size of each block.
    pub block_size: BlockSize,
    /// Percentage of transactions that are token transfers. The rest after these and the next two
    /// kinds are payments.
    pub erc20_percent: u8,
    /// Percentage of transactions that are swaps.
    pub swap_percent: u8,
    /// Percentage of transactions that are slot reads, the worst case.
    pub slot_read_percent: u8,
    /// Gas limit of each slot read, all of which it uses.
    pub slot_read_gas: u64,
    /// Percentage of receivers that are fresh: not in the genesis state, and never used before.
    pub fresh_percent: u8,
    /// Distribution of senders, and of receivers that are not fresh.
    pub spread: Spread,
    /// Distribution of pools.
    pub pool_spread: Spread,
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
            holders: None,
            pools: 16,
            slots: 100_000,
            blocks: 20,
            block_size: BlockSize::Transactions(200),
            erc20_percent: 20,
            swap_percent: 0,
            slot_read_percent: 0,
            slot_read_gas: 16_000_000,
            fresh_percent: 25,
            spread: Spread::Uniform,
            pool_spread: Spread::Uniform,
        }
    }
}

/// Why no chain can be generated from parameters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// A parameter is out of range.
    #[error("{name} is {value}: it must be from {min} to {max}")]
    Range {
        /// Name of the parameter.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Minimum.
        min: u64,
        /// Maximum.
        max: u64,
    },
    /// There are too few accounts or pools to use each at most once in a block.
    #[error(
        "a block may have {needed} transactions, but there are only {there} {name} to use at most \
         once each"
    )]
    TooFew {
        /// Name of the parameter that is too small.
        name: &'static str,
        /// Maximum number of transactions in a block.
        needed: u64,
        /// Number available.
        there: u64,
    },
    /// The fork is not supported.
    #[error("workloads support Prague, Osaka and Amsterdam, not {0:?}")]
    Fork(Fork),
}

impl WorkloadParams {
    pub(crate) fn check(&self) -> Result<(), WorkloadError> {
        let senders = self.senders();
        let slots_min = match self.slot_read_percent {
            0 => 0,
            // A transaction reads no slot twice. Each read takes at least 2,100 gas.
            _ => self.slot_read_gas / 2_100,
        };
        let shares = u64::from(self.erc20_percent) + u64::from(self.swap_percent);
        let shares = shares + u64::from(self.slot_read_percent);
        let u32_max = u64::from(u32::MAX);
        in_range([
            ("chain_id", self.chain_id, 1, u64::MAX / 2 - 36),
            ("accounts", self.accounts, 1, u32_max),
            ("senders", senders, 1, self.accounts.min(SENDERS_MAX)),
            ("holders", self.holders(), senders, self.accounts),
            ("pools", self.pools, 1, u32_max),
            (
                "slot_read_gas",
                self.slot_read_gas,
                100_000,
                TRANSACTION_GAS_MAX,
            ),
            ("slots", self.slots, slots_min, u32_max),
            ("blocks", self.blocks, 0, BLOCKS_MAX),
            (
                "the share of ERC-20 transfers, swaps and slot reads together",
                shares,
                0,
                100,
            ),
            ("fresh_percent", self.fresh_percent.into(), 0, 100),
        ])?;
        let gas = self.largest(|kind| self.gas_limit_of(kind));
        let gas = GAS_MAX / self.blocks.max(1) / gas;
        let bytes = BLOCK_BYTES_MAX / self.largest(Kind::bytes_max);
        let transactions_max = bytes.min(gas);
        in_range([match self.block_size {
            BlockSize::Transactions(count) => {
                ("transactions in a block", count, 0, transactions_max)
            }
            BlockSize::Gas(gas) => {
                let max = transactions_max * self.least_gas();
                ("gas of a block", gas, 0, max)
            }
        }])?;
        let needed = self.transactions_per_block_max();
        let swaps = self.swap_percent > 0;
        for (name, spread, there) in [
            ("senders", self.spread, senders),
            (
                "accounts that do not send",
                self.spread,
                self.accounts - senders,
            ),
            (
                "pools",
                self.pool_spread,
                if swaps { self.pools } else { needed },
            ),
        ] {
            if spread == Spread::Distinct && there < needed {
                return Err(WorkloadError::TooFew {
                    name,
                    needed,
                    there,
                });
            }
        }
        match self.fork {
            Fork::Prague | Fork::Osaka => Ok(()),
            Fork::Amsterdam => self.check_new_slots(),
            fork => Err(WorkloadError::Fork(fork)),
        }
    }

    /// Number of accounts with keys.
    pub fn senders(&self) -> u64 {
        self.senders.unwrap_or(SENDERS_DEFAULT.min(self.accounts))
    }

    /// Number of accounts that hold tokens.
    pub fn holders(&self) -> u64 {
        self.holders.unwrap_or(self.senders())
    }

    /// Gas limit of every block: twice what its transactions may use, so that the base fee falls
    /// and every transaction stays valid.
    pub fn gas_limit(&self) -> u64 {
        let most = self.largest(|kind| self.regular_gas_limit_of(kind));
        let gas = match self.block_size {
            BlockSize::Transactions(count) => count * most,
            // A transaction's gas limit is at most twice its estimated gas.
            BlockSize::Gas(gas) => 2 * gas + most,
        };
        (2 * gas).max(GAS_LIMIT_MIN)
    }

    /// Gas limit of a transaction of this kind, which is enough for any receiver.
    pub(crate) fn gas_limit_of(&self, kind: Kind) -> u64 {
        self.regular_gas_limit_of(kind) + kind.new_slots_max() * self.new_slot_gas()
    }

    /// Gas limit without state gas, which is charged from Amsterdam on: at most twice
    /// [`Self::gas_of`].
    fn regular_gas_limit_of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Payment => 21_000,
            Kind::TokenTransfer => 65_000,
            Kind::Swap => 170_000,
            Kind::SlotRead => self.slot_read_gas,
        }
    }

    /// Estimated gas of a transaction of this kind, without state gas.
    pub(crate) fn gas_of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Payment => 21_000,
            // A new slot is charged as state gas.
            Kind::TokenTransfer if self.fork >= Fork::Amsterdam => 34_100,
            // A transfer to an account without tokens takes 17,100 gas more.
            Kind::TokenTransfer => 34_100 + 171 * self.to_no_holder_percent(),
            Kind::Swap => 87_000,
            Kind::SlotRead => self.slot_read_gas,
        }
    }

    /// State gas of a new slot; zero before Amsterdam.
    fn new_slot_gas(&self) -> u64 {
        match self.fork >= Fork::Amsterdam {
            true => new_slot_gas(self.gas_limit()),
            false => 0,
        }
    }

    /// Percentage of token transfers whose receiver holds no tokens.
    fn to_no_holder_percent(&self) -> u64 {
        let fresh = u64::from(self.fresh_percent);
        let others = self.accounts - self.holders();
        fresh + (100 - fresh) * others / self.accounts
    }

    /// Checks that a block's state gas stays below half of its gas limit, so that the base fee
    /// falls. The cost of a slot grows with the gas limit.
    fn check_new_slots(&self) -> Result<(), WorkloadError> {
        let Some(max) = (self.gas_limit() / 2).checked_div(self.new_slot_gas()) else {
            return Ok(());
        };
        let transfers = self.transactions_per_block_max() * u64::from(self.erc20_percent);
        let expected = transfers.saturating_mul(self.to_no_holder_percent()) / 10_000;
        let name = "token transfers of a block that make a slot, and a quarter more,";
        in_range([(name, expected + expected / 4, 0, max)])
    }

    /// The kind of transaction that a random number below 100 selects.
    pub(crate) fn kind(&self, percent: u64) -> Kind {
        let mut end = 0;
        for (kind, share) in self.shares() {
            end += share;
            if percent < end {
                return kind;
            }
        }
        Kind::Payment
    }

    /// Percentage of transactions of each kind.
    fn shares(&self) -> [(Kind, u64); 4] {
        let [tokens, swaps, reads] = [
            self.erc20_percent,
            self.swap_percent,
            self.slot_read_percent,
        ]
        .map(u64::from);
        let payments = 100u64.saturating_sub(tokens + swaps + reads);
        [
            (Kind::TokenTransfer, tokens),
            (Kind::Swap, swaps),
            (Kind::SlotRead, reads),
            (Kind::Payment, payments),
        ]
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let shares = self.shares().into_iter();
        shares.filter_map(|(kind, share)| (share > 0).then_some(kind))
    }

    /// Maximum of `takes` over all kinds of transactions in the workload.
    fn largest(&self, takes: impl Fn(Kind) -> u64) -> u64 {
        self.kinds().map(takes).max().unwrap_or(1)
    }

    /// Minimum estimated gas over all kinds of transactions in the workload.
    fn least_gas(&self) -> u64 {
        let gas = self.kinds().map(|kind| self.gas_of(kind));
        gas.min().unwrap_or(1)
    }

    fn transactions_per_block_max(&self) -> u64 {
        match self.block_size {
            BlockSize::Transactions(count) => count,
            BlockSize::Gas(gas) => gas.div_ceil(self.least_gas()).max(1),
        }
    }

    /// Fork rules of the chain.
    pub fn spec(&self) -> ChainSpec {
        ChainSpec {
            chain_id: self.chain_id,
            blob_schedule: BlobSchedule {
                // Osaka and Amsterdam keep Prague's targets.
                osaka: (self.fork >= Fork::Osaka).then(BlobParams::prague),
                bpo: [None; 5],
                ..BlobSchedule::mainnet()
            },
            ..ChainSpec::since_genesis(self.fork)
        }
    }
}

/// Checks numbers, each with its name, minimum and maximum.
fn in_range<const N: usize>(
    numbers: [(&'static str, u64, u64, u64); N],
) -> Result<(), WorkloadError> {
    for (name, value, min, max) in numbers {
        if !(min..=max).contains(&value) {
            return Err(WorkloadError::Range {
                name,
                value,
                min,
                max,
            });
        }
    }
    Ok(())
}
