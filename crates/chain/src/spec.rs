//! A chain's fork rules, as in the `config` of its genesis file.
//!
//! Forks before the merge activate at a block number, the merge at a total difficulty, and forks
//! after it at a timestamp. So a block's fork depends on its number, its timestamp and whether it
//! is past the merge, which [`ChainSpec::is_post_merge`] decides from its parent's total
//! difficulty.

use alloy_consensus::Header;
use alloy_eips::{
    eip6110::MAINNET_DEPOSIT_CONTRACT_ADDRESS,
    eip7594::MAX_BLOBS_PER_TX_FUSAKA,
    eip7840::{BLOB_BASE_COST, BlobParams},
};
use alloy_primitives::{Address, U256};
use cambium_evm::{Block, BlockInput, Rules};
use revm::primitives::hardfork::SpecId;

/// Mainnet's deposit contract, which is the default of genesis files that name none.
pub const MAINNET_DEPOSIT_CONTRACT: Address = MAINNET_DEPOSIT_CONTRACT_ADDRESS;

/// Number of named forks that change only the blob schedule (EIP-7892): BPO1 to BPO5.
pub const BPO_FORKS: usize = 5;

/// Forks that change more than the difficulty bomb, the blob schedule or one account, in order of
/// activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Fork {
    Frontier,
    Homestead,
    Tangerine,
    SpuriousDragon,
    Byzantium,
    Constantinople,
    Petersburg,
    Istanbul,
    Berlin,
    London,
    Paris,
    Shanghai,
    Cancun,
    Prague,
    Osaka,
    Amsterdam,
}

/// The EIPs of Amsterdam, which are drafts. Public fixtures exist for two selections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum AmsterdamRules {
    /// All EIPs of release `bal@v5.7.0` of the public devnet fixtures: see `docs/AMSTERDAM.md`.
    #[default]
    Whole,
    /// Osaka with block access lists (EIP-7928) only.
    Lists,
}

/// The rules of databases that were created before there was a choice.
const fn rules_of_older_databases() -> AmsterdamRules {
    AmsterdamRules::Lists
}

/// Blob parameters by the fork that introduces them. A fork without an entry keeps those of its
/// predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct BlobSchedule {
    pub cancun: Option<BlobParams>,
    pub prague: Option<BlobParams>,
    pub osaka: Option<BlobParams>,
    /// BPO1 to BPO5.
    pub bpo: [Option<BlobParams>; BPO_FORKS],
    pub amsterdam: Option<BlobParams>,
}

impl BlobSchedule {
    /// Mainnet's parameters for the forks that are final.
    pub const fn mainnet() -> Self {
        Self {
            cancun: Some(BlobParams::cancun()),
            prague: Some(BlobParams::prague()),
            osaka: Some(BlobParams::osaka()),
            bpo: [
                Some(BlobParams::bpo1()),
                Some(BlobParams::bpo2()),
                None,
                None,
                None,
            ],
            amsterdam: None,
        }
    }
}

/// The fork configuration of a chain. A fork that is `None` never activates.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs)]
pub struct ChainSpec {
    /// EIP-155 chain id.
    pub chain_id: u64,

    pub homestead_block: Option<u64>,
    pub dao_fork_block: Option<u64>,
    /// Whether the chain applies the DAO's irregular state change (EIP-779) at `dao_fork_block`.
    pub dao_fork_support: bool,
    pub eip150_block: Option<u64>,
    pub eip155_block: Option<u64>,
    pub eip158_block: Option<u64>,
    pub byzantium_block: Option<u64>,
    pub constantinople_block: Option<u64>,
    /// If `None`, Petersburg activates together with Constantinople.
    pub petersburg_block: Option<u64>,
    pub istanbul_block: Option<u64>,
    pub muir_glacier_block: Option<u64>,
    pub berlin_block: Option<u64>,
    pub london_block: Option<u64>,
    pub arrow_glacier_block: Option<u64>,
    pub gray_glacier_block: Option<u64>,
    /// The block of the network split after the merge. Decides the merge only if there is no
    /// terminal total difficulty.
    pub merge_netsplit_block: Option<u64>,

    /// Children of a block whose total difficulty reaches this value are past the merge.
    pub terminal_total_difficulty: Option<U256>,

    pub shanghai_time: Option<u64>,
    pub cancun_time: Option<u64>,
    pub prague_time: Option<u64>,
    pub osaka_time: Option<u64>,
    /// BPO1 to BPO5.
    pub bpo_times: [Option<u64>; BPO_FORKS],
    pub amsterdam_time: Option<u64>,
    /// The EIPs that activate at `amsterdam_time`.
    #[serde(default = "rules_of_older_databases")]
    pub amsterdam_rules: AmsterdamRules,

