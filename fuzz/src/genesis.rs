//! Genesis files.

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256};
use alloy_rlp::Decodable;
use cambium_chain::{ChainSpec, Genesis, GenesisAccount, GenesisError, GenesisPart};
use serde_json::{Map, Value, json};
use std::io;

/// Maximum length of an error message that is of use.
const MESSAGE_BYTES_MAX: usize = 1000;

type Read = (Genesis, Vec<(Address, GenesisAccount)>);

/// Input: a genesis file.
///
/// The result does not depend on the sizes of the reads. An error names the file in a short
/// message. Writing what was read, each value in one notation, and reading that gives the same. The
/// fork rules are those that a database gets, and the header can be decoded.
pub fn genesis(bytes: &[u8]) {
    let at_once = read(bytes);
    let in_pieces = read(Pieces(bytes));
    let (genesis, accounts) = match (at_once, in_pieces) {
        (Ok(read), Ok(again)) => {
            assert_eq!(read, again, "something else if it comes in pieces");
            read
        }
        (Err(error), Err(again)) => {
            let error = error.to_string();
            assert_eq!(error, again.to_string());
            assert!(error.starts_with("a file: "), "{error}");
            assert!(error.len() < MESSAGE_BYTES_MAX, "{error}");
            return;
        }
        (one, other) => panic!("{one:?}, and in pieces {other:?}"),
    };
    assert_eq!(genesis.accounts, accounts.len() as u64);
    let names = genesis.ignored.iter().chain(&genesis.refused);
    for name in names {
        assert!(!name.contains(char::is_control), "{name:?}");
    }
    assert_eq!(genesis.check_rules().is_ok(), genesis.refused.is_empty());

    let text = written(&genesis, &accounts).to_string();
    let (mut again, same) = read(text.as_bytes()).expect("what was just written");
    // Fields that were skipped, or make rules that are not supported, are not written.
    again.ignored.clone_from(&genesis.ignored);
    again.refused.clone_from(&genesis.refused);
    assert_eq!((&again, &same), (&genesis, &accounts), "{text}");

    let Ok(spec) = genesis.spec(B256::ZERO) else {
        return assert!(genesis.config.is_none());
    };
    assert_eq!(spec.forks_out_of_order(), None);
    let kept = serde_json::to_value(&spec).expect("rules can be kept");
    let found: ChainSpec = serde_json::from_value(kept.clone()).expect("rules that were kept");
    assert_eq!(json!(found), kept);
    let header = genesis.header(&spec, B256::ZERO);
    let rlp = alloy_rlp::encode(&header);
    let decoded = Header::decode(&mut &rlp[..]).expect("what was just encoded");
    assert_eq!(decoded, header);
    for timestamp in [0, genesis.timestamp, u64::MAX] {
        if let Some(params) = spec.blob_params_at(timestamp) {
            let most = params
                .max_blob_gas_per_block()
                .max(params.target_blob_gas_per_block());
            assert!(most.is_multiple_of(1 << 17));
        }
    }
}

/// A reader that sometimes returns a single byte.
struct Pieces<'a>(&'a [u8]);

impl io::Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = (1 + self.0.len() % 7).min(buffer.len()).min(self.0.len());
        let (piece, rest) = self.0.split_at(len);
        buffer[..len].copy_from_slice(piece);
        self.0 = rest;
        Ok(len)
    }
}

