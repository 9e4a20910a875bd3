//! Accounts, entries and slots in the order of their keys: changes in layers merged with the snapshot.

use crate::{
    layers::overlay::{AncestorSet, Overlay},
    view::{
        merged::{Merged, Source},
        state::View,
    },
};
use alloy_primitives::{B256, U256};
use cambium_primitives::Account;
use cambium_snapshot::{Slots, StateError, TopLeaves};
use std::{
    collections::{BTreeMap, btree_map},
    ops::{Bound, ControlFlow},
    vec,
};

impl View {
    /// Visits the accounts from keccak(address) `from` on, in the order of keccak(address), until
    /// `visit` breaks. One page is in memory at a time, and up to 16,384 of the accounts that layers above
    /// the snapshot wrote.
    ///
    /// ```
    /// # use cambium_state::{StateError, View};
    /// # use std::ops::ControlFlow;
    /// # fn f(view: &View) -> Result<(), StateError> {
    /// let mut first = Vec::new();
    /// view.each_account(&Default::default(), |path, account| {
    ///     first.push((path, account.balance));
    ///     if first.len() < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`View::account`].
    pub fn each_account(
        &self,
        from: &B256,
        mut visit: impl FnMut(B256, Account) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        let mut accounts = self.merged(*from, Overlay::accounts_from, TopLeaves::next_account);
        while let Some((path, account)) = accounts.next()? {
            if let Some(account) = account
                && visit(path, account).is_break()
            {
                break;
            }
        }
        Ok(())
    }

    /// Visits the non-zero slots of an account, by keccak(address), from keccak(slot) `from` on, in the
    /// order of keccak(slot), until `visit` breaks. Besides the slots that layers above the snapshot
    /// wrote, one page of slots is in memory at a time.
    ///
    /// # Errors
    ///
    /// As [`View::slot`].
    pub fn each_slot_from(
        &self,
        account: &B256,
        from: &B256,
        visit: impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        self.inner.check_storage_kept(account)?;
        self.each_leaf_of_storage(account, from, visit)
    }

    /// Visits the leaves of an account's storage as [`View::each_slot_from`]: its slots, or the storage root if the slots are
    /// not kept.
    pub(crate) fn each_leaf_of_storage(
        &self,
        account: &B256,
        from: &B256,
        mut visit: impl FnMut(B256, U256) -> ControlFlow<()>,
    ) -> Result<(), StateError> {
        let (mut above, wiped) = self.slots_above(account);
        let above = above.split_off(from);
        let below = match wiped {
            true => None,
            false => Some(self.base.snapshot.slots(account, from)?),
        };
        let mut slots = Merged::new(SlotsAbove(above.into_iter()), below);
        while let Some((slot, value)) = slots.next()? {
            if !value.is_zero() && visit(slot, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The slots that layers above the snapshot wrote, zeros included, and whether the account's
    /// slots in the snapshot were wiped.
    fn slots_above(&self, account: &B256) -> (BTreeMap<B256, U256>, bool) {
        let (newest, wiped) = self.overlay.slots_of(account, &self.layer.ancestors);
        let mut slots = BTreeMap::new();
        let mut all_wiped = wiped;
        if !wiped && let Some(middle) = &self.base.intermediate {
            let (older, wiped) = middle.overlay.slots_of(account, &middle.ancestors);
            slots.extend(older);
            all_wiped = wiped;
        }
        slots.extend(newest);
        (slots, all_wiped)
    }

    /// Accounts or entries from a key on: those that layers wrote, as `read` reads them, over those in the
    /// snapshot. Deleted ones are `None`.
    pub(super) fn merged<'a, T>(
        &'a self,
        from: B256,
        read: ReadAbove<T>,
        next: ReadBelow<'a, T>,
    ) -> impl Source<Value = Option<T>> + 'a
    where
        T: 'a,
    {
        let newest = Above::new(&self.overlay, &self.layer.ancestors, from, read);
        let middle = self.base.intermediate.as_ref();
        let middle = middle.map(|one| Above::new(&one.overlay, &one.ancestors, from, read));
        let below = Below {
            leaves: self.base.snapshot.top_leaves(&from),
            next,
        };
        Merged::new(newest, Merged::new(middle, below))
    }
}

/// Reads the first keys from one on that layers wrote, and returns the last of these keys if there may be
/// further ones.
type ReadAbove<T> =
    fn(&Overlay, Bound<B256>, usize, &AncestorSet) -> (Vec<(B256, Option<T>)>, Option<B256>);

/// Reads the next key of the snapshot.
type ReadBelow<'a, T> = fn(&mut TopLeaves<'a>) -> Result<Option<(B256, T)>, StateError>;

/// Numbers of keys that are read from an overlay at once: few at first, for short scans.
const KEYS_FIRST: usize = 16;
const KEYS_MAX: usize = 16_384;

/// Changes in visible layers, from a key on; deleted keys are `None`.
struct Above<'a, T> {
    overlay: &'a Overlay,
    seen: &'a AncestorSet,
    read: ReadAbove<T>,
    found: vec::IntoIter<(B256, Option<T>)>,
    /// Where the next keys begin, if there may be further ones.
    rest: Option<Bound<B256>>,
    count: usize,
}

impl<'a, T> Above<'a, T> {
    fn new(overlay: &'a Overlay, seen: &'a AncestorSet, from: B256, read: ReadAbove<T>) -> Self {
        Self {
            overlay,
            seen,
            read,
            found: Vec::new().into_iter(),
            rest: Some(Bound::Included(from)),
            count: KEYS_FIRST,
        }
    }
}

impl<T> Source for Above<'_, T> {
    type Value = Option<T>;

    fn next(&mut self) -> Result<Option<(B256, Option<T>)>, StateError> {
        loop {
            if let Some(found) = self.found.next() {
                return Ok(Some(found));
            }
            let Some(from) = self.rest.take() else {
                return Ok(None);
            };
            let (found, last) = (self.read)(self.overlay, from, self.count, self.seen);
            self.found = found.into_iter();
            self.rest = last.map(Bound::Excluded);
            self.count = KEYS_MAX.min(4 * self.count);
        }
    }
}

/// The layers that are being merged, if there are any.
impl<T> Source for Option<Above<'_, T>> {
    type Value = Option<T>;

    fn next(&mut self) -> Result<Option<(B256, Option<T>)>, StateError> {
        self.as_mut().map_or(Ok(None), Source::next)
    }
}

/// Leaves of the snapshot, from a key on.
struct Below<'a, T> {
    leaves: TopLeaves<'a>,
    next: ReadBelow<'a, T>,
}

impl<T> Source for Below<'_, T> {
    type Value = Option<T>;

    fn next(&mut self) -> Result<Option<(B256, Option<T>)>, StateError> {
        let found = (self.next)(&mut self.leaves)?;
        Ok(found.map(|(key, value)| (key, Some(value))))
    }
}

/// The slots of an account that layers above the snapshot wrote, zeros included.
struct SlotsAbove(btree_map::IntoIter<B256, U256>);

impl Source for SlotsAbove {
    type Value = U256;

    fn next(&mut self) -> Result<Option<(B256, U256)>, StateError> {
        Ok(self.0.next())
    }
}

/// The slots of an account in the snapshot, if no layer cleared them.
impl Source for Option<Slots<'_>> {
    type Value = U256;

    fn next(&mut self) -> Result<Option<(B256, U256)>, StateError> {
        self.as_mut().map_or(Ok(None), Slots::next_slot)
    }
}
