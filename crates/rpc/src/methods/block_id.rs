//! Names of blocks in calls (EIP-1898).

use crate::{error::RpcError, params::Params, table::Call};
use alloy_eips::{BlockId, BlockNumberOrTag};
use cambium_history::StateAt;
use cambium_node::{BlockRef, FoundBlock};

/// The block of a tag or number. What is pending is the head: transactions that wait are not executed.
pub(super) const fn of_tag(tag: BlockNumberOrTag) -> BlockRef {
    match tag {
        BlockNumberOrTag::Latest | BlockNumberOrTag::Pending => BlockRef::Latest,
        BlockNumberOrTag::Earliest => BlockRef::Earliest,
        BlockNumberOrTag::Safe => BlockRef::Safe,
        BlockNumberOrTag::Finalized => BlockRef::Finalized,
        BlockNumberOrTag::Number(number) => BlockRef::Number(number),
    }
}

/// The block of a name, canonical if it has to be.
pub(super) fn block_ref(call: &Call<'_>, id: BlockId) -> Result<BlockRef, RpcError> {
    match id {
        BlockId::Number(tag) => Ok(of_tag(tag)),
        BlockId::Hash(hash) => {
            let block = BlockRef::Hash(hash.block_hash);
            if hash.require_canonical == Some(true) {
                call.node.canonical_id(block)?;
            }
            Ok(block)
        }
    }
}

/// The next parameter as a block, by default the head.
pub(super) fn or_latest(call: &Call<'_>, params: &mut Params<'_>) -> Result<BlockRef, RpcError> {
    match params.optional()? {
        None => Ok(BlockRef::Latest),
        Some(id) => block_ref(call, id),
    }
}

/// The state after the block that the next parameter names, by default the head.
pub(super) fn state(call: &Call<'_>, params: &mut Params<'_>) -> Result<StateAt, RpcError> {
    let block = or_latest(call, params)?;
    params.end()?;
    Ok(call.node.state_at(block)?)
}

/// A block, or nothing if there is none of this name.
pub(super) fn block(call: &Call<'_>, block: BlockRef) -> Result<Option<FoundBlock>, RpcError> {
    found(call.node.block(block).map_err(RpcError::from))
}

/// Nothing in place of the error that says so.
pub(super) fn found<T>(result: Result<T, RpcError>) -> Result<Option<T>, RpcError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_there() => Ok(None),
        Err(error) => Err(error),
    }
}
