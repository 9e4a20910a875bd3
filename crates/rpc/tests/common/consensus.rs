//! What a consensus client does.

use super::ask;
use alloy_eips::eip7685::Requests;
use alloy_primitives::{B256, Bytes};
use alloy_rpc_types_engine::ExecutionPayload;
use cambium_chain::{Block, Chain, Fork};
use cambium_rpc::{Engine, Served, Service};
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
        let (hash, block) = (self.hash(), &self.block);
        let payload = match version {
            5 => {
                let list = self.access_list.clone();
                ExecutionPayload::from_block_unchecked_with_bal(hash, block, list).0
            }
            _ => ExecutionPayload::from_block_unchecked(hash, block).0,
        };
        let mut params = vec![serde_json::to_value(payload).unwrap()];
        if version >= 3 {
            let hashes = block.body.blob_versioned_hashes_iter();
            params.push(json!(hashes.collect::<Vec<_>>()));
            params.push(json!(
                block.header.parent_beacon_block_root.unwrap_or_default()
            ));
        }
        if version >= 4 {
            params.push(json!(self.requests));
        }
        Value::Array(params)
    }
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
