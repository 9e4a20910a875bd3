//! Mapping between the state trie and pages: shards, prefixes, page addresses in blinded nodes, and
//! the encoding of leaves.
//!
//! The *place* of a blinded node is a number that the trie stores and never interprets. Here it is
//! the address of the page that contains the node's subtrie. A *digest* is a node reference that a
//! page caches, so that an update of the page need not hash everything in it.

use crate::base::{counters::Counters, error::StateError};
use alloy_primitives::{B256, U256};
use cambium_keccak::Batch;
use cambium_primitives::{
    ACCOUNT_NIBBLES, Account, DecodeError, EntryValue, Path, SLOT_NIBBLES, SlotValue,
};
use cambium_store::{Page, PageAddr};
use cambium_trie::{Commitment, LeafValue, Link, NodeRef, PartialTrie, Place, Stub};

/// Returns the shard of a path, 0 to 255: its first byte. The path must have at least two nibbles.
pub fn shard_of(path: &Path) -> usize {
    usize::from(path.packed()[0])
}

/// Returns the path of a shard's root: the two nibbles of `shard`, which is 0 to 255.
pub fn shard_prefix(shard: usize) -> Path {
    Path::from_nibbles(&[(shard >> 4) as u8, (shard & 15) as u8])
}

/// Whether `leaf` is in the subtrie at `prefix`. The subtrie at an account's path is its storage
/// trie, which does not contain the account itself.
pub fn is_under(leaf: &Path, prefix: &Path) -> bool {
    leaf.starts_with(prefix) && (prefix.len() < ACCOUNT_NIBBLES || leaf.len() > ACCOUNT_NIBBLES)
}

/// Returns the address of the page that `stub`, the blinded node at `prefix`, names.
///
/// # Errors
///
/// [`StateError::Broken`] if the stub has no place.
pub fn addr_of_stub(stub: &Stub, prefix: &Path) -> Result<PageAddr, StateError> {
    let nowhere = StateError::Broken {
        path: *prefix,
        what: "a place",
    };
    Ok(addr_of_place(stub.place.ok_or(nowhere)?))
}

/// Converts the place of a stub to the page address that it encodes.
pub fn addr_of_place(place: Place) -> PageAddr {
    PageAddr::from_u64(place.get()).expect("a place is not zero")
}

/// Converts a page address to the place of a stub. The reverse of [`addr_of_place`].
pub fn place(addr: PageAddr) -> Place {
    Place::new(addr.to_u64()).expect("an address is not zero")
}

fn damaged(path: &Path, source: DecodeError) -> StateError {
    StateError::Damaged {
        what: format!("the leaf at {path}"),
        source,
    }
}

/// Decodes a leaf's value as pages encode it. The length of `path` decides whether it is a slot's,
/// and the first byte whether it is an account's or an entry's.
///
/// # Errors
///
/// [`StateError::Damaged`] if `bytes` is not a canonical encoding.
pub fn decode_leaf(path: &Path, bytes: &[u8]) -> Result<LeafValue, StateError> {
    let leaf = if path.len() == SLOT_NIBBLES {
        SlotValue::decode(bytes).map(LeafValue::Slot)
    } else if EntryValue::is_encoding(bytes) {
        EntryValue::decode(bytes).map(LeafValue::Entry)
    } else {
        Account::decode(bytes).map(LeafValue::Account)
    };
    leaf.map_err(|source| damaged(path, source))
}

/// Returns the account at `path` in `page`, if there is one.
pub(crate) fn account_in(page: &Page, path: &Path) -> Result<Option<Account>, StateError> {
    let bytes = page.get(path);
    bytes
        .map(|bytes| Account::decode(bytes).map_err(|source| damaged(path, source)))
        .transpose()
}

/// Returns the value of the entry at `path` in `page`, if there is one.
pub(crate) fn entry_in(page: &Page, path: &Path) -> Result<Option<EntryValue>, StateError> {
    let bytes = page.get(path);
    bytes
        .map(|bytes| EntryValue::decode(bytes).map_err(|source| damaged(path, source)))
        .transpose()
}

/// Returns the value of the slot at `path` in `page`, or zero if the slot is absent.
pub(crate) fn slot_in(page: &Page, path: &Path) -> Result<U256, StateError> {
    let Some(bytes) = page.get(path) else {
        return Ok(U256::ZERO);
    };
    SlotValue::decode(bytes).map_err(|source| damaged(path, source))
}

/// Builds the subtrie of a page, and hashes it by `commitment`. Returns it with the link of its root, which is not set
/// as the trie's root.
///
/// Nodes below a digest stay unhashed if `with_digests` is true; otherwise digests are ignored, and
/// everything is hashed from the leaves.
///
/// # Errors
///
/// [`StateError::Damaged`] or [`StateError::Broken`] if a leaf or a digest can't be decoded, and
/// [`StateError::Trie`] if the leaves form no trie.
pub fn subtrie_of(
    page: &Page,
    with_digests: bool,
    commitment: Commitment,
    counters: &Counters,
) -> Result<(PartialTrie, Link), StateError> {
    let leaves = page
        .leaves()
        .map(|(leaf, bytes)| Ok((leaf, decode_leaf(&leaf, bytes)?)))
        .collect::<Result<Vec<_>, StateError>>()?;
    let digests = match with_digests {
        true => decode_digests(page)?,
        false => Vec::new(),
    };
    let mut trie = PartialTrie::new(Path::EMPTY).committed_by(commitment);
    let root = trie.graft_leaves(&page.prefix(), leaves.into_iter(), digests.into_iter())?;
    let hashed = trie.hash_nodes([root], &mut Batch::new());
    counters.node_hashes.add(hashed as u64);
    Ok((trie, root))
}

/// Returns the digests of `page`, in path order: references of its larger branches and storage
/// tries.
///
/// # Errors
///
/// [`StateError::Broken`] if a digest is not of 1 to 32 bytes.
pub fn decode_digests(page: &Page) -> Result<Vec<(Path, NodeRef)>, StateError> {
    page.digests()
        .map(|(path, bytes)| Ok((path, decode_digest(&path, bytes)?)))
        .collect()
}

/// Decodes a digest of the node at `path`: a hash of 32 bytes, or inline RLP of fewer.
///
/// # Errors
///
/// [`StateError::Broken`] if `bytes` is not of 1 to 32 bytes.
pub fn decode_digest(path: &Path, bytes: &[u8]) -> Result<NodeRef, StateError> {
    let hash = || B256::try_from(bytes).ok().map(NodeRef::hash);
    NodeRef::inline(bytes)
        .or_else(hash)
        .ok_or(StateError::Broken {
            path: *path,
            what: "a digest of 1 to 32 bytes",
        })
}
