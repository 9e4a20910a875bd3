//! Batches of inputs that are hashed together.

use crate::{
    block::{Entry, RATE},
    lanes::Width,
    single::keccak256,
};
use alloc::vec::Vec;
use alloy_primitives::B256;

/// Maximum number of blocks of inputs that are grouped by counting. Longer inputs are sorted.
const COUNTED_BLOCKS_MAX: usize = 8;

/// Inputs to hash together with Keccak-256. Clearing a batch keeps its memory.
#[derive(Clone, Debug)]
pub struct Batch {
    width: Width,
    /// All inputs, each padded to whole blocks: a 1 bit after the last byte, zeros, and a 1 bit
    /// at the end of the block.
    bytes: Vec<u8>,
    inputs: Vec<Input>,
    /// Inputs by their number of blocks.
    entries: Vec<Entry>,
    digests: Vec<B256>,
}

/// Position of an input, and its length without padding.
#[derive(Clone, Copy, Debug)]
struct Input {
    start: usize,
    len: usize,
}

impl Input {
    /// Returns the number of blocks with padding, which takes at least one byte.
    const fn blocks(&self) -> usize {
        self.len / RATE + 1
    }

    const fn padded_end(&self) -> usize {
        self.start + self.blocks() * RATE
    }
}

/// Number of inputs that [`keccak256_each`] keeps in memory at a time.
const EACH_AT_ONCE: usize = 256;

