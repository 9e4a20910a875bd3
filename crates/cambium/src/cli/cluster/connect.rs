//! Connections to NATS, and what the options of several commands stand for.

use super::super::{
    args::cluster::{BuilderArgs, ListenArgs, MakeArgs, NatsArgs, OnNatsArgs, TlsArgs},
    error::Failure,
};
use cambium_cluster::{BuilderKeys, Nats, NatsOptions, NatsTls, Server, TlsFiles};
use tokio::runtime::{Builder, Runtime};

/// A connection to the servers of a cluster, which is made if `make` says how.
pub(super) fn nats(args: &NatsArgs, make: Option<&MakeArgs>) -> Result<Nats, Failure> {
    let own = NatsOptions::default();
    let OnNatsArgs {
        name,
        nats_credentials,
        nats_authority,
    } = args.on.clone();
    let tls = nats_authority.map(|authorities| NatsTls {
        authorities,
        client: None,
    });
    Nats::connect(NatsOptions {
        urls: args.nats.clone(),
        credentials: nats_credentials,
        tls,
        name,
        makes: make.is_some(),
        replicas: make.map_or(own.replicas, |make| make.copies),
        stream_bytes_max: make.map_or(own.stream_bytes_max, |make| make.stream_size),
        snapshot_bytes_max: make.map_or(own.snapshot_bytes_max, |make| make.snapshots_size),
        ..own
    })
    .map_err(Failure::cluster)
}

pub(super) fn tls(args: &TlsArgs) -> Option<TlsFiles> {
    Some(TlsFiles {
        authority: args.tls_authority.clone()?,
        certificate: args.tls_certificate.clone()?,
        key: args.tls_key.clone()?,
    })
}

pub(super) fn keys(args: &BuilderArgs) -> BuilderKeys {
    BuilderKeys {
        chain_id: args.chain_id,
        keys: args.believed.builders.clone(),
    }
}

/// Listens where a process is to answer. Returns the address that others use. Without certificates it is the loopback alone.
pub(super) fn listen(
    args: &ListenArgs,
    tls: Option<&TlsFiles>,
    runtime: &Runtime,
) -> Result<(Server, String), Failure> {
    let listen = args.listen;
    if tls.is_none() && !listen.ip().is_loopback() {
        return Err(Failure::cluster(format!(
            "{listen} is not the loopback: without --tls-authority, --tls-certificate and --tls-key anyone who reaches it could use \
             it, and keep it busy"
        )));
    }
    let server = runtime.block_on(Server::listen(listen));
    let server = server.map_err(Failure::cluster)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let own = format!("{scheme}://{}", server.address());
    Ok((server, args.public.clone().unwrap_or(own)))
}

pub(super) fn runtime() -> Result<Runtime, Failure> {
    let made = Builder::new_multi_thread()
        .thread_name("cambium-net")
        .enable_all()
        .build();
    made.map_err(Failure::cluster)
}
