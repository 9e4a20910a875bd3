//! What is read by its path, and what a merge writes there.

use crate::base::{
    error::StateError,
    layout::{account_in, slot_in},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, DecodeError, Path, SlotValue};
use cambium_store::Page;
use cambium_trie::Lookup;

/// The compact form of an account has at most so many bytes, a slot's 32.
const ACCOUNT_BYTES_MAX: usize = 75;

/// Something read by its path: an account or a slot.
pub trait Key: Copy + Ord + Send + Sync {
    /// What is read: an account or none, or a slot's value.
    type Value: Send;

    /// The path of the leaf.
    fn path(&self) -> Path;

    /// The key in the cache of entries.
    fn entry(&self) -> EntryKey<'_>;

    /// What a walk of the index found, unless that is a page.
    fn resident(lookup: &Lookup<'_>) -> Self::Value;

    /// The value in `page`, which covers `path`.
    fn in_page(page: &Page, path: &Path) -> Result<Self::Value, StateError>;

    /// The form in which the cache of entries has it, that of pages: of no bytes if it is absent.
    fn to_entry(value: &Self::Value) -> Vec<u8>;

    /// A value from that form.
    fn from_entry(bytes: &[u8]) -> Result<Self::Value, DecodeError>;
}

/// An account by keccak(address).
impl Key for B256 {
    type Value = Option<Account>;

    fn path(&self) -> Path {
        Path::account(self)
    }

    fn entry(&self) -> EntryKey<'_> {
        EntryKey {
            account: self,
            slot: None,
        }
    }

    fn resident(lookup: &Lookup<'_>) -> Self::Value {
        match lookup {
            Lookup::Account(account) => Some(*account),
            _ => None,
        }
    }

    fn in_page(page: &Page, path: &Path) -> Result<Self::Value, StateError> {
        account_in(page, path)
    }

    fn to_entry(value: &Self::Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(account) = value {
            bytes.reserve(ACCOUNT_BYTES_MAX);
            account.encode_to(&mut bytes);
        }
        bytes
    }

    fn from_entry(bytes: &[u8]) -> Result<Self::Value, DecodeError> {
        match bytes {
            [] => Ok(None),
            _ => Account::decode(bytes).map(Some),
        }
    }
}

/// A slot by keccak(address) and keccak(slot).
impl Key for (B256, B256) {
    type Value = U256;

    fn path(&self) -> Path {
        Path::slot(&self.0, &self.1)
    }

    fn entry(&self) -> EntryKey<'_> {
        EntryKey {
            account: &self.0,
            slot: Some(&self.1),
        }
    }

    fn resident(lookup: &Lookup<'_>) -> Self::Value {
        match lookup {
            Lookup::Slot(value) => *value,
            _ => U256::ZERO,
        }
    }

    fn in_page(page: &Page, path: &Path) -> Result<Self::Value, StateError> {
        slot_in(page, path)
    }

    fn to_entry(value: &Self::Value) -> Vec<u8> {
        SlotValue::new(*value).as_bytes().to_vec()
    }

    fn from_entry(bytes: &[u8]) -> Result<Self::Value, DecodeError> {
        match bytes {
            [] => Ok(U256::ZERO),
            _ => SlotValue::decode(bytes),
        }
    }
}

/// Whose entry it is.
#[derive(Clone, Copy)]
pub struct EntryKey<'a> {
    pub account: &'a B256,
    pub slot: Option<&'a B256>,
}

/// What the newest of some layers wrote.
pub enum Written {
    /// An account, or that there is none.
    Account(B256, Option<Account>),
    /// A slot, by its account's path and its own.
    Slot(B256, B256, U256),
    /// All slots of the account were cleared, before those were set that are told besides.
    Wipe(B256),
}
