//! Arguments of the commands of a cluster: the state in the memory of several machines.

use super::{
    super::numbers::{parse_file_size, parse_memory},
    database::DbArgs,
    network::{MetricsArgs, parse_metrics},
    proof::RulesArgs,
};
use cambium::{Address, B256};
use cambium_cluster::ShardRange;
use clap::{Args as ClapArgs, Subcommand};
use std::{net::SocketAddr, path::PathBuf};

pub(crate) const SHARD_HELP: &str = "\
A shard keeps its part of the state in memory, at all blocks from the newest final one on, and answers reads with proofs. It \
starts from the newest snapshot in its folder, or else in the object store, or else of a replica; then it follows the stream of updates. \
Each update is verified against the state root in its header, without asking others.

Example: cambium shard --shard 0/4 --folder shard0 --builder 0xADDRESS --chain-id 1 --listen 127.0.0.1:7100

It listens on the loopback unless told otherwise. On any other address, give --tls-authority, --tls-certificate and --tls-key: then \
each side shows a certificate of that authority.";

pub(crate) const CLUSTER_HELP: &str = "\
A cluster holds the state of a chain in the memory of several machines: shards, each with replicas. NATS JetStream carries \
the updates, the snapshots and the addresses of the processes; nothing that it says is believed unverified.

To try it on this machine: cambium cluster up --shards 4 --replicas 2
By hand, from a database: cluster key, cluster init, a shard for each part, cluster feed; then cluster status and cluster get.";

pub(crate) const BUILDER_HELP: &str = "\
A builder has the upper levels of the state trie, and gets what is below with the submissions of clients, or from the shards. It opens \
an epoch, which deposes whoever published before, and builds a block in each interval in which something waits.

Example: cambium builder --genesis genesis.json --key builder.key --listen 127.0.0.1:7000

The newest block that the shards have must be signed by a configured builder: by this one, or one named with --builder.";

pub(crate) const CLIENT_HELP: &str = "\
Each transaction is run on the newest state of the shards, with guessed values of the next block. What would be invalid or revert there \
is dropped, with the reason; what is left goes to a builder, with the nodes that it has read and the builder does not keep.

Example: cambium client transactions.rlp --genesis genesis.json --builder 0xADDRESS";

pub(crate) const VALIDATOR_HELP: &str = "\
A validator follows the stream of updates, gets each block with its witness from a builder, and executes it: it has no state of its own. \
It prints whether it agrees, and ends with exit code 5 at the first block with which it does not.

Example: cambium validator --genesis genesis.json --builder 0xADDRESS";

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make a builder's key, or print the address of one
    Key(KeyArgs),
    /// Make a cluster from a database: the stream, and a snapshot for each shard
    Init(ClusterInitArgs),
    /// Publish the blocks of a database, and those that are imported into it from now on
    Feed(FeedArgs),
    /// Publish what a shard has in its journal in a new stream, after the old one was lost
    Republish(RepublishArgs),
    /// Print who serves which shard, at which block, and what is wrong
    Status(StatusArgs),
    /// Read an account and slots through the shards, verified against the state root
    Get(ClusterGetArgs),
    /// Start a whole cluster on this machine, for development and tests
    Up(UpArgs),
}

/// Where the cluster is.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct NatsArgs {
    /// Address of a NATS server, once for each
    #[arg(long, value_name = "URL", default_value = "nats://127.0.0.1:4222")]
    pub(crate) nats: Vec<String>,
    #[command(flatten)]
    pub(crate) on: OnNatsArgs,
}

/// Which cluster it is on these servers, and how they are spoken to.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct OnNatsArgs {
    /// Name of the cluster, with which its stream and buckets begin
    #[arg(long, value_name = "NAME", default_value = "cambium")]
    pub(crate) name: String,
    /// Credentials for NATS
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_credentials: Option<PathBuf>,
    /// Certificate of the authority of the NATS servers, for TLS
    #[arg(long, value_name = "FILE")]
    pub(crate) nats_authority: Option<PathBuf>,
}

/// How a cluster is made.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct MakeArgs {
    /// On how many NATS servers each record is: 1, 3 or 5
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = parse_copies)]
    pub(crate) copies: usize,
    /// Most bytes of the stream: beyond it, publishing waits until old records are removed
    #[arg(long, value_name = "SIZE", default_value = "16G", value_parser = parse_file_size)]
    pub(crate) stream_size: u64,
    /// Most bytes of all snapshots
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_file_size)]
    pub(crate) snapshots_size: u64,
}

