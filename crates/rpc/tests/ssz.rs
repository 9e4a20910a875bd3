//! Requests as SSZ: limits, offsets and lengths, and that nothing else is decoded than what was encoded.

use crate::{
    common::rest::FORKS,
    engine::{valid, workload},
    rest::{attributes, choice},
};
use alloy_primitives::{B256, Bytes, FixedBytes};
use alloy_rpc_types_engine::PayloadAttributes;
use cambium_chain::Fork;
use cambium_rpc::{
    BlobsRequest, BodiesRequest, CellsRequest, ForkchoiceUpdate, PayloadEnvelope, SszError,
};
use cambium_seeds::Random;

type Decode = fn(Fork, &Bytes) -> Result<Vec<u8>, SszError>;

/// Decoders of all requests, each of which encodes what it has decoded.
const DECODERS: [(&str, Decode); 5] = [
    ("payload", |fork, bytes| {
        PayloadEnvelope::decode(fork, bytes).map(|own| own.encode(fork))
    }),
    ("choice", |fork, bytes| {
        ForkchoiceUpdate::decode(fork, bytes).map(|own| own.encode(fork))
    }),
    ("bodies", |_, bytes| {
        BodiesRequest::decode(bytes).map(|own| own.encode())
    }),
    ("blobs", |_, bytes| {
        BlobsRequest::decode(bytes).map(|own| own.encode())
    }),
    ("cells", |_, bytes| {
        CellsRequest::decode(bytes).map(|own| own.encode())
    }),
];

/// A valid request of each decoder.
fn requests(fork: Fork) -> [Vec<u8>; 5] {
    let (known, _, _) = workload(match fork {
        Fork::Amsterdam => fork,
        _ => Fork::Osaka,
    });
    let mut own = known[0].clone();
    own.block.body.transactions.truncate(2);
    own.block.header.extra_data = Bytes::from_static(b"extra");
    own.access_list.truncate(40);
    let withdrawals = attributes(fork, 1, 1).withdrawals;
    own.block.body.withdrawals = withdrawals.map(Into::into);
    own.requests = vec![Bytes::from_static(&[0, 1]), Bytes::from_static(&[2, 3, 4])].into();
    let mut update = choice(B256::repeat_byte(1), Some(attributes(fork, 1, 1)));
    update.custody_columns = (fork == Fork::Amsterdam).then(|| FixedBytes::repeat_byte(3));
    let hashes = vec![B256::repeat_byte(1), B256::repeat_byte(2)];
    [
        own.envelope(fork).encode(fork),
        update.encode(fork),
        BodiesRequest {
            block_hashes: hashes.clone(),
        }
        .encode(),
        BlobsRequest {
            versioned_hashes: hashes.clone(),
        }
        .encode(),
        CellsRequest {
            versioned_hashes: hashes,
            indices: FixedBytes::repeat_byte(7),
        }
        .encode(),
    ]
}

#[test]
fn whatever_is_decoded_is_encoded_to_the_same_bytes() {
    let mut random = Random::new(17);
    let (mut taken, mut refused) = (0, 0);
    for fork in FORKS {
        for ((name, decode), right) in DECODERS.into_iter().zip(requests(fork)) {
            assert_eq!(decode(fork, &right.clone().into()).as_ref(), Ok(&right));
            let mut check = |bytes: Vec<u8>| {
                match decode(fork, &bytes.clone().into()) {
                    Ok(again) => {
                        assert_eq!(again, bytes, "{name} of {fork:?}");
                        taken += 1;
                    }
                    Err(_) => refused += 1,
                };
            };
            for len in 0..right.len() {
                check(right[..len].to_vec());
            }
            // Anything that may be an offset.
            for at in 0..right.len().saturating_sub(4).min(700) {
                let old = u32::from_le_bytes(right[at..at + 4].try_into().unwrap());
                let len = right.len() as u32;
                for new in [
                    0,
                    1,
                    3,
                    old ^ 1,
                    old.wrapping_add(4),
                    len,
                    len + 1,
                    u32::MAX,
                ] {
                    let mut bytes = right.clone();
                    bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
                    check(bytes);
                }
            }
            for _ in 0..500 {
                let mut bytes = right.clone();
                for _ in 0..=random.below(3) {
                    let at = random.below(bytes.len() as u64) as usize;
                    match random.below(4) {
                        0 => bytes[at] = random.next() as u8,
                        1 => bytes[at] ^= 1 << random.below(8),
                        2 => drop(bytes.remove(at)),
                        _ => bytes.insert(at, random.next() as u8),
                    }
                    if bytes.is_empty() {
                        break;
                    }
                }
                check(bytes);
            }
        }
    }
    assert!(taken > 10_000 && refused > 10_000, "{taken}, {refused}");
}

