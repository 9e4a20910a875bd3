//! The data that the database stores with a block.

use crate::{Block, ChainError, error::unreadable};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256};
use alloy_rlp::Decodable;
use cambium_primitives::{AccessList, BlockId};
use cambium_state::BlockMeta;

/// The data of a block that validation of its descendants needs.
#[derive(Clone, Debug)]
pub(crate) struct KnownBlock {
    pub(crate) header: Header,
    pub(crate) total_difficulty: U256,
    pub(crate) ommers: Vec<B256>,
}

impl KnownBlock {
    /// The data of a block. `total_difficulty` includes the block.
    pub(crate) fn new(block: &Block, total_difficulty: U256) -> Self {
        Self {
            header: block.header.clone(),
            total_difficulty,
            ommers: block.body.ommers.iter().map(Header::hash_slow).collect(),
        }
    }

    /// The data of a child of `parent`.
    pub(crate) fn child_of(parent: &Self, block: &Block) -> Self {
        let added = block.header.difficulty;
        Self::new(block, parent.total_difficulty.saturating_add(added))
    }
}

/// Builds the metadata that the engine stores with a block. Its body:
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 32 | total difficulty including this block, big-endian |
/// | 32 | | the block's RLP |
/// | then | | the RLP of its access list, if its header has the list's hash |
pub(crate) fn meta(
    known: &KnownBlock,
    hash: B256,
    rlp: &[u8],
    access_list: Option<&AccessList>,
) -> BlockMeta {
    let header = &known.header;
    let difficulty = known.total_difficulty.to_be_bytes::<32>();
    let access_list = access_list.map(AccessList::encode).unwrap_or_default();
    BlockMeta {
        id: BlockId::new(header.number, hash),
        parent: header.parent_hash,
        state_root: header.state_root,
        body: [&difficulty[..], rlp, &access_list].concat().into(),
    }
}

/// A block as stored by [`meta`], not decoded.
pub(crate) struct StoredBlock {
    pub(crate) id: BlockId,
    pub(crate) total_difficulty: U256,
    pub(crate) rlp: Bytes,
    /// Empty if none was stored.
    pub(crate) access_list: Bytes,
}

impl StoredBlock {
    pub(crate) fn read(meta: BlockMeta) -> Result<Self, ChainError> {
        let BlockMeta { id, body, .. } = meta;
        let Some((difficulty, mut rest)) = body.split_at_checked(32) else {
            return Err(unreadable(id, "it is too short"));
        };
        let block = alloy_rlp::Header::decode_bytes(&mut rest, true);
        block.map_err(|error| unreadable(id, error))?;
        let end = body.len() - rest.len();
        Ok(Self {
            id,
            total_difficulty: U256::from_be_slice(difficulty),
            rlp: body.slice(32..end),
            access_list: body.slice(end..),
        })
    }

    /// Decodes the block.
    pub(crate) fn block(&self) -> Result<Block, ChainError> {
        Block::decode(&mut &self.rlp[..]).map_err(|error| unreadable(self.id, error))
    }
}
