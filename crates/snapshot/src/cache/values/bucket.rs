//! One bucket of the value cache: its records, and its eviction policy.
//!
//! An insert into a full bucket evicts the oldest entry that was not read recently: never since its
//! insertion, or not during the last [`RECENT_INSERTS`] such inserts. If all entries were read
//! recently, it evicts the least recently read one. So a scan over many keys evicts its own entries
//! first, while hot entries stay until they cool down.
//!
//! Evicting an entry moves no other record. The new record takes the place of the evicted one if it
//! is not longer, so that an insert touches few cache lines.

use crate::base::{key::CacheKey, sync::Mutex};
use alloy_primitives::{B256, map::B256Set};

/// Size of a bucket in bytes. The lock and the metadata of all entries share the first cache line
/// of 64 bytes.
pub(crate) const BUCKET_BYTES: usize = 512;
/// Space for keys and values, in bytes: enough for 10 accounts without code, or 6 slots.
const RECORDS_BYTES: usize = BUCKET_BYTES - 60;
/// Alignment of records, in bytes: the unit of offsets and sizes in a bucket.
const UNIT_BYTES: usize = 4;
/// Space for keys and values, in units.
const UNITS: u8 = (RECORDS_BYTES / UNIT_BYTES) as u8;
/// Maximum number of entries in a bucket.
const ENTRIES_MAX: usize = 12;
/// Bit of a tag that marks a slot. The other bits are of the key's hash.
const IS_SLOT: u8 = 1;
/// Longest value that is cached, in bytes: its length takes seven bits. Values of accounts and slots
/// are shorter.
const VALUE_BYTES_MAX: usize = 127;
/// Bit of a length that marks an entry which was read since its insertion.
const WAS_READ: u8 = 0x80;
/// Number of inserts into a full bucket during which an entry counts as recently read. The rest of
/// the range of a `u8` is left for the inserts that may come before the entry is evicted.
const RECENT_INSERTS: u8 = 64;

/// A bucket, aligned to a cache line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct AlignedBucket(pub(crate) Mutex<Bucket>);

// Loom's locks are larger.
#[cfg(not(feature = "loom"))]
const _: () = assert!(size_of::<AlignedBucket>() == BUCKET_BYTES);

/// The entries of one bucket, in the order of their insertion. Their records are in any order. A
/// record is a key, of 32 or 64 bytes, followed by the value.
pub(crate) struct Bucket {
    /// Generation in which the bucket was last changed: see [`super`].
    pub(crate) generation: u32,
    /// Number of entries.
    count: u8,
    /// End of the last record, in units.
    end: u8,
    /// Number of inserts that found the bucket full, modulo 256.
    clock: u8,
    /// For each entry, seven bits of its key's hash, and [`IS_SLOT`].
    tags: [u8; ENTRIES_MAX],
    /// For each entry, the length of its value in bytes, and [`WAS_READ`].
    lens: [u8; ENTRIES_MAX],
    /// For each entry, the value of `clock` when it was last read.
    read_at: [u8; ENTRIES_MAX],
    /// For each entry, the start of its record, in units.
    starts: [u8; ENTRIES_MAX],
    records: [u8; RECORDS_BYTES],
}

impl Default for Bucket {
    fn default() -> Self {
        Self {
            generation: 0,
            count: 0,
            end: 0,
            clock: 0,
            tags: [0; ENTRIES_MAX],
            lens: [0; ENTRIES_MAX],
            read_at: [0; ENTRIES_MAX],
            starts: [0; ENTRIES_MAX],
            records: [0; RECORDS_BYTES],
        }
    }
}

/// Returns the tag of a key with the given hash.
pub(crate) const fn tag(key: &CacheKey<'_>, hash: u64) -> u8 {
    match key.slot {
        None => hash as u8 & !IS_SLOT,
        Some(_) => hash as u8 | IS_SLOT,
    }
}

/// Converts a size in bytes to units, rounding up.
const fn units(bytes: usize) -> u8 {
    bytes.div_ceil(UNIT_BYTES) as u8
}

/// Returns the length of a key with the given tag, in bytes.
const fn key_len(tag: u8) -> usize {
    if tag & IS_SLOT == 0 { 32 } else { 64 }
}

impl Bucket {
    /// Returns the encoded value of a key, and marks its entry as read.
    pub(crate) fn get(&mut self, key: &CacheKey<'_>, tag: u8) -> Option<&[u8]> {
        let at = self.find(key, tag)?;
        self.lens[at] |= WAS_READ;
        self.read_at[at] = self.clock;
        Some(&self.record(at)[key_len(tag)..])
    }

    /// Inserts the value of a key, unless there is one or it is too long. Evicts entries if needed.
    pub(crate) fn put(&mut self, key: &CacheKey<'_>, tag: u8, value: &[u8]) {
        if value.len() > VALUE_BYTES_MAX || self.find(key, tag).is_some() {
            return;
        }
        let needed = units(key_len(tag) + value.len());
        let mut room = self.reserve(needed);
        if room.is_none() {
            self.clock = self.clock.wrapping_add(1);
        }
        let start = loop {
            match room {
                Some(start) => break start,
                None => room = self.reserve_in_place_of(self.victim(), needed),
            }
        };
        self.push(key, tag, value, start);
    }

