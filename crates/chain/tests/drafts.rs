//! Drafts of blocks are what headers are validated against, on every fork and across forks.

use alloy_consensus::Header;
use alloy_eips::eip4895::Withdrawal;
use alloy_primitives::{Address, B256};
use cambium_chain::{ChainSpec, DraftAttributes, Fork, HeaderError, validate_header};

const FORKS: [Fork; 6] = [
    Fork::Paris,
    Fork::Shanghai,
    Fork::Cancun,
    Fork::Prague,
    Fork::Osaka,
    Fork::Amsterdam,
];

fn attributes(timestamp: u64, gas_limit: u64) -> DraftAttributes {
    DraftAttributes {
        timestamp,
        beneficiary: Address::repeat_byte(7),
        prev_randao: B256::repeat_byte(8),
        withdrawals: vec![Withdrawal::default(); 2],
        parent_beacon_block_root: B256::repeat_byte(9),
        slot_number: 3,
        gas_limit,
    }
}

#[test]
fn drafts_are_valid_headers_whatever_the_parent_was() {
    for fork in FORKS {
        let spec = ChainSpec::since_genesis(fork);
        let mut parent = Header {
            gas_limit: 30_000_000,
            timestamp: 1_000,
            base_fee_per_gas: Some(1_000_000_000),
            ..Header::default()
        };
        // A limit that goes up, and one that goes down; full blocks and empty ones, with and without blobs.
        for (step, limit) in [(0, 60_000_000_u64), (1, 60_000_000), (2, 5_000), (3, 0)] {
            let hash = parent.hash_slow();
            let wanted = attributes(parent.timestamp + 12, limit);
            let draft = spec.draft(&parent, hash, &wanted);
            validate_header(&spec, &draft.header, &parent, hash, true).unwrap();
            let header = &draft.header;
            assert_eq!(
                (header.beneficiary, header.mix_hash),
                (wanted.beneficiary, wanted.prev_randao)
            );
            assert_eq!(header.withdrawals_root.is_some(), fork >= Fork::Shanghai);
            assert_eq!(draft.body.withdrawals.is_some(), fork >= Fork::Shanghai);
            let towards = header.gas_limit.abs_diff(parent.gas_limit);
            assert_eq!(towards, parent.gas_limit / 1_024 - 1);
            parent = draft.header;
            parent.gas_used = if step % 2 == 0 { parent.gas_limit } else { 0 };
            if let Some(used) = &mut parent.blob_gas_used {
                *used = 131_072 * 6;
            }
        }
        // A limit within reach is taken as it is.
        let hash = parent.hash_slow();
        let limit = parent.gas_limit + 5;
        let draft = spec.draft(&parent, hash, &attributes(parent.timestamp + 1, limit));
        assert_eq!(draft.header.gas_limit, limit);
        // What the caller gets wrong is found.
        let late = spec.draft(&parent, hash, &attributes(parent.timestamp, limit));
        let error = validate_header(&spec, &late.header, &parent, hash, true).unwrap_err();
        assert!(matches!(error, HeaderError::Timestamp { .. }));
    }
}

/// Each fork begins at a time: the first block of it has its fields, on a parent without them.
#[test]
fn the_first_block_of_a_fork_has_its_fields() {
    let spec = ChainSpec {
        shanghai_time: Some(100),
        cancun_time: Some(200),
        prague_time: Some(300),
        osaka_time: Some(400),
        amsterdam_time: Some(500),
        ..ChainSpec::since_genesis(Fork::Paris)
    };
    let mut parent = Header {
        gas_limit: 30_000_000,
        timestamp: 90,
        base_fee_per_gas: Some(7),
        ..Header::default()
    };
    for step in 1..60 {
        let hash = parent.hash_slow();
        let draft = spec.draft(&parent, hash, &attributes(90 + 10 * step, 30_000_000));
        validate_header(&spec, &draft.header, &parent, hash, true).unwrap();
        parent = draft.header;
    }
    assert!(parent.block_access_list_hash.is_some());
}
