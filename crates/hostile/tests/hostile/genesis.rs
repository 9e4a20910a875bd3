//! Genesis files with anything wrong in them: each byte, each value, each name. A reader refuses them
//! with field and place, or reads what the text says; and a database is made of that, and of nothing
//! else.

use crate::{
    ALONE,
    genesis_text::{BLOB_FORKS, POINTS, Said, accounts_in_words, said_by_text},
};
use alloy_primitives::{Address, B256, KECCAK256_EMPTY, keccak256};
use alloy_trie::{
    TrieAccount,
    root::{state_root_unhashed, storage_root_unhashed},
};
use cambium_chain::{
    BlobSchedule, Block, Chain, ChainError, ChainSpec, Genesis, GenesisAccount, GenesisError,
    GenesisPart,
};
use cambium_hostile::{
    ChangedJson, Json, Watchdog, all_or, byte_changes, json_changes, mend_header,
};
use cambium_state::{FaultyDisk, Options, StateError};
use cambium_testkit::{most_during, say};
use serde_json::json;
use std::{fmt::Display, fs, sync::Arc, time::Duration};

/// Changed texts of each kind in the short form of the tests.
const CHANGES: usize = 1500;
/// Longer than any error message that helps.
const MESSAGE_BYTES_MAX: usize = 500;
/// Longer than reading a file and making a database of it takes, by far.
const STEP_MAX: Duration = Duration::from_secs(20);

/// A file with every kind of field and value.
const GOOD: &str = r#"{
    "config": {
        "chainId": 1337, "homesteadBlock": 0, "daoForkSupport": true, "daoForkBlock": "0x0",
        "eip150Block": 0, "eip155Block": 0, "eip158Block": 0, "byzantiumBlock": 0,
        "constantinopleBlock": 0, "petersburgBlock": 0, "istanbulBlock": 0, "muirGlacierBlock": null,
        "berlinBlock": 0, "londonBlock": 0, "mergeNetsplitBlock": 0,
        "terminalTotalDifficulty": 58750000000000000000000, "terminalTotalDifficultyPassed": true,
        "shanghaiTime": 0, "cancunTime": "0", "pragueTime": 0, "osakaTime": 0, "bpo1Time": 9,
        "amsterdamTime": 10, "verkleTime": 99,
        "depositContractAddress": "0x4242424242424242424242424242424242424242",
        "blobSchedule": {
            "cancun": {"target": 3, "max": 6, "baseFeeUpdateFraction": 3338477},
            "bpo1": {"target": "0xa", "max": "15", "baseFeeUpdateFraction": "8346193"}
        },
        "ethash": {}
    },
    "nonce": "0x42", "timestamp": "0x0a", "extraData": "0x63616d6269756d", "gasLimit": "0x1c9c380",
    "gasUsed": "0x0", "difficulty": 58750000000000000000001, "number": 0, "baseFeePerGas": "7",
    "excessBlobGas": "0x20000", "blobGasUsed": "0x40000", "slotNumber": 5, "stateRoot": "0x00",
    "mixHash": "0x00000000000000000000000000000000000000000000000000000000000000ff",
    "parentHash": "0x0000000000000000000000000000000000000000000000000000000000000000",
    "parentBeaconBlockRoot": "0x07", "coinbase": "0xc0ba00000000000000000000000000000000c0ba",
    "alloc": {
        "0x00000000000000000000000000000000000000aA": {"balance": "0x1bc16d674ec80000", "nonce": "0x7"},
        "00000000000000000000000000000000000000bb": {
            "balance": 1000000000000000000000, "nonce": 1, "code": "0x6001600255", "comment": [1],
            "storage": {
                "0x0000000000000000000000000000000000000000000000000000000000000001": "0x02",
                "0x2": "0x0000000000000000000000000000000000000000000000000000000000000000",
                "abc": "ff"
            }
        },
        "00000961ef480eb55e80d19ad83579a64c007002": {"balance": "1", "code": "0x00"},
        "0000bbddc7ce488642fb579f8b00f3a590007251": {"balance": "0", "code": "00"}
    }
}"#;

/// A genesis file that was read, and its accounts in the order in which they came.
type Read = (Genesis, Vec<(Address, GenesisAccount)>);

fn read(text: &[u8]) -> Result<Read, GenesisError> {
    let (mut accounts, mut slots) = (Vec::new(), Vec::new());
    let genesis = Genesis::stream_from("test.json", text, |part| {
        match part {
            GenesisPart::Slots(_, mut more) => slots.append(&mut more),
            GenesisPart::Account(address, mut account) => {
                account.storage.splice(..0, slots.drain(..));
                accounts.push((address, account));
            }
        }
        Ok::<_, GenesisError>(())
    })?;
    Ok((genesis, accounts))
}

