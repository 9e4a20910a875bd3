//! Entries of the two kinds of look-ups, and the keys by which they are sorted.
//!
//! | kind | key | block | place |
//! |---|---|---|---|
//! | hashes | first 8 bytes of a transaction's or a block's hash, big-endian | that has it | 0 for the block itself, else 1 and the transaction's index |
//! | logs | xxh3-64 of an address or a topic, with the seed of the index | that has a log with it | where in its logs: bit 0 as address, bits 1 to 4 as topic 0 to 3; bit 5 if the receipts are not known, under a key of its own |
//!
//! Keys of different values may be equal, so a look-up compares the block or transaction that an entry leads to.

use alloy_primitives::B256;
use cambium_primitives::BlockNumber;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Largest number of a block that can be indexed.
pub(crate) const BLOCK_MAX: BlockNumber = u32::MAX as BlockNumber - 1;

/// Place of the entry of a block's own hash.
pub(crate) const BLOCK_PLACE: u32 = 0;

/// Bit of a log's address in the place of an entry of logs.
pub(crate) const ADDRESS_BIT: u32 = 1;

/// Bit of a log's topic in the place of an entry of logs.
pub(crate) const fn topic_bit(index: usize) -> u32 {
    2 << index
}

/// Replaces the address in the entry of logs of a block without known receipts.
pub(crate) const NO_RECEIPTS: &[u8] = b"no receipts";
/// The place in such an entry.
pub(crate) const NO_RECEIPTS_BIT: u32 = 32;

/// An entry: its kind is that of the section it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) key: u64,
    pub(crate) block: u32,
    pub(crate) place: u32,
}

/// The two kinds of entries, which are sections of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Hashes,
    Logs,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Hashes, Self::Logs];
}

/// The key of a block's or a transaction's hash.
pub(crate) fn hash_key(hash: &B256) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = hash.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The key of an address or a topic of a log. Seeded against hash flooding.
pub(crate) fn log_key(seed: u64, value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, seed)
}
