//! Accounts and slots of an old state in the order of their keys: values in runs, over the state above the runs.

use crate::{
    HistoryError,
    entry::{
        Key, SLOTS_PREFIX_BYTES, account_of_key, decode_account, decode_slot, is_value, key_of,
        number_of, slot_of_key, slots_prefix,
    },
    merge::MergedRuns,
    old::{Old, bad_value},
};
use alloy_primitives::{B256, U256};
use cambium_primitives::{Account, BlockNumber, DecodeError};
use cambium_state::StateError;
use std::ops::ControlFlow;

/// Receives a key and its value, in order, until it breaks.
pub(crate) type Visitor<'a, T> = &'a mut dyn FnMut(B256, T) -> ControlFlow<()>;

/// Keys that have changed since a block, in their order, with their values at that block.
pub(crate) struct OldValues<T> {
    entries: MergedRuns,
    /// Common prefix of the keys of an account's slots, if these are slots.
    slots_of: Option<[u8; SLOTS_PREFIX_BYTES]>,
    decode: fn(&[u8]) -> Result<Option<T>, DecodeError>,
    above: BlockNumber,
    /// The key that was visited last.
    last: Option<B256>,
}

impl OldValues<Account> {
    /// Accounts from keccak(address) `from` on. The entries of slots between are read, too.
    pub(crate) fn accounts(old: &Old, from: &B256) -> Result<Self, HistoryError> {
        Self::new(old, &Key::account(from), None, decode_account)
    }
}

impl OldValues<U256> {
    /// Slots of an account from keccak(slot) `from` on.
    pub(crate) fn slots(old: &Old, account: &B256, from: &B256) -> Result<Self, HistoryError> {
        let first = Key::slot(account, from);
        Self::new(old, &first, Some(slots_prefix(account)), |bytes| {
            Ok(Some(decode_slot(bytes)?).filter(|value| !value.is_zero()))
        })
    }
}

impl<T> OldValues<T> {
    fn new(
        old: &Old,
        first: &Key,
        slots_of: Option<[u8; SLOTS_PREFIX_BYTES]>,
        decode: fn(&[u8]) -> Result<Option<T>, DecodeError>,
    ) -> Result<Self, HistoryError> {
        let runs: Vec<_> = old.runs().collect();
        Ok(Self {
            entries: MergedRuns::new(&runs, first.as_bytes())?,
            slots_of,
            decode,
            above: old.block.number,
            last: None,
        })
    }

    /// Visits these keys and those of the present state, which `present` visits: a key that has changed with
    /// its old value.
    pub(crate) fn over(
        mut self,
        visit: Visitor<'_, T>,
        present: impl FnOnce(Visitor<'_, T>) -> Result<(), StateError>,
    ) -> Result<(), HistoryError> {
        let (mut is_over, mut failure) = (false, None);
        present(&mut |key, value| {
            match self.visit_before(Some(key), visit) {
                Ok(ControlFlow::Continue(is_changed)) => {
                    if !is_changed && visit(key, value).is_break() {
                        is_over = true;
                    }
                }
                Ok(ControlFlow::Break(())) => is_over = true,
                Err(error) => failure = Some(error),
            }
            match is_over || failure.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        match failure {
            Some(error) => Err(error),
            None if is_over => Ok(()),
            None => self.visit_before(None, visit).map(|_| ()),
        }
    }

    /// Visits the old values of keys before `end`, and of `end` itself if it has changed: then continues
    /// with true.
    fn visit_before(
        &mut self,
        end: Option<B256>,
        visit: Visitor<'_, T>,
    ) -> Result<ControlFlow<(), bool>, HistoryError> {
        while let Some(entry) = self.entries.entry() {
            let key = key_of(entry.position);
            let changed = match &self.slots_of {
                Some(prefix) if !key.starts_with(prefix) => break,
                Some(_) => slot_of_key(key),
                None if !is_value(key) => break,
                None => account_of_key(key),
            };
            let Some(changed) = changed else {
                self.entries.advance()?;
                continue;
            };
            if end.is_some_and(|end| changed > end) {
                break;
            }
            let is_first = self.last != Some(changed);
            if is_first && number_of(entry.position) > self.above {
                let value = (self.decode)(entry.value);
                let value = value.map_err(|error| bad_value(None, &error))?;
                self.last = Some(changed);
                if let Some(value) = value
                    && visit(changed, value).is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
            }
            self.entries.advance()?;
        }
        Ok(ControlFlow::Continue(end.is_some() && self.last == end))
    }
}
