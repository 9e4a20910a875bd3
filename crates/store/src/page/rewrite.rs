//! Writing a page again with a few leaves changed: what stays is copied as it lies.

use super::{
    digest::put_digest,
    format::{DIGEST_BYTES_MAX, HEAD_BYTES, NARROW_DATA_BYTES_MAX, put_head, seal, top_key_len},
    leaf_page::Page,
    run::head_of,
};
use cambium_primitives::{Path, put_varint};
use std::ops::Range;

/// Writes pages that take the place of others under the same prefix. Uses its memory again.
///
/// A page written so is the same to the byte as one that
/// [`PageBuilder`](crate::PageBuilder) writes.
#[derive(Debug, Default)]
pub struct PageRewriter {
    prefix: Path,
    owner: Option<Vec<u8>>,
    heads: Vec<u8>,
    offsets: Vec<u8>,
    data: Vec<u8>,
    digests: Vec<u8>,
    digest_count: u64,
    digest_before: Path,
    entries: usize,
    leaves: usize,
    out: Vec<u8>,
}

impl PageRewriter {
    /// Begins the page that takes the place of `old`, whose owner it keeps.
    pub fn begin(&mut self, old: &Page) {
        let prefix = old.prefix();
        self.owner = old.owner().map(<[u8]>::to_vec);
        for part in [
            &mut self.heads,
            &mut self.offsets,
            &mut self.data,
            &mut self.digests,
        ] {
            part.clear();
        }
        (self.prefix, self.digest_before) = (*prefix, *prefix);
        (self.digest_count, self.entries, self.leaves) = (0, 0, 0);
    }

    /// Copies entries of a page under the same prefix (see [`Page::entries`]), which come after
    /// what was added before. Returns how many leaves they have; `None`, with nothing copied, if
    /// they can't be copied: of a page over 32 KiB, or too many.
    pub fn copy(&mut self, page: &Page, entries: Range<usize>) -> Option<usize> {
        debug_assert_eq!(*page.prefix(), self.prefix, "a page of another prefix");
        let (run, bytes) = (&page.top, &page.bytes);
        let last = entries.end.checked_sub(1).filter(|_| !entries.is_empty());
        let Some(last) = last else { return Some(0) };
        let (first, end) = (
            run.entry(bytes, entries.start),
            run.entry(bytes, last).end(),
        );
        let data = &bytes[first.start()..end];
        if run.wide() || self.data.len() + data.len() > NARROW_DATA_BYTES_MAX {
            return None;
        }
        let mut leaves = 0;
        for at in entries.clone() {
            let entry = run.entry(bytes, at);
            let offset = (self.data.len() + entry.start() - first.start()) as u16;
            let slots = entry.slots(bytes, false);
            let flag = u16::from(slots.is_some()) << 15;
            self.offsets.extend((offset | flag).to_le_bytes());
            leaves += match slots {
                Some(slots) => slots.len() + usize::from(entry.value(bytes).is_some()),
                None => 1,
            };
        }
        self.heads
            .extend_from_slice(run.heads(bytes, entries.clone()));
        self.data.extend_from_slice(data);
        self.entries += entries.len();
        self.leaves += leaves;
        Some(leaves)
    }

    /// Adds a leaf that comes after what was added before: an account's that has no slots in the
    /// page, by the 32 bytes of its path; or, in a page of slots, a slot's by its 64. `None` if the
    /// page has become too large.
    pub fn leaf(&mut self, path: &[u8], value: &[u8]) -> Option<()> {
        let key = &path[self.prefix.len() / 2..];
        debug_assert_eq!(key.len(), top_key_len(self.prefix.len()), "a path's bytes");
        let rest = &key[key.len().min(HEAD_BYTES)..];
        let offset = self.data.len();
        if offset + rest.len() + value.len() > NARROW_DATA_BYTES_MAX {
            return None;
        }
        self.heads.extend(head_of(key).to_le_bytes());
        self.offsets.extend((offset as u16).to_le_bytes());
        self.data.extend_from_slice(rest);
        self.data.extend_from_slice(value);
        self.entries += 1;
        self.leaves += 1;
        Some(())
    }

    /// Adds the cached digest of the subtrie at `path`, which comes after the one before. Panics
    /// if it is over 32 bytes.
    pub fn digest(&mut self, path: &Path, digest: &[u8]) {
        assert!(digest.len() <= DIGEST_BYTES_MAX, "a digest over 32 bytes");
        debug_assert!(self.digest_count == 0 || self.digest_before < *path);
        put_digest(&mut self.digests, &self.digest_before, path, digest);
        self.digest_before = *path;
        self.digest_count += 1;
    }

    /// Entries added so far.
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// Bytes of the leaves and digests added so far.
    pub const fn bytes(&self) -> usize {
        self.heads.len() + self.offsets.len() + self.data.len() + self.digests.len()
    }

    /// The page.
    pub fn finish(&mut self) -> Page {
        let out = &mut self.out;
        out.clear();
        let owner = self.owner.as_deref();
        put_head(out, false, &self.prefix, owner, self.leaves);
        put_varint(out, self.entries as u64);
        put_varint(out, self.data.len() as u64);
        out.extend_from_slice(&self.heads);
        out.extend_from_slice(&self.offsets);
        out.extend_from_slice(&self.data);
        put_varint(out, self.digest_count);
        out.extend_from_slice(&self.digests);
        seal(out);
        Page::of_builder(out.as_slice().into())
    }
}
