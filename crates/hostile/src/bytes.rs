//! Inputs with one byte changed, or truncated at a byte.

use cambium_seeds::Random;
use std::fmt;

/// Change of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteChange {
    /// One bit is flipped.
    Flipped {
        /// Which one, from the lowest.
        bit: u32,
    },
    /// The byte is set to a value.
    Set(u8),
    /// The byte is removed.
    Removed,
    /// The byte is repeated.
    Doubled,
    /// The input ends before it.
    Cut,
}

impl ByteChange {
    const ALL: [Self; 14] = [
        Self::Flipped { bit: 0 },
        Self::Flipped { bit: 1 },
        Self::Flipped { bit: 2 },
        Self::Flipped { bit: 3 },
        Self::Flipped { bit: 4 },
        Self::Flipped { bit: 5 },
        Self::Flipped { bit: 6 },
        Self::Flipped { bit: 7 },
        Self::Set(0),
        Self::Set(0xff),
        Self::Set(b'"'),
        Self::Removed,
        Self::Doubled,
        Self::Cut,
    ];

    /// Returns `bytes` with this change at offset `at`.
    pub fn apply(self, bytes: &[u8], at: usize) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        match self {
            Self::Flipped { bit } => changed[at] ^= 1 << bit,
            Self::Set(value) => changed[at] = value,
            Self::Removed => drop(changed.remove(at)),
            Self::Doubled => changed.insert(at, bytes[at]),
            Self::Cut => changed.truncate(at),
        }
        changed
    }
}

/// An input with one change, which its `Display` names.
#[derive(Clone, Debug)]
pub struct ChangedBytes {
    /// The offset of the change.
    pub at: usize,
    /// The change.
    pub change: ByteChange,
    /// The changed input.
    pub bytes: Vec<u8>,
}

impl fmt::Display for ChangedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.change {
            ByteChange::Flipped { bit } => write!(f, "bit {bit} of byte {} flipped", self.at),
            ByteChange::Set(value) => write!(f, "byte {} set to {value:#04x}", self.at),
            ByteChange::Removed => write!(f, "byte {} removed", self.at),
            ByteChange::Doubled => write!(f, "byte {} doubled", self.at),
            ByteChange::Cut => write!(f, "cut at byte {}", self.at),
        }
    }
}

/// Returns `bytes` with each change at each offset, without changes that have no effect. If there
/// are more than `count`, draws about that many by `seed`, spread over all of `bytes`.
pub fn byte_changes(
    bytes: &[u8],
    count: usize,
    seed: u64,
) -> impl Iterator<Item = ChangedBytes> + use<'_> {
    let changes = ByteChange::ALL.len();
    let all = bytes.len() * changes;
    let stretch = all.div_ceil(count).max(1);
    let mut random = Random::new(seed);
    (0..all).step_by(stretch).filter_map(move |start| {
        let picked = start + random.below(stretch.min(all - start) as u64) as usize;
        let (at, change) = (picked / changes, ByteChange::ALL[picked % changes]);
        let changed = change.apply(bytes, at);
        (changed != bytes).then_some(ChangedBytes {
            at,
            change,
            bytes: changed,
        })
    })
}
