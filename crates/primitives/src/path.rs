//! Paths: where a leaf lives in the state.
//!
//! An account's path is the 64 nibbles of keccak(address); a slot's path is its account's path
//! followed by the 64 nibbles of keccak(slot). Both kinds share one ordered space: an account
//! comes just before its slots, so a run of neighbouring leaves is a run of whole accounts, or
//! lies within one account's storage.

use alloy_primitives::B256;
use core::{cmp::Ordering, fmt};

/// Nibbles of an account's path.
pub const ACCOUNT_NIBBLES: usize = 64;
/// Nibbles of a slot's path, its account's included.
pub const SLOT_NIBBLES: usize = 128;

/// Up to 128 nibbles: a leaf's path, or a prefix of one.
///
/// Nibbles past the end are kept zero, so that comparing the packed bytes and then the lengths
/// orders paths as sequences of nibbles.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    len: u8,
    bytes: [u8; 64],
}

impl Default for Path {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Path {
    /// The empty path: the root's.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; 64],
    };

    /// The path of an account: all of `account`'s 64 nibbles.
    pub fn account(account: &B256) -> Self {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(account.as_slice());
        Self {
            len: ACCOUNT_NIBBLES as u8,
            bytes,
        }
    }

    /// The path of a slot: its account's 64 nibbles, then its own.
    pub fn slot(account: &B256, slot: &B256) -> Self {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(account.as_slice());
        bytes[32..].copy_from_slice(slot.as_slice());
        Self {
            len: SLOT_NIBBLES as u8,
            bytes,
        }
    }

    /// The first `len` nibbles packed in `packed`, high nibble first. `None` if `len` is over
    /// 128, or `packed` is not of exactly `len.div_ceil(2)` bytes, or the last half byte is not
    /// zero padding.
    pub fn from_packed(packed: &[u8], len: usize) -> Option<Self> {
        if len > SLOT_NIBBLES || packed.len() != len.div_ceil(2) {
            return None;
        }
        if len % 2 == 1 && packed[len / 2] & 0x0f != 0 {
            return None;
        }
        let mut bytes = [0; 64];
        bytes[..packed.len()].copy_from_slice(packed);
        Some(Self {
            len: len as u8,
            bytes,
        })
    }

    /// From nibbles, one a byte. Panics if there are over 128 or one is over 15.
    pub fn from_nibbles(nibbles: &[u8]) -> Self {
        let mut path = Self::EMPTY;
        for &nibble in nibbles {
            path.push(nibble);
        }
        path
    }

    /// Number of nibbles.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// True for the root's path.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Two nibbles a byte, high one first; an odd last one has a zero beside it.
    #[inline]
    pub fn packed(&self) -> &[u8] {
        &self.bytes[..self.len().div_ceil(2)]
    }

    /// The nibble at `at`. Panics past the end.
    #[inline]
    pub fn nibble(&self, at: usize) -> u8 {
        assert!(at < self.len(), "nibble {at} of a path of {}", self.len());
        let byte = self.bytes[at / 2];
        if at.is_multiple_of(2) {
            byte >> 4
        } else {
            byte & 0x0f
        }
    }

