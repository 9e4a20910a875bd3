//! What a block finds at all that its access list names.
//!
//! | item | RLP |
//! |---|---|
//! | values | list of what follows, for each account of the access list, in its order |
//! | nonce | number |
//! | balance | number |
//! | code hash | 32 bytes; none where there is no code |
//! | slots | list of numbers: those of slots that change, in their order, then of slots read |
//!
//! Numbers are without leading zeros; lengths are in their shortest form. Keys are the access
//! list's, so that values without it mean nothing.

use super::list::AccessList;
use crate::{Account, KECCAK_EMPTY};
use alloc::vec::Vec;
use alloy_primitives::{Address, B256, U256};
use alloy_rlp::{Decodable, Encodable, Error as RlpError, Header};

/// What a block finds at the accounts and slots of its access list, in the list's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundValues(Vec<FoundAccount>);

/// What a block finds at an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundAccount {
    /// Its fields: those of an empty account where there is none.
    pub account: Account,
    /// The values of slots that change, then of slots that are only read.
    pub slots: Vec<U256>,
}

/// Why bytes are no values for an access list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("values found: at account {account_count} of the access list: {error}")]
pub struct FoundValuesError {
    /// Accounts read before.
    pub account_count: usize,
    /// What is wrong.
    pub error: RlpError,
}

impl FoundValues {
    /// Asks for all that a list names.
    pub fn read<E>(
        list: &AccessList,
        mut account: impl FnMut(Address) -> Result<Option<Account>, E>,
        mut slot: impl FnMut(Address, U256) -> Result<U256, E>,
    ) -> Result<Self, E> {
        let mut accounts = Vec::with_capacity(list.accounts().len());
        for listed in list.accounts() {
            let address = listed.address;
            let slots = listed.storage_slots().map(|key| slot(address, key));
            accounts.push(FoundAccount {
                account: account(address)?.unwrap_or_default(),
                slots: slots.collect::<Result<_, E>>()?,
            });
        }
        Ok(Self(accounts))
    }

    /// What is found at each account of the list.
    pub fn accounts(&self) -> &[FoundAccount] {
        &self.0
    }

    /// Whether there is a value for every key of the list, and no other.
    pub fn is_of(&self, list: &AccessList) -> bool {
        let counts = self.0.iter().map(|found| found.slots.len());
        counts.eq(list.accounts().iter().map(slot_count))
    }

    /// The RLP of the values.
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        for found in &self.0 {
            let account = &found.account;
            account.nonce.encode(&mut payload);
            account.balance.encode(&mut payload);
            match account.code_hash {
                KECCAK_EMPTY => [].as_slice().encode(&mut payload),
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

    /// Decodes from exactly these bytes values for the keys of `list`. Memory is taken for what is
    /// there only, and never for more values than there are keys.
    pub fn decode(mut bytes: &[u8], list: &AccessList) -> Result<Self, FoundValuesError> {
        let mut accounts = Vec::new();
        let at = |account_count| {
            move |error| FoundValuesError {
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

fn account(values: &mut &[u8], slot_count: usize) -> Result<FoundAccount, RlpError> {
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
    Ok(FoundAccount { account, slots })
}

fn code_hash(values: &mut &[u8]) -> Result<B256, RlpError> {
    let bytes = Header::decode_bytes(values, false)?;
    match bytes.len() {
        0 => Ok(KECCAK_EMPTY),
        32 if bytes != KECCAK_EMPTY => Ok(B256::from_slice(bytes)),
        _ => Err(RlpError::Custom("no code hash")),
    }
}
