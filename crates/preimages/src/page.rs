//! A page of a run: preimages of one kind, in the order of their hashes.
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       20, 32  each preimage; all pages of a kind but the last are full
//! then            zeros
//! 4088    8       xxh3-64 of all before, with a seed of the run's identity and the page's number
//! ```

use crate::kind::{Entry, Kind};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) const PAGE_BYTES: usize = 4096;
const SUMMED_BYTES: usize = PAGE_BYTES - 8;

/// Preimages of a full page.
pub(crate) const fn entries_per_page(kind: Kind) -> usize {
    SUMMED_BYTES / kind.bytes()
}

/// Ends the page of `bytes`, which has its preimages.
pub(crate) fn finish_page(bytes: &mut Vec<u8>, identity: u64, page: u64) {
    bytes.resize(SUMMED_BYTES, 0);
    let sum = xxh3_64_with_seed(bytes, seed_of(identity, page));
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// The `count` preimages of a page, with their hashes. `None` if these are not the bytes that were written.
pub(crate) fn decode_page(
    bytes: &[u8],
    kind: Kind,
    count: usize,
    identity: u64,
    page: u64,
) -> Option<Vec<Entry>> {
    let (summed, sum) = bytes.split_last_chunk::<8>()?;
    if xxh3_64_with_seed(summed, seed_of(identity, page)).to_le_bytes() != *sum {
        return None;
    }
    let all = summed.chunks_exact(kind.bytes()).take(count);
    Some(all.map(Entry::of).collect())
}

/// A page in another place, or of another run, is not taken for this one.
const fn seed_of(identity: u64, page: u64) -> u64 {
    identity ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
