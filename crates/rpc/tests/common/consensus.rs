//! What a consensus client does.

use super::ask;
use alloy_eips::eip7685::Requests;
use alloy_primitives::{B256, Bytes};
use alloy_rpc_types_engine::{
    ExecutionPayload, ExecutionPayloadV1, ExecutionPayloadV2, ExecutionPayloadV3,
    ExecutionPayloadV4,
};
use cambium_chain::{Block, Chain, Fork};
use cambium_rpc::{Engine, PayloadEnvelope, Served, Service};
use serde_json::{Value, json};
use std::sync::Arc;

pub struct Consensus {
    pub served: Arc<Served>,
    pub service: Service,
}

/// A block with what its payload needs besides.
#[derive(Clone, Debug)]
pub struct Known {
    pub block: Block,
    pub requests: Requests,
    pub access_list: Bytes,
}

impl Known {
    /// The canonical block of a chain, executed again for its requests.
    pub fn of(chain: &Chain, number: u64) -> Self {
        let id = chain.db().block_id(number).unwrap().unwrap();
        Self {
            block: chain.block(number).unwrap(),
            requests: chain.outcome_of(id).unwrap().requests,
            access_list: chain
                .stored_of(id)
                .unwrap()
                .unwrap()
                .body
                .access_list
                .to_vec()
                .into(),
        }
    }

    pub fn hash(&self) -> B256 {
        self.block.header.hash_slow()
    }

    pub fn fork(&self, chain: &Chain) -> Fork {
        chain
            .spec()
            .fork_at(u64::MAX, self.block.header.timestamp, true)
    }

    /// The parameters of `engine_newPayload` of a version.
    pub fn params(&self, version: u8) -> Value {
        let fork = match version {
            5 => Fork::Amsterdam,
            4 => Fork::Prague,
            3 => Fork::Cancun,
            // The second version has what the block has.
            2 if self.block.body.withdrawals.is_some() => Fork::Shanghai,
            _ => Fork::Paris,
        };
        params_of(&self.envelope(fork), version, self.blob_hashes())
    }

    pub fn blob_hashes(&self) -> Vec<B256> {
        let hashes = self.block.body.blob_versioned_hashes_iter();
        hashes.copied().collect()
    }

    /// The same for the schema of a fork.
    pub fn envelope(&self, fork: Fork) -> PayloadEnvelope {
        let (hash, block) = (self.hash(), &self.block);
        let payload = match fork {
            Fork::Amsterdam => {
                let list = self.access_list.clone();
                ExecutionPayload::V4(ExecutionPayloadV4::from_block_unchecked_with_bal(
                    hash, block, list,
                ))
            }
            Fork::Cancun | Fork::Prague | Fork::Osaka => {
                ExecutionPayload::V3(ExecutionPayloadV3::from_block_unchecked(hash, block))
            }
            Fork::Shanghai => {
                ExecutionPayload::V2(ExecutionPayloadV2::from_block_unchecked(hash, block))
            }
            _ => ExecutionPayload::V1(ExecutionPayloadV1::from_block_unchecked(hash, block)),
        };
        let root = block.header.parent_beacon_block_root.unwrap_or_default();
        PayloadEnvelope {
            payload,
            parent_beacon_block_root: (fork >= Fork::Cancun).then_some(root),
            execution_requests: (fork >= Fork::Prague).then(|| self.requests.to_vec()),
        }
    }
}

/// The parameters of `engine_newPayload` of a version that are the same payload.
pub fn params_of(envelope: &PayloadEnvelope, version: u8, blob_hashes: Vec<B256>) -> Value {
    let mut params = vec![match &envelope.payload {
        ExecutionPayload::V1(own) => json!(own),
        ExecutionPayload::V2(own) => json!(own),
        ExecutionPayload::V3(own) => json!(own),
        ExecutionPayload::V4(own) => json!(own),
    }];
    if version >= 3 {
        params.push(json!(blob_hashes));
        params.push(json!(envelope.parent_beacon_block_root.unwrap_or_default()));
    }
    if version >= 4 {
        let requests = envelope.execution_requests.as_deref();
        params.push(json!(requests.unwrap_or_default()));
    }
    Value::Array(params)
}

/// The version of `engine_newPayload` for a fork.
pub fn version_of(fork: Fork) -> u8 {
    match fork {
        Fork::Amsterdam => 5,
        Fork::Osaka | Fork::Prague => 4,
        Fork::Cancun => 3,
        Fork::Shanghai => 2,
        _ => 1,
    }
}

impl Consensus {
    pub fn new(served: Arc<Served>) -> Self {
        let engine = Arc::new(Engine::new(Arc::clone(&served)));
        let service = Service::new(Arc::clone(&served), engine.methods());
        let service = service.with_rest(engine.rest());
        Self { served, service }
    }

    pub fn call(&self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        ask(&self.service, &request.to_string())
    }

    /// The status of a payload.
    pub fn new_payload(&self, known: &Known) -> Value {
        let node = self.served.node();
        let version = version_of(known.fork(node.chain().unwrap()));
        let answer = self.call(
            &format!("engine_newPayloadV{version}"),
            known.params(version),
        );
        answer
            .get("result")
            .unwrap_or_else(|| panic!("{answer}"))
            .clone()
    }

    /// The whole answer to a choice of the head.
    pub fn choose(
        &self,
        version: u8,
        head: B256,
        safe: B256,
        finalized: B256,
        attributes: Value,
    ) -> Value {
        let state = json!({
            "headBlockHash": head,
            "safeBlockHash": safe,
            "finalizedBlockHash": finalized,
        });
        let method = format!("engine_forkchoiceUpdatedV{version}");
        self.call(&method, json!([state, attributes]))
    }

    /// The status of a choice of the head alone.
    pub fn head(&self, head: B256) -> Value {
        let answer = self.choose(3, head, B256::ZERO, B256::ZERO, Value::Null);
        answer["result"]["payloadStatus"].clone()
    }
}
