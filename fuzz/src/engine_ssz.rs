//! Requests of the Engine API over REST.

use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256, Bytes, FixedBytes};
use alloy_rpc_types_engine::{
    ExecutionPayload, ExecutionPayloadV1, ExecutionPayloadV2, ExecutionPayloadV3,
    ExecutionPayloadV4, ForkchoiceState, PayloadAttributes,
};
use cambium_chain::{Block, Fork};
use cambium_rpc::{
    BlobsRequest, BodiesRequest, CellsRequest, ForkchoiceUpdate, PayloadEnvelope, SszError,
};

const FORKS: [Fork; 6] = [
    Fork::Paris,
    Fork::Shanghai,
    Fork::Cancun,
    Fork::Prague,
    Fork::Osaka,
    Fork::Amsterdam,
];

/// Kinds of requests.
const KINDS: usize = 5;

/// Input: the fork and the kind of request (1 byte), the request.
///
/// A request that is decoded encodes to the same bytes, and its lists are within the limits of the specification.
pub fn engine_ssz(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else {
        return;
    };
    let choice = usize::from(*choice);
    let fork = FORKS[choice / KINDS % FORKS.len()];
    let body = Bytes::copy_from_slice(body);
    let again = match choice % KINDS {
        0 => PayloadEnvelope::decode(fork, &body).map(|own| {
            check_payload(fork, &own);
            own.encode(fork)
        }),
        1 => ForkchoiceUpdate::decode(fork, &body).map(|own| {
            check_choice(fork, &own);
            own.encode(fork)
        }),
        2 => BodiesRequest::decode(&body).map(|own| {
            assert!(own.block_hashes.len() <= BodiesRequest::MOST);
            own.encode()
        }),
        3 => BlobsRequest::decode(&body).map(|own| {
            assert!(own.versioned_hashes.len() <= 128);
            own.encode()
        }),
        _ => CellsRequest::decode(&body).map(|own| {
            let wanted = (0..200).filter(|cell| own.wants(*cell)).count() as u32;
            let bits: u32 = own.indices.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(wanted, bits);
            own.encode()
        }),
    };
    match again {
        Ok(again) => assert_eq!(body, again, "another encoding of the same request"),
        Err(SszError::TooLong { got, most, .. }) => assert!(got > most),
        Err(SszError::Layout { .. }) => {}
    }
}

fn check_payload(fork: Fork, own: &PayloadEnvelope) {
    let paris = own.payload.as_v1();
    assert!(paris.extra_data.len() <= 32);
    assert!(paris.transactions.len() <= 1 << 20);
    let withdrawals = own.payload.withdrawals();
    assert_eq!(withdrawals.is_some(), fork >= Fork::Shanghai);
    assert!(withdrawals.is_none_or(|all| all.len() <= 16));
    assert_eq!(own.payload.as_v3().is_some(), fork >= Fork::Cancun);
    assert_eq!(own.payload.as_v4().is_some(), fork >= Fork::Amsterdam);
    let requests = own.execution_requests.as_ref();
    assert_eq!(requests.is_some(), fork >= Fork::Prague);
    assert!(requests.is_none_or(|all| all.len() <= 256));
    assert_eq!(own.parent_beacon_block_root.is_some(), fork >= Fork::Cancun);
    // What a payload becomes next.
    let _ = own
        .payload
        .clone()
        .try_into_block::<cambium_chain::Transaction>();
}

fn check_choice(fork: Fork, own: &ForkchoiceUpdate) {
    assert!(own.custody_columns.is_none() || fork >= Fork::Amsterdam);
    let Some(given) = &own.attributes else {
        return;
    };
    let withdrawals = given.withdrawals.as_ref();
    assert_eq!(withdrawals.is_some(), fork >= Fork::Shanghai);
    assert!(withdrawals.is_none_or(|all| all.len() <= 16));
    let root = given.parent_beacon_block_root;
    assert_eq!(root.is_some(), fork >= Fork::Cancun);
    let later = (given.slot_number, given.target_gas_limit);
    let is_later = fork >= Fork::Amsterdam;
    assert_eq!((later.0.is_some(), later.1.is_some()), (is_later, is_later));
}

