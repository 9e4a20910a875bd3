//! NATS servers for the tests of the replication.

use cambium_cluster::NatsOptions;
use cambium_testkit::NatsServers;
use std::time::Duration;

pub fn options(servers: &NatsServers) -> NatsOptions {
    NatsOptions {
        urls: servers.urls(),
        makes: true,
        replicas: servers.count(),
        stream_bytes_max: 1 << 30,
        snapshot_bytes_max: 1 << 30,
        message_bytes_max: 64 << 10,
        timeout: Duration::from_secs(2),
        ..NatsOptions::default()
    }
}
