//! From a payload, as either transport has it, to a block.

use super::{
    ssz::PayloadEnvelope,
    version::{Schema, fork_of, unsupported},
};
use crate::{error::RpcError, params::Params};
use alloy_eips::eip7685::Requests;
use alloy_primitives::{B256, Bytes};
use alloy_rlp::Decodable;
use alloy_rpc_types_engine::{
    ExecutionPayload, ExecutionPayloadInputV2, ExecutionPayloadV1, ExecutionPayloadV3,
    ExecutionPayloadV4,
};
use cambium_chain::{AmsterdamRules, Block, ChainSpec, Fork};

/// A payload whose fork has the schema by which it came.
pub(super) struct Given {
    payload: ExecutionPayload,
    parent_beacon_block_root: Option<B256>,
    requests: Option<Requests>,
    /// The blobs that the consensus client expects. SSZ does not have them.
    blob_hashes: Option<Vec<B256>>,
}

/// A block as it is stored, with the access list that came with it.
#[derive(Clone, Debug)]
pub(super) struct EncodedBlock {
    pub(super) hash: B256,
    pub(super) parent: B256,
    pub(super) rlp: Bytes,
    pub(super) access_list: Option<Bytes>,
}

/// A block as it is inserted.
pub(super) struct GivenBlock {
    pub(super) block: Block,
    pub(super) encoded: EncodedBlock,
}

impl Given {
    /// Reads the parameters of `engine_newPayload` of a version.
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
        let (mut blob_hashes, mut parent_beacon_block_root, mut requests) = (None, None, None);
        if version >= 3 {
            blob_hashes = Some(params.required()?);
            parent_beacon_block_root = Some(params.hash()?);
        }
        if version >= 4 {
            requests = Some(checked(params.required()?)?);
        }
        params.end()?;
        let given = Self {
            payload,
            parent_beacon_block_root,
            requests,
            blob_hashes,
        };
        let fork = given.fork(spec, Schema::Version(version))?;
        if version == 2 && is_shanghai != (fork >= Fork::Shanghai) {
            return Err(RpcError::params(match is_shanghai {
                true => "the payload has withdrawals, which its fork does not",
                false => "the payload has no withdrawals, which its fork has",
            }));
        }
        Ok(given)
    }

    /// Takes what came as SSZ by the schema of a fork.
    pub(super) fn of_envelope(
        spec: &ChainSpec,
        fork: Fork,
        envelope: PayloadEnvelope,
    ) -> Result<Self, RpcError> {
        let requests = envelope.execution_requests.map(checked).transpose()?;
        let given = Self {
            payload: envelope.payload,
            parent_beacon_block_root: envelope.parent_beacon_block_root,
            requests,
            blob_hashes: None,
        };
        given.fork(spec, Schema::Fork(fork))?;
        Ok(given)
    }

    /// The payload's fork, if it has the schema.
    fn fork(&self, spec: &ChainSpec, schema: Schema) -> Result<Fork, RpcError> {
        let fork = fork_of(spec, self.payload.timestamp());
        match schema.has_payload(fork) {
            true => Ok(fork),
            false => Err(unsupported("payloads", fork)),
        }
    }

    /// The block, if it has the hash that the payload says, and the blobs that were expected.
    pub(super) fn block(self, spec: &ChainSpec) -> Result<GivenBlock, String> {
        let hash = self.payload.block_hash();
        let access_list = self.payload.block_access_list().cloned();
        let block = self.payload.try_into_block();
        let mut block: Block = block.map_err(|error| error.to_string())?;
        block.header.parent_beacon_block_root = self.parent_beacon_block_root;
        block.header.requests_hash = self.requests.map(|requests| requests.requests_hash());
        if spec.amsterdam_rules == AmsterdamRules::Lists {
            block.header.slot_number = None;
        }
        let got = block.header.hash_slow();
        if got != hash {
            return Err(format!("blockHash is {hash}, but the payload has {got}"));
        }
        if let Some(expected) = &self.blob_hashes
            && !block.body.blob_versioned_hashes_iter().eq(expected)
        {
            return Err("the blob hashes are not those of the transactions".to_owned());
        }
        let encoded = EncodedBlock {
            hash,
            parent: block.header.parent_hash,
            rlp: alloy_rlp::encode(&block).into(),
            access_list,
        };
        Ok(GivenBlock { block, encoded })
    }
}

impl EncodedBlock {
    /// The same without the request in whose bytes the access list stands.
    pub(super) fn detached(self) -> Self {
        let copied = |list: Bytes| Bytes::copy_from_slice(&list);
        Self {
            access_list: self.access_list.map(copied),
            ..self
        }
    }

    /// Decodes the block again.
    pub(super) fn decode(self) -> Result<GivenBlock, alloy_rlp::Error> {
        let block = Block::decode(&mut &self.rlp[..])?;
        Ok(GivenBlock {
            block,
            encoded: self,
        })
    }
}

/// Requests by ascending types, none of them empty.
fn checked(all: Vec<Bytes>) -> Result<Requests, RpcError> {
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
