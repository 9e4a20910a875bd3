//! A page of a run: preimages of one kind, in the order of their hashes.
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       20, 32  each preimage; all pages of a kind but the last are full
//! then            zeros
//! 4088    8       xxh3-64 of all before, with a seed of the run's identity and the page's number
//! ```

use crate::kind::{Entry, Kind};
use alloy_primitives::{B256, keccak256};
use cambium_runs::{PAGE_BYTES, page_sum};
use std::cmp::Ordering;

const SUMMED_BYTES: usize = PAGE_BYTES - 8;

/// Preimages of a full page.
pub(crate) const fn entries_per_page(kind: Kind) -> usize {
    SUMMED_BYTES / kind.bytes()
}

/// Ends the page of `bytes`, which has its preimages.
pub(crate) fn finish_page(bytes: &mut Vec<u8>, identity: u64, page: u64) {
    bytes.resize(SUMMED_BYTES, 0);
    let sum = page_sum(bytes, identity, page);
    bytes.extend_from_slice(&sum.to_le_bytes());
}

/// A page that was read, whose bytes are those that were written.
pub(crate) struct ReadPage {
    bytes: Vec<u8>,
    kind: Kind,
    /// Of each preimage, once it was computed.
    hashes: Vec<Option<B256>>,
}

impl ReadPage {
    /// The page of `bytes`, which has `count` preimages. `None` if these are not the bytes that were written.
    pub(crate) fn of(
        bytes: Vec<u8>,
        kind: Kind,
        count: usize,
        identity: u64,
        page: u64,
    ) -> Option<Self> {
        let (summed, sum) = bytes.split_last_chunk::<8>()?;
        if page_sum(summed, identity, page).to_le_bytes() != *sum {
            return None;
        }
        let hashes = vec![None; count];
        Some(Self {
            bytes,
            kind,
            hashes,
        })
    }

    fn preimage(&self, at: usize) -> &[u8] {
        &self.bytes[at * self.kind.bytes()..][..self.kind.bytes()]
    }

    fn hash(&mut self, at: usize) -> B256 {
        let hash = self.hashes[at].unwrap_or_else(|| keccak256(self.preimage(at)));
        self.hashes[at] = Some(hash);
        hash
    }

    /// The preimage of `hash`, if it is here. Computes the hashes that it compares, each once: a few for one look-up,
    /// and not more than all for many in order.
    pub(crate) fn find(&mut self, hash: &B256) -> Option<Entry> {
        let (mut low, mut high) = (0, self.hashes.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.hash(middle).cmp(hash) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Some(Entry::of(self.preimage(middle))),
            }
        }
        None
    }

    /// All preimages, with their hashes.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let all = (0..self.hashes.len()).map(|at| Entry::of(self.preimage(at)));
        all.collect()
    }
}