#[test]
fn lengths_and_offsets_that_do_not_fit_are_refused() {
    let fork = Fork::Amsterdam;
    let [payload, update, bodies, blobs, cells] = requests(fork);
    let decode = |bytes: &[u8]| PayloadEnvelope::decode(fork, &Bytes::copy_from_slice(bytes));
    let layout = |result: Result<PayloadEnvelope, SszError>| {
        assert!(matches!(result, Err(SszError::Layout { .. })), "{result:?}");
    };
    // The offsets of the envelope: of the payload, and of the requests.
    for (at, change) in [(0, 1), (0, -1), (0, 4), (36, i32::MAX)] {
        let mut bytes = payload.clone();
        let old = i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let new = old.wrapping_add(change);
        bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
        layout(decode(&bytes));
    }
    // The offsets of the payload: extra data, transactions, withdrawals, access list; two of them in the wrong order.
    let start = 40;
    for (left, right) in [(436, 504), (504, 508), (508, 528), (436, 528)] {
        let mut bytes = payload.clone();
        let (left, right) = (start + left, start + right);
        for byte in 0..4 {
            bytes.swap(left + byte, right + byte);
        }
        layout(decode(&bytes));
    }
    layout(decode(&[]));
    layout(decode(&payload[..start + 540 - 1]));
    let longer = [&payload[..], &[0]].concat();
    assert!(decode(&longer).is_ok(), "the last request is longer");
    let mut longer = update;
    longer.push(0);
    let choice = |bytes: Vec<u8>| ForkchoiceUpdate::decode(fork, &bytes.into());
    assert!(choice(longer).is_err(), "columns have 16 bytes");
    for mut longer in [bodies, blobs] {
        longer.push(0);
        assert!(BodiesRequest::decode(&longer.into()).is_err());
    }
    let mut longer = cells;
    longer.push(0);
    assert!(CellsRequest::decode(&longer.into()).is_err());

    // Lists that are too long, before memory is taken for them.
    let (known, _, _) = workload(fork);
    let too_long = |change: &dyn Fn(&mut PayloadEnvelope), name: &str| {
        let mut own = known[0].envelope(fork);
        change(&mut own);
        match decode(&own.encode(fork)) {
            Err(SszError::TooLong { what, .. }) => assert_eq!(what, name),
            other => panic!("{other:?}"),
        }
    };
    too_long(
        &|own| own.execution_requests = Some(vec![Bytes::new(); 257]),
        "execution_requests",
    );
    too_long(
        &|own| own.payload.as_v1_mut().transactions = vec![Bytes::new(); (1 << 20) + 1],
        "transactions",
    );
    too_long(
        &|own| own.payload.as_v1_mut().extra_data = Bytes::from_static(&[0; 33]),
        "extra_data",
    );
    too_long(
        &|own| {
            let withdrawals = attributes(fork, 1, 1).withdrawals.unwrap();
            let shanghai = own.payload.as_v2_mut().unwrap();
            shanghai.withdrawals = vec![withdrawals[0]; 17];
        },
        "withdrawals",
    );
    // Two values where there is at most one.
    for fork in FORKS {
        let given = attributes(fork, 1, 1);
        let one = choice_of(fork, &given);
        let list = &one[if fork == Fork::Amsterdam { 104 } else { 100 }..];
        let two = match fork {
            Fork::Paris => [list, list].concat(),
            _ => {
                let item = &list[4..];
                let second = 8 + item.len() as u32;
                [&8u32.to_le_bytes(), &second.to_le_bytes(), item, item].concat()
            }
        };
        let mut bytes = one[..one.len() - list.len()].to_vec();
        if fork == Fork::Amsterdam {
            let columns = 104 + two.len() as u32;
            bytes[100..104].copy_from_slice(&columns.to_le_bytes());
        }
        bytes.extend(two);
        let decoded = ForkchoiceUpdate::decode(fork, &bytes.into());
        assert!(
            matches!(
                decoded,
                Err(SszError::TooLong {
                    got: 2,
                    most: 1,
                    ..
                })
            ),
            "{fork:?}: {decoded:?}"
        );
    }
}

fn choice_of(fork: Fork, given: &PayloadAttributes) -> Vec<u8> {
    choice(B256::ZERO, Some(given.clone())).encode(fork)
}

#[test]
fn bodies_that_are_no_ssz_are_refused_by_every_endpoint() {
    let (known, consensus, _) = workload(Fork::Amsterdam);
    let fork = Some(Fork::Amsterdam);
    let paths = [
        "payloads",
        "forkchoice",
        "bodies/hash",
        "blobs/v3",
        "blobs/v4",
    ];
    for (path, right) in paths.into_iter().zip(requests(Fork::Amsterdam)) {
        for len in 0..right.len().min(600) {
            let answer = consensus.post(path, fork, right[..len].to_vec());
            if answer.status == 200 {
                // A shorter list of hashes, or no columns.
                let is_shorter = matches!(path, "bodies/hash" | "blobs/v3" | "blobs/v4");
                let has_no_columns = path == "forkchoice" && len + 16 == right.len();
                assert!(is_shorter || has_no_columns, "{path} {len}");
                continue;
            }
            let text = answer.text();
            assert_eq!(
                answer.problem(),
                (400, "ssz-decode-error".to_owned()),
                "{path}"
            );
            assert_eq!(text, r#"{"type":"/engine-api/errors/ssz-decode-error"}"#);
        }
    }
    for own in &known {
        assert_eq!(consensus.new_payload_ssz(own), valid(own.hash()));
    }
}
