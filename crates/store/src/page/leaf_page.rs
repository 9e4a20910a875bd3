//! A validated page, and access to its content.

use super::{
    digest::{RawDigest, check_digests, read_digest},
    format::{
        CHECKED_FROM, FLAGS_AT, FORMAT, OWNER, PREFIX_AT, PageError, WIDE, page_len, seal,
        top_key_len, top_path_len,
    },
    run::{Entry, Run},
};
use cambium_primitives::{ACCOUNT_NIBBLES, DecodeError, Path, Reader, SLOT_NIBBLES, put_varint};
use std::{cmp::Ordering, ops::Range};
use xxhash_rust::xxh3::xxh3_64;

/// A validated page. Share it in an `Arc`.
#[derive(Debug)]
pub struct Page {
    pub(super) bytes: Box<[u8]>,
    pub(super) outermost: Run,
    leaves: u32,
    digests_at: u32,
    /// Offset and length of the owner's value.
    owner: Option<(u32, u32)>,
    /// Length of the prefix in nibbles. It is read from the bytes: small pages are many.
    prefix_len: u8,
}

impl Page {
    /// Parses and validates a page. Zeros may follow it in `bytes`.
    ///
    /// # Errors
    ///
    /// [`PageError::Checksum`] if the bytes are not those that were written, and
    /// [`PageError::Malformed`] if they are invalid in spite of a matching checksum.
    pub fn parse(bytes: impl Into<Box<[u8]>>) -> Result<Self, PageError> {
        let bytes = bytes.into();
        let len = page_len(&bytes).ok_or(PageError::Checksum)?;
        let sum = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        if sum != xxh3_64(&bytes[CHECKED_FROM..len]) || bytes[len..].iter().any(|&b| b != 0) {
            return Err(PageError::Checksum);
        }
        let page = Self::locate_parts(bytes, len)?;
        if page.outermost.check(&page.bytes, &page.prefix())? != page.leaves as usize {
            return Err(PageError::Malformed(DecodeError {
                what: "wrong number of leaves",
                offset: page.digests_at as usize,
            }));
        }
        let mut reader = Reader::new(&page.bytes[..len]);
        reader.take(page.digests_at as usize)?;
        check_digests(reader, &page.prefix())?;
        Ok(page)
    }

    /// Wraps the bytes of a builder, which need no validation.
    pub(super) fn from_builder(bytes: Box<[u8]>) -> Self {
        let len = bytes.len();
        Self::locate_parts(bytes, len).expect("a builder writes a page")
    }

