//! Makes the code of the gRPC services from their methods here: no compiler of protocol buffers is needed.

use tonic_build::manual::{Builder, Method, Service};

const CODEC: &str = "tonic_prost::ProstCodec";

fn method(name: &str, route: &str) -> tonic_build::manual::MethodBuilder {
    Method::builder()
        .name(name)
        .route_name(route)
        .input_type(format!("crate::rpc::wire::{route}Call"))
        .output_type(format!("crate::rpc::wire::{route}Reply"))
        .codec_path(CODEC)
}

fn main() {
    let shard = Service::builder()
        .name("Shard")
        .package("cambium.cluster.v1")
        .method(method("status", "Status").build())
        .method(method("read", "Read").build())
        .method(method("update", "Update").server_streaming().build())
        .method(method("snapshot", "Snapshot").server_streaming().build())
        .build();
    let builder = Service::builder()
        .name("Builder")
        .package("cambium.cluster.v1")
        .method(method("submit", "Submit").build())
        .method(method("witness", "Witness").server_streaming().build())
        .build();
    Builder::new().compile(&[shard, builder]);
    println!("cargo:rerun-if-changed=build.rs");
}
