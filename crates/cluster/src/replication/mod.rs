//! The replication of block updates through an ordered stream.
//!
//! The stream is transport, never truth: its engine may lose, damage or repeat what it has acknowledged. So each record is signed,
//! a shard verifies every update against its parent's state and logs what it applies, and asks a replica or a builder, by hash,
//! for what the stream does not have.
//!
//! ```text
//!   builder of epoch 7                                    shard
//!      |  signs                                             ^  Verdict: apply, choose, ignore, damaged, missing
//!      v                                                    |
//!   Publisher ---> Stream: 1 2 3 4 5 ... ---> Follower -----'----> Journal (what was applied)
//!                  each record has a position                      answers replicas by hash
//! ```
//!
//! | module | content |
//! |---|---|
//! | `record` | updates, epochs and choices of a head: encoding and signatures |
//! | `follower` | what a shard does about each record: a state machine without I/O, clock or thread |
//! | `journal` | a shard's own log of what it has applied |
//! | `stream` | the ordered stream, whatever engine replicates it; one in memory for tests |
//! | `figures` | how far a follower is behind the stream, for collectors |
//! | `publisher` | how a builder appends its records |
//! | `nats` | the stream, leases, placement and snapshots on NATS JetStream |

mod record;
mod follower;
mod journal;
mod stream;
mod figures;
mod publisher;
mod nats;

pub use figures::StreamEnd;
pub use follower::{
    Counts, Damage, Follower, FollowerState, Hole, Ignored, Missing, StateError, StreamItem,
    StreamPosition, Verdict,
};
pub use journal::{
    FORMATS, Journal, JournalDamage, JournalEntries, JournalEntry, JournalError, JournalOptions,
    JournalRecovery,
};
pub use nats::{
    Lease, Member, Nats, NatsError, NatsOptions, NatsStream, NatsTls, Placement, Registry,
    SnapshotPointer, Snapshots,
};
pub use publisher::{PublishError, Publisher, PublisherFigures};
pub use record::{
    BuilderKeys, Choice, Epoch, RECORD_BYTES_MAX, Record, RecordError, SignedUpdate, Signer,
    SignerError,
};
pub use stream::{
    AppendError, MemoryStream, Stream, StreamBounds, StreamError, StreamFault, StreamReader,
};
