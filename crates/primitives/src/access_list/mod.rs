//! Block access lists (EIP-7928): every account and slot that a block accesses, and the value after
//! every change, by the step of the block that makes the change.
//!
//! A *block access index* numbers the steps: 0 is the system calls before the first transaction, 1
//! to n are the transactions, and n + 1 is everything after them. A change has the value after the
//! step, and is listed only if it differs from the value before the step.
//!
//! ```text
//!  account          address
//!    slots changed  slot -> (index, value) ..
//!    slots read     slot ..              whose value no step changes
//!    balances       (index, balance) ..
//!    nonces         (index, nonce) ..
//!    codes          (index, code) ..
//! ```
//!
//! The types of the parts are those of [`alloy_eip7928`]. An [`AccessList`] is always in the
//! canonical form; decoding rejects any other.

mod limits;
mod field;
mod check;
mod decode;
mod difference;
mod list;
mod changes;
mod found;
#[cfg(test)]
mod tests;

pub use alloy_eip7928::{
    AccountChanges, BalanceChange, BlockAccessIndex, CodeChange, NonceChange, SlotChanges,
    StorageChange,
};
pub use check::AccessListError;
pub use difference::{AccessListDifference, AccessValue};
pub use field::AccessField;
pub use found::{PreStateAccount, PreStateError, PreStateValues};
pub use limits::{ACCESS_LIST_ITEM_GAS, AccessListCounts, AccessListLimits};
pub use list::AccessList;
