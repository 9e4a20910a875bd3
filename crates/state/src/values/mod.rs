//! Values that are too long for their leaves: writing and reading them, and retention of their segments.
//!
//! ```text
//!   session  value, value ... finish   seal          commit            merge
//!            pin of the newest segment | layer       | values synced,  | live bytes; reverts
//!            keeps it and later ones   | keeps it    |   then the log  |   keep what they replace
//! ```
//!
//! A session writes each value once, when it gets it. Later references hold its hash, its length and its place
//! ([`StoredValue`]). Until a merge counts it as live, its segment is kept by the layer of its block, and before there
//! is a layer by a *pin*. Pins are read before the layers are, and go only once there is a layer. So no moment exists
//! at which neither shows.
//!
//! A segment that no kept checkpoint, no revert of a kept block and no layer refers to is removed
//! once every snapshot is dropped that was there when this was found out: a view of it may read
//! there.

mod cleaning;

pub(crate) use cleaning::{Candidate, Victims};

use crate::health::Health;
use alloy_primitives::{B256, Bytes};
use cambium_disk::Disk;
use cambium_primitives::{
    AccountUpdate, BlockNumber, Changes, EntryValue, INLINE_VALUE_BYTES_MAX, StoredValue,
};
use cambium_snapshot::{Snapshot, StateError};
use cambium_store::{RemovedValues, StoreError, ValueOptions, Values, ValuesRecovery};
use cleaning::Cleaning;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    num::NonZeroU64,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

/// The values of a database of entries that are stored apart from their leaves.
pub(crate) struct LongValues {
    pub(crate) segments: Values,
    pub(crate) cleaning: Cleaning,
    pins: Arc<Pins>,
    retention: Mutex<Retention>,
    /// Bytes written when the newest merge began.
    bytes_at_merge: AtomicU64,
}

/// Segments kept by checkpoints and views.
struct Retention {
    /// The first segment to which blocks after the newest checkpoint may refer.
    pinned_from: u32,
    /// The same of the checkpoint that is being written.
    planned: u32,
    /// Earlier snapshots that views may hold.
    snapshots: Vec<Weak<Snapshot>>,
    /// Segments needed only by views of these snapshots.
    removable: BTreeMap<u32, Vec<Weak<Snapshot>>>,
}

/// Numbers of pinned segments, each with the number of its pins. A pin keeps all later segments, too.
#[derive(Default)]
struct Pins(Mutex<BTreeMap<u32, usize>>);

/// Keeps a segment and all later ones until it is dropped.
pub(crate) struct ValuePin {
    pins: Arc<Pins>,
    segment: u32,
}

impl Drop for ValuePin {
    fn drop(&mut self) {
        let mut pins = self.pins.0.lock();
        if let Some(count) = pins.get_mut(&self.segment) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.segment);
            }
        }
    }
}

