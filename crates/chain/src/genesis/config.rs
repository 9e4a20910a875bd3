//! The `config` object of a genesis file: the chain's fork rules.

use super::values::{Ignored, optional, required, shown};
use crate::{
    BlobSchedule, ChainSpec,
    json::{Fields, object},
};
use alloy_eips::{eip4844::DATA_GAS_PER_BLOB, eip7840::BlobParams};
use alloy_primitives::Address;
use serde::de::{Error, IgnoredAny, MapAccess};

/// Fields of `config` that do not affect the rules, or follow from other fields.
const SILENT: [&str; 2] = ["eip150hash", "terminaltotaldifficultypassed"];
/// Fields of `config` for rules that Cambium does not implement: other consensus, other limits.
const REFUSED: [&str; 10] = [
    "aura",
    "bor",
    "clique",
    "contractsizelimit",
    "evmstacksize",
    "ibft",
    "ibft2",
    "optimism",
    "parlia",
    "qbft",
];

/// Maximum number of blobs whose gas fits into 64 bits.
pub(crate) const BLOBS_MAX: u64 = u64::MAX / DATA_GAS_PER_BLOB;

#[derive(Default)]
pub(super) struct ConfigFields {
    spec: ChainSpec,
    has_chain_id: bool,
    deposit_contract: Option<Address>,
    refused: Vec<String>,
    ignored: Ignored,
}

/// The contents of a `config`.
pub(super) struct Config {
    pub(super) spec: ChainSpec,
    /// Fields for rules that are not supported.
    pub(super) refused: Vec<String>,
    /// Fields that were skipped.
    pub(super) ignored: Vec<String>,
}

impl ConfigFields {
    pub(super) fn finish(mut self) -> Result<Config, String> {
        if !self.has_chain_id {
            return Err("config: has no field `chainId`".to_owned());
        }
        if let Some(address) = self.deposit_contract {
            self.spec.deposit_contract = address;
        }
        if let Some((later, earlier)) = self.spec.forks_out_of_order() {
            return Err(format!("config: {later} comes before {earlier}"));
        }
        Ok(Config {
            spec: self.spec,
            refused: self.refused,
            ignored: self.ignored.0,
        })
    }
}

impl<'de> Fields<'de> for ConfigFields {
    const EXPECTED: &'static str = "an object of fork rules";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        let spec = &mut self.spec;
        let lower = key.to_ascii_lowercase();
        let point = match lower.as_str() {
            "homesteadblock" => &mut spec.homestead_block,
            "daoforkblock" => &mut spec.dao_fork_block,
            "eip150block" => &mut spec.eip150_block,
            "eip155block" => &mut spec.eip155_block,
            "eip158block" => &mut spec.eip158_block,
            "byzantiumblock" => &mut spec.byzantium_block,
            "constantinopleblock" => &mut spec.constantinople_block,
            "petersburgblock" => &mut spec.petersburg_block,
            "istanbulblock" => &mut spec.istanbul_block,
            "muirglacierblock" => &mut spec.muir_glacier_block,
            "berlinblock" => &mut spec.berlin_block,
            "londonblock" => &mut spec.london_block,
            "arrowglacierblock" => &mut spec.arrow_glacier_block,
            "grayglacierblock" => &mut spec.gray_glacier_block,
            "mergenetsplitblock" => &mut spec.merge_netsplit_block,
            "shanghaitime" => &mut spec.shanghai_time,
            "cancuntime" => &mut spec.cancun_time,
            "praguetime" => &mut spec.prague_time,
            "osakatime" => &mut spec.osaka_time,
            "bpo1time" => &mut spec.bpo_times[0],
            "bpo2time" => &mut spec.bpo_times[1],
            "bpo3time" => &mut spec.bpo_times[2],
            "bpo4time" => &mut spec.bpo_times[3],
            "bpo5time" => &mut spec.bpo_times[4],
            "amsterdamtime" => &mut spec.amsterdam_time,
            other => return self.take_other(other, key, map),
        };
        *point = optional(map, key)?;
        Ok(())
    }
}

