//! The methods of the Engine API by their names.

use super::{blobs, bodies, payload::Given, state::Engine, version::Schema};
use crate::{
    builder::{PayloadVersion, envelope},
    limits::Kind,
    table::Methods,
};
use alloy_primitives::FixedBytes;
use alloy_rpc_types_engine::{ForkchoiceState, PayloadAttributes, PayloadId};
use serde_json::{Value, json};
use std::sync::Arc;

/// The two letters are no other client's. The library does not know the commit that it is built from.
pub(super) fn identity() -> Value {
    json!([{
        "code": "CB",
        "name": "Cambium",
        "version": concat!("v", env!("CARGO_PKG_VERSION")),
        "commit": commit(option_env!("CAMBIUM_COMMIT")),
    }])
}

/// What a consensus client may call besides `engine_*`, by the specification.
const OF_CHAIN: [&str; 9] = [
    "eth_blockNumber",
    "eth_call",
    "eth_chainId",
    "eth_getBlockByHash",
    "eth_getBlockByNumber",
    "eth_getCode",
    "eth_getLogs",
    "eth_sendRawTransaction",
    "eth_syncing",
];

const PAYLOADS: [PayloadVersion; 6] = [
    PayloadVersion::V1,
    PayloadVersion::V2,
    PayloadVersion::V3,
    PayloadVersion::V4,
    PayloadVersion::V5,
    PayloadVersion::V6,
];

/// The first four bytes of the commit that the build was told, in hex; zeros if it was told none, as other clients without
/// their repository say.
fn commit(told: Option<&str>) -> String {
    let digits = told.and_then(|told| told.get(..8));
    let is_hex = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    format!("0x{}", digits.filter(is_hex).unwrap_or("00000000"))
}

/// The parameters of `engine_newPayload` of a version, by name.
const fn payload_params(version: u8) -> &'static str {
    match version {
        1 | 2 => "Execution payload",
        3 => "Execution payload, Expected blob versioned hashes, Root of the parent beacon block",
        4 => {
            "Execution payload, Expected blob versioned hashes, Root of the parent beacon block, Execution requests"
        }
        _ => {
            "Execution payload, Expected blob versioned hashes, Parent beacon block root, Execution requests"
        }
    }
}

impl Engine {
    /// The methods, with those of the chain that the specification wants beside them.
    pub fn methods(self: &Arc<Self>) -> Methods {
        let mut methods = Methods::of_chain().only(|name| OF_CHAIN.contains(&name));
        for version in 1..=5 {
            let engine = Arc::clone(self);
            let params = payload_params(version);
            let signature = format!("engine_newPayloadV{version}({params}) -> Payload status");
            methods = methods.with(
                &signature,
                Kind::Execution,
                move |call, mut params, reply| {
                    let given = Given::parse(call.node.chain()?.spec(), version, &mut params)?;
                    reply.value(&engine.new_payload(given)?)
                },
            );
        }
        for version in 1..=4 {
            let engine = Arc::clone(self);
            let custody = if version >= 4 {
                ", Custody columns?"
            } else {
                ""
            };
            let signature = format!(
                "engine_forkchoiceUpdatedV{version}(Forkchoice state, Payload attributes?{custody}) -> Response object"
            );
            methods = methods.with(&signature, Kind::Execution, move |_, mut params, reply| {
                let state: ForkchoiceState = params.required()?;
                let attributes: Option<PayloadAttributes> = params.optional()?;
                if version >= 4 {
                    // The pool samples no columns: it has whole blobs, which were sent to this server.
                    let _custody_columns: Option<FixedBytes<16>> = params.optional()?;
                }
                params.end()?;
                let schema = Schema::Version(version);
                reply.value(&engine.forkchoice_updated(schema, &state, attributes.as_ref())?)
            });
        }
        for version in PAYLOADS {
            let engine = Arc::clone(self);
            let result = match version {
                PayloadVersion::V1 => "Execution payload",
                _ => "Response object",
            };
            let signature = format!(
                "engine_getPayloadV{}(Payload id) -> {result}",
                version as u8
            );
            methods = methods.with(
                &signature,
                Kind::Execution,
                move |call, mut params, reply| {
                    let id: PayloadId = params.required()?;
                    params.end()?;
                    let built = engine.building.get(id)?;
                    envelope(call.node.chain()?.spec(), &built, version, reply)
                },
            );
        }
        for version in 1..=2 {
            methods = methods
                .with(
                    &format!(
                        "engine_getPayloadBodiesByHashV{version}(Array of block hashes) -> Execution payload bodies"
                    ),
                    Kind::Scan,
                    move |call, params, reply| bodies::by_hash(call, version, params, reply),
                )
                .with(
                    &format!(
                        "engine_getPayloadBodiesByRangeV{version}(Starting block number, Number of blocks to return) -> Execution payload bodies"
                    ),
                    Kind::Scan,
                    move |call, params, reply| bodies::by_range(call, version, params, reply),
                )
                .with(
                    &format!(
                        "engine_getBlobsV{version}(Blob versioned hashes) -> Blobs and proofs"
                    ),
                    Kind::Execution,
                    move |call, params, reply| blobs::blobs(call, version, params, reply),
                );
        }
        let names = methods.names().filter(|name| name.starts_with("engine_"));
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        methods
            .with(
                "engine_exchangeCapabilities(Consensus client methods) -> Execution client methods",
                Kind::Quick,
                move |_, mut params, reply| {
                    let _theirs: Vec<String> = params.required()?;
                    params.end()?;
                    reply.value(&names)
                },
            )
            .with(
                "engine_getClientVersionV1(Consensus client version?) -> Execution client versions",
                Kind::Quick,
                |_, mut params, reply| {
                    let theirs: Option<Value> = params.optional()?;
                    params.end()?;
                    tracing::debug!(?theirs, "a consensus client says what it is");
                    reply.value(&identity())
                },
            )
    }
}