    pub blob_schedule: BlobSchedule,
    /// The contract that logs deposits (EIP-6110).
    pub deposit_contract: Address,
}

impl Default for ChainSpec {
    /// Chain 1, in Frontier forever, with mainnet's blob schedule and deposit contract.
    fn default() -> Self {
        Self {
            chain_id: 1,
            homestead_block: None,
            dao_fork_block: None,
            dao_fork_support: false,
            eip150_block: None,
            eip155_block: None,
            eip158_block: None,
            byzantium_block: None,
            constantinople_block: None,
            petersburg_block: None,
            istanbul_block: None,
            muir_glacier_block: None,
            berlin_block: None,
            london_block: None,
            arrow_glacier_block: None,
            gray_glacier_block: None,
            merge_netsplit_block: None,
            terminal_total_difficulty: None,
            shanghai_time: None,
            cancun_time: None,
            prague_time: None,
            osaka_time: None,
            bpo_times: [None; BPO_FORKS],
            amsterdam_time: None,
            amsterdam_rules: AmsterdamRules::Whole,
            blob_schedule: BlobSchedule::mainnet(),
            deposit_contract: MAINNET_DEPOSIT_CONTRACT,
        }
    }
}

/// Wei in an ether.
const ETHER: u64 = 1_000_000_000_000_000_000;

/// Number of blocks, from the DAO fork on, that carry its mark in their extra data.
const DAO_EXTRA_DATA_BLOCKS: u64 = 10;

impl ChainSpec {
    /// A chain on which all forks up to `fork` are active from genesis, and no later fork
    /// activates. `fork` must be London or later; an earlier fork gives the same chain as London.
    pub fn since_genesis(fork: Fork) -> Self {
        let from_start = |at: Fork| (fork >= at).then_some(0);
        Self {
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
            merge_netsplit_block: from_start(Fork::Paris),
            terminal_total_difficulty: (fork >= Fork::Paris).then_some(U256::ZERO),
            shanghai_time: from_start(Fork::Shanghai),
            cancun_time: from_start(Fork::Cancun),
            prague_time: from_start(Fork::Prague),
            osaka_time: from_start(Fork::Osaka),
            amsterdam_time: from_start(Fork::Amsterdam),
            ..Self::default()
        }
    }

    /// Whether a block is past the merge, given its number and its parent's total difficulty.
    pub fn is_post_merge(&self, number: u64, parent_total_difficulty: U256) -> bool {
        match self.terminal_total_difficulty {
            Some(terminal) => parent_total_difficulty >= terminal,
            None => at(self.merge_netsplit_block, number),
        }
    }

    /// The latest fork that is active at a block.
    pub fn fork_at(&self, number: u64, timestamp: u64, post_merge: bool) -> Fork {
        let by_time = [
            (self.amsterdam_time, Fork::Amsterdam),
            (self.osaka_time, Fork::Osaka),
            (self.prague_time, Fork::Prague),
            (self.cancun_time, Fork::Cancun),
            (self.shanghai_time, Fork::Shanghai),
        ];
        let by_number = [
            (self.london_block, Fork::London),
            (self.berlin_block, Fork::Berlin),
            (self.istanbul_block, Fork::Istanbul),
            (
                self.petersburg_block.or(self.constantinople_block),
                Fork::Petersburg,
            ),
            (self.constantinople_block, Fork::Constantinople),
            (self.byzantium_block, Fork::Byzantium),
            (self.eip158_block, Fork::SpuriousDragon),
            (self.eip150_block, Fork::Tangerine),
            (self.homestead_block, Fork::Homestead),
        ];
        let latest = |forks: &[(Option<u64>, Fork)], point| {
            forks
                .iter()
                .find(|(activation, _)| at(*activation, point))
                .map(|(_, fork)| *fork)
        };
        if post_merge {
            return latest(&by_time, timestamp).unwrap_or(Fork::Paris);
        }
        latest(&by_number, number).unwrap_or(Fork::Frontier)
    }

    /// Whether signatures in a block must have `s` in the lower half (EIP-2). A block without
    /// difficulty is past the merge.
    pub fn has_low_signatures(&self, header: &Header) -> bool {
        header.difficulty.is_zero() || self.fork_at(header.number, 0, false) >= Fork::Homestead
    }