fn read(bytes: impl io::Read) -> Result<Read, GenesisError> {
    let (mut accounts, mut slots) = (Vec::new(), Vec::new());
    let genesis = Genesis::stream_from("a file", bytes, |part| {
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

/// Writes the genesis file again: numbers as in JSON, bytes as hex with 0x. It is composed as text,
/// because accounts and slots may be duplicates.
fn written(genesis: &Genesis, accounts: &[(Address, GenesisAccount)]) -> String {
    let fields = json!({
        "nonce": genesis.nonce,
        "timestamp": genesis.timestamp,
        "extraData": genesis.extra_data,
        "gasLimit": genesis.gas_limit,
        "gasUsed": genesis.gas_used,
        "difficulty": genesis.difficulty.to_string(),
        "mixHash": genesis.mix_hash,
        "coinbase": genesis.coinbase,
        "number": genesis.number,
        "parentHash": genesis.parent_hash,
        "baseFeePerGas": genesis.base_fee_per_gas,
        "excessBlobGas": genesis.excess_blob_gas,
        "blobGasUsed": genesis.blob_gas_used,
        "slotNumber": genesis.slot_number,
        "parentBeaconBlockRoot": genesis.parent_beacon_block_root,
        "config": genesis.config.as_ref().map(config),
    });
    let alloc: Vec<_> = accounts
        .iter()
        .map(|(address, account)| format!("\"{address}\": {}", account_text(account)))
        .collect();
    let fields = fields.to_string();
    let fields = fields.strip_suffix('}').expect("an object");
    format!("{fields}, \"alloc\": {{{}}}}}", alloc.join(","))
}

fn account_text(account: &GenesisAccount) -> String {
    let GenesisAccount {
        balance,
        nonce,
        code,
        storage,
    } = account;
    let slot = |(slot, value): &(B256, U256)| format!("\"{slot}\": \"{}\"", B256::from(*value));
    let slots: Vec<_> = storage.iter().map(slot).collect();
    let code: &Bytes = code;
    format!(
        "{{\"balance\": {balance}, \"nonce\": {nonce}, \"code\": \"{code}\", \"storage\": {{{}}}}}",
        slots.join(",")
    )
}

fn config(spec: &ChainSpec) -> Value {
    let mut fields = Map::new();
    for (name, point) in [
        ("homesteadBlock", spec.homestead_block),
        ("daoForkBlock", spec.dao_fork_block),
        ("eip150Block", spec.eip150_block),
        ("eip155Block", spec.eip155_block),
        ("eip158Block", spec.eip158_block),
        ("byzantiumBlock", spec.byzantium_block),
        ("constantinopleBlock", spec.constantinople_block),
        ("petersburgBlock", spec.petersburg_block),
        ("istanbulBlock", spec.istanbul_block),
        ("muirGlacierBlock", spec.muir_glacier_block),
        ("berlinBlock", spec.berlin_block),
        ("londonBlock", spec.london_block),
        ("arrowGlacierBlock", spec.arrow_glacier_block),
        ("grayGlacierBlock", spec.gray_glacier_block),
        ("mergeNetsplitBlock", spec.merge_netsplit_block),
        ("shanghaiTime", spec.shanghai_time),
        ("cancunTime", spec.cancun_time),
        ("pragueTime", spec.prague_time),
        ("osakaTime", spec.osaka_time),
        ("bpo1Time", spec.bpo_times[0]),
        ("bpo2Time", spec.bpo_times[1]),
        ("bpo3Time", spec.bpo_times[2]),
        ("bpo4Time", spec.bpo_times[3]),
        ("bpo5Time", spec.bpo_times[4]),
        ("amsterdamTime", spec.amsterdam_time),
    ] {
        fields.insert(name.to_owned(), json!(point));
    }
    let schedule = &spec.blob_schedule;
    let mut blobs = Map::new();
    for (name, params) in [
        ("cancun", schedule.cancun),
        ("prague", schedule.prague),
        ("osaka", schedule.osaka),
        ("bpo1", schedule.bpo[0]),
        ("bpo2", schedule.bpo[1]),
        ("bpo3", schedule.bpo[2]),
        ("bpo4", schedule.bpo[3]),
        ("bpo5", schedule.bpo[4]),
        ("amsterdam", schedule.amsterdam),
    ] {
        let params = params.map(|params| {
            json!({
                "target": params.target_blob_count,
                "max": params.max_blob_count,
                "baseFeeUpdateFraction": u64::try_from(params.update_fraction).expect("as read"),
            })
        });
        blobs.insert(name.to_owned(), json!(params));
    }
    let terminal = spec
        .terminal_total_difficulty
        .map(|number| number.to_string());
    fields.insert("chainId".to_owned(), json!(spec.chain_id));
    fields.insert("daoForkSupport".to_owned(), json!(spec.dao_fork_support));
    fields.insert("terminalTotalDifficulty".to_owned(), json!(terminal));
    fields.insert(
        "depositContractAddress".to_owned(),
        json!(spec.deposit_contract),
    );
    if *schedule != cambium_chain::BlobSchedule::mainnet() {
        fields.insert("blobSchedule".to_owned(), Value::Object(blobs));
    }
    Value::Object(fields)
}
