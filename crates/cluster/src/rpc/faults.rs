//! Errors of reads, as messages. What comes from outside is believed in nothing but what it says of itself.

use super::wire::{Block, Fault, FaultKind, StatusReply};
use crate::bag::ReadError;
use alloy_primitives::B256;
use cambium_primitives::BlockId;
use prost::bytes::Bytes;

/// Most bytes of a text for people that are kept of a message.
const TEXT_BYTES_MAX: usize = 1024;

impl From<BlockId> for Block {
    fn from(id: BlockId) -> Self {
        Self {
            number: id.number,
            hash: Bytes::copy_from_slice(id.hash.as_slice()),
        }
    }
}

impl Block {
    /// Number and hash, unless the hash has not 32 bytes.
    fn id(&self) -> Option<BlockId> {
        let hash = B256::try_from(&self.hash[..]).ok()?;
        Some(BlockId::new(self.number, hash))
    }
}

impl StatusReply {
    /// The oldest block of which the process has the state; `None` while it has none.
    pub fn oldest(&self) -> Option<BlockId> {
        self.oldest.as_ref().and_then(Block::id)
    }

    /// The block with the highest number of which it has the state; `None` while it has none.
    pub fn newest(&self) -> Option<BlockId> {
        self.newest.as_ref().and_then(Block::id)
    }
}

impl From<&ReadError> for Fault {
    fn from(error: &ReadError) -> Self {
        let mut fault = Self {
            what: error.to_string(),
            ..Self::default()
        };
        let kind = match error {
            ReadError::NotYet(block) => {
                fault.block = Some((*block).into());
                FaultKind::NotYet
            }
            ReadError::Gone { block, oldest } => {
                fault.block = Some((*block).into());
                fault.oldest = Some((*oldest).into());
                FaultKind::Gone
            }
            ReadError::OtherShard { account, .. } => {
                fault.hash = Bytes::copy_from_slice(account.as_slice());
                FaultKind::OtherShard
            }
            ReadError::NoCode(code) => {
                fault.hash = Bytes::copy_from_slice(code.as_slice());
                FaultKind::NoCode
            }
            ReadError::TooBig { bytes_max } => {
                fault.bytes_max = *bytes_max as u64;
                FaultKind::TooBig
            }
            ReadError::Request(_) => FaultKind::Request,
            ReadError::Unavailable { .. } => FaultKind::Unavailable,
        };
        fault.kind = kind.into();
        fault
    }
}

impl Fault {
    /// The error that a shard, `index` of `count`, answers a request for the state after `block` with.
    pub(crate) fn into_error(self, block: BlockId, index: usize, count: usize) -> ReadError {
        let hash = B256::try_from(&self.hash[..]).ok();
        let oldest = self.oldest.as_ref().and_then(Block::id);
        match (self.kind(), hash, oldest) {
            (FaultKind::NotYet, _, _) => ReadError::NotYet(block),
            (FaultKind::Gone, _, Some(oldest)) => ReadError::Gone { block, oldest },
            (FaultKind::OtherShard, Some(account), _) => ReadError::OtherShard {
                account,
                index,
                count,
            },
            (FaultKind::NoCode, Some(code), _) => ReadError::NoCode(code),
            (FaultKind::TooBig, _, _) => ReadError::TooBig {
                bytes_max: usize::try_from(self.bytes_max).unwrap_or(usize::MAX),
            },
            _ => ReadError::Unavailable {
                index,
                what: shortened(self.what),
            },
        }
    }
}

/// A text from outside, of bounded length.
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > TEXT_BYTES_MAX {
        let end = text.floor_char_boundary(TEXT_BYTES_MAX);
        text.truncate(end);
    }
    text
}