/// Hashes each input with Keccak-256. Returns the hashes in the order of the inputs.
///
/// ```
/// use cambium_keccak::{keccak256, keccak256_each};
///
/// assert_eq!(keccak256_each([b"ab", b"cd"]), [keccak256(b"ab"), keccak256(b"cd")]);
/// ```
pub fn keccak256_each<T: AsRef<[u8]>>(inputs: impl IntoIterator<Item = T>) -> Vec<B256> {
    let inputs = inputs.into_iter();
    let mut digests = Vec::with_capacity(inputs.size_hint().0);
    let mut batch = Batch::new();
    for input in inputs {
        batch.push(input.as_ref());
        if batch.len() == EACH_AT_ONCE {
            digests.extend_from_slice(batch.run());
            batch.clear();
        }
    }
    digests.extend_from_slice(batch.run());
    digests
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Creates an empty batch that uses all lanes of the processor.
    pub fn new() -> Self {
        Self::of_width(Width::widest())
    }

    /// Creates an empty batch that uses `lanes` lanes: 1, 2, 4 or 8. Returns `None` if the
    /// processor does not have them.
    pub fn with_lanes(lanes: usize) -> Option<Self> {
        Width::of_lanes(lanes).map(Self::of_width)
    }

    const fn of_width(width: Width) -> Self {
        Self {
            width,
            bytes: Vec::new(),
            inputs: Vec::new(),
            entries: Vec::new(),
            digests: Vec::new(),
        }
    }

    /// Returns the number of inputs that the batch hashes in parallel.
    pub const fn lanes(&self) -> usize {
        self.width.lanes()
    }

    /// Removes all inputs and digests.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.inputs.clear();
        self.digests.clear();
    }

    /// Returns the number of inputs.
    pub const fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Returns whether the batch has no inputs.
    pub const fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Returns the total length of the inputs in bytes, each padded to a multiple of 136.
    pub const fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an input. Returns its index.
    pub fn push(&mut self, input: &[u8]) -> usize {
        self.push_with(|bytes| bytes.extend_from_slice(input))
    }

    /// Adds the input that `write` appends. Returns its index. `write` must only append.
    ///
    /// # Panics
    ///
    /// Panics if `write` has cut the inputs before.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let start = self.bytes.len();
        write(&mut self.bytes);
        let end = self.bytes.len();
        assert!(end >= start, "an input's writer cut the inputs before it");
        let input = Input {
            start,
            len: end - start,
        };
        self.bytes.resize(input.padded_end(), 0);
        self.bytes[end] = 0x01;
        self.bytes[input.padded_end() - 1] |= 0x80;
        self.inputs.push(input);
        self.inputs.len() - 1
    }

    /// Returns the input at `index`.
    ///
    /// # Panics
    ///
    /// Panics if `index` is out of range.
    pub fn input(&self, index: usize) -> &[u8] {
        let Input { start, len } = self.inputs[index];
        &self.bytes[start..start + len]
    }

    /// Removes the last input.
    ///
    /// # Panics
    ///
    /// Panics if the batch is empty.
    pub fn pop(&mut self) {
        let input = self.inputs.pop().expect("an input to take back");
        self.bytes.truncate(input.start);
    }

    /// Hashes all inputs. Returns the digests in the order of the inputs.
    ///
    /// # Panics
    ///
    /// Panics if the batch has 2^32 blocks of 136 bytes, which are 544 GiB.
    pub fn run(&mut self) -> &[B256] {
        let blocks = self.bytes.len() / RATE;
        assert!(u32::try_from(blocks).is_ok(), "{blocks} blocks in a batch");
        self.digests.clear();
        self.digests.resize(self.len(), B256::ZERO);
        let mut entries = core::mem::take(&mut self.entries);
        let classes = self.group(&mut entries);
        let mut from = 0;
        for (class, to) in classes.into_iter().enumerate() {
            let entries = &mut entries[from..to];
            from = to;
            if class < COUNTED_BLOCKS_MAX {
                self.hash_group(class + 1, entries);
                continue;
            }
            entries.sort_unstable_by_key(|entry| self.blocks_of(entry));
            let mut rest = &entries[..];
            while let Some(first) = rest.first() {
                let count = self.blocks_of(first);
                let len = rest.partition_point(|entry| self.blocks_of(entry) == count);
                self.hash_group(count, &rest[..len]);
                rest = &rest[len..];
            }
        }
        self.entries = entries;
        &self.digests
    }

    fn blocks_of(&self, entry: &Entry) -> usize {
        self.inputs[entry.index as usize].blocks()
    }

    /// Fills `entries` with all inputs, sorted by their number of blocks. Returns where each number
    /// of blocks ends.
    fn group(&self, entries: &mut Vec<Entry>) -> [usize; COUNTED_BLOCKS_MAX + 1] {
        let class = |input: &Input| input.blocks().min(COUNTED_BLOCKS_MAX + 1) - 1;
        let mut next = [0; COUNTED_BLOCKS_MAX + 1];
        for input in &self.inputs {
            next[class(input)] += 1;
        }
        let mut start = 0;
        for count in &mut next {
            (*count, start) = (start, start + *count);
        }
        entries.clear();
        entries.resize(self.len(), Entry::default());
        for (index, input) in self.inputs.iter().enumerate() {
            let at = &mut next[class(input)];
            entries[*at] = Entry {
                first_block: (input.start / RATE) as u32,
                index: index as u32,
            };
            *at += 1;
        }
        next
    }

    /// Hashes inputs of `count` blocks each.
    fn hash_group(&mut self, count: usize, entries: &[Entry]) {
        let blocks = self.bytes.as_chunks().0;
        let rest = self.width.hash(blocks, count, entries, &mut self.digests);
        for entry in rest {
            let index = entry.index as usize;
            self.digests[index] = keccak256(self.input(index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn ramp(len: usize, seed: u8) -> Vec<u8> {
        (0..len)
            .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
            .collect()
    }

    /// Returns a batch of each width that the processor has.
    fn batches() -> Vec<Batch> {
        let real = [1, 2, 4, 8].into_iter().filter_map(Batch::with_lanes);
        let portable = [1, 2, 4, 8].map(Width::portable).map(Batch::of_width);
        real.chain(portable).collect()
    }

    #[test]
    fn a_batch_has_the_widest_lanes_and_all_narrower_ones() {
        let widest = Batch::new().lanes();
        assert_eq!(widest, crate::lanes());
        assert!([1, 2, 4, 8].contains(&widest));
        assert!(Batch::with_lanes(1).is_some() && Batch::with_lanes(3).is_none());
        for lanes in [1, 2, 4, 8].into_iter().filter(|lanes| *lanes <= widest) {
            assert_eq!(
                Batch::with_lanes(lanes).map(|batch| batch.lanes()),
                Some(lanes)
            );
        }
    }

    #[test]
    fn every_length_to_700_hashes_as_alloy_does_for_every_fill_of_the_lanes() {
        // An interpreter is slow: there, only the lengths at which something changes.
        let lens: Vec<_> = match cfg!(miri) {
            true => vec![0, 1, 135, 136, 532],
            false => (0..=700).collect(),
        };
        let counts: &[usize] = match cfg!(miri) {
            true => &[3, 8],
            false => &[1, 2, 3, 4, 5, 7, 8, 9, 16, 17],
        };
        let mut batches = batches();
        for len in lens {
            let inputs: Vec<_> = (0..17).map(|seed| ramp(len, seed)).collect();
            let expected: Vec<_> = inputs.iter().map(alloy_primitives::keccak256).collect();
            for batch in &mut batches {
                for &count in counts {
                    batch.clear();
                    for input in &inputs[..count] {
                        batch.push(input);
                    }
                    let width = batch.width;
                    assert_eq!(
                        batch.run(),
                        &expected[..count],
                        "{count} inputs of {len} bytes, {width:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn each_of_many_inputs_is_hashed_in_its_place() {
        for count in [0, 1, EACH_AT_ONCE - 1, EACH_AT_ONCE, 2 * EACH_AT_ONCE + 3] {
            let inputs: Vec<_> = (0..count).map(|at| ramp(20 + at % 20, at as u8)).collect();
            let expected: Vec<_> = inputs.iter().map(alloy_primitives::keccak256).collect();
            assert_eq!(keccak256_each(inputs), expected);
        }
    }

    #[test]
    fn an_input_taken_back_leaves_no_trace() {
        let mut batch = Batch::new();
        batch.push(b"kept");
        batch.push(&[0xff; 200]);
        batch.pop();
        batch.push(b"after");
        assert_eq!(batch.input(1), b"after");
        assert_eq!(
            batch.run(),
            [crate::keccak256(b"kept"), crate::keccak256(b"after")]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]
        #[test]
        fn mixed_batches_keep_the_order_of_their_inputs(
            lens in proptest::collection::vec(0usize..700, 0..80),
            few in proptest::collection::vec(0usize..4, 0..80),
            long in proptest::collection::vec(1000usize..3000, 0..12),
        ) {
            let few = few.iter().map(|at| 532 - 32 * at);
            let lens: Vec<_> = lens.iter().copied().chain(long).chain(few).collect();
            for mut batch in batches() {
                let mut expected = vec![];
                for (seed, len) in lens.iter().enumerate() {
                    let input = ramp(*len, seed as u8);
                    batch.push(&input);
                    expected.push(alloy_primitives::keccak256(&input));
                }
                prop_assert_eq!(batch.run(), expected);
            }
        }
    }
}
