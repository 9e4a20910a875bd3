//! Where things are in the state trie and in pages: shards, prefixes, places, and leaves as bytes.

use crate::base::{counters::Counters, error::StateError};
use alloy_primitives::{B256, U256};
use cambium_keccak::Batch;
use cambium_primitives::{ACCOUNT_NIBBLES, Account, DecodeError, Path, SLOT_NIBBLES, SlotValue};
use cambium_store::{Page, PageAddr};
use cambium_trie::{LeafValue, Link, NodeRef, PartialTrie, Place, Stub};

/// The trie that a path belongs to. The path must have two nibbles.
pub fn shard_of(path: &Path) -> usize {
    usize::from(path.packed()[0])
}

/// The path at which a shard is rooted.
pub fn shard_prefix(shard: usize) -> Path {
    Path::from_nibbles(&[(shard >> 4) as u8, (shard & 15) as u8])
}

/// Whether a leaf is in the subtrie at `prefix`. At an account's path that is its storage: the
/// account itself is a leaf above it.
pub fn is_under(leaf: &Path, prefix: &Path) -> bool {
    leaf.starts_with(prefix) && (prefix.len() < ACCOUNT_NIBBLES || leaf.len() > ACCOUNT_NIBBLES)
}

/// The address of the page behind `stub`, which sits at `prefix`. [`StateError::Broken`] for a stub without a place.
pub fn addr_of(stub: &Stub, prefix: &Path) -> Result<PageAddr, StateError> {
    let nowhere = StateError::Broken {
        path: *prefix,
        what: "a place",
    };
    Ok(page_addr(stub.place.ok_or(nowhere)?))
}

/// The page address that a place in a trie stands for.
pub fn page_addr(place: Place) -> PageAddr {
    PageAddr::from_u64(place.get()).expect("a place is not zero")
}

/// The place in a trie that stands for a page address.
pub fn place(addr: PageAddr) -> Place {
    Place::new(addr.to_u64()).expect("an address is not zero")
}

fn damaged(path: &Path, source: DecodeError) -> StateError {
    StateError::Damaged {
        what: format!("the leaf at {path}"),
        source,
    }
}

/// A leaf's value from its bytes: a slot's if its path is a slot's.
pub fn decode_leaf(path: &Path, bytes: &[u8]) -> Result<LeafValue, StateError> {
    let leaf = if path.len() == SLOT_NIBBLES {
        SlotValue::decode(bytes).map(LeafValue::Slot)
    } else {
        Account::decode(bytes).map(LeafValue::Account)
    };
    leaf.map_err(|source| damaged(path, source))
}

/// The account at `path` in `page`.
pub(crate) fn account_in(page: &Page, path: &Path) -> Result<Option<Account>, StateError> {
    let bytes = page.get(path);
    bytes
        .map(|bytes| Account::decode(bytes).map_err(|source| damaged(path, source)))
        .transpose()
}

/// The slot at `path` in `page`; zero if it is not there.
pub(crate) fn slot_in(page: &Page, path: &Path) -> Result<U256, StateError> {
    let Some(bytes) = page.get(path) else {
        return Ok(U256::ZERO);
    };
    SlotValue::decode(bytes).map_err(|source| damaged(path, source))
}

/// The subtrie of a page, hashed: with the references that are cached in it, or from its leaves
/// alone. Its root is linked from nowhere.
pub fn subtrie_of(
    page: &Page,
    with_digests: bool,
    counters: &Counters,
) -> Result<(PartialTrie, Link), StateError> {
    let leaves = page
        .leaves()
        .map(|(leaf, bytes)| Ok((leaf, decode_leaf(&leaf, bytes)?)))
        .collect::<Result<Vec<_>, StateError>>()?;
    let digests = match with_digests {
        true => digests_of(page)?,
        false => Vec::new(),
    };
    let mut trie = PartialTrie::new(Path::EMPTY);
    let root = trie.graft_leaves(page.prefix(), leaves.into_iter(), digests.into_iter())?;
    let hashed = trie.hash_nodes([root], &mut Batch::new());
    counters.node_hashes.add(hashed as u64);
    Ok((trie, root))
}

/// The cached digests of `page`.
pub fn digests_of(page: &Page) -> Result<Vec<(Path, NodeRef)>, StateError> {
    page.digests()
        .map(|(path, bytes)| Ok((path, node_of(&path, bytes)?)))
        .collect()
}

/// The reference that the digest cached for `path` is.
pub fn node_of(path: &Path, bytes: &[u8]) -> Result<NodeRef, StateError> {
    let hash = || B256::try_from(bytes).ok().map(NodeRef::hash);
    NodeRef::inline(bytes)
        .or_else(hash)
        .ok_or(StateError::Broken {
            path: *path,
            what: "a digest of 1 to 32 bytes",
        })
}
