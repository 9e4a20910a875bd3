//! Fields of a genesis file, by a model that shares no code with the reader.

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use cambium_chain::{GenesisAccount, MAINNET_DEPOSIT_CONTRACT};
use cambium_hostile::Json;
use std::collections::BTreeMap;

/// Fields of a file by their names, from a reader or the model.
pub(crate) type Said = BTreeMap<String, String>;

/// Names of the forks' blocks and times.
pub(crate) const POINTS: [&str; 25] = [
    "homesteadblock",
    "daoforkblock",
    "eip150block",
    "eip155block",
    "eip158block",
    "byzantiumblock",
    "constantinopleblock",
    "petersburgblock",
    "istanbulblock",
    "muirglacierblock",
    "berlinblock",
    "londonblock",
    "arrowglacierblock",
    "grayglacierblock",
    "mergenetsplitblock",
    "shanghaitime",
    "cancuntime",
    "praguetime",
    "osakatime",
    "bpo1time",
    "bpo2time",
    "bpo3time",
    "bpo4time",
    "bpo5time",
    "amsterdamtime",
];
pub(crate) const BLOB_FORKS: [&str; 9] = [
    "cancun",
    "prague",
    "osaka",
    "bpo1",
    "bpo2",
    "bpo3",
    "bpo4",
    "bpo5",
    "amsterdam",
];
const OTHER_RULES: [&str; 10] = [
    "aura",
    "bor",
    "clique",
    "contractsizelimit",
    "evmstacksize",
    "ibft",
    "ibft2",
    "optimism",
    "parlia",
    "qbft",
];

pub(crate) fn accounts_in_words(accounts: &[(Address, GenesisAccount)]) -> String {
    let words = accounts.iter().map(|(address, account)| {
        let GenesisAccount {
            balance,
            nonce,
            code,
            storage,
        } = account;
        // A slot of zero is none.
        let slots = storage.iter().filter(|(_, value)| !value.is_zero());
        let slots = slots.map(|(slot, value)| format!("{slot}={value:#x}"));
        let slots = slots.collect::<Vec<_>>().join(",");
        format!("{address:#x}: {balance} {nonce} {code} [{slots}]")
    });
    words.collect::<Vec<_>>().join("; ")
}

/// Fields of a text, by a model of JSON that shares no code with the reader. `None` if one can't be
/// read.
pub(crate) fn said_by_text(json: &Json) -> Option<Said> {
    let mut said = Said::new();
    for name in ["nonce", "timestamp", "gaslimit", "gasused", "number"] {
        said.insert(name.to_owned(), "0".to_owned());
    }
    said.insert("extradata".to_owned(), "0x".to_owned());
    for name in ["mixhash", "parenthash"] {
        said.insert(name.to_owned(), B256::ZERO.to_string());
    }
    said.insert("coinbase".to_owned(), format!("{:#x}", Address::ZERO));
    for (key, value) in fields(json)? {
        let name = key.to_ascii_lowercase();
        let said_now = match name.as_str() {
            "nonce" | "timestamp" | "gaslimit" | "gasused" | "number" => {
                // As if it were not there.
                if *value == Json::Null && name != "gaslimit" {
                    continue;
                }
                Some(number(value, 64)?.to_string())
            }
            "difficulty" => Some(number(value, 256)?.to_string()),
            "extradata" | "mixhash" | "parenthash" | "coinbase" if *value == Json::Null => continue,
            "extradata" => Some(bytes(value.text()?)?.to_string()),
            "mixhash" | "parenthash" => Some(padded(value.text()?)?.to_string()),
            "coinbase" => Some(address(value.text()?)?),
            "basefeepergas" | "excessblobgas" | "blobgasused" | "slotnumber" => match value {
                Json::Null => None,
                value => Some(number(value, 64)?.to_string()),
            },
            "parentbeaconblockroot" => match value {
                Json::Null => None,
                value => Some(padded(value.text()?)?.to_string()),
            },
            "config" => {
                if *value != Json::Null {
                    config_said_by_text(value, &mut said)?;
                }
                continue;
            }
            "alloc" => Some(alloc_said_by_text(value)?),
            _ => continue,
        };
        let name = match name.as_str() {
            "alloc" => "accounts".to_owned(),
            _ => name,
        };
        match said_now {
            Some(value) => _ = said.insert(name, value),
            None => _ = said.remove(&name),
        }
    }
    Some(said)
}

