//! Payloads that were built here.

use super::{
    fields::{Container, FieldLength, append_byte_lists},
    payload::append_payload,
};
use crate::builder::BuiltBlock;
use alloy_eips::eip7594::BlobTransactionSidecarVariant;
use alloy_primitives::Bytes;
use alloy_rpc_types_engine::{
    ExecutionPayload, ExecutionPayloadV1, ExecutionPayloadV2, ExecutionPayloadV3,
    ExecutionPayloadV4,
};
use cambium_chain::Fork;

/// Fields of `BlobsBundle`: commitments, proofs, blobs.
const BUNDLE: [FieldLength; 3] = [None; 3];

/// Fields of `BuiltPayload`: payload, value; blobs; execution requests; whether a builder is to be overridden.
const fn fields(fork: Fork) -> &'static [FieldLength] {
    match fork {
        Fork::Prague | Fork::Osaka | Fork::Amsterdam => &[None, Some(32), None, None, Some(1)],
        Fork::Cancun => &[None, Some(32), None, Some(1)],
        _ => &[None, Some(32)],
    }
}

/// Encodes `BuiltPayload` by the schema of the block's fork.
pub(in crate::engine) fn built_payload(fork: Fork, built: &BuiltBlock) -> Vec<u8> {
    let mut out = Vec::new();
    let mut own = Container::new(&mut out, fields(fork));
    own.variable(|out| append_payload(out, fork, &payload_of(fork, built)));
    own.fixed(&built.value.to_le_bytes::<32>());
    if fork >= Fork::Cancun {
        own.variable(|out| append_bundle(out, built));
    }
    if fork >= Fork::Prague {
        own.variable(|out| append_byte_lists(out, built.requests.as_ref()));
    }
    if fork >= Fork::Cancun {
        own.fixed(&[0]);
    }
    out
}

fn payload_of(fork: Fork, built: &BuiltBlock) -> ExecutionPayload {
    let (hash, block) = (built.hash, &built.block);
    match fork {
        Fork::Amsterdam => {
            let list: Bytes = built.access_list.clone().unwrap_or_default();
            let payload = ExecutionPayloadV4::from_block_unchecked_with_bal(hash, block, list);
            ExecutionPayload::V4(payload)
        }
        Fork::Cancun | Fork::Prague | Fork::Osaka => {
            ExecutionPayload::V3(ExecutionPayloadV3::from_block_unchecked(hash, block))
        }
        Fork::Shanghai => {
            ExecutionPayload::V2(ExecutionPayloadV2::from_block_unchecked(hash, block))
        }
        _ => ExecutionPayload::V1(ExecutionPayloadV1::from_block_unchecked(hash, block)),
    }
}

/// Appends `BlobsBundle`. Its revision is that of the sidecars: a proof of each blob, or of each cell.
fn append_bundle(out: &mut Vec<u8>, built: &BuiltBlock) {
    let mut bundle = Container::new(out, &BUNDLE);
    bundle.variable(|out| {
        let all = built.sidecars().flat_map(|own| own.commitments());
        all.for_each(|one| out.extend_from_slice(one.as_slice()));
    });
    bundle.variable(|out| {
        for sidecar in built.sidecars() {
            let proofs = match sidecar {
                BlobTransactionSidecarVariant::Eip4844(own) => &own.proofs,
                BlobTransactionSidecarVariant::Eip7594(own) => &own.cell_proofs,
            };
            for proof in proofs {
                out.extend_from_slice(proof.as_slice());
            }
        }
    });
    bundle.variable(|out| {
        let all = built.sidecars().flat_map(|own| own.blobs());
        all.for_each(|one| out.extend_from_slice(one.as_slice()));
    });
}
