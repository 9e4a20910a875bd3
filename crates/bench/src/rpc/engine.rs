//! Blocks through the Engine API, one after another, as a consensus client sends them.

use super::{
    connection::{Connection, post, request, result_of},
    server::Server,
};
use crate::state::stores::Failure;
use alloy_primitives::B256;
use alloy_rpc_types_engine::{ExecutionPayload, ExecutionPayloadV3};
use cambium_chain::{Block, Fork};
use cambium_rpc::PayloadEnvelope;
use serde_json::{Value, json};
use std::time::Instant;

/// Time of the two calls of a block, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) new_payload_ms: f64,
    pub(super) forkchoice_ms: f64,
}

/// How a client sends blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    Json,
    /// REST with SSZ, which geth does not have.
    Ssz,
}

impl Transport {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Ssz => "SSZ",
        }
    }
}

/// A client of the Engine API.
pub(super) struct Consensus<'s> {
    server: &'s Server,
    connection: Connection,
    transport: Transport,
}

impl<'s> Consensus<'s> {
    pub(super) fn connect(server: &'s Server, transport: Transport) -> Result<Self, Failure> {
        Ok(Self {
            server,
            connection: Connection::open(server.engine)?,
            transport,
        })
    }

    /// Sends a block, and makes it the head. Both answers must say that it is valid.
    pub(super) fn send(&mut self, block: &Block) -> Result<Timed, Failure> {
        let new_payload_ms = self.new_payload(block)?;
        let hash = block.header.hash_slow();
        let forkchoice_ms = match self.transport {
            Transport::Json => self.choose_by_json(hash)?,
            Transport::Ssz => self.choose_by_ssz(hash)?,
        };
        Ok(Timed {
            new_payload_ms,
            forkchoice_ms,
        })
    }

    /// Sends a block of Osaka without requests, which must be valid. Returns the milliseconds.
    pub(super) fn new_payload(&mut self, block: &Block) -> Result<f64, Failure> {
        let hash = block.header.hash_slow();
        let payload = ExecutionPayloadV3::from_block_unchecked(hash, block);
        let beacon_root = block.header.parent_beacon_block_root.unwrap_or_default();
        if self.transport == Transport::Ssz {
            let envelope = PayloadEnvelope {
                payload: ExecutionPayload::V3(payload),
                parent_beacon_block_root: Some(beacon_root),
                execution_requests: Some(Vec::new()),
            };
            // The answer is a status alone, whose first byte is its kind.
            return self.call_ssz("payloads", &envelope.encode(Fork::Osaka), 0);
        }
        let hashes: Vec<B256> = block.body.blob_versioned_hashes_iter().copied().collect();
        let requests: [B256; 0] = [];
        let params = json!([payload, hashes, beacon_root, requests]);
        let method = "engine_newPayloadV4";
        let (status, milliseconds) = self.call(method, &params)?;
        require_valid(method, &status)?;
        Ok(milliseconds)
    }

    fn choose_by_json(&mut self, head: B256) -> Result<f64, Failure> {
        let choice = json!({
            "headBlockHash": head,
            "safeBlockHash": B256::ZERO,
            "finalizedBlockHash": B256::ZERO,
        });
        let method = "engine_forkchoiceUpdatedV3";
        let (answer, milliseconds) = self.call(method, &json!([choice, null]))?;
        require_valid(method, &answer["payloadStatus"])?;
        Ok(milliseconds)
    }

    fn choose_by_ssz(&mut self, head: B256) -> Result<f64, Failure> {
        // Head, safe and finalized block, and the offset of attributes that are not there.
        let mut update = vec![0; 96];
        update[..32].copy_from_slice(head.as_slice());
        update.extend(100_u32.to_le_bytes());
        // The status follows two offsets.
        self.call_ssz("forkchoice", &update, 8)
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

    /// Posts SSZ. The byte of the answer at `status_at` must say that the block is valid. Returns the milliseconds.
    fn call_ssz(&mut self, path: &str, body: &[u8], status_at: usize) -> Result<f64, Failure> {
        let token = self.server.secret.token();
        let headers = format!(
            "Content-Type: application/octet-stream\r\nEth-Execution-Version: osaka\r\nAuthorization: Bearer {token}\r\n"
        );
        let request = post(&format!("/engine/v1/{path}"), &headers, body);
        let start = Instant::now();
        let answer = self.connection.ask(&request)?;
        let milliseconds = 1e3 * start.elapsed().as_secs_f64();
        match answer.get(status_at) {
            Some(0) => Ok(milliseconds),
            status => Err(format!("{path}: the status is {status:?}, not 0, valid").into()),
        }
    }
}

fn require_valid(method: &str, status: &Value) -> Result<(), Failure> {
    match status["status"].as_str() {
        Some("VALID") => Ok(()),
        _ => Err(format!("{method}: {status}").into()),
    }
}