fn withdrawal(index: u64) -> Withdrawal {
    Withdrawal {
        index,
        validator_index: 2,
        address: Address::repeat_byte(3),
        amount: 4,
    }
}

fn payload(fork: Fork) -> PayloadEnvelope {
    let mut block = Block::default();
    block.header.extra_data = Bytes::from_static(b"extra");
    block.header.base_fee_per_gas = Some(7);
    block.body.withdrawals = Some(vec![withdrawal(0), withdrawal(1)].into());
    let hash = block.header.hash_slow();
    let mut payload = match fork {
        Fork::Amsterdam => {
            let list = Bytes::from_static(&[0xc1, 0xc0]);
            ExecutionPayload::V4(ExecutionPayloadV4::from_block_unchecked_with_bal(
                hash, &block, list,
            ))
        }
        Fork::Cancun | Fork::Prague | Fork::Osaka => {
            ExecutionPayload::V3(ExecutionPayloadV3::from_block_unchecked(hash, &block))
        }
        Fork::Shanghai => {
            ExecutionPayload::V2(ExecutionPayloadV2::from_block_unchecked(hash, &block))
        }
        _ => ExecutionPayload::V1(ExecutionPayloadV1::from_block_unchecked(hash, &block)),
    };
    let transactions = &mut payload.as_v1_mut().transactions;
    transactions.push(Bytes::from_static(&[2, 0xc0]));
    transactions.push(Bytes::from_static(&[0xc3, 1, 2, 3]));
    let requests = vec![Bytes::from_static(&[0, 1]), Bytes::from_static(&[2, 3, 4])];
    PayloadEnvelope {
        payload,
        parent_beacon_block_root: Some(B256::repeat_byte(5)),
        execution_requests: Some(requests),
    }
}

fn choice(fork: Fork, has_attributes: bool) -> ForkchoiceUpdate {
    ForkchoiceUpdate {
        state: ForkchoiceState {
            head_block_hash: B256::repeat_byte(1),
            safe_block_hash: B256::repeat_byte(2),
            finalized_block_hash: B256::ZERO,
        },
        attributes: has_attributes.then(|| PayloadAttributes {
            timestamp: 12,
            prev_randao: B256::repeat_byte(3),
            suggested_fee_recipient: Address::repeat_byte(4),
            withdrawals: Some(vec![withdrawal(9)]),
            parent_beacon_block_root: Some(B256::repeat_byte(5)),
            slot_number: Some(6),
            target_gas_limit: Some(7),
        }),
        custody_columns: (fork == Fork::Amsterdam).then(|| FixedBytes::repeat_byte(8)),
    }
}

/// Valid requests of each kind.
pub(crate) fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let seed = |fork: usize, kind: usize, mut body: Vec<u8>| {
        body.insert(0, (fork * KINDS + kind) as u8);
        body
    };
    let names = [
        ("payload_paris", "choice_paris"),
        ("payload_shanghai", "choice_shanghai"),
        ("payload_cancun", "choice_cancun"),
        ("payload_prague", "choice_prague"),
        ("payload_osaka", "choice_osaka"),
        ("payload_amsterdam", "choice_amsterdam"),
    ];
    let mut all = Vec::new();
    for (index, (fork, (payloads, choices))) in FORKS.into_iter().zip(names).enumerate() {
        all.push((payloads, seed(index, 0, payload(fork).encode(fork))));
        all.push((choices, seed(index, 1, choice(fork, true).encode(fork))));
    }
    let hashes = vec![B256::repeat_byte(1), B256::repeat_byte(2)];
    let none = choice(Fork::Osaka, false).encode(Fork::Osaka);
    let bodies = BodiesRequest {
        block_hashes: hashes.clone(),
    };
    let blobs = BlobsRequest {
        versioned_hashes: hashes.clone(),
    };
    let cells = CellsRequest {
        versioned_hashes: hashes,
        indices: FixedBytes::repeat_byte(0x11),
    };
    all.push(("choice_alone", seed(4, 1, none)));
    all.push(("bodies", seed(0, 2, bodies.encode())));
    all.push(("blobs", seed(0, 3, blobs.encode())));
    all.push(("cells", seed(0, 4, cells.encode())));
    all
}
