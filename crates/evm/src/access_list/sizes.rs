//! Sizes of a block's access list in the forms that executors use.

use crate::account::account;
use cambium_primitives::{AccessList, PreStateValues};
use revm::DatabaseRef;

/// Sizes of a block's access list in three forms, in bytes of RLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessListSizes {
    /// The list and the pre-state values of all its keys: nonce, balance and code hash of every
    /// account, the value of every slot. Execution reads only code from the state.
    pub full: u64,
    /// The list of EIP-7928: changes, and the keys of everything touched. All reads are known
    /// before execution.
    pub batched: u64,
    /// The changes alone. Keys that are only read are not known before execution.
    pub parallel: u64,
}

impl AccessListSizes {
    /// Measures a list. `before` is the pre-state of its block.
    ///
    /// # Errors
    ///
    /// If the state can't be read.
    pub fn measure<DB: DatabaseRef>(list: &AccessList, before: &DB) -> Result<Self, DB::Error> {
        let pre_state = PreStateValues::read(
            list,
            |address| Ok(before.basic_ref(address)?.as_ref().map(account)),
            |address, slot| before.storage_ref(address, slot),
        )?;
        let batched = list.encode().len();
        Ok(Self {
            full: (batched + pre_state.encode().len()) as u64,
            batched: batched as u64,
            parallel: list.changes_only().encode().len() as u64,
        })
    }
}
