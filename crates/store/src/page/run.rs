//! Runs: sorted keys with values, searched by the first two bytes of the keys.

use super::format::HEAD_BYTES;
use cambium_primitives::{DecodeError, Path, Reader};
use std::{cmp::Ordering, ops::Range};

/// Location of a run in a page's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    count: u32,
    heads: u32,
    offsets: u32,
    data: u32,
    end: u32,
    key_len: u8,
    wide: bool,
}

/// Location of an entry in a page's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    head: u16,
    /// Start of the rest of the key, after its first two bytes.
    start: u32,
    end: u32,
    key_len: u8,
    has_slots: bool,
}

/// Number of key bytes after the head.
const fn rest_len(key_len: usize) -> usize {
    key_len.saturating_sub(HEAD_BYTES)
}

/// Returns the first two bytes of a key as a number with the same order.
pub(super) fn head_of(key: &[u8]) -> u16 {
    match key {
        [a, b, ..] => u16::from_be_bytes([*a, *b]),
        [a] => u16::from_be_bytes([*a, 0]),
        [] => 0,
    }
}

impl Run {
    /// Reads the lengths of a run, and skips its content.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        key_len: usize,
        wide: bool,
    ) -> Result<Self, DecodeError> {
        let offset_bytes = if wide { 4 } else { 2 };
        let count = reader.count(HEAD_BYTES + offset_bytes)?;
        let data_len = reader.count(1)?;
        let heads = reader.offset();
        let offsets = heads + HEAD_BYTES * count;
        let data = offsets + offset_bytes * count;
        reader.take(data - heads + data_len)?;
        Ok(Self {
            count: count as u32,
            heads: heads as u32,
            offsets: offsets as u32,
            data: data as u32,
            end: reader.offset() as u32,
            key_len: key_len as u8,
            wide,
        })
    }

    pub(super) const fn len(&self) -> usize {
        self.count as usize
    }

    pub(super) const fn wide(&self) -> bool {
        self.wide
    }

    #[inline]
    fn head(&self, bytes: &[u8], at: usize) -> u16 {
        let start = self.heads as usize + HEAD_BYTES * at;
        u16::from_le_bytes(
            bytes[start..start + HEAD_BYTES]
                .try_into()
                .expect("two bytes"),
        )
    }

    /// Returns the encoded heads of some entries.
    pub(super) fn heads<'a>(&self, bytes: &'a [u8], entries: Range<usize>) -> &'a [u8] {
        let at = |entry: usize| self.heads as usize + HEAD_BYTES * entry;
        &bytes[at(entries.start)..at(entries.end)]
    }

    /// Returns the start of an entry relative to the data, and whether it has slots.
    #[inline]
    fn offset(&self, bytes: &[u8], at: usize) -> (u32, bool) {
        if self.wide {
            let start = self.offsets as usize + 4 * at;
            let word = u32::from_le_bytes(bytes[start..start + 4].try_into().expect("4 bytes"));
            (word & 0x7fff_ffff, word >> 31 == 1)
        } else {
            let start = self.offsets as usize + 2 * at;
            let word = u16::from_le_bytes(bytes[start..start + 2].try_into().expect("2 bytes"));
            (u32::from(word & 0x7fff), word >> 15 == 1)
        }
    }

    #[inline]
    pub(super) fn entry(&self, bytes: &[u8], at: usize) -> Entry {
        let (start, has_slots) = self.offset(bytes, at);
        let end = if at + 1 < self.len() {
            self.data + self.offset(bytes, at + 1).0
        } else {
            self.end
        };
        let head = self.head(bytes, at);
        Entry {
            head,
            start: self.data + start,
            end,
            key_len: self.key_len,
            has_slots,
        }
    }

    /// Returns the index of the first entry whose head is not less than `head`.
    #[inline]
    fn lower_bound(&self, bytes: &[u8], head: u16) -> usize {
        let (mut base, mut size) = (0, self.len());
        while size > 1 {
            let half = size / 2;
            // Both values are computed, so that the compiler can avoid a branch.
            base = if self.head(bytes, base + half - 1) < head {
                base + half
            } else {
                base
            };
            size -= half;
        }
        base + usize::from(size == 1 && self.head(bytes, base) < head)
    }

    /// Finds the entry of `key`, whose length must be that of this run's keys.
    #[inline]
    pub(super) fn find(&self, bytes: &[u8], key: &[u8]) -> Option<Entry> {
        let head = head_of(key);
        let rest = &key[key.len().min(HEAD_BYTES)..];
        let first = self.lower_bound(bytes, head);
        if first == self.len() || self.head(bytes, first) != head {
            return None;
        }
        let mut entry = self.entry(bytes, first);
        if first + 1 < self.len() && self.head(bytes, first + 1) == head {
            entry = self.entry(bytes, self.find_rest(bytes, head, rest, first)?);
        }
        (entry.rest(bytes) == rest).then_some(entry)
    }

    /// Searches the entries with this head, from `first` on, by the rest of the key.
    #[cold]
    fn find_rest(&self, bytes: &[u8], head: u16, rest: &[u8], first: usize) -> Option<usize> {
        let (mut low, mut high) = (first, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let order = self.head(bytes, middle).cmp(&head);
            match order.then_with(|| self.entry(bytes, middle).rest(bytes).cmp(rest)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Some(middle),
                Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Validates all entries of a page's outermost run, and returns the number of leaves.
    pub(super) fn check(&self, bytes: &[u8], prefix: &Path) -> Result<usize, DecodeError> {
        let is_accounts = prefix.len() <= cambium_primitives::ACCOUNT_NIBBLES;
        let mut leaves = 0;
        self.check_order(bytes)?;
        for at in 0..self.len() {
            let entry = self.entry(bytes, at);
            if !prefix.len().is_multiple_of(2)
                && (entry.head >> 12) as u8 != prefix.nibble(prefix.len() - 1)
            {
                return Err(self.error("key outside the prefix", entry));
            }
            if !entry.has_slots {
                leaves += 1;
                continue;
            }
            if !is_accounts {
                return Err(self.error("slots within slots", entry));
            }
            let mut reader = Reader::new(&bytes[..entry.end as usize]);
            reader.take(entry.value_at())?;
            let value_len = reader.varint()?;
            reader.take(value_len.saturating_sub(1) as usize)?;
            let slots = Self::read(&mut reader, 32, self.wide)?;
            reader.finish()?;
            if slots.len() == 0 {
                return Err(self.error("empty run of slots", entry));
            }
            slots.check_order(bytes)?;
            if (0..slots.len()).any(|at| slots.offset(bytes, at).1) {
                return Err(self.error("slots within slots", entry));
            }
            leaves += slots.len() + usize::from(value_len > 0);
        }
        Ok(leaves)
    }

    fn check_order(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        let rest_len = rest_len(self.key_len.into()) as u32;
        let mut before: Option<Entry> = None;
        for at in 0..self.len() {
            let entry = self.entry(bytes, at);
            let starts_right = match before {
                Some(before) => entry.start == before.end,
                None => entry.start == self.data,
            };
            // Checked before the subtraction below, which must not wrap.
            if !starts_right || entry.end > self.end || entry.start > entry.end {
                return Err(self.error("bad offset", entry));
            }
            if entry.end - entry.start < rest_len {
                return Err(self.error("entry shorter than its key", entry));
            }
            let hidden = match self.key_len {
                0 => entry.head != 0,
                1 => entry.head & 0xff != 0,
                _ => false,
            };
            if hidden {
                return Err(self.error("bits after a key", entry));
            }
            let ascends = before.is_none_or(|before| {
                (before.head, before.rest(bytes)) < (entry.head, entry.rest(bytes))
            });
            if !ascends {
                return Err(self.error("keys out of order", entry));
            }
            before = Some(entry);
        }
        if self.len() == 0 && self.end != self.data {
            return Err(DecodeError {
                what: "data without entries",
                offset: self.data as usize,
            });
        }
        Ok(())
    }

    fn error(&self, what: &'static str, entry: Entry) -> DecodeError {
        DecodeError {
            what,
            offset: entry.start as usize,
        }
    }
}

impl Entry {
    pub(super) const fn start(&self) -> usize {
        self.start as usize
    }

    pub(super) const fn end(&self) -> usize {
        self.end as usize
    }

    #[inline]
    fn rest<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start as usize..self.value_at()]
    }

    #[inline]
    fn value_at(&self) -> usize {
        self.start as usize + rest_len(self.key_len.into())
    }

    /// Returns one byte of the key.
    #[inline]
    pub(super) fn key_byte(&self, bytes: &[u8], at: usize) -> u8 {
        match at.checked_sub(HEAD_BYTES) {
            None => self.head.to_be_bytes()[at],
            Some(at) => self.rest(bytes)[at],
        }
    }

    /// Writes the key to `out`, which has the length of the key.
    pub(super) fn key_to(&self, bytes: &[u8], out: &mut [u8]) {
        let head_len = out.len().min(HEAD_BYTES);
        out[..head_len].copy_from_slice(&self.head.to_be_bytes()[..head_len]);
        out[head_len..].copy_from_slice(self.rest(bytes));
    }

    /// Returns the value, or `None` if only the slots of the account are in the page.
    #[inline]
    pub(super) fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let all = &bytes[self.value_at()..self.end as usize];
        if !self.has_slots {
            return Some(all);
        }
        let mut reader = Reader::new(all);
        let len = reader.varint().expect("checked when parsed") as usize;
        reader.take(len.checked_sub(1)?).ok()
    }

    /// Returns the run of the account's slots, if there are any in the page.
    #[inline]
    pub(super) fn slots(&self, bytes: &[u8], wide: bool) -> Option<Run> {
        if !self.has_slots {
            return None;
        }
        let mut reader = Reader::new(&bytes[..self.end as usize]);
        reader.take(self.value_at()).ok()?;
        let len = reader.varint().ok()? as usize;
        reader.take(len.saturating_sub(1)).ok()?;
        Run::read(&mut reader, 32, wide).ok()
    }
}
