//! Building a page from its leaves.

use super::{
    digest::put_digest,
    format::{DIGEST_BYTES_MAX, HEAD_BYTES, NARROW_DATA_BYTES_MAX, put_head, seal, top_key_len},
    leaf_page::Page,
    run::head_of,
};
use cambium_primitives::{ACCOUNT_NIBBLES, Path, SLOT_NIBBLES, put_varint};
use std::{borrow::Cow, ops::Range};

/// Builder of one page.
#[derive(Debug)]
pub struct PageBuilder {
    prefix: Path,
    entries: Vec<Pending>,
    slots: Vec<([u8; 32], Range<usize>)>,
    values: Vec<u8>,
    digests: Vec<(Path, Vec<u8>)>,
    owner: Option<Vec<u8>>,
    last: Option<Path>,
    leaves: usize,
}

/// An outermost entry: an account, or a slot in a page of slots.
#[derive(Debug)]
struct Pending {
    path: Path,
    value: Option<Range<usize>>,
    slots: Range<usize>,
}

/// An entry to be written.
struct Ready<'a> {
    key: &'a [u8],
    has_slots: bool,
    /// Everything after the key.
    body: Cow<'a, [u8]>,
}

impl PageBuilder {
    /// Creates a builder for the page of leaves under `prefix`.
    pub fn new(prefix: &Path) -> Self {
        Self {
            prefix: *prefix,
            entries: Vec::new(),
            slots: Vec::new(),
            values: Vec::new(),
            digests: Vec::new(),
            owner: None,
            last: None,
            leaves: 0,
        }
    }

    /// Adds a leaf: an account's (64 nibbles) or a slot's (128 nibbles). Leaves are added in the
    /// order of their paths. The account of a slot need not be in the page.
    ///
    /// # Panics
    ///
    /// If the length of `path` is neither, or if it is not under the prefix or not after the
    /// previous leaf.
    pub fn leaf(&mut self, path: &Path, value: &[u8]) -> &mut Self {
        assert!(
            matches!(path.len(), ACCOUNT_NIBBLES | SLOT_NIBBLES),
            "leaf at {path}"
        );
        assert!(
            path.starts_with(&self.prefix),
            "leaf {path} in the page of {}",
            self.prefix
        );
        assert!(
            self.last.is_none_or(|last| last < *path),
            "leaf {path} out of order"
        );
        self.last = Some(*path);
        self.leaves += 1;
        let start = self.values.len();
        self.values.extend_from_slice(value);
        let value = start..self.values.len();
        let slots = self.slots.len()..self.slots.len();
        if path.len() == ACCOUNT_NIBBLES || self.prefix.len() > ACCOUNT_NIBBLES {
            self.entries.push(Pending {
                path: *path,
                value: Some(value),
                slots,
            });
            return self;
        }
        let account = path.prefix(ACCOUNT_NIBBLES);
        if self
            .entries
            .last()
            .is_none_or(|entry| entry.path != account)
        {
            self.entries.push(Pending {
                path: account,
                value: None,
                slots,
            });
        }
        self.slots
            .push((path.slot_part().expect("128 nibbles").0, value));
        self.entries.last_mut().expect("pushed above").slots.end += 1;
        self
    }

    /// Adds the cached reference of the node at `path`. Digests may be added in any order, but only
    /// one for each path.
    ///
    /// # Panics
    ///
    /// If `digest` is longer than 32 bytes, or `path` is not under the prefix.
    pub fn digest(&mut self, path: &Path, digest: &[u8]) -> &mut Self {
        assert!(
            digest.len() <= DIGEST_BYTES_MAX,
            "digest of {} bytes",
            digest.len()
        );
        assert!(
            path.starts_with(&self.prefix),
            "digest {path} in the page of {}",
            self.prefix
        );
        self.digests.push((*path, digest.to_vec()));
        self
    }

    /// Stores the value of the account's leaf in a page of its slots, in addition to the page's
    /// leaves. The leaf of an account whose slots fill pages of their own is in the index. The
    /// first of these pages has a copy, so that the pages alone contain the whole state.
    ///
    /// # Panics
    ///
    /// If the page's prefix is shorter than an account's path.
    pub fn owner(&mut self, value: &[u8]) -> &mut Self {
        assert!(
            self.prefix.len() >= ACCOUNT_NIBBLES,
            "owner of the page of {}, which is above accounts",
            self.prefix
        );
        self.owner = Some(value.to_vec());
        self
    }

