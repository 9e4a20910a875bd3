//! The data that the database stores with a block.

use crate::{Block, ChainError};
use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256};
use alloy_rlp::Decodable;
use cambium_evm::Receipt;
use cambium_index::{IndexedBlock, StoredBody, pack_receipts};
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

/// Builds the metadata that the engine stores with a block. Its body is a [`StoredBody`]; `receipts` and `preimages`
/// are packed.
pub(crate) fn meta(
    known: &KnownBlock,
    hash: B256,
    rlp: &[u8],
    access_list: Option<&AccessList>,
    receipts: Option<&[u8]>,
    preimages: Option<&[u8]>,
) -> BlockMeta {
    let header = &known.header;
    BlockMeta {
        id: BlockId::new(header.number, hash),
        parent: header.parent_hash,
        state_root: header.state_root,
        body: body(
            known.total_difficulty,
            rlp,
            access_list,
            receipts,
            preimages,
        ),
    }
}

/// Encodes a [`StoredBody`]. `receipts` and `preimages` are packed.
pub(crate) fn body(
    total_difficulty: U256,
    rlp: &[u8],
    access_list: Option<&AccessList>,
    receipts: Option<&[u8]>,
    preimages: Option<&[u8]>,
) -> Bytes {
    let access_list = access_list.map(AccessList::encode).unwrap_or_default();
    StoredBody::encode(total_difficulty, rlp, &access_list, receipts, preimages)
}

/// Compresses receipts, to be stored with their block. A block without transactions needs none.
pub fn packed_receipts(receipts: &[Receipt]) -> Option<Vec<u8>> {
    if receipts.is_empty() {
        return None;
    }
    let mut rlp = Vec::new();
    alloy_rlp::encode_list(receipts, &mut rlp);
    Some(pack_receipts(&rlp))
}

/// A block as it is stored, not decoded.
#[derive(Clone, Debug)]
pub struct StoredBlock {
    /// The block.
    pub id: BlockId,
    /// RLP of the block, and its access list, receipts and preimages where these are kept.
    pub body: StoredBody,
}

impl StoredBlock {
    pub(crate) fn read(meta: BlockMeta) -> Result<Self, ChainError> {
        let BlockMeta { id, body, .. } = meta;
        let body = StoredBody::decode(&body).map_err(|error| ChainError::unreadable(id, error))?;
        Ok(Self { id, body })
    }

    /// Decodes the block.
    ///
    /// # Errors
    ///
    /// [`ChainError::Unreadable`] if its bytes don't decode as a block.
    pub fn block(&self) -> Result<Block, ChainError> {
        Block::decode(&mut &self.body.rlp[..])
            .map_err(|error| ChainError::unreadable(self.id, error))
    }

    /// Decodes the receipts; `None` if they are not stored.
    ///
    /// # Errors
    ///
    /// [`ChainError::Unreadable`] if their bytes don't decode as receipts.
    pub fn receipts(&self) -> Result<Option<Vec<Receipt>>, ChainError> {
        let rlp = self.body.receipts_rlp();
        let Some(rlp) = rlp.map_err(|error| ChainError::unreadable(self.id, error))? else {
            return Ok(None);
        };
        let decoded = Vec::decode(&mut &rlp[..]);
        decoded
            .map(Some)
            .map_err(|error| ChainError::unreadable(self.id, error))
    }
}

impl From<IndexedBlock> for StoredBlock {
    fn from(block: IndexedBlock) -> Self {
        let IndexedBlock { id, body } = block;
        Self { id, body }
    }
}
