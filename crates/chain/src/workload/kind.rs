//! The kinds of transactions.

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Payment,
    TokenTransfer,
    Swap,
    SlotRead,
}

impl Kind {
    /// Most slots that a transaction makes.
    pub(super) const fn new_slots_max(self) -> u64 {
        match self {
            Self::Payment | Self::SlotRead => 0,
            Self::TokenTransfer => 1,
            Self::Swap => 2,
        }
    }

    /// More than a transaction takes in a block.
    pub(super) const fn bytes_max(self) -> u64 {
        match self {
            Self::Payment => 144,
            Self::SlotRead => 176,
            Self::TokenTransfer => 208,
            Self::Swap => 416,
        }
    }
}
