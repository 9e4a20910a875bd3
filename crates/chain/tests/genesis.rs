//! Genesis files: the public chains' give their known roots and hashes, broken ones an error.

use crate::support::{data, state_root};
use alloy_consensus::{Header, constants::EMPTY_WITHDRAWALS};
use alloy_primitives::{Address, B256, U256, address, b256, bytes};
use alloy_rlp::Decodable;
use cambium_chain::{
    BlockSource, Chain, ChainSpec, Genesis, GenesisAccount, GenesisError, GenesisPart,
};
use cambium_state::{Db, Disk, FaultyDisk, Options, StdDisk};
use proptest::prelude::*;
use std::{sync::Arc, time::Instant};

fn parse(json: &str) -> Result<(Genesis, Vec<(Address, GenesisAccount)>), GenesisError> {
    let mut accounts = Vec::new();
    let genesis = Genesis::stream_from("test.json", json.as_bytes(), |part| {
        match part {
            GenesisPart::Account(address, account) => accounts.push((address, account)),
            GenesisPart::Slots(address, _) => panic!("{address} has few slots"),
        }
        Ok::<_, GenesisError>(())
    })?;
    Ok((genesis, accounts))
}

fn message(json: &str) -> String {
    parse(json).unwrap_err().to_string()
}

const GOERLI_LONDON: u64 = 5_062_605;

#[test]
fn the_public_chains_genesis_files_give_their_known_hashes() {
    let cases = [
        (
            "mainnet",
            "d4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3",
            1,
        ),
        (
            "sepolia",
            "25a5cc106eea7138acab33231d7160d69cb777ee0c2c553fcddf5138993e6dd9",
            11_155_111,
        ),
        (
            "holesky",
            "b5f7f912443c940f21fd611f12828d75b534364ed9e95ca4e307729a4661bde4",
            17_000,
        ),
        (
            "hoodi",
            "bbe312868b376a3001692a646dd2d7d1e4406380dfd86b98aa8a34d1557c971b",
            560_048,
        ),
        (
            "goerli",
            "bf7e331f7f7c1dd2e05159666b3bf8bc7a8a3a9eb1d518969eab529dd9b88c1a",
            5,
        ),
    ];
    for (name, hash, chain_id) in cases {
        let Some(path) = data(&format!("reth/crates/chainspec/res/genesis/{name}.json")) else {
            continue;
        };
        let start = Instant::now();
        let (mut genesis, accounts) = Genesis::read(path).unwrap();
        eprintln!(
            "{name}: {} accounts in {:?}",
            accounts.len(),
            start.elapsed()
        );
        assert_eq!(genesis.accounts, accounts.len() as u64);
        let root = state_root(&accounts);
        if name == "mainnet" {
            let known = b256!("d7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544");
            assert_eq!((accounts.len(), root), (8893, known));
        }
        if name == "goerli" {
            // No `config` in the file, and none known here: the chain was proof of authority.
            assert!(matches!(
                genesis.spec(root),
                Err(GenesisError::NoConfig { .. })
            ));
            let london_block = Some(GOERLI_LONDON);
            genesis.config = Some(ChainSpec {
                chain_id,
                london_block,
                ..ChainSpec::default()
            });
        }
        let spec = genesis.spec(root).unwrap();
        assert_eq!(spec.chain_id, chain_id);
        assert_eq!(
            genesis.header(&spec, root).hash_slow(),
            hash.parse::<B256>().unwrap(),
            "{name}"
        );
    }
}

#[test]
fn the_dev_genesis_has_no_rules_and_says_so() {
    let Some(path) = data("reth/crates/chainspec/res/genesis/dev.json") else {
        return;
    };
    let (genesis, accounts) = Genesis::read(path).unwrap();
    assert_eq!(accounts.len(), 20);
    assert_eq!(genesis.ignored, ["stateRoot"]);
    let error = genesis.spec(state_root(&accounts)).unwrap_err().to_string();
    assert!(error.contains("dev.json: has no `config`"), "{error}");
}

