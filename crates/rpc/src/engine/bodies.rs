//! Bodies of blocks, and blobs of the pool.

use super::version::fork_of;
use crate::{error::RpcError, params::Params, reply::Reply, table::Call};
use alloy_eips::{
    eip4844::{BlobAndProofV1, BlobAndProofV2},
    eip7594::{BlobTransactionSidecarVariant, CELLS_PER_EXT_BLOB},
};
use alloy_primitives::{B256, Bytes, U64};
use alloy_rpc_types_engine::{ExecutionPayloadBodyV1, ExecutionPayloadBodyV2};
use cambium_chain::{ChainError, Fork};
use cambium_node::BlockRef;
use cambium_primitives::BlockId;

/// Most bodies of an answer.
const BODIES_MAX: usize = 1024;
/// Most blobs of an answer.
const BLOBS_MAX: usize = 128;

fn too_large(got: usize, most: usize) -> RpcError {
    RpcError::new(
        RpcError::TOO_LARGE_REQUEST,
        format!("Too large request: {got} are asked for, {most} at most"),
    )
}

enum Body {
    V1(ExecutionPayloadBodyV1),
    V2(ExecutionPayloadBodyV2),
}

/// The body of a block, if it is there.
fn body(call: &Call<'_>, id: BlockId, version: u8) -> Result<Option<Body>, RpcError> {
    let stored = match call.node.chain()?.stored_of(id) {
        Ok(Some(stored)) => stored,
        Ok(None) => return Ok(None),
        Err(error) => return gone(error.into()),
    };
    let block = stored.block()?;
    if version == 1 {
        return Ok(Some(Body::V1(ExecutionPayloadBodyV1::from_block(block))));
    }
    let list = stored.body.access_list;
    let has_list = block.header.block_access_list_hash.is_some() && !list.is_empty();
    let list = has_list.then(|| Bytes::from(list.to_vec()));
    Ok(Some(Body::V2(ExecutionPayloadBodyV2::from_block(
        block, list,
    ))))
}

/// Nothing for what is not there any more.
fn gone<T>(error: RpcError) -> Result<Option<T>, RpcError> {
    match error.code {
        RpcError::NOT_FOUND | RpcError::PRUNED => Ok(None),
        _ => Err(error),
    }
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
            Some(id) => body(call, id, version)?,
            None => None,
        };
        match found {
            Some(Body::V1(body)) => list.item(&body)?,
            Some(Body::V2(body)) => list.item(&body)?,
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
    if hashes.len() > BODIES_MAX {
        return Err(too_large(hashes.len(), BODIES_MAX));
    }
    let ids = hashes.into_iter().map(|hash| {
        let id = call.node.id(BlockRef::Hash(hash));
        id.map(Some).or_else(|error| gone(error.into()))
    });
    answer(call, ids, version, reply)
}

pub(super) fn by_range(
    call: &Call<'_>,
    version: u8,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let (start, count): (U64, U64) = (params.required()?, params.required()?);
    params.end()?;
    let (start, count) = (start.to::<u64>(), count.to::<u64>());
    if start == 0 || count == 0 {
        return Err(RpcError::params("start and count are at least 1"));
    }
    if count > BODIES_MAX as u64 {
        return Err(too_large(
            usize::try_from(count).unwrap_or(usize::MAX),
            BODIES_MAX,
        ));
    }
    let last = call.node.head().number.min(start.saturating_add(count - 1));
    let ids = (start..=last).map(|number| match call.node.db().block_id(number) {
        Ok(id) => Ok(id),
        Err(error) => gone(ChainError::from(error).into()),
    });
    answer(call, ids, version, reply)
}

/// `engine_getBlobsV1` gives each blob or null, `engine_getBlobsV2` all of them or null.
pub(super) fn blobs(
    call: &Call<'_>,
    version: u8,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let hashes: Vec<B256> = params.required()?;
    params.end()?;
    if hashes.len() > BLOBS_MAX {
        return Err(too_large(hashes.len(), BLOBS_MAX));
    }
    let head = call.node.block(BlockRef::Latest)?.block.header;
    let fork = fork_of(call.node.chain()?.spec(), head.timestamp);
    if version == 1 && fork >= Fork::Osaka {
        return Err(super::version::unsupported("blobs", fork));
    }
    let found = match call.served.pool() {
        Some(pool) => pool.blobs(call.node, &hashes)?,
        None => vec![None; hashes.len()],
    };
    if version == 1 {
        let mut list = reply.list()?;
        for one in found {
            let sidecar = one
                .as_ref()
                .and_then(|(own, at)| Some((own.sidecar.as_ref()?, *at)));
            match sidecar {
                Some((BlobTransactionSidecarVariant::Eip4844(own), at)) => {
                    list.item(&BlobAndProofV1 {
                        blob: Box::new(own.blobs[at]),
                        proof: own.proofs[at],
                    })?;
                }
                _ => list.item(&())?,
            }
        }
        return list.end();
    }
    let mut all = Vec::with_capacity(found.len());
    for one in &found {
        let sidecar = one
            .as_ref()
            .and_then(|(own, at)| Some((own.sidecar.as_ref()?, *at)));
        let Some((BlobTransactionSidecarVariant::Eip7594(own), at)) = sidecar else {
            return reply.value(&());
        };
        all.push((own, at));
    }
    let mut list = reply.list()?;
    for (own, at) in all {
        let proofs = at * CELLS_PER_EXT_BLOB..(at + 1) * CELLS_PER_EXT_BLOB;
        list.item(&BlobAndProofV2 {
            blob: Box::new(own.blobs[at]),
            proofs: own.cell_proofs[proofs].to_vec(),
        })?;
    }
    list.end()
}
