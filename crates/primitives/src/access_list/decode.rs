//! Decoding of the RLP of an access list. Every count is checked before memory is allocated for it.
//!
//! | item | RLP |
//! |---|---|
//! | list | list of accounts |
//! | account | [address, slots changed, slots read, balances, nonces, codes], the last five lists |
//! | slot changed | [slot, list of [index, value]] |
//! | slot read | slot |
//! | balance, nonce, code | [index, value] |
//!
//! Numbers have no leading zeros, and lengths are in their shortest form.
//!
//! Accounts and slots are counted while they are decoded, and no field can have more changes than
//! there are indices, so a list that is too large is rejected before it takes more memory than
//! allowed.

use super::{
    check::{self, AccessListError},
    limits::AccessListLimits,
};
use alloc::vec::Vec;
use alloy_eip7928::{
    AccountChanges, BalanceChange, BlockAccessIndex, CodeChange, NonceChange, SlotChanges,
    StorageChange,
};
use alloy_primitives::{Address, Bytes, U256};
use alloy_rlp::{Decodable, Error as RlpError, Header};

/// Error of decoding one account.
enum Stop {
    Rlp(RlpError),
    Items,
}

impl From<RlpError> for Stop {
    fn from(error: RlpError) -> Self {
        Self::Rlp(error)
    }
}

pub(super) fn decode(
    bytes: &[u8],
    limits: &AccessListLimits,
) -> Result<Vec<AccountChanges>, AccessListError> {
    let mut accounts = Vec::<AccountChanges>::new();
    let stopped = |account_count, stop| match stop {
        Stop::Rlp(error) => AccessListError::Rlp {
            account_count,
            error,
        },
        Stop::Items => AccessListError::Items {
            max: limits.items_max,
        },
    };
    let mut list = whole(bytes).map_err(|error| stopped(0, error.into()))?;
    let mut decoder = Decoder {
        items_left: limits.items_max,
        index_count: limits.index_max.saturating_add(1),
    };
    while !list.is_empty() {
        let account = decoder.account(&mut list);
        let account = account.map_err(|stop| stopped(accounts.len(), stop))?;
        check::account_order(accounts.last().map(|last| last.address), account.address)?;
        check::account(&account, limits)?;
        accounts.push(account);
    }
    Ok(accounts)
}

/// Returns the payload of a list that takes exactly the given bytes.
fn whole(mut bytes: &[u8]) -> Result<&[u8], RlpError> {
    let list = Header::decode_bytes(&mut bytes, true)?;
    if !bytes.is_empty() {
        return Err(RlpError::UnexpectedLength);
    }
    Ok(list)
}

struct Decoder {
    items_left: u64,
    index_count: u64,
}

impl Decoder {
    fn account(&mut self, list: &mut &[u8]) -> Result<AccountChanges, Stop> {
        self.count_item()?;
        let mut fields = Header::decode_bytes(list, true)?;
        let account = AccountChanges {
            address: Address::decode(&mut fields)?,
            storage_changes: self.slots(&mut fields, Self::slot_changed)?,
            storage_reads: self.slots(&mut fields, |_, list| Ok(U256::decode(list)?))?,
            balance_changes: self.changes(&mut fields, BalanceChange::new)?,
            nonce_changes: self.changes(&mut fields, NonceChange::new)?,
            code_changes: self.changes::<Bytes, _>(&mut fields, CodeChange::new)?,
        };
        end(fields)?;
        Ok(account)
    }

    /// Decodes a list of slots, and counts each against the limit.
    fn slots<T>(
        &mut self,
        fields: &mut &[u8],
        one: impl Fn(&Self, &mut &[u8]) -> Result<T, Stop>,
    ) -> Result<Vec<T>, Stop> {
        let mut list = Header::decode_bytes(fields, true)?;
        let mut slots = Vec::new();
        while !list.is_empty() {
            self.count_item()?;
            slots.push(one(self, &mut list)?);
        }
        Ok(slots)
    }

    fn slot_changed(&self, list: &mut &[u8]) -> Result<SlotChanges, Stop> {
        let mut fields = Header::decode_bytes(list, true)?;
        let slot = SlotChanges {
            slot: U256::decode(&mut fields)?,
            changes: self.changes(&mut fields, StorageChange::new)?,
        };
        end(fields)?;
        Ok(slot)
    }

    /// Decodes the changes of one field. [`check`] checks the order of their indices.
    fn changes<V: Decodable, C>(
        &self,
        fields: &mut &[u8],
        change: impl Fn(BlockAccessIndex, V) -> C,
    ) -> Result<Vec<C>, Stop> {
        let mut list = Header::decode_bytes(fields, true)?;
        let mut changes = Vec::new();
        while !list.is_empty() {
            if changes.len() as u64 == self.index_count {
                return Err(RlpError::Custom("more changes of a field than indices").into());
            }
            let mut pair = Header::decode_bytes(&mut list, true)?;
            let index = BlockAccessIndex(u64::decode(&mut pair)?);
            changes.push(change(index, V::decode(&mut pair)?));
            end(pair)?;
        }
        Ok(changes)
    }

    fn count_item(&mut self) -> Result<(), Stop> {
        self.items_left = self.items_left.checked_sub(1).ok_or(Stop::Items)?;
        Ok(())
    }
}

fn end(rest: &[u8]) -> Result<(), RlpError> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(RlpError::UnexpectedLength)
    }
}
