//! Entries of the history: the value, or the node, that a key had before a block changed it.

use crate::node::{OldBranch, OldRoot};
use alloy_primitives::{B256, U256};
use cambium_primitives::{
    ACCOUNT_NIBBLES, Account, AccountUpdate, BlockNumber, Changes, DecodeError, Path, Reader,
    SlotValue,
};
use std::{collections::BTreeMap, ops::ControlFlow};

/// Length of a block number.
pub(crate) const NUMBER_BYTES: usize = 8;
/// Longest key: a slot's, or that of a branch of a storage trie.
pub(crate) const KEY_BYTES_MAX: usize = 66;
/// Longest entry, without its value: key and block number.
pub(crate) const POSITION_BYTES_MAX: usize = KEY_BYTES_MAX + NUMBER_BYTES;
/// Longest old value of an account or slot: an account with a code.
pub(crate) const VALUE_BYTES_MAX: usize = 1 + 32 + 10 + 32;

/// First byte of the keys of accounts and slots.
const VALUES: u8 = 0;
/// First byte of the keys of nodes of the account trie.
const ACCOUNT_NODES: u8 = 1;
/// First byte of the keys of nodes of storage tries.
const STORAGE_NODES: u8 = 2;
/// Length of the key of an account.
const ACCOUNT_KEY_BYTES: usize = 34;
/// Length of the key of a slot.
const SLOT_KEY_BYTES: usize = 66;
/// Tag after an account's path: the account itself. It comes before its slots.
const ACCOUNT: u8 = 0;
/// Tag after an account's path: a slot.
const SLOT: u8 = 1;
/// Depth of the root of a trie, for every kind of node.
const ROOT: u8 = 0;

/// Subject of an entry, as bytes:
///
/// ```text
/// account            0, path, 0
/// slot               0, path of the account, 1, path within the account
/// branch             1, depth, nibbles
/// branch of storage  2, path of the account, depth in the storage trie, nibbles
/// ```
///
/// Depth 0 is the root of a trie, for every kind of node.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    len: usize,
    bytes: [u8; KEY_BYTES_MAX],
}