    /// Replaces the value of a key, or removes the entry if the new value does not fit. Returns
    /// whether the key was in the bucket.
    pub(crate) fn replace(&mut self, key: &CacheKey<'_>, tag: u8, value: &[u8]) -> bool {
        let Some(at) = self.find(key, tag) else {
            return false;
        };
        if value.len() > VALUE_BYTES_MAX {
            self.remove(at);
            return true;
        }
        let (was_read, read_at) = (self.lens[at] & WAS_READ, self.read_at[at]);
        let needed = units(key_len(tag) + value.len());
        if let Some(start) = self.reserve_in_place_of(at, needed) {
            let at = self.push(key, tag, value, start);
            self.lens[at] |= was_read;
            self.read_at[at] = read_at;
        }
        true
    }

    /// Removes all slots of `accounts`.
    pub(crate) fn remove_slots_of(&mut self, accounts: &B256Set) {
        for at in (0..usize::from(self.count)).rev() {
            let account = B256::from_slice(&self.record(at)[..32]);
            if self.tags[at] & IS_SLOT != 0 && accounts.contains(&account) {
                self.remove(at);
            }
        }
    }

    /// Returns the index of a key's entry.
    fn find(&self, key: &CacheKey<'_>, tag: u8) -> Option<usize> {
        let mut all = 0..usize::from(self.count);
        all.find(|at| self.tags[*at] == tag && key.is_at(self.record(*at)))
    }

    /// Returns the key and value of an entry.
    fn record(&self, at: usize) -> &[u8] {
        let start = usize::from(self.starts[at]) * UNIT_BYTES;
        let len = key_len(self.tags[at]) + usize::from(self.lens[at] & !WAS_READ);
        &self.records[start..start + len]
    }

    fn record_units(&self, at: usize) -> u8 {
        units(self.record(at).len())
    }

    /// Makes room for one more entry whose record takes `needed` units, without evicting one.
    /// Returns the start of the record, or `None` if the bucket is too full.
    fn reserve(&mut self, needed: u8) -> Option<u8> {
        let all = 0..usize::from(self.count);
        if all.len() == ENTRIES_MAX {
            return None;
        }
        if self.end + needed > UNITS {
            let used: u8 = all.map(|at| self.record_units(at)).sum();
            if used + needed > UNITS {
                return None;
            }
            self.pack();
        }
        Some(self.end)
    }

    /// Removes an entry, and makes room like [`Bucket::reserve`], in its place if possible.
    fn reserve_in_place_of(&mut self, at: usize, needed: u8) -> Option<u8> {
        let (start, units) = (self.starts[at], self.record_units(at));
        self.remove(at);
        match needed <= units {
            true => Some(start),
            false => self.reserve(needed),
        }
    }

    /// Moves all records together, so that free space is contiguous.
    fn pack(&mut self) {
        let mut packed = [0; RECORDS_BYTES];
        let mut end = 0;
        for at in 0..usize::from(self.count) {
            let record = self.record(at);
            let start = usize::from(end) * UNIT_BYTES;
            packed[start..start + record.len()].copy_from_slice(record);
            let next = end + self.record_units(at);
            self.starts[at] = std::mem::replace(&mut end, next);
        }
        (self.records, self.end) = (packed, end);
    }

    /// Returns the index of the entry to evict. The bucket must not be empty.
    fn victim(&self) -> usize {
        let age = |at: usize| self.clock.wrapping_sub(self.read_at[at]);
        let is_recent = |at: usize| self.lens[at] & WAS_READ != 0 && age(at) < RECENT_INSERTS;
        let all = 0..usize::from(self.count);
        let oldest = all.clone().find(|at| !is_recent(*at));
        oldest
            .or_else(|| all.max_by_key(|at| age(*at)))
            .expect("a record fits into an empty bucket")
    }

    fn remove(&mut self, at: usize) {
        let count = usize::from(self.count);
        let heads = [
            &mut self.tags,
            &mut self.lens,
            &mut self.read_at,
            &mut self.starts,
        ];
        for head in heads {
            head.copy_within(at + 1..count, at);
        }
        self.count -= 1;
    }

    /// Appends an entry, marked as unread, whose record starts at `start`. Returns its index.
    fn push(&mut self, key: &CacheKey<'_>, tag: u8, value: &[u8], start: u8) -> usize {
        let slot = key.slot.map_or(&[][..], |slot| &slot[..]);
        let mut end = usize::from(start) * UNIT_BYTES;
        for part in [&key.account[..], slot, value] {
            self.records[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        let at = usize::from(self.count);
        self.tags[at] = tag;
        self.lens[at] = value.len() as u8;
        self.read_at[at] = 0;
        self.starts[at] = start;
        self.end = self.end.max(units(end));
        self.count += 1;
        at
    }
}

impl CacheKey<'_> {
    /// Whether `record`, whose tag equals this key's, begins with this key.
    fn is_at(&self, record: &[u8]) -> bool {
        record[..32] == self.account[..] && self.slot.is_none_or(|slot| record[32..64] == slot[..])
    }
}
