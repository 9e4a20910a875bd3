//! Every header field in turn, wrong.

use alloy_consensus::{
    Header,
    constants::{EMPTY_OMMER_ROOT_HASH, EMPTY_WITHDRAWALS},
};
use alloy_primitives::{B64, B256, Bytes, U256};
use cambium_chain::{
    AmsterdamRules, Ancestor, Block, BodyError, ChainSpec, DAO_EXTRA_DATA, HeaderError,
    validate_body, validate_header, validate_ommers,
};

/// Proof of stake up to Prague from the start.
fn prague() -> ChainSpec {
    ChainSpec {
        london_block: Some(0),
        terminal_total_difficulty: Some(U256::ZERO),
        shanghai_time: Some(0),
        cancun_time: Some(0),
        prague_time: Some(0),
        ..ChainSpec::default()
    }
}

fn prague_parent() -> Header {
    Header {
        number: 9,
        timestamp: 1_000,
        gas_limit: 30_000_000,
        gas_used: 15_000_000,
        base_fee_per_gas: Some(1_000),
        withdrawals_root: Some(B256::ZERO),
        blob_gas_used: Some(6 * 131_072),
        excess_blob_gas: Some(131_072),
        parent_beacon_block_root: Some(B256::ZERO),
        requests_hash: Some(B256::ZERO),
        ..Header::default()
    }
}

fn prague_header() -> Header {
    let parent = prague_parent();
    Header {
        number: 10,
        timestamp: 1_012,
        parent_hash: parent.hash_slow(),
        ..parent
    }
}

fn check(spec: &ChainSpec, header: &Header, parent: &Header) -> Result<(), HeaderError> {
    validate_header(
        spec,
        header,
        parent,
        parent.hash_slow(),
        parent.difficulty.is_zero(),
    )
}

/// The error that a change to a good Prague header brings.
fn wrong(change: impl FnOnce(&mut Header)) -> HeaderError {
    let mut header = prague_header();
    change(&mut header);
    check(&prague(), &header, &prague_parent()).unwrap_err()
}

#[test]
fn a_good_header_is_good() {
    assert_eq!(check(&prague(), &prague_header(), &prague_parent()), Ok(()));
}

#[test]
fn every_wrong_field_is_named() {
    let named: [(&str, HeaderError); 17] = [
        ("parentHash", wrong(|h| h.parent_hash = B256::ZERO)),
        ("number", wrong(|h| h.number = 11)),
        ("timestamp", wrong(|h| h.timestamp = 1_000)),
        ("gasLimit", wrong(|h| h.gas_limit = 30_029_296)),
        ("gasUsed", wrong(|h| h.gas_used = 30_000_001)),
        (
            "extraData",
            wrong(|h| h.extra_data = Bytes::from(vec![0; 33])),
        ),
        ("difficulty", wrong(|h| h.difficulty = U256::from(1))),
        ("nonce", wrong(|h| h.nonce = B64::with_last_byte(1))),
        ("sha3Uncles", wrong(|h| h.ommers_hash = B256::ZERO)),
        ("baseFeePerGas", wrong(|h| h.base_fee_per_gas = Some(1_001))),
        ("withdrawalsRoot", wrong(|h| h.withdrawals_root = None)),
        ("blobGasUsed", wrong(|h| h.blob_gas_used = Some(131_073))),
        ("excessBlobGas", wrong(|h| h.excess_blob_gas = Some(0))),
        (
            "parentBeaconBlockRoot",
            wrong(|h| h.parent_beacon_block_root = None),
        ),
        ("requestsHash", wrong(|h| h.requests_hash = None)),
        (
            "blockAccessListHash",
            wrong(|h| h.block_access_list_hash = Some(B256::ZERO)),
        ),
        ("slotNumber", wrong(|h| h.slot_number = Some(1))),
    ];
    for (field, error) in named {
        let message = error.to_string();
        assert!(message.starts_with(field), "{field}: {message}");
    }
}

