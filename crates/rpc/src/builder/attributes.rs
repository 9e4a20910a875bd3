//! What a consensus client chooses of a block, by the rules of the block's fork.

use alloy_primitives::Bytes;
use alloy_rpc_types_engine::PayloadAttributes;
use cambium_chain::{ChainSpec, DraftAttributes, Fork};
use cambium_node::FoundBlock;

/// What the operator chooses of blocks that are built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildOptions {
    /// The gas limit to which blocks go, as far as each may.
    pub gas_limit: u64,
    /// At most 32 bytes.
    pub extra_data: Bytes,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            gas_limit: 60_000_000,
            extra_data: Bytes::from_static(b"cambium"),
        }
    }
}

/// Why no block can be built with some attributes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AttributesFault {
    #[error("the parent is before the merge, and its child as well")]
    BeforeMerge,
    #[error("timestamp {got} is not after the parent's {parent}")]
    Timestamp { got: u64, parent: u64 },
    #[error("{field} is missing, but the block's fork requires it")]
    Missing { field: &'static str },
    #[error("{field} is present, but the block's fork does not have it")]
    Unexpected { field: &'static str },
}

/// The fork of a child of `parent`.
fn fork_after(spec: &ChainSpec, parent: &FoundBlock, timestamp: u64) -> Option<Fork> {
    let number = parent.id.number.saturating_add(1);
    let is_merged = spec.is_post_merge(number, parent.total_difficulty);
    is_merged.then(|| spec.fork_at(number, timestamp, true))
}

/// The attributes of a draft on `parent`, if they are those of its fork.
pub(crate) fn draft_attributes(
    spec: &ChainSpec,
    parent: &FoundBlock,
    given: &PayloadAttributes,
    options: &BuildOptions,
) -> Result<DraftAttributes, AttributesFault> {
    let (got, before) = (given.timestamp, parent.block.header.timestamp);
    let fork = fork_after(spec, parent, got).ok_or(AttributesFault::BeforeMerge)?;
    let has_slots = fork >= Fork::Amsterdam;
    let fields = [
        (
            "withdrawals",
            given.withdrawals.is_some(),
            fork >= Fork::Shanghai,
        ),
        (
            "parentBeaconBlockRoot",
            given.parent_beacon_block_root.is_some(),
            fork >= Fork::Cancun,
        ),
        ("slotNumber", given.slot_number.is_some(), has_slots),
    ];
    for (field, present, wanted) in fields {
        match (present, wanted) {
            (false, true) => return Err(AttributesFault::Missing { field }),
            (true, false) => return Err(AttributesFault::Unexpected { field }),
            _ => {}
        }
    }
    if got <= before {
        return Err(AttributesFault::Timestamp {
            got,
            parent: before,
        });
    }
    Ok(DraftAttributes {
        timestamp: got,
        beneficiary: given.suggested_fee_recipient,
        prev_randao: given.prev_randao,
        withdrawals: given.withdrawals.clone().unwrap_or_default(),
        parent_beacon_block_root: given.parent_beacon_block_root.unwrap_or_default(),
        slot_number: given.slot_number.unwrap_or(0),
        gas_limit: given.target_gas_limit.unwrap_or(options.gas_limit),
    })
}