#[test]
fn the_execution_apis_genesis_is_the_parent_of_its_chain() {
    let Some(path) = data("execution-apis/tests/genesis.json") else {
        return;
    };
    let Some(chain) = data("execution-apis/tests/chain.rlp") else {
        return;
    };
    let (genesis, accounts) = Genesis::read(path).unwrap();
    let root = state_root(&accounts);
    let spec = genesis.spec(root).unwrap();
    let first = BlockSource::open(chain)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .decode()
        .unwrap();
    assert_eq!(
        genesis.header(&spec, root).hash_slow(),
        first.header.parent_hash
    );

    assert_eq!(genesis.ignored, [""; 0]);
    assert_eq!(spec.chain_id, 3_503_995_874_084_926);
    assert_eq!(
        (spec.gray_glacier_block, spec.merge_netsplit_block),
        (Some(33), Some(36))
    );
    assert_eq!(spec.terminal_total_difficulty, Some(U256::from(4_732_352)));
    assert_eq!((spec.osaka_time, spec.bpo_times[1]), (Some(480), Some(540)));
    assert_eq!(
        spec.blob_schedule.bpo[1].unwrap().update_fraction,
        11_684_671
    );
    assert_eq!(spec.deposit_contract, Address::ZERO);
}

#[test]
fn every_form_of_a_value_is_read() {
    let json = r#"{
        "alloc": {
            "0x00000000000000000000000000000000000000aA": {"balance": 12, "nonce": "0x7"},
            "00000000000000000000000000000000000000bb": {
                "balance": "0x0012", "nonce": "3", "code": "6001", "comment": {"a": [1]},
                "storage": {"0x1": "0x02", "": "", "0xabc": "ff"}
            },
            "00000000000000000000000000000000000000cc": {"nonce": null, "secretKey": "00"}
        },
        "GASLIMIT": "5000", "difficulty": "0x20", "extraData": "", "mixhash": "0x05",
        "baseFeePerGas": null, "number": 1, "stateRoot": 7, "hash": "no",
        "config": {
            "chainId": "0x539", "homesteadBlock": "1", "daoForkSupport": true, "londonBlock": 1,
            "terminalTotalDifficulty": 58750000000000000000000, "ethash": {}, "clique": {"period": 0},
            "verkleTime": 7,
            "shanghaiTime": null, "cancunTime": "0x0",
            "blobSchedule": {"cancun": {"target": "0x1", "max": 2, "baseFeeUpdateFraction": "3"}, "bpo9": {}}
        }
    }"#;
    let (genesis, accounts) = parse(json).unwrap();
    let slots = vec![
        (B256::with_last_byte(1), U256::from(2)),
        (B256::ZERO, U256::ZERO),
        (B256::left_padding_from(&[0x0a, 0xbc]), U256::from(255)),
    ];
    let expected = [
        (0xaa, 12, 7, bytes!(), vec![]),
        (0xbb, 18, 3, bytes!("6001"), slots),
        (0xcc, 0, 0, bytes!(), vec![]),
    ]
    .map(|(address, balance, nonce, code, storage)| {
        let balance = U256::from(balance);
        (
            Address::with_last_byte(address),
            GenesisAccount {
                balance,
                nonce,
                code,
                storage,
            },
        )
    });
    assert_eq!(accounts, expected);
    assert_eq!(genesis.gas_limit, 5000);
    assert_eq!(genesis.mix_hash, B256::with_last_byte(5));
    let ignored = [
        "stateRoot",
        "hash",
        "config.verkleTime",
        "config.blobSchedule.bpo9",
        "alloc.*.comment",
        "alloc.*.secretKey",
    ];
    assert_eq!(
        genesis
            .ignored
            .iter()
            .collect::<std::collections::BTreeSet<_>>(),
        ignored.map(String::from).iter().collect()
    );
    let spec = genesis.config.clone().unwrap();
    assert_eq!(
        (spec.chain_id, spec.homestead_block, spec.dao_fork_support),
        (1337, Some(1), true)
    );
    let terminal = "58750000000000000000000".parse().unwrap();
    assert_eq!(spec.terminal_total_difficulty, Some(terminal));
    assert_eq!((spec.shanghai_time, spec.cancun_time), (None, Some(0)));
    let cancun = spec.blob_schedule.cancun.unwrap();
    assert_eq!(
        (
            cancun.target_blob_count,
            cancun.max_blob_count,
            cancun.update_fraction
        ),
        (1, 2, 3)
    );
    assert_eq!(spec.blob_schedule.prague, None);

    let header = genesis.header(&spec, B256::ZERO);
    assert_eq!(header.base_fee_per_gas, Some(1_000_000_000));
    // Cancun brings what Shanghai does, which is left out.
    assert_eq!(
        (header.withdrawals_root, header.excess_blob_gas),
        (Some(EMPTY_WITHDRAWALS), Some(0))
    );
    assert_eq!(header.requests_hash, None);
    assert_eq!(genesis.refused, ["clique"]);
}

