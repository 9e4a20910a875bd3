//! Where the data of consecutive blocks is: in which file, from which byte on, and how long.
//!
//! The lengths of all blocks are in memory, packed, so that a block is read at once: 2 to 3 bytes each,
//! for blocks of up to a few hundred kilobytes.

use cambium_primitives::{DecodeError, Reader, put_varint};

/// Number of blocks whose lengths are packed together.
const GROUP: usize = 64;
/// Most blocks of a run: all numbers there are.
const BLOCKS_MAX: u64 = 1 << 32;

/// Lengths, packed in groups. Each group has the sum of all before it.
#[derive(Clone, Debug, Default)]
struct Lengths {
    count: usize,
    groups: Vec<Group>,
    words: Vec<u64>,
    /// Lengths of the last group, which is not packed yet.
    open: Vec<u32>,
    sum: u64,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    /// Sum of the lengths before it.
    before: u64,
    /// Where its bits begin in `words`.
    word: u32,
    /// Bits of each length.
    bits: u8,
}

impl Lengths {
    fn push(&mut self, length: u32) {
        self.open.push(length);
        self.count += 1;
        self.sum += u64::from(length);
        if self.open.len() == GROUP {
            self.pack();
        }
    }

    fn pack(&mut self) {
        let largest = self.open.iter().copied().max().unwrap_or(0);
        let bits = 32 - largest.leading_zeros();
        let word = self.words.len();
        self.words
            .resize(word + (GROUP * bits as usize).div_ceil(64), 0);
        let mut sum = 0;
        for (index, length) in self.open.drain(..).enumerate() {
            sum += u64::from(length);
            if bits == 0 {
                continue;
            }
            let at = index * bits as usize;
            let (place, shift) = (word + at / 64, at % 64);
            self.words[place] |= u64::from(length) << shift;
            if shift + bits as usize > 64 {
                self.words[place + 1] |= u64::from(length) >> (64 - shift);
            }
        }
        self.groups.push(Group {
            before: self.sum - sum,
            word: word as u32,
            bits: bits as u8,
        });
    }

    fn get(&self, index: usize) -> u32 {
        let Some(group) = self.groups.get(index / GROUP) else {
            return self.open[index % GROUP];
        };
        let bits = usize::from(group.bits);
        if bits == 0 {
            return 0;
        }
        let at = index % GROUP * bits;
        let (place, shift) = (group.word as usize + at / 64, at % 64);
        let mut value = self.words[place] >> shift;
        if shift + bits > 64 {
            value |= self.words[place + 1] << (64 - shift);
        }
        (value & ((1 << bits) - 1)) as u32
    }

    /// Sum of the lengths before `index`.
    fn before(&self, index: usize) -> u64 {
        let group = index / GROUP;
        let before = match self.groups.get(group) {
            Some(group) => group.before,
            None => {
                self.sum
                    - self
                        .open
                        .iter()
                        .map(|length| u64::from(*length))
                        .sum::<u64>()
            }
        };
        let within = group * GROUP..index;
        before + within.map(|index| u64::from(self.get(index))).sum::<u64>()
    }

    fn memory_bytes(&self) -> u64 {
        (self.groups.capacity() * size_of::<Group>() + self.words.capacity() * 8) as u64
    }
}

/// A part of a data file, with the data of consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first block in it, counted from the run's first.
    pub(crate) from: u64,
    /// Number of the data file.
    pub(crate) file: u64,
    /// Offset of the first block in the file.
    pub(crate) offset: u64,
}

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) file: u64,
    pub(crate) offset: u64,
    /// Length of its record, with the padding.
    pub(crate) len: u32,
}

/// Where consecutive blocks are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    pieces: Vec<Piece>,
    lengths: Lengths,
}

impl Extents {
    /// Number of blocks.
    pub(crate) const fn blocks(&self) -> u64 {
        self.lengths.count as u64
    }