/// The fields that were read.
fn said_by_reader((genesis, accounts): &Read) -> Said {
    let mut said = Said::new();
    let mut put = |name: &str, value: &dyn Display| {
        said.insert(name.to_owned(), value.to_string());
    };
    for (name, value) in [
        ("nonce", Some(genesis.nonce)),
        ("timestamp", Some(genesis.timestamp)),
        ("gaslimit", Some(genesis.gas_limit)),
        ("gasused", Some(genesis.gas_used)),
        ("number", Some(genesis.number)),
        ("basefeepergas", genesis.base_fee_per_gas),
        ("excessblobgas", genesis.excess_blob_gas),
        ("blobgasused", genesis.blob_gas_used),
        ("slotnumber", genesis.slot_number),
    ] {
        if let Some(value) = value {
            put(name, &value);
        }
    }
    put("difficulty", &genesis.difficulty);
    put("extradata", &genesis.extra_data);
    put("mixhash", &genesis.mix_hash);
    put("parenthash", &genesis.parent_hash);
    put("coinbase", &format!("{:#x}", genesis.coinbase));
    if let Some(root) = genesis.parent_beacon_block_root {
        put("parentbeaconblockroot", &root);
    }
    if let Some(spec) = &genesis.config {
        config_said_by_reader(spec, &mut put);
        let mut refused = genesis.refused.clone();
        refused.sort();
        put("refused", &refused.join(","));
    }
    put("accounts", &accounts_in_words(accounts));
    said
}

fn config_said_by_reader(spec: &ChainSpec, put: &mut dyn FnMut(&str, &dyn Display)) {
    put("config.chainid", &spec.chain_id);
    put("config.daoforksupport", &spec.dao_fork_support);
    if let Some(terminal) = spec.terminal_total_difficulty {
        put("config.terminaltotaldifficulty", &terminal);
    }
    put(
        "config.depositcontractaddress",
        &format!("{:#x}", spec.deposit_contract),
    );
    let points = [
        spec.homestead_block,
        spec.dao_fork_block,
        spec.eip150_block,
        spec.eip155_block,
        spec.eip158_block,
        spec.byzantium_block,
        spec.constantinople_block,
        spec.petersburg_block,
        spec.istanbul_block,
        spec.muir_glacier_block,
        spec.berlin_block,
        spec.london_block,
        spec.arrow_glacier_block,
        spec.gray_glacier_block,
        spec.merge_netsplit_block,
        spec.shanghai_time,
        spec.cancun_time,
        spec.prague_time,
        spec.osaka_time,
    ];
    let points = points.into_iter().chain(spec.bpo_times);
    for (name, point) in POINTS.iter().zip(points.chain([spec.amsterdam_time])) {
        if let Some(point) = point {
            put(&format!("config.{name}"), &point);
        }
    }
    let BlobSchedule {
        cancun,
        prague,
        osaka,
        bpo,
        amsterdam,
    } = spec.blob_schedule;
    let entries = [cancun, prague, osaka].into_iter().chain(bpo);
    for (name, params) in BLOB_FORKS.iter().zip(entries.chain([amsterdam])) {
        if let Some(params) = params {
            let (target, max) = (params.target_blob_count, params.max_blob_count);
            let words = format!("{target}/{max}/{}", params.update_fraction);
            put(&format!("config.blobschedule.{name}"), &words);
        }
    }
}

/// Outcomes of reading files.
struct Trial {
    good: Said,
    hash: B256,
    counts: Counts,
    watchdog: Watchdog,
}

#[derive(Debug, Default)]
struct Counts {
    tried: usize,
    read: usize,
    same: usize,
    databases: usize,
    children: usize,
}

impl Trial {
    fn new() -> Self {
        let good = read(GOOD.as_bytes()).unwrap();
        let said = said_by_reader(&good);
        let json = Json::parse(GOOD.as_bytes()).unwrap();
        assert_eq!(Some(&said), said_by_text(&json).as_ref());
        Self {
            good: said,
            hash: header_hash(&good),
            counts: Counts::default(),
            watchdog: Watchdog::new(STEP_MAX),
        }
    }