impl ConfigFields {
    /// Reads a field that is not a fork's block or time.
    fn take_other<'de, M: MapAccess<'de>>(
        &mut self,
        lower: &str,
        key: &str,
        map: &mut M,
    ) -> Result<(), M::Error> {
        let spec = &mut self.spec;
        match lower {
            "chainid" => {
                spec.chain_id = required(map, key)?;
                self.has_chain_id = true;
            }
            "daoforksupport" => spec.dao_fork_support = optional(map, key)?.unwrap_or(false),
            "terminaltotaldifficulty" => spec.terminal_total_difficulty = optional(map, key)?,
            "depositcontractaddress" => self.deposit_contract = optional(map, key)?,
            "blobschedule" => {
                let mut fields = ScheduleFields {
                    schedule: BlobSchedule::default(),
                    ignored: &mut self.ignored,
                };
                if object(map, key, &mut fields)? {
                    spec.blob_schedule = fields.schedule;
                }
            }
            "ethash" => {
                let mut fields = EthashFields {
                    refused: &mut self.refused,
                };
                object(map, key, &mut fields)?;
            }
            _ if SILENT.contains(&lower) => Ignored::default().pass(map, "")?,
            _ if REFUSED.contains(&lower) => refuse(map, shown(key), &mut self.refused)?,
            _ => self
                .ignored
                .pass(map, format_args!("config.{}", shown(key)))?,
        }
        Ok(())
    }
}

/// Skips a field for rules that are not supported, and notes it unless it is `null`.
fn refuse<'de, M: MapAccess<'de>>(
    map: &mut M,
    field: String,
    refused: &mut Vec<String>,
) -> Result<(), M::Error> {
    let is_there = map.next_value::<Option<IgnoredAny>>()?.is_some();
    if is_there && !refused.contains(&field) {
        refused.push(field);
    }
    Ok(())
}

/// The `ethash` object. Seals are not verified, but difficulties are.
struct EthashFields<'a> {
    refused: &'a mut Vec<String>,
}

impl<'de> Fields<'de> for EthashFields<'_> {
    const EXPECTED: &'static str = "an object";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key.to_ascii_lowercase().as_str() {
            "fixeddifficulty" => refuse(map, format!("ethash.{}", shown(key)), self.refused),
            _ => Ignored::default().pass(map, ""),
        }
    }
}

struct ScheduleFields<'a> {
    schedule: BlobSchedule,
    ignored: &'a mut Ignored,
}

impl<'de> Fields<'de> for ScheduleFields<'_> {
    const EXPECTED: &'static str = "an object of blob parameters by fork";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        let schedule = &mut self.schedule;
        let params = match key.to_ascii_lowercase().as_str() {
            "cancun" => &mut schedule.cancun,
            "prague" => &mut schedule.prague,
            "osaka" => &mut schedule.osaka,
            "bpo1" => &mut schedule.bpo[0],
            "bpo2" => &mut schedule.bpo[1],
            "bpo3" => &mut schedule.bpo[2],
            "bpo4" => &mut schedule.bpo[3],
            "bpo5" => &mut schedule.bpo[4],
            "amsterdam" => &mut schedule.amsterdam,
            _ => {
                let field = format!("config.blobSchedule.{}", shown(key));
                return self.ignored.pass(map, field);
            }
        };
        let mut fields = ParamsFields {
            given: [None; 3],
            ignored: self.ignored,
        };
        if object(map, key, &mut fields)? {
            let [Some(target), Some(max), Some(fraction)] = fields.given else {
                let expected = ParamsFields::EXPECTED;
                return Err(M::Error::custom(format_args!("{key}: not {expected}")));
            };
            let most = target.max(max);
            if most > BLOBS_MAX {
                return Err(M::Error::custom(format_args!(
                    "{key}: {most} blobs, over the limit of {BLOBS_MAX} whose gas fits into 64 bits"
                )));
            }
            if fraction == 0 {
                return Err(M::Error::custom(format_args!(
                    "{key}: baseFeeUpdateFraction: 0"
                )));
            }
            *params = Some(BlobParams {
                target_blob_count: target,
                max_blob_count: max,
                update_fraction: u128::from(fraction),
                max_blobs_per_tx: max,
                ..BlobParams::cancun()
            });
        }
        Ok(())
    }
}

struct ParamsFields<'a> {
    /// Target, maximum, update fraction.
    given: [Option<u64>; 3],
    ignored: &'a mut Ignored,
}

impl<'de> Fields<'de> for ParamsFields<'_> {
    const EXPECTED: &'static str = "an object of target, max and baseFeeUpdateFraction";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key.to_ascii_lowercase().as_str() {
            "target" => self.given[0] = optional(map, key)?,
            "max" => self.given[1] = optional(map, key)?,
            "basefeeupdatefraction" => self.given[2] = optional(map, key)?,
            _ => {
                let field = format!("config.blobSchedule.*.{}", shown(key));
                self.ignored.pass(map, field)?;
            }
        }
        Ok(())
    }
}
