//! The state in the memory of several machines.
//!
//! A *shard* owns the subtries below some first nibbles of the state trie, in memory, at several blocks at once. A *reader* sees the
//! whole state at one block through the shards, and believes none of them: each read comes with the nodes on its path, in
//! a node bag, and is verified against the state root. It keeps the upper levels of the trie, so that bags are short.
//!
//! ```text
//!   block ---> update: header, changes, codes, top nodes ---> shard 0 .. shard 15     each checks its root
//!                                                                |
//!   execution <--- reader: pruned trie <--- node bags -----------'                    each node is hashed once
//! ```
//!
//! | module | content |
//! |---|---|
//! | `helpers` | threads that help builders |
//! | `range` | which part of the trie a shard owns |
//! | `top` | the nodes above the shards, by which a shard verifies that its root is part of a block's |
//! | `message`, `compact`, `bag` | requests, node bags, and how both travel |
//! | `update` | what a block tells the shards |
//! | `shard` | versions by block, updates, reads |
//! | `snapshot` | the state of a shard as bytes |
//! | `shards` | all shards as one: requests are divided, and replicas tried in turn |
//! | `reader` | the state at one block, verified |
//! | `submission` | transactions that a client has run, with the nodes that they read |
//! | `builder` | blocks of submissions, on a pruned trie; what is stale is revised |
//! | `rpc` | shards and builders in other processes |
//! | `replication` | the ordered stream of signed updates, what a shard does about each record, and its journal |
//! | `process` | the process of a shard: start, following the stream, snapshots |
//! | `members` | what processes tell each other about themselves |
//! | `source` | a full database as the source of snapshots and updates |
//!
//! After DMPT and FVChain (the trie sharded over the memory of machines, lazily hashed; node bags; retention levels).

mod helpers;
mod range;
mod top;
mod message;
mod compact;
mod bag;
mod update;
mod shard;
mod snapshot;
mod shards;
mod reader;
mod submission;
mod builder;
mod rpc;
mod replication;
mod process;
mod members;
mod source;

pub use bag::{NodeBag, ReadError, ReadGroup, ReadRequest};
pub use builder::{BuildError, BuildTimings, Builder, Built, Incomplete, LeftOut};
pub use cambium_metrics::{
    Count, LabelledMetrics, MetricsHost, MetricsLimits, MetricsPage, MetricsRegistry,
    MetricsServer, Tally,
};
pub use members::{Role, RoleError, replicas};
pub use message::RequestError;
pub use process::{
    BuilderOptions, BuilderProcess, BuilderProcessError, DatabaseFigures, FollowError, Followed,
    FollowingDatabase, Paused, Peer, ProcessError, ProcessOptions, RemotePeer, ShardProcess,
    ShardProgress, Taken,
};
pub use range::{RangeError, ShardRange};
pub use reader::{Reader, ReaderError, ReaderView, ShardStorage};
pub use replication::{
    AppendError, BuilderKeys, Choice, Counts, Damage, Epoch, FORMATS, Follower, FollowerState,
    Hole, Ignored, Journal, JournalDamage, JournalEntries, JournalEntry, JournalError,
    JournalOptions, JournalRecovery, Lease, Member, MemoryStream, Missing, Nats, NatsError,
    NatsOptions, NatsStream, NatsTls, Placement, PublishError, Publisher, PublisherFigures,
    RECORD_BYTES_MAX, Record, RecordError, Registry, SignedUpdate, Signer, SignerError,
    SnapshotPointer, Snapshots, StateError, Stream, StreamBounds, StreamEnd, StreamError,
    StreamFault, StreamItem, StreamPosition, StreamReader, Verdict,
};
pub use rpc::{
    BuilderClient, BuilderHost, ClientLimits, ConnectError, HostStatus, RemoteShard, ServeError,
    Server, ServerFigures, ServerLimits, ShardClient, ShardHost, StatusReply, TlsError, TlsFiles,
    Wanted,
};
pub use shard::{ApplyError, Shard, ShardLimits, ShardLoader, ShardStats};
pub use shards::{Answered, Service, Shards};
pub use snapshot::{SnapshotError, SnapshotInfo, SnapshotWriter};
pub use source::{Source, SourceError};
pub use submission::{DroppedError, Submission};
pub use top::{OtherRoot, TopError, top_nodes};
pub use update::{BlockUpdate, UpdateError};