fn parse_copies(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        "5" => Ok(5),
        _ => Err("it is 1, 3 or 5".to_owned()),
    }
}

/// A database as the source of a cluster.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    pub(crate) db: DbArgs,
    /// Number of shards: 1, 2, 4, 8, 16 or 256
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub(crate) shards: usize,
    /// File with the builder's key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
}

/// Where a process answers.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ListenArgs {
    /// Where to listen. Port 0 is any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// The address that others use, if it is not where it listens
    #[arg(long, value_name = "URL")]
    pub(crate) public: Option<String>,
}

/// Builders whose records are believed.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct BelievedArgs {
    /// Address of a builder whose updates are believed, once for each
    #[arg(long = "builder", value_name = "ADDRESS", required = true)]
    pub(crate) builders: Vec<Address>,
}

/// Whose records of which chain are believed.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct BuilderArgs {
    /// Chain of the cluster
    #[arg(long, value_name = "ID")]
    pub(crate) chain_id: u64,
    #[command(flatten)]
    pub(crate) believed: BelievedArgs,
}

/// Certificates between the processes of the cluster.
#[derive(Clone, Debug, Default, ClapArgs)]
pub(crate) struct TlsArgs {
    /// Certificate of the authority that both sides believe, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_authority: Option<PathBuf>,
    /// This side's certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The key of this side's certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_authority")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ShardArgs {
    /// Which part of the state: its number from 0, and how many there are (1, 2, 4, 8, 16, 256)
    #[arg(long, value_name = "N/COUNT", value_parser = parse_range)]
    pub(crate) shard: ShardRange,
    /// Folder for snapshots and the journal
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) at: ListenArgs,
    /// Name of this process among the members of the cluster [default: shard, number and port]
    #[arg(long, value_name = "NAME")]
    pub(crate) member: Option<String>,
    /// Memory for the state: beyond it, updates wait until a block is final [default: three quarters of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory: Option<u64>,
    /// Number of states after different blocks that are kept at once, at most
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) versions: usize,
    /// Number of blocks that become final between two snapshots
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) snapshot_blocks: u64,
    /// Most bytes of the journal: from three quarters on, each block that becomes final is a snapshot; the process ends when it is full
    #[arg(long, value_name = "SIZE", default_value = "64G", value_parser = parse_file_size)]
    pub(crate) journal_size: u64,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    #[command(flatten)]
    pub(crate) builders: BuilderArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

fn parse_range(text: &str) -> Result<ShardRange, String> {
    let parts = text.split_once('/');
    let number = |text: &str| text.parse::<usize>().ok();
    let parts = parts.and_then(|(index, count)| Some((number(index)?, number(count)?)));
    let (index, count) = parts.ok_or("a number and a count are expected, such as 0/4")?;
    ShardRange::new(index, count).map_err(|error| error.to_string())
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct KeyArgs {
    /// File with the key: 32 bytes in hexadecimal. It is made if it is not there
    pub(crate) file: PathBuf,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ClusterInitArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Begin this far below the head, where the database does not say which blocks are final
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) final_below: u64,
    #[command(flatten)]
    pub(crate) make: MakeArgs,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct FeedArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Address of another builder of the cluster, once for each: if it opens a later epoch, this one ends
    #[arg(long = "builder", value_name = "ADDRESS")]
    pub(crate) builders: Vec<Address>,
    /// Take blocks this far below the head for final, where the database does not say which are
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) final_below: u64,
    /// End once the database's head is published
    #[arg(long)]
    pub(crate) once: bool,
    /// Leave the blocks' transactions out of the updates: shards don't need them, `cambium import --follow` does
    #[arg(long)]
    pub(crate) no_bodies: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// A cluster that a database follows.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "Following a cluster")]