    /// The nibbles, in order.
    pub fn nibbles(&self) -> impl DoubleEndedIterator<Item = u8> + ExactSizeIterator + '_ {
        (0..self.len()).map(|at| self.nibble(at))
    }

    /// Appends a nibble. Panics at 128, or if `nibble` is over 15.
    pub fn push(&mut self, nibble: u8) {
        assert!(
            nibble < 16 && self.len() < SLOT_NIBBLES,
            "nibble {nibble} after {}",
            self.len()
        );
        let at = self.len();
        self.bytes[at / 2] |= if at.is_multiple_of(2) {
            nibble << 4
        } else {
            nibble
        };
        self.len += 1;
    }

    /// This path with `nibble` appended.
    #[must_use]
    pub fn child(&self, nibble: u8) -> Self {
        let mut path = *self;
        path.push(nibble);
        path
    }

    /// This path followed by `tail`. Panics if that is over 128 nibbles.
    #[must_use]
    pub fn join(&self, tail: &Self) -> Self {
        let mut path = *self;
        for nibble in tail.nibbles() {
            path.push(nibble);
        }
        path
    }

    /// Shortens to `len` nibbles; no effect if it is not longer.
    pub fn truncate(&mut self, len: usize) {
        if len >= self.len() {
            return;
        }
        if len % 2 == 1 {
            self.bytes[len / 2] &= 0xf0;
        }
        self.bytes[len.div_ceil(2)..usize::from(self.len).div_ceil(2)].fill(0);
        self.len = len as u8;
    }

    /// The first `len` nibbles. Panics if there are fewer.
    #[must_use]
    pub fn prefix(&self, len: usize) -> Self {
        assert!(
            len <= self.len(),
            "prefix {len} of a path of {}",
            self.len()
        );
        let mut path = *self;
        path.truncate(len);
        path
    }

    /// The nibbles from `from` on. Panics if there are fewer.
    #[must_use]
    pub fn suffix(&self, from: usize) -> Self {
        assert!(
            from <= self.len(),
            "suffix {from} of a path of {}",
            self.len()
        );
        if from.is_multiple_of(2) {
            let mut bytes = [0; 64];
            let end = self.len().div_ceil(2);
            bytes[..end - from / 2].copy_from_slice(&self.bytes[from / 2..end]);
            return Self {
                len: self.len - from as u8,
                bytes,
            };
        }
        let mut path = Self::EMPTY;
        for at in from..self.len() {
            path.push(self.nibble(at));
        }
        path
    }

    /// Whether this path begins with `prefix`.
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.common_prefix_len(prefix) == prefix.len()
    }

    /// How many nibbles the two share from the start.
    pub fn common_prefix_len(&self, other: &Self) -> usize {
        let max = self.len().min(other.len());
        let bytes = max.div_ceil(2);
        for at in 0..bytes {
            let diff = self.bytes[at] ^ other.bytes[at];
            if diff != 0 {
                return (at * 2 + usize::from(diff < 16)).min(max);
            }
        }
        max
    }

    /// The first 64 nibbles as an account's path. `None` if there are fewer.
    pub fn account_part(&self) -> Option<B256> {
        (self.len() >= ACCOUNT_NIBBLES).then(|| B256::from_slice(&self.bytes[..32]))
    }

    /// The last 64 nibbles of a whole slot's path. `None` for any other.
    pub fn slot_part(&self) -> Option<B256> {
        (self.len() == SLOT_NIBBLES).then(|| B256::from_slice(&self.bytes[32..]))
    }
}

impl Ord for Path {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes.cmp(&other.bytes).then(self.len.cmp(&other.len))
    }
}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("(root)");
        }
        self.nibbles()
            .try_for_each(|nibble| write!(f, "{nibble:x}"))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn model(nibbles: &[u8]) -> Path {
        Path::from_nibbles(nibbles)
    }

    proptest! {
        #[test]
        fn behaves_as_a_vector_of_nibbles(
            a in proptest::collection::vec(0u8..16, 0..128),
            b in proptest::collection::vec(0u8..16, 0..128),
            cut in 0usize..128,
        ) {
            let (pa, pb) = (model(&a), model(&b));
            let cut = cut.min(a.len());
            prop_assert_eq!(pa.nibbles().collect::<Vec<_>>(), a.clone());
            prop_assert_eq!(pa.cmp(&pb), a.cmp(&b));
            prop_assert_eq!(pa.prefix(cut), model(&a[..cut]));
            prop_assert_eq!(pa.suffix(cut), model(&a[cut..]));
            prop_assert_eq!(pa.prefix(cut).join(&pa.suffix(cut)), pa);
            let common = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(pa.common_prefix_len(&pb), common);
            prop_assert_eq!(pa.starts_with(&pb), a.starts_with(&b));
            prop_assert_eq!(Path::from_packed(pa.packed(), pa.len()), Some(pa));
        }
    }

    #[test]
    fn an_account_sorts_just_before_its_slots() {
        let account = Path::account(&B256::repeat_byte(7));
        let slot = Path::slot(&B256::repeat_byte(7), &B256::ZERO);
        assert!(account < slot && slot.starts_with(&account));
        assert!(slot < Path::account(&B256::repeat_byte(8)));
    }
}
