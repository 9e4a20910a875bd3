//! Block access lists (EIP-7928): every account and slot that a block touches, and every value
//! that it changes, by the step of the block that changes it.
//!
//! A *block access index* numbers the steps: 0 is what the protocol does before the first
//! transaction, 1 to n are the transactions, n + 1 is what comes after them. A change names the
//! value that a step leaves, if it is not the one that the step found.
//!
//! ```text
//!  account          address
//!    slots changed  slot -> (index, value) ..
//!    slots read     slot ..              and left by every step as they were
//!    balances       (index, balance) ..
//!    nonces         (index, nonce) ..
//!    codes          (index, code) ..
//! ```
//!
//! The parts of a list are [`alloy_eip7928`]'s. [`AccessList`] is one that is in the one form
//! that there is of it; what is in another form does not decode.

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
pub use found::{FoundAccount, FoundValues, FoundValuesError};
pub use limits::{ACCESS_LIST_ITEM_GAS, AccessListCounts, AccessListLimits};
pub use list::AccessList;
