//! Payloads, and the envelope in which they are handed over.

use super::fields::{
    Container, FieldLength, Fields, PART_BYTES_MAX, SszError, TRANSACTIONS_MAX, append_byte_lists,
    append_withdrawals,
};
use alloy_primitives::{B256, Bloom, Bytes};
use alloy_rpc_types_engine::{
    ExecutionPayload, ExecutionPayloadV1, ExecutionPayloadV2, ExecutionPayloadV3,
    ExecutionPayloadV4,
};
use cambium_chain::Fork;

const EXTRA_DATA_BYTES_MAX: usize = 32;
/// Most execution requests of a payload, each of all requests of a type (EIP-7685).
const REQUESTS_MAX: usize = 256;

/// Fields of `ExecutionPayload`, those of later forks last: parent, fee recipient, state root, receipts root, bloom, randao,
/// number, gas limit, gas used, time, extra data, base fee, hash, transactions; withdrawals; blob gas used and excess; access
/// list, slot.
const PAYLOAD: [FieldLength; 19] = [
    Some(32),
    Some(20),
    Some(32),
    Some(32),
    Some(256),
    Some(32),
    Some(8),
    Some(8),
    Some(8),
    Some(8),
    None,
    Some(32),
    Some(32),
    None,
    None,
    Some(8),
    Some(8),
    None,
    Some(8),
];

/// Fields of `ExecutionPayloadEnvelope`: payload; root of the parent's beacon block; execution requests.
const ENVELOPE: [FieldLength; 3] = [None, Some(32), None];

fn payload_fields(fork: Fork) -> &'static [FieldLength] {
    match fork {
        Fork::Amsterdam => &PAYLOAD,
        Fork::Cancun | Fork::Prague | Fork::Osaka => &PAYLOAD[..17],
        Fork::Shanghai => &PAYLOAD[..15],
        _ => &PAYLOAD[..14],
    }
}

fn envelope_fields(fork: Fork) -> &'static [FieldLength] {
    match fork {
        Fork::Prague | Fork::Osaka | Fork::Amsterdam => &ENVELOPE,
        Fork::Cancun => &ENVELOPE[..2],
        _ => &ENVELOPE[..1],
    }
}

/// `ExecutionPayloadEnvelope`: the body of `POST /engine/v1/payloads`.
///
/// ```
/// use cambium_chain::Fork;
/// use cambium_rpc::PayloadEnvelope;
///
/// let mut bytes = vec![0; 4 + 508];
/// bytes[0] = 4; // The payload stands after its offset.
/// bytes[4 + 436] = 0xfc; // No extra data ...
/// bytes[4 + 437] = 1;
/// bytes[4 + 504] = 0xfc; // ... and no transactions: both at 508, the end.
/// bytes[4 + 505] = 1;
/// let envelope = PayloadEnvelope::decode(Fork::Paris, &bytes.clone().into())?;
/// assert_eq!(envelope.encode(Fork::Paris), bytes);
/// # Ok::<(), cambium_rpc::SszError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadEnvelope {
    /// The payload. Its variant is that of the fork.
    pub payload: ExecutionPayload,
    /// From Cancun on.
    pub parent_beacon_block_root: Option<B256>,
    /// Requests of each type, the type's byte before them. From Prague on.
    pub execution_requests: Option<Vec<Bytes>>,
}

impl PayloadEnvelope {
    /// Decodes an envelope by the schema of a fork, one from Paris to Amsterdam. Transactions and access list share the memory of
    /// `bytes`.
    ///
    /// # Errors
    ///
    /// [`SszError`] if an offset or a length does not fit, or a list is longer than the specification allows.
    pub fn decode(fork: Fork, bytes: &Bytes) -> Result<Self, SszError> {
        let mut fields = Fields::of("envelope", bytes, bytes, envelope_fields(fork))?;
        let payload = payload(fork, bytes, fields.next()?)?;
        let parent_beacon_block_root = match fork >= Fork::Cancun {
            true => Some(fields.hash()?),
            false => None,
        };
        let execution_requests = match fork >= Fork::Prague {
            true => Some(fields.byte_lists("execution_requests", REQUESTS_MAX)?),
            false => None,
        };
        Ok(Self {
            payload,
            parent_beacon_block_root,
            execution_requests,
        })
    }

