//! A built block as `engine_getPayload` gives it.

use super::build::BuiltBlock;
use crate::{error::RpcError, reply::Reply};
use alloy_eips::{
    eip4844::{Blob, Bytes48},
    eip7594::BlobTransactionSidecarVariant,
};
use alloy_rpc_types_engine::{
    BlobsBundleV1, BlobsBundleV2, ExecutionPayloadEnvelopeV2, ExecutionPayloadEnvelopeV3,
    ExecutionPayloadEnvelopeV4, ExecutionPayloadEnvelopeV5, ExecutionPayloadEnvelopeV6,
    ExecutionPayloadFieldV2, ExecutionPayloadV1, ExecutionPayloadV3, ExecutionPayloadV4,
};
use cambium_chain::{ChainSpec, Fork};

/// The version of `engine_getPayload` by which a payload is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PayloadVersion {
    V1 = 1,
    V2,
    V3,
    V4,
    V5,
    V6,
}

impl PayloadVersion {
    /// The newest version that has the payloads of a fork.
    pub(crate) const fn of(fork: Fork) -> Self {
        match fork {
            Fork::Cancun => Self::V3,
            Fork::Prague => Self::V4,
            Fork::Osaka => Self::V5,
            Fork::Amsterdam => Self::V6,
            _ => Self::V2,
        }
    }

    /// Whether it has the payloads of a fork.
    pub(crate) fn has(self, fork: Fork) -> bool {
        match self {
            Self::V1 => fork <= Fork::Paris,
            version => version == Self::of(fork),
        }
    }
}

type Parts = (Vec<Bytes48>, Vec<Bytes48>, Vec<Blob>);

/// Commitments, proofs and blobs.
fn parts(built: &BuiltBlock) -> Parts {
    let (mut commitments, mut proofs, mut blobs) = Parts::default();
    for sidecar in built.sidecars() {
        commitments.extend_from_slice(sidecar.commitments());
        blobs.extend_from_slice(sidecar.blobs());
        proofs.extend_from_slice(match sidecar {
            BlobTransactionSidecarVariant::Eip4844(own) => &own.proofs,
            BlobTransactionSidecarVariant::Eip7594(own) => &own.cell_proofs,
        });
    }
    (commitments, proofs, blobs)
}

/// Answers with a payload. The version must have the payloads of the block's fork.
pub(crate) fn envelope(
    spec: &ChainSpec,
    built: &BuiltBlock,
    version: PayloadVersion,
    reply: &mut Reply<'_>,
) -> Result<(), RpcError> {
    let (block, hash) = (&built.block, built.hash);
    let fork = spec.fork_at(block.header.number, block.header.timestamp, true);
    if !version.has(fork) {
        return Err(RpcError::new(
            RpcError::UNSUPPORTED_FORK,
            format!("Unsupported fork: the payload is one of {fork:?}"),
        ));
    }
    let v3 = || ExecutionPayloadV3::from_block_unchecked(hash, block);
    let bundle_v1 = || {
        let (commitments, proofs, blobs) = parts(built);
        BlobsBundleV1 {
            commitments,
            proofs,
            blobs,
        }
    };
    let bundle_v2 = || {
        let (commitments, proofs, blobs) = parts(built);
        BlobsBundleV2 {
            commitments,
            proofs,
            blobs,
        }
    };
    let envelope_v3 = || ExecutionPayloadEnvelopeV3 {
        execution_payload: v3(),
        block_value: built.value,
        blobs_bundle: bundle_v1(),
        should_override_builder: false,
    };
    match version {
        PayloadVersion::V1 => reply.value(&ExecutionPayloadV1::from_block_unchecked(hash, block)),
        PayloadVersion::V2 => reply.value(&ExecutionPayloadEnvelopeV2 {
            execution_payload: ExecutionPayloadFieldV2::from_block_unchecked(hash, block),
            block_value: built.value,
        }),
        PayloadVersion::V3 => reply.value(&envelope_v3()),
        PayloadVersion::V4 => reply.value(&ExecutionPayloadEnvelopeV4 {
            envelope_inner: envelope_v3(),
            execution_requests: built.requests.clone(),
        }),
        PayloadVersion::V5 => reply.value(&ExecutionPayloadEnvelopeV5 {
            execution_payload: v3(),
            block_value: built.value,
            blobs_bundle: bundle_v2(),
            should_override_builder: false,
            execution_requests: built.requests.clone(),
        }),
        PayloadVersion::V6 => {
            let list = built.access_list.clone().unwrap_or_default();
            reply.value(&ExecutionPayloadEnvelopeV6 {
                execution_payload: ExecutionPayloadV4::from_block_unchecked_with_bal(
                    hash, block, list,
                ),
                block_value: built.value,
                blobs_bundle: bundle_v2(),
                should_override_builder: false,
                execution_requests: built.requests.clone(),
            })
        }
    }
}
