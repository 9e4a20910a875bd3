//! The intervals of blocks by which the `layered` commitment divides a chain.

use cambium_primitives::BlockNumber;
use cambium_snapshot::StateError;

/// Most blocks of an interval.
const BLOCKS_MAX: u64 = 1 << 24;
/// Memory that a block of few changes takes in the upper tries and their reverts, in bytes: some
/// ten accounts.
const BLOCK_BYTES: u64 = 4 << 10;
/// Share of all memory that two intervals of such blocks may take.
const MEMORY_DIVISOR: u64 = 4;

/// Intervals of `blocks` blocks, from the block after the first on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intervals {
    first: BlockNumber,
    blocks: u64,
}

impl Intervals {
    /// Intervals of `blocks` blocks of a chain whose first block is `first`; `None` if no chain can
    /// have such ones.
    pub(crate) fn new(first: BlockNumber, blocks: u64) -> Option<Self> {
        let fits = (1..=BLOCKS_MAX).contains(&blocks);
        fits.then_some(Self { first, blocks })
    }

    /// Number of blocks of an interval.
    pub(crate) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The block after which the delta of block `number` begins: qI, counted from the first block.
    pub(crate) const fn start_of(&self, number: BlockNumber) -> BlockNumber {
        let height = number.saturating_sub(self.first).saturating_sub(1);
        self.first + height - height % self.blocks
    }

    /// The block whose state is the snapshot of block `number`: (q-1)I, or the first block.
    pub(crate) const fn snapshot_of(&self, number: BlockNumber) -> BlockNumber {
        let start = self.start_of(number) - self.first;
        self.first + start.saturating_sub(self.blocks)
    }

    /// Whether an interval ends with block `number`, so that its state becomes a snapshot.
    pub(crate) const fn is_boundary(&self, number: BlockNumber) -> bool {
        number >= self.first && (number - self.first).is_multiple_of(self.blocks)
    }

    /// Fails if `memory` bytes can't hold what two intervals of small blocks change.
    pub(crate) fn check_memory(&self, memory: u64) -> Result<(), StateError> {
        let needed = 2 * self.blocks * BLOCK_BYTES;
        self.check_needed(needed, memory / MEMORY_DIVISOR)
    }

    /// Fails if the upper tries, which take `bytes`, leave too little of `memory` bytes.
    pub(crate) fn check_measured(&self, bytes: u64, memory: u64) -> Result<(), StateError> {
        self.check_needed(bytes, memory / 2)
    }

    fn check_needed(&self, needed: u64, available: u64) -> Result<(), StateError> {
        if needed <= available {
            return Ok(());
        }
        let blocks = self.blocks;
        Err(StateError::BadOptions(format!(
            "the chain's merge interval is {blocks} blocks: the changes of two intervals take \
             {needed} bytes in memory, and {available} are available for them: give the database \
             more memory"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_definition() {
        for first in [0, 1, 17] {
            for blocks in 1..6 {
                let intervals = Intervals::new(first, blocks).unwrap();
                for height in 0..40i64 {
                    let i = blocks as i64;
                    // Before block 1, the quotient is rounded down to -1.
                    let q = (height - 1).div_euclid(i).max(0);
                    let number = first + height as u64;
                    let at = |height: i64| first + height as u64;
                    assert_eq!(intervals.start_of(number), at(q * i));
                    assert_eq!(intervals.snapshot_of(number), at(((q - 1) * i).max(0)));
                    assert_eq!(intervals.is_boundary(number), height % i == 0);
                }
            }
        }
        assert_eq!(Intervals::new(0, 0), None);
        assert_eq!(Intervals::new(0, u64::MAX), None);
    }
}
