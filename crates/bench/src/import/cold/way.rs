//! The ways of importing that are compared.

use cambium_chain::{BlockExecutor, Chain, ExecutorKind, READ_AHEAD_DEFAULT};
use serde::{Deserialize, Serialize};

/// A way of importing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Way {
    /// In sequence; each read waits for the disk.
    OnDemand,
    /// In sequence; what blocks need is read before they need it.
    Ahead,
    /// Speculatively in parallel, without access lists.
    Optimistic,
    /// In parallel, with access lists.
    Lists,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [Self::OnDemand, Self::Ahead, Self::Optimistic, Self::Lists];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "sequential, reading on demand",
            Self::Ahead => "sequential, reading ahead",
            Self::Optimistic => "optimistic",
            Self::Lists => "parallel with lists",
        }
    }

    /// Column heading in the table of the report.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::OnDemand => "on demand",
            Self::Ahead => "ahead",
            Self::Optimistic => "optimistic",
            Self::Lists => "lists",
        }
    }

    pub(super) const fn has_lists(self) -> bool {
        matches!(self, Self::Lists)
    }

    /// Sets how a chain imports blocks.
    pub(super) fn set(self, chain: Chain) -> Chain {
        let kind = match self {
            Self::OnDemand | Self::Ahead => ExecutorKind::Sequential,
            Self::Optimistic => ExecutorKind::Optimistic,
            Self::Lists => ExecutorKind::Parallel,
        };
        let read_ahead = match self {
            Self::OnDemand => 0,
            Self::Ahead | Self::Optimistic | Self::Lists => READ_AHEAD_DEFAULT,
        };
        chain
            .with_executor(BlockExecutor::new(kind))
            .with_read_ahead(read_ahead)
    }
}
