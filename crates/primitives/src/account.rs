//! Accounts and slot values, and their compact encodings in pages and logs.

use crate::codec::{DecodeError, Reader, put_varint};
use alloc::vec::Vec;
use alloy_primitives::{B256, KECCAK256_EMPTY, U256};

/// The fields of an account except the storage root, which the trie computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase"))]
pub struct Account {
    /// Number of transactions sent, or of contracts created by a contract.
    #[cfg_attr(feature = "serde", serde(with = "alloy_serde::quantity"))]
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// Keccak-256 hash of the code, [`KECCAK256_EMPTY`] if there is none.
    pub code_hash: B256,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            nonce: 0,
            balance: U256::ZERO,
            code_hash: KECCAK256_EMPTY,
        }
    }
}

/// Bit of the first byte: a code hash follows.
const HAS_CODE: u8 = 0x80;
/// Bits of the first byte that hold the balance's length in bytes (0 to 32).
const BALANCE_LEN: u8 = 0x3f;

impl Account {
    /// Returns whether the account is empty by EIP-161: nonce and balance are zero, and there is no
    /// code. Storage does not count.
    pub fn is_empty(&self) -> bool {
        self.nonce == 0 && self.balance.is_zero() && self.code_hash == KECCAK256_EMPTY
    }

    /// Appends the compact encoding to `out`.
    ///
    /// | offset | size | meaning |
    /// |---|---|---|
    /// | 0 | 1 | bit 7: a code hash follows; bits 0-5: length B of the balance |
    /// | 1 | B | balance, big-endian, no leading zero |
    /// | 1+B | 1-10 | nonce, LEB128 |
    /// | .. | 0 or 32 | code hash |
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        let balance = self.balance.to_be_bytes::<32>();
        let len = self.balance.byte_len();
        let has_code = self.code_hash != KECCAK256_EMPTY;
        out.push(len as u8 | if has_code { HAS_CODE } else { 0 });
        out.extend_from_slice(&balance[32 - len..]);
        put_varint(out, self.nonce);
        if has_code {
            out.extend_from_slice(self.code_hash.as_slice());
        }
    }

    /// Decodes an account from its compact encoding.
    ///
    /// # Errors
    ///
    /// Returns an error if the encoding is cut short or not canonical.
    pub fn decode_from(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let head = reader.u8()?;
        if head & !(HAS_CODE | BALANCE_LEN) != 0 {
            return Err(reader.error("unknown bits in an account's head"));
        }
        let balance = uint(reader, usize::from(head & BALANCE_LEN))?;
        let nonce = reader.varint()?;
        let code_hash = if head & HAS_CODE != 0 {
            reader.b256()?
        } else {
            KECCAK256_EMPTY
        };
        if head & HAS_CODE != 0 && code_hash == KECCAK256_EMPTY {
            return Err(reader.error("the empty code hash written out"));
        }
        Ok(Self {
            nonce,
            balance,
            code_hash,
        })
    }

    /// Decodes an account from exactly `bytes`.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are not a canonical encoding.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let account = Self::decode_from(&mut reader)?;
        reader.finish()?;
        Ok(account)
    }
}

/// Compact encoding of the value of a slot: big-endian bytes without leading zeros.
#[derive(Clone, Copy, Debug)]
pub struct SlotValue {
    len: u8,
    bytes: [u8; 32],
}

impl SlotValue {
    /// Encodes a value. Zero has no bytes.
    pub fn new(value: U256) -> Self {
        Self {
            len: value.byte_len() as u8,
            bytes: value.to_be_bytes(),
        }
    }

    /// Returns the 0 to 32 bytes of the encoding.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[32 - usize::from(self.len)..]
    }

    /// Decodes a stored value from exactly `bytes`.
    ///
    /// # Errors
    ///
    /// Returns an error if `bytes` are empty, have a leading zero, or are more than 32: a stored
    /// value is never zero.
    pub fn decode(bytes: &[u8]) -> Result<U256, DecodeError> {
        let mut reader = Reader::new(bytes);
        let value = uint(&mut reader, bytes.len())?;
        if value.is_zero() {
            return Err(reader.error("a stored zero"));
        }
        Ok(value)
    }
}

/// Reads a number of `len` big-endian bytes, at most 32, without a leading zero.
pub(crate) fn uint(reader: &mut Reader<'_>, len: usize) -> Result<U256, DecodeError> {
    if len > 32 {
        return Err(reader.error("number over 256 bits"));
    }
    let bytes = reader.take(len)?;
    if bytes.first() == Some(&0) {
        return Err(reader.error("leading zero"));
    }
    Ok(U256::from_be_slice(bytes))
}
