//! Pre-state values for every key in the access list of a block.
//!
//! | item | RLP |
//! |---|---|
//! | values | list of the following, for each account of the access list, in its order |
//! | nonce | number |
//! | balance | number |
//! | code hash | 32 bytes; empty where there is no code |
//! | slots | list of numbers: those of slots that change, in their order, then of slots read |
//!
//! Numbers have no leading zeros, and lengths are in their shortest form. The keys are in the
//! access list, and decoding needs it.

use super::list::AccessList;
use crate::Account;
use alloc::vec::Vec;
use alloy_primitives::KECCAK256_EMPTY;
use alloy_primitives::{Address, B256, U256};
use alloy_rlp::{Decodable, Encodable, Error as RlpError, Header};

/// Pre-state values of the accounts and slots in an access list, in the order of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreStateValues(Vec<PreStateAccount>);

/// Pre-state values of one account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreStateAccount {
    /// Fields of the account. An absent account has the fields of an empty one.
    pub account: Account,
    /// Values of the slots that change, then of the slots that are only read.
    pub slots: Vec<U256>,
}

/// Error of decoding pre-state values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pre-state values of account {account_count} of the access list: {error}")]
pub struct PreStateError {
    /// Number of accounts decoded before the error.
    pub account_count: usize,
    /// Why the RLP of that account does not decode.
    pub error: RlpError,
}

impl PreStateValues {
    /// Reads the pre-state values for all keys of `list`.
    ///
    /// # Errors
    ///
    /// Returns the first error of `account` or `slot`.
    pub fn read<E>(
        list: &AccessList,
        mut account: impl FnMut(Address) -> Result<Option<Account>, E>,
        mut slot: impl FnMut(Address, U256) -> Result<U256, E>,
    ) -> Result<Self, E> {
        let mut accounts = Vec::with_capacity(list.accounts().len());
        for listed in list.accounts() {
            let address = listed.address;
            let slots = listed.storage_slots().map(|key| slot(address, key));
            accounts.push(PreStateAccount {
                account: account(address)?.unwrap_or_default(),
                slots: slots.collect::<Result<_, E>>()?,
            });
        }
        Ok(Self(accounts))
    }

    /// Returns the pre-state values of each account, in the order of the list.
    pub fn accounts(&self) -> &[PreStateAccount] {
        &self.0
    }

    /// Returns whether there is exactly one value for each key of `list`.
    pub fn is_of(&self, list: &AccessList) -> bool {
        let counts = self.0.iter().map(|found| found.slots.len());
        counts.eq(list.accounts().iter().map(slot_count))
    }

    /// Returns the RLP of the values.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        for found in &self.0 {
            let account = &found.account;
            account.nonce.encode(&mut payload);
            account.balance.encode(&mut payload);
            match account.code_hash {
                KECCAK256_EMPTY => [].as_slice().encode(&mut payload),
                hash => hash.encode(&mut payload),
            }
            found.slots.encode(&mut payload);
        }
        let mut out = Vec::new();
        let header = Header {
            list: true,
            payload_length: payload.len(),
        };
        header.encode(&mut out);
        out.extend(payload);
        out
    }

    /// Decodes the values for the keys of `list` from exactly `bytes`, which are untrusted. Takes
    /// no more memory than the keys need.
    ///
    /// # Errors
    ///
    /// Returns an error if the RLP is malformed or the values do not match the keys.
    pub fn decode(mut bytes: &[u8], list: &AccessList) -> Result<Self, PreStateError> {
        let mut accounts = Vec::new();
        let at = |account_count| {
            move |error| PreStateError {
                account_count,
                error,
            }
        };
        let mut values = Header::decode_bytes(&mut bytes, true).map_err(at(0))?;
        for listed in list.accounts() {
            let account = account(&mut values, slot_count(listed));
            accounts.push(account.map_err(at(accounts.len()))?);
        }
        if !bytes.is_empty() || !values.is_empty() {
            return Err(at(accounts.len())(RlpError::UnexpectedLength));
        }
        Ok(Self(accounts))
    }
}

fn slot_count(listed: &super::AccountChanges) -> usize {
    listed.storage_changes.len() + listed.storage_reads.len()
}

fn account(values: &mut &[u8], slot_count: usize) -> Result<PreStateAccount, RlpError> {
    let account = Account {
        nonce: u64::decode(values)?,
        balance: U256::decode(values)?,
        code_hash: code_hash(values)?,
    };
    let mut list = Header::decode_bytes(values, true)?;
    let mut slots = Vec::new();
    for _ in 0..slot_count {
        slots.push(U256::decode(&mut list)?);
    }
    if !list.is_empty() {
        return Err(RlpError::Custom("more values than slots"));
    }
    Ok(PreStateAccount { account, slots })
}

fn code_hash(values: &mut &[u8]) -> Result<B256, RlpError> {
    let bytes = Header::decode_bytes(values, false)?;
    match bytes.len() {
        0 => Ok(KECCAK256_EMPTY),
        32 if bytes != KECCAK256_EMPTY => Ok(B256::from_slice(bytes)),
        _ => Err(RlpError::Custom("no code hash")),
    }
}
