//! Preparation of blocks for execution, without the state. Untrusted bytes are checked from the
//! outside in, so that each stage bounds the memory and work of the next.
//!
//! ```text
//!   header    checked: length, fields, against the parent's header
//!   size      checked: bytes and transactions, against the gas limit
//!   body      decoded, unless the database has the block
//!   senders   recovered from the signatures
//! ```

use crate::{
    Block, BlockFault, BodyError, Chain, ChainError, ChainSpec, HeaderError, StateUpdate,
    body::validate_size,
    files::{decode_block, decode_header},
    stored::StoredBlock,
    validate_access_list, validate_header,
};
use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256};
use cambium_evm::{SignatureError, recover_senders};
use cambium_primitives::{AccessList, BlockId};
use cambium_state::PagePin;
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// A decoded block with everything that can be computed without the state.
#[derive(Debug)]
pub struct PreparedBlock {
    pub(crate) id: BlockId,
    pub(crate) block: Block,
    pub(crate) rlp: Bytes,
    /// `None` if the block's access list or its state update is to be applied, which needs no senders, or if they are recovered
    /// while it is executed.
    pub(crate) senders: Option<Result<Vec<Address>, SignatureError>>,
    pub(crate) access_list: Option<Result<AccessList, BodyError>>,
    /// The state update that came with it, or why it can't be decoded.
    pub(crate) update: Option<Result<StateUpdate, String>>,
    /// Pages that its execution needs, read ahead or by execution itself.
    pub(crate) pin: Arc<PagePin>,
}

/// A block with everything that can be computed without the state, except its senders.
pub(crate) struct Decoded {
    id: BlockId,
    pub(crate) block: Block,
    rlp: Bytes,
    access_list: Option<Result<AccessList, BodyError>>,
    update: Option<Result<StateUpdate, String>>,
    /// Not if it is not going to be executed.
    pub(crate) needs_senders: bool,
    pin: Arc<PagePin>,
}

impl Decoded {
    /// Completes the preparation with the senders, which are dropped if the block needs none.
    pub(crate) fn with_senders(
        self,
        senders: Result<Vec<Address>, SignatureError>,
    ) -> PreparedBlock {
        PreparedBlock {
            id: self.id,
            block: self.block,
            rlp: self.rlp,
            senders: self.needs_senders.then_some(senders),
            access_list: self.access_list,
            update: self.update,
            pin: self.pin,
        }
    }
}

impl PreparedBlock {
    /// Number and hash of the block.
    pub const fn id(&self) -> BlockId {
        self.id
    }

    /// The decoded block.
    pub const fn block(&self) -> &Block {
        &self.block
    }

    /// The block's encoding.
    pub const fn rlp(&self) -> &Bytes {
        &self.rlp
    }

    /// The sender of each transaction. `None` if a signature is invalid, which executing the block
    /// reports, or if the block's access list or its state update is going to be applied, which needs no senders.
    pub fn senders(&self) -> Option<&[Address]> {
        self.senders.as_ref()?.as_ref().ok().map(Vec::as_slice)
    }
}

/// A block of the database, with the inputs for executing it again.
pub(crate) struct BlockAgain {
    pub(crate) block: Block,
    pub(crate) senders: Vec<Address>,
    pub(crate) post_merge: bool,
}

/// A block whose header has been validated.
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

