//! What is wrong with the attributes of a payload.

use super::version::{Schema, fork_of, unsupported};
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
    schema: Schema,
    given: &PayloadAttributes,
) -> Result<(), RpcError> {
    let fork = fork_of(spec, given.timestamp);
    let has_later = given.parent_beacon_block_root.is_some() || given.slot_number.is_some();
    let has_withdrawals = given.withdrawals.is_some();
    let is_right = match schema {
        Schema::Version(1) => !has_withdrawals && !has_later,
        Schema::Version(2) if fork <= Fork::Shanghai => {
            has_withdrawals == (fork == Fork::Shanghai) && !has_later
        }
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
    schema: Schema,
    given: &PayloadAttributes,
) -> Result<(), RpcError> {
    // SSZ has the fields of its fork, and no others.
    if let Schema::Version(version @ 3..) = schema {
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
    match schema.has_attributes(fork) {
        true => Ok(()),
        false => Err(unsupported("attributes", fork)),
    }
}

/// The error of attributes that do not fit their parent.
pub(super) fn not_after_parent(why: impl std::fmt::Display) -> RpcError {
    invalid(why)
}
