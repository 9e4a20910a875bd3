//! Versions of methods, and the forks that each has.

use crate::error::RpcError;
use cambium_chain::{ChainSpec, Fork};

/// The fork of a block past the merge.
pub(super) fn fork_of(spec: &ChainSpec, timestamp: u64) -> Fork {
    spec.fork_at(u64::MAX, timestamp, true)
}

/// Whether `engine_newPayload` of a version takes the payloads of a fork.
pub(super) fn takes_payload(version: u8, fork: Fork) -> bool {
    match version {
        1 => fork <= Fork::Paris,
        2 => fork <= Fork::Shanghai,
        3 => fork == Fork::Cancun,
        4 => fork == Fork::Prague || fork == Fork::Osaka,
        _ => fork >= Fork::Amsterdam,
    }
}

/// Whether `engine_forkchoiceUpdated` of a version takes the attributes of a fork.
pub(super) fn takes_attributes(version: u8, fork: Fork) -> bool {
    match version {
        1 | 2 => takes_payload(version, fork),
        3 => fork >= Fork::Cancun && fork <= Fork::Osaka,
        _ => fork >= Fork::Amsterdam,
    }
}

pub(super) fn unsupported(what: &str, fork: Fork) -> RpcError {
    RpcError::new(
        RpcError::UNSUPPORTED_FORK,
        format!("Unsupported fork: {what} of {fork:?} are another version's"),
    )
}
