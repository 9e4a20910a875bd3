//! The fork rules of public chains.

use crate::{BPO_FORKS, ChainSpec, Fork};
use alloy_primitives::{U256, address, uint};

type Rules = fn() -> ChainSpec;

impl ChainSpec {
    /// The public chains with built-in rules, by name.
    pub const PUBLIC: [(&str, Rules); 4] = [
        ("mainnet", Self::mainnet),
        ("sepolia", Self::sepolia),
        ("holesky", Self::holesky),
        ("hoodi", Self::hoodi),
    ];

    /// The rules of Ethereum mainnet.
    pub fn mainnet() -> Self {
        Self {
            chain_id: 1,
            homestead_block: Some(1_150_000),
            dao_fork_block: Some(1_920_000),
            dao_fork_support: true,
            eip150_block: Some(2_463_000),
            eip155_block: Some(2_675_000),
            eip158_block: Some(2_675_000),
            byzantium_block: Some(4_370_000),
            constantinople_block: Some(7_280_000),
            petersburg_block: Some(7_280_000),
            istanbul_block: Some(9_069_000),
            muir_glacier_block: Some(9_200_000),
            berlin_block: Some(12_244_000),
            london_block: Some(12_965_000),
            arrow_glacier_block: Some(13_773_000),
            gray_glacier_block: Some(15_050_000),
            terminal_total_difficulty: Some(uint!(58_750_000_000_000_000_000_000_U256)),
            shanghai_time: Some(1_681_338_455),
            cancun_time: Some(1_710_338_135),
            prague_time: Some(1_746_612_311),
            osaka_time: Some(1_764_798_551),
            bpo_times: bpo(1_765_290_071, 1_767_747_671),
            ..Self::default()
        }
    }

    /// The rules of the testnet Sepolia.
    pub fn sepolia() -> Self {
        Self {
            chain_id: 11_155_111,
            merge_netsplit_block: Some(1_735_371),
            terminal_total_difficulty: Some(uint!(17_000_000_000_000_000_U256)),
            shanghai_time: Some(1_677_557_088),
            cancun_time: Some(1_706_655_072),
            prague_time: Some(1_741_159_776),
            osaka_time: Some(1_760_427_360),
            bpo_times: bpo(1_761_017_184, 1_761_607_008),
            deposit_contract: address!("7f02C3E3c98b133055B8B348B2Ac625669Ed295D"),
            ..Self::since_genesis(Fork::London)
        }
    }

    /// The rules of the testnet Holesky.
    pub fn holesky() -> Self {
        Self {
            chain_id: 17_000,
            terminal_total_difficulty: Some(U256::ZERO),
            shanghai_time: Some(1_696_000_704),
            cancun_time: Some(1_707_305_664),
            prague_time: Some(1_740_434_112),
            osaka_time: Some(1_759_308_480),
            bpo_times: bpo(1_759_800_000, 1_760_389_824),
            deposit_contract: address!("4242424242424242424242424242424242424242"),
            ..Self::since_genesis(Fork::London)
        }
    }

    /// The rules of the testnet Hoodi.
    pub fn hoodi() -> Self {
        Self {
            chain_id: 560_048,
            prague_time: Some(1_742_999_832),
            osaka_time: Some(1_761_677_592),
            bpo_times: bpo(1_762_365_720, 1_762_955_544),
            ..Self::since_genesis(Fork::Cancun)
        }
    }
}

const fn bpo(first: u64, second: u64) -> [Option<u64>; BPO_FORKS] {
    [Some(first), Some(second), None, None, None]
}
