//! The genesis state of a workload, and its file.

use super::{
    COINBASE, EXTRA_DATA, GENESIS_TIMESTAMP, TOKEN, TOKEN_CODE, Workload, keys::hash,
    token::token_balance_slot,
};
use crate::{ChainSpec, Genesis, GenesisAccount};
use alloy_eips::{
    eip1559::INITIAL_BASE_FEE,
    eip2935::{HISTORY_STORAGE_ADDRESS, HISTORY_STORAGE_CODE},
    eip4788::{BEACON_ROOTS_ADDRESS, BEACON_ROOTS_CODE},
    eip7002::{WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS, WITHDRAWAL_REQUEST_PREDEPLOY_CODE},
    eip7251::{CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS, CONSOLIDATION_REQUEST_PREDEPLOY_CODE},
    eip7840::BlobParams,
};
use alloy_primitives::{Address, Bytes, U256, uint};
use rayon::prelude::*;
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Accounts derived together, on all cores.
const CHUNK_ACCOUNTS: u64 = 1 << 16;

/// The token, and the contracts that the forks call.
const CONTRACTS: usize = 5;

const ETHER: U256 = uint!(1_000_000_000_000_000_000_U256);
/// A million ether for whoever sends.
const SENDER_BALANCE: U256 = uint!(1_000_000_000_000_000_000_000_000_U256);
/// Tokens of whoever sends.
const SENDER_TOKENS: U256 = uint!(1_000_000_000_000_000_000_000_000_U256);

impl Workload {
    /// The genesis block's header fields and rules, without the accounts.
    pub fn genesis(&self) -> Genesis {
        Genesis {
            file: "workload".into(),
            config: Some(self.params.spec()),
            timestamp: GENESIS_TIMESTAMP,
            extra_data: Bytes::from_static(EXTRA_DATA),
            gas_limit: self.params.gas_limit(),
            coinbase: COINBASE,
            base_fee_per_gas: Some(INITIAL_BASE_FEE),
            excess_blob_gas: Some(0),
            blob_gas_used: Some(0),
            accounts: self.params.accounts + CONTRACTS as u64,
            ..Genesis::default()
        }
    }

    /// Hands over the genesis accounts one by one, in the order of the file: contracts first, then
    /// accounts by index. An error of `on_account` ends it and is returned.
    pub fn for_each_account<E>(
        &self,
        mut on_account: impl FnMut(Address, GenesisAccount) -> Result<(), E>,
    ) -> Result<(), E> {
        for (address, contract) in self.contracts() {
            on_account(address, contract)?;
        }
        for start in (0..self.params.accounts).step_by(CHUNK_ACCOUNTS as usize) {
            let end = (start + CHUNK_ACCOUNTS).min(self.params.accounts);
            let chunk: Vec<_> = (start..end)
                .into_par_iter()
                .map(|index| self.account(index))
                .collect();
            for (address, balance) in chunk {
                on_account(
                    address,
                    GenesisAccount {
                        balance,
                        ..GenesisAccount::default()
                    },
                )?;
            }
        }
        Ok(())
    }

    fn account(&self, index: u64) -> (Address, U256) {
        let balance = hash("balance", self.params.seed, index);
        let base = if index < self.params.senders() {
            SENDER_BALANCE
        } else {
            ETHER
        };
        (
            self.address(index),
            base + U256::from_be_bytes(balance.0) % ETHER,
        )
    }

    fn contracts(&self) -> [(Address, GenesisAccount); CONTRACTS] {
        let tokens = |address| (token_balance_slot(address), SENDER_TOKENS);
        let storage = self
            .senders
            .par_iter()
            .map(|sender| tokens(&sender.address))
            .collect();
        let contract = |code: &Bytes, storage| GenesisAccount {
            nonce: 1,
            code: code.clone(),
            storage,
            ..GenesisAccount::default()
        };
        let system = |code: &Bytes| contract(code, Vec::new());
        [
            (TOKEN, contract(&TOKEN_CODE, storage)),
            (BEACON_ROOTS_ADDRESS, system(&BEACON_ROOTS_CODE)),
            (HISTORY_STORAGE_ADDRESS, system(&HISTORY_STORAGE_CODE)),
            (
                WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
                system(&WITHDRAWAL_REQUEST_PREDEPLOY_CODE),
            ),
            (
                CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
                system(&CONSOLIDATION_REQUEST_PREDEPLOY_CODE),
            ),
        ]
    }