/// The most recent announced blocks, by hash, up to a maximum number.
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
    /// Prepares a block for [`execute`](Self::execute): validates its header against its parent's,
    /// decodes it, and recovers its senders. `rlp` is the block's canonical encoding. `access_list`
    /// is the RLP of the access list that came with the block; it is compared with the header here,
    /// and with the outcome of execution later.
    ///
    /// # Errors
    ///
    /// If `rlp` does not encode a block, the header is invalid, or its parent is unknown. Other
    /// faults are errors of [`execute`](Self::execute).
    pub fn prepare(
        &self,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> Result<PreparedBlock, ChainError> {
        let (announced, block) = self.announced_block(&rlp)?;
        Ok(self.recovered(self.decoded(announced.id, block, rlp, access_list, None)))
    }

    /// Prepares a block as [`prepare`](Self::prepare) that the caller has decoded, or composed of a payload. `rlp` is the
    /// encoding of `block`, which is not verified.
    ///
    /// # Errors
    ///
    /// As [`prepare`](Self::prepare), but for [`ChainError::NotABlock`].
    pub fn prepare_decoded(
        &self,
        block: Block,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> Result<PreparedBlock, ChainError> {
        Ok(self.recovered(self.decoded_by_caller(block, rlp, access_list)?))
    }

    /// Prepares a block as [`prepare_decoded`](Self::prepare_decoded), to be executed at once: without senders, which are recovered while it
    /// is executed.
    pub(crate) fn prepare_unrecovered(
        &self,
        block: Block,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> Result<PreparedBlock, ChainError> {
        let decoded = self.decoded_by_caller(block, rlp, access_list)?;
        Ok(PreparedBlock {
            senders: None,
            ..decoded.with_senders(Ok(Vec::new()))
        })
    }

    /// All but the senders of a block that the caller has decoded, with a valid header.
    fn decoded_by_caller(
        &self,
        block: Block,
        rlp: Bytes,
        access_list: Option<&[u8]>,
    ) -> Result<Decoded, ChainError> {
        debug_assert_eq!(alloy_rlp::encode(&block), *rlp);
        let announced = self.announce(block.header.clone(), &rlp, &OnTheirWay::new(0))?;
        Ok(self.decoded(announced.id, block, rlp, access_list, None))
    }

    /// Completes the preparation on the calling thread.
    fn recovered(&self, decoded: Decoded) -> PreparedBlock {
        let senders = match decoded.needs_senders {
            true => self.senders(&decoded.block),
            false => Ok(Vec::new()),
        };
        decoded.with_senders(senders)
    }

    /// A block by itself, with a valid header.
    fn announced_block(&self, rlp: &Bytes) -> Result<(Announced, Block), ChainError> {
        let header = decode_header(rlp).map_err(ChainError::NotABlock)?;
        let announced = self.announce(header, rlp, &OnTheirWay::new(0))?;
        let block = decode_block(rlp).map_err(ChainError::NotABlock)?;
        Ok((announced, block))
    }

    /// Prepares a block as [`prepare`](Self::prepare), with its state update, which is applied instead of executing it:
    /// a partial database can't execute blocks. The update is untrusted, and the state root that it leads to is verified.
    ///
    /// # Errors
    ///
    /// As [`prepare`](Self::prepare).
    pub fn prepare_with_update(
        &self,
        rlp: Bytes,
        update: StateUpdate,
    ) -> Result<PreparedBlock, ChainError> {
        let (announced, block) = self.announced_block(&rlp)?;
        let decoded = self.decoded(announced.id, block, rlp, None, None);
        // It is not executed, and needs no senders.
        Ok(PreparedBlock {
            update: Some(Ok(update)),
            ..decoded.with_senders(Ok(Vec::new()))
        })
    }

    /// Validates a header against its parent's, which is announced or in the database, and the size
    /// of its block.
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

    /// Prepares an announced block, all but its senders.
    pub(crate) fn decoded(
        &self,
        id: BlockId,
        block: Block,
        rlp: Bytes,
        access_list: Option<&[u8]>,
        update: Option<&[u8]>,
    ) -> Decoded {
        let transactions = block.body.transactions.len();
        let (number, hash) = (id.number, id.hash);
        let _span = tracing::debug_span!("prepare", number, %hash, transactions).entered();
        // A block that is not executed needs no senders.
        let applied = self.is_applying() && access_list.is_some() || update.is_some();
        let list = access_list.map(|list| validate_access_list(&block.header, transactions, list));
        Decoded {
            id,
            needs_senders: !applied,
            access_list: list,
            update: update.map(StateUpdate::decode),
            block,
            rlp,
            pin: self.db().page_pin(),
        }
    }

    /// Prepares a stored block to be executed again, on any branch.
    pub(crate) fn prepare_again(&self, stored: &StoredBlock) -> Result<BlockAgain, ChainError> {
        let block = stored.block()?;
        let header = &block.header;
        let before = stored
            .body
            .total_difficulty
            .saturating_sub(header.difficulty);
        let senders = self.senders(&block);
        Ok(BlockAgain {
            post_merge: self.spec().is_post_merge(header.number, before),
            senders: senders.map_err(|error| ChainError::invalid(stored.id, error))?,
            block,
        })
    }

    /// The sender of each of a block's transactions, from its signature.
    ///
    /// # Errors
    ///
    /// [`ChainError::Block`] if a signature is invalid by the rules of the block.
    pub fn senders_of(&self, block: &Block) -> Result<Vec<Address>, ChainError> {
        let invalid = |error: SignatureError| {
            let header = &block.header;
            ChainError::invalid(BlockId::new(header.number, header.hash_slow()), error)
        };
        self.senders(block).map_err(invalid)
    }

    /// Recovers the senders of a block's transactions.
    pub(crate) fn senders(&self, block: &Block) -> Result<Vec<Address>, SignatureError> {
        let low = self.spec().has_low_signatures(&block.header);
        recover_senders(&block.body.transactions, low)
    }
}
