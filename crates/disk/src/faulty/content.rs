//! The bytes of a file in blocks that copies share until one of them changes: a copy costs a pointer for each block, and
//! a block of zeros costs nothing, however long the file is.

use crate::BLOCK_BYTES;
use std::{iter, ops::Range, sync::Arc};

type Block = [u8; BLOCK_BYTES];

static ZEROS: Block = [0; BLOCK_BYTES];

/// Bytes of one file. Unwritten ranges read as zeros.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    len: usize,
    /// As many as `len` needs. `None` is a block of zeros, and bytes after `len` are zeros.
    blocks: Vec<Option<Arc<Block>>>,
}

impl Content {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Fills `buf` from `offset` on. Returns whether all of that range is within the file.
    pub(super) fn read(&self, buf: &mut [u8], offset: usize) -> bool {
        let end = offset.checked_add(buf.len());
        if end.is_none_or(|end| end > self.len) {
            return false;
        }
        for part in parts(offset, buf.len()) {
            let block = self.block(part.block);
            buf[part.of_range].copy_from_slice(&block[part.of_block]);
        }
        true
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Writes bytes, after zeros if the file is shorter than `offset`.
    pub(super) fn put(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.extend(offset + bytes.len());
        for part in parts(offset, bytes.len()) {
            let new = &bytes[part.of_range];
            match <&Block>::try_from(new) {
                Ok(whole) => self.blocks[part.block] = Some(Arc::new(*whole)),
                Err(_) => self.change(part.block)[part.of_block].copy_from_slice(new),
            }
        }
    }

    /// Zeros the part of a range that is within the file.
    pub(super) fn clear(&mut self, range: Range<usize>) {
        let len = range.end.min(self.len).saturating_sub(range.start);
        for part in parts(range.start, len) {
            if part.of_block.len() == BLOCK_BYTES {
                self.blocks[part.block] = None;
            } else if self.blocks[part.block].is_some() {
                self.change(part.block)[part.of_block].fill(0);
            }
        }
    }

    /// Makes the file at least as long, with zeros.
    pub(super) fn extend(&mut self, len: usize) {
        self.resize(len.max(self.len));
    }

    /// Makes the file as long: cut off, or longer by zeros.
    pub(super) fn resize(&mut self, len: usize) {
        self.clear(len..self.len);
        self.blocks.resize(len.div_ceil(BLOCK_BYTES), None);
        self.len = len;
    }

    /// Changes the bits of `mask` in the byte at `offset`, if there is one.
    pub(super) fn flip(&mut self, offset: usize, mask: u8) {
        if offset < self.len {
            self.change(offset / BLOCK_BYTES)[offset % BLOCK_BYTES] ^= mask;
        }
    }

    /// Returns whether a block is whole and has only zeros.
    pub(super) fn is_zero(&self, block: usize) -> bool {
        (block + 1) * BLOCK_BYTES <= self.len && *self.block(block) == ZEROS
    }

    fn block(&self, block: usize) -> &Block {
        self.blocks[block].as_deref().unwrap_or(&ZEROS)
    }

    fn change(&mut self, block: usize) -> &mut Block {
        Arc::make_mut(self.blocks[block].get_or_insert_with(|| Arc::new(ZEROS)))
    }
}

/// The part of a range that lies in one block.
struct Part {
    block: usize,
    of_block: Range<usize>,
    of_range: Range<usize>,
}

fn parts(offset: usize, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    iter::from_fn(move || {
        let (block, start) = ((offset + done) / BLOCK_BYTES, (offset + done) % BLOCK_BYTES);
        let bytes = (BLOCK_BYTES - start).min(len - done);
        let of_range = done..done + bytes;
        done += bytes;
        (bytes > 0).then_some(Part {
            block,
            of_block: start..start + bytes,
            of_range,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::chance::Random;

    /// Random changes of two contents that share blocks, against plain vectors.
    #[test]
    fn contents_are_what_plain_vectors_are() {
        let mut random = Random(7);
        let mut models = [Vec::<u8>::new(), Vec::new()];
        let mut contents = [Content::default(), Content::default()];
        for step in 0..20_000_u32 {
            let which = random.below(2) as usize;
            let (model, content) = (&mut models[which], &mut contents[which]);
            let place = |random: &mut Random| random.below(5 * BLOCK_BYTES as u64) as usize;
            let (offset, mut len) = (place(&mut random), place(&mut random));
            match random.below(8) {
                0 => {
                    model.resize(len, 0);
                    content.resize(len);
                }
                1 => {
                    model.resize(len.max(model.len()), 0);
                    content.extend(len);
                }
                2 => {
                    let range = offset.min(model.len())..(offset + len).min(model.len());
                    model[range].fill(0);
                    content.clear(offset..offset + len);
                }
                3 if !model.is_empty() => {
                    let at = offset % model.len();
                    model[at] ^= 4;
                    content.flip(at, 4);
                }
                4 => {
                    models[1 - which] = models[which].clone();
                    contents[1 - which] = contents[which].clone();
                }
                _ => {
                    if random.below(2) == 0 {
                        len = len.next_multiple_of(BLOCK_BYTES);
                    }
                    let bytes = vec![step as u8; len];
                    if len > 0 {
                        model.resize(model.len().max(offset + len), 0);
                        model[offset..offset + len].copy_from_slice(&bytes);
                    }
                    content.put(offset, &bytes);
                }
            }
            for (model, content) in models.iter().zip(&contents) {
                assert_eq!(content.len(), model.len());
                assert!(content.to_vec() == *model, "step {step}");
                let whole = model.chunks_exact(BLOCK_BYTES);
                for (block, bytes) in whole.enumerate() {
                    assert_eq!(content.is_zero(block), bytes == ZEROS);
                }
                let mut buf = vec![1; len];
                let is_within = offset + len <= model.len();
                assert_eq!(content.read(&mut buf, offset), is_within);
                assert!(!is_within || buf == model[offset..offset + len]);
            }
        }
        let mut buf = [0; 2];
        assert!(!contents[0].read(&mut buf, usize::MAX));
        assert!(!contents[0].is_zero(1_000));
    }
}
