//! Why an update is refused.

use crate::top::TopError;
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use cambium_trie::TrieError;

/// Why an update is refused. The shard is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The block has another hash than it is named by.
    #[error("the update of block {named} has a header that hashes to {got}")]
    OtherHeader {
        /// The name.
        named: BlockId,
        /// Number and hash of the header.
        got: BlockId,
    },
    /// The parent is not known.
    #[error("block {id} is a child of {parent}, which this shard does not know")]
    NoParent {
        /// The block of the update.
        id: BlockId,
        /// Hash of its parent.
        parent: B256,
    },
    /// The block's number does not follow its parent's.
    #[error("block {id} is a child of block {parent}: its number does not follow")]
    Number {
        /// The block of the update.
        id: BlockId,
        /// Its parent.
        parent: BlockId,
    },
    /// Top nodes and state root, or the shard's root, do not fit.
    #[error("block {id}: {source}")]
    Top {
        /// The block of the update.
        id: BlockId,
        /// What does not fit.
        source: Box<TopError>,
    },
    /// The changes don't fit the parent's state.
    #[error("block {id}: {source}")]
    Changes {
        /// The block of the update.
        id: BlockId,
        /// What does not fit.
        source: Box<TrieError>,
    },
    /// An account has a code that neither the update nor the shard has.
    #[error("block {id}: account {account} has the code {code}, which is not in the update")]
    NoCode {
        /// The block of the update.
        id: BlockId,
        /// Path of the account.
        account: B256,
        /// Hash of the code.
        code: B256,
    },
    /// There is no room for another version.
    #[error(
        "block {id}: the shard has {versions} versions of {bytes} bytes, the most that it may have: finalize a block"
    )]
    Full {
        /// The block of the update.
        id: BlockId,
        /// Number of versions.
        versions: usize,
        /// Bytes of memory.
        bytes: usize,
    },
    /// A block that is to be final, or the head, is not known.
    #[error("block {0} is not known here")]
    Unknown(BlockId),
}

impl ApplyError {
    /// The names of the reasons for which an update is never applied: not for room, and not for what is no update.
    pub const REFUSALS: [&'static str; 6] = [
        "other_header",
        "no_parent",
        "number",
        "top",
        "changes",
        "no_code",
    ];

    /// Name of the reason, for counters.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::OtherHeader { .. } => "other_header",
            Self::NoParent { .. } => "no_parent",
            Self::Number { .. } => "number",
            Self::Top { .. } => "top",
            Self::Changes { .. } => "changes",
            Self::NoCode { .. } => "no_code",
            Self::Full { .. } => "full",
            Self::Unknown(_) => "unknown",
        }
    }

    pub(super) fn top(id: BlockId, error: TopError) -> Self {
        let source = Box::new(error);
        Self::Top { id, source }
    }

    pub(super) fn changes(id: BlockId, error: TrieError) -> Self {
        let source = Box::new(error);
        Self::Changes { id, source }
    }
}