    /// Reads a text. Returns why it can't be read, if so.
    fn try_text(&mut self, text: &[u8], case: &dyn Display) -> Option<String> {
        self.counts.tried += 1;
        let (result, most) = self.watchdog.step(case, || most_during(|| read(text)));
        assert!(
            most <= (64 << 10) + 40 * text.len(),
            "{case}: {most} bytes of memory for {} bytes of text",
            text.len()
        );
        let read = match result {
            Ok(read) => read,
            Err(error) => {
                let error = error.to_string();
                let begin: String = error.chars().take(MESSAGE_BYTES_MAX).collect();
                assert!(error.len() < MESSAGE_BYTES_MAX, "{case}: {begin}");
                assert!(error.starts_with("test.json: "), "{case}: {error}");
                let is_placed = error.contains(" at line ");
                let is_named = error.contains("has no field `") || error == "test.json: null";
                assert!(is_placed || is_named, "{case}: {error}");
                assert!(!error.contains(char::is_control), "{case}: {error:?}");
                return Some(error);
            }
        };
        self.counts.read += 1;
        let said = said_by_reader(&read);
        let json = Json::parse(text).unwrap_or_else(|| panic!("{case}: no JSON is read"));
        let expected = said_by_text(&json);
        let expected =
            expected.unwrap_or_else(|| panic!("{case}: {said:?}, and says no such thing"));
        let differs = |said: &Said, other: &Said| -> Said {
            let mut said = said.clone();
            said.retain(|name, value| other.get(name) != Some(value));
            said
        };
        let (read_only, said_only) = (differs(&said, &expected), differs(&expected, &said));
        assert_eq!(read_only, said_only, "{case}");
        assert!(
            read.0
                .ignored
                .iter()
                .all(|name| !name.contains(char::is_control)),
            "{case}"
        );
        match said == self.good {
            true => self.counts.same += 1,
            false => self.watchdog.step(case, || {
                make(text, &read, self.hash, case, &mut self.counts)
            }),
        }
        None
    }

    /// Says what became of all, and fails if too few came far.
    fn conclude(&self, what: &str) {
        let Counts {
            tried,
            read,
            same,
            databases,
            children,
        } = self.counts;
        say(&format!(
            "{what}: {tried} tried, {read} read, {same} of them say the same, {databases} make other \
             databases, {children} of which take a block"
        ));
        assert!(
            same > 50 && databases > 50 && children > 50,
            "{:?}",
            self.counts
        );
    }
}

/// The hash of the genesis block, its state by alloy-trie.
fn header_hash((genesis, accounts): &Read) -> B256 {
    let leaves = accounts.iter().map(|(address, account)| {
        let slots = account.storage.iter().copied();
        let slots = slots.filter(|(_, value)| !value.is_zero());
        let code_hash = match account.code.is_empty() {
            true => KECCAK256_EMPTY,
            false => keccak256(&account.code),
        };
        let account = TrieAccount {
            nonce: account.nonce,
            balance: account.balance,
            storage_root: storage_root_unhashed(slots),
            code_hash,
        };
        (*address, account)
    });
    let root = state_root_unhashed(leaves);
    let spec = genesis.config.clone().unwrap_or_default();
    genesis.header(&spec, root).hash_slow()
}

/// Makes a database of a file that says something else than the good one.
fn make(text: &[u8], read: &Read, good: B256, case: &dyn Display, counts: &mut Counts) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("genesis.json");
    fs::write(&file, text).unwrap();
    let options = Options {
        memory_bytes: 4 << 20,
        ..Options::default()
    };
    let disk = Arc::new(FaultyDisk::new(1));
    let chain = match Chain::init(disk.clone(), &file, options, &mut |_| {}) {
        Ok(chain) => chain,
        Err(error) => {
            // Of all that can be read there is little that no database is made of.
            let is_of_file = matches!(
                error,
                ChainError::Genesis(
                    GenesisError::NoConfig { .. }
                        | GenesisError::OtherRules { .. }
                        | GenesisError::Twice { .. }
                        | GenesisError::SlotTwice { .. }
                )
            );
            let is_too_high = matches!(error, ChainError::State(StateError::BadStart(_)));
            let error = error.to_string();
            let is_named = is_of_file && error.contains("genesis.json");
            assert!(is_named || is_too_high, "{case}: {error}");
            assert!(!is_too_high || read.0.number > 1 << 38, "{case}: {error}");
            assert!(error.len() < MESSAGE_BYTES_MAX, "{case}: {error}");
            assert!(
                disk.files().is_empty() || Chain::open(disk, options).is_err(),
                "{case}"
            );
            return;
        }
    };
    counts.databases += 1;
    let expected = header_hash(read);
    assert_eq!(chain.db().genesis().hash, expected, "{case}");
    assert_eq!(Some(chain.spec()), read.0.config.as_ref(), "{case}");
    let is_of_header = expected != good;
    let good_spec = Genesis::stream_from("t", GOOD.as_bytes(), |_| Ok::<_, GenesisError>(()));
    let is_of_rules = Some(chain.spec()) != good_spec.unwrap().config.as_ref();
    assert!(
        is_of_header || is_of_rules,
        "{case}: the same chain of a file that says otherwise"
    );
    counts.children += usize::from(takes_a_child(&chain, case));
    let rules = json!(chain.spec());
    let checked = chain.check_genesis_file(&file, &mut |_| {});
    checked.unwrap_or_else(|why| panic!("{case}: {why}"));
    drop(chain);
    let opened = Chain::open(disk, options);
    let (again, recovery) = opened.unwrap_or_else(|why| panic!("{case}: {why}"));
    assert_eq!(again.db().genesis().hash, expected, "{case}");
    assert_eq!(json!(again.spec()), rules, "{case}");
    assert!(recovery.notes.is_empty(), "{case}: {recovery:?}");
}

