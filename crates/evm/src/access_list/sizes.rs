//! How large a block's access list is in the forms that executors may be given.

use crate::account::account;
use cambium_primitives::{AccessList, FoundValues};
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
        let found = FoundValues::read(
            list,
            |address| Ok(before.basic_ref(address)?.as_ref().map(account)),
            |address, slot| before.storage_ref(address, slot),
        )?;
        let batched = list.encode().len();
        Ok(Self {
            full: (batched + found.encode().len()) as u64,
            batched: batched as u64,
            parallel: list.changes_only().encode().len() as u64,
        })
    }
}
