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
        "commit": "0x00000000",
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

impl Engine {
    /// The methods, with those of the chain that the specification wants beside them.
    pub fn methods(self: &Arc<Self>) -> Methods {
        let mut methods = Methods::of_chain().only(|name| OF_CHAIN.contains(&name));
        for version in 1..=5 {
            let engine = Arc::clone(self);
            let name = format!("engine_newPayloadV{version}");
            methods = methods.with(&name, Kind::Execution, move |call, mut params, reply| {
                let given = Given::parse(call.node.chain()?.spec(), version, &mut params)?;
                reply.value(&engine.new_payload(given)?)
            });
        }
        for version in 1..=4 {
            let engine = Arc::clone(self);
            let name = format!("engine_forkchoiceUpdatedV{version}");
            methods = methods.with(&name, Kind::Execution, move |_, mut params, reply| {
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
            let name = format!("engine_getPayloadV{}", version as u8);
            methods = methods.with(&name, Kind::Execution, move |call, mut params, reply| {
                let id: PayloadId = params.required()?;
                params.end()?;
                let built = engine.building.get(id)?;
                envelope(call.node.chain()?.spec(), &built, version, reply)
            });
        }
        for version in 1..=2 {
            methods = methods
                .with(
                    &format!("engine_getPayloadBodiesByHashV{version}"),
                    Kind::Scan,
                    move |call, params, reply| bodies::by_hash(call, version, params, reply),
                )
                .with(
                    &format!("engine_getPayloadBodiesByRangeV{version}"),
                    Kind::Scan,
                    move |call, params, reply| bodies::by_range(call, version, params, reply),
                )
                .with(
                    &format!("engine_getBlobsV{version}"),
                    Kind::Execution,
                    move |call, params, reply| blobs::blobs(call, version, params, reply),
                );
        }
        let names = methods.names().filter(|name| name.starts_with("engine_"));
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        methods
            .with(
                "engine_exchangeCapabilities",
                Kind::Quick,
                move |_, mut params, reply| {
                    let _theirs: Vec<String> = params.required()?;
                    params.end()?;
                    reply.value(&names)
                },
            )
            .with(
                "engine_getClientVersionV1",
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
