//! One bucket of the cache of entries: some records side by side, and which of them goes next.
//!
//! A *newcomer* to a full bucket takes the place of one that was not read since it came, the oldest
//! first. One that was read lately is safe: it goes only when all others are, too, and have been
//! read later. "Lately" counts clock, so that what is no longer hot makes room in the end.
//!
//! Records are not moved when one goes: a newcomer that is no longer takes its very place, so that
//! few lines of memory are touched.

use crate::base::{key::CacheKey, sync::Mutex};
use alloy_primitives::{B256, map::B256Set};

/// Memory of a bucket: its lock and all of its head are in the first line of 64 bytes.
pub(crate) const BUCKET_BYTES: usize = 512;
/// Bytes of keys and values: of 10 accounts without code, or 6 slots.
const RECORDS_BYTES: usize = BUCKET_BYTES - 60;
/// Records start at multiples of this.
const UNIT_BYTES: usize = 4;
const UNITS: u8 = (RECORDS_BYTES / UNIT_BYTES) as u8;
/// Entries that a bucket has at most.
const ENTRIES_MAX: usize = 12;
/// Bit of a tag: the entry is a slot's. The others are of the key's hash.
const IS_SLOT: u8 = 1;
/// Bit beside a value's length: the entry was read since it came.
const WAS_READ: u8 = 0x80;
/// An entry that was read is safe until so many clock have come. Above it a `u8` is left for
/// those that come before it is its turn to go.
const RECENT_INSERTS: u8 = 64;

/// A bucket in lines of memory of its own.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct AlignedBucket(pub(crate) Mutex<Bucket>);

// A lock of a model is larger.
#[cfg(not(feature = "loom"))]
const _: () = assert!(size_of::<AlignedBucket>() == BUCKET_BYTES);

/// Entries in the order in which they came, their records in no order. A record is a key, of 32
/// bytes or 64, and its value.
pub(crate) struct Bucket {
    /// The newest snapshot that anything here is known to be of: see [`super`].
    pub(crate) generation: u32,
    count: u8,
    /// Units up to the end of the last record.
    end: u8,
    /// Newcomers since the bucket was full first, as far as a byte goes.
    clock: u8,
    /// Of each entry some bits of its key's hash, and [`IS_SLOT`].
    tags: [u8; ENTRIES_MAX],
    /// Of each entry the length of its value, and [`WAS_READ`].
    lens: [u8; ENTRIES_MAX],
    /// What `clock` was when it was read last.
    read_at: [u8; ENTRIES_MAX],
    /// Units before its record.
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

/// The tag of a key with that hash.
pub(crate) const fn tag(key: &CacheKey<'_>, hash: u64) -> u8 {
    match key.slot {
        None => hash as u8 & !IS_SLOT,
        Some(_) => hash as u8 | IS_SLOT,
    }
}

const fn units(bytes: usize) -> u8 {
    bytes.div_ceil(UNIT_BYTES) as u8
}

const fn key_len(tag: u8) -> usize {
    if tag & IS_SLOT == 0 { 32 } else { 64 }
}

impl Bucket {
    /// The value of a key.
    pub(crate) fn get(&mut self, key: &CacheKey<'_>, tag: u8) -> Option<&[u8]> {
        let at = self.find(key, tag)?;
        self.lens[at] |= WAS_READ;
        self.read_at[at] = self.clock;
        Some(&self.record(at)[key_len(tag)..])
    }

    /// Adds the value of a key, unless there is one.
    pub(crate) fn put(&mut self, key: &CacheKey<'_>, tag: u8, value: &[u8]) {
        if self.find(key, tag).is_some() {
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

    /// Puts another value in the place of a key's; removes it if there is no room. Returns whether
    /// the key was here.
    pub(crate) fn replace(&mut self, key: &CacheKey<'_>, tag: u8, value: &[u8]) -> bool {
        let Some(at) = self.find(key, tag) else {
            return false;
        };
        let (was_read, read_at) = (self.lens[at] & WAS_READ, self.read_at[at]);
        let needed = units(key_len(tag) + value.len());
        if let Some(start) = self.reserve_in_place_of(at, needed) {
            let at = self.push(key, tag, value, start);
            self.lens[at] |= was_read;
            self.read_at[at] = read_at;
        }
        true
    }

    /// Removes the slots of some accounts.
    pub(crate) fn remove_slots_of(&mut self, accounts: &B256Set) {
        for at in (0..usize::from(self.count)).rev() {
            let account = B256::from_slice(&self.record(at)[..32]);
            if self.tags[at] & IS_SLOT != 0 && accounts.contains(&account) {
                self.remove(at);
            }
        }
    }

    /// The number of a key's entry.
    fn find(&self, key: &CacheKey<'_>, tag: u8) -> Option<usize> {
        let mut all = 0..usize::from(self.count);
        all.find(|at| self.tags[*at] == tag && key.is_at(self.record(*at)))
    }

    fn record(&self, at: usize) -> &[u8] {
        let start = usize::from(self.starts[at]) * UNIT_BYTES;
        let len = key_len(self.tags[at]) + usize::from(self.lens[at] & !WAS_READ);
        &self.records[start..start + len]
    }

    fn record_units(&self, at: usize) -> u8 {
        units(self.record(at).len())
    }

    /// Where there is room for a record of so many units.
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

    /// As above, once an entry is removed.
    fn reserve_in_place_of(&mut self, at: usize, needed: u8) -> Option<u8> {
        let (start, units) = (self.starts[at], self.record_units(at));
        self.remove(at);
        match needed <= units {
            true => Some(start),
            false => self.reserve(needed),
        }
    }

    /// Moves all records to the front, side by side.
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

    /// The entry that makes room. The bucket must not be empty.
    fn victim(&self) -> usize {
        let age = |at: usize| self.clock.wrapping_sub(self.read_at[at]);
        let is_safe = |at: usize| self.lens[at] & WAS_READ != 0 && age(at) < RECENT_INSERTS;
        let all = 0..usize::from(self.count);
        let oldest = all.clone().find(|at| !is_safe(*at));
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

    /// Adds an entry, not read yet, where there is room for its record. Returns its number.
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
    fn is_at(&self, record: &[u8]) -> bool {
        record[..32] == self.account[..] && self.slot.is_none_or(|slot| record[32..64] == slot[..])
    }
}
