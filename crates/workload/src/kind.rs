//! The kinds of transactions.

/// The kind of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Payment,
    TokenTransfer,
    Swap,
    SlotRead,
}

impl Kind {
    /// Maximum number of slots that a transaction creates.
    pub(crate) const fn new_slots_max(self) -> u64 {
        match self {
            Self::Payment | Self::SlotRead => 0,
            Self::TokenTransfer => 1,
            Self::Swap => 2,
        }
    }

    /// Upper bound of a transaction's encoded size in a block, in bytes.
    pub(crate) const fn bytes_max(self) -> u64 {
        match self {
            Self::Payment => 144,
            Self::SlotRead => 176,
            Self::TokenTransfer => 208,
            Self::Swap => 416,
        }
    }
}