    /// Returns the number of leaves added so far.
    pub const fn len(&self) -> usize {
        self.leaves
    }

    /// Returns whether no leaf was added yet.
    pub const fn is_empty(&self) -> bool {
        self.leaves == 0
    }

    /// Builds the page as a [`Page`] that can be read at once.
    ///
    /// # Panics
    ///
    /// As [`Self::finish`].
    pub fn build(&self) -> Page {
        Page::from_builder(self.finish().into())
    }

    /// Encodes the page. If it exceeds [`PAGE_BYTES_MAX`](crate::PAGE_BYTES_MAX), appending it to
    /// the segments fails.
    ///
    /// # Panics
    ///
    /// If two digests were added for one path.
    pub fn finish(&self) -> Vec<u8> {
        let (run, wide) = match self.run(false) {
            Some(run) => (run, false),
            None => (self.run(true).expect("wide offsets have no limit"), true),
        };
        let mut page = Vec::new();
        let owner = self.owner.as_deref();
        put_head(&mut page, wide, &self.prefix, owner, self.leaves);
        page.extend(run);
        self.put_digests(&mut page);
        seal(&mut page);
        page
    }

    /// Encodes the outermost run. Returns `None` if it is too long for narrow offsets.
    fn run(&self, wide: bool) -> Option<Vec<u8>> {
        let key_len = top_key_len(self.prefix.len());
        let mut ready = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let packed = entry.path.packed();
            let key = &packed[packed.len() - key_len..];
            let value = entry.value.clone().map(|range| &self.values[range]);
            let has_slots = !entry.slots.is_empty();
            let mut body = Cow::Borrowed(value.unwrap_or_default());
            if has_slots {
                let mut whole = Vec::new();
                put_varint(&mut whole, value.map_or(0, |value| value.len() as u64 + 1));
                whole.extend_from_slice(&body);
                let slots = self.slots[entry.slots.clone()]
                    .iter()
                    .map(|(key, range)| Ready {
                        key,
                        has_slots: false,
                        body: Cow::Borrowed(&self.values[range.clone()]),
                    });
                whole.extend(put_run(&slots.collect::<Vec<_>>(), wide)?);
                body = Cow::Owned(whole);
            }
            ready.push(Ready {
                key,
                has_slots,
                body,
            });
        }
        put_run(&ready, wide)
    }

    fn put_digests(&self, out: &mut Vec<u8>) {
        let mut digests: Vec<&(Path, Vec<u8>)> = self.digests.iter().collect();
        digests.sort_by_key(|(path, _)| *path);
        put_varint(out, digests.len() as u64);
        let mut before = self.prefix;
        for (at, (path, digest)) in digests.into_iter().enumerate() {
            assert!(at == 0 || before < *path, "two digests of {path}");
            put_digest(out, &before, path, digest);
            before = *path;
        }
    }
}

/// Encodes a run. Returns `None` if it is too long for narrow offsets.
fn put_run(entries: &[Ready<'_>], wide: bool) -> Option<Vec<u8>> {
    let rest = |entry: &Ready<'_>| entry.key.len().saturating_sub(HEAD_BYTES);
    let data_len: usize = entries
        .iter()
        .map(|entry| rest(entry) + entry.body.len())
        .sum();
    if !wide && data_len > NARROW_DATA_BYTES_MAX {
        return None;
    }
    let mut out = Vec::with_capacity(data_len + entries.len() * 6 + 8);
    put_varint(&mut out, entries.len() as u64);
    put_varint(&mut out, data_len as u64);
    for entry in entries {
        out.extend(head_of(entry.key).to_le_bytes());
    }
    let mut offset = 0;
    for entry in entries {
        if wide {
            out.extend((offset as u32 | u32::from(entry.has_slots) << 31).to_le_bytes());
        } else {
            out.extend((offset as u16 | u16::from(entry.has_slots) << 15).to_le_bytes());
        }
        offset += rest(entry) + entry.body.len();
    }
    for entry in entries {
        out.extend_from_slice(&entry.key[entry.key.len() - rest(entry)..]);
        out.extend_from_slice(&entry.body);
    }
    Some(out)
}
