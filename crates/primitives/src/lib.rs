//! Types that all layers of Cambium share: paths, accounts, changes, access lists and block ids.
//!
//! Executing a block produces [`Changes`]: sorted, unique and keyed by *paths* (Keccak-256 hashes
//! of addresses and slot numbers). All layers below execution (trie, pages, log) use paths and
//! changes only.
//!
//! ```
//! use alloy_primitives::{B256, U256};
//! use cambium_primitives::{Account, AccountDiff, AccountUpdate, Changes};
//!
//! let rich = Account { nonce: 0, balance: U256::from(1_000), ..Account::default() };
//! let changes = Changes::new(vec![AccountDiff {
//!     path: B256::repeat_byte(1),
//!     account: AccountUpdate::Put(rich),
//!     wipe: false,
//!     slots: vec![(B256::repeat_byte(2), U256::from(7))],
//! }]);
//! let bytes = changes.encode();
//! assert_eq!(Changes::decode(&bytes).unwrap(), changes);
//! ```
//!
//! # Features
//!
//! `serde`: [`Account`], [`AccountUpdate`], [`AccountDiff`], [`Changes`] and [`BlockId`] as JSON. Numbers are
//! hexadecimal, as in JSON-RPC, the slots of a change are an object, and what is read is held to the rules of
//! [`Changes::try_new`].
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod codec;
mod ids;
mod path;
mod account;
mod entry;
mod changes;
mod post_state;
#[cfg(feature = "serde")]
mod json;
mod access_list;

pub use access_list::{
    ACCESS_LIST_ITEM_GAS, AccessField, AccessList, AccessListCounts, AccessListDifference,
    AccessListError, AccessListLimits, AccessValue, AccountChanges, BalanceChange,
    BlockAccessIndex, CodeChange, NonceChange, PreStateAccount, PreStateError, PreStateValues,
    SlotChanges, StorageChange,
};
pub use account::{Account, SlotValue};
pub use changes::{AccountDiff, AccountUpdate, Changes, ChangesError};
pub use codec::{DecodeError, Reader, put_varint};
pub use entry::{EntryValue, INLINE_VALUE_BYTES_MAX, StoredValue, VALUE_BYTES_MAX};
pub use ids::{BlockId, BlockNumber};
pub use path::{ACCOUNT_NIBBLES, Path, SLOT_NIBBLES, STORAGE_ROOT_KEY};
pub use post_state::{HashedPostState, HashedStorage};
