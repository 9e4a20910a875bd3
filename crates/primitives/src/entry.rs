//! Values of a key-value database, and their encoding in pages and logs.

use crate::codec::{DecodeError, Reader};
use alloc::vec::Vec;
use alloy_primitives::{B256, Bytes};
use core::num::NonZeroU64;

/// Largest value that is part of its leaf, in bytes. Larger ones are in value segments.
pub const INLINE_VALUE_BYTES_MAX: usize = 512;
/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 20;

/// The value at a key of a key-value database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub enum EntryValue {
    /// The value itself, of at most [`INLINE_VALUE_BYTES_MAX`] bytes.
    Inline(Bytes),
    /// A value that is stored elsewhere.
    Stored(StoredValue),
}

/// Reference to a value that is stored apart from its leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StoredValue {
    /// Hash of the value, by the database's commitment.
    pub hash: B256,
    /// Length of the value in bytes: over [`INLINE_VALUE_BYTES_MAX`], at most [`VALUE_BYTES_MAX`].
    #[cfg_attr(feature = "serde", serde(with = "alloy_serde::quantity"))]
    pub len: u32,
    /// Where the value is. The number means something to the store only.
    #[cfg_attr(feature = "serde", serde(with = "alloy_serde::quantity"))]
    pub place: NonZeroU64,
}

/// First byte of an encoded value. No account's encoding begins with one of these.
const INLINE: u8 = 0x40;
const STORED: u8 = 0x41;
/// Size of an encoded [`StoredValue`], in bytes.
const STORED_BYTES: usize = 1 + 32 + 4 + 8;

impl EntryValue {
    /// Returns the length of the value in bytes.
    pub fn value_len(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Stored(stored) => stored.len as usize,
        }
    }

    /// Returns whether encoded `bytes` are those of an entry's value, and not of an account.
    pub fn is_encoding(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(INLINE | STORED)))
    }

    /// Size of the encoding, in bytes.
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Inline(bytes) => 1 + bytes.len(),
            Self::Stored(_) => STORED_BYTES,
        }
    }

    /// Appends the encoding to `out`.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | 0x40: the value follows, to the end |
    /// | 1 | 0-512 | value |
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | 0x41: the value is stored elsewhere |
    /// | 1 | 32 | hash of the value |
    /// | 33 | 4 | length of the value in bytes, little-endian |
    /// | 37 | 8 | place, little-endian, not zero |
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Inline(bytes) => {
                out.push(INLINE);
                out.extend_from_slice(bytes);
            }
            Self::Stored(StoredValue { hash, len, place }) => {
                out.push(STORED);
                out.extend_from_slice(hash.as_slice());
                out.extend_from_slice(&len.to_le_bytes());
                out.extend_from_slice(&place.get().to_le_bytes());
            }
        }
    }

    /// Decodes a value from exactly `bytes`.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are not such an encoding, or have a length that no value has.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = match reader.u8()? {
            INLINE if reader.remaining() > INLINE_VALUE_BYTES_MAX => {
                return Err(reader.error("a value too long for its leaf"));
            }
            INLINE => Self::Inline(Bytes::copy_from_slice(reader.take(reader.remaining())?)),
            STORED => {
                let (hash, len) = (reader.b256()?, reader.u32()?);
                if !(INLINE_VALUE_BYTES_MAX + 1..=VALUE_BYTES_MAX).contains(&(len as usize)) {
                    return Err(reader.error("a stored value of impossible length"));
                }
                let place = NonZeroU64::new(reader.u64()?);
                let place = place.ok_or_else(|| reader.error("a stored value at place zero"))?;
                Self::Stored(StoredValue { hash, len, place })
            }
            _ => return Err(reader.error("unknown kind of value")),
        };
        reader.finish()?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Account;
    use alloc::vec;

    fn samples() -> Vec<EntryValue> {
        let stored = |len| {
            EntryValue::Stored(StoredValue {
                hash: B256::repeat_byte(7),
                len,
                place: NonZeroU64::new(9).unwrap(),
            })
        };
        let inline = |len| EntryValue::Inline(vec![3; len].into());
        vec![
            inline(0),
            inline(1),
            inline(INLINE_VALUE_BYTES_MAX),
            stored(INLINE_VALUE_BYTES_MAX as u32 + 1),
            stored(VALUE_BYTES_MAX as u32),
        ]
    }

    #[test]
    fn a_value_survives_its_encoding_and_is_never_taken_for_an_account() {
        for value in samples() {
            let mut bytes = Vec::new();
            value.encode_to(&mut bytes);
            assert_eq!(bytes.len(), value.encoded_len());
            assert_eq!(EntryValue::decode(&bytes), Ok(value));
            assert!(EntryValue::is_encoding(&bytes));
            assert!(Account::decode(&bytes).is_err());
        }
        let mut account = Vec::new();
        Account::default().encode_to(&mut account);
        assert!(!EntryValue::is_encoding(&account));
        assert!(EntryValue::decode(&account).is_err());
    }

    #[test]
    fn values_of_impossible_size_and_cut_ones_are_refused() {
        let mut long = vec![INLINE];
        long.resize(2 + INLINE_VALUE_BYTES_MAX, 0);
        assert!(EntryValue::decode(&long).is_err());
        for value in samples() {
            let EntryValue::Stored(stored) = value else {
                continue;
            };
            let mut bytes = Vec::new();
            value.encode_to(&mut bytes);
            for end in 0..bytes.len() {
                assert!(EntryValue::decode(&bytes[..end]).is_err());
            }
            for len in [0, INLINE_VALUE_BYTES_MAX as u32, VALUE_BYTES_MAX as u32 + 1] {
                let mut bytes = Vec::new();
                EntryValue::Stored(StoredValue { len, ..stored }).encode_to(&mut bytes);
                assert!(EntryValue::decode(&bytes).is_err());
            }
            let end = bytes.len() - 8;
            bytes[end..].fill(0);
            assert!(EntryValue::decode(&bytes).is_err(), "place zero");
        }
    }
}
