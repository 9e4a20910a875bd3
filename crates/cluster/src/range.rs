//! Which part of the state trie a shard owns.

use alloy_primitives::B256;
use cambium_primitives::Path;

/// The part of the state trie that one of several shards owns: the subtries below some first nibbles. All storage of an account is in
/// its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardRange {
    index: u16,
    count: u16,
}

/// A number of shards, or of one among them, that can't be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The state can't be divided so.
    #[error("{0} shards: a state has 1, 2, 4, 8, 16 or 256")]
    Count(usize),
    /// There is no such shard.
    #[error("there is no shard {index} of {count}: the last one is {}", count - 1)]
    Index {
        /// Number of the shard, from 0.
        index: usize,
        /// Number of shards.
        count: usize,
    },
}

impl ShardRange {
    /// Shard `index`, from 0, of `count`.
    ///
    /// # Errors
    ///
    /// If a state can't be divided into so many, or has no such shard.
    pub const fn new(index: usize, count: usize) -> Result<Self, RangeError> {
        if !matches!(count, 1 | 2 | 4 | 8 | 16 | 256) {
            return Err(RangeError::Count(count));
        }
        if index >= count {
            return Err(RangeError::Index { index, count });
        }
        Ok(Self {
            index: index as u16,
            count: count as u16,
        })
    }

    /// All shards of a state that is divided into `count`.
    ///
    /// # Errors
    ///
    /// If it can't be divided so.
    pub fn all(count: usize) -> Result<Vec<Self>, RangeError> {
        Self::new(0, count)?;
        (0..count).map(|index| Self::new(index, count)).collect()
    }

    /// Number of the shard, from 0.
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// Number of shards of the state.
    pub const fn count(self) -> usize {
        self.count as usize
    }

    /// Nibbles of the paths of its subtries.
    pub const fn depth(self) -> usize {
        match self.count {
            256 => 2,
            _ => 1,
        }
    }

    /// Number of subtries that it owns.
    pub const fn subtries(self) -> usize {
        match self.count {
            256 => 1,
            count => 16 / count as usize,
        }
    }

    /// The paths of its subtries, in order.
    pub fn prefixes(self) -> impl Iterator<Item = Path> {
        let first = self.index() * self.subtries();
        (first..first + self.subtries()).map(move |at| match self.depth() {
            1 => Path::from_nibbles(&[at as u8]),
            _ => Path::from_nibbles(&[at as u8 >> 4, at as u8 & 0x0f]),
        })
    }

    /// The number, among all subtries of all shards, of the one that an account is in.
    const fn subtrie_of(self, account: &B256) -> usize {
        let first = account.0[0] as usize;
        match self.depth() {
            1 => first >> 4,
            _ => first,
        }
    }

    /// Which of its subtries an account is in, if it owns the account.
    pub const fn place(self, account: &B256) -> Option<usize> {
        let at = self.subtrie_of(account);
        let first = self.index() * self.subtries();
        if at < first || at >= first + self.subtries() {
            return None;
        }
        Some(at - first)
    }

    /// Number of the shard, among `count`, that owns an account.
    pub const fn owner(self, account: &B256) -> usize {
        self.subtrie_of(account) / self.subtries()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_account_has_one_owner() {
        for count in [1, 2, 4, 8, 16, 256] {
            let shards = ShardRange::all(count).unwrap();
            for first in 0..=255_u8 {
                let mut account = B256::repeat_byte(7);
                account.0[0] = first;
                let owners: Vec<_> = shards
                    .iter()
                    .filter(|shard| shard.place(&account).is_some())
                    .collect();
                let [owner] = owners[..] else {
                    panic!("{first}: {owners:?}")
                };
                assert_eq!(owner.index(), shards[0].owner(&account));
                let place = owner.place(&account).unwrap();
                let prefix = owner.prefixes().nth(place).unwrap();
                assert!(Path::account(&account).starts_with(&prefix));
                assert_eq!(prefix.len(), owner.depth());
            }
        }
    }

    #[test]
    fn other_numbers_are_refused() {
        assert_eq!(
            ShardRange::new(0, 3).unwrap_err().to_string(),
            "3 shards: a state has 1, 2, 4, 8, 16 or 256"
        );
        assert_eq!(
            ShardRange::new(4, 4).unwrap_err().to_string(),
            "there is no shard 4 of 4: the last one is 3"
        );
    }
}
