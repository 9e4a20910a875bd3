//! The top-level object of a genesis file: header fields, `config`, and `alloc` piece by piece.

use super::{
    Genesis, GenesisAccount, GenesisError, GenesisPart,
    config::ConfigFields,
    values::{Ignored, Value, optional, required, shown},
};
use crate::json::{Fields, Object, brief_json_error, object};
use alloy_primitives::{Address, B256, U256};
use serde::de::{DeserializeSeed, Error, MapAccess};
use std::io;

/// Maximum number of slots in a piece of an account.
const PART_SLOTS: usize = 1 << 16;

pub(super) fn parse<E: From<GenesisError>>(
    name: &str,
    reader: impl io::Read,
    on_part: impl FnMut(GenesisPart) -> Result<(), E>,
) -> Result<Genesis, E> {
    let mut top = TopFields {
        genesis: Genesis {
            file: name.into(),
            ..Genesis::default()
        },
        has_difficulty: false,
        has_gas_limit: false,
        has_alloc: false,
        alloc: AllocFields {
            parts: Parts {
                on_part,
                failure: None,
            },
            accounts: 0,
            ignored: Ignored::default(),
        },
    };
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    let parsed = Object(&mut top)
        .deserialize(&mut deserializer)
        .and_then(|is_object| {
            deserializer.end()?;
            is_object
                .then_some(())
                .ok_or_else(|| serde_json::Error::custom("null"))
        });
    if let Some(failure) = top.alloc.parts.failure {
        return Err(failure);
    }
    let fail = |source| GenesisError::Parse {
        file: name.into(),
        source: brief_json_error(source),
    };
    parsed.map_err(fail)?;
    for (there, field) in [
        (top.has_alloc, "alloc"),
        (top.has_difficulty, "difficulty"),
        (top.has_gas_limit, "gasLimit"),
    ] {
        if !there {
            let source = serde_json::Error::custom(format_args!("has no field `{field}`"));
            return Err(fail(source).into());
        }
    }
    let mut genesis = top.genesis;
    genesis.accounts = top.alloc.accounts;
    genesis.ignored.extend(top.alloc.ignored.0);
    Ok(genesis)
}

struct TopFields<E, F> {
    genesis: Genesis,
    has_difficulty: bool,
    has_gas_limit: bool,
    has_alloc: bool,
    alloc: AllocFields<E, F>,
}

impl<'de, E, F> Fields<'de> for TopFields<E, F>
where
    F: FnMut(GenesisPart) -> Result<(), E>,
{
    const EXPECTED: &'static str = "a genesis object";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        let genesis = &mut self.genesis;
        match key.to_ascii_lowercase().as_str() {
            "alloc" if self.has_alloc => return Err(M::Error::custom("a second `alloc`")),
            "alloc" => self.has_alloc = object(map, "alloc", &mut self.alloc)?,
            "config" if genesis.config.is_some() => {
                return Err(M::Error::custom("a second `config`"));
            }
            "config" => {
                let mut fields = ConfigFields::default();
                if object(map, "config", &mut fields)? {
                    let config = fields.finish().map_err(M::Error::custom)?;
                    genesis.config = Some(config.spec);
                    genesis.refused = config.refused;
                    genesis.ignored.extend(config.ignored);
                }
            }
            "nonce" => set(map, key, &mut genesis.nonce)?,
            "timestamp" => set(map, key, &mut genesis.timestamp)?,
            "extradata" => set(map, key, &mut genesis.extra_data)?,
            "gaslimit" => {
                genesis.gas_limit = required(map, key)?;
                self.has_gas_limit = true;
            }
            "gasused" => set(map, key, &mut genesis.gas_used)?,
            "difficulty" => {
                genesis.difficulty = required(map, key)?;
                self.has_difficulty = true;
            }
            "mixhash" => set(map, key, &mut genesis.mix_hash)?,
            "coinbase" => set(map, key, &mut genesis.coinbase)?,
            "number" => set(map, key, &mut genesis.number)?,
            "parenthash" => set(map, key, &mut genesis.parent_hash)?,
            "basefeepergas" => genesis.base_fee_per_gas = optional(map, key)?,
            "excessblobgas" => genesis.excess_blob_gas = optional(map, key)?,
            "blobgasused" => genesis.blob_gas_used = optional(map, key)?,
            "slotnumber" => genesis.slot_number = optional(map, key)?,
            "parentbeaconblockroot" => genesis.parent_beacon_block_root = optional(map, key)?,
            _ => {
                let mut ignored = Ignored(std::mem::take(&mut genesis.ignored));
                ignored.pass(map, shown(key))?;
                genesis.ignored = ignored.0;
            }
        }
        Ok(())
    }
}

