//! How large a block's access list is in the forms that executors may be given.

use alloy_primitives::KECCAK256_EMPTY;
use alloy_rlp::{Encodable, length_of_length};
use cambium_primitives::{AccessList, AccountChanges};
use revm::DatabaseRef;

/// Bytes of RLP of a block's access list in three forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessListSizes {
    /// Changes, and what the block finds wherever it goes: nonce, balance and code hash of every
    /// account, the value of every slot. Execution reads nothing of the state but code.
    pub full: u64,
    /// Changes, and the keys of all that is touched: the list as EIP-7928 has it. All reads are
    /// known before execution.
    pub batched: u64,
    /// Changes alone. What is only read is read when execution comes to it.
    pub parallel: u64,
}

impl AccessListSizes {
    /// Measures a list, `before` being the state that its block is executed on.
    pub fn measure<DB: DatabaseRef>(list: &AccessList, before: &DB) -> Result<Self, DB::Error> {
        let mut found = 0;
        for account in list.accounts() {
            found += rlp_list_bytes(found_bytes(account, before)?);
        }
        let batched = list.encode().len();
        Ok(Self {
            full: (batched + rlp_list_bytes(found)) as u64,
            batched: batched as u64,
            parallel: list.changes_only().encode().len() as u64,
        })
    }
}

/// Bytes of what a block finds at an account: nonce, balance, code hash, and the values of its
/// slots in a list.
fn found_bytes<DB: DatabaseRef>(account: &AccountChanges, before: &DB) -> Result<usize, DB::Error> {
    let info = before.basic_ref(account.address)?.unwrap_or_default();
    let code_hash = match info.code_hash {
        hash if hash.is_zero() || hash == KECCAK256_EMPTY => [].as_slice().length(),
        hash => hash.length(),
    };
    let mut slots = 0;
    for slot in account.storage_slots() {
        slots += before.storage_ref(account.address, slot)?.length();
    }
    Ok(info.nonce.length() + info.balance.length() + code_hash + rlp_list_bytes(slots))
}

fn rlp_list_bytes(payload: usize) -> usize {
    payload + length_of_length(payload)
}