/// From BPO2 to Amsterdam at a time, by either of its rules.
#[test]
fn amsterdams_fields_are_demanded_from_its_first_block_on() {
    let spec = |amsterdam_rules| ChainSpec {
        osaka_time: Some(0),
        bpo_times: [Some(0), Some(0), None, None, None],
        amsterdam_time: Some(1_012),
        amsterdam_rules,
        ..prague()
    };
    let parent = Header {
        excess_blob_gas: Some(20 * 131_072),
        ..prague_parent()
    };
    let header = |timestamp, list: bool, slot: bool| Header {
        number: 10,
        timestamp,
        parent_hash: parent.hash_slow(),
        // Six blobs at the reserve price, with a target of 14 and a limit of 21.
        excess_blob_gas: Some(22 * 131_072),
        block_access_list_hash: list.then_some(B256::ZERO),
        slot_number: slot.then_some(7),
        ..parent.clone()
    };
    for rules in [AmsterdamRules::Whole, AmsterdamRules::Lists] {
        for timestamp in [1_011, 1_012] {
            for (list, slot) in [(false, false), (false, true), (true, false), (true, true)] {
                let amsterdam = timestamp == 1_012;
                let wanted = (amsterdam, amsterdam && rules == AmsterdamRules::Whole);
                let checked = check(&spec(rules), &header(timestamp, list, slot), &parent);
                assert_eq!(
                    checked.is_ok(),
                    (list, slot) == wanted,
                    "{rules:?} at {timestamp}: {checked:?}"
                );
            }
        }
    }
}

#[test]
fn a_gas_limit_moves_by_less_than_a_1024th() {
    let step = 30_000_000 / 1_024;
    for (limit, good) in [
        (30_000_000 + step - 1, true),
        (30_000_000 + step, false),
        (30_000_000 - step + 1, true),
        (30_000_000 - step, false),
    ] {
        let header = Header {
            gas_limit: limit,
            ..prague_header()
        };
        assert_eq!(
            check(&prague(), &header, &prague_parent()).is_ok(),
            good,
            "{limit}"
        );
    }
}

#[test]
fn the_base_fee_follows_the_parents_gas_and_never_overflows() {
    for (gas_used, base_fee, expected) in [
        (30_000_000, 1_000, 1_125),
        (0, 1_000, 875),
        (15_000_001, 1_000, 1_001),
        (30_000_000, u64::MAX, u64::MAX),
    ] {
        let parent = Header {
            gas_used,
            base_fee_per_gas: Some(base_fee),
            ..prague_parent()
        };
        let header = Header {
            parent_hash: parent.hash_slow(),
            base_fee_per_gas: Some(expected),
            ..prague_header()
        };
        assert_eq!(
            check(&prague(), &header, &parent),
            Ok(()),
            "{gas_used} at {base_fee}"
        );
    }
}

/// Proof of work, with the DAO fork at block 10.
fn dao() -> ChainSpec {
    ChainSpec {
        homestead_block: Some(0),
        dao_fork_block: Some(10),
        dao_fork_support: true,
        ..ChainSpec::default()
    }
}

fn work(parent: Option<&Header>, extra_data: &[u8]) -> Header {
    let number = parent.map_or(9, |parent| parent.number + 1);
    Header {
        number,
        parent_hash: parent.map(Header::hash_slow).unwrap_or_default(),
        timestamp: number * 10,
        gas_limit: 5_000,
        difficulty: U256::from(131_072),
        extra_data: Bytes::copy_from_slice(extra_data),
        ..Header::default()
    }
}

#[test]
fn the_ten_blocks_from_the_dao_fork_on_carry_its_mark() {
    let mut parent = work(None, b"");
    for number in 10..25 {
        let marked = work(Some(&parent), DAO_EXTRA_DATA);
        let plain = work(Some(&parent), b"plain");
        assert_eq!(check(&dao(), &marked, &parent), Ok(()));
        assert_eq!(
            check(&dao(), &plain, &parent).is_ok(),
            number >= 20,
            "{number}"
        );
        parent = marked;
    }
}

#[test]
fn a_chain_that_opposes_the_dao_fork_refuses_its_mark_for_ten_blocks() {
    let opposing = ChainSpec {
        dao_fork_support: false,
        ..dao()
    };
    let mut parent = work(None, b"");
    for number in 10..25 {
        let marked = work(Some(&parent), DAO_EXTRA_DATA);
        let plain = work(Some(&parent), b"plain");
        assert_eq!(check(&opposing, &plain, &parent), Ok(()));
        let expected = match number {
            ..20 => Err(HeaderError::DaoMark),
            _ => Ok(()),
        };
        assert_eq!(check(&opposing, &marked, &parent), expected, "{number}");
        parent = plain;
    }
}

