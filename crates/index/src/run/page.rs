//! Pages of sorted entries.
//!
//! ```text
//! OFFSET  SIZE    MEANING
//! 0       8       xxh3-64 of the rest, little-endian, with a seed from the run's identity and the page's number
//! 8       2       number of entries, little-endian
//! 10              entries, and of each in LEB128:
//!         varint  key, less that of the entry before in the page
//!         varint  block, less that of the entry before if the key is the same, else less the run's first
//!         varint  place
//! then            zeros
//! ```

use crate::entry::Entry;
use cambium_primitives::{DecodeError, Reader, put_varint};
use cambium_runs::{PAGE_BYTES, page_sum};

const HEAD_BYTES: usize = 10;
/// Largest size of an encoded entry.
const ENTRY_BYTES_MAX: usize = 10 + 5 + 5;

/// A page that is being filled.
pub(crate) struct PageBuilder {
    bytes: Vec<u8>,
    count: u16,
    first_block: u32,
    last: Entry,
}

impl PageBuilder {
    /// An empty page of a run whose first block is `first_block`.
    pub(crate) fn new(first_block: u32) -> Self {
        Self {
            bytes: vec![0; HEAD_BYTES],
            count: 0,
            first_block,
            last: Entry {
                key: 0,
                block: 0,
                place: 0,
            },
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The key of the last entry.
    pub(crate) const fn last_key(&self) -> u64 {
        self.last.key
    }

    /// Whether any further entry fits.
    pub(crate) const fn has_room(&self) -> bool {
        self.bytes.len() + ENTRY_BYTES_MAX <= PAGE_BYTES
    }

    /// Adds an entry, which comes after those before it.
    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert!(self.has_room() && (self.is_empty() || self.last < entry));
        let is_first = self.is_empty();
        let before = match !is_first && self.last.key == entry.key {
            true => self.last.block,
            false => self.first_block,
        };
        put_varint(
            &mut self.bytes,
            entry.key - if is_first { 0 } else { self.last.key },
        );
        put_varint(&mut self.bytes, u64::from(entry.block - before));
        put_varint(&mut self.bytes, entry.place.into());
        self.count += 1;
        self.last = entry;
    }

    /// Appends the page to `out`, and begins the next one.
    pub(crate) fn finish(&mut self, identity: u64, page: u64, out: &mut Vec<u8>) {
        self.bytes[8..HEAD_BYTES].copy_from_slice(&self.count.to_le_bytes());
        self.bytes.resize(PAGE_BYTES, 0);
        let sum = page_sum(&self.bytes[8..], identity, page);
        self.bytes[..8].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&self.bytes);
        self.bytes.clear();
        self.bytes.resize(HEAD_BYTES, 0);
        self.count = 0;
    }
}

/// Decodes a page into `out`, which is cleared before.
///
/// # Errors
///
/// If its checksum does not match, or its entries are not sorted.
pub(crate) fn decode_page(
    bytes: &[u8],
    identity: u64,
    page: u64,
    first_block: u32,
    out: &mut Vec<Entry>,
) -> Result<(), DecodeError> {
    out.clear();
    let mut reader = Reader::new(bytes);
    let sum = reader.u64()?;
    if page_sum(&bytes[8..], identity, page) != sum {
        return Err(reader.error("the checksum of a page does not match"));
    }
    let count = usize::from(reader.u16()?);
    out.reserve(count);
    for index in 0..count {
        let last: Option<Entry> = out.last().copied();
        let wrong = |what| Err(Reader::new(&bytes[..0]).error(what));
        let delta = reader.varint()?;
        let Some(key) = last.map_or(0, |last| last.key).checked_add(delta) else {
            return wrong("a key over 64 bits");
        };
        let before = match last {
            Some(last) if last.key == key => last.block,
            _ => first_block,
        };
        let block = u32::try_from(reader.varint()?).ok();
        let block = block.and_then(|block| before.checked_add(block));
        let place = u32::try_from(reader.varint()?);
        let (Some(block), Ok(place)) = (block, place) else {
            return wrong("a block or a place over 32 bits");
        };
        let entry = Entry { key, block, place };
        if index > 0 && last >= Some(entry) {
            return wrong("entries out of order");
        }
        out.push(entry);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_survive_and_every_changed_byte_is_found() {
        let mut entries: Vec<_> = (0..2_000u64)
            .map(|n| Entry {
                key: (n / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                block: 7 + (n % 3) as u32 * 1_000,
                place: (n % 5) as u32 * 70_000,
            })
            .collect();
        entries.push(Entry {
            key: u64::MAX,
            block: u32::MAX,
            place: u32::MAX,
        });
        entries.sort_unstable();
        let (mut page, mut out) = (PageBuilder::new(7), Vec::new());
        let mut pages = 0;
        for entry in &entries {
            if !page.has_room() {
                page.finish(5, pages, &mut out);
                pages += 1;
            }
            page.push(*entry);
        }
        page.finish(5, pages, &mut out);
        let (mut read, mut some) = (Vec::new(), Vec::new());
        for (number, bytes) in (0..).zip(out.chunks(PAGE_BYTES)) {
            decode_page(bytes, 5, number, 7, &mut some).unwrap();
            read.extend_from_slice(&some);
            assert!(decode_page(bytes, 5, number + 1, 7, &mut some).is_err());
            assert!(decode_page(bytes, 6, number, 7, &mut some).is_err());
        }
        assert_eq!(read, entries);
        for at in 0..PAGE_BYTES {
            let mut bytes = out[..PAGE_BYTES].to_vec();
            bytes[at] ^= 0x20;
            assert!(
                decode_page(&bytes, 5, 0, 7, &mut some).is_err(),
                "byte {at}"
            );
        }
    }
}
