//! Writing a workload's genesis file.

use crate::Workload;
use alloy_eips::eip7840::BlobParams;
use alloy_primitives::{B256, U256};
use cambium_chain::{ChainSpec, GenesisAccount, GenesisPart};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

impl Workload {
    /// Writes the genesis file, account by account. `out` should be buffered.
    ///
    /// # Errors
    ///
    /// Returns the error of `out` if it cannot be written to.
    pub fn write_genesis(&self, out: &mut impl Write) -> io::Result<()> {
        let genesis = self.genesis();
        let fields = json!({
            "config": config(&self.params().spec()),
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
        let mut alloc = Alloc {
            out,
            opened: Opened::Nothing,
        };
        self.for_each_part(|part| alloc.write(part))?;
        alloc.close()?;
        writeln!(out, "\n  }}\n}}")
    }
}

/// Writes accounts to the open `alloc` object.
struct Alloc<'a, W> {
    out: &'a mut W,
    opened: Opened,
}

/// The innermost JSON object that is open within `alloc`.
#[derive(Clone, Copy)]
enum Opened {
    Nothing,
    Account,
    Storage,
}

impl<W: Write> Alloc<'_, W> {
    fn write(&mut self, part: GenesisPart) -> io::Result<()> {
        match part {
            GenesisPart::Account(address, account) => {
                let separator = match self.opened {
                    Opened::Nothing => "",
                    Opened::Account | Opened::Storage => ",",
                };
                self.close()?;
                let GenesisAccount {
                    balance,
                    nonce,
                    code,
                    storage,
                } = account;
                write!(
                    self.out,
                    "{separator}\n    \"{address:#x}\": {{\"balance\": \"{balance:#x}\""
                )?;
                self.opened = Opened::Account;
                if !code.is_empty() {
                    write!(
                        self.out,
                        ", \"nonce\": \"{nonce:#x}\", \"code\": \"{code}\""
                    )?;
                }
                self.write_slots(&storage)
            }
            GenesisPart::Slots(_, slots) => self.write_slots(&slots),
        }
    }

    fn write_slots(&mut self, slots: &[(B256, U256)]) -> io::Result<()> {
        for (slot, value) in slots {
            let separator = match self.opened {
                Opened::Storage => ",",
                Opened::Nothing | Opened::Account => ", \"storage\": {",
            };
            write!(self.out, "{separator}\n      \"{slot}\": \"{value:#066x}\"")?;
            self.opened = Opened::Storage;
        }
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        let end = match std::mem::replace(&mut self.opened, Opened::Nothing) {
            Opened::Nothing => "",
            Opened::Account => "}",
            Opened::Storage => "}}",
        };
        self.out.write_all(end.as_bytes())
    }
}

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

/// The `config` object of a workload's fork rules.
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
            // Besu requires a consensus engine, even past the merge.
            ("ethash", json!({})),
            ("blobSchedule", Value::Object(schedule)),
        ])
        .map(|(key, value)| (key.to_string(), value))
        .collect()
}
