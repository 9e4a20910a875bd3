//! Cells of blobs that are not zero: what the extension of a polynomial has is computed here value by value.

use crate::{
    common::{
        consensus::Consensus,
        rest::{fields, items},
        signing::{GWEI, sign},
    },
    engine::workload,
};
use alloy_consensus::{EthereumTxEnvelope, SignableTransaction, TxEip4844, TxEip4844WithSidecar};
use alloy_eips::{
    eip2718::Encodable2718,
    eip4844::{Blob, Bytes48, kzg_to_versioned_hash},
    eip7594::{BlobTransactionSidecarEip7594, BlobTransactionSidecarVariant},
};
use alloy_primitives::{Address, B256, Bytes, FixedBytes, U256, uint};
use cambium_chain::Fork;
use cambium_rpc::CellsRequest;
use cambium_workload::Workload;
use serde_json::json;

const MODULUS: U256 =
    uint!(0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001_U256);
/// Points of a blob and its extension.
const POINTS: u64 = 8192;

/// A polynomial by its coefficients, the constant one first.
type Polynomial = &'static [(u64, u64)];

/// The value of a polynomial at each point, in bit-reversed order: coefficients and exponents.
fn values(polynomial: Polynomial) -> Vec<u8> {
    let root = U256::from(7).pow_mod((MODULUS - U256::ONE) / U256::from(POINTS), MODULUS);
    let value = |index: u64| {
        let reversed = index.reverse_bits() >> (64 - POINTS.trailing_zeros());
        let point = root.pow_mod(U256::from(reversed), MODULUS);
        let terms = polynomial.iter().map(|(factor, exponent)| {
            let power = point.pow_mod(U256::from(*exponent), MODULUS);
            power.mul_mod(U256::from(*factor), MODULUS)
        });
        terms.fold(U256::ZERO, |sum, term| sum.add_mod(term, MODULUS))
    };
    let all = (0..POINTS).map(value);
    all.flat_map(|value| value.to_be_bytes::<32>()).collect()
}

fn commitment(index: u8) -> Bytes48 {
    Bytes48::repeat_byte(index)
}

/// Sends blobs in a transaction. The pool verifies no proofs.
fn send(consensus: &Consensus, workload: &Workload, blobs: Vec<Blob>) -> Vec<B256> {
    let commitments: Vec<_> = (0..blobs.len() as u8).map(commitment).collect();
    let hashes = commitments
        .iter()
        .map(|own| kzg_to_versioned_hash(&own[..]));
    let hashes: Vec<B256> = hashes.collect();
    let proof = |index| Bytes48::repeat_byte(index as u8);
    let proofs = (0..128 * blobs.len()).map(proof).collect();
    let tx = TxEip4844 {
        chain_id: workload.params().spec().chain_id,
        nonce: 0,
        gas_limit: 21_000,
        max_fee_per_gas: 100 * GWEI,
        max_priority_fee_per_gas: GWEI,
        to: Address::repeat_byte(0x77),
        value: U256::ZERO,
        access_list: Default::default(),
        blob_versioned_hashes: hashes.clone(),
        max_fee_per_blob_gas: GWEI,
        input: Bytes::new(),
    };
    let signature = sign(workload, 7, tx.signature_hash().0);
    let sidecar = BlobTransactionSidecarEip7594::new(blobs, commitments, proofs);
    let sidecar = BlobTransactionSidecarVariant::Eip7594(sidecar);
    let own = TxEip4844WithSidecar::from_tx_and_sidecar(tx, sidecar).into_signed(signature);
    let own = EthereumTxEnvelope::<TxEip4844WithSidecar<_>>::Eip4844(own);
    let raw: Bytes = own.encoded_2718().into();
    let sent = consensus.call("eth_sendRawTransaction", json!([raw]));
    assert!(sent.get("error").is_none(), "{sent}");
    hashes
}

#[test]
fn cells_of_the_extension_are_values_of_the_same_polynomial() {
    const POLYNOMIALS: [Polynomial; 4] = [
        &[(9, 0)],
        &[(1, 1)],
        &[(5, 0), (3, 1), (77, 7)],
        &[(2, 4095), (1, 2048)],
    ];
    let (_, consensus, workload) = workload(Fork::Amsterdam);
    let all = POLYNOMIALS.map(values);
    let blob = |values: &Vec<u8>| Blob::from_slice(&values[..131_072]);
    let mut blobs: Vec<Blob> = all.iter().map(blob).collect();
    // No elements of the field.
    blobs.push(Blob::repeat_byte(0xff));
    let hashes = send(&consensus, &workload, blobs);
    for (byte, bit) in [(0, 0), (7, 7), (8, 0), (15, 7), (11, 3)] {
        let index = 8 * byte + bit;
        let mut indices = FixedBytes::<16>::ZERO;
        indices[byte] = 1 << bit;
        let request = CellsRequest {
            versioned_hashes: hashes.clone(),
            indices,
        };
        assert!(request.wants(index));
        let answer = consensus.post("blobs/v4", None, request.encode());
        let entries = items(fields(answer.ssz(), &[None])[0]);
        assert_eq!(entries.len(), hashes.len());
        for (own, entry) in entries.iter().enumerate() {
            let parts = fields(entry, &[Some(1), None]);
            let contents = fields(parts[1], &[None, None]);
            let (cells, proofs) = (items(contents[0]), items(contents[1]));
            assert_eq!((parts[0], cells.len(), proofs.len()), (&[1][..], 128, 128));
            let there = cells.iter().filter(|cell| !cell.is_empty()).count();
            match all.get(own) {
                Some(values) => {
                    let expected = &values[2048 * index..2048 * (index + 1)];
                    assert!(cells[index] == expected, "cell {index} of blob {own}");
                    assert_eq!(there, 1);
                    let proof = Bytes48::repeat_byte((128 * own + index) as u8);
                    assert_eq!(proofs[index], proof.as_slice());
                }
                None => {
                    assert_eq!(there, usize::from(index < 64));
                    assert_eq!(proofs[index].is_empty(), index >= 64);
                }
            }
        }
    }
}