fn config_said_by_text(config: &Json, said: &mut Said) -> Option<()> {
    let mut refused = Vec::new();
    let deposits = format!("{MAINNET_DEPOSIT_CONTRACT:#x}");
    said.insert("config.depositcontractaddress".to_owned(), deposits);
    said.insert("config.daoforksupport".to_owned(), "false".to_owned());
    let mainnet = [
        "3/6/3338477",
        "6/9/5007716",
        "6/9/5007716",
        "10/15/8346193",
        "14/21/11684671",
    ];
    for (fork, words) in BLOB_FORKS.iter().zip(mainnet) {
        said.insert(format!("config.blobschedule.{fork}"), words.to_owned());
    }
    for (key, value) in fields(config)? {
        let name = key.to_ascii_lowercase();
        let full = format!("config.{name}");
        match (name.as_str(), value) {
            ("blobschedule", Json::Null) => {}
            ("blobschedule", schedule) => {
                said.retain(|name, _| !name.starts_with("config.blobschedule."));
                schedule_said_by_text(schedule, said)?;
            }
            ("ethash", Json::Null) => {}
            ("ethash", ethash) => {
                for (key, value) in fields(ethash)? {
                    if key.eq_ignore_ascii_case("fixeddifficulty") && *value != Json::Null {
                        refused.push(format!("ethash.{key}"));
                    }
                }
            }
            (name, value) if OTHER_RULES.contains(&name) && *value != Json::Null => {
                refused.push(key.clone());
            }
            ("chainid", value) => {
                said.insert(full, number(value, 64)?.to_string());
            }
            ("terminaltotaldifficulty", Json::Null) => _ = said.remove(&full),
            ("terminaltotaldifficulty", value) => {
                said.insert(full, number(value, 256)?.to_string());
            }
            ("depositcontractaddress", Json::Null) => {
                said.insert(full, format!("{MAINNET_DEPOSIT_CONTRACT:#x}"));
            }
            ("depositcontractaddress", value) => {
                said.insert(full, address(value.text()?)?);
            }
            ("daoforksupport", value) => {
                let is_so = match value {
                    Json::Null => false,
                    Json::Bool(value) => *value,
                    value => value.text()?.parse().ok()?,
                };
                said.insert(full, is_so.to_string());
            }
            (name, Json::Null) if POINTS.contains(&name) => _ = said.remove(&full),
            (name, value) if POINTS.contains(&name) => {
                said.insert(full, number(value, 64)?.to_string());
            }
            _ => {}
        }
    }
    refused.sort();
    refused.dedup();
    said.insert("refused".to_owned(), refused.join(","));
    said.contains_key("config.chainid").then_some(())
}

fn schedule_said_by_text(schedule: &Json, said: &mut Said) -> Option<()> {
    for (key, value) in fields(schedule)? {
        let fork = key.to_ascii_lowercase();
        if !BLOB_FORKS.contains(&fork.as_str()) || *value == Json::Null {
            continue;
        }
        let mut given = [None, None, None];
        for (key, value) in fields(value)? {
            let names = ["target", "max", "basefeeupdatefraction"];
            let name = key.to_ascii_lowercase();
            if let Some(place) = names.iter().position(|known| *known == name) {
                given[place] = match value {
                    Json::Null => None,
                    value => Some(number(value, 64)?),
                };
            }
        }
        let [Some(target), Some(max), Some(fraction)] = given else {
            return None;
        };
        let words = format!("{target}/{max}/{fraction}");
        said.insert(format!("config.blobschedule.{fork}"), words);
    }
    Some(())
}

fn alloc_said_by_text(alloc: &Json) -> Option<String> {
    let mut accounts = Vec::new();
    for (key, value) in fields(alloc)? {
        let mut account = GenesisAccount::default();
        for (key, value) in fields(value)? {
            match (key.as_str(), value) {
                ("balance", value) => account.balance = number(value, 256)?,
                (_, Json::Null) => {}
                ("nonce", value) => account.nonce = number(value, 64)?.to(),
                ("code", value) => account.code = bytes(value.text()?)?,
                ("storage", value) => {
                    for (slot, value) in fields(value)? {
                        let value = padded(value.text()?)?;
                        account.storage.push((padded(slot)?, value.into()));
                    }
                }
                _ => {}
            }
        }
        accounts.push((address(key)?.parse().ok()?, account));
    }
    Some(accounts_in_words(&accounts))
}

fn fields(json: &Json) -> Option<&[(String, Json)]> {
    match json {
        Json::Object(fields) => Some(fields),
        _ => None,
    }
}

/// A number of at most `bits` bits, digit by digit.
fn number(json: &Json, bits: usize) -> Option<U256> {
    let value = match json {
        Json::Text(text) if text.is_empty() => U256::ZERO,
        Json::Text(text) => match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
            Some(digits) => digits_of(digits, 16)?,
            None => digits_of(text, 10)?,
        },
        Json::Number(text) => {
            let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
            let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
            let digits = format!("{whole}{fraction}");
            let exponent: i64 = exponent.parse().ok()?;
            let shift = exponent - fraction.len() as i64;
            match usize::try_from(shift) {
                Ok(zeros) => digits_of(&format!("{digits}{}", "0".repeat(zeros.min(999))), 10)?,
                Err(_) => {
                    // Digits behind the point must be zeros.
                    let behind = shift.unsigned_abs() as usize;
                    let (digits, rest) = digits.split_at(digits.len().checked_sub(behind)?);
                    digits_of(rest, 10).filter(U256::is_zero)?;
                    digits_of(digits, 10)?
                }
            }
        }
        _ => return None,
    };
    (value.bit_len() <= bits).then_some(value)
}

fn digits_of(text: &str, radix: u32) -> Option<U256> {
    let mut value = U256::ZERO;
    for letter in text.chars() {
        let digit = U256::from(letter.to_digit(radix)?);
        value = value.checked_mul(U256::from(radix))?.checked_add(digit)?;
    }
    (!text.is_empty()).then_some(value)
}

fn bytes(text: &str) -> Option<Bytes> {
    let digits = text
        .strip_prefix("0x")
        .or(text.strip_prefix("0X"))
        .unwrap_or(text);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| hex::decode(digits).ok().map(Bytes::from))?
}

fn padded(text: &str) -> Option<B256> {
    let digits = text
        .strip_prefix("0x")
        .or(text.strip_prefix("0X"))
        .unwrap_or(text);
    if digits.is_empty() {
        return Some(B256::ZERO);
    }
    digits_of(digits, 16)
        .filter(|_| digits.len() <= 64)
        .map(B256::from)
}

fn address(text: &str) -> Option<String> {
    let bytes = bytes(text)?;
    (bytes.len() == 20).then(|| bytes.to_string())
}