pub(crate) struct FollowArgs {
    /// After all files, follow the blocks of a cluster: address of a NATS server, once for each. They are applied by their state
    /// updates, not executed, and state roots are verified. Ends at Ctrl-C
    #[arg(long, value_name = "URL", requires = "builders", conflicts_with_all = ["apply", "access_lists"])]
    pub(crate) follow: Vec<String>,
    /// Of --follow: address of a builder whose updates are believed, once for each
    #[arg(long = "builder", value_name = "ADDRESS", requires = "follow")]
    pub(crate) builders: Vec<Address>,
    /// Of --follow: end once all that the cluster has published is there
    #[arg(long, requires = "follow")]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) on: OnNatsArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// A cluster from which a partial database gets the storage of further contracts.
#[derive(Clone, Debug, ClapArgs)]
#[command(next_help_heading = "From a cluster")]
pub(crate) struct FromClusterArgs {
    /// The storage of the contracts that are added comes from the shards of a cluster, which must have the state of the block: address
    /// of a NATS server, once for each. Each answer is verified against the state root
    #[arg(long, value_name = "URL", conflicts_with = "from")]
    pub(crate) from_cluster: Vec<String>,
    #[command(flatten)]
    pub(crate) on: OnNatsArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct RepublishArgs {
    /// Folder of a shard whose process does not run
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) make: MakeArgs,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct ClusterGetArgs {
    /// Address of the account
    pub(crate) address: Address,
    /// Slots, as numbers or in hexadecimal
    pub(crate) slots: Vec<cambium::U256>,
    /// Hash of the block after which to read [default: the newest that a shard has]
    #[arg(long, value_name = "HASH")]
    pub(crate) block_hash: Option<B256>,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    #[command(flatten)]
    pub(crate) builders: BuilderArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct UpArgs {
    /// Database of the chain [default: a generated one]
    #[arg(long, short = 'd', value_name = "DIR", env = "CAMBIUM_DATADIR")]
    pub(crate) datadir: Option<PathBuf>,
    /// Number of shards: 1, 2, 4, 8, 16 or 256
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub(crate) shards: usize,
    /// Number of processes that serve each shard
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=16))]
    pub(crate) replicas: u64,
    /// Address of a NATS server, or `embedded`: then one is started, and installed if it is not there
    #[arg(long, value_name = "URL", default_value = "embedded")]
    pub(crate) nats: String,
    /// Folder for everything that the cluster keeps
    #[arg(long, value_name = "DIR", default_value = "cambium-cluster")]
    pub(crate) folder: PathBuf,
    /// End once all shards are at the head of the database
    #[arg(long)]
    pub(crate) once: bool,
    /// Serve the figures of all processes over HTTP, as the processes' own --metrics does: those of the feed at this address, those of
    /// the shards at the ports after it, in their order. A port alone is on the loopback; with port 0 each has any that is free
    #[arg(long, value_name = "ADDRESS", value_parser = parse_metrics)]
    pub(crate) metrics: Option<SocketAddr>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BuilderProcessArgs {
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// File with this builder's key
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
    /// Address of another builder of the cluster, once for each
    #[arg(long = "builder", value_name = "ADDRESS")]
    pub(crate) builders: Vec<Address>,
    #[command(flatten)]
    pub(crate) at: ListenArgs,
    /// Milliseconds between two blocks, if something waits
    #[arg(long, value_name = "MS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub(crate) interval: u64,
    /// Who gets the fees
    #[arg(long, value_name = "ADDRESS", default_value_t = Address::ZERO)]
    pub(crate) beneficiary: Address,
    /// Gas limit of blocks, towards which it goes
    #[arg(long, value_name = "GAS", default_value_t = 60_000_000)]
    pub(crate) gas_limit: u64,
    /// Keep the nodes of the account trie at depths below this
    #[arg(long, value_name = "DEPTH", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=7))]
    pub(crate) level: u8,
    /// Leave out a transaction whose nodes neither the builder nor its bag has, instead of asking the shards
    #[arg(long)]
    pub(crate) reject_incomplete: bool,
    /// Leave the blocks' transactions out of the updates: shards don't need them, `cambium import --follow` does
    #[arg(long)]
    pub(crate) no_bodies: bool,
    /// How far below the head blocks are final
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) final_below: u64,
    /// Build at most this many blocks ahead of the shard that is farthest behind, by its best replica
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=255))]
    pub(crate) ahead: u64,
    /// End after this many blocks
    #[arg(long, value_name = "N")]
    pub(crate) blocks: Option<u64>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ClientArgs {
    /// Files of blocks, as `export` and `workload` write them, whose transactions are submitted
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) believed: BelievedArgs,
    /// Leave out nodes of the account trie at depths below this, which builders keep
    #[arg(long, value_name = "DEPTH", default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=7))]
    pub(crate) level: u8,
    /// Submit what would be invalid or revert as well, without nodes: others may come before it
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ValidatorArgs {
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) believed: BelievedArgs,
    /// Position in the stream from which on [default: what is new]
    #[arg(long, value_name = "POSITION")]
    pub(crate) from_record: Option<u64>,
    /// End after this many blocks
    #[arg(long, value_name = "N")]
    pub(crate) blocks: Option<u64>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}
