//! Blocks by their names.

use crate::{BlockRef, Node, NodeError};
use alloy_consensus::Header;
use alloy_primitives::{B256, U256};
use alloy_rlp::Decodable;
use cambium_chain::{Block, BlockWitness, ChainError};
use cambium_history::{HistoryError, StateAt};
use cambium_index::IndexError;
use cambium_primitives::BlockId;
use cambium_state::StateError;

/// A block that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBlock {
    /// Its id.
    pub id: BlockId,
    /// The block.
    pub block: Block,
    /// Total difficulty of the chain up to it, itself included.
    pub total_difficulty: U256,
    /// Whether it is canonical.
    pub is_canonical: bool,
}

impl Node {
    /// The id of a block, on any branch. A hash is looked up in the index first, if there is one: that has the blocks
    /// that have left the log.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotMarked`] if no block was called safe or finalized, [`ChainError::NoSuchBlock`] and
    /// [`StateError::UnknownBlock`] if there is no such block, and the errors of the database and the index.
    pub fn id(&self, block: BlockRef) -> Result<BlockId, NodeError> {
        let db = self.db();
        let marked = |block: Option<BlockId>, what| block.ok_or(NodeError::NotMarked(what));
        match block {
            BlockRef::Latest => Ok(db.head()),
            BlockRef::Earliest => Ok(db.genesis()),
            BlockRef::Safe => marked(db.finality().safe, "safe"),
            BlockRef::Finalized => marked(db.finality().finalized, "finalized"),
            BlockRef::Number(number) => {
                let head = db.head();
                let found = db.block_id(number)?;
                Ok(found.ok_or(ChainError::NoSuchBlock { number, head })?)
            }
            BlockRef::Hash(hash) => self.id_of(hash),
        }
    }

    fn id_of(&self, hash: B256) -> Result<BlockId, NodeError> {
        let indexed = self.indexed_block(hash);
        if let Ok(Some(id)) = indexed {
            return Ok(id);
        }
        // A block that is not committed may turn out to be invalid.
        let committed = |id: Option<BlockId>| match id {
            Some(id) if self.db().has(id)? => Ok(id),
            _ => Err(StateError::UnknownBlock(hash)),
        };
        let found = self.db().search(&hash).and_then(committed);
        match (found, indexed) {
            (Ok(id), _) => Ok(id),
            // The block may be one that the index lacks.
            (Err(_), Err(error)) => Err(error.into()),
            (Err(error), Ok(_)) => Err(error.into()),
        }
    }

    /// The canonical block of that hash in the index, if there is an index and it has the block.
    fn indexed_block(&self, hash: B256) -> Result<Option<BlockId>, IndexError> {
        let Some(index) = self.index()? else {
            return Ok(None);
        };
        let found = index.find(self.db(), hash)?;
        let found = found.filter(|found| found.transaction.is_none());
        Ok(found.map(|found| found.block.id))
    }

    /// The id of a canonical block.
    ///
    /// # Errors
    ///
    /// [`NodeError::NotCanonical`] if the block is on another branch, and the errors of [`Node::id`].
    pub fn canonical_id(&self, block: BlockRef) -> Result<BlockId, NodeError> {
        let id = self.id(block)?;
        match self.is_canonical(id)? {
            true => Ok(id),
            false => Err(NodeError::NotCanonical(id)),
        }
    }

    /// The id of a block of the branch that ends in `head`, whether or not that is canonical.
    ///
    /// # Errors
    ///
    /// As [`Node::id`].
    pub fn id_below(&self, block: BlockRef, head: BlockId) -> Result<BlockId, NodeError> {
        match block {
            BlockRef::Latest => Ok(head),
            BlockRef::Number(number) => {
                let found = self.db().ancestor(head, number)?;
                Ok(found.ok_or(ChainError::NoSuchBlock { number, head })?)
            }
            block => self.id(block),
        }
    }

    pub(crate) fn is_canonical(&self, id: BlockId) -> Result<bool, StateError> {
        Ok(self.db().block_id(id.number)? == Some(id))
    }

    /// A block, on any branch.
    ///
    /// # Errors
    ///
    /// As [`Node::id`], and [`ChainError::Unreadable`] if its bytes don't decode as a block.
    pub fn block(&self, block: BlockRef) -> Result<FoundBlock, NodeError> {
        let id = self.id(block)?;
        let found = self.chain()?.block_of(id)?;
        let (block, total_difficulty) = found.ok_or(StateError::UnknownBlock(id.hash))?;
        Ok(FoundBlock {
            id,
            block,
            total_difficulty,
            is_canonical: self.is_canonical(id)?,
        })
    }

    /// The header of a block, on any branch. The rest of the block is not decoded. The headers that were asked for last are in memory.
    ///
    /// # Errors
    ///
    /// As [`Node::block`].
    pub fn header(&self, block: BlockRef) -> Result<(BlockId, Header), NodeError> {
        let id = self.id(block)?;
        if let Some(header) = self.headers().get(id) {
            return Ok((id, header));
        }
        let stored = self.chain()?.stored_of(id)?;
        let stored = stored.ok_or(StateError::UnknownBlock(id.hash))?;
        let mut rlp = &stored.body.rlp[..];
        let list = alloy_rlp::Header::decode_bytes(&mut rlp, true);
        let header = list.and_then(|mut list| Header::decode(&mut list));
        let header = header.map_err(|error| ChainError::unreadable(id, error))?;
        self.headers().keep(id, &header);
        Ok((id, header))
    }

    /// The witness of a canonical block, from the state before it: of an archive, or else from the block log.
    ///
    /// # Errors
    ///
    /// As [`Node::canonical_id`], [`ChainError::NotExecuted`] for the first block, and the errors of reading the state
    /// before the block.
    pub fn witness(&self, block: BlockRef) -> Result<BlockWitness, NodeError> {
        let id = self.canonical_id(block)?;
        let before = |parent: BlockId| -> Result<StateAt, HistoryError> {
            let archived = self.of_archive(parent.number)?;
            match archived.filter(|state| state.block() == parent) {
                Some(state) => Ok(state),
                None => Ok(self.db().view_of(parent)?.into()),
            }
        };
        let witness = self
            .chain()?
            .witness_on(id.number, |parent| Ok(before(parent)?));
        Ok(witness?)
    }
}
