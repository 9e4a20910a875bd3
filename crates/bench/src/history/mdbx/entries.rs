//! Keys and values of the tables.

use crate::history::plan::Failure;
use alloy_primitives::B256;
use alloy_trie::{BranchNodeCompact, Nibbles, TrieMask};
use cambium_primitives::Account;

/// Nibbles of the longest path.
const NIBBLES_MAX: usize = 64;
/// Bytes of the three masks of a branch.
const MASKS: usize = 6;

/// Key of a value in each state: the path of a branch, or the hash of an address.
pub(super) trait Key {
    /// Its key in the table of present values.
    fn present(&self) -> Vec<u8>;

    /// Prefix of its entries in change sets. Entries of a block are sorted by it.
    fn in_change_set(&self) -> Vec<u8>;

    /// Prefix of the keys of its shards of block numbers. The number of the shard follows.
    fn in_history(&self) -> Vec<u8>;
}

/// A byte is a nibble in all tables.
impl Key for Nibbles {
    fn present(&self) -> Vec<u8> {
        self.to_vec()
    }

    /// Padded with zeros, so that all have the same length; the number of nibbles comes last.
    fn in_change_set(&self) -> Vec<u8> {
        let mut key = self.to_vec();
        key.resize(NIBBLES_MAX, 0);
        key.push(self.len() as u8);
        key
    }

    /// The number of nibbles comes first, since it does not follow from the length of a key.
    fn in_history(&self) -> Vec<u8> {
        let mut key = vec![self.len() as u8];
        key.extend(self.iter());
        key
    }
}

impl Key for B256 {
    fn present(&self) -> Vec<u8> {
        self.to_vec()
    }

    fn in_change_set(&self) -> Vec<u8> {
        self.to_vec()
    }

    fn in_history(&self) -> Vec<u8> {
        self.to_vec()
    }
}

/// The path and the value of a branch in one string.
pub(super) fn node_entry(path: &Nibbles, value: &[u8]) -> Vec<u8> {
    [path.in_change_set().as_slice(), value].concat()
}

/// Splits what [`node_entry`] has made.
pub(super) fn split_node_entry(entry: impl AsRef<[u8]>) -> Result<(Nibbles, Vec<u8>), Failure> {
    let (path, value) = entry
        .as_ref()
        .split_at_checked(NIBBLES_MAX + 1)
        .ok_or("an entry of a branch is shorter than its path")?;
    let nibbles = path
        .get(..usize::from(path[NIBBLES_MAX]))
        .filter(|nibbles| nibbles.iter().all(|nibble| *nibble < 16))
        .ok_or("an entry of a branch has no path")?;
    Ok((Nibbles::from_nibbles(nibbles), value.to_vec()))
}

/// Encodes a branch other than the root.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 2 | children that there are |
/// | 2 | 2 | children below which branches are kept |
/// | 4 | 2 | children that are branches, whose hashes follow |
/// | 6 | 32 each | hashes |
pub(super) fn encode_node(node: &BranchNodeCompact) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MASKS + 32 * node.hashes.len());
    for mask in [node.state_mask, node.tree_mask, node.hash_mask] {
        bytes.extend(mask.get().to_be_bytes());
    }
    for hash in node.hashes.iter() {
        bytes.extend(hash);
    }
    bytes
}

pub(super) fn decode_node(bytes: &[u8]) -> Result<BranchNodeCompact, Failure> {
    let damaged = || Failure::from("a branch is damaged");
    let (masks, hashes) = bytes.split_at_checked(MASKS).ok_or_else(damaged)?;
    let mask = |at: usize| TrieMask::new(u16::from_be_bytes([masks[at], masks[at + 1]]));
    let (state, tree, hash) = (mask(0), mask(2), mask(4));
    let is_whole = tree.is_subset_of(state)
        && hash.is_subset_of(state)
        && hashes.len() == 32 * usize::from(hash.count_bits());
    if !is_whole {
        return Err(damaged());
    }
    let hashes = hashes.chunks_exact(32).map(B256::from_slice).collect();
    Ok(BranchNodeCompact::new(state, tree, hash, hashes, None))
}

/// Encodes an account, as it is encoded in the engine.
pub(super) fn encode_account(account: &Account) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    account.encode_to(&mut bytes);
    bytes
}

pub(super) fn decode_account(bytes: &[u8]) -> Result<Account, Failure> {
    Account::decode(bytes).map_err(|error| format!("an account is damaged: {error}").into())
}
