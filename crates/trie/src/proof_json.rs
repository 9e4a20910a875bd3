//! How `eth_getProof` writes numbers and slots.
//!
//! `alloy_serde::JsonStorageKey` is not used: it would bring serde and serde_json into the verifiers even
//! without the feature `serde`, and it reads decimal numbers as slots.

use crate::proof::StorageKey;
use alloc::{format, string::String};
use alloy_primitives::{B256, U256};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// A number of at most 256 bits as JSON-RPC writes it: `0x` and at least one hex digit. Leading zeros are read, since
/// clients write values of slots with all their digits. Anything else is an error, `0x` alone and JSON numbers
/// included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Quantity(#[serde(deserialize_with = "deserialize_quantity")] pub U256);

/// Reads a [`Quantity`].
pub(crate) fn deserialize_quantity<'de, D: Deserializer<'de>>(from: D) -> Result<U256, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.strip_prefix("0x").unwrap_or_default();
    if digits.is_empty() || digits.len() > 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Error::custom(format!(
            "a number is 0x and 1 to 64 hex digits, not {text:?}"
        )));
    }
    U256::from_str_radix(digits, 16).map_err(Error::custom)
}

/// A number of 64 bits as a hex quantity.
pub(crate) mod quantity {
    use super::{Deserializer, Error, Serialize, Serializer, U256, deserialize_quantity};

    pub(crate) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        U256::from(*number).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let number = deserialize_quantity(from)?;
        u64::try_from(number).map_err(|_| Error::custom("a number over 64 bits"))
    }
}

/// Writes 64 hex digits, or a hex quantity if the request had a number.
impl Serialize for StorageKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if self.quantity {
            U256::from_be_bytes(self.slot.0).serialize(to)
        } else {
            self.slot.serialize(to)
        }
    }
}

/// Reads 64 hex digits as the 32 bytes of a slot, and fewer as a number, which may have an odd
/// number of digits or leading zeros.
impl<'de> Deserialize<'de> for StorageKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        if digits.is_empty() || digits.len() > 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Err(Error::custom(format!(
                "a slot is of 1 to 64 hex digits, not {text:?}"
            )));
        }
        let number = U256::from_str_radix(digits, 16).map_err(Error::custom)?;
        Ok(Self {
            slot: B256::from(number.to_be_bytes()),
            quantity: digits.len() < 64,
        })
    }
}
