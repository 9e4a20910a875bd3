//! Paths of accounts and slots in the state.
//!
//! The path of an account is the 64 nibbles of `keccak(address)`. The path of a slot is the path of
//! its account followed by the 64 nibbles of `keccak(slot)`. All paths share one ordered space, in
//! which the slots of an account follow it directly.

use alloy_primitives::B256;
use core::{cmp::Ordering, fmt};

/// Length of the path of an account, in nibbles.
pub const ACCOUNT_NIBBLES: usize = 64;
/// Length of the path of a slot, including that of its account, in nibbles.
pub const SLOT_NIBBLES: usize = 128;

/// Key of the leaf that stands for a whole storage trie, in databases that keep the storage of some contracts alone: its
/// value is the root of that trie. See `Commitment::PartialMpt` in `cambium-trie`. No slot has this key: keys of slots are
/// Keccak-256 hashes, and none with this value is known, which spells "root of a storage not kept here.".
pub const STORAGE_ROOT_KEY: B256 = B256::new(*b"root of a storage not kept here.");

/// The path of a leaf or a prefix of one: up to 128 nibbles.
///
/// Nibbles past the end are zero, so that comparing the packed bytes and then the lengths orders
/// paths as sequences of nibbles.
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
    /// The empty path, which is that of the root.
    pub const EMPTY: Self = Self {
        len: 0,
        bytes: [0; 64],
    };

    /// Creates the path of an account from `keccak(address)`.
    pub fn account(account: &B256) -> Self {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(account.as_slice());
        Self {
            len: ACCOUNT_NIBBLES as u8,
            bytes,
        }
    }

    /// Creates the path of a slot from `keccak(address)` and `keccak(slot)`.
    pub fn slot(account: &B256, slot: &B256) -> Self {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(account.as_slice());
        bytes[32..].copy_from_slice(slot.as_slice());
        Self {
            len: SLOT_NIBBLES as u8,
            bytes,
        }
    }

    /// Creates a path of `len` nibbles from packed bytes, high nibble first. Returns `None` if
    /// `len` is over 128, if `packed` does not have exactly `len.div_ceil(2)` bytes, or if the
    /// padding nibble is not zero.
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

    /// Creates a path from nibbles, one per byte.
    ///
    /// # Panics
    ///
    /// Panics if there are over 128 nibbles, or one is over 15.
    pub fn from_nibbles(nibbles: &[u8]) -> Self {
        let mut path = Self::EMPTY;
        for &nibble in nibbles {
            path.push(nibble);
        }
        path
    }

    /// Returns the number of nibbles.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the path is empty.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the nibbles as packed bytes, high nibble first. An odd last nibble is padded with
    /// zero.
    #[inline]
    pub fn packed(&self) -> &[u8] {
        &self.bytes[..self.len().div_ceil(2)]
    }

    /// Returns the nibble at `at`.
    ///
    /// # Panics
    ///
    /// Panics if `at` is out of range.
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

    /// Returns the nibbles in order.
    pub fn nibbles(&self) -> impl DoubleEndedIterator<Item = u8> + ExactSizeIterator + '_ {
        (0..self.len()).map(|at| self.nibble(at))
    }

    /// Appends a nibble.
    ///
    /// # Panics
    ///
    /// Panics if the path has 128 nibbles, or `nibble` is over 15.
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

    /// Returns the path with `nibble` appended.
    ///
    /// # Panics
    ///
    /// Panics if the path has 128 nibbles, or `nibble` is over 15.
    #[must_use]
    pub fn child(&self, nibble: u8) -> Self {
        let mut path = *self;
        path.push(nibble);
        path
    }

    /// Returns the path followed by `tail`.
    ///
    /// # Panics
    ///
    /// Panics if the result is over 128 nibbles.
    #[must_use]
    pub fn join(&self, tail: &Self) -> Self {
        let mut path = *self;
        for nibble in tail.nibbles() {
            path.push(nibble);
        }
        path
    }

    /// Shortens the path to `len` nibbles. Has no effect if the path is not longer.
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

    /// Returns the first `len` nibbles.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer.
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

    /// Returns the nibbles from `from` on.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer than `from`.
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

    /// Returns the first path of a leaf below this prefix, filled up with zeros: that of an account, or below
    /// an account that of a slot.
    #[must_use]
    pub const fn first_leaf(&self) -> Self {
        let len = match self.len() < ACCOUNT_NIBBLES {
            true => ACCOUNT_NIBBLES,
            false => SLOT_NIBBLES,
        };
        Self {
            len: len as u8,
            bytes: self.bytes,
        }
    }

    /// Returns whether the path begins with `prefix`.
    pub fn starts_with(&self, prefix: &Self) -> bool {
        self.common_prefix_len(prefix) == prefix.len()
    }

    /// Returns the length of the common prefix of both paths, in nibbles.
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

    /// Returns the first 64 nibbles, `keccak(address)`, or `None` if there are fewer.
    pub fn account_part(&self) -> Option<B256> {
        (self.len() >= ACCOUNT_NIBBLES).then(|| B256::from_slice(&self.bytes[..32]))
    }

    /// Returns the last 64 nibbles of the path of a slot, `keccak(slot)`, or `None` for any other
    /// path.
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
