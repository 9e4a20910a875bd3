//! Moving values out of sparse segments: a block puts them again, at new places. See
//! [`cleaning`](crate::values).

use crate::{
    values::{Candidate, LongValues, Victims, stored_in},
    write::session::Session,
};
use cambium_primitives::{AccountDiff, AccountUpdate, Changes, EntryValue, StoredValue};
use cambium_snapshot::{EntryKey, StateError};
use cambium_store::Values;
use std::collections::HashSet;

/// Keys that a block looks up for each value that it puts, to find live values in victims. A victim
/// is half dead or more, so two would suffice to keep pace.
const LOOK_UPS_PER_VALUE: usize = 4;
/// Further look-ups of each block.
const LOOK_UPS: usize = 16;

impl Session {
    /// Adds to the changes of a block the values that it moves. Values that can't be read stay where
    /// they are.
    ///
    /// # Errors
    ///
    /// [`StateError::Store`] if a value can't be written, which poisons the engine.
    pub(super) fn with_moved_values(&self, changes: Changes) -> Result<Changes, StateError> {
        let inner = &self.view().inner;
        let Some(values) = &inner.store.values else {
            return Ok(changes);
        };
        if changes.is_empty() || inner.journal.is_read_only() {
            return Ok(changes);
        }
        let Some(mut victims) = values.cleaning.try_lock() else {
            return Ok(changes);
        };
        let (mut count, mut bytes) = (0, 0);
        for (_, stored) in stored_in(&changes) {
            count += 1;
            bytes += Values::stored_bytes(stored.len);
        }
        victims.earn(bytes);
        let mut look_ups = LOOK_UPS + LOOK_UPS_PER_VALUE * count;
        let mut moves = Vec::new();
        loop {
            let mut taken = victims.take(&values.segments, look_ups);
            if taken.is_empty() {
                break;
            }
            look_ups -= taken.len();
            taken.retain(|one| changes.account(&one.key).is_none() && !self.has_changed(&one.key));
            self.move_live(values, &mut victims, &taken, &mut moves)?;
        }
        Ok(changes.then(Changes::new(moves)))
    }

    /// Appends those of the values again that are live in the state before the block.
    fn move_live(
        &self,
        values: &LongValues,
        victims: &mut Victims,
        taken: &[Candidate],
        moves: &mut Vec<AccountDiff>,
    ) -> Result<(), StateError> {
        let inner = &self.view().inner;
        // A victim may have several values of a key, of which one is live.
        let mut keys: Vec<_> = taken.iter().map(|one| EntryKey(one.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let Ok(found) = self.read(&keys) else {
            return Ok(());
        };
        let places: HashSet<_> = taken.iter().map(|one| one.place).collect();
        let live: Vec<_> = keys
            .iter()
            .zip(found)
            .filter_map(|(key, found)| match found {
                Some(EntryValue::Stored(stored)) if places.contains(&stored.place) => {
                    Some((key.0, stored))
                }
                _ => None,
            })
            .collect();
        for ((key, stored), read) in live.iter().zip(values.read_batch(&live)) {
            let value = match read {
                Ok(value) if inner.options.commitment.value_hash(&value) == stored.hash => value,
                _ => {
                    victims.give_up(Values::segment_of(stored.place));
                    continue;
                }
            };
            self.pin_values(values);
            let place = values.append(&inner.health, key, &value)?;
            inner.store.counters.values_moved.add(1);
            let bytes = Values::stored_bytes(stored.len);
            inner.store.counters.value_bytes_moved.add(bytes);
            victims.moved(stored);
            let new = StoredValue { place, ..*stored };
            moves.push(AccountDiff {
                path: *key,
                account: AccountUpdate::Entry(EntryValue::Stored(new)),
                wipe: false,
                slots: Vec::new(),
            });
        }
        Ok(())
    }
}