    /// Locates the parts of a page of `len` bytes.
    fn locate_parts(bytes: Box<[u8]>, len: usize) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(&bytes[..len]);
        reader.take(CHECKED_FROM + 4)?;
        if reader.u8()? != FORMAT {
            return Err(reader.error("unknown page format"));
        }
        let flags = reader.u8()?;
        if flags & !(WIDE | OWNER) != 0 {
            return Err(reader.error("unknown page flags"));
        }
        let wide = flags & WIDE != 0;
        let prefix_len = usize::from(reader.u8()?);
        let packed = reader.take(prefix_len.div_ceil(2))?;
        Path::from_packed(packed, prefix_len).ok_or_else(|| reader.error("bad prefix"))?;
        let mut owner = None;
        if flags & OWNER != 0 {
            if prefix_len < ACCOUNT_NIBBLES {
                return Err(reader.error("an owner in a page above accounts"));
            }
            let len = reader.count(1)?;
            owner = Some((reader.offset() as u32, len as u32));
            reader.take(len)?;
        }
        let leaves = reader.count(1)? as u32;
        let outermost = Run::read(&mut reader, top_key_len(prefix_len), wide)?;
        let digests_at = reader.offset() as u32;
        Ok(Self {
            bytes,
            outermost,
            leaves,
            digests_at,
            owner,
            prefix_len: prefix_len as u8,
        })
    }

    /// Returns the value of the owner's leaf: the account to which the slots in this page belong.
    /// `None` if it was not stored: see [`PageBuilder::owner`](crate::PageBuilder::owner).
    pub fn owner(&self) -> Option<&[u8]> {
        let (start, len) = self.owner?;
        Some(&self.bytes[start as usize..][..len as usize])
    }

    /// Returns a copy of the page with `value` as the owner's value.
    ///
    /// # Panics
    ///
    /// If the page's prefix is shorter than an account's path.
    pub fn with_owner(&self, value: &[u8]) -> Self {
        assert!(
            self.prefix_len() >= ACCOUNT_NIBBLES,
            "owner of the page of {}, which is above accounts",
            self.prefix()
        );
        let bytes = self.as_bytes();
        let prefix_end = PREFIX_AT + self.prefix_len().div_ceil(2);
        let rest = match self.owner {
            Some((start, len)) => (start + len) as usize,
            None => prefix_end,
        };
        let mut page = bytes[..prefix_end].to_vec();
        page[FLAGS_AT] |= OWNER;
        put_varint(&mut page, value.len() as u64);
        page.extend_from_slice(value);
        page.extend_from_slice(&bytes[rest..]);
        seal(&mut page);
        Self::from_builder(page.into())
    }

    /// Returns the encoded page, without trailing zeros.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..page_len(&self.bytes).expect("checked when parsed")]
    }

    /// Path prefix shared by all leaves of the page.
    pub fn prefix(&self) -> Path {
        let packed = &self.bytes[PREFIX_AT..][..self.prefix_len().div_ceil(2)];
        Path::from_packed(packed, self.prefix_len()).expect("a prefix that was read before")
    }

    /// Length of the prefix in nibbles.
    const fn prefix_len(&self) -> usize {
        self.prefix_len as usize
    }

    /// Returns the value of the leaf at `path`.
    #[inline]
    pub fn get(&self, path: &Path) -> Option<&[u8]> {
        if !path.starts_with(&self.prefix()) {
            return None;
        }
        let (shared, packed) = (self.prefix_len() / 2, path.packed());
        let key_end = self.entry_bytes();
        let entry = self
            .outermost
            .find(&self.bytes, packed.get(shared..key_end)?)?;
        match path.len() {
            ACCOUNT_NIBBLES => entry.value(&self.bytes),
            SLOT_NIBBLES if key_end == 64 => entry.value(&self.bytes),
            SLOT_NIBBLES => {
                let slots = entry.slots(&self.bytes, self.outermost.wide())?;
                slots.find(&self.bytes, &packed[32..])?.value(&self.bytes)
            }
            _ => None,
        }
    }

    /// Returns all leaves in the order of their paths.
    pub fn leaves(&self) -> impl Iterator<Item = (Path, &[u8])> + '_ {
        self.leaves_of(0..self.outermost.len())
    }

    /// Returns the leaves of some outermost entries, in the order of their paths: accounts with
    /// their slots in this page, or slots in a page of slots.
    pub fn leaves_of(&self, entries: Range<usize>) -> impl Iterator<Item = (Path, &[u8])> + '_ {
        let shared = self.prefix_len() / 2;
        let mut packed = [0; 64];
        packed[..shared].copy_from_slice(&self.bytes[PREFIX_AT..][..shared]);
        Leaves {
            page: self,
            packed,
            entries,
            slots: None,
        }
    }

    /// Returns the number of outermost entries: accounts, or slots in a page of slots.
    pub const fn entries(&self) -> usize {
        self.outermost.len()
    }

    /// Returns the path of an outermost entry.
    pub fn entry_path(&self, at: usize) -> Path {
        let (shared, end) = (self.prefix_len() / 2, self.entry_bytes());
        let mut packed = [0; 64];
        packed[..shared].copy_from_slice(&self.bytes[PREFIX_AT..][..shared]);
        let entry = self.outermost.entry(&self.bytes, at);
        entry.key_to(&self.bytes, &mut packed[shared..end]);
        path_of(&packed[..end])
    }

    /// Returns one nibble of the path of an outermost entry. `nibble` must be below the prefix.
    #[inline]
    pub fn entry_nibble(&self, at: usize, nibble: usize) -> u8 {
        let byte = self
            .outermost
            .entry(&self.bytes, at)
            .key_byte(&self.bytes, nibble / 2 - self.prefix_len() / 2);
        if nibble.is_multiple_of(2) {
            byte >> 4
        } else {
            byte & 0x0f
        }
    }

    /// Returns the range of outermost entries under `path`, or the account to which `path` belongs.
    /// `path` must start with the page's prefix.
    pub fn entries_under(&self, path: &Path) -> Range<usize> {
        let end = path.len().min(self.entry_bytes() * 2);
        let compare = |at: usize| {
            let mut nibbles = self.prefix_len()..end;
            let first = nibbles.find_map(|nibble| {
                let order = self.entry_nibble(at, nibble).cmp(&path.nibble(nibble));
                order.is_ne().then_some(order)
            });
            first.unwrap_or(Ordering::Equal)
        };
        let find = |from: usize, until: &dyn Fn(Ordering) -> bool| {
            let (mut low, mut high) = (from, self.outermost.len());
            while low < high {
                let middle = low + (high - low) / 2;
                if until(compare(middle)) {
                    high = middle
                } else {
                    low = middle + 1
                }
            }
            low
        };
        let start = find(0, &Ordering::is_ge);
        start..find(start, &Ordering::is_gt)
    }

    /// Length of the path of an outermost entry in bytes.
    const fn entry_bytes(&self) -> usize {
        top_path_len(self.prefix_len())
    }

    /// Returns the digests of the nodes at `depth`, each with the last nibble of its path. Only
    /// useful if all nodes at that depth share the preceding nibbles.
    pub fn digests_at(&self, depth: usize) -> impl Iterator<Item = (u8, &[u8])> + '_ {
        let mut reader = self.digest_reader();
        let count = reader.varint().expect("checked when parsed");
        (0..count).filter_map(move |_| {
            let raw = RawDigest::read(&mut reader).expect("checked when parsed");
            let last = usize::from(raw.added).checked_sub(1)?;
            let shift = if last.is_multiple_of(2) { 4 } else { 0 };
            let nibble = raw.tail[last / 2] >> shift & 0x0f;
            (usize::from(raw.shared) + last + 1 == depth).then_some((nibble, raw.digest))
        })
    }

    fn digest_reader(&self) -> Reader<'_> {
        let len = page_len(&self.bytes).expect("checked when parsed");
        Reader::new(&self.bytes[self.digests_at as usize..len])
    }

    /// Returns all digests in the order of their paths.
    pub fn digests(&self) -> impl Iterator<Item = (Path, &[u8])> + '_ {
        let mut reader = self.digest_reader();
        let count = reader.varint().expect("checked when parsed");
        let mut path = self.prefix();
        (0..count).map(move |_| {
            let digest;
            (path, digest) = read_digest(&mut reader, &path).expect("checked when parsed");
            (path, digest)
        })
    }

    /// Returns the number of leaves.
    pub const fn len(&self) -> usize {
        self.leaves as usize
    }

    /// Returns whether the page has no leaf.
    pub const fn is_empty(&self) -> bool {
        self.leaves == 0
    }

    /// Returns the memory used by the page in bytes.
    pub const fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }
}

