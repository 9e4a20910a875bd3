//! Fences: which page of a run has a position.
//!
//! The fence of a page is the shortest prefix of its first position that is greater than the last
//! position of the page before. So all positions of a key that begins a page are at that page or
//! after it.

use cambium_primitives::{DecodeError, Reader, put_varint};

/// The fences of a run, in memory. The first page has none.
#[derive(Default)]
pub(crate) struct Fences {
    bytes: Vec<u8>,
    /// Where each fence ends in `bytes`.
    ends: Vec<u32>,
}

impl Fences {
    /// Adds the fence between the last position of a page and the first one of the next.
    pub(crate) fn push(&mut self, last: &[u8], first: &[u8]) {
        let shared = last.iter().zip(first).take_while(|(a, b)| a == b).count();
        self.add(&first[..(shared + 1).min(first.len())]);
    }

    fn add(&mut self, fence: &[u8]) {
        self.bytes.extend_from_slice(fence);
        self.ends.push(self.bytes.len() as u32);
    }

    /// Number of pages.
    pub(crate) const fn pages(&self) -> usize {
        self.ends.len() + 1
    }

    /// Its memory, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.capacity() + 4 * self.ends.capacity()
    }

    /// The page in which the first entry at `position` or after it is, if one with its key is in
    /// the run.
    pub(crate) fn page_of(&self, position: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.get(middle) <= position {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = match index {
            0 => 0,
            index => self.ends[index - 1] as usize,
        };
        &self.bytes[start..self.ends[index] as usize]
    }

    /// Encodes the fences: of each its length, LEB128, and its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len() + self.ends.len());
        for index in 0..self.ends.len() {
            let fence = self.get(index);
            put_varint(&mut out, fence.len() as u64);
            out.extend_from_slice(fence);
        }
        out
    }

    /// Decodes the fences of a run.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(Reader::new(bytes).error("more than 4 GiB of fences"));
        }
        let mut fences = Self::default();
        let mut reader = Reader::new(bytes);
        while reader.remaining() > 0 {
            let len = reader.count(1)?;
            let fence = reader.take(len)?;
            if let Some(last) = fences.ends.len().checked_sub(1)
                && fences.get(last) >= fence
            {
                return Err(reader.error("fences out of order"));
            }
            fences.add(fence);
        }
        fences.bytes.shrink_to_fit();
        fences.ends.shrink_to_fit();
        Ok(fences)
    }
}
