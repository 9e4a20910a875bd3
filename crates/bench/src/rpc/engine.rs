//! Blocks through the Engine API, one after another, as a consensus client sends them.

use super::{
    connection::{Connection, request, result_of},
    server::Server,
};
use crate::state::stores::Failure;
use alloy_primitives::B256;
use alloy_rpc_types_engine::ExecutionPayload;
use cambium_chain::Block;
use serde_json::{Value, json};
use std::time::Instant;

/// Time of the two calls of a block, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) new_payload_ms: f64,
    pub(super) forkchoice_ms: f64,
}

/// A client of the Engine API over JSON.
pub(super) struct Consensus<'s> {
    server: &'s Server,
    connection: Connection,
}

impl<'s> Consensus<'s> {
    pub(super) fn connect(server: &'s Server) -> Result<Self, Failure> {
        Ok(Self {
            server,
            connection: Connection::open(server.engine)?,
        })
    }

    /// Sends a block, and makes it the head. Both answers must say that it is valid.
    pub(super) fn send(&mut self, block: &Block) -> Result<Timed, Failure> {
        let new_payload_ms = self.new_payload(block)?;
        let choice = json!({
            "headBlockHash": block.header.hash_slow(),
            "safeBlockHash": B256::ZERO,
            "finalizedBlockHash": B256::ZERO,
        });
        let method = "engine_forkchoiceUpdatedV3";
        let (answer, forkchoice_ms) = self.call(method, &json!([choice, null]))?;
        require_valid(method, &answer["payloadStatus"])?;
        Ok(Timed {
            new_payload_ms,
            forkchoice_ms,
        })
    }

    /// Sends a block of Prague or Osaka without requests, which must be valid. Returns the milliseconds.
    pub(super) fn new_payload(&mut self, block: &Block) -> Result<f64, Failure> {
        let hash = block.header.hash_slow();
        let payload = ExecutionPayload::from_block_unchecked(hash, block).0;
        let hashes: Vec<B256> = block.body.blob_versioned_hashes_iter().copied().collect();
        let beacon_root = block.header.parent_beacon_block_root.unwrap_or_default();
        let requests: [B256; 0] = [];
        let params = json!([payload, hashes, beacon_root, requests]);
        let method = "engine_newPayloadV4";
        let (status, milliseconds) = self.call(method, &params)?;
        require_valid(method, &status)?;
        Ok(milliseconds)
    }

    /// Calls a method. Returns its result, and the milliseconds from the first byte sent to the last one received.
    fn call(&mut self, method: &str, params: &Value) -> Result<(Value, f64), Failure> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let token = self.server.secret.token();
        let request = request(&body.to_string(), Some(&token));
        let start = Instant::now();
        let answer = self.connection.ask(&request)?;
        let milliseconds = 1e3 * start.elapsed().as_secs_f64();
        let result = result_of(answer).map_err(|error| format!("{method}: {error}"))?;
        Ok((result, milliseconds))
    }
}

fn require_valid(method: &str, status: &Value) -> Result<(), Failure> {
    match status["status"].as_str() {
        Some("VALID") => Ok(()),
        _ => Err(format!("{method}: {status}").into()),
    }
}
