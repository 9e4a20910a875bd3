//! A choice of the head with the attributes of a payload, and the statuses that are answered.

use super::fields::{
    Container, FieldLength, Fields, SszError, append_list, append_withdrawals, fixed_bytes,
    fixed_items, variable_items,
};
use alloy_primitives::{Bytes, FixedBytes};
use alloy_rpc_types_engine::{
    ForkchoiceState, ForkchoiceUpdated, PayloadAttributes, PayloadStatus, PayloadStatusEnum,
};
use cambium_chain::Fork;

/// Most bytes of an error in a status.
const ERROR_BYTES_MAX: usize = 1024;
/// Bytes of a set of columns, a bit each.
const COLUMNS_BYTES: usize = 16;

/// Fields of `ForkchoiceUpdate`: state; attributes; columns.
const UPDATE: [FieldLength; 3] = [Some(96), None, None];
/// Fields of `PayloadAttributes`, those of later forks last: time, randao, fee recipient; withdrawals; root of the parent's
/// beacon block; slot, gas limit.
const ATTRIBUTES: [FieldLength; 7] = [
    Some(8),
    Some(32),
    Some(20),
    None,
    Some(32),
    Some(8),
    Some(8),
];
/// Fields of `PayloadStatus`: status; latest valid hash; error.
const STATUS: [FieldLength; 3] = [Some(1), None, None];
/// Fields of `ForkchoiceUpdateResponse`: status; identifier of the payload.
const RESPONSE: [FieldLength; 2] = [None, None];

fn update_fields(fork: Fork) -> &'static [FieldLength] {
    match fork {
        Fork::Amsterdam => &UPDATE,
        _ => &UPDATE[..2],
    }
}

fn attribute_fields(fork: Fork) -> &'static [FieldLength] {
    match fork {
        Fork::Amsterdam => &ATTRIBUTES,
        Fork::Cancun | Fork::Prague | Fork::Osaka => &ATTRIBUTES[..5],
        Fork::Shanghai => &ATTRIBUTES[..4],
        _ => &ATTRIBUTES[..3],
    }
}

/// `ForkchoiceUpdate`: the body of `POST /engine/v1/forkchoice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkchoiceUpdate {
    /// Head, safe and finalized block.
    pub state: ForkchoiceState,
    /// Of a payload that is to be built, with the fields of the fork.
    pub attributes: Option<PayloadAttributes>,
    /// The columns that the consensus client keeps, a bit each. From Amsterdam on.
    pub custody_columns: Option<FixedBytes<COLUMNS_BYTES>>,
}

impl ForkchoiceUpdate {
    /// Decodes an update by the schema of a fork, one from Paris to Amsterdam.
    ///
    /// # Errors
    ///
    /// [`SszError`] if an offset or a length does not fit, or a list is longer than the specification allows.
    pub fn decode(fork: Fork, bytes: &Bytes) -> Result<Self, SszError> {
        let mut fields = Fields::of("update", bytes, bytes, update_fields(fork))?;
        let hashes = [Some(32); 3];
        let mut state = Fields::of("forkchoice_state", bytes, fields.next()?, &hashes)?;
        let state = ForkchoiceState {
            head_block_hash: state.hash()?,
            safe_block_hash: state.hash()?,
            finalized_block_hash: state.hash()?,
        };
        let attributes = match optional_attributes(fork, fields.next()?)? {
            Some(given) => Some(attributes(fork, bytes, given)?),
            None => None,
        };
        let custody_columns = match fork >= Fork::Amsterdam {
            true => fixed_items("custody_columns", fields.next()?, COLUMNS_BYTES, 1)?.next(),
            false => None,
        };
        Ok(Self {
            state,
            attributes,
            custody_columns: custody_columns.map(FixedBytes::from_slice),
        })
    }

    /// Encodes it by the schema of a fork, as a consensus client does. Fields of attributes that are missing are zero or empty.
    pub fn encode(&self, fork: Fork) -> Vec<u8> {
        let mut out = Vec::new();
        let mut update = Container::new(&mut out, update_fields(fork));
        update.fixed(self.state.head_block_hash.as_slice());
        update.fixed(self.state.safe_block_hash.as_slice());
        update.fixed(self.state.finalized_block_hash.as_slice());
        update.variable(|out| match &self.attributes {
            Some(given) if fork < Fork::Shanghai => append_attributes(out, fork, given),
            given => append_list(out, given.iter(), |out, given| {
                append_attributes(out, fork, given);
            }),
        });
        if fork >= Fork::Amsterdam {
            let columns = self.custody_columns.as_ref();
            update.bytes(columns.map_or(&[], |columns| columns.as_slice()));
        }
        out
    }
}

