//! The reusable arena of inputs.

use crate::lanes::{GROUP_MAX, hash_equal, lanes};
use alloc::vec::Vec;
use alloy_primitives::B256;

/// Inputs to hash together. Keeps its memory when cleared.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// All inputs, one after another.
    bytes: Vec<u8>,
    /// Where each input ends in `bytes`.
    ends: Vec<usize>,
    /// Length and index of the inputs, sorted.
    order: Vec<(usize, u32)>,
    /// One group of inputs of equal length, back to back.
    group: Vec<u8>,
    /// Digests of one group.
    group_digests: Vec<B256>,
    digests: Vec<B256>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all inputs and digests.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.digests.clear();
    }

    /// Number of inputs.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no input.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all inputs together.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an input and returns its index.
    pub fn push(&mut self, input: &[u8]) -> usize {
        self.push_with(|bytes| bytes.extend_from_slice(input))
    }

    /// Adds the input that `write` appends, and returns its index. `write` must only append.
    pub fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let start = self.bytes.len();
        write(&mut self.bytes);
        assert!(
            self.bytes.len() >= start,
            "an input's writer cut the inputs before it"
        );
        self.ends.push(self.bytes.len());
        self.ends.len() - 1
    }

    /// The input at `index`. Panics past the end.
    pub fn input(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// Takes the last input back. Panics if there is none.
    pub fn pop(&mut self) {
        self.ends.pop().expect("an input to take back");
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Hashes all inputs; digests are in the order in which inputs were added.
    pub fn run(&mut self) -> &[B256] {
        let count = u32::try_from(self.len()).expect("fewer than 2^32 inputs");
        self.digests.clear();
        self.digests.resize(self.len(), B256::ZERO);
        let mut order = core::mem::take(&mut self.order);
        order.clear();
        order.extend((0..count).map(|index| (self.input(index as usize).len(), index)));
        order.sort_unstable();
        let lanes = lanes();
        for equal in order.chunk_by(|a, b| a.0 == b.0) {
            self.hash_equal(equal, lanes);
        }
        self.order = order;
        &self.digests
    }

    /// Hashes inputs that are all of one length.
    fn hash_equal(&mut self, equal: &[(usize, u32)], lanes: usize) {
        let len = equal[0].0;
        if equal.len() == 1 || len == 0 {
            for &(_, index) in equal {
                self.digests[index as usize] = crate::keccak256(self.input(index as usize));
            }
            return;
        }
        for group in equal.chunks(GROUP_MAX) {
            self.group.clear();
            for &(_, index) in group {
                let end = self.ends[index as usize];
                self.group.extend_from_slice(&self.bytes[end - len..end]);
            }
            self.group_digests.clear();
            hash_equal(&self.group, len, lanes, &mut self.group_digests);
            for (&(_, index), digest) in group.iter().zip(&self.group_digests) {
                self.digests[index as usize] = *digest;
            }
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

    #[test]
    fn every_length_to_700_hashes_as_alloy_does_for_every_fill_of_the_lanes() {
        let mut batch = Batch::new();
        for len in 0..=700 {
            for count in [1usize, 2, 3, 4, 5, 7, 8, 9, 16, 17, 21] {
                batch.clear();
                let inputs: Vec<_> = (0..count).map(|seed| ramp(len, seed as u8)).collect();
                for input in &inputs {
                    batch.push(input);
                }
                let expected: Vec<_> = inputs.iter().map(alloy_primitives::keccak256).collect();
                assert_eq!(batch.run(), expected, "{count} inputs of {len} bytes");
            }
        }
    }

    #[test]
    fn an_input_taken_back_leaves_no_trace() {
        let mut batch = Batch::new();
        batch.push(b"kept");
        batch.push(b"taken back");
        batch.pop();
        batch.push(b"after");
        assert_eq!(
            batch.run(),
            [crate::keccak256(b"kept"), crate::keccak256(b"after")]
        );
    }

    proptest! {
        #[test]
        fn mixed_batches_keep_the_order_of_their_inputs(
            lens in proptest::collection::vec(0usize..700, 0..80),
            few in proptest::collection::vec(0usize..4, 0..80),
        ) {
            let mut batch = Batch::new();
            let mut expected = vec![];
            let lens = lens.iter().copied().chain(few.iter().map(|at| 532 - 32 * at));
            for (seed, len) in lens.enumerate() {
                let input = ramp(len, seed as u8);
                batch.push(&input);
                expected.push(alloy_primitives::keccak256(&input));
            }
            prop_assert_eq!(batch.run(), expected);
        }
    }
}
