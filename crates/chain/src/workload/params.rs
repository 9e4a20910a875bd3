//! What a workload is made from.

use super::{Spread, kind::Kind};
use crate::{BlobSchedule, ChainSpec, Fork};
use alloy_eips::eip7840::BlobParams;
use cambium_evm::new_slot_gas;

/// Accounts with keys, unless the parameters say otherwise.
const SENDERS_DEFAULT: u64 = 50_000;
const SENDERS_MAX: u64 = 1 << 24;
/// Keeps a block's transactions under Osaka's 8 MiB of RLP (EIP-7934).
const BLOCK_BYTES_MAX: u64 = 7 << 20;
/// Keeps every sender solvent, even if one should send everything: it has a million ether, and gas
/// is at 2 gwei.
const GAS_MAX: u64 = 80_000 * 1_000_000_000;
const BLOCKS_MAX: u64 = 1_000_000_000;
const GAS_LIMIT_MIN: u64 = 36_000_000;
/// Of a transaction, from Osaka on (EIP-7825).
const TRANSACTION_GAS_MAX: u64 = 1 << 24;

/// How much is in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockSize {
    /// So many transactions.
    Transactions(u64),
    /// As many transactions as take about so much gas, and at least one.
    Gas(u64),
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
    /// How many of them, the first ones, hold tokens: the senders, unless given, and at least
    /// these.
    pub holders: Option<u64>,
    /// Pools to swap in, each of the token and one of its own that all senders hold. Without
    /// swaps there are none.
    pub pools: u64,
    /// Slots of the contract that slots are read of. Without such reads there are none.
    pub slots: u64,
    /// Blocks after genesis.
    pub blocks: u64,
    /// How much is in each.
    pub block_size: BlockSize,
    /// Transactions that transfer tokens, in 100. What these and the next two leave pays ether.
    pub erc20_percent: u8,
    /// Transactions that swap one token for another, in 100.
    pub swap_percent: u8,
    /// Transactions that read slots until their gas is used up, in 100: the worst case.
    pub slot_read_percent: u8,
    /// Gas of each of these.
    pub slot_read_gas: u64,
    /// Receivers that nothing was ever sent to and that are not in the genesis, in 100.
    pub fresh_percent: u8,
    /// How senders, and receivers that are not fresh, are chosen.
    pub spread: Spread,
    /// How pools are chosen.
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
    /// Too few for none to be used twice in a block.
    #[error(
        "a block may have {needed} transactions, and there are {there} {name}: \
         too few to use none twice"
    )]
    TooFew {
        /// What there is too little of.
        name: &'static str,
        /// Transactions in a block.
        needed: u64,
        /// How many there are.
        there: u64,
    },
    /// A fork that workloads are not made for.
    #[error("workloads are made for Prague, Osaka and Amsterdam, not for {0:?}")]
    Fork(Fork),
}

impl WorkloadParams {
    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let senders = self.senders();
        let slots_min = match self.slot_read_percent {
            0 => 0,
            // None is read twice by a transaction: each takes 2,100 gas and more.
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

    /// How many accounts have keys.
    pub fn senders(&self) -> u64 {
        self.senders.unwrap_or(SENDERS_DEFAULT.min(self.accounts))
    }

    /// How many accounts hold tokens.
    pub fn holders(&self) -> u64 {
        self.holders.unwrap_or(self.senders())
    }

    /// The gas limit of every block: twice what its transactions may use, so that the base fee
    /// falls and every transaction stays valid.
    pub fn gas_limit(&self) -> u64 {
        let most = self.largest(|kind| self.regular_gas_limit_of(kind));
        let gas = match self.block_size {
            BlockSize::Transactions(count) => count * most,
            // No kind's limit is more than twice what is reckoned with.
            BlockSize::Gas(gas) => 2 * gas + most,
        };
        (2 * gas).max(GAS_LIMIT_MIN)
    }

    /// The gas limit of a transaction: enough wherever it goes.
    pub(super) fn gas_limit_of(&self, kind: Kind) -> u64 {
        self.regular_gas_limit_of(kind) + kind.new_slots_max() * self.new_slot_gas()
    }

    /// The gas limit without state gas, which there is from Amsterdam on: at most twice
    /// [`Self::gas_of`].
    fn regular_gas_limit_of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Payment => 21_000,
            Kind::TokenTransfer => 65_000,
            Kind::Swap => 170_000,
            Kind::SlotRead => self.slot_read_gas,
        }
    }

    /// About the gas that a transaction uses, without state gas.
    pub(super) fn gas_of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Payment => 21_000,
            // What a new slot takes is state gas.
            Kind::TokenTransfer if self.fork >= Fork::Amsterdam => 34_100,
            // To who holds none it is 17,100 gas more.
            Kind::TokenTransfer => 34_100 + 171 * self.to_no_holder_percent(),
            Kind::Swap => 87_000,
            Kind::SlotRead => self.slot_read_gas,
        }
    }

    /// State gas of a new slot: none before Amsterdam.
    fn new_slot_gas(&self) -> u64 {
        match self.fork >= Fork::Amsterdam {
            true => new_slot_gas(self.gas_limit()),
            false => 0,
        }
    }

    /// Token transfers to who holds none, in 100.
    fn to_no_holder_percent(&self) -> u64 {
        let fresh = u64::from(self.fresh_percent);
        let others = self.accounts - self.holders();
        fresh + (100 - fresh) * others / self.accounts
    }

    /// A block's state gas must stay under half of its gas limit, for the base fee to fall, and the
    /// price of a slot grows with that limit.
    fn check_new_slots(&self) -> Result<(), WorkloadError> {
        let Some(max) = (self.gas_limit() / 2).checked_div(self.new_slot_gas()) else {
            return Ok(());
        };
        let transfers = self.transactions_per_block_max() * u64::from(self.erc20_percent);
        let expected = transfers.saturating_mul(self.to_no_holder_percent()) / 10_000;
        let name = "token transfers of a block that make a slot, and a quarter more,";
        in_range([(name, expected + expected / 4, 0, max)])
    }

    /// The kind of transaction that `percent`, below 100, falls on.
    pub(super) fn kind(&self, percent: u64) -> Kind {
        let mut end = 0;
        for (kind, share) in self.shares() {
            end += share;
            if percent < end {
                return kind;
            }
        }
        Kind::Payment
    }

    /// How many transactions in 100 are of each kind.
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

    /// The largest of what a kind of transaction that there is takes of something.
    fn largest(&self, takes: impl Fn(Kind) -> u64) -> u64 {
        self.kinds().map(takes).max().unwrap_or(1)
    }

    /// The least gas that a transaction is reckoned with.
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

    /// The fork rules of the chain.
    pub fn spec(&self) -> ChainSpec {
        ChainSpec {
            chain_id: self.chain_id,
            blob_schedule: BlobSchedule {
                // Osaka and Amsterdam bring no other targets.
                osaka: (self.fork >= Fork::Osaka).then(BlobParams::prague),
                bpo: [None; 5],
                ..BlobSchedule::mainnet()
            },
            ..ChainSpec::since_genesis(self.fork)
        }
    }
}

/// Each number with its name, its least and its greatest.
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