    /// Length of all blocks, in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.lengths.sum
    }

    /// Numbers of the data files, ascending.
    pub(crate) fn files(&self) -> impl Iterator<Item = u64> {
        self.pieces.iter().map(|piece| piece.file)
    }

    /// Memory, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.lengths.memory_bytes() + (self.pieces.capacity() * size_of::<Piece>()) as u64
    }

    /// Adds the next block.
    pub(crate) fn push(&mut self, extent: Extent) {
        let Extent { file, offset, len } = extent;
        let from = self.blocks();
        let follows = self.pieces.last().is_some_and(|piece| {
            let end = piece.offset + self.lengths.sum - self.lengths.before(piece.from as usize);
            piece.file == file && end == offset
        });
        if !follows {
            self.pieces.push(Piece { from, file, offset });
        }
        self.lengths.push(len);
    }

    /// Where the block at `index`, counted from the first, is.
    pub(crate) fn get(&self, index: u64) -> Option<Extent> {
        if index >= self.blocks() {
            return None;
        }
        let piece = self.pieces.partition_point(|piece| piece.from <= index);
        let piece = self.pieces[piece - 1];
        let before = |index: u64| self.lengths.before(index as usize);
        Some(Extent {
            file: piece.file,
            offset: piece.offset + before(index) - before(piece.from),
            len: self.lengths.get(index as usize),
        })
    }

    /// Encodes the extents, all in LEB128: the number of pieces, and of each its first block, file and
    /// offset; the number of blocks, and the length of each.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(3 * self.lengths.count + 16 * self.pieces.len() + 20);
        put_varint(&mut out, self.pieces.len() as u64);
        for piece in &self.pieces {
            for number in [piece.from, piece.file, piece.offset] {
                put_varint(&mut out, number);
            }
        }
        put_varint(&mut out, self.blocks());
        for index in 0..self.lengths.count {
            put_varint(&mut out, self.lengths.get(index).into());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let count = reader.count(3)?;
        let mut pieces: Vec<Piece> = Vec::with_capacity(count);
        for _ in 0..count {
            let piece = Piece {
                from: reader.varint()?,
                file: reader.varint()?,
                offset: reader.varint()?,
            };
            let is_next = match pieces.last() {
                None => piece.from == 0,
                Some(last) => last.from < piece.from && last.file <= piece.file,
            };
            // Sums of offsets and lengths stay below 64 bits.
            if !is_next || piece.offset > 1 << 62 || piece.file > 1 << 62 {
                return Err(reader.error("pieces of data out of order"));
            }
            pieces.push(piece);
        }
        let blocks = reader.count(1)? as u64;
        if blocks > BLOCKS_MAX || pieces.last().is_some_and(|last| last.from >= blocks) {
            return Err(reader.error("a piece of data without a block"));
        }
        if pieces.is_empty() && blocks > 0 {
            return Err(reader.error("blocks without data"));
        }
        let mut lengths = Lengths::default();
        for _ in 0..blocks {
            let length = u32::try_from(reader.varint()?);
            lengths.push(length.map_err(|_| reader.error("a block over 4 GiB"))?);
        }
        reader.finish()?;
        lengths.groups.shrink_to_fit();
        lengths.words.shrink_to_fit();
        Ok(Self { pieces, lengths })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_where_it_was_put() {
        for widths in [0..1u32, 1..33] {
            let (mut extents, mut expected) = (Extents::default(), Vec::new());
            let (mut file, mut offset) = (3, 4_096);
            for n in 0..1_000u64 {
                if n % 171 == 170 {
                    (file, offset) = (file + n % 2, offset + 1);
                }
                let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let width = widths.start + (random % u64::from(widths.end - widths.start)) as u32;
                let len = ((random >> 16) & ((1 << width) - 1)) as u32;
                let extent = Extent { file, offset, len };
                extents.push(extent);
                expected.push(extent);
                offset += u64::from(len);
            }
            let bytes = extents.encode();
            for extents in [extents, Extents::decode(&bytes).unwrap()] {
                for (index, extent) in (0..).zip(&expected) {
                    assert_eq!(extents.get(index), Some(*extent), "block {index}");
                }
                assert_eq!(extents.get(1_000), None);
                assert_eq!(extents.encode(), bytes);
            }
            assert!((0..bytes.len()).all(|end| Extents::decode(&bytes[..end]).is_err()));
        }
    }
}