#[test]
fn forks_that_are_left_out_come_with_the_next() {
    let header = |config: &str| {
        let (genesis, _) = parse(&format!(
            r#"{{"config": {{"chainId": 1, "londonBlock": 0, {config}}}, "difficulty": 0,
                "gasLimit": 1, "alloc": {{}}}}"#
        ))
        .unwrap();
        let spec = genesis.config.clone().unwrap();
        genesis.header(&spec, B256::ZERO)
    };
    let all = header(r#""shanghaiTime": 0, "cancunTime": 0, "pragueTime": 0, "osakaTime": 0"#);
    for some in [
        r#""osakaTime": 0"#,
        r#""osakaTime": 0, "cancunTime": 0"#,
        r#""pragueTime": 0, "shanghaiTime": 0"#,
        r#""bpo1Time": 9, "pragueTime": 0"#,
    ] {
        assert_eq!(header(some), all, "{some}");
    }
    assert_eq!(header(r#""pragueTime": 1"#).withdrawals_root, None);
    // Its header can be read again.
    let cancun = header(r#""cancunTime": 0"#);
    let rlp = alloy_rlp::encode(&cancun);
    assert_eq!(Header::decode(&mut &rlp[..]).unwrap(), cancun);
}

#[test]
fn what_makes_other_rules_is_named_and_refused() {
    for (field, name) in [
        (r#""clique": {"period": 15, "epoch": 30000}"#, "`clique`"),
        (r#""ibft2": {}, "qbft": {}"#, "`ibft2`, `qbft`"),
        (r#""IBFT": {}"#, "`IBFT`"),
        (
            r#""ethash": {"fixeddifficulty": 100}"#,
            "`ethash.fixeddifficulty`",
        ),
        (r#""contractSizeLimit": 2147483647"#, "`contractSizeLimit`"),
    ] {
        let json = format!(
            r#"{{"config": {{"chainId": 1, {field}}}, "difficulty": 0, "gasLimit": 1, "alloc": {{
                "00000000000000000000000000000000000000bb": {{"balance": "1"}}}}}}"#
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("genesis.json");
        std::fs::write(&file, json).unwrap();
        let db: Arc<dyn Disk> = Arc::new(StdDisk::new(dir.path().join("db")));
        let made = Chain::init(db.clone(), &file, Options::default(), &mut |_| {});
        let error = made.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        assert!(!Db::exists(&*db).unwrap(), "{name}");
    }
    let (silent, _) = parse(
        r#"{"config": {"chainId": 1, "clique": null, "ethash": null, "ethash": {"other": 1}},
            "difficulty": 0, "gasLimit": 1, "alloc": {}}"#,
    )
    .unwrap();
    silent.check_rules().unwrap();
}

#[test]
fn a_chain_with_no_terminal_difficulty_never_merges() {
    let (genesis, _) = parse(
        r#"{"config": {"chainId": 1, "londonBlock": 0, "terminalTotalDifficultyPassed": true,
            "ethash": {}}, "difficulty": "0x20000", "gasLimit": 1, "alloc": {}}"#,
    )
    .unwrap();
    let spec = genesis.config.unwrap();
    assert!(!spec.is_post_merge(1_000_000, U256::MAX));
    assert_eq!(genesis.ignored, [""; 0]);
}

#[test]
fn the_rules_of_public_chains_are_those_of_their_files() {
    for (name, rules) in ChainSpec::PUBLIC {
        let Some(path) = data(&format!("reth/crates/chainspec/res/genesis/{name}.json")) else {
            continue;
        };
        let (genesis, _) = Genesis::read(path).unwrap();
        let Some(file) = genesis.config else {
            continue;
        };
        // The files are from before the newest forks.
        let rules = ChainSpec {
            osaka_time: file.osaka_time,
            bpo_times: file.bpo_times,
            blob_schedule: file.blob_schedule,
            ..rules()
        };
        assert_eq!(rules, file, "{name}");
    }
}

#[test]
fn each_fork_adds_its_fields_to_the_genesis_header() {
    let json = r#"{"config": {"chainId": 1, "londonBlock": 0, "shanghaiTime": 0, "cancunTime": 0,
        "pragueTime": 10, "amsterdamTime": 20}, "difficulty": 0, "gasLimit": 1, "alloc": {},
        "baseFeePerGas": 7, "excessBlobGas": 8, "blobGasUsed": 9, "timestamp": "10"}"#;
    let (mut genesis, _) = parse(json).unwrap();
    let spec = genesis.config.clone().unwrap();
    let prague = genesis.header(&spec, B256::ZERO);
    assert_eq!(prague.base_fee_per_gas, Some(7));
    assert!(prague.withdrawals_root.is_some());
    assert_eq!(
        (prague.excess_blob_gas, prague.blob_gas_used),
        (Some(8), Some(9))
    );
    assert_eq!(prague.parent_beacon_block_root, Some(B256::ZERO));
    assert!(prague.requests_hash.is_some() && prague.block_access_list_hash.is_none());
    genesis.timestamp = 20;
    let empty_list = b256!("1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347");
    assert_eq!(
        genesis.header(&spec, B256::ZERO).block_access_list_hash,
        Some(empty_list)
    );
    genesis.timestamp = 9;
    assert_eq!(genesis.header(&spec, B256::ZERO).requests_hash, None);
}