impl LongValues {
    /// Opens the segments that a checkpoint's `table` lists, and later ones. Changes no file.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        salt: u64,
        options: ValueOptions,
        table: &[u8],
    ) -> Result<(Self, ValuesRecovery), StoreError> {
        let (segments, found) = Values::open(disk, salt, options, table)?;
        let values = Self {
            segments,
            cleaning: Cleaning::default(),
            pins: Arc::default(),
            retention: Mutex::new(Retention {
                pinned_from: found.pinned_from,
                planned: found.pinned_from,
                snapshots: Vec::new(),
                removable: BTreeMap::new(),
            }),
            bytes_at_merge: AtomicU64::new(0),
        };
        Ok((values, found))
    }

    /// Pins the newest segment, and with it all values that are appended from now on.
    pub(crate) fn pin_newest(&self) -> ValuePin {
        let mut pins = self.pins.0.lock();
        let segment = self.segments.newest();
        *pins.entry(segment).or_default() += 1;
        self.pin_of(segment)
    }

    /// Pins all stored values of `changes`, and checks that they can be where they are said to be.
    ///
    /// # Errors
    ///
    /// [`StateError::MissingValue`] for the first that can't.
    pub(crate) fn pin_changes(&self, changes: &Changes) -> Result<Option<ValuePin>, StateError> {
        let Some(segment) = lowest_segment(changes) else {
            return Ok(None);
        };
        *self.pins.0.lock().entry(segment).or_default() += 1;
        let pin = self.pin_of(segment);
        for (_, stored) in stored_in(changes) {
            self.check_place(stored)?;
        }
        Ok(Some(pin))
    }

    fn pin_of(&self, segment: u32) -> ValuePin {
        ValuePin {
            pins: self.pins.clone(),
            segment,
        }
    }

    /// Checks that the value can be where it is said to be. Its hash is not looked at.
    ///
    /// # Errors
    ///
    /// [`StateError::MissingValue`] if it can't.
    pub(crate) fn check_place(&self, stored: &StoredValue) -> Result<(), StateError> {
        match self.segments.has_room(stored.place, stored.len) {
            true => Ok(()),
            false => Err(StateError::MissingValue {
                hash: stored.hash,
                place: stored.place.get(),
            }),
        }
    }

    /// Appends the value of `key`. A failed write poisons the engine.
    pub(crate) fn append(
        &self,
        health: &Health,
        key: &B256,
        value: &[u8],
    ) -> Result<NonZeroU64, StateError> {
        match self.segments.append(key, value) {
            Err(error @ (StoreError::Disk(_) | StoreError::Poisoned { .. })) => {
                health.poison(Err(error))
            }
            appended => Ok(appended?),
        }
    }

    /// Reads the value of `key`. An error of damage names the key and the file.
    pub(crate) fn read(&self, key: &B256, stored: &StoredValue) -> Result<Bytes, StateError> {
        let read = self.segments.read(stored.place, stored.len);
        read.map(Bytes::from).map_err(|error| of_key(key, error))
    }

    /// Reads the values of many keys, with all device reads in flight at once.
    pub(crate) fn read_batch(
        &self,
        values: &[(B256, StoredValue)],
    ) -> Vec<Result<Bytes, StateError>> {
        let places = values.iter().map(|(_, stored)| (stored.place, stored.len));
        let read = self.segments.read_batch(&places.collect::<Vec<_>>());
        let named = |(read, (key, _)): (Result<Vec<u8>, _>, &(B256, _))| {
            read.map(Bytes::from).map_err(|error| of_key(key, error))
        };
        read.into_iter().zip(values).map(named).collect()
    }

    /// Bytes of values that were written since the newest merge began.
    pub(crate) fn bytes_since_merge(&self) -> u64 {
        let before = self.bytes_at_merge.load(Ordering::Relaxed);
        self.segments.bytes_written().saturating_sub(before)
    }

    /// Begins a merge: [`LongValues::bytes_since_merge`] counts from here on.
    pub(crate) fn merge_begins(&self) {
        let bytes = self.segments.bytes_written();
        self.bytes_at_merge.store(bytes, Ordering::Relaxed);
    }

    /// Counts what one block has changed, which a merge brings into the state. Its reverts refer to
    /// the values that it replaced, for as long as block `until` is kept.
    pub(crate) fn merge_block(&self, changes: &Changes, reverts: &Changes, until: BlockNumber) {
        for (_, new) in stored_in(changes) {
            self.segments.refer(new.place, new.len);
        }
        for (_, old) in stored_in(reverts) {
            self.segments.release(old.place, old.len, until);
        }
    }

    /// Keeps the values of a block that is in the log alone, for as long as it is kept: those that it
    /// brought, and those that it replaced, to which its reverts lead back.
    pub(crate) fn keep_for(&self, changes: &Changes, reverts: &Changes, block: BlockNumber) {
        for (_, stored) in stored_in(changes).chain(stored_in(reverts)) {
            self.segments.need_until(stored.place, block);
        }
    }

    /// The first pinned segment, or the newest one if none is. Call it before looking at the layers,
    /// which take over from pins.
    pub(crate) fn first_pinned(&self) -> u32 {
        let pins = self.pins.0.lock();
        let newest = self.segments.newest();
        let first = pins.keys().next();
        first.map_or(newest, |first| newest.min(*first))
    }

    /// The table of a checkpoint, after which blocks may refer to the segment `pinned_from` and
    /// later ones.
    pub(crate) fn plan_checkpoint(&self, pinned_from: u32) -> Vec<u8> {
        self.retention.lock().planned = pinned_from;
        self.segments.encode_table(pinned_from)
    }

    /// Notes that the planned checkpoint is durable, which replaces the snapshot `old`. `kept` is the
    /// lowest block that can be the head again by the checkpoint *before* it, which must stay usable.
    pub(crate) fn checkpoint_written(&self, kept: BlockNumber, old: &Arc<Snapshot>) {
        let mut retention = self.retention.lock();
        let retention = &mut *retention;
        let before = std::mem::replace(&mut retention.pinned_from, retention.planned);
        let pinned_from = before.min(retention.planned);
        retention.snapshots.retain(|one| one.strong_count() > 0);
        retention.snapshots.push(Arc::downgrade(old));
        let views = retention.snapshots.clone();
        // The block itself stays, with the values that it wrote; those that it replaced may go.
        let found = self.segments.removable(kept.saturating_add(1), pinned_from);
        let known = std::mem::take(&mut retention.removable);
        let mut removable = BTreeMap::new();
        for number in found {
            let views = known.get(&number).unwrap_or(&views).clone();
            removable.insert(number, views);
        }
        retention.removable = removable;
    }

    /// Removes the unneeded segments below `pinned_from`.
    pub(crate) fn remove_unneeded(
        &self,
        pinned_from: u32,
    ) -> Result<Vec<RemovedValues>, StoreError> {
        let mut retention = self.retention.lock();
        let is_free = |(number, views): (&u32, &Vec<Weak<Snapshot>>)| {
            let is_unseen = views.iter().all(|view| view.strong_count() == 0);
            (*number < pinned_from && is_unseen).then_some(*number)
        };
        let free: Vec<u32> = retention.removable.iter().filter_map(is_free).collect();
        let mut removed = Vec::new();
        for number in free {
            removed.extend(self.segments.remove(number)?);
            retention.removable.remove(&number);
        }
        Ok(removed)
    }
}