/// The attributes of a list of at most one. Those of Paris alone have a fixed length.
fn optional_attributes(fork: Fork, list: &[u8]) -> Result<Option<&[u8]>, SszError> {
    let what = "payload_attributes";
    Ok(match fork {
        Fork::Paris => {
            let bytes = fixed_bytes(attribute_fields(fork));
            fixed_items(what, list, bytes, 1)?.next()
        }
        _ => variable_items(what, list, 1)?.pop(),
    })
}

fn attributes(fork: Fork, whole: &Bytes, bytes: &[u8]) -> Result<PayloadAttributes, SszError> {
    let mut fields = Fields::of("payload_attributes", whole, bytes, attribute_fields(fork))?;
    let mut given = PayloadAttributes {
        timestamp: fields.number()?,
        prev_randao: fields.hash()?,
        suggested_fee_recipient: fields.address()?,
        withdrawals: None,
        parent_beacon_block_root: None,
        slot_number: None,
        target_gas_limit: None,
    };
    if fork >= Fork::Shanghai {
        given.withdrawals = Some(fields.withdrawals()?);
    }
    if fork >= Fork::Cancun {
        given.parent_beacon_block_root = Some(fields.hash()?);
    }
    if fork >= Fork::Amsterdam {
        given.slot_number = Some(fields.number()?);
        given.target_gas_limit = Some(fields.number()?);
    }
    Ok(given)
}

fn append_attributes(out: &mut Vec<u8>, fork: Fork, given: &PayloadAttributes) {
    let mut fields = Container::new(out, attribute_fields(fork));
    fields.number(given.timestamp);
    fields.fixed(given.prev_randao.as_slice());
    fields.fixed(given.suggested_fee_recipient.as_slice());
    if fork >= Fork::Shanghai {
        let withdrawals = given.withdrawals.as_deref().unwrap_or_default();
        fields.variable(|out| append_withdrawals(out, withdrawals));
    }
    if fork >= Fork::Cancun {
        fields.fixed(
            given
                .parent_beacon_block_root
                .unwrap_or_default()
                .as_slice(),
        );
    }
    if fork >= Fork::Amsterdam {
        fields.number(given.slot_number.unwrap_or(0));
        fields.number(given.target_gas_limit.unwrap_or(0));
    }
}

/// Encodes `PayloadStatus`.
pub(in crate::engine) fn payload_status(status: &PayloadStatus) -> Vec<u8> {
    let mut out = Vec::new();
    append_status(&mut out, status);
    out
}

/// Encodes `ForkchoiceUpdateResponse`.
pub(in crate::engine) fn forkchoice_updated(updated: &ForkchoiceUpdated) -> Vec<u8> {
    let mut out = Vec::new();
    let mut fields = Container::new(&mut out, &RESPONSE);
    fields.variable(|out| append_status(out, &updated.payload_status));
    let id = updated.payload_id.as_ref();
    fields.bytes(id.map_or(&[], |id| id.0.as_slice()));
    out
}

fn append_status(out: &mut Vec<u8>, status: &PayloadStatus) {
    let (number, error) = match &status.status {
        PayloadStatusEnum::Valid => (0, None),
        PayloadStatusEnum::Invalid { validation_error } => (1, Some(validation_error)),
        PayloadStatusEnum::Syncing => (2, None),
        PayloadStatusEnum::Accepted => (3, None),
    };
    let mut fields = Container::new(out, &STATUS);
    fields.fixed(&[number]);
    let hash = status.latest_valid_hash.as_ref();
    fields.bytes(hash.map_or(&[], |hash| hash.as_slice()));
    fields.variable(|out| {
        append_list(out, error.into_iter(), |out, error: &String| {
            let cut = error.floor_char_boundary(ERROR_BYTES_MAX);
            out.extend_from_slice(&error.as_bytes()[..cut]);
        });
    });
}
