//! Arguments of the commands on accounts and slots: addresses, slots, and the block after which.

use super::{
    super::{block_ref::parse_block, numbers::parse_count},
    database::DbArgs,
};
use cambium::{Address, B256, BlockRef, StorageKey, U256};
use clap::Args as ClapArgs;
use std::num::NonZeroUsize;

pub(crate) const BAL_HELP: &str = "\
From Amsterdam on the access list is stored with the block (EIP-7928). That of an earlier block is
computed by executing the block again. Index 0 is the step before the transactions, index 1 the
first transaction, and the last index the step after the transactions.

With --json: number, hash, kept, access_list_hash, counts, items, items_max (null before Amsterdam),
bytes (full, batched, parallel) and access_list, as eth_getBlockAccessList gives it.";

/// A state in the database.
#[derive(Debug, ClapArgs)]
pub(crate) struct StateArgs {
    /// Use the state after this block: a number, a hash, latest, earliest, safe or finalized
    #[arg(long, value_name = "BLOCK", default_value_t = BlockRef::Latest,
          value_parser = parse_block)]
    pub(crate) block: BlockRef,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GetArgs {
    /// Address of the account
    #[arg(value_parser = parse_address)]
    pub(crate) address: Address,
    /// Storage slot of the account: hex with 0x, otherwise decimal
    #[arg(value_parser = parse_slot)]
    pub(crate) slot: Option<StorageKey>,
    /// Print the account's code instead, in hex
    #[arg(long, conflicts_with = "slot")]
    pub(crate) code: bool,
    /// List the account's slots instead, in the order of keccak256 of the slot
    #[arg(long, conflicts_with_all = ["slot", "code"])]
    pub(crate) storage: bool,
    /// Of --storage: begin at this keccak256 of a slot, of 64 hex digits
    #[arg(long, value_name = "KEY", value_parser = parse_hash, requires = "storage")]
    pub(crate) from: Option<B256>,
    /// Of --storage: list as many slots at most
    #[arg(long, value_name = "N", requires = "storage", default_value = "1000",
          value_parser = parse_count::<NonZeroUsize>)]
    pub(crate) limit: NonZeroUsize,
    #[command(flatten)]
    pub(crate) state: StateArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BalArgs {
    /// The block: a number, a hash, latest, earliest, safe or finalized
    #[arg(value_name = "BLOCK", value_parser = parse_block)]
    pub(crate) block: BlockRef,
    #[command(flatten)]
    pub(crate) db: DbArgs,
}

/// Parses an address, and says what is wrong with it.
pub(crate) fn parse_address(text: &str) -> Result<Address, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if let Some(other) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(format!(
            "an address is hexadecimal, and {other:?} is not a digit of it"
        ));
    }
    match digits.parse() {
        Ok(address) => Ok(address),
        Err(_) => {
            let digits = digits.len();
            Err(format!(
                "an address has 20 bytes, which are 40 digits after 0x, and not {digits}"
            ))
        }
    }
}

/// Parses a hash or a path, and says what is wrong with it.
pub(crate) fn parse_hash(text: &str) -> Result<B256, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if let Some(other) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(format!(
            "a hash is hexadecimal, and {other:?} is not a digit of it"
        ));
    }
    digits.parse().map_err(|_| {
        let digits = digits.len();
        format!("a hash has 32 bytes, which are 64 digits after 0x, and not {digits}")
    })
}

/// Parses a slot: hex after `0x`, otherwise decimal. Unless it has 32 bytes of hex, proofs show it
/// as a number.
pub(crate) fn parse_slot(text: &str) -> Result<StorageKey, String> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let bad = || "a slot is a number of at most 256 bits: hex with 0x, or decimal".to_owned();
    let too_long = radix == 16 && digits.len() > 64;
    if digits.is_empty() || too_long || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(bad());
    }
    let number = U256::from_str_radix(digits, radix).map_err(|_| bad())?;
    Ok(StorageKey {
        slot: B256::from(number.to_be_bytes()),
        quantity: !(radix == 16 && digits.len() == 64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_hex_or_decimal() {
        let slot =
            |text| parse_slot(text).map(|key| (U256::from_be_bytes(key.slot.0), key.quantity));
        assert_eq!(slot("10"), Ok((U256::from(10), true)));
        assert_eq!(slot("0x10"), Ok((U256::from(16), true)));
        let whole = format!("0x{:064x}", 5);
        assert_eq!(slot(&whole), Ok((U256::from(5), false)));
        let too_long = format!("0x{:065x}", 5);
        for bad in ["", "0x", "ff", "-1", "0xg0", "1_000", &too_long] {
            assert!(parse_slot(bad).is_err(), "{bad}");
        }
    }
}