    /// Blob parameters at a timestamp; `None` before Cancun.
    pub fn blob_params_at(&self, timestamp: u64) -> Option<BlobParams> {
        if !at(self.cancun_time, timestamp) {
            return None;
        }
        let schedule = &self.blob_schedule;
        let bpo = self
            .bpo_times
            .iter()
            .zip(&schedule.bpo)
            .map(|(time, params)| (*time, *params));
        let mut params = [
            (self.cancun_time, schedule.cancun),
            (self.prague_time, schedule.prague),
            (self.osaka_time, schedule.osaka),
        ]
        .into_iter()
        .chain(bpo)
        .chain([(self.amsterdam_time, schedule.amsterdam)])
        .filter(|(time, _)| at(*time, timestamp))
        .filter_map(|(_, params)| params)
        .next_back()
        .unwrap_or(BlobParams::cancun());
        params.max_blobs_per_tx = params.max_blob_count;
        params.blob_base_cost = 0;
        // The blob base fee is computed by dividing by this.
        params.update_fraction = params.update_fraction.max(1);
        if at(self.osaka_time, timestamp) || at(self.amsterdam_time, timestamp) {
            params.max_blobs_per_tx = params.max_blob_count.min(MAX_BLOBS_PER_TX_FUSAKA);
            params.blob_base_cost = BLOB_BASE_COST;
        }
        Some(params)
    }

    /// The rules for executing a block.
    pub fn rules_at(&self, number: u64, timestamp: u64, post_merge: bool) -> Rules {
        let fork = self.fork_at(number, timestamp, post_merge);
        Rules {
            chain_id: self.chain_id,
            spec: self.spec_id(fork),
            eip1283: fork == Fork::Constantinople,
            eip155: post_merge || at(self.eip155_block, number) || fork >= Fork::Byzantium,
            block_access_list: fork >= Fork::Amsterdam,
            blobs: if fork >= Fork::Cancun {
                self.blob_params_at(timestamp)
            } else {
                None
            },
            block_reward: block_reward(fork),
            dao_change: self.dao_fork_support && self.dao_fork_block == Some(number),
            deposit_contract: self.deposit_contract,
        }
    }

    /// The executor's input for a block.
    pub(crate) fn input<'a>(
        &self,
        block: &'a Block,
        senders: &'a [Address],
        post_merge: bool,
    ) -> BlockInput<'a> {
        let header = &block.header;
        let rules = self.rules_at(header.number, header.timestamp, post_merge);
        BlockInput::of_block(rules, block, senders)
    }

    /// revm's id of a fork.
    fn spec_id(&self, fork: Fork) -> SpecId {
        match fork {
            Fork::Amsterdam if self.amsterdam_rules == AmsterdamRules::Whole => SpecId::AMSTERDAM,
            fork => spec_id(fork),
        }
    }

    /// Whether headers of a fork have the field `slotNumber` (EIP-7843).
    pub(crate) fn has_slot_number(&self, fork: Fork) -> bool {
        self.spec_id(fork) == SpecId::AMSTERDAM
    }

    /// Number of blocks by which the difficulty bomb is delayed at a block before the merge.
    pub fn bomb_delay_blocks(&self, number: u64) -> u64 {
        let delays = [
            (self.gray_glacier_block, 11_400_000),
            (self.arrow_glacier_block, 10_700_000),
            (self.london_block, 9_700_000),
            (self.muir_glacier_block, 9_000_000),
            (self.constantinople_block, 5_000_000),
            (self.byzantium_block, 3_000_000),
        ];
        let delay = delays
            .iter()
            .find(|(activation, _)| at(*activation, number));
        delay.map_or(0, |(_, blocks)| *blocks)
    }

    /// Whether a block's extra data must be the DAO fork's mark `dao-hard-fork` (true), or must not
    /// be because the chain opposes the fork (false). `None` if the block is unrestricted.
    pub fn dao_mark(&self, number: u64) -> Option<bool> {
        let since = number.checked_sub(self.dao_fork_block?)?;
        (since < DAO_EXTRA_DATA_BLOCKS).then_some(self.dao_fork_support)
    }

    /// Two forks in the wrong order, by their names in a genesis file: the first must not activate
    /// before the second, but does. A fork that is `None` activates with the next one that is not.
    pub fn forks_out_of_order(&self) -> Option<(&'static str, &'static str)> {
        let by_number = [
            ("homesteadBlock", self.homestead_block),
            ("daoForkBlock", self.dao_fork_block),
            ("eip150Block", self.eip150_block),
            ("eip155Block", self.eip155_block),
            ("eip158Block", self.eip158_block),
            ("byzantiumBlock", self.byzantium_block),
            ("constantinopleBlock", self.constantinople_block),
            ("petersburgBlock", self.petersburg_block),
            ("istanbulBlock", self.istanbul_block),
            ("muirGlacierBlock", self.muir_glacier_block),
            ("berlinBlock", self.berlin_block),
            ("londonBlock", self.london_block),
            ("arrowGlacierBlock", self.arrow_glacier_block),
            ("grayGlacierBlock", self.gray_glacier_block),
            ("mergeNetsplitBlock", self.merge_netsplit_block),
        ];
        let [bpo1, bpo2, bpo3, bpo4, bpo5] = self.bpo_times;
        let by_time = [
            ("shanghaiTime", self.shanghai_time),
            ("cancunTime", self.cancun_time),
            ("pragueTime", self.prague_time),
            ("osakaTime", self.osaka_time),
            ("bpo1Time", bpo1),
            ("bpo2Time", bpo2),
            ("bpo3Time", bpo3),
            ("bpo4Time", bpo4),
            ("bpo5Time", bpo5),
            ("amsterdamTime", self.amsterdam_time),
        ];
        out_of_order(&by_number).or_else(|| out_of_order(&by_time))
    }
}

