//! What tools ask of every client.

use super::objects::Quantity;
use crate::{limits::Kind, table::Methods};
use alloy_primitives::{Bytes, keccak256};
use serde_json::json;

/// Name and version, as clients name themselves.
pub(crate) const CLIENT: &str = concat!("cambium/v", env!("CARGO_PKG_VERSION"));

pub(super) fn add(methods: Methods) -> Methods {
    methods
        .with(
            "web3_clientVersion() -> Client version",
            Kind::Quick,
            |_, params, reply| {
                params.end()?;
                let (os, processor) = (std::env::consts::OS, std::env::consts::ARCH);
                reply.value(&format!("{CLIENT}/{os}-{processor}"))
            },
        )
        .with(
            "web3_sha3(Data) -> Hash",
            Kind::Quick,
            |_, mut params, reply| {
                let bytes: Bytes = params.required()?;
                params.end()?;
                reply.value(&keccak256(bytes))
            },
        )
        .with(
            "net_version() -> Network ID",
            Kind::Value,
            |call, params, reply| {
                params.end()?;
                reply.value(&call.node.chain()?.spec().chain_id.to_string())
            },
        )
        .with(
            "net_listening() -> Listening status",
            Kind::Quick,
            |_, params, reply| {
                params.end()?;
                reply.value(&false)
            },
        )
        .with(
            "net_peerCount() -> Peer count",
            Kind::Quick,
            |_, params, reply| {
                params.end()?;
                reply.value(&Quantity::from(0_u64))
            },
        )
        .with(
            "rpc_modules() -> Modules",
            Kind::Quick,
            |_, params, reply| {
                params.end()?;
                let modules = ["eth", "net", "web3", "debug", "txpool", "rpc"];
                let modules = modules.map(|name| (name.to_owned(), json!("1.0")));
                reply.value(&serde_json::Map::from_iter(modules))
            },
        )
}