/// The stored values among `changes`, each with its key.
pub(crate) fn stored_in(changes: &Changes) -> impl Iterator<Item = (&B256, &StoredValue)> {
    let changes = changes.accounts().iter();
    changes.filter_map(|change| match &change.account {
        AccountUpdate::Entry(EntryValue::Stored(stored)) => Some((&change.path, stored)),
        _ => None,
    })
}

/// The first segment with a stored value of `changes`.
pub(crate) fn lowest_segment(changes: &Changes) -> Option<u32> {
    let segments = stored_in(changes).map(|(_, stored)| Values::segment_of(stored.place));
    segments.min()
}

/// Rejects values that are part of their leaves, and too long for that.
///
/// # Errors
///
/// [`StateError::LongValue`] for the first such value.
pub(crate) fn check_lengths(changes: &Changes) -> Result<(), StateError> {
    let mut values = changes
        .accounts()
        .iter()
        .filter_map(|change| match &change.account {
            AccountUpdate::Entry(value) => Some((&change.path, value)),
            _ => None,
        });
    values.try_for_each(|(key, value)| check_length(key, value))
}

/// Does the same as [`check_lengths`] for one value.
pub(crate) fn check_length(key: &B256, value: &EntryValue) -> Result<(), StateError> {
    match value {
        EntryValue::Inline(bytes) if is_long(bytes) => {
            let (key, len) = (*key, bytes.len());
            Err(StateError::LongValue { key, len })
        }
        // A short one would not be readable from its leaf.
        EntryValue::Stored(stored) if stored.len as usize <= INLINE_VALUE_BYTES_MAX => {
            Err(StateError::MissingValue {
                hash: stored.hash,
                place: stored.place.get(),
            })
        }
        _ => Ok(()),
    }
}

/// Whether the value has to be stored apart from its leaf.
pub(crate) const fn is_long(value: &[u8]) -> bool {
    value.len() > INLINE_VALUE_BYTES_MAX
}

/// Names the key in an error of damage.
fn of_key(key: &B256, error: StoreError) -> StateError {
    match error {
        StoreError::Corrupt {
            file,
            offset,
            what,
            advice,
        } => StoreError::Corrupt {
            file,
            offset,
            what: format!("the value of key {key}: {what}"),
            advice,
        },
        error => error,
    }
    .into()
}