fn out_of_order(forks: &[(&'static str, Option<u64>)]) -> Option<(&'static str, &'static str)> {
    let mut given = forks.iter().filter_map(|(name, at)| Some((*name, (*at)?)));
    let (mut earlier, mut from) = given.next()?;
    for (later, at) in given {
        if at < from {
            return Some((later, earlier));
        }
        (earlier, from) = (later, at);
    }
    None
}

/// Whether a fork with this activation is active at `point`, a block number or timestamp.
fn at(activation: Option<u64>, point: u64) -> bool {
    activation.is_some_and(|activation| activation <= point)
}

/// revm's id of a fork. Amsterdam with access lists alone is Osaka to revm.
fn spec_id(fork: Fork) -> SpecId {
    match fork {
        Fork::Frontier => SpecId::FRONTIER,
        Fork::Homestead => SpecId::HOMESTEAD,
        Fork::Tangerine => SpecId::TANGERINE,
        Fork::SpuriousDragon => SpecId::SPURIOUS_DRAGON,
        Fork::Byzantium => SpecId::BYZANTIUM,
        Fork::Constantinople | Fork::Petersburg => SpecId::PETERSBURG,
        Fork::Istanbul => SpecId::ISTANBUL,
        Fork::Berlin => SpecId::BERLIN,
        Fork::London => SpecId::LONDON,
        Fork::Paris => SpecId::MERGE,
        Fork::Shanghai => SpecId::SHANGHAI,
        Fork::Cancun => SpecId::CANCUN,
        Fork::Prague => SpecId::PRAGUE,
        Fork::Osaka | Fork::Amsterdam => SpecId::OSAKA,
    }
}

fn block_reward(fork: Fork) -> U256 {
    let ethers: u64 = match fork {
        Fork::Frontier | Fork::Homestead | Fork::Tangerine | Fork::SpuriousDragon => 5,
        Fork::Byzantium => 3,
        Fork::Constantinople | Fork::Petersburg | Fork::Istanbul | Fork::Berlin | Fork::London => 2,
        _ => 0,
    };
    U256::from(ethers) * U256::from(ETHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged_at(terminal: u64) -> ChainSpec {
        ChainSpec {
            homestead_block: Some(0),
            constantinople_block: Some(5),
            petersburg_block: Some(7),
            terminal_total_difficulty: Some(U256::from(terminal)),
            shanghai_time: Some(100),
            cancun_time: Some(200),
            osaka_time: Some(300),
            bpo_times: [Some(400), None, None, None, None],
            ..ChainSpec::default()
        }
    }

    #[test]
    fn the_child_of_the_block_that_reaches_the_terminal_difficulty_is_the_first_past_the_merge() {
        let spec = merged_at(1_000);
        assert!(!spec.is_post_merge(9, U256::from(999)));
        assert!(spec.is_post_merge(9, U256::from(1_000)));
        assert_eq!(spec.fork_at(9, 500, false), Fork::Petersburg);
        assert_eq!(spec.fork_at(9, 99, true), Fork::Paris);
        assert_eq!(spec.fork_at(9, 100, true), Fork::Shanghai);
    }

    #[test]
    fn constantinople_alone_is_told_from_petersburg() {
        let spec = merged_at(1_000);
        assert!(!spec.rules_at(4, 0, false).eip1283);
        assert!(spec.rules_at(5, 0, false).eip1283);
        assert!(!spec.rules_at(7, 0, false).eip1283);
        let together = ChainSpec {
            petersburg_block: None,
            ..spec
        };
        assert!(!together.rules_at(5, 0, false).eip1283);
    }

    #[test]
    fn a_fork_without_blob_parameters_keeps_its_predecessors_but_for_osakas_limits() {
        let mut spec = merged_at(0);
        spec.blob_schedule.osaka = None;
        assert_eq!(spec.blob_params_at(199), None);
        assert_eq!(spec.blob_params_at(200).unwrap().target_blob_count, 3);
        let osaka = spec.blob_params_at(300).unwrap();
        assert_eq!(
            (osaka.target_blob_count, osaka.blob_base_cost),
            (3, BLOB_BASE_COST)
        );
        assert_eq!(spec.blob_params_at(400), Some(BlobParams::bpo1()));
    }
}