/// Whether an empty block can follow, with any header that this needs.
fn takes_a_child(chain: &Chain, case: &dyn Display) -> bool {
    let parent = chain.block(chain.db().genesis().number).unwrap().header;
    let mut block = Block::default();
    block.body.withdrawals = parent.withdrawals_root.map(|_| Default::default());
    block.header = alloy_consensus::Header {
        parent_hash: chain.db().genesis().hash,
        number: parent.number.wrapping_add(1),
        timestamp: parent.timestamp.wrapping_add(12),
        mix_hash: B256::repeat_byte(3),
        nonce: Default::default(),
        extra_data: Default::default(),
        gas_used: 0,
        blob_gas_used: parent.blob_gas_used.map(|_| 0),
        ..parent
    };
    for _ in 0..16 {
        let imported = chain.import_block(alloy_rlp::encode(&block).into(), None);
        match imported {
            Ok(_) => return true,
            Err(ChainError::Block { fault, .. }) => {
                if !mend_header(&mut block.header, &fault) {
                    let fault = fault.to_string();
                    assert!(fault.len() < MESSAGE_BYTES_MAX, "{case}: {fault}");
                    return false;
                }
            }
            Err(error) => panic!("{case}: {error}"),
        }
    }
    panic!("{case}: {:?} goes on being wrong", block.header)
}

#[test]
fn a_genesis_with_any_byte_changed_says_what_it_says_or_is_refused() {
    let _alone = ALONE.lock();
    let mut trial = Trial::new();
    for changed in byte_changes(GOOD.as_bytes(), all_or(CHANGES), 17) {
        trial.try_text(&changed.bytes, &changed);
    }
    trial.conclude(&format!("{} bytes, each changed", GOOD.len()));
}

#[test]
fn a_genesis_with_any_value_changed_says_what_it_says_or_is_refused() {
    let _alone = ALONE.lock();
    let mut trial = Trial::new();
    let json = Json::parse(GOOD.as_bytes()).unwrap();
    for changed in json_changes(&json, all_or(CHANGES), 19) {
        let Some(error) = trial.try_text(changed.text.as_bytes(), &changed) else {
            continue;
        };
        assert_place(&changed, &error);
    }
    trial.conclude("each value changed");
}

/// An error is placed at what is wrong, and names the field.
fn assert_place(changed: &ChangedJson, error: &str) {
    // Contradictions between fields are found at the end of the object.
    let is_of_all = [
        "comes before",
        "not an object of target",
        "has no field",
        " blobs, over the limit of",
        "UpdateFraction: 0",
    ];
    if is_of_all.iter().any(|words| error.contains(words)) {
        return;
    }
    assert!(
        changed.is_placed_by(error).unwrap_or(true),
        "{changed}: {error}"
    );
    let name = changed.place.rsplit('.').next().unwrap_or_default();
    let is_named = error
        .to_ascii_lowercase()
        .contains(&name.to_ascii_lowercase());
    // An address and a slot are named in their one form. Text that is not JSON at all has only a place.
    let is_key = changed.place.contains("alloc");
    let is_syntax = changed.replaced.is_some()
        && serde_json::from_str::<serde_json::Value>(&changed.text).is_err();
    let is_renamed = changed.replaced.is_none();
    assert!(
        is_named || is_key || is_syntax || is_renamed,
        "{changed}: {error}"
    );
}
