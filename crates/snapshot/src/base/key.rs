//! Keys that can be read from a snapshot, and the changes that a merge makes to their values.

use crate::base::{
    error::StateError,
    layout::{account_in, entry_in, slot_in},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, DecodeError, EntryValue, Path, SlotValue};
use cambium_store::Page;
use cambium_trie::Lookup;

/// Largest size of an account's compact encoding, in bytes. A slot's value takes at most 32.
const ACCOUNT_BYTES_MAX: usize = 75;

/// A key of the state: an account ([`B256`]) or a storage slot (a pair of them), or that of an entry
/// ([`EntryKey`]).
pub trait Key: Copy + Ord + Send + Sync {
    /// Value at the key: `Option<Account>` for an account, [`U256`] for a slot (zero if absent), and
    /// `Option<EntryValue>` for an entry.
    type Value: Send;

    /// Path of the key's leaf in the state trie.
    fn path(&self) -> Path;

    /// The key in the form that the value cache uses.
    fn entry(&self) -> CacheKey<'_>;

    /// Value of a leaf that the index itself holds, or of an absent one. The caller handles
    /// [`Lookup::Stub`].
    fn resident(lookup: &Lookup<'_>) -> Self::Value;

    /// Value of the leaf at `path` in `page`, whose prefix covers `path`.
    ///
    /// # Errors
    ///
    /// [`StateError::Damaged`] if the leaf can't be decoded.
    fn in_page(page: &Page, path: &Path) -> Result<Self::Value, StateError>;

    /// Encodes a value for the value cache, as pages encode it. An absent value is empty.
    fn to_entry(value: &Self::Value) -> Vec<u8>;

    /// Decodes a value that [`Key::to_entry`] encoded.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if `bytes` is not such an encoding.
    fn from_entry(bytes: &[u8]) -> Result<Self::Value, DecodeError>;
}

/// An account, by keccak(address).
impl Key for B256 {
    type Value = Option<Account>;

    fn path(&self) -> Path {
        Path::account(self)
    }

    fn entry(&self) -> CacheKey<'_> {
        CacheKey {
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

/// A storage slot, by keccak(address) and keccak(slot).
impl Key for (B256, B256) {
    type Value = U256;

    fn path(&self) -> Path {
        Path::slot(&self.0, &self.1)
    }

    fn entry(&self) -> CacheKey<'_> {
        CacheKey {
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

/// The key of an entry of a key-value database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey(pub B256);

impl Key for EntryKey {
    type Value = Option<EntryValue>;

    fn path(&self) -> Path {
        Path::account(&self.0)
    }

    fn entry(&self) -> CacheKey<'_> {
        CacheKey {
            account: &self.0,
            slot: None,
        }
    }

    fn resident(lookup: &Lookup<'_>) -> Self::Value {
        match lookup {
            Lookup::Entry(value) => Some(value.clone()),
            _ => None,
        }
    }

    fn in_page(page: &Page, path: &Path) -> Result<Self::Value, StateError> {
        entry_in(page, path)
    }

    fn to_entry(value: &Self::Value) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(value) = value {
            bytes.reserve(value.encoded_len());
            value.encode_to(&mut bytes);
        }
        bytes
    }

    fn from_entry(bytes: &[u8]) -> Result<Self::Value, DecodeError> {
        match bytes {
            [] => Ok(None),
            _ => EntryValue::decode(bytes).map(Some),
        }
    }
}

/// Key of the value cache.
#[derive(Clone, Copy)]
pub struct CacheKey<'a> {
    /// keccak(address).
    pub account: &'a B256,
    /// keccak(slot), or `None` for the account itself.
    pub slot: Option<&'a B256>,
}

/// One change that a merge makes to the snapshot. Hashes are keccak(address) and keccak(slot).
pub enum MergedChange {
    /// The account's new value, or `None` if it was deleted.
    Account(B256, Option<Account>),
    /// The entry's new value, or `None` if it was deleted.
    Entry(B256, Option<EntryValue>),
    /// The slot's new value, by account and slot. Zero deletes it.
    Slot(B256, B256, U256),
    /// All slots of the account were cleared. Slots that have a [`MergedChange::Slot`] too were set
    /// after that.
    Wipe(B256),
}