/// Reads `value`, unless the field is `null`.
fn set<'de, T: Value, M: MapAccess<'de>>(
    map: &mut M,
    key: &str,
    value: &mut T,
) -> Result<(), M::Error> {
    if let Some(given) = optional(map, key)? {
        *value = given;
    }
    Ok(())
}

/// The receiver of the pieces.
struct Parts<E, F> {
    on_part: F,
    /// The error of `on_part` that ended the reading.
    failure: Option<E>,
}

impl<E, F: FnMut(GenesisPart) -> Result<(), E>> Parts<E, F> {
    fn give<D: Error>(&mut self, part: GenesisPart) -> Result<(), D> {
        (self.on_part)(part).map_err(|failure| {
            self.failure = Some(failure);
            D::custom("stopped")
        })
    }
}

struct AllocFields<E, F> {
    parts: Parts<E, F>,
    accounts: u64,
    ignored: Ignored,
}

impl<'de, E, F> Fields<'de> for AllocFields<E, F>
where
    F: FnMut(GenesisPart) -> Result<(), E>,
{
    const EXPECTED: &'static str = "an object of accounts by address";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        let Some(address) = Address::from_text(key) else {
            let key = shown(key);
            return Err(M::Error::custom(format_args!(
                "`{key}` is not {}",
                Address::EXPECTED
            )));
        };
        let mut fields = AccountFields {
            address,
            account: GenesisAccount::default(),
            parts: &mut self.parts,
            ignored: &mut self.ignored,
        };
        if !object(map, address, &mut fields)? {
            return Err(M::Error::custom(format_args!("{address}: null")));
        }
        let account = fields.account;
        self.accounts += 1;
        self.parts.give(GenesisPart::Account(address, account))
    }
}

struct AccountFields<'a, E, F> {
    address: Address,
    account: GenesisAccount,
    parts: &'a mut Parts<E, F>,
    ignored: &'a mut Ignored,
}

impl<'de, E, F> Fields<'de> for AccountFields<'_, E, F>
where
    F: FnMut(GenesisPart) -> Result<(), E>,
{
    const EXPECTED: &'static str = "an account object";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        match key {
            "balance" => self.account.balance = required(map, key)?,
            "nonce" => set(map, key, &mut self.account.nonce)?,
            "code" => set(map, key, &mut self.account.code)?,
            "storage" => {
                let mut fields = StorageFields {
                    address: self.address,
                    slots: &mut self.account.storage,
                    parts: self.parts,
                };
                object(map, key, &mut fields)?;
            }
            _ => self
                .ignored
                .pass(map, format_args!("alloc.*.{}", shown(key)))?,
        }
        Ok(())
    }
}

struct StorageFields<'a, E, F> {
    address: Address,
    slots: &'a mut Vec<(B256, U256)>,
    parts: &'a mut Parts<E, F>,
}

impl<'de, E, F> Fields<'de> for StorageFields<'_, E, F>
where
    F: FnMut(GenesisPart) -> Result<(), E>,
{
    const EXPECTED: &'static str = "an object of values by slot";

    fn take<M: MapAccess<'de>>(&mut self, key: &str, map: &mut M) -> Result<(), M::Error> {
        let Some(slot) = B256::from_text(key) else {
            let key = shown(key);
            return Err(M::Error::custom(format_args!(
                "`{key}` is not {}",
                B256::EXPECTED
            )));
        };
        let value: B256 = required(map, slot)?;
        if self.slots.len() == PART_SLOTS {
            let slots = std::mem::take(self.slots);
            self.parts.give(GenesisPart::Slots(self.address, slots))?;
        }
        self.slots.push((slot, value.into()));
        Ok(())
    }
}
