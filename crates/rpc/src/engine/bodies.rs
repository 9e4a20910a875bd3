//! Bodies of blocks.

use super::ssz::StoredBody;
use crate::{error::RpcError, params::Params, reply::Reply, table::Call};
use alloy_primitives::{B256, Bytes, U64};
use alloy_rpc_types_engine::{ExecutionPayloadBodyV1, ExecutionPayloadBodyV2};
use cambium_chain::ChainError;
use cambium_node::BlockRef;
use cambium_primitives::BlockId;

/// Most bodies of an answer.
const BODIES_MAX: usize = 1024;

/// The error of a request for more at once than there may be.
pub(super) fn too_large(got: usize, most: usize) -> RpcError {
    RpcError::new(
        RpcError::TOO_LARGE_REQUEST,
        format!("Too large request: {got} are asked for, {most} at most"),
    )
}

/// Reads a body, if it is there.
pub(super) fn stored_body(call: &Call<'_>, id: BlockId) -> Result<Option<StoredBody>, RpcError> {
    let stored = match call.node.chain()?.stored_of(id) {
        Ok(Some(stored)) => stored,
        Ok(None) => return Ok(None),
        Err(error) => return gone(error.into()),
    };
    let block = stored.block()?;
    let list = stored.body.access_list;
    let has_list = block.header.block_access_list_hash.is_some() && !list.is_empty();
    Ok(Some(StoredBody {
        block,
        access_list: has_list.then(|| Bytes::from(list.to_vec())),
    }))
}

/// Nothing for what is not there any more.
fn gone<T>(error: RpcError) -> Result<Option<T>, RpcError> {
    match error.code {
        RpcError::NOT_FOUND | RpcError::PRUNED => Ok(None),
        _ => Err(error),
    }
}

/// The block of each hash, if it is known.
pub(super) fn ids_by_hash(
    call: &Call<'_>,
    hashes: Vec<B256>,
    most: usize,
) -> Result<impl Iterator<Item = Result<Option<BlockId>, RpcError>>, RpcError> {
    if hashes.len() > most {
        return Err(too_large(hashes.len(), most));
    }
    Ok(hashes.into_iter().map(|hash| {
        let id = call.node.id(BlockRef::Hash(hash));
        id.map(Some).or_else(|error| gone(error.into()))
    }))
}

/// The canonical block at each number, up to the head.
pub(super) fn ids_by_range(
    call: &Call<'_>,
    start: u64,
    count: u64,
    most: usize,
) -> Result<impl Iterator<Item = Result<Option<BlockId>, RpcError>>, RpcError> {
    if start == 0 || count == 0 {
        return Err(RpcError::params("start and count are at least 1"));
    }
    if count > most as u64 {
        let got = usize::try_from(count).unwrap_or(usize::MAX);
        return Err(too_large(got, most));
    }
    let last = call.node.head().number.min(start.saturating_add(count - 1));
    Ok(
        (start..=last).map(|number| match call.node.db().block_id(number) {
            Ok(id) => Ok(id),
            Err(error) => gone(ChainError::from(error).into()),
        }),
    )
}

fn answer(
    call: &Call<'_>,
    ids: impl Iterator<Item = Result<Option<BlockId>, RpcError>>,
    version: u8,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let mut list = reply.list()?;
    for id in ids {
        call.cancel.check()?;
        let found = match id? {
            Some(id) => stored_body(call, id)?,
            None => None,
        };
        match found {
            Some(found) if version == 1 => {
                list.item(&ExecutionPayloadBodyV1::from_block(found.block))?;
            }
            Some(found) => {
                let body = ExecutionPayloadBodyV2::from_block(found.block, found.access_list);
                list.item(&body)?;
            }
            None => list.item(&())?,
        }
    }
    list.end()
}

pub(super) fn by_hash(
    call: &Call<'_>,
    version: u8,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let hashes: Vec<B256> = params.required()?;
    params.end()?;
    answer(call, ids_by_hash(call, hashes, BODIES_MAX)?, version, reply)
}

pub(super) fn by_range(
    call: &Call<'_>,
    version: u8,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let (start, count): (U64, U64) = (params.required()?, params.required()?);
    params.end()?;
    let ids = ids_by_range(call, start.to(), count.to(), BODIES_MAX)?;
    answer(call, ids, version, reply)
}
