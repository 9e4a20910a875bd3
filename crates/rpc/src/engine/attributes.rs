//! What is wrong with the attributes of a payload.

use super::version::{fork_of, takes_attributes, unsupported};
use crate::error::RpcError;
use alloy_rpc_types_engine::PayloadAttributes;
use cambium_chain::{ChainSpec, Fork};

fn invalid(why: impl std::fmt::Display) -> RpcError {
    let message = format!("Invalid payload attributes: {why}");
    RpcError::new(RpcError::PAYLOAD_ATTRIBUTES, message)
}

/// Checks attributes of the first versions, before anything is done.
pub(super) fn check_parameters(
    spec: &ChainSpec,
    version: u8,
    given: &PayloadAttributes,
) -> Result<(), RpcError> {
    let fork = fork_of(spec, given.timestamp);
    let has_later = given.parent_beacon_block_root.is_some() || given.slot_number.is_some();
    let has_withdrawals = given.withdrawals.is_some();
    let is_right = match version {
        1 => !has_withdrawals && !has_later,
        2 if fork <= Fork::Shanghai => has_withdrawals == (fork == Fork::Shanghai) && !has_later,
        _ => true,
    };
    match is_right {
        true => Ok(()),
        false => Err(RpcError::params(
            "the attributes are those of another version",
        )),
    }
}

/// Checks attributes once the head is chosen: what is wrong with them does not undo that.
pub(super) fn check(
    spec: &ChainSpec,
    version: u8,
    given: &PayloadAttributes,
) -> Result<(), RpcError> {
    if version >= 3 {
        let fields = [
            ("withdrawals", given.withdrawals.is_some(), true),
            (
                "parentBeaconBlockRoot",
                given.parent_beacon_block_root.is_some(),
                true,
            ),
            ("slotNumber", given.slot_number.is_some(), version >= 4),
        ];
        if let Some((field, present, _)) = fields.iter().find(|(_, got, wanted)| got != wanted) {
            let what = if *present { "too much" } else { "missing" };
            return Err(invalid(format_args!("{field} is {what}")));
        }
    }
    let fork = fork_of(spec, given.timestamp);
    match takes_attributes(version, fork) {
        true => Ok(()),
        false => Err(unsupported("attributes", fork)),
    }
}

/// The error of attributes that do not fit their parent.
pub(super) fn not_after_parent(why: impl std::fmt::Display) -> RpcError {
    invalid(why)
}
