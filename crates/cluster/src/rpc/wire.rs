//! The messages, as protocol buffers. `proto/shard.proto` says the same: `tests/wire.rs` compares them.
//!
//! Requests, bags and updates are in their own encodings within, which are those of the stream and of files as well.

use prost::{Message, Oneof, bytes::Bytes};

/// The code of client and server, made from the methods in `build.rs`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "it is generated"
)]
pub(crate) mod shard {
    include!(concat!(env!("OUT_DIR"), "/cambium.cluster.v1.Shard.rs"));
}

#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    reason = "it is generated"
)]
pub(crate) mod builder {
    include!(concat!(env!("OUT_DIR"), "/cambium.cluster.v1.Builder.rs"));
}

/// A block's number and hash.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Block {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    /// 32 bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) hash: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct StatusCall {}

/// What a shard's process is at.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusReply {
    /// Number of the shard, from 0.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// Number of shards of the state.
    #[prost(uint32, tag = "2")]
    pub count: u32,
    /// What the process does while it has no state to serve; empty once it has.
    #[prost(string, tag = "3")]
    pub loading: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) oldest: Option<Block>,
    #[prost(message, optional, tag = "5")]
    pub(crate) newest: Option<Block>,
    /// Number of blocks of which it has the state.
    #[prost(uint64, tag = "6")]
    pub versions: u64,
    /// Bytes of memory of all of them.
    #[prost(uint64, tag = "7")]
    pub memory_bytes: u64,
    /// Updates applied, or known already.
    #[prost(uint64, tag = "8")]
    pub updates: u64,
    /// Updates refused.
    #[prost(uint64, tag = "9")]
    pub refused: u64,
    /// Requests answered.
    #[prost(uint64, tag = "10")]
    pub reads: u64,
    /// Accounts and slots that they asked for.
    #[prost(uint64, tag = "11")]
    pub keys: u64,
    /// Bytes of nodes and codes that they were answered with.
    #[prost(uint64, tag = "12")]
    pub bag_bytes: u64,
    /// Position in the stream of updates up to which all is applied.
    #[prost(uint64, tag = "13")]
    pub position: u64,
    /// The newest epoch that was opened in the stream.
    #[prost(uint64, tag = "14")]
    pub epoch: u64,
    /// What is wrong; empty if nothing is.
    #[prost(string, tag = "15")]
    pub trouble: String,
    /// Calls that were refused because too many waited.
    #[prost(uint64, tag = "16")]
    pub turned_away: u64,
}

/// [`ReadRequest`](crate::ReadRequest), as RLP.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ReadCall {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) request: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct ReadReply {
    #[prost(oneof = "Answer", tags = "1, 2")]
    pub(crate) answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Answer {
    /// [`NodeBag`](crate::NodeBag), as RLP.
    #[prost(bytes = "bytes", tag = "1")]
    Bag(Bytes),
    #[prost(message, tag = "2")]
    Fault(Fault),
}

/// Why a read has no answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Fault {
    #[prost(enumeration = "FaultKind", tag = "1")]
    pub(crate) kind: i32,
    /// The block that the request names.
    #[prost(message, optional, tag = "2")]
    pub(crate) block: Option<Block>,
    /// The oldest block of which there is a state.
    #[prost(message, optional, tag = "3")]
    pub(crate) oldest: Option<Block>,
    /// An account's path, or the hash of a code.
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) hash: Bytes,
    /// Most bytes of an answer.
    #[prost(uint64, tag = "5")]
    pub(crate) bytes_max: u64,
    /// For people.
    #[prost(string, tag = "6")]
    pub(crate) what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum FaultKind {
    Unknown = 0,
    NotYet = 1,
    Gone = 2,
    OtherShard = 3,
    NoCode = 4,
    TooBig = 5,
    Request = 6,
    Unavailable = 7,
}

/// Asks for a record of the stream.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct UpdateCall {
    #[prost(oneof = "Which", tags = "1, 2")]
    pub(crate) which: Option<Which>,
}

/// A record of the stream.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub(crate) enum Which {
    /// The update of the block with this hash, 32 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    Block(Bytes),
    /// The record at this position.
    #[prost(uint64, tag = "2")]
    Position(u64),
}

/// A part of a record: all parts, one after another, are the whole.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct UpdateReply {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) part: Bytes,
}

/// Asks for the state of the oldest block that the shard has.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SnapshotCall {}

/// A part of a snapshot: all parts, one after another, are the whole.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SnapshotReply {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) part: Bytes,
}

/// [`Submission`](crate::Submission), as RLP.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SubmitCall {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) submission: Bytes,
}

/// Whether the builder has it now: not that it will be in a block.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct SubmitReply {
    /// Why not; empty if it has it.
    #[prost(string, tag = "1")]
    pub(crate) refused: String,
}

/// Asks for a block with what executing it needs.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WitnessCall {
    /// The block's hash, 32 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) hash: Bytes,
}

/// A part of the witness in JSON: all parts, one after another, are the whole.
#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct WitnessReply {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) part: Bytes,
}