impl Key {
    fn of(parts: &[&[u8]]) -> Self {
        let (mut len, mut bytes) = (0, [0; KEY_BYTES_MAX]);
        for part in parts {
            bytes[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Self { len, bytes }
    }

    pub(crate) fn account(account: &B256) -> Self {
        Self::of(&[&[VALUES], &account.0, &[ACCOUNT]])
    }

    pub(crate) fn slot(account: &B256, slot: &B256) -> Self {
        Self::of(&[&[VALUES], &account.0, &[SLOT], &slot.0])
    }

    /// The account or slot at the path of a leaf; `None` if the path is neither's.
    pub(crate) fn of_leaf(path: &Path) -> Option<Self> {
        match (path.account_part(), path.slot_part()) {
            (Some(account), Some(slot)) => Some(Self::slot(&account, &slot)),
            (Some(account), None) if path.len() == ACCOUNT_NIBBLES => Some(Self::account(&account)),
            _ => None,
        }
    }

    /// The branch at a path, or the root of a trie.
    pub(crate) fn node(path: &Path) -> Self {
        let packed = path.packed();
        match path.len().checked_sub(ACCOUNT_NIBBLES) {
            None => Self::of(&[&[ACCOUNT_NODES, path.len() as u8], packed]),
            Some(depth) => {
                let (account, rest) = packed.split_at(32);
                Self::of(&[&[STORAGE_NODES], account, &[depth as u8], rest])
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The paths of the account and, if it is the key of a slot, of the slot.
    pub(crate) fn paths(&self) -> (B256, Option<B256>) {
        let account = B256::from_slice(&self.bytes[1..33]);
        (account, slot_of_key(self.as_bytes()))
    }

    /// The path in the state of an account or a slot.
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

/// Length of the common prefix of the keys of all slots of an account.
pub(crate) const SLOTS_PREFIX_BYTES: usize = ACCOUNT_KEY_BYTES;

/// Common prefix of the keys of all slots of an account.
pub(crate) fn slots_prefix(account: &B256) -> [u8; SLOTS_PREFIX_BYTES] {
    let mut prefix = [SLOT; SLOTS_PREFIX_BYTES];
    prefix[0] = VALUES;
    prefix[1..33].copy_from_slice(account.as_slice());
    prefix
}

/// The path of a slot in its key; `None` if it is not the key of a slot.
pub(crate) fn slot_of_key(key: &[u8]) -> Option<B256> {
    let is_slot = key.len() == SLOT_KEY_BYTES && key[0] == VALUES;
    is_slot.then(|| B256::from_slice(&key[34..]))
}

/// The path of an account in its key; `None` if it is not the key of an account.
pub(crate) fn account_of_key(key: &[u8]) -> Option<B256> {
    let is_account = key.len() == ACCOUNT_KEY_BYTES && key[0] == VALUES;
    is_account.then(|| B256::from_slice(&key[1..33]))
}

/// Subject of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Account,
    Slot,
    Branch,
    Root,
}

fn subject_of(key: &[u8]) -> Option<Subject> {
    let (region, rest) = key.split_first()?;
    let (in_trie, rest) = match *region {
        VALUES => {
            return match (rest.len(), rest.get(32)?) {
                (33, &ACCOUNT) => Some(Subject::Account),
                (65, &SLOT) => Some(Subject::Slot),
                _ => None,
            };
        }
        ACCOUNT_NODES => rest.split_first()?,
        STORAGE_NODES => rest.get(32..)?.split_first()?,
        _ => return None,
    };
    match (*in_trie, rest.len()) {
        (ROOT, 0) => Some(Subject::Root),
        (depth @ 1..64, len) if len == usize::from(depth).div_ceil(2) => Some(Subject::Branch),
        _ => None,
    }
}

/// Whether bytes have the form of a key.
pub(crate) fn is_key(bytes: &[u8]) -> bool {
    subject_of(bytes).is_some()
}

/// Whether a key, or a position, is that of an account or a slot.
pub(crate) fn is_value(key: &[u8]) -> bool {
    key.first() == Some(&VALUES)
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

/// An entry: `value` is what the key had before the position's block: an encoded value, children of
/// a branch, or a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry<'a> {
    pub(crate) position: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Entry<'_> {
    /// Appends the entry: length of the position, length of the value (two bytes), position, value.
    pub(crate) fn pack(&self, out: &mut Vec<u8>) {
        out.push(self.position.len() as u8);
        out.extend_from_slice(&(self.value.len() as u16).to_le_bytes());
        out.extend_from_slice(self.position);
        out.extend_from_slice(self.value);
    }
}

/// The packed entry at an offset.
pub(crate) fn packed_at(bytes: &[u8], start: usize) -> Entry<'_> {
    let value_len = u16::from_le_bytes([bytes[start + 1], bytes[start + 2]]);
    let position = start + 3..start + 3 + usize::from(bytes[start]);
    let value = position.end..position.end + usize::from(value_len);
    Entry {
        position: &bytes[position],
        value: &bytes[value],
    }
}

/// A visitor of the old values of one key, oldest first, until it breaks.
pub(crate) type ValueVisitor<'a> = &'a mut dyn FnMut(&[u8]) -> Result<ControlFlow<()>, DecodeError>;

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
    match subject_of(key_of(entry.position)) {
        None => Err(reader.error("an entry whose key is that of nothing")),
        Some(Subject::Account) => decode_account(entry.value).map(|_| ()),
        Some(Subject::Slot) => decode_slot(entry.value).map(|_| ()),
        Some(Subject::Branch) => OldBranch::decode(entry.value).map(|_| ()),
        Some(Subject::Root) => OldRoot::decode(entry.value).map(|_| ()),
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
            // A database of entries has no history.
            AccountUpdate::Keep | AccountUpdate::Entry(_) => {}
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