#[test]
fn a_malformed_genesis_is_refused_by_file_field_and_line() {
    let with =
        |field: &str| format!("{{\"gasLimit\": 1, \"difficulty\": 1,\n \"alloc\": {{}}, {field}}}");
    let account = |fields: &str| {
        format!(
            "{{\"gasLimit\": 1, \"difficulty\": 1, \"alloc\":\n\
             {{\"00000000000000000000000000000000000000bb\": {fields}}}}}"
        )
    };
    let bb = "alloc: 0x00000000000000000000000000000000000000bb";
    for (json, expected) in [
        (
            String::new(),
            "EOF while parsing a value at line 1 column 0".into(),
        ),
        ("null".into(), "null".into()),
        ("[]".into(), "expected a genesis object at line 1".into()),
        ("{}".into(), "has no field `alloc`".into()),
        (
            r#"{"alloc": {}, "gasLimit": 1}"#.into(),
            "has no field `difficulty`".into(),
        ),
        (
            r#"{"alloc": {}, "difficulty": 1}"#.into(),
            "has no field `gasLimit`".into(),
        ),
        (with(r#""alloc": {}"#), "a second `alloc` at line 2".into()),
        (
            with(r#""nonce": -1"#),
            "nonce: invalid value: number -1, expected a number".into(),
        ),
        (
            with(r#""nonce": "0x10000000000000000""#),
            "of at most 64 bits".into(),
        ),
        (
            with(r#""nonce": "0x""#),
            "nonce: invalid value: string \"0x\"".into(),
        ),
        (
            with(r#""nonce": "twelve""#),
            "nonce: invalid value: string \"twelve\"".into(),
        ),
        (
            with(r#""coinbase": "0x12""#),
            "coinbase: invalid value: string \"0x12\"".into(),
        ),
        (
            with(r#""extraData": "0x123""#),
            "expected an even number of hex digits".into(),
        ),
        (
            with(r#""config": {"chainId": 1, "londonBlock": "x"}"#),
            "config: londonBlock: ".into(),
        ),
        (
            with(r#""config": {"londonBlock": 1}"#),
            "config: has no field `chainId`".into(),
        ),
        (
            with(r#""config": {"chainId": 1, "blobSchedule": {"prague": {"max": 3}}}"#),
            "config: blobSchedule: prague: not an object of target, max".into(),
        ),
        (
            with(
                r#""config": {"chainId": 1, "terminalTotalDifficulty": 1234567890123456789012.5}"#,
            ),
            "config: terminalTotalDifficulty: invalid value: number 1234567890123456789012.5"
                .into(),
        ),
        (account("null"), format!("{bb}: null at line 2")),
        (
            with(r#""config": {"chainId": 1, "shanghaiTime": 5, "cancunTime": 4}"#),
            "config: cancunTime comes before shanghaiTime at line".into(),
        ),
        (
            with(r#""config": {"chainId": 1, "berlinBlock": 5, "byzantiumBlock": 6}"#),
            "config: berlinBlock comes before byzantiumBlock at line".into(),
        ),
        (
            with(r#""config": {"chainId": 1, "pragueTime": 9, "amsterdamTime": 8, "bpo2Time": 9}"#),
            "config: amsterdamTime comes before bpo2Time at line".into(),
        ),
        (
            account("3"),
            format!("{bb}: invalid type: integer `3`, expected an account object"),
        ),
        (
            account(r#"{"balance": "1", "storage": {"0xzz": "1"}}"#),
            format!("{bb}: storage: `0xzz` is"),
        ),
        (
            account(r#"{"balance": "1", "storage": {"1": "0xzz"}}"#),
            format!("{bb}: storage: 0x"),
        ),
        (
            account(r#"{"balance": "1"}"#).replace("00bb", "bb"),
            "alloc: `0000".into(),
        ),
        (
            account(r#"{"balance": "1""#),
            "EOF while parsing an object at line 2".into(),
        ),
        (
            with(r#""x": 1"#) + " trailing",
            "trailing characters at line 2".into(),
        ),
    ] {
        let message = message(&json);
        assert!(message.starts_with("test.json: "), "{message}");
        assert!(
            message.contains(&expected),
            "{message}\ndoes not contain\n{expected}\nfor {json}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        Genesis::read(dir.path().join("no")),
        Err(GenesisError::Open { .. })
    ));
    let path = dir.path().join("twice.json");
    let twice =
        account(r#"{"balance": 1}, "0x00000000000000000000000000000000000000BB": {"balance": 2}"#);
    std::fs::write(&path, twice).unwrap();
    let error = Genesis::read(&path).unwrap_err();
    let bb = address!("00000000000000000000000000000000000000bb");
    assert!(
        matches!(error, GenesisError::Twice { address, .. } if address == bb),
        "{error}"
    );
}

#[test]
fn an_error_of_the_receiver_ends_the_reading_and_comes_back() {
    #[derive(Debug)]
    enum Stop {
        Full(Address),
        Genesis(GenesisError),
    }
    impl From<GenesisError> for Stop {
        fn from(error: GenesisError) -> Self {
            Self::Genesis(error)
        }
    }
    let stop = |part| match part {
        GenesisPart::Account(at, _) | GenesisPart::Slots(at, _) => Err(Stop::Full(at)),
    };
    let json = r#"{"alloc": {"00000000000000000000000000000000000000bb": {"balance": 1}, !"#;
    // Of this one the reading stops within the account.
    let slots: String = (0..70_000)
        .map(|slot| format!(r#""{slot:x}": "1", "#))
        .collect();
    let large = format!(
        r#"{{"alloc": {{"00000000000000000000000000000000000000bb": {{"storage": {{{slots}!"#
    );
    for json in [json, &large] {
        let stopped = Genesis::stream_from("t", json.as_bytes(), stop);
        assert!(matches!(stopped, Err(Stop::Full(at)) if at == Address::with_last_byte(0xbb)));
    }
    let stopped = Genesis::stream_from("t", json.as_bytes(), |_| Ok::<_, Stop>(()));
    assert!(matches!(
        stopped,
        Err(Stop::Genesis(GenesisError::Parse { .. }))
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_genesis_with_random_damage_never_panics(
        at in any::<prop::sample::Index>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..6),
        cut in any::<bool>(),
    ) {
        let good = r#"{"config": {"chainId": 1, "londonBlock": 0, "terminalTotalDifficulty": 1e30,
            "blobSchedule": {"prague": {"target": 1, "max": 2, "baseFeeUpdateFraction": 3}}},
            "difficulty": "0x1", "gasLimit": 1, "extraData": "0x00", "alloc": {
            "00000000000000000000000000000000000000bb": {"balance": "1", "storage": {"1": "2"}}}}"#;
        let mut json = good.as_bytes().to_vec();
        let at = at.index(json.len());
        json.splice(at..(at + bytes.len()).min(good.len()), bytes);
        if cut {
            json.truncate(at);
        }
        let parsed = Genesis::stream_from("t", json.as_slice(), |_| Ok::<_, GenesisError>(()));
        if let Ok(genesis) = parsed {
            let _ = genesis.spec(B256::ZERO).map(|spec| genesis.header(&spec, B256::ZERO));
        }
    }
}

/// Alloy's form of a genesis file has the header and the rules of the file.
#[test]
fn a_genesis_in_memory_means_what_its_file_means() {
    let storage = format!(
        r#"{{"0x{:064x}": "0x{:064x}", "0x{:064x}": "0x{:064x}"}}"#,
        1, 7, 2, 0
    );
    let json = format!(
        r#"{{
            "config": {{
                "chainId": 7, "homesteadBlock": 0, "eip150Block": 1, "londonBlock": 3,
                "terminalTotalDifficulty": 58750000000000000000000, "cancunTime": 100,
                "depositContractAddress": "0x00000000219ab540356cbb839cbe05303d7705fa",
                "blobSchedule": {{"cancun": {{"target": 3, "max": 6, "baseFeeUpdateFraction": 3338477}}}},
                "someTime": 4
            }},
            "nonce": "0x42", "timestamp": "0x5", "extraData": "0x1234", "gasLimit": "0x1388",
            "difficulty": "0x400000000",
            "mixHash": "0x0100000000000000000000000000000000000000000000000000000000000000",
            "coinbase": "0x0200000000000000000000000000000000000000", "baseFeePerGas": "0x7",
            "excessBlobGas": "0x20000", "blobGasUsed": "0x40000", "number": "0x0",
            "alloc": {{
                "0x0300000000000000000000000000000000000000":
                    {{"balance": "0x1", "nonce": "0x2", "code": "0x6001", "storage": {storage}}},
                "0x0400000000000000000000000000000000000000": {{"balance": "0x5"}}
            }}
        }}"#
    );
    let (from_file, accounts) = parse(&json).unwrap();
    let of_alloy: alloy_genesis::Genesis = serde_json::from_str(&json).unwrap();
    let found = Genesis::of_alloy(&of_alloy).unwrap();
    let named = Genesis {
        file: found.file.clone(),
        ..from_file
    };
    assert_eq!(found, named);
    assert_eq!(found.ignored, ["config.someTime"]);

    let disk = Arc::new(FaultyDisk::new(3));
    let chain = Chain::init_genesis(disk, &of_alloy, Options::default(), &mut |_| {}).unwrap();
    let view = chain.db().view().unwrap();
    assert_eq!(view.state_root(), state_root(&accounts));
    let account = view
        .account_at(address!("0300000000000000000000000000000000000000"))
        .unwrap();
    let code = view.code(&account.unwrap().code_hash).unwrap();
    assert_eq!(code, bytes!("6001"));
}

#[test]
fn a_genesis_in_memory_with_other_rules_or_numbers_is_refused() {
    let init = |change: &dyn Fn(&mut alloy_genesis::Genesis)| {
        let mut genesis = alloy_genesis::Genesis::default();
        genesis.config.chain_id = 5;
        change(&mut genesis);
        let disk = Arc::new(FaultyDisk::new(4));
        let made = Chain::init_genesis(disk, &genesis, Options::default(), &mut |_| {});
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(init(&|_| ()), Ok(()));
    for (change, expected) in [
        (
            &(|genesis: &mut alloy_genesis::Genesis| {
                genesis.base_fee_per_gas = Some(u128::from(u64::MAX) + 1);
            }) as &dyn Fn(&mut alloy_genesis::Genesis),
            "the genesis in memory: baseFeePerGas: over 64 bits",
        ),
        (
            &|genesis| {
                *genesis = alloy_genesis::Genesis::clique_genesis(5, Address::ZERO);
            },
            "config has `clique`",
        ),
        (
            &|genesis| {
                genesis.config.cancun_time = Some(5);
                genesis.config.prague_time = Some(4);
            },
            "comes before",
        ),
        (
            &|genesis| genesis.config = alloy_genesis::ChainConfig::default(),
            "has no `config`",
        ),
    ] {
        let error = init(change).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

/// More slots than fit into a piece come in several, with the root of all.
#[test]
fn an_account_of_many_slots_is_taken_from_memory_in_pieces() {
    let slots = |count: u64| {
        let slots = (1..=count).map(|slot| (B256::from(U256::from(slot)), B256::with_last_byte(1)));
        alloy_genesis::GenesisAccount::default().with_storage(Some(slots.collect()))
    };
    let many = [(1u8, 1 << 16), (2, (1 << 16) + 1), (3, 150_000)];
    let accounts = many.map(|(byte, count)| (Address::repeat_byte(byte), slots(count)));
    let mut genesis = alloy_genesis::Genesis::default().extend_accounts(accounts.clone());
    genesis.config.chain_id = 9;
    let disk = Arc::new(FaultyDisk::new(5));
    let chain = Chain::init_genesis(disk, &genesis, Options::default(), &mut |_| {}).unwrap();
    let accounts = accounts.map(|(address, account)| {
        let storage = account.storage_slots().collect();
        let account = GenesisAccount {
            storage,
            ..GenesisAccount::default()
        };
        (address, account)
    });
    let view = chain.db().view().unwrap();
    assert_eq!(view.state_root(), state_root(&accounts));
}
