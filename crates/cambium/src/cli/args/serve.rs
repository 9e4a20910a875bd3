//! Arguments of `cambium serve`.

#[cfg(feature = "cluster")]
use super::cluster::{OnNatsArgs, TlsArgs};
use super::{
    super::numbers::{count_in, parse_count, parse_file_size},
    database::DbArgs,
    network::{MetricsArgs, parse_listen},
};
use clap::Args as ClapArgs;
use std::{
    net::SocketAddr,
    num::{NonZeroU64, NonZeroUsize},
    path::PathBuf,
};

/// Most connections, threads and seconds that an option takes: more would be a mistake.
const CONNECTIONS_MAX: u64 = 1_000_000;
const THREADS_MAX: u64 = 1_024;
const SECONDS_MAX: u64 = 365 * 24 * 3600;

pub(crate) const SERVE_HELP: &str = "\
Without --engine the database is read, not written: another process may import into it meanwhile, and the server follows its head. Transactions and logs are found
by the index (`cambium index build`, or `cambium import --index`), values at old blocks come from a history (`--history`), if these are there.

Examples:
  cambium serve -d DIR                           on http://127.0.0.1:8545 and ws://127.0.0.1:8545
  cambium serve -d DIR --http 0.0.0.0:8545 --api eth,net,web3
  cambium serve -d DIR --engine 8551             for a consensus client: blocks come from it

Nothing is asked of clients, neither a password nor a certificate: whoever reaches the address may call all methods of --api, and
keep as much of the machine busy as --threads says. With the group cambium that is also all figures of the process, which --metrics has
at an address of its own: leave the group out where strangers come. Put a proxy in front of it before it listens on other addresses than the loopback.

With --json, when it ends: address, head_number, head_hash, requests, calls and errors (what was answered).";

#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    /// Where to listen for HTTP and WebSockets. A port alone is on the loopback; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8545", value_parser = parse_listen)]
    pub(crate) http: SocketAddr,
    /// Also listen at this socket in the file system, of which you alone may write
    #[arg(long, value_name = "FILE")]
    pub(crate) ipc: Option<PathBuf>,
    /// Groups of methods to serve, separated by commas: eth, net, web3, debug, txpool, rpc, and cambium, with which browsers get the
    /// explorer page
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "eth,net,web3,debug,txpool,rpc,cambium"
    )]
    pub(crate) api: Vec<String>,
    /// Further names under which browsers reach the server, separated by commas; * stands for all. Addresses and localhost are known
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) hosts: Vec<String>,
    /// Sites whose pages may call from a browser, separated by commas, such as https://example.org; * stands for all
    #[arg(long, value_name = "ORIGINS", value_delimiter = ',')]
    pub(crate) cors: Vec<String>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[cfg(feature = "cluster")]
    #[command(flatten)]
    pub(crate) cluster: ShownArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

/// The interface of a consensus client.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "For a consensus client")]
pub(crate) struct EngineArgs {
    /// Serve the Engine API as well, at this address. Then this process writes the database, which must exist, and takes transactions into a
    /// pool. A port alone is on the loopback
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    pub(crate) engine: Option<SocketAddr>,
    /// Of --engine: file with the secret that the consensus client has as well, 32 bytes in hex. It is made if there is none
    /// [default: jwt.hex in the directory of the database]
    #[arg(long, value_name = "FILE", requires = "engine")]
    pub(crate) jwt: Option<PathBuf>,
}

/// A cluster whose shards are shown.
#[cfg(feature = "cluster")]
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "For a cluster")]
pub(crate) struct ShownArgs {
    /// Show the shards of a cluster on the explorer page, and answer `cambium_shards`: address of a NATS server, once for each
    #[arg(long, value_name = "URL")]
    pub(crate) cluster: Vec<String>,
    #[command(flatten)]
    pub(crate) on: OnNatsArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// What a server allows.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Most connections. Further ones wait until one ends
    #[arg(long, value_name = "N", default_value = "500", value_parser = count_in::<NonZeroUsize>(1..=CONNECTIONS_MAX))]
    pub(crate) connections: NonZeroUsize,
    /// Threads that answer [default: twice the processors]
    #[arg(long, value_name = "N", value_parser = count_in::<NonZeroUsize>(1..=THREADS_MAX))]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Most calls of a batch
    #[arg(long, value_name = "N", default_value = "1000", value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) batch_calls: NonZeroUsize,
    /// Most bytes of a request
    #[arg(long, value_name = "SIZE", default_value = "5M", value_parser = parse_file_size)]
    pub(crate) request_size: u64,
    /// Most bytes of an answer
    #[arg(long, value_name = "SIZE", default_value = "160M", value_parser = parse_file_size)]
    pub(crate) answer_size: u64,
    /// Most bytes of the answer to a batch
    #[arg(long, value_name = "SIZE", default_value = "25M", value_parser = parse_file_size)]
    pub(crate) batch_size: u64,
    /// Longest time for an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = count_in::<NonZeroU64>(1..=SECONDS_MAX))]
    pub(crate) answer_seconds: NonZeroU64,
    /// Longest time for executing a call, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = count_in::<NonZeroU64>(1..=SECONDS_MAX))]
    pub(crate) call_seconds: NonZeroU64,
    /// Most gas of a call
    #[arg(long, value_name = "GAS", default_value = "50000000", value_parser = parse_count::<NonZeroU64>)]
    pub(crate) call_gas: NonZeroU64,
    /// Most logs of an answer
    #[arg(long, value_name = "N", default_value = "20000", value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) logs: NonZeroUsize,
    /// Most blocks in which logs are looked for at once
    #[arg(long, value_name = "N", default_value = "100000", value_parser = parse_count::<NonZeroU64>)]
    pub(crate) log_blocks: NonZeroU64,
    /// Most slots that are proved or read at once
    #[arg(long, value_name = "N", default_value = "1024", value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) proof_keys: NonZeroUsize,
    /// Most blocks that are simulated at once
    #[arg(long, value_name = "N", default_value = "256", value_parser = parse_count::<NonZeroU64>)]
    pub(crate) simulated_blocks: NonZeroU64,
    /// Most subscriptions of a connection
    #[arg(long, value_name = "N", default_value = "1024", value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) subscriptions: NonZeroUsize,
}
