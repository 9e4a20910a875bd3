//! Why a genesis file can't be used.

use alloy_primitives::{Address, B256};
use std::{io, sync::Arc};

/// Why a genesis file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GenesisError {
    /// The file can't be opened.
    #[error("{file}: can't be opened: {source}")]
    Open {
        /// Path of the genesis file, as it was given.
        file: Arc<str>,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is not JSON, a field has an invalid value, or reading failed.
    #[error("{file}: {}{source}", not_json(source))]
    Parse {
        /// Path of the genesis file, as it was given.
        file: Arc<str>,
        /// The cause, with field, line and column.
        source: serde_json::Error,
    },
    /// The file has an account twice.
    #[error("{file}: alloc has account {address} twice")]
    Twice {
        /// Path of the genesis file, as it was given.
        file: Arc<str>,
        /// The account.
        address: Address,
    },
    /// The file has a slot of an account twice.
    #[error("{file}: alloc has a slot of account {address} twice")]
    SlotTwice {
        /// Path of the genesis file, as it was given.
        file: Arc<str>,
        /// The account.
        address: Address,
    },
    /// The input has an account or a slot of it twice, and can't be read again to find which.
    #[error(
        "{file}: alloc has an account, or a slot of it, twice: that whose address has the hash {account_hash}"
    )]
    HashTwice {
        /// Name of the input.
        file: Arc<str>,
        /// Keccak-256 of the account's address.
        account_hash: B256,
    },
    /// The file's `config` has fields for rules that Cambium does not implement.
    #[error(
        "{file}: config has {}: blocks of such a chain follow rules that are not supported",
        list(fields)
    )]
    OtherRules {
        /// Path of the genesis file, as it was given.
        file: Arc<str>,
        /// The fields.
        fields: Vec<String>,
    },
    /// The file has no fork rules, and is not the genesis of a public chain with built-in rules.
    #[error("{file}: has no `config`, and is not the genesis of a known public chain")]
    NoConfig {
        /// Path of the genesis file, as it was given.
        file: Arc<str>,
    },
}

fn list(fields: &[String]) -> String {
    let quoted: Vec<_> = fields.iter().map(|field| format!("`{field}`")).collect();
    quoted.join(", ")
}

/// Names the expected format where a file is not JSON at all.
fn not_json(error: &serde_json::Error) -> &'static str {
    let at_start = error.line() <= 1 && error.column() <= 1;
    match () {
        () if error.is_syntax() && at_start => "a genesis file is JSON, and this is not: ",
        () if error.is_eof() && at_start => "it is empty, and a genesis file is JSON: ",
        // Also where the error names a field, and is one of its own kind.
        () if error.to_string().contains("EOF while parsing") => "it is cut short: ",
        () => "",
    }
}