    /// Encodes it by the schema of a fork, as a consensus client does. Fields that are missing are zero or empty.
    pub fn encode(&self, fork: Fork) -> Vec<u8> {
        let mut out = Vec::new();
        let mut envelope = Container::new(&mut out, envelope_fields(fork));
        envelope.variable(|out| append_payload(out, fork, &self.payload));
        if fork >= Fork::Cancun {
            envelope.fixed(self.parent_beacon_block_root.unwrap_or_default().as_slice());
        }
        if fork >= Fork::Prague {
            let requests = self.execution_requests.as_deref().unwrap_or_default();
            envelope.variable(|out| append_byte_lists(out, requests));
        }
        out
    }
}

fn payload(fork: Fork, whole: &Bytes, bytes: &[u8]) -> Result<ExecutionPayload, SszError> {
    let mut fields = Fields::of("payload", whole, bytes, payload_fields(fork))?;
    let paris = ExecutionPayloadV1 {
        parent_hash: fields.hash()?,
        fee_recipient: fields.address()?,
        state_root: fields.hash()?,
        receipts_root: fields.hash()?,
        logs_bloom: Bloom::new(fields.fixed::<256>()?.0),
        prev_randao: fields.hash()?,
        block_number: fields.number()?,
        gas_limit: fields.number()?,
        gas_used: fields.number()?,
        timestamp: fields.number()?,
        extra_data: fields.bytes("extra_data", EXTRA_DATA_BYTES_MAX)?,
        base_fee_per_gas: fields.large_number()?,
        block_hash: fields.hash()?,
        transactions: fields.byte_lists("transactions", TRANSACTIONS_MAX)?,
    };
    if fork < Fork::Shanghai {
        return Ok(ExecutionPayload::V1(paris));
    }
    let shanghai = ExecutionPayloadV2 {
        payload_inner: paris,
        withdrawals: fields.withdrawals()?,
    };
    if fork < Fork::Cancun {
        return Ok(ExecutionPayload::V2(shanghai));
    }
    let cancun = ExecutionPayloadV3 {
        payload_inner: shanghai,
        blob_gas_used: fields.number()?,
        excess_blob_gas: fields.number()?,
    };
    if fork < Fork::Amsterdam {
        return Ok(ExecutionPayload::V3(cancun));
    }
    Ok(ExecutionPayload::V4(ExecutionPayloadV4 {
        payload_inner: cancun,
        block_access_list: fields.bytes("block_access_list", PART_BYTES_MAX)?,
        slot_number: fields.number()?,
    }))
}

/// Appends a payload by the schema of a fork.
pub(super) fn append_payload(out: &mut Vec<u8>, fork: Fork, payload: &ExecutionPayload) {
    let paris = payload.as_v1();
    let mut fields = Container::new(out, payload_fields(fork));
    fields.fixed(paris.parent_hash.as_slice());
    fields.fixed(paris.fee_recipient.as_slice());
    fields.fixed(paris.state_root.as_slice());
    fields.fixed(paris.receipts_root.as_slice());
    fields.fixed(paris.logs_bloom.as_slice());
    fields.fixed(paris.prev_randao.as_slice());
    fields.number(paris.block_number);
    fields.number(paris.gas_limit);
    fields.number(paris.gas_used);
    fields.number(paris.timestamp);
    fields.bytes(&paris.extra_data);
    fields.fixed(&paris.base_fee_per_gas.to_le_bytes::<32>());
    fields.fixed(paris.block_hash.as_slice());
    fields.variable(|out| append_byte_lists(out, &paris.transactions));
    if fork >= Fork::Shanghai {
        let withdrawals = payload.withdrawals().map_or(&[][..], Vec::as_slice);
        fields.variable(|out| append_withdrawals(out, withdrawals));
    }
    if fork >= Fork::Cancun {
        let cancun = payload.as_v3();
        fields.number(cancun.map_or(0, |own| own.blob_gas_used));
        fields.number(cancun.map_or(0, |own| own.excess_blob_gas));
    }
    if fork >= Fork::Amsterdam {
        let amsterdam = payload.as_v4();
        fields.bytes(amsterdam.map_or(&[][..], |own| &own.block_access_list));
        fields.number(amsterdam.map_or(0, |own| own.slot_number));
    }
}
