//! From the parameters of `engine_newPayload` to a block.

use super::version::{fork_of, takes_payload, unsupported};
use crate::{error::RpcError, params::Params};
use alloy_eips::eip7685::Requests;
use alloy_primitives::{B256, Bytes};
use alloy_rpc_types_engine::{
    CancunPayloadFields, ExecutionPayload, ExecutionPayloadInputV2, ExecutionPayloadSidecar,
    ExecutionPayloadV1, ExecutionPayloadV3, ExecutionPayloadV4, PraguePayloadFields,
};
use cambium_chain::{AmsterdamRules, Block, ChainSpec, Fork};

/// A payload, with what is not part of it but of its block.
pub(super) struct Given {
    payload: ExecutionPayload,
    sidecar: ExecutionPayloadSidecar,
}

/// A block as it is inserted.
#[derive(Clone, Debug)]
pub(super) struct GivenBlock {
    pub(super) hash: B256,
    pub(super) parent: B256,
    pub(super) rlp: Bytes,
    pub(super) access_list: Option<Bytes>,
}

impl Given {
    /// The parameters of a version, which are those of the payload's fork.
    pub(super) fn parse(
        spec: &ChainSpec,
        version: u8,
        params: &mut Params<'_>,
    ) -> Result<Self, RpcError> {
        let (payload, is_shanghai) = match version {
            1 => (
                ExecutionPayload::V1(params.required::<ExecutionPayloadV1>()?),
                false,
            ),
            2 => {
                let given: ExecutionPayloadInputV2 = params.required()?;
                let has_withdrawals = given.withdrawals.is_some();
                (given.into_payload(), has_withdrawals)
            }
            3 | 4 => (
                ExecutionPayload::V3(params.required::<ExecutionPayloadV3>()?),
                true,
            ),
            _ => (
                ExecutionPayload::V4(params.required::<ExecutionPayloadV4>()?),
                true,
            ),
        };
        let sidecar = match version {
            1 | 2 => ExecutionPayloadSidecar::none(),
            _ => {
                let hashes: Vec<B256> = params.required()?;
                let root = params.hash()?;
                let cancun = CancunPayloadFields::new(root, hashes);
                match version {
                    3 => ExecutionPayloadSidecar::v3(cancun),
                    _ => {
                        let requests = requests(params.required()?)?;
                        ExecutionPayloadSidecar::v4(cancun, PraguePayloadFields::new(requests))
                    }
                }
            }
        };
        params.end()?;
        let fork = fork_of(spec, payload.timestamp());
        if !takes_payload(version, fork) {
            return Err(unsupported("payloads", fork));
        }
        if version == 2 && is_shanghai != (fork >= Fork::Shanghai) {
            return Err(RpcError::params(match is_shanghai {
                true => "the payload has withdrawals, which its fork does not",
                false => "the payload has no withdrawals, which its fork has",
            }));
        }
        Ok(Self { payload, sidecar })
    }

    /// The block, if it has the hash that the payload says, and the blobs that were expected.
    pub(super) fn block(self, spec: &ChainSpec) -> Result<GivenBlock, String> {
        let Self { payload, sidecar } = self;
        let hash = payload.block_hash();
        let access_list = payload.block_access_list().cloned();
        let block = payload.try_into_block_with_sidecar(&sidecar);
        let mut block: Block = block.map_err(|error| error.to_string())?;
        if spec.amsterdam_rules == AmsterdamRules::Lists {
            block.header.slot_number = None;
        }
        let got = block.header.hash_slow();
        if got != hash {
            return Err(format!("blockHash is {hash}, but the payload has {got}"));
        }
        if let Some(expected) = sidecar.versioned_hashes()
            && !block.body.blob_versioned_hashes_iter().eq(expected)
        {
            return Err("the blob hashes are not those of the transactions".to_owned());
        }
        Ok(GivenBlock {
            hash,
            parent: block.header.parent_hash,
            rlp: alloy_rlp::encode(&block).into(),
            access_list,
        })
    }
}

/// Requests by ascending types, none of them empty.
fn requests(all: Vec<Bytes>) -> Result<Requests, RpcError> {
    let mut before = None;
    for one in &all {
        let kind = one.first().copied();
        if one.len() < 2 || kind <= before {
            return Err(RpcError::params(
                "executionRequests: each has a type and data, and types ascend",
            ));
        }
        before = kind;
    }
    Ok(Requests::new(all))
}
