//! Rewriting a page in which a few leaves changed. Unchanged entries are copied as they are.

use super::{
    digest::put_digest,
    format::{DIGEST_BYTES_MAX, HEAD_BYTES, NARROW_DATA_BYTES_MAX, put_head, seal, top_key_len},
    leaf_page::Page,
    run::head_of,
};
use cambium_primitives::{Path, put_varint};
use std::ops::Range;

/// Writer of pages that replace others with the same prefix. It reuses its buffers for the next
/// page.
///
/// The result is identical to a page from [`PageBuilder`](crate::PageBuilder), byte for byte.
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
    /// Begins the replacement of `old`, and keeps its owner.
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
        (self.prefix, self.digest_before) = (prefix, prefix);
        (self.digest_count, self.entries, self.leaves) = (0, 0, 0);
    }

    /// Copies outermost entries of a page with the same prefix (see [`Page::entries`]). They must
    /// follow everything added before. Returns the number of leaves copied. Returns `None`, and
    /// copies nothing, if `page` has wide offsets (over 32 KiB) or the new page would need them.
    pub fn copy(&mut self, page: &Page, entries: Range<usize>) -> Option<usize> {
        debug_assert_eq!(page.prefix(), self.prefix, "a page of another prefix");
        let (run, bytes) = (&page.outermost, &page.bytes);
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

    /// Adds a leaf after everything added before: an account without slots in the page, by the 32
    /// bytes of its path, or a slot in a page of slots, by the 64 bytes of its path. Returns `None`
    /// if the page would become too large.
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

    /// Adds the cached reference of the node at `path`, after all digests added before.
    ///
    /// # Panics
    ///
    /// If `digest` is longer than 32 bytes.
    pub fn digest(&mut self, path: &Path, digest: &[u8]) {
        assert!(digest.len() <= DIGEST_BYTES_MAX, "digest over 32 bytes");
        debug_assert!(self.digest_count == 0 || self.digest_before < *path);
        put_digest(&mut self.digests, &self.digest_before, path, digest);
        self.digest_before = *path;
        self.digest_count += 1;
    }

    /// Returns the number of outermost entries added so far.
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the size of leaves and digests added so far, in bytes.
    pub const fn bytes(&self) -> usize {
        self.heads.len() + self.offsets.len() + self.data.len() + self.digests.len()
    }

    /// Finishes the page.
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
        Page::from_builder(out.as_slice().into())
    }
}