#[test]
fn the_difficulty_is_the_parents_and_the_times() {
    let parent = work(None, b"");
    let header = Header {
        difficulty: U256::from(131_073),
        ..work(Some(&parent), DAO_EXTRA_DATA)
    };
    let error = check(&dao(), &header, &parent).unwrap_err();
    let (got, expected) = (U256::from(131_073), U256::from(131_072));
    assert_eq!(error, HeaderError::Difficulty { got, expected });
}

/// Ten blocks, newest first, and a block on top with these ommers.
fn with_ommers(make: impl FnOnce(&[Ancestor]) -> Vec<Header>) -> Result<(), BodyError> {
    let mut ancestors = vec![Ancestor {
        hash: work(None, b"").hash_slow(),
        header: work(None, b""),
        ommers: Vec::new(),
    }];
    for _ in 0..9 {
        let header = work(Some(&ancestors[0].header), DAO_EXTRA_DATA);
        let ancestor = Ancestor {
            hash: header.hash_slow(),
            header,
            ommers: Vec::new(),
        };
        ancestors.insert(0, ancestor);
    }
    let used = work(Some(&ancestors[3].header), b"used");
    ancestors[1].ommers.push(used.hash_slow());
    let header = work(Some(&ancestors[0].header), DAO_EXTRA_DATA);
    let mut block = Block {
        header,
        body: Default::default(),
    };
    block.body.ommers = make(&ancestors);
    let spec = ChainSpec {
        dao_fork_block: None,
        ..dao()
    };
    validate_ommers(&spec, &block, &ancestors)
}

#[test]
fn ommers_branch_off_two_to_seven_blocks_back() {
    for back in 0..9 {
        let good = with_ommers(|chain| vec![work(Some(&chain[back].header), b"ommer")]);
        assert_eq!(good.is_ok(), (1..7).contains(&back), "{back}: {good:?}");
    }
}

#[test]
fn ommers_are_few_new_and_valid() {
    let ommer = |chain: &[Ancestor], name: &[u8]| work(Some(&chain[2].header), name);
    assert_eq!(
        with_ommers(|chain| vec![ommer(chain, b"a"), ommer(chain, b"b")]),
        Ok(())
    );
    let three = with_ommers(|c| vec![ommer(c, b"a"), ommer(c, b"b"), ommer(c, b"c")]);
    assert_eq!(three, Err(BodyError::OmmerCount { got: 3, max: 2 }));
    let twice = with_ommers(|chain| vec![ommer(chain, b"a"), ommer(chain, b"a")]);
    assert!(matches!(twice, Err(BodyError::OmmerTwice { .. })));
    let used = with_ommers(|chain| vec![work(Some(&chain[3].header), b"used")]);
    assert!(matches!(used, Err(BodyError::OmmerUsed { .. })));
    let ancestor = with_ommers(|chain| vec![chain[1].header.clone()]);
    assert!(matches!(ancestor, Err(BodyError::OmmerIsAncestor { .. })));
    let invalid = with_ommers(|chain| {
        vec![Header {
            gas_limit: 1,
            ..ommer(chain, b"a")
        }]
    });
    assert!(matches!(invalid, Err(BodyError::OmmerHeader { .. })));
}

#[test]
fn a_body_is_the_one_that_its_header_names() {
    let spec = prague();
    let header = Header {
        ommers_hash: EMPTY_OMMER_ROOT_HASH,
        withdrawals_root: Some(EMPTY_WITHDRAWALS),
        ..prague_header()
    };
    let mut block = Block {
        header,
        body: Default::default(),
    };
    assert_eq!(
        validate_body(&spec, &block, true),
        Err(BodyError::MissingWithdrawals)
    );
    block.body.withdrawals = Some(Default::default());
    assert_eq!(validate_body(&spec, &block, true), Ok(()));
    let mut other = block.clone();
    other.header.transactions_root = B256::ZERO;
    let error = validate_body(&spec, &other, true).unwrap_err();
    assert!(error.to_string().starts_with("transactionsRoot"), "{error}");
    let mut other = block.clone();
    other.body.ommers.push(Header::default());
    let error = validate_body(&spec, &other, true).unwrap_err();
    assert!(error.to_string().starts_with("sha3Uncles"), "{error}");
    block.header.withdrawals_root = Some(B256::ZERO);
    let error = validate_body(&spec, &block, true).unwrap_err();
    assert!(error.to_string().starts_with("withdrawalsRoot"), "{error}");
    block.header.withdrawals_root = None;
    let error = validate_body(&spec, &block, true).unwrap_err();
    assert_eq!(error, BodyError::UnexpectedWithdrawals);
}
