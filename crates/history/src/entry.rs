//! Entries of the history: the value that a key had before a block changed it.

use alloy_primitives::{B256, U256};
use cambium_primitives::{
    Account, AccountUpdate, BlockNumber, Changes, DecodeError, Path, Reader, SlotValue,
};
use std::collections::BTreeMap;

/// Length of the key of an account: its path and a tag.
const ACCOUNT_KEY_BYTES: usize = 33;
/// Length of the key of a slot: the account's path, a tag, and the slot's path.
pub(crate) const SLOT_KEY_BYTES: usize = 65;
/// Length of a block number.
pub(crate) const NUMBER_BYTES: usize = 8;
/// Longest entry, without its value: key and block number.
pub(crate) const POSITION_BYTES_MAX: usize = SLOT_KEY_BYTES + NUMBER_BYTES;
/// Longest value: an account with a code.
pub(crate) const VALUE_BYTES_MAX: usize = 1 + 32 + 10 + 32;

/// Tag after an account's path: the account itself. It comes before its slots.
const ACCOUNT: u8 = 0;
/// Tag after an account's path: a slot.
const SLOT: u8 = 1;

/// A key of the state, as bytes: in the order of bytes an account is followed by its slots.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    len: usize,
    bytes: [u8; SLOT_KEY_BYTES],
}

impl Key {
    pub(crate) fn account(account: &B256) -> Self {
        let mut bytes = [0; SLOT_KEY_BYTES];
        bytes[..32].copy_from_slice(account.as_slice());
        bytes[32] = ACCOUNT;
        Self {
            len: ACCOUNT_KEY_BYTES,
            bytes,
        }
    }

    pub(crate) fn slot(account: &B256, slot: &B256) -> Self {
        let mut bytes = [0; SLOT_KEY_BYTES];
        bytes[..32].copy_from_slice(account.as_slice());
        bytes[32] = SLOT;
        bytes[33..].copy_from_slice(slot.as_slice());
        Self {
            len: SLOT_KEY_BYTES,
            bytes,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The paths of the account and, if it is the key of a slot, of the slot.
    pub(crate) fn paths(&self) -> (B256, Option<B256>) {
        let account = B256::from_slice(&self.bytes[..32]);
        (account, slot_of_key(self.as_bytes()))
    }

    /// The path in the state.
    pub(crate) fn to_path(self) -> Path {
        match self.paths() {
            (account, None) => Path::account(&account),
            (account, Some(slot)) => Path::slot(&account, &slot),
        }
    }

    /// The position of the key's change in block `number`.
    pub(crate) fn at(&self, number: BlockNumber) -> Position {
        Position::new(self.as_bytes(), number)
    }
}

/// What the keys of all slots of an account begin with.
pub(crate) fn slots_prefix(account: &B256) -> [u8; 33] {
    let mut prefix = [SLOT; 33];
    prefix[..32].copy_from_slice(account.as_slice());
    prefix
}

/// The path of a slot in its key; `None` if it is not the key of a slot.
pub(crate) fn slot_of_key(key: &[u8]) -> Option<B256> {
    (key.len() == SLOT_KEY_BYTES).then(|| B256::from_slice(&key[33..]))
}

/// Whether bytes have the form of a key.
pub(crate) fn is_key(bytes: &[u8]) -> bool {
    match bytes.len() {
        ACCOUNT_KEY_BYTES => bytes[32] == ACCOUNT,
        SLOT_KEY_BYTES => bytes[32] == SLOT,
        _ => false,
    }
}

/// Where an entry is in a run: its key, then its block, big-endian. The order of positions is that
/// of their bytes.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    len: usize,
    bytes: [u8; POSITION_BYTES_MAX],
}

impl Position {
    /// `key` must have the length of a key.
    pub(crate) fn new(key: &[u8], number: BlockNumber) -> Self {
        let mut bytes = [0; POSITION_BYTES_MAX];
        bytes[..key.len()].copy_from_slice(key);
        bytes[key.len()..key.len() + NUMBER_BYTES].copy_from_slice(&number.to_be_bytes());
        Self {
            len: key.len() + NUMBER_BYTES,
            bytes,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The key in the bytes of a position.
pub(crate) fn key_of(position: &[u8]) -> &[u8] {
    &position[..position.len() - NUMBER_BYTES]
}

/// The block number in the bytes of a position.
pub(crate) fn number_of(position: &[u8]) -> BlockNumber {
    let (_, number) = position.split_at(position.len() - NUMBER_BYTES);
    BlockNumber::from_be_bytes(number.try_into().expect("eight bytes"))
}

/// An entry: `value` is the encoded value that the key had before the position's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry<'a> {
    pub(crate) position: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Decodes the old value of an account. No bytes: it did not exist.
pub(crate) fn decode_account(bytes: &[u8]) -> Result<Option<Account>, DecodeError> {
    match bytes {
        [] => Ok(None),
        bytes => Account::decode(bytes).map(Some),
    }
}

/// Decodes the old value of a slot. No bytes: zero.
pub(crate) fn decode_slot(bytes: &[u8]) -> Result<U256, DecodeError> {
    match bytes {
        [] => Ok(U256::ZERO),
        bytes => SlotValue::decode(bytes),
    }
}

/// Checks that an entry read from a file is one that could have been written.
pub(crate) fn check(entry: &Entry<'_>) -> Result<(), DecodeError> {
    let reader = Reader::new(entry.position);
    let key = key_of(entry.position);
    if !is_key(key) {
        return Err(reader.error("an entry whose key is no account's and no slot's"));
    }
    match slot_of_key(key) {
        None => decode_account(entry.value).map(|_| ()),
        Some(_) => decode_slot(entry.value).map(|_| ()),
    }
}

/// Visits the entries of a block in the order of their keys. `changes` are those of the block, and
/// `reverts` undo them: they hold the values before.
///
/// A slot that the block set, and for which the reverts have no value, was zero before: that of an
/// account which did not exist, or whose storage was wiped.
pub(crate) fn entries_of(changes: &Changes, reverts: &Changes, mut visit: impl FnMut(Key, &[u8])) {
    let mut value = Vec::with_capacity(VALUE_BYTES_MAX);
    for revert in reverts.accounts() {
        let path = &revert.path;
        value.clear();
        match &revert.account {
            AccountUpdate::Keep => {}
            AccountUpdate::Delete => visit(Key::account(path), &[]),
            AccountUpdate::Put(before) => {
                before.encode_to(&mut value);
                visit(Key::account(path), &value);
            }
        }
        let mut slots = BTreeMap::new();
        if let Some(change) = changes.account(path) {
            slots.extend(change.slots.iter().map(|(slot, _)| (*slot, U256::ZERO)));
        }
        slots.extend(revert.slots.iter().copied());
        for (slot, before) in slots {
            let before = SlotValue::new(before);
            visit(Key::slot(path, &slot), before.as_bytes());
        }
    }
}
