//! Ranges of keys, with both ends included: so a range says exactly how far an iteration got.

use alloy_primitives::{B256, U256};
use std::{
    fmt,
    ops::{Bound, RangeBounds},
};

/// The keys from `from` through `through`, both included. A range has at least one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyRange {
    from: B256,
    through: B256,
}

impl KeyRange {
    /// All keys.
    pub const ALL: Self = Self {
        from: B256::ZERO,
        through: B256::repeat_byte(0xff),
    };

    /// The keys from `from` through `through`; `None` if there are none.
    pub fn new(from: B256, through: B256) -> Option<Self> {
        (from <= through).then_some(Self { from, through })
    }

    /// The one key.
    pub const fn of(key: B256) -> Self {
        Self {
            from: key,
            through: key,
        }
    }

    /// The keys within `bounds`; `None` if there are none.
    pub fn within(bounds: impl RangeBounds<B256>) -> Option<Self> {
        let from = match bounds.start_bound() {
            Bound::Included(key) => *key,
            Bound::Excluded(key) => successor(key)?,
            Bound::Unbounded => Self::ALL.from,
        };
        let through = match bounds.end_bound() {
            Bound::Included(key) => *key,
            Bound::Excluded(key) => predecessor(key)?,
            Bound::Unbounded => Self::ALL.through,
        };
        Self::new(from, through)
    }

    /// The keys that begin with `prefix`; `None` if the prefix is longer than a key.
    pub fn with_prefix(prefix: &[u8]) -> Option<Self> {
        let mut range = Self::ALL;
        range.from.get_mut(..prefix.len())?.copy_from_slice(prefix);
        range.through[..prefix.len()].copy_from_slice(prefix);
        Some(range)
    }

    /// The first key.
    pub const fn from(&self) -> B256 {
        self.from
    }

    /// The last key.
    pub const fn through(&self) -> B256 {
        self.through
    }

    /// The key after the last one, at which the next range begins; `None` after the last key of all.
    pub fn after(&self) -> Option<B256> {
        successor(&self.through)
    }

    /// Whether the key is in the range.
    pub fn contains(&self, key: &B256) -> bool {
        self.from <= *key && *key <= self.through
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} through {:#x}", self.from, self.through)
    }
}

/// The next key; `None` after the last one.
pub(crate) fn successor(key: &B256) -> Option<B256> {
    let next = U256::from_be_bytes(key.0).checked_add(U256::from(1))?;
    Some(next.into())
}

/// The key before; `None` before the first one.
pub(crate) fn predecessor(key: &B256) -> Option<B256> {
    let before = U256::from_be_bytes(key.0).checked_sub(U256::from(1))?;
    Some(before.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_all_kinds_become_included_ends() {
        let key = B256::with_last_byte;
        let range = |from, through| KeyRange::new(key(from), key(through));
        assert_eq!(KeyRange::within(key(3)..key(5)), range(3, 4));
        assert_eq!(KeyRange::within(key(3)..=key(5)), range(3, 5));
        assert_eq!(
            KeyRange::within((Bound::Excluded(key(3)), Bound::Included(key(5)))),
            range(4, 5)
        );
        assert_eq!(KeyRange::within(..=key(5)), range(0, 5));
        assert_eq!(KeyRange::within(..), Some(KeyRange::ALL));
    }

    #[test]
    fn ranges_without_keys_are_none() {
        let key = B256::with_last_byte;
        assert_eq!(KeyRange::within(key(5)..key(5)), None);
        assert_eq!(KeyRange::within(..B256::ZERO), None);
        let last = KeyRange::ALL.through();
        assert_eq!(
            KeyRange::within((Bound::Excluded(last), Bound::Unbounded)),
            None
        );
        assert_eq!(KeyRange::new(key(5), key(4)), None);
    }

    #[test]
    fn a_prefix_is_the_range_of_keys_that_begin_with_it() {
        let range = KeyRange::with_prefix(&[1, 2]).unwrap();
        assert!(range.contains(&B256::right_padding_from(&[1, 2])));
        assert!(!range.contains(&B256::right_padding_from(&[1, 3])));
        assert!(!range.contains(&predecessor(&range.from()).unwrap()));
        assert_eq!(
            successor(&range.through()),
            Some(B256::right_padding_from(&[1, 3]))
        );
        assert_eq!(KeyRange::with_prefix(&[]), Some(KeyRange::ALL));
        let whole = KeyRange::with_prefix(&[7; 32]).unwrap();
        assert_eq!(whole.from(), whole.through());
        assert_eq!(KeyRange::with_prefix(&[7; 33]), None);
    }
}