struct Leaves<'a> {
    page: &'a Page,
    /// Packed path of the current leaf. Its first half stays the same for all slots of an account.
    packed: [u8; 64],
    entries: Range<usize>,
    slots: Option<(Run, usize)>,
}

impl<'a> Iterator for Leaves<'a> {
    type Item = (Path, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let Page {
            bytes, outermost, ..
        } = self.page;
        let (start, end) = (self.page.prefix_len() / 2, self.page.entry_bytes());
        loop {
            if let Some((run, at)) = &mut self.slots {
                if *at < run.len() {
                    let entry = run.entry(bytes, *at);
                    *at += 1;
                    entry.key_to(bytes, &mut self.packed[32..]);
                    return Some((path_of(&self.packed), entry.value(bytes)?));
                }
                self.slots = None;
            }
            let entry: Entry = outermost.entry(bytes, self.entries.next()?);
            entry.key_to(bytes, &mut self.packed[start..end]);
            self.slots = entry.slots(bytes, outermost.wide()).map(|run| (run, 0));
            if let Some(value) = entry.value(bytes) {
                return Some((path_of(&self.packed[..end]), value));
            }
        }
    }
}

fn path_of(packed: &[u8]) -> Path {
    Path::from_packed(packed, packed.len() * 2).expect("32 or 64 bytes")
}