    /// Writes the genesis file, account by account. `out` had better be buffered.
    pub fn write_genesis(&self, out: &mut impl Write) -> io::Result<()> {
        let genesis = self.genesis();
        let fields = json!({
            "config": config(&self.params.spec()),
            "nonce": "0x0",
            "timestamp": hex(genesis.timestamp),
            "extraData": genesis.extra_data,
            "gasLimit": hex(genesis.gas_limit),
            "difficulty": "0x0",
            "mixHash": genesis.mix_hash,
            "coinbase": genesis.coinbase,
            "number": "0x0",
            "gasUsed": "0x0",
            "parentHash": genesis.parent_hash,
            "baseFeePerGas": genesis.base_fee_per_gas.map(hex),
            "excessBlobGas": "0x0",
            "blobGasUsed": "0x0",
        });
        let fields = serde_json::to_string_pretty(&fields)?;
        // The object stays open for its last field.
        write!(
            out,
            "{},\n  \"alloc\": {{",
            fields.trim_end_matches('}').trim_end()
        )?;
        let mut separator = "";
        self.for_each_account(|address, account| {
            let GenesisAccount {
                balance,
                nonce,
                code,
                storage,
            } = account;
            write!(
                out,
                "{separator}\n    \"{address:#x}\": {{\"balance\": \"{balance:#x}\""
            )?;
            separator = ",";
            if !code.is_empty() {
                write!(out, ", \"nonce\": \"{nonce:#x}\", \"code\": \"{code}\"")?;
            }
            if !storage.is_empty() {
                let mut separator = ", \"storage\": {";
                for (slot, value) in storage {
                    write!(out, "{separator}\n      \"{slot}\": \"{value:#066x}\"")?;
                    separator = ",";
                }
                write!(out, "}}")?;
            }
            write!(out, "}}")
        })?;
        writeln!(out, "\n  }}\n}}")
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

/// The `config` object of the forks that workloads have.
fn config(spec: &ChainSpec) -> Map<String, Value> {
    let blocks = [
        ("homesteadBlock", spec.homestead_block),
        ("eip150Block", spec.eip150_block),
        ("eip155Block", spec.eip155_block),
        ("eip158Block", spec.eip158_block),
        ("byzantiumBlock", spec.byzantium_block),
        ("constantinopleBlock", spec.constantinople_block),
        ("petersburgBlock", spec.petersburg_block),
        ("istanbulBlock", spec.istanbul_block),
        ("berlinBlock", spec.berlin_block),
        ("londonBlock", spec.london_block),
        ("mergeNetsplitBlock", spec.merge_netsplit_block),
        ("shanghaiTime", spec.shanghai_time),
        ("cancunTime", spec.cancun_time),
        ("pragueTime", spec.prague_time),
        ("osakaTime", spec.osaka_time),
        ("amsterdamTime", spec.amsterdam_time),
    ];
    let schedule = &spec.blob_schedule;
    let blobs = [
        ("cancun", schedule.cancun),
        ("prague", schedule.prague),
        ("osaka", schedule.osaka),
    ];
    let params = |params: BlobParams| {
        json!({
            "target": params.target_blob_count,
            "max": params.max_blob_count,
            "baseFeeUpdateFraction": params.update_fraction as u64,
        })
    };
    let schedule: Map<String, Value> = blobs
        .into_iter()
        .filter_map(|(fork, given)| Some((fork.to_string(), params(given?))))
        .collect();
    let forks = blocks
        .into_iter()
        .filter_map(|(key, point)| Some((key, json!(point?))));
    [("chainId", json!(spec.chain_id))]
        .into_iter()
        .chain(forks)
        .chain([
            ("terminalTotalDifficulty", json!(0)),
            ("terminalTotalDifficultyPassed", json!(true)),
            ("depositContractAddress", json!(spec.deposit_contract)),
            // Besu wants to be told of a sealing engine, even past the merge.
            ("ethash", json!({})),
            ("blobSchedule", Value::Object(schedule)),
        ])
        .map(|(key, value)| (key.to_string(), value))
        .collect()
}
