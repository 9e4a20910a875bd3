//! `rpc.discover`: the methods of a service as an OpenRPC document, made from its table.

use crate::{
    limits::Kind,
    table::{Method, Methods},
};
use serde::Serialize;
use serde_json::{Value, json};

/// Version of the OpenRPC specification.
const OPENRPC: &str = "1.3.2";
const SIGNATURE: &str = "rpc.discover() -> OpenRPC Schema";

/// A parameter or a result. Its schema is the one that everything satisfies: the table knows names alone.
#[derive(Serialize)]
struct ContentDescriptor<'m> {
    name: &'m str,
    #[serde(skip_serializing_if = "Option::is_none")]
    required: Option<bool>,
    schema: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'m> {
    name: &'m str,
    param_structure: &'static str,
    params: Vec<ContentDescriptor<'m>>,
    result: ContentDescriptor<'m>,
}

impl<'m> Described<'m> {
    fn of(method: &'m Method) -> Self {
        let signature = &*method.signature;
        let params = signature.params.iter().flatten();
        Self {
            name: &signature.name,
            param_structure: "by-position",
            params: params
                .map(|own| ContentDescriptor {
                    name: &own.name,
                    required: Some(own.is_required),
                    schema: json!({}),
                })
                .collect(),
            result: ContentDescriptor {
                name: signature.result.as_deref().unwrap_or("Result"),
                required: None,
                schema: json!({}),
            },
        }
    }
}

/// Adds `rpc.discover`, which lists the methods and itself.
pub(crate) fn discoverable(methods: Methods) -> Methods {
    let add = |methods: Methods, document: String| {
        methods.with(SIGNATURE, Kind::Quick, move |_, params, reply| {
            params.end()?;
            reply.json(&document)
        })
    };
    let methods = add(methods, String::new());
    let all = methods.sorted();
    let all: Vec<_> = all.into_iter().map(Described::of).collect();
    let document = json!({
        "openrpc": OPENRPC,
        "info": {
            "title": "Cambium JSON-RPC",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "methods": all,
    });
    add(methods, document.to_string())
}
