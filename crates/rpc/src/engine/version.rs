//! Versions of methods, and the forks that each has.

use crate::error::RpcError;
use cambium_chain::{ChainSpec, Fork};

/// Forks with an Engine API, the oldest first, by their names in `Eth-Execution-Version`. Forks of blob parameters alone have
/// the name of the fork before them.
pub(super) const FORKS: [(&str, Fork); 6] = [
    ("paris", Fork::Paris),
    ("shanghai", Fork::Shanghai),
    ("cancun", Fork::Cancun),
    ("prague", Fork::Prague),
    ("osaka", Fork::Osaka),
    ("amsterdam", Fork::Amsterdam),
];

/// The fork of a block past the merge.
pub(super) fn fork_of(spec: &ChainSpec, timestamp: u64) -> Fork {
    spec.fork_at(u64::MAX, timestamp, true)
}

/// How a request says of which forks its payload or its attributes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Schema {
    /// By the version of a JSON-RPC method, which several forks may have.
    Version(u8),
    /// By the name of the fork, over REST.
    Fork(Fork),
}

impl Schema {
    /// Whether payloads of a fork have it: `engine_newPayload`.
    pub(super) fn has_payload(self, fork: Fork) -> bool {
        match self {
            Self::Version(1) => fork <= Fork::Paris,
            Self::Version(2) => fork <= Fork::Shanghai,
            Self::Version(3) => fork == Fork::Cancun,
            Self::Version(4) => fork == Fork::Prague || fork == Fork::Osaka,
            Self::Version(_) => fork >= Fork::Amsterdam,
            Self::Fork(own) => own == fork,
        }
    }

    /// Whether attributes of a fork have it: `engine_forkchoiceUpdated`.
    pub(super) fn has_attributes(self, fork: Fork) -> bool {
        match self {
            Self::Version(3) => fork >= Fork::Cancun && fork <= Fork::Osaka,
            Self::Version(4) => fork >= Fork::Amsterdam,
            other => other.has_payload(fork),
        }
    }
}

pub(super) fn unsupported(what: &str, fork: Fork) -> RpcError {
    RpcError::new(
        RpcError::UNSUPPORTED_FORK,
        format!("Unsupported fork: {what} of {fork:?} are another version's"),
    )
}
