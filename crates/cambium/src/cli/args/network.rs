//! Arguments of what listens.

use clap::Args as ClapArgs;
use std::net::{Ipv4Addr, SocketAddr};

/// Where a process shows its figures.
#[derive(Clone, Copy, Debug, ClapArgs)]
pub(crate) struct MetricsArgs {
    /// Serve the process's figures over HTTP: /metrics for Prometheus, /health and /ready. A port alone is on the loopback; port 0 is
    /// any that is free
    #[arg(long, value_name = "ADDRESS", value_parser = parse_metrics)]
    pub(crate) metrics: Option<SocketAddr>,
}

/// An address to show figures at, or a port on the loopback.
pub(crate) fn parse_metrics(text: &str) -> Result<SocketAddr, String> {
    parse(text, "127.0.0.1:9100")
}

/// An address to answer calls at, or a port on the loopback.
#[cfg(feature = "serve")]
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    parse(text, "127.0.0.1:8545")
}

fn parse(text: &str, such_as: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => text.parse().map_err(|_| {
            format!("an IP address with a port, or a port, is expected, such as {such_as}")
        }),
    }
}
