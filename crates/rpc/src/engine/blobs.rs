//! Blobs of the pool, with their proofs.

use super::{
    bodies::too_large,
    version::{fork_of, unsupported},
};
use crate::{error::RpcError, params::Params, pool::PooledTransaction, reply::Reply, table::Call};
use alloy_eips::{
    eip4844::{Blob, BlobAndProofV1, BlobAndProofV2, Bytes48},
    eip7594::{BlobTransactionSidecarVariant, CELLS_PER_EXT_BLOB},
};
use alloy_primitives::B256;
use cambium_chain::Fork;
use cambium_node::BlockRef;
use std::sync::Arc;

/// Most blobs of an answer.
pub(super) const BLOBS_MAX: usize = 128;

/// A blob of a transaction in the pool; `None` if no transaction there has it.
pub(super) struct PooledBlob(Option<(Arc<PooledTransaction>, usize)>);

impl PooledBlob {
    fn sidecar(&self) -> Option<(&BlobTransactionSidecarVariant, usize)> {
        let (own, at) = self.0.as_ref()?;
        Some((own.sidecar.as_ref()?, *at))
    }

    /// The blob and the proof of the whole, if that is what the pool has.
    pub(super) fn whole(&self) -> Option<(&Blob, &Bytes48)> {
        match self.sidecar()? {
            (BlobTransactionSidecarVariant::Eip4844(own), at) => {
                Some((own.blobs.get(at)?, own.proofs.get(at)?))
            }
            _ => None,
        }
    }

    /// The blob and the proofs of its 128 cells, if that is what the pool has.
    pub(super) fn with_cell_proofs(&self) -> Option<(&Blob, &[Bytes48])> {
        match self.sidecar()? {
            (BlobTransactionSidecarVariant::Eip7594(own), at) => {
                let proofs = at * CELLS_PER_EXT_BLOB..(at + 1) * CELLS_PER_EXT_BLOB;
                Some((own.blobs.get(at)?, own.cell_proofs.get(proofs)?))
            }
            _ => None,
        }
    }
}

/// The blob of each versioned hash, in their order. Proofs of whole blobs ended with Osaka, and so did the first version.
pub(super) fn blobs_of(
    call: &Call<'_>,
    version: u8,
    hashes: &[B256],
) -> Result<Vec<PooledBlob>, RpcError> {
    if hashes.len() > BLOBS_MAX {
        return Err(too_large(hashes.len(), BLOBS_MAX));
    }
    let head = call.node.block(BlockRef::Latest)?.block.header;
    let fork = fork_of(call.node.chain()?.spec(), head.timestamp);
    if version == 1 && fork >= Fork::Osaka {
        return Err(unsupported("blobs", fork));
    }
    let found = match call.served.pool() {
        Some(pool) => pool.blobs(call.node, hashes)?,
        None => vec![None; hashes.len()],
    };
    Ok(found.into_iter().map(PooledBlob).collect())
}

/// `engine_getBlobsV1` answers each blob or null, `engine_getBlobsV2` all of them or null.
pub(super) fn blobs(
    call: &Call<'_>,
    version: u8,
    mut params: Params<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let hashes: Vec<B256> = params.required()?;
    params.end()?;
    let found = blobs_of(call, version, &hashes)?;
    if version == 1 {
        let mut list = reply.list()?;
        for one in &found {
            match one.whole() {
                Some((blob, proof)) => list.item(&BlobAndProofV1 {
                    blob: Box::new(*blob),
                    proof: *proof,
                })?,
                None => list.item(&())?,
            }
        }
        return list.end();
    }
    let all: Option<Vec<_>> = found.iter().map(PooledBlob::with_cell_proofs).collect();
    let Some(all) = all else {
        return reply.value(&());
    };
    let mut list = reply.list()?;
    for (blob, proofs) in all {
        list.item(&BlobAndProofV2 {
            blob: Box::new(*blob),
            proofs: proofs.to_vec(),
        })?;
    }
    list.end()
}
