//! What can be found out of a block before its turn comes: from the outside in, so that bytes of a
//! stranger take no more memory or work than what is known of them by then allows.
//!
//! ```text
//!   header    its length, its fields, and that it follows its parent's
//!   size      no more bytes and transactions than its gas limit pays for
//!   body      decoded, if the block is not there already
//!   senders   recovered from the signatures
//! ```

use crate::{
    Block, BlockFault, BodyError, Chain, ChainError, ChainSpec, HeaderError,
    body::validate_size,
    files::{decode_block, decode_header},
    validate_access_list, validate_header,
};
use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256};
use cambium_evm::{SignatureError, recover_senders};
use cambium_primitives::{AccessList, BlockId};
use std::collections::{HashMap, VecDeque};

/// A block with all that can be known of it without the state.
#[derive(Debug)]
pub struct PreparedBlock {
    pub(crate) id: BlockId,
    pub(crate) block: Block,
    pub(crate) rlp: Bytes,
    /// Nothing if they may not be needed.
    pub(crate) senders: Option<Result<Vec<Address>, SignatureError>>,
    pub(crate) access_list: Option<Result<AccessList, BodyError>>,
}

/// A block of which the header alone has been looked at.
#[derive(Clone, Debug)]
pub(crate) struct Announced {
    pub(crate) id: BlockId,
    header: Header,
    total_difficulty: U256,
}

impl Announced {
    fn is_post_merge_after(&self, spec: &ChainSpec, number: u64) -> bool {
        spec.is_post_merge(number, self.total_difficulty)
    }
}

/// The headers of blocks that are on their way, by hash: so many of the newest.
pub(crate) struct OnTheirWay {
    blocks: HashMap<B256, Announced>,
    order: VecDeque<B256>,
    max: usize,
}

impl OnTheirWay {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            blocks: HashMap::new(),
            order: VecDeque::new(),
            max,
        }
    }

    pub(crate) fn insert(&mut self, block: Announced) {
        let hash = block.id.hash;
        if self.blocks.insert(hash, block).is_none() {
            self.order.push_back(hash);
        }
        if self.order.len() > self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.blocks.remove(&oldest);
        }
    }
}

impl Chain {
    /// Finds out what can be known of a block without the state: whether its header follows its
    /// parent's, which must be here, its hash and its senders. `rlp` is the block's encoding, of
    /// which there is one; `access_list` is the RLP of the list that came with it, which is held
    /// against the header and, when the block is executed, against what it touches and changes.
    pub fn prepare(
        &self,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> Result<PreparedBlock, ChainError> {
        let header = decode_header(&rlp).map_err(ChainError::NotABlock)?;
        let announced = self.announce(header, &rlp, &OnTheirWay::new(0))?;
        let block = decode_block(&rlp).map_err(ChainError::NotABlock)?;
        Ok(self.prepare_block(announced.id, block, rlp, access_list))
    }

    /// Holds a header against its parent's, which is on its way or here, and the length of its
    /// block against both.
    pub(crate) fn announce(
        &self,
        header: Header,
        rlp: &[u8],
        on_their_way: &OnTheirWay,
    ) -> Result<Announced, ChainError> {
        let id = BlockId::new(header.number, header.hash_slow());
        let invalid = |fault: BlockFault| ChainError::invalid(id, fault);
        let parent = match on_their_way.blocks.get(&header.parent_hash) {
            Some(parent) => parent.clone(),
            None => {
                let known = self.known(self.parent_of(&header))?;
                let unknown = || invalid(BlockFault::UnknownParent(header.parent_hash));
                let known = known.ok_or_else(unknown)?;
                Announced {
                    id: BlockId::new(known.header.number, header.parent_hash),
                    header: known.header,
                    total_difficulty: known.total_difficulty,
                }
            }
        };
        let spec = self.spec();
        let post_merge = parent.is_post_merge_after(spec, header.number);
        let follows = validate_header(
            spec,
            &header,
            &parent.header,
            header.parent_hash,
            post_merge,
        );
        follows.map_err(|error: HeaderError| invalid(error.into()))?;
        validate_size(spec, &header, rlp, post_merge).map_err(|error| invalid(error.into()))?;
        let total_difficulty = parent.total_difficulty.saturating_add(header.difficulty);
        Ok(Announced {
            id,
            header,
            total_difficulty,
        })
    }

    /// What is left to be known of a block that has been announced, and decoded.
    pub(crate) fn prepare_block(
        &self,
        id: BlockId,
        block: Block,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> PreparedBlock {
        let transactions = block.body.transactions.len();
        // What is not executed needs no senders.
        let believed = self.is_applying() && access_list.is_some();
        let list = access_list.map(|list| validate_access_list(&block.header, transactions, list));
        PreparedBlock {
            id,
            senders: (!believed).then(|| self.senders(&block)),
            access_list: list,
            block,
            rlp,
        }
    }

    /// Who signed a block's transactions.
    pub(crate) fn senders(&self, block: &Block) -> Result<Vec<Address>, SignatureError> {
        let low = self.spec().has_low_signatures(&block.header);
        recover_senders(&block.body.transactions, low)
    }
}
